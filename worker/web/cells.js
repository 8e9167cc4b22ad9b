// Cells filling: a lane for each cell, in which each step is a column of squares.

const COLUMN = 11; // px
const GAP = 2;
const MOST_LANES = 24;
const FORGET = 30000; // ms after which a lane without steps goes

export class Cells {
  constructor(root, quiet) {
    this.root = root;
    this.quiet = quiet;
    this.lanes = new Map();
    this.pending = [];
    this.number = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.dark = matchMedia("(prefers-color-scheme: dark)");
  }

  // reset forgets everything: another worker is shown, or it was started anew.
  reset() {
    this.lanes.clear();
    this.root.replaceChildren();
    this.pending = [];
    this.number = 0;
    this.quiet.hidden = false;
  }

  // take queues the steps of a snapshot that are new, to be shown over the interval.
  take(s, now) {
    const steps = Array.isArray(s.recent) ? s.recent : [];
    if (steps.length > 0 && steps[steps.length - 1].n < this.number) this.number = 0;
    const fresh = steps.filter((step) => step.n > this.number);
    for (const step of fresh) {
      this.number = step.n;
      const model = s.models[step.m];
      const cell = model?.cells?.[step.c];
      if (cell && Array.isArray(step.slots)) this.pending.push({ model: String(model.name), cell: String(cell.name), most: cell.max_rows, rows: step.rows, slots: step.slots });
    }
    this.pending = this.pending.slice(-96);
    this.describe(s, now);
    this.pace = this.pending.length / Math.max(s.interval_ms || 250, 100);
    if (this.still.matches) this.advance(this.pending.length, now);
    else if (this.pending.length > 0 && !this.frame) this.run(now);
  }

  // run shows what is pending at the pace, which each snapshot sets anew.
  run(last) {
    let owed = 0; // steps
    const tick = (now) => {
      owed += Math.max(now - last, 0) * this.pace;
      last = now;
      if (owed >= 1) {
        this.advance(Math.floor(owed), now);
        owed %= 1;
      }
      this.frame = this.pending.length > 0 ? requestAnimationFrame(tick) : 0;
    };
    this.frame = requestAnimationFrame(tick);
  }

  advance(n, now) {
    const touched = new Set();
    for (const step of this.pending.splice(0, n)) {
      const lane = this.lane(step);
      if (!lane) continue;
      lane.steps.push(step);
      if (lane.steps.length > 400) lane.steps.splice(0, 200);
      lane.seen = now;
      touched.add(lane);
    }
    for (const lane of touched) this.draw(lane);
  }

  lane(step) {
    const key = `${step.model} ${step.cell}`;
    let lane = this.lanes.get(key);
    if (!lane && this.lanes.size < MOST_LANES) {
      const box = document.createElement("div");
      const title = document.createElement("div");
      const name = document.createElement("span");
      const figures = document.createElement("span");
      const canvas = document.createElement("canvas");
      box.className = "lane";
      name.textContent = key;
      canvas.setAttribute("role", "img");
      title.append(name, figures);
      box.append(title, canvas);
      this.root.append(box);
      this.quiet.hidden = true;
      lane = { box, canvas, figures, key, steps: [], seen: 0 };
      this.lanes.set(key, lane);
    }
    return lane;
  }

  // describe writes the figures of each lane, also for who does not see the squares.
  describe(s, now) {
    for (const lane of this.lanes.values()) {
      if (now - lane.seen > FORGET) {
        lane.box.remove();
        this.lanes.delete(lane.key);
      }
    }
    for (const model of s.models) {
      for (const cell of model.cells || []) {
        const lane = this.lanes.get(`${model.name} ${cell.name}`);
        if (!lane) continue;
        const steps = cell.steps - (lane.before?.steps ?? cell.steps);
        const rows = cell.rows - (lane.before?.rows ?? cell.rows);
        lane.before = { steps: cell.steps, rows: cell.rows };
        const mean = steps > 0 ? rows / steps : 0;
        lane.figures.textContent = steps > 0 ? `${mean.toFixed(1)} of ${cell.max_rows} rows, ${cell.ready} ready` : `at most ${cell.max_rows} rows, idle`;
        lane.canvas.setAttribute("aria-label", `steps of ${lane.key}: ${lane.figures.textContent}`);
      }
    }
  }

  draw(lane) {
    const { canvas, steps } = lane;
    const most = Math.min(Math.max(steps[steps.length - 1].most || 1, 1), 64);
    const square = most <= 8 ? 9 : most <= 16 ? 6 : most <= 32 ? 4 : 2;
    const gap = square > 3 ? GAP : 1;
    const height = most * (square + gap) + gap;
    const width = canvas.clientWidth || 300;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const c = canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    const columns = Math.floor(width / COLUMN);
    const shown = steps.slice(-columns);
    const blank = this.dark.matches ? "#33424f" : "#cfd9e1";
    shown.forEach((step, i) => {
      const x = width - (shown.length - i) * COLUMN + 1;
      for (let row = 0; row < most; row++) {
        const slot = step.slots[row];
        const y = height - (row + 1) * (square + gap);
        c.fillStyle = slot === undefined ? blank : colour(slot, this.dark.matches);
        if (slot === undefined) c.fillRect(x + (COLUMN - 3) / 2, y + square / 2 - 0.5, 1, 1);
        else c.fillRect(x, y, COLUMN - 2, square);
      }
    });
  }
}

// colour is a slot's own: neighbours differ much.
function colour(slot, dark) {
  const hue = (Number(slot) * 137.508) % 360;
  return `hsl(${hue.toFixed(0)} 65% ${dark ? 62 : 46}%)`;
}
