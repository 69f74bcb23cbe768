// The fleet: what needs attention first, then the jobs in groups. Nothing moves while the pointer or the focus is in the list.

import { filter, go, groups, SORT_NAMES } from "./filter.js";
import { isLost, live, may, serverNow } from "./live.js";
import { Choice, Command, Component, countdown, html, Icon, Line, Problem, Ghosts, Select, Spark, State, StopButton, Tags, Tick } from "./parts.js";
import { asks, bulk, stop, stopMany } from "./stop.js";
import { ago, attention, bytes, clock, commandOf, count, duration, nameOf, ownerOf, percent, plural, severity, stateOf } from "./words.js";

const DAY = 86400000;
/** The marked jobs, fixed when they are marked. */
export const marks = new Set();
let markedAt = 0;

function mark(ids, on) {
  if (!marks.size) markedAt = serverNow();
  for (const id of ids) on ? marks.add(id) : marks.delete(id);
  bulk.run = undefined;
}

const isAlive = (job) => job.state !== "ended";
// What needs attention is shown too, and not counted.
const isShown = (job) => isAlive(job) || attention(job) || asks.has(job.id);
const VIEWS = {
  live: ["Live", isShown],
  attention: ["Needs attention", attention, "alive", "bad"],
  stopping: ["Stopping", (job) => job.state === "stopping", "stopping", "act"],
  ended: ["Ended today", (job) => job.state === "ended" && Date.parse(job.ended ?? job.since) > serverNow() - DAY],
};

const sums = (jobs) => {
  const add = (key) => jobs.reduce((sum, job) => (job.vitals?.[key] === undefined ? sum : (sum ?? 0) + job.vitals[key]), undefined);
  return { processes: add("processes"), memory: add("memory"), cpu: add("cpu") };
};

/** One job. It is drawn again only if the job, its mark or the minute changed. */
class Row extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((key) => key !== "pick" && next[key] !== this.props[key]);
  }

  render({ job, marked, beat, open, current, lost, pick }) {
    const state = stateOf(job, beat);
    const { cpu, memory, processes, output_age: age, last_line: last, cpu_ring: ring } = job.vitals ?? {};
    const since = age === undefined ? undefined : age + (lost ? 0 : Math.max(0, (beat - (job.vitals.at ?? beat)) / 1000));
    const grade = severity(job);
    const edge = grade < 9 ? "e-bad" : grade < 99 ? "e-warn" : job.state === "stopping" ? "e-act" : "";
    const begin = Date.parse(job.started ?? job.created);
    const end = job.state === "ended" ? Date.parse(job.ended) : beat;
    const line = commandOf(job);
    const clean = last?.replace(/\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, "");
    return html`<tr role="row" id=${`j-${job.id}`} class=${`job ${edge} ${open ? "open" : ""}`} aria-selected=${String(marked)} tabIndex=${current ? 0 : -1} onFocusIn=${() => pick(job.id)} onClick=${(event) => event.target.closest("a,button,.tick") || pick(job.id, true)}>
<td role="gridcell" class="c0">${may("stop") && html`<button class="tick" role="checkbox" tabIndex="-1" aria-checked=${String(marked)} aria-label=${`Mark ${nameOf(job)}`} onClick=${(event) => pick(job.id, false, event.shiftKey ? "range" : "mark")}><${Icon} id="check" class="i-s" /></button>`}</td>
<td role="gridcell" class="c1"><span class="l1"><${State} of=${state} /></span><${Note} job=${job} note=${lost && job.state === "stopping" ? "end not seen from here" : state.note} lost=${lost} /></td>
<td role="gridcell" class="c2"><span class="l1"><a class="name" tabIndex="-1" href=${`#/job/${job.id}`}>${nameOf(job)}</a><${Tags} job=${job} /></span><span class="l2 mono" title=${line}>${line}</span></td>
<td role="gridcell" class="c3 num">${duration((end - begin) / 1000)}</td>
<td role="gridcell" class="c4"><span class="cpu">${ring?.length ? html`<${Spark} values=${ring} limit=${job.limits?.cpu} />` : ""}<span>${percent(cpu)}</span></span></td>
<td role="gridcell" class="c5 num">${bytes(memory)}</td><td role="gridcell" class="c6 num">${processes ?? "–"}</td>
<td role="gridcell" class="c7"><span class="l1 mono" title=${clean}>${clean ?? "–"}</span><span class="l2">${since === undefined ? "" : since < 1.5 ? "now" : `${duration(since)} ago`}</span></td>
<td role="gridcell" class="c8 soft">${job.held ?? "–"}</td>
<td role="gridcell" class="c9"><${StopButton} job=${job} lost=${lost} /></td></tr>`;
  }
}

function Note({ job, note, lost }) {
  const text = (value) => html`<span class="brief">${value}</span><span class="l2">${value}</span>`;
  if (job.state !== "stopping" || lost) return text(note);
  return html`<${Tick} every=${100}>${() => {
    const at = countdown(job);
    const left = at?.left === undefined ? "" : at.step === "killing" ? "KILL" : `${at.left.toFixed(1)} s left`;
    return html`${text([note, left].filter(Boolean).join(", "))}${at?.given ? html`<${Line} share=${at.share} />` : ""}`;
  }}<//>`;
}

