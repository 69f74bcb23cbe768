// Words and numbers for people. States, causes and fates are those of `quell list` and of the receipt.

export const plural = (n, word, many = word.endsWith("s") ? `${word}es` : `${word}s`) => `${count(n)} ${n === 1 ? word : many}`;
export const count = (n) => Number(n).toLocaleString("en");

/** "0.4 s", "18 s", "3 min", "2 h", "4 d". */
export function duration(seconds) {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** With two units: "6 min 22 s". */
export function span(seconds) {
  if (!(seconds >= 60)) return duration(seconds);
  const [big, small, size] = seconds < 3600 ? ["min", "s", 60] : seconds < 86400 ? ["h", "min", 3600] : ["d", "h", 86400];
  const rest = Math.floor((seconds % size) / { s: 1, min: 60, h: 3600 }[small]);
  return `${Math.floor(seconds / size)} ${big}${rest ? ` ${rest} ${small}` : ""}`;
}

export function bytes(n) {
  if (n === undefined || n === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 999.5 && i < 4; i++) n /= 1000;
  return `${i > 2 && n < 99.5 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export const percent = (share, digits = 0) => (share === undefined || share === null ? "–" : `${(share * 100).toFixed(digits)} %`);

const two = (n) => String(n).padStart(2, "0");

/** The wall clock of the reader: "14:07:49.58". */
export function clock(time, digits = 0) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "–";
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return digits ? `${text}.${String(at.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : text;
}

/** The day too, if it is not today's: "16 Nov 14:07:49". */
export function when(time, now = Date.now()) {
  const at = new Date(time);
  if (at.toDateString() === new Date(now).toDateString()) return clock(time);
  return `${at.getDate()} ${at.toLocaleString("en", { month: "short" })} ${clock(time)}`;
}

/** "14:06:40" on the day of `near`, or any date that the browser reads. */
export function timeOf(text, near) {
  const short = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3}))?)?$/.exec(text.trim());
  const time = short ? new Date(near) : new Date(text.trim());
  if (short) time.setHours(Number(short[1]), Number(short[2]), Number(short[3] ?? 0), Number((short[4] ?? "0").padEnd(3, "0")));
  return Number.isNaN(time.getTime()) ? undefined : time;
}

export const ago = (time, now) => {
  const seconds = (now - Date.parse(time)) / 1000;
  return seconds < 1.5 ? "now" : `${duration(seconds)} ago`;
};

const NORMAL = {
  created: ["Starting", "starting", "act", "act"],
  starting: ["Starting", "starting", "act", "act"],
  running: ["Running", "running", "ok"],
  ready: ["Ready", "ready", "ok"],
  waiting: ["Waiting", "restart", "act", "act"],
  stopping: ["Stopping", "stopping", "act", "act"],
  lost: ["Lost", "lost", "bad", "bad"],
};
const ATTENTION = {
  silent: ["Silent", "silent", "warn", "warn"],
  restart_loop: ["Restart loop", "restart", "warn", "warn"],
  stop_overdue: ["Stop overdue", "stopping", "warn", "warn"],
  killed: ["Killed", "killed", "warn", "warn"],
  lost: NORMAL.lost,
};
const CAUSES = {
  own_exit: "by itself",
  start_failed: "it could not be started",
  user: "a stop was asked",
  user_signal: "a signal by quell signal",
  timeout: "timed out",
  limit: "reached a limit",
  external_signal: "a signal from outside",
  front_lost: "its front was killed",
  keeper_lost: "its keeper was killed",
  owner_gone: "its owner is gone",
  input_closed: "its client closed the input",
  host_reboot: "the host was restarted",
};
export const cause = (kind) => CAUSES[kind] ?? String(kind ?? "").replaceAll("_", " ");

/** How the root ended: "exited 1", "died of TERM". */
export function outcome(end) {
  if (!end) return "";
  if (end.kind === "exited") return `exited ${end.code}`;
  if (end.kind === "signaled") return `died of ${end.signal}${end.core ? ", core dumped" : ""}`;
  return end.kind === "not_started" ? `not started: ${end.reason}` : "end not known";
}

/** What caused an end: "over HTTP, token laptop", "claude 4121". */
export function actor(by) {
  if (!by) return "";
  const { surface, token, client } = by.through ?? {};
  if (surface) return [{ http: "over HTTP", socket: "over the socket", mcp: "by an agent" }[surface] ?? surface, token && `token ${token}`, client].filter(Boolean).join(", ");
  if (by.command) return `${by.command.split(" ")[0].split("/").pop()} ${by.pid}`;
  return { program: "the program", quell: "quell", kernel: "the kernel", unknown: "an unknown process" }[by.kind] ?? `process ${by.pid}`;
}

const form = ([word, icon, tone, all], note = "") => ({ word, icon, tone, all, note });

