// A client of the NATS protocol over WebSocket: what this page needs of it. It
// connects again by itself, with pauses that grow, and then subscribes again.
//
// States: "connecting", "open", "closed" (and about to connect again), "login" (the
// server wants credentials, or other ones) and "ended".

const LONGEST_LINE = 8192;
const LONGEST_MESSAGE = 8 << 20;
const PING_EVERY = 10000;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class Nats {
  constructor(url, { onState = () => {}, onError = () => {} } = {}) {
    this.url = url;
    this.onState = onState;
    this.onError = onError;
    this.subscriptions = new Map();
    this.next = 1;
    this.credentials = null; // in memory only
    this.pause = 250;
    this.socket = null;
    this.connect();
  }

  login(user, password) {
    this.credentials = user === "" ? { auth_token: password } : { user, pass: password };
    this.connect();
  }

  connect() {
    clearTimeout(this.retry);
    this.drop();
    this.set("connecting");
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.buffer = new Uint8Array(0);
    this.pings = 0;
    socket.onmessage = (event) => {
      if (this.socket === socket) this.receive(event.data);
    };
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
  }

  // drop forgets the connection there is.
  drop() {
    clearInterval(this.pinging);
    const socket = this.socket;
    this.socket = null;
    if (socket) socket.close();
  }

  lost() {
    this.drop();
    if (this.state === "login" || this.state === "ended") return;
    this.set("closed");
    this.retry = setTimeout(() => this.connect(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, 5000);
  }

  close() {
    clearTimeout(this.retry);
    this.set("ended");
    this.drop();
  }

  set(state, why = "") {
    this.state = state;
    this.onState(state, why);
  }

  send(...parts) {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) return false;
    const bytes = parts.map((p) => (typeof p === "string" ? encoder.encode(p) : p));
    this.socket.send(join(bytes));
    return true;
  }

  // publish reports whether there was a connection to publish on. Headers are pairs.
  publish(subject, payload = "", { reply = "", headers = [] } = {}) {
    if (this.state !== "open") return false;
    const body = encoder.encode(payload);
    const to = reply ? `${subject} ${reply}` : subject;
    if (headers.length === 0) return this.send(`PUB ${to} ${body.length}\r\n`, body, "\r\n");
    const head = encoder.encode(`NATS/1.0\r\n${headers.map(([k, v]) => `${k}: ${v}\r\n`).join("")}\r\n`);
    return this.send(`HPUB ${to} ${head.length} ${head.length + body.length}\r\n`, head, body, "\r\n");
  }

  // subscribe calls take with each message: {subject, reply, text, status}. It returns
  // what ends the subscription.
  subscribe(subject, take) {
    const id = String(this.next++);
    this.subscriptions.set(id, { subject, take });
    if (this.state === "open") this.send(`SUB ${subject} ${id}\r\n`);
    return () => {
      this.subscriptions.delete(id);
      if (this.state === "open") this.send(`UNSUB ${id}\r\n`);
    };
  }

  receive(data) {
    if (!(data instanceof ArrayBuffer)) return this.broken("a message that is not binary");
    this.buffer = join([this.buffer, new Uint8Array(data)]);
    while (this.socket) {
      const used = this.parse(this.buffer);
      if (used === 0) break;
      this.buffer = this.buffer.subarray(used);
    }
    return undefined;
  }

  broken(why) {
    this.onError(`the server sent ${why}`);
    this.lost();
    return 0;
  }

  // parse takes one operation from the beginning of some bytes and returns its length, 0
  // when it is not whole.
  parse(bytes) {
    const end = bytes.indexOf(10);
    if (end < 0) return bytes.length > LONGEST_MESSAGE ? this.broken("a line without an end") : 0;
    const line = decoder.decode(bytes.subarray(0, end)).trimEnd();
    const space = line.search(/\s/);
    const op = (space < 0 ? line : line.slice(0, space)).toUpperCase();
    const rest = space < 0 ? "" : line.slice(space + 1).trim();
    if (op === "MSG" || op === "HMSG") {
      if (line.length > LONGEST_LINE) return this.broken("a long line");
      return this.message(op, rest.split(/\s+/), bytes, end + 1);
    }
    if (op === "INFO") this.info(rest);
    else if (op === "PING") this.send("PONG\r\n");
    else if (op === "PONG") this.pong();
    else if (op === "-ERR") this.refused(rest.replace(/^'|'$/g, ""));
    else if (op !== "+OK" && op !== "") return this.broken(`the operation ${op.slice(0, 20)}`);
    return end + 1;
  }

  message(op, words, bytes, begin) {
    const headed = op === "HMSG";
    const total = Number(words[words.length - 1]);
    const head = headed ? Number(words[words.length - 2]) : 0;
    const most = headed ? 5 : 4;
    if (words.length < most - 1 || words.length > most || !Number.isInteger(total) || total < 0 || total > LONGEST_MESSAGE || !(head >= 0 && head <= total)) {
      return this.broken("a message of no size");
    }
    if (bytes.length < begin + total + 2) return 0;
    const subscription = this.subscriptions.get(words[1]);
    if (subscription) {
      const header = decoder.decode(bytes.subarray(begin, begin + head));
      const status = /^NATS\/1\.0 (\d{3})/.exec(header);
      subscription.take({
        subject: words[0],
        reply: words.length === most ? words[2] : "",
        text: decoder.decode(bytes.subarray(begin + head, begin + total)),
        status: status ? Number(status[1]) : 0,
      });
    }
    return begin + total + 2;
  }

  info(text) {
    let info;
    try {
      info = JSON.parse(text);
    } catch {
      this.broken("no description of itself");
      return;
    }
    if (this.state !== "connecting") return; // news of a server that goes on
    if (info.auth_required && !this.credentials) {
      this.set("login", "");
      this.drop();
      return;
    }
    this.send(`CONNECT ${JSON.stringify({
      verbose: false, pedantic: false, headers: true, no_responders: true, protocol: 1, lang: "js", version: "1", name: "cellmq live", ...this.credentials,
    })}\r\nPING\r\n`);
  }

  pong() {
    this.pings = 0;
    if (this.state !== "connecting") return;
    this.pause = 250;
    this.set("open");
    for (const [id, { subject }] of this.subscriptions) this.send(`SUB ${subject} ${id}\r\n`);
    this.pinging = setInterval(() => {
      if (this.pings++ >= 2) this.lost();
      else this.send("PING\r\n");
    }, PING_EVERY);
  }

  refused(why) {
    if (/authorization|authentication/i.test(why)) {
      this.credentials = null;
      this.set("login", why);
      this.drop();
      return;
    }
    this.onError(why);
  }
}

function join(parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

// randomID makes an id of a request.
export function randomID() {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bytes = crypto.getRandomValues(new Uint8Array(20));
  return Array.from(bytes, (b) => letters[b % letters.length]).join("");
}
