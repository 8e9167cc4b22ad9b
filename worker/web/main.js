// The page: connects, watches the workers, shows what they say, and asks models.

import { Asker, element } from "./ask.js";
import { Cells } from "./cells.js";
import { Fleet, quantile } from "./fleet.js";
import { Nats } from "./nats.js";

const INTERVAL = 250; // ms between snapshots
const WATCH = 2000; // ms between questions
const $ = (id) => document.getElementById(id);

const settings = await (await fetch("settings.json")).json();
const fleet = new Fleet();
const cells = new Cells($("lanes"), $("quiet"));
const asker = new Asker($("answers"), settings.prefix);

const examples = { "g2p-en": "cellular batching", "kjv-lm": "Thou shalt not ", langid: "Todos los seres humanos nacen libres", listops: "( ( ( [MAX 2 ) 9 ) ] )" };

if (settings.url === "") {
  $("off").hidden = false;
  show("failed", "no WebSocket");
} else {
  start(new URL(settings.url, location.href));
}

function start(url) {
  url.protocol = url.protocol.replace(/^http/, "ws");
  if (url.hostname === "host") url.hostname = location.hostname;
  let watching;
  const nats = new Nats(url.href, {
    onState(state, why) {
      clearInterval(watching);
      $("login").hidden = state !== "login";
      if (state === "login") $("login-why").textContent = why;
      if (state === "open") {
        $("page").hidden = false;
        draw(); // so that nothing jumps with the first snapshot
        const ask = () => nats.publish(`${settings.prefix}.watch`, JSON.stringify({ interval_ms: INTERVAL }));
        watching = setInterval(ask, WATCH);
        queueMicrotask(ask); // once it is subscribed
      }
      const words = { open: "connected", closed: "connection lost, trying again", login: "wants a login" };
      show(state === "closed" ? "failed" : state, words[state] || state);
    },
    onError(why) {
      show("failed", why);
    },
  });
  nats.subscribe(`${settings.prefix}.live.*`, (m) => {
    const s = fleet.take(m.text, m.subject.slice(settings.prefix.length + 6), performance.now());
    if (s && s.worker === $("worker").value) cells.take(s, performance.now());
  });
  $("login").addEventListener("submit", (event) => {
    event.preventDefault();
    nats.login($("user").value, $("password").value);
    $("password").value = "";
  });
  askForm(nats);
  setInterval(draw, 500);
}

function show(state, text) {
  $("connection").dataset.state = state;
  $("connection").textContent = text;
}

function askForm(nats) {
  $("client").value = `live-${Math.random().toString(36).slice(2, 8)}`;
  const send = (n) => {
    if (!$("ask").reportValidity()) return;
    asker.listen(nats, $("client").value);
    for (let i = 0; i < n; i++) {
      asker.send({
        model: $("model").value, input: $("input").value, path: $("path").value,
        maxTokens: Number($("max-tokens").value) || 0, temperature: Number($("temperature").value) || 0,
      });
    }
  };
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send(1);
  });
  $("many").addEventListener("click", () => send(32));
  $("model").addEventListener("change", example);
  $("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("ask").requestSubmit();
    }
  });
  $("worker").addEventListener("change", () => cells.reset());
}

// example puts a text that the model can read into the box, unless the user has one there.
function example() {
  const text = $("input").value;
  if (text === "" || Object.values(examples).includes(text)) $("input").value = examples[$("model").value] || "";
}

function draw() {
  fleet.prune(performance.now());
  const { all, workers, models } = fleet.view();
  choices($("worker"), workers.map((w) => w.name));
  if (choices($("model"), models.map((m) => m.name))) example();
  const total = [quantile(all.total, 0.5), quantile(all.total, 0.99)];
  rows($("figures"), [
    ["workers", workers.length], ["requests / s", figure(all.requests)], ["not ok / s", figure(all.failures), all.failures > 0], ["tokens / s", figure(all.tokens)],
    ["running", `${all.running} / ${all.slots}`], ["queued", figure(all.queued)], ["p50 / p99 ms", `${figure(total[0])} / ${figure(total[1])}`],
  ], () => {
    const box = element("div", "figure");
    box.append(element("b"), element("span"));
    return box;
  }, (box, [name, value, alarm]) => {
    set(box.firstChild, value);
    set(box.lastChild, name);
    box.firstChild.className = alarm ? "alarm" : "";
  });
  drawExecutors(workers);
  table($("workers"), workers.map((w) => [
    w.name, [w.reason ? `${w.state}: ${w.reason}` : w.state, w.state], `${w.running} / ${w.slots}`, figure(w.requests), figure(w.tokens), bytes(w.bytes), w.version, ago(w.uptime),
  ]));
  table($("models"), models.map((m) => [
    m.name, m.running, m.queued ? `${m.queued.high} / ${m.queued.std} / ${m.queued.low}` : "-", figure(m.requests), figure(m.failures), figure(m.tokens),
    ...[m.latency.total, m.latency.first_token, m.latency.inter_token].map((b) => `${figure(quantile(b, 0.5))} / ${figure(quantile(b, 0.99))}`), [...m.versions].join(", "),
  ]));
}

function drawExecutors(workers) {
  const list = workers.flatMap((w) => w.executors.map((x, i) => ({ ...x, name: workers.length > 1 ? `${w.name} ${i}` : `executor ${i}` }))).filter((x) => x.threads > 0);
  rows($("executors"), list.slice(0, 64), () => {
    const box = element("div", "executor");
    const meter = element("meter");
    meter.max = 1;
    box.append(element("span"), meter, element("span"), element("span", "cell"));
    return box;
  }, (box, x) => {
    const [name, meter, busy, cell] = box.children;
    set(name, x.threads > 1 ? `${x.name} (${x.threads} threads)` : x.name);
    meter.value = x.busy;
    meter.setAttribute("aria-label", `${x.name} is busy`);
    set(busy, `${(100 * x.busy).toFixed(0)} %`);
    set(cell, x.cell);
  });
}

// rows makes as many children as there are items, and fills them.
function rows(root, items, make, fill) {
  while (root.children.length > items.length) root.lastChild.remove();
  while (root.children.length < items.length) root.append(make());
  items.forEach((item, i) => fill(root.children[i], item));
}

function table(body, lines) {
  rows(body, lines, () => element("tr"), (tr, line) => {
    rows(tr, line, () => element("td"), (td, value) => {
      set(td, Array.isArray(value) ? value[0] : value);
      if (Array.isArray(value)) td.dataset.state = value[1];
    });
  });
}

// choices keeps a list's options, and reports whether another one is chosen.
function choices(select, names) {
  const now = [...select.options].map((o) => o.value);
  if (now.length === names.length && now.every((n, i) => n === names[i])) return false;
  const chosen = select.value;
  select.replaceChildren(...names.map((n) => new Option(n, n)));
  if (names.includes(chosen)) select.value = chosen;
  return select.value !== chosen;
}

function set(node, text) {
  if (node.textContent !== String(text)) node.textContent = String(text ?? "");
}

function figure(x) {
  if (!Number.isFinite(x)) return "-";
  if (x >= 10000) return `${(x / 1000).toFixed(x < 1e5 ? 1 : 0)}k`;
  return Number.isInteger(x) ? String(x) : x < 10 ? x.toFixed(1) : x.toFixed(0);
}

function bytes(n) {
  return Number.isFinite(n) ? `${(n / (1 << 20)).toFixed(0)} MiB` : "-";
}

function ago(ms) {
  const s = Math.floor(ms / 1000);
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
}