/** The state of a job: `{word, icon, tone, all, note}`. `tone` colors the shape; `all`, if set, the word too. */
export function stateOf(job, now = Date.now()) {
  const since = Math.max(0, (now - Date.parse(job.since)) / 1000);
  const kind = attention(job);
  const why = job.attention?.reason;
  if (job.state === "ended") {
    const left = job.verdict?.count ?? job.survivors?.length;
    if (kind === "survivors") return form([`${left} left alive`, "alive", "bad", "bad"], `not proven dead for ${duration(since)}`);
    if (kind === "not_proven") return form(["Not proven", "alive", "bad", "bad"], job.verdict?.why ?? "could not be counted");
    const note = `${job.cause === "own_exit" || job.cause === "user" ? "" : `${cause(job.cause)}, `}${ago(job.ended ?? job.since, now)}`;
    if (kind === "killed") return form(ATTENTION.killed, note);
    const end = job.outcome;
    if (end?.kind === "not_started" || job.cause === "start_failed") return form(["Not started", "x", "bad"], end?.reason ?? note);
    if (job.cause !== "own_exit" && job.cause !== "external_signal") return form(["Stopped", "stop", "muted"], note);
    if (end?.kind === "exited" && end.code === 0) return form(["Ended 0", "gone", "ok"], note);
    return form([end?.kind === "exited" ? `Failed ${end.code}` : `Failed ${end?.signal ?? ""}`, "x", "bad"], note);
  }
  if (kind === "root_exited") {
    const word = job.outcome?.kind === "exited" ? `Root exited ${job.outcome.code}` : "Root ended";
    const alive = job.vitals?.processes ?? job.members;
    return form([word, "half", "warn", "warn"], alive === undefined ? "its tree is alive" : `${alive} live on`);
  }
  if (job.state === "stopping" && kind !== "stop_overdue") {
    const { alive = job.vitals?.processes, seen } = job.stopping ?? {};
    return form(NORMAL.stopping, alive === undefined ? "" : seen ? `${alive} of ${seen} alive` : `${alive} alive`);
  }
  if (ATTENTION[kind]) return form(ATTENTION[kind], why ?? (kind === "lost" ? "its keeper was killed" : duration(since)));
  if (job.state === "ready" && job.ready && job.started) {
    return form(NORMAL.ready, `after ${duration((Date.parse(job.ready) - Date.parse(job.started)) / 1000)}`);
  }
  return form(NORMAL[job.state] ?? [job.state, "dot", "muted"], job.run > 1 ? `run ${job.run}` : "");
}

/** Why a job needs attention: the library's word; as long as that is not known, what its record alone shows. */
export function attention(job) {
  if (job.attention || job.checked) return job.attention?.kind;
  if (job.verdict?.kind === "survivors") return "survivors";
  if (job.verdict?.kind === "unproven") return "not_proven";
  if (job.state === "lost") return "lost";
  return job.outcome && job.state !== "ended" && job.state !== "waiting" && job.state !== "stopping" ? "root_exited" : undefined;
}

/** How severe that is, for the edge of the row and the order in the group: 0 first. */
export function severity(job) {
  const kind = attention(job);
  return kind ? Math.max(0, ["survivors", "not_proven", "lost"].indexOf(kind) + 1 || 9) : 99;
}

export const nameOf = (job) => job.name || shortId(job.id);
export const shortId = (id) => String(id).slice(0, 10);
/** A command line as the shell would take it. */
export const commandOf = (job) =>
  (job.command ?? []).map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
/** How this job is named on the command line. */
export const handle = (job) => (job.name && /^[\w.-]+$/.test(job.name) ? job.name : job.id);
export const ownerOf = (job) =>
  !job.owner ? "" : job.owner.kind === "job" ? `job ${shortId(job.owner.job)}` : `${job.owner.command ?? "process"} ${job.owner.pid}`;

/** How much a job has written. */
export const outputFacts = (output) => {
  if (!output) return "–";
  const sum = (key) => output.stdout[key] + output.stderr[key];
  const cut = sum("cut_bytes");
  return `${plural(sum("lines"), "line")}, ${bytes(sum("bytes"))}, ${cut ? `${bytes(cut)} cut` : "none cut"}`;
};

/** What became of a member: `{word, icon, tone}`. `signal` is the one that asked. */
export function fate(kind, signal = "TERM") {
  return {
    exited: { word: "exited", icon: "check", tone: "muted" },
    exited_on_ask: { word: `exited on ${signal}`, icon: "check", tone: "ok" },
    killed_after_grace: { word: "still running, killed", icon: "killed", tone: "bad" },
    killed: { word: "killed", icon: "killed", tone: "bad" },
    ended: { word: "ended", icon: "check", tone: "muted" },
    alive: { word: "STILL ALIVE", icon: "alive", tone: "bad" },
  }[kind] ?? { word: String(kind), icon: "dot", tone: "muted" };
}

/** Members as a tree, parents first: `[{member, branch}]`, where `branch` draws the lines. */
export function tree(members) {
  const pids = new Set(members.map((member) => member.pid));
  const below = new Map();
  const rows = [];
  const drawn = new Set();
  for (const member of members) {
    const parent = pids.has(member.ppid) && member.ppid !== member.pid ? member.ppid : 0;
    below.set(parent, [...(below.get(parent) ?? []), member]);
  }
  const draw = (list, indent, top) => {
    list.forEach((member, index) => {
      if (drawn.has(member)) return;
      drawn.add(member);
      const last = index === list.length - 1;
      rows.push({ member, branch: top ? "" : `${indent}${last ? "└─ " : "├─ "}` });
      draw(below.get(member.pid) ?? [], top ? "" : `${indent}${last ? "   " : "│  "}`, false);
    });
  };
  draw(below.get(0) ?? [], "", true);
  // Members in a ring of parents, as after PID reuse.
  draw(members.filter((member) => !drawn.has(member)), "", true);
  return rows;
}