export class Fleet extends Component {
  state = { closed: new Set(), density: localStorage.getItem("quell-density") };

  /** The groups to draw: those of before while the list is held, so that no row moves under the pointer. */
  layout(jobs, view) {
    const { group = "session", sort = "newest", q = "" } = this.props.query;
    const wanted = groups(jobs, { by: group, sort });
    const key = [view, group, sort, q].join("\n");
    const shape = (list) => list.flatMap((part) => part.jobs.map((job) => part.key + job.id));
    if (this.held && this.shown && this.key === key) {
      const now = new Set(shape(wanted));
      const before = new Set(shape(this.shown));
      this.changes = new Set([...now].filter((id) => !before.has(id)).concat([...before].filter((id) => !now.has(id))).map((id) => id.slice(-26))).size;
      const fresh = (job) => live.jobs.get(job.id) ?? job;
      return this.shown.map((part) => ({ ...part, jobs: part.jobs.map(fresh), all: part.all.map(fresh) }));
    }
    this.changes = 0;
    this.key = key;
    return (this.shown = wanted);
  }

  rows() {
    return [...document.querySelectorAll(".job")].map((row) => row.id.slice(2));
  }

  move(by) {
    const rows = this.rows();
    const at = rows.indexOf(this.state.current);
    const next = by === "first" ? 0 : by === "last" ? rows.length - 1 : at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by));
    this.setState({ current: rows[next] }, () => document.getElementById(`j-${rows[next]}`)?.focus());
  }

  job() {
    return live.jobs.get(this.state.current);
  }

  pick = (id, open, how) => {
    if (how === "range" && this.state.current) {
      const rows = this.rows();
      const [a, b] = [rows.indexOf(this.state.current), rows.indexOf(id)].sort((x, y) => x - y);
      mark(rows.slice(a, b + 1), true);
    } else if (how) mark([id], !marks.has(id));
    this.setState((state) => ({ current: id, open: open ? (state.open === id ? undefined : id) : state.open }));
  };

  keys = {
    j: () => this.move(1), k: () => this.move(-1), ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), g: () => this.move("first"), G: () => this.move("last"),
    Enter: () => this.job() && go(`#/job/${this.job().id}`),
    l: () => this.job() && go(`#/log/${this.job().id}`),
    t: () => this.job() && go(`#/job/${this.job().id}`), e: () => this.job() && go(`#/job/${this.job().id}`),
    " ": () => this.job() && this.pick(this.job().id, false, "mark"),
    "Shift+ ": () => this.job() && this.pick(this.state.current, false, "range"),
    x: () => marks.size ? document.querySelector(".bar .btn-p")?.focus() : this.job() && may("stop") && document.querySelector(`#j-${this.state.current} .stop`)?.click(),
    X: () => this.job() && may("stop") && confirm(`Kill ${nameOf(this.job())} now, without grace?`) && stop(this.job(), { kill: true }),
    Escape: () => (marks.clear(), (bulk.run = undefined), this.setState({})),
    d: () => this.density(this.compact ? "roomy" : "compact"),
  };

  density = (value) => {
    localStorage.setItem("quell-density", value);
    this.setState({ density: value });
  };

  componentDidMount() {
    this.props.bind(this.keys);
  }

  /** When the row with the focus has gone, the focus goes to the one that took its place. */
  componentDidUpdate() {
    const rows = this.rows();
    const { current } = this.state;
    const at = rows.indexOf(current);
    if (current && at < 0 && this.held && document.activeElement === document.body && rows.length) this.move("first");
  }

  hold(on) {
    this.held = on;
    if (!on && this.changes) this.setState({});
  }

  render({ query, set }, { closed, current, open }) {
    const view = VIEWS[query.view] ? query.view : "live";
    const all = [...live.jobs.values()];
    const matching = all.filter(filter(query.q ?? ""));
    const shown = matching.filter(VIEWS[view][1]);
    const running = all.filter((job) => job.state !== "ended");
    const list = this.layout(shown, view);
    this.compact = (this.state.density ?? (shown.length > 50 ? "compact" : "roomy")) === "compact";
    const beat = Math.floor(serverNow() / 5000) * 5000;
    const lost = isLost();
    const total = sums(running);
    const keys = [...new Set(all.flatMap((job) => Object.keys(job.tags ?? {})))].slice(0, 20);
    const first = list.flatMap((part) => (closed.has(part.key) ? [] : part.jobs))[0]?.id;
    const now = current && live.jobs.has(current) ? current : first;
    return html`<main class=${`wrap ${lost ? "stale" : ""}`}>
<div class="head"><h1>Fleet</h1>${lost && html`<span class="state warn"><${Icon} id="pause" />as of ${clock(live.heard ?? live.conn.since)}</span>`}
<div class="sums"><span><b>${running.length}</b> jobs</span><span><b>${total.processes ?? "–"}</b> processes</span><span><b>${bytes(total.memory)}</b></span><span class="only-l">CPU <b>${total.cpu === undefined ? "–" : total.cpu.toFixed(1)}</b>${live.server?.cores ? ` of ${live.server.cores} cores` : ""}</span></div></div>
<nav class="tabs" aria-label="Filter by state">${Object.entries(VIEWS).map(([key, [word, is, icon, tone]]) => html`<a key=${key} href="#" class=${key === "ended" ? "only-l" : ""} aria-current=${key === view ? "true" : undefined} onClick=${(event) => (event.preventDefault(), set({ view: key === "live" ? "" : key }))}>${icon && html`<${Icon} id=${icon} class=${tone} />`}${word} <b>${count(matching.filter(key === "live" ? isAlive : is).length)}${key === "ended" && live.endedMore ? "+" : ""}</b></a>`)}
<div class="right"><${Select} label="Group" value=${query.group ?? "session"} pick=${(group) => set({ group })} options=${[["session", "session"], ["owner", "owner"], ...keys.map((key) => [`tag ${key}`, `tag ${key}`]), ["none", "none"]]} /><${Select} label="Sort" value=${query.sort ?? "newest"} pick=${(sort) => set({ sort })} options=${SORT_NAMES.map((name) => [name, name])} /><${Choice} label="Density" value=${this.compact ? "compact" : "roomy"} pick=${this.density} options=${[["roomy", "Roomy"], ["compact", "Compact"]]} /></div></nav>
<div class="card fleet-card" onPointerEnter=${() => this.hold(true)} onPointerLeave=${() => this.hold(false)} onFocusIn=${() => this.hold(true)} onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || this.hold(false)}>
${this.changes > 0 && html`<button class="btn changes" onClick=${() => ((this.shown = undefined), this.setState({}))}>${plural(this.changes, "change")}, show</button>`}
<table class=${`fleet ${this.compact ? "compact" : ""}`} role="grid" aria-multiselectable="true" aria-label="Jobs"><colgroup>${[40, 184, 0, 62, 124, 70, 48, 0, 66, 122].map((w) => html`<col class=${`w${w}`} />`)}</colgroup>
<thead role="rowgroup"><tr role="row"><th role="columnheader"><span class="sr">Mark</span></th><th role="columnheader">State</th><th role="columnheader">Job</th><th role="columnheader" class="num">Age</th><th role="columnheader" class="num">CPU, last 30 s</th><th role="columnheader" class="num">Memory</th><th role="columnheader" class="num">Procs</th><th role="columnheader">Last output</th><th role="columnheader">Held by</th><th role="columnheader"><span class="sr">Action</span></th></tr></thead>
${list.map((part) => this.group(part, { closed, beat, lost, now, open, view }))}</table>
${live.listed || live.error ? "" : html`<${Ghosts} />`}${live.error && !live.listed && html`<${Problem} error=${live.error} />`}
${live.listed && !shown.length && html`<div class="empty">${all.length && (query.q || view !== "live") ? html`<h2>No job matches</h2><p>${plural(all.length, "job")} looked at${query.q ? `, for ${query.q}` : ""}.</p>` : html`<h2>No jobs ${all.length ? "are running" : "yet"}</h2><p>What quell starts appears here at once.</p><${Command} text="quell start --name web -- npm run dev" />`}</div>`}</div>
<${Bar} clear=${this.keys.Escape} /></main>`;
  }

  group(part, { closed, beat, lost, now, open, view }) {
    const urgent = part.key === "!";
    if (urgent && !part.jobs.length) {
      if (view !== "live" || !live.listed || !live.jobs.size) return null;
      const last = [...live.jobs.values()].filter((job) => job.ended && job.cause === "user").sort((a, b) => (a.ended < b.ended ? 1 : -1))[0];
      return html`<tbody role="rowgroup" key="!"><tr class="grp" role="row"><th colspan="10" role="gridcell"><span class="flex"><${Icon} id="gone" class="ok" /><b>Nothing needs you</b><span class="muted">${last ? `the last stop, ${nameOf(last)}, ended with 0 left ${ago(last.ended, beat)}` : ""}</span></span></th></tr></tbody>`;
    }
    const hidden = closed.has(part.key);
    const { processes, memory } = sums(part.all);
    const running = part.all.filter((job) => job.state !== "ended");
    const toggle = () => this.setState({ closed: new Set(hidden ? [...closed].filter((key) => key !== part.key) : [...closed, part.key]) });
    const owners = new Set(part.all.map(ownerOf));
    const facts = [plural(part.all.length, "job"), processes === undefined ? "" : plural(processes, "process"), memory === undefined || urgent ? "" : bytes(memory)];
    return html`<tbody role="rowgroup" key=${part.key}><tr class="grp" role="row"><th colspan="10" role="gridcell"><span class="flex"><button class="btn btn-q fold" aria-expanded=${String(!hidden)} aria-label=${`Show ${urgent ? "needs attention" : part.name || "other jobs"}`} onClick=${toggle}><${Icon} id=${hidden ? "right" : "down"} /></button>
${urgent ? html`<${Icon} id="alive" class=${severity(part.jobs[0]) < 9 ? "bad" : "warn"} /><b>Needs attention</b>` : html`${part.name && html`<span class="muted">${part.by.replace("tag ", "")}</span>`}<b>${part.name || (part.by === "none" ? "All jobs" : `No ${part.by.replace("tag ", "")}`)}</b>${owners.size === 1 && part.by !== "owner" && [...owners][0] && html`<span class="muted only-l">owner ${[...owners][0]}</span>`}`}
<span class="grow"></span><span class="muted only-l">${facts.filter(Boolean).join(", ")}</span>${!urgent && part.name && running.length > 0 && may("stop") && !lost && html`<button class="btn btn-q" aria-label=${`Stop ${plural(running.length, "job")} of ${part.name}`} onClick=${() => (marks.clear(), mark(running.map((job) => job.id), true), this.setState({}))}><${Icon} id="stop" />Stop ${plural(running.length, "job")}</button>`}</span></th></tr>
${!hidden && part.jobs.map((job) => html`<${Row} key=${job.id} job=${job} marked=${marks.has(job.id)} beat=${beat} open=${open === job.id} current=${now === job.id} lost=${lost} ask=${asks.get(job.id)} step=${asks.get(job.id)?.step} pick=${this.pick} />`)}</tbody>`;
  }
}

