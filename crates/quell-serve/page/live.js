// What this tab knows of the server: the jobs, the connection, the clock; and how it hears of changes.

import { get, getToken, session, setToken } from "./api.js";
import { Clock } from "./clock.js";
import { Hub } from "./hub.js";

export const clockOf = new Clock();
export const live = {
  jobs: new Map(),
  /** Whether the list has been read. */
  listed: false,
  /** How many more have ended than are listed. */
  endedMore: 0,
  server: undefined,
  error: undefined,
  conn: { kind: "connecting", at: Date.now() },
  heard: undefined,
  over: false,
};

const listeners = new Set();
const streams = new Set();
let scheduled = false;

/** Calls `listener` after changes, at most once per frame. Returns how to end that. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Calls `listener` with each event of the stream. */
export function onStream(listener) {
  streams.add(listener);
  return () => streams.delete(listener);
}

export function changed() {
  if (scheduled) return;
  scheduled = true;
  // Frames stop in hidden tabs; a timer goes on.
  const run = () => {
    scheduled = false;
    for (const listener of [...listeners]) listener();
  };
  if (document.hidden) setTimeout(run, 500);
  else requestAnimationFrame(run);
}

export const serverNow = () => clockOf.now();
export const isLost = () => live.conn.kind === "lost" && Date.now() - live.conn.since > 2500;
export const may = (role) => {
  const roles = { view: 1, stop: 2, operate: 3, admin: 4 };
  return (roles[live.server?.role] ?? 0) >= roles[role];
};

const tab = Math.random().toString(36).slice(2);
const follows = new Map();
let tell = () => {};

function put(job) {
  const before = live.jobs.get(job.id);
  // A row without vitals keeps those that came by themselves.
  live.jobs.set(job.id, before && !job.vitals ? { ...job, vitals: before.vitals } : job);
  touched.add(job.id);
}

/** The jobs that changed while a list was on its way: what came by the stream is newer. */
let touched = new Set();

export async function list() {
  touched = new Set();
  try {
    const [now, ended] = await Promise.all([get("/v1/jobs?state=live&limit=500"), get("/v1/jobs?state=ended&limit=100")]);
    let page = now;
    const rows = [...now.jobs, ...ended.jobs];
    while (page.more > 0 && page.jobs.length) {
      page = await get(`/v1/jobs?state=live&limit=500&before=${page.jobs.at(-1).id}`);
      rows.push(...page.jobs);
    }
    const kept = touched;
    const old = live.jobs;
    live.jobs = new Map([...old].filter(([id]) => kept.has(id)));
    for (const job of rows) if (!kept.has(job.id)) live.jobs.set(job.id, old.get(job.id)?.vitals && !job.vitals ? { ...job, vitals: old.get(job.id).vitals } : job);
    live.endedMore = ended.more ?? 0;
    live.listed = true;
    live.error = undefined;
  } catch (error) {
    live.error = error;
  }
  changed();
}

function handle({ event, data, id }) {
  if (event === "hello") {
    clockOf.heard(data.now);
    live.server = { ...live.server, ...data };
  } else if (event === "job") put(data);
  else if (event === "vitals") {
    for (const [job, vitals] of Object.entries(data)) {
      const row = live.jobs.get(job);
      if (row && vitals && typeof vitals === "object") {
        const { stopping = row.stopping, attention = vitals.checked ? undefined : row.attention, ...rest } = vitals;
        live.jobs.set(job, { ...row, vitals: { ...row.vitals, ...rest, at: serverNow() }, stopping, attention });
      }
    }
  } else if (event === "removed") live.jobs.delete(data.job ?? data.id);
  else if (event === "reset") list();
  if (data.now) clockOf.heard(data.now);
  for (const listener of [...streams]) listener({ event, data, id });
}

function hear(message) {
  if (message.to && message.to !== tab) return;
  if (message.leader) {
    tell({ token: getToken() });
    for (const [job, cursor] of follows) tell({ follow: { job, cursor: cursor() } });
    return;
  }
  if (message.token && !getToken()) {
    setToken(message.token);
    begin();
  }
  if (message.status) {
    const was = live.conn.kind;
    live.conn = message.status;
    if (message.status.kind === "over") session.over();
    // Events may be missing if the server is another one: the list is cheap.
    if (message.status.kind === "live" && (was === "lost" || !live.listed)) begin();
  }
  if (message.heard) live.heard = message.heard;
  for (const event of message.batch ?? []) handle(event);
  changed();
}

/** Follows a log from `cursor()` on: the lines come as events of the stream. Returns how to end that. */
export function follow(job, cursor) {
  follows.set(job, cursor);
  tell({ follow: { job, cursor: cursor() } });
  return () => {
    follows.delete(job);
    tell({ leave: job });
  };
}

export const retry = () => tell({ retry: true });

/** Reads what the first page needs. */
export async function begin() {
  try {
    live.server = await get("/v1/server");
    if (live.server.now) clockOf.heard(live.server.now);
  } catch (error) {
    live.error = error;
  }
  return list();
}

/** A SharedWorker, else one tab that leads. Script addresses must be trusted: this one is ours. */
function start() {
  const here = new URL("./hub.js", import.meta.url).href;
  if (typeof SharedWorker === "function") {
    const policy = globalThis.trustedTypes?.createPolicy("quell-hub", { createScriptURL: () => here });
    const worker = new SharedWorker(policy ? policy.createScriptURL("") : here, { type: "module", name: "quell" });
    worker.port.onmessage = ({ data }) => hear(data);
    tell = (message) => worker.port.postMessage({ ...message, tab });
  } else {
    const channel = new BroadcastChannel("quell");
    channel.onmessage = ({ data }) => data.down && hear(data.down);
    tell = (message) => channel.postMessage({ up: { ...message, tab } });
    navigator.locks.request("quell-hub", () => {
      const own = new BroadcastChannel("quell");
      const hub = new Hub((down) => own.postMessage({ down }));
      own.onmessage = ({ data }) => data.up && hub.receive(data.up);
      own.postMessage({ down: { leader: true } });
      // The lock is held until this tab is closed.
      return new Promise(() => {});
    });
  }
  tell({ ask: true, token: getToken() ?? undefined });
  setInterval(() => tell({}), 30000);
  addEventListener("pagehide", () => tell({ bye: true }));
}

let started = false;

/** Connects with the token, or asks the other tabs for theirs. */
export function connect() {
  if (!started) start();
  else tell({ token: getToken() ?? undefined });
  started = true;
  if (getToken()) begin();
}

export function signOut() {
  tell({ signout: true });
  setToken(undefined);
}
