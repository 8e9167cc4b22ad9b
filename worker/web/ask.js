// Requests of this page, and their answers as they arrive. Everything that a model or
// a worker says becomes a text node.

import { randomID } from "./nats.js";

const MOST_SHOWN = 40;

export class Asker {
  constructor(list, prefix) {
    this.list = list;
    this.prefix = prefix;
    this.answers = new Map();
    this.client = "";
  }

  // listen hears the frames of a client's requests.
  listen(nats, client) {
    if (this.nats === nats && this.client === client) return;
    if (this.stop) this.stop();
    this.nats = nats;
    this.client = client;
    this.stop = nats.subscribe(`${this.prefix}.out.${client}.*`, (m) => {
      const answer = this.answers.get(m.subject);
      if (answer) answer.take(m);
    });
  }

  send({ model, input, path, maxTokens, temperature }) {
    const id = randomID();
    const reply = `${this.prefix}.out.${this.client}.${id}`;
    const subject = path === "rt" ? `${this.prefix}.rt.${model}.${this.client}` : `${this.prefix}.req.${model}.${path}.${this.client}`;
    const body = { input };
    if (maxTokens) body.max_tokens = maxTokens;
    if (temperature) body.temperature = temperature;
    const answer = new Answer(model, input, () => this.nats.publish(`${this.prefix}.cancel.${this.client}`, JSON.stringify({ id, seq: answer.sequence }), { reply: `${this.prefix}.out.${this.client}.${randomID()}` }));
    this.answers.set(reply, answer);
    this.list.prepend(answer.item);
    while (this.list.children.length > MOST_SHOWN) this.list.lastChild.remove();
    while (this.answers.size > 4 * MOST_SHOWN) this.answers.delete(this.answers.keys().next().value);
    if (!this.nats.publish(subject, JSON.stringify(body), { reply, headers: [["Nats-Msg-Id", id], ["Content-Type", "application/json"]] })) {
      answer.fail("not connected");
    }
  }
}

class Answer {
  constructor(model, input, cancel) {
    this.item = document.createElement("li");
    this.item.dataset.state = "waiting";
    this.output = element("div", "output");
    this.outcome = element("div", "outcome", "sent");
    const asked = element("div", "asked", `${model}: ${input}`);
    const button = element("button", "cancel", "cancel");
    button.type = "button";
    button.addEventListener("click", cancel);
    this.button = button;
    asked.append(button);
    this.item.append(asked, this.output, this.outcome);
    this.have = 0;
    this.lease = [0, 0];
    this.began = performance.now();
  }

  take(m) {
    if (this.ended) return;
    if (m.status === 503) return this.fail("no worker serves this model, or none is there");
    let f;
    try {
      f = JSON.parse(m.text);
    } catch {
      return;
    }
    if (f === null || typeof f !== "object") return;
    if (f.type === undefined) return this.receipt(f);
    if (f.epoch < this.lease[0] || (f.epoch === this.lease[0] && f.attempt < this.lease[1])) return;
    this.lease = [f.epoch, f.attempt];
    if (f.type === "accepted") this.state("running", `running on ${f.worker}, version ${f.version}`);
    else if (f.type === "token") this.token(f);
    else if (f.type === "heartbeat") this.outcome.textContent = `running: ${f.phase}`;
    else if (f.type === "retry") this.outcome.textContent = "handed back to the queue";
    else if (f.type === "error") this.fail(`${f.code}: ${f.message}`);
    else if (f.type === "final") this.final(f);
  }

  receipt(f) {
    if (f.error) this.fail(`refused by the queue: ${f.error.description || f.error.code}`);
    else if (f.seq) {
      this.sequence = f.seq;
      if (this.item.dataset.state === "waiting") this.outcome.textContent = `queued as number ${f.seq}`;
    }
  }

  token(f) {
    const tokens = Array.isArray(f.tokens) ? f.tokens.length : 0;
    if (f.provisional || (f.index === 0 && this.have > 0)) {
      this.output.replaceChildren();
      this.have = 0;
    } else if (f.index !== this.have) return; // a frame was lost: the final has it
    if (!f.provisional) this.have += tokens;
    this.output.append(element("span", "", f.text));
    this.item.dataset.state = "running";
  }

  final(f) {
    let text = f.text;
    if (f.label !== undefined && f.label !== null) text = `${f.label}  ${Number(f.scores?.[f.label] ?? 1).toFixed(4)}`;
    if (this.output.textContent !== text) this.output.replaceChildren(element("span", "", text));
    const t = f.timing || {};
    const facts = [f.finish_reason, `${f.usage?.output_tokens ?? 0} tokens`, `${Number(t.total_ms).toFixed(1)} ms`];
    if (t.first_token_ms > 0) facts.push(`first after ${Number(t.first_token_ms).toFixed(1)} ms`);
    this.end("final", facts.join(", "));
  }

  fail(why) {
    this.end("error", why);
  }

  state(state, text) {
    this.item.dataset.state = state;
    this.outcome.textContent = text;
  }

  end(state, text) {
    this.ended = true;
    this.button.remove();
    this.state(state, text);
  }
}

export function element(tag, className = "", text = "") {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== "") e.textContent = String(text);
  return e;
}