/** The bar of the marked jobs. Its button names jobs and processes, and is the confirmation. */
class Bar extends Component {
  state = { reason: "", grace: "" };

  render({ clear }, { reason, grace }) {
    const run = bulk.run;
    if (!marks.size && !run) return null;
    const ids = run && !run.found ? run.ids : [...marks];
    const jobs = ids.map((id) => live.jobs.get(id)).filter(Boolean);
    const { processes } = sums(jobs);
    const expect = run?.found?.jobs ?? ids.length;
    const text = run?.found
      ? `Now ${plural(expect, "job")}${run.found.processes === undefined ? "" : ` (${plural(run.found.processes, "process")})`}, stop`
      : `Stop ${plural(ids.length, "job")}${processes === undefined ? "" : ` (${plural(processes, "process")})`}`;
    const names = jobs.map(nameOf).join(", ");
    if (run && !run.found) {
      return html`<div class="bar" role="region" aria-label="Stop of several jobs"><span class="grow"><b class="strong">${run.busy || !run.error ? `${run.ended} of ${ids.length} ended, ${run.left} left` : run.error.message}</b> ${run.error?.hint ?? ""}${run.failed.map(({ id, error }) => html`<span class="bad row">${live.jobs.get(id) ? nameOf(live.jobs.get(id)) : id}: ${error.message}</span>`)}</span>${!run.busy && html`<button class="btn" onClick=${clear}>Close</button>`}</div>`;
    }
    return html`<div class="bar" role="region" aria-label="Marked jobs"><span class="flex"><span><b class="strong">${ids.length} marked</b> <span class="muted">fixed at ${clock(markedAt)}</span></span></span><span class="names only-s">${names}</span>
<input class="field" aria-label="Reason, for the receipts" placeholder="Reason, for the receipts" value=${reason} onInput=${(event) => this.setState({ reason: event.target.value })} />
<${Select} label="Grace" value=${grace} pick=${(value) => this.setState({ grace: value })} options=${[["", "their own"], ["1", "1 s"], ["5", "5 s"], ["30", "30 s"], ["0", "none"]]} />
<button class="btn btn-q" onClick=${clear}>Clear <kbd aria-hidden="true">Esc</kbd></button>
<button class="btn btn-p btn-l" title=${names} disabled=${isLost()} onClick=${() => (stopMany(ids, { expect, grace: grace === "" ? undefined : Number(grace), reason }), marks.clear(), this.setState({}))}><${Icon} id="stop" />${text}</button></div>`;
  }
}
