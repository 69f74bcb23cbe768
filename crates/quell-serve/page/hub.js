// The one stream of this browser. It runs in a SharedWorker, or in the tab that holds a lock. HTTP/1.1 gives a browser six connections
// to a server: a stream in each tab would leave none for a stop.

import { SseParser } from "./sse.js";

/** Longer without a byte than the server's keep-alive: the connection is lost. */
const SILENCE = 20000;
/** How many logs the server lets one stream follow. */
const MOST = 16;
/** A hidden tab may run its timers once a minute only. */
const FORGET = 150000;

export class Hub {
  /** `post` sends a message to every tab. */
  constructor(post) {
    this.post = post;
    this.tabs = new Map();
    this.cursors = new Map();
    this.status = { kind: "connecting", at: Date.now() };
    this.tries = 0;
    setInterval(() => this.watch(), 5000);
  }

  /** A message of a tab: `{tab, token?, follow?: {job, cursor}, leave?: job, retry?, bye?}`. */
  receive(message) {
    const tab = this.tabs.get(message.tab) ?? { jobs: new Set() };
    tab.at = Date.now();
    this.tabs.set(message.tab, tab);
    if (message.ask) {
      // The server sends what has changed. A new tab needs all of it.
      const batch = this.vitals && [{ event: "vitals", data: this.vitals, whole: true }];
      this.post({ status: this.status, token: this.token, batch, to: message.tab });
    }
    if (message.token && message.token !== this.token) {
      this.token = message.token;
      this.post({ token: this.token });
      this.connect();
    }
    if (message.follow) {
      const { job, cursor } = message.follow;
      tab.jobs.add(job);
      // Another tab may be further on: it leaves out what it has.
      this.cursors.set(job, cursor);
      this.connect();
    }
    if (message.leave) tab.jobs.delete(message.leave);
    if (message.bye) this.tabs.delete(message.tab);
    if (message.signout) {
      this.token = undefined;
      this.abort?.abort();
    }
    if (message.retry && this.status.kind === "lost") this.connect();
  }

  say(status) {
    this.status = { ...status, at: Date.now() };
    this.post({ status: this.status });
  }

  watch() {
    const now = Date.now();
    for (const [id, tab] of this.tabs) if (now - tab.at > FORGET) this.tabs.delete(id);
    if (this.status.kind === "live" && now - this.heard > SILENCE) {
      this.say({ kind: "lost", since: this.heard, retry: now });
      this.connect();
    }
  }

  /** Begins the stream, again if there is one: where it was, with the logs that tabs follow now. */
  connect() {
    if (!this.token) return;
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    this.read(abort.signal).catch(() => {}).finally(() => {
      if ((abort.signal.aborted && abort.signal.reason !== "late") || !this.token) return;
      const wait = Math.min(8000, 500 * 2 ** this.tries++);
      const since = this.status.kind === "lost" ? this.status.since : this.heard ?? Date.now();
      this.say({ kind: "lost", since, retry: Date.now() + wait });
      this.timer = setTimeout(() => this.connect(), wait);
    });
  }

  async read(signal) {
    const wanted = new Set([...this.tabs.values()].flatMap((tab) => [...tab.jobs]));
    for (const job of this.cursors.keys()) if (!wanted.has(job)) this.cursors.delete(job);
    const logs = [...this.cursors].slice(-MOST).map(([job, cursor]) => `&logs=${encodeURIComponent(`${job}@${cursor}`)}`).join("");
    const headers = { Authorization: `Bearer ${this.token}` };
    if (this.last) headers["Last-Event-ID"] = this.last;
    const { abort } = this;
    const limit = setTimeout(() => abort.abort("late"), SILENCE);
    const answer = await fetch(`/v1/stream?events=1&vitals=2s${logs}`, { headers, signal, cache: "no-store", credentials: "omit" }).finally(() =>
      clearTimeout(limit),
    );
    if (answer.status === 401) {
      this.token = undefined;
      this.say({ kind: "over" });
      return;
    }
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) {
      // A job that is followed may be gone: the rest must go on.
      for (const tab of this.tabs.values()) tab.jobs.clear();
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const parser = new SseParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      this.heard = Date.now();
      const events = parser.push(value);
      if (this.status.kind !== "live") {
        this.tries = 0;
        this.say({ kind: "live" });
      }
      const batch = [];
      for (const event of events) {
        if (event.id) this.last = event.id;
        if (!event.event) continue;
        const data = JSON.parse(event.data);
        if ((event.event === "log" || event.event === "cut") && data.cursor) {
          if (this.cursors.has(data.job)) this.cursors.set(data.job, data.cursor);
        }
        // Where the stream began: what comes after it is missed if it ends before the first event.
        if ((event.event === "hello" && !this.last) || event.event === "reset") this.last = data.next;
        // A stream begins with all that is known.
        if (event.event === "hello") this.begins = true;
        const whole = event.event === "vitals" && this.begins;
        if (event.event === "vitals") {
          this.vitals = { ...(whole ? {} : this.vitals), ...data };
          this.begins = false;
        }
        batch.push({ event: event.event, data, id: event.id, whole });
      }
      this.post({ batch, heard: this.heard });
    }
  }
}

// As a SharedWorker. A port that was closed takes messages and drops them.
if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const ports = [];
  const hub = new Hub((message) => ports.forEach((port) => port.postMessage(message)));
  self.onconnect = ({ ports: [port] }) => {
    ports.push(port);
    port.onmessage = ({ data }) => hub.receive(data);
  };
}
