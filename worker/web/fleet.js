// The workers that were heard of, and what follows from their last two snapshots.

const MOST = 256; // workers
const SILENT = 6000; // ms until one that says nothing is forgotten

export class Fleet {
  constructor() {
    this.members = new Map();
  }

  // take takes the text of a snapshot and returns it, or null when it is none.
  take(text, worker, now) {
    let s;
    try {
      s = JSON.parse(text);
    } catch {
      return null;
    }
    if (!sound(s) || s.worker !== worker) return null;
    const member = this.members.get(worker);
    if (!member && this.members.size >= MOST) return null;
    const before = member && member.last.uptime_ms <= s.uptime_ms ? member.last : null;
    this.members.set(worker, { last: s, before, seen: now });
    return s;
  }

  prune(now) {
    for (const [name, m] of this.members) {
      if (now - m.seen > (m.last.state === "stopped" ? 2000 : SILENT)) this.members.delete(name);
    }
  }

  // view returns the figures of workers, models and all.
  view() {
    const all = { requests: 0, failures: 0, tokens: 0, running: 0, slots: 0, queued: 0, total: [] };
    const models = new Map();
    const workers = [];
    for (const name of [...this.members.keys()].sort()) {
      const { last, before } = this.members.get(name);
      const seconds = before ? (last.time_ms - before.time_ms) / 1000 : 0;
      const w = {
        name, state: last.state, reason: last.reason, running: count(last.running) + count(last.realtime_running),
        slots: count(last.slots) + count(last.realtime_slots), requests: 0, tokens: rate(last.tokens, before?.tokens, seconds),
        bytes: last.memory_bytes, version: [last.version, last.isa].filter(Boolean).join(" "), uptime: last.uptime_ms,
        executors: last.executors.map((x, i) => ({
          threads: count(x.threads), busy: Math.min(rate(x.busy_us, before?.executors?.[i]?.busy_us, seconds) / 1e6, 1), cell: [x.model, x.cell].filter(Boolean).join(" "),
        })),
      };
      for (const model of last.models) {
        const was = before?.models?.find((m) => m.name === model.name);
        const m = addModel(models, model, was, seconds);
        w.requests += m.requests;
        all.requests += m.requests;
        all.failures += m.failures;
      }
      workers.push(w);
      all.tokens += w.tokens;
      all.running += w.running;
      all.slots += w.slots;
    }
    for (const m of models.values()) {
      all.queued += m.queued ? m.queued.high + m.queued.std + m.queued.low : 0;
      mergeBuckets(all.total, m.latency.total);
    }
    return { all, workers, models: [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1)) };
  }
}

// sound reports whether something has the form of a snapshot. Who wrote it is not
// known.
function sound(s) {
  const object = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
  const list = (x, most, each) => Array.isArray(x) && x.length <= most && x.every((item) => object(item) && (!each || each(item)));
  const pairs = (x) => x === undefined || (Array.isArray(x) && x.length <= 112 && x.every((p) => Array.isArray(p) && p.length === 2));
  const latency = (x) => x === undefined || (object(x) && Object.values(x).every((h) => object(h) && pairs(h.buckets ?? undefined)));
  const model = (m) => list(m.cells ?? [], 64) && list(m.versions ?? [], 64) && latency(m.latency) && (m.queued === undefined || object(m.queued)) && (m.outcomes === undefined || object(m.outcomes));
  return object(s) && s.v === 1 && list(s.executors, 256) && list(s.models, 64, model) && list(s.recent ?? [], 64);
}

// addModel adds a model on a worker to that on all, and returns this worker's rates.
function addModel(models, model, was, seconds) {
  const name = String(model.name);
  if (!models.has(name)) {
    models.set(name, { name, running: 0, queued: null, requests: 0, failures: 0, tokens: 0, versions: new Set(), latency: { total: [], first_token: [], inter_token: [] } });
  }
  const m = models.get(name);
  const [ok, failed] = outcomes(model);
  const [wasOK, wasFailed] = outcomes(was);
  const own = { requests: rate(ok + failed, was && wasOK + wasFailed, seconds), failures: rate(failed, was && wasFailed, seconds) };
  m.running += count(model.running);
  m.requests += own.requests;
  m.failures += own.failures;
  m.tokens += rate(model.tokens, was?.tokens, seconds);
  const q = model.queued;
  if (q && (!m.queued || q.age_ms < m.queued.age)) m.queued = { high: count(q.high), std: count(q.std), low: count(q.low), age: count(q.age_ms) };
  for (const v of model.versions || []) m.versions.add(`${v.version} ${v.state}`);
  for (const kind of Object.keys(m.latency)) mergeBuckets(m.latency[kind], model.latency?.[kind]?.buckets);
  return own;
}

function outcomes(model) {
  let ok = 0, failed = 0;
  for (const [outcome, n] of Object.entries(model?.outcomes || {})) {
    if (outcome === "stop" || outcome === "length") ok += count(n);
    else failed += count(n);
  }
  return [ok, failed];
}

function count(x) {
  return Number.isFinite(x) && x > 0 ? x : 0;
}

function rate(now, before, seconds) {
  if (!(seconds > 0) || before === undefined || !(now >= before)) return 0;
  return (now - before) / seconds;
}

function mergeBuckets(sum, buckets) {
  for (const [i, n] of buckets || []) if (Number.isInteger(i) && i >= 0 && i < 112) sum.push([i, count(n)]);
}

// quantile is what a share of the durations did not exceed, in ms; NaN when there are
// none. Bucket i ends at 10 µs times 2^(i/4).
export function quantile(buckets, q) {
  const counts = new Array(112).fill(0);
  let total = 0;
  for (const [i, n] of buckets) {
    counts[i] += n;
    total += n;
  }
  let seen = 0;
  for (let i = 0; total > 0 && i < counts.length; i++) {
    seen += counts[i];
    if (seen >= Math.max(1, Math.ceil(q * total))) return 0.01 * 2 ** (i / 4);
  }
  return NaN;
}
