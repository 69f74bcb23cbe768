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
  /** Whether the screen is kept, out of sight, after the session has ended. */
  keep: false,
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

/** What came of jobs beyond their rows, by id; none before the first time. */
let vitals;

/** A row with what came by itself: vitals, and while it stops the deadline. `checked` says that there is no other reason for attention. */
function whole(job, before, checked) {
  const { stop, attention, ...use } = vitals?.get(job.id) ?? {};
  const stopping = job.state === "stopping" ? { ...before?.stopping, ...stop } : undefined;
  return { ...job, members: before?.members, vitals: job.state === "ended" ? undefined : use, stopping, attention, checked };
}

function put(job) {
  // What was known of it may be old.
  live.jobs.set(job.id, whole(job, live.jobs.get(job.id), false));
  touched.add(job.id);
}

/** The event `asked` says when the grace began, for a row that does not have its deadline yet. */
export function asked({ job, time, grace, members }) {
  const row = live.jobs.get(job);
  if (row && row.state !== "ended") live.jobs.set(job, { ...row, stopping: { asked_at: time, grace, seen: members, ...row.stopping } });
}

/** How many members of a job are alive, as a look at its tree has found. */
export function foundAlive(id, alive) {
  const row = live.jobs.get(id);
  if (!row) return;
  const stopping = row.stopping && { ...row.stopping, alive, seen: Math.max(alive, row.stopping.seen ?? 0) };
  live.jobs.set(id, { ...row, members: alive, stopping });
}

/** The jobs that changed while a list was on its way: what came by the stream is newer. */
let touched = new Set();
/** The run of the server that the rows are of. */
let epoch;

export async function list() {
  touched = new Set();
  try {
    const answer = await get("/v1/jobs?limit=100");
    const old = live.jobs;
    live.jobs = new Map([...old].filter(([id]) => touched.has(id)));
    for (const job of answer.jobs) if (!touched.has(job.id)) live.jobs.set(job.id, whole(job, old.get(job.id), vitals !== undefined));
    live.endedMore = answer.more ?? 0;
    live.listed = true;
    live.error = undefined;
  } catch (error) {
    live.error = error;
  }
  changed();
}

/** Takes what has changed; all of it at the beginning of a stream. */
function takeVitals(data, isWhole) {
  const before = vitals;
  const at = serverNow();
  vitals = new Map(isWhole ? [] : before);
  for (const [id, use] of Object.entries(data)) vitals.set(id, { ...use, at, cpu_ring: before?.get(id)?.cpu_ring });
  for (const [id, use] of vitals) {
    const { cpu, cpu_ring: ring = [] } = use;
    // A job that has been idle all the time is not drawn again.
    if (cpu || (cpu === 0 && (!ring.length || ring.some(Boolean)))) vitals.set(id, { ...use, cpu_ring: [...ring, cpu].slice(-15) });
  }
  for (const [id, job] of live.jobs) {
    if (!job.checked || vitals.get(id) !== before?.get(id)) live.jobs.set(id, whole(job, job, true));
  }
}

function handle({ event, data, id, whole: isWhole }) {
  // An older state of a row that has changed since.
  if (!data) return;
  if (event === "hello") {
    live.server = { ...live.server, role: data.role };
    // Another run of the server: what it has is read again.
    if (data.epoch !== epoch) list();
    epoch = data.epoch;
  } else if (event === "job") put(data);
  else if (event === "event" && data.event === "asked") asked(data);
  else if (event === "vitals") takeVitals(data, isWhole); else if (event === "removed") live.jobs.delete(data.job ?? data.id);
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
    live.over = false;
    begin();
  }
  if (message.status) {
    const was = live.conn.kind;
    live.conn = message.status;
    if (message.status.kind === "over") session.over();
    // Events may be missing if the server is another one: the list is cheap.
    if (message.status.kind === "live" && (was === "lost" || !live.listed)) begin();
    changed();
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
