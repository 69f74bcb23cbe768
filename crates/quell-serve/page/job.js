// One job: its Stop button, facts, tree, events and log; after its end the receipt.

import { get, post } from "./api.js";
import { Timeline } from "./events.js";
import { go } from "./filter.js";
import { asked, foundAlive, isLost, live, may, onStream, serverNow } from "./live.js";
import { LogView } from "./log.js";
import { Answer, Component, copy, countdown, Crumb, Ghosts, html, Icon, Problem, Ring, State, StopButton, Tags, Tick } from "./parts.js";
import { Receipt } from "./receipt.js";
import { phase } from "./phase.js";
import { asks, say, stop, stopCommand } from "./stop.js";
import { actor, bytes, commandOf, count, nameOf, outputFacts, ownerOf, percent, plural, shortId, span, stateOf, tree } from "./words.js";

const limits = (job) =>
  [job.timeout && span(job.timeout), job.limits?.memory && bytes(job.limits.memory), job.limits?.procs && plural(job.limits.procs, "process"), job.limits?.cpu && plural(job.limits.cpu, "core")]
    .filter(Boolean).join(", ") || "none";

/** Starts the job again, if that is confirmed. */
async function restart(job) {
  if (!confirm(`Restart ${nameOf(job)}? It is stopped first.`)) return;
  try {
    const answer = await post(`/v1/jobs/${job.id}/restart`, {}, { timeout: 60000 });
    const id = answer.id ?? answer.jobs?.[0]?.id;
    say(`${nameOf(job)} was started again`);
    if (id && id !== job.id) go(`#/job/${id}`);
  } catch (error) {
    say(error.message);
    alert(`${error.message}${error.hint ? `\n${error.hint}` : ""}`);
  }
}

export class JobPage extends Component {
  state = { events: [], seen: new Map() };

  keys = {
    x: () => document.querySelector(".acts .stop")?.click(),
    X: () => may("stop") && confirm(`Kill ${nameOf(this.job())} now, without grace?`) && stop(this.job(), { kill: true }),
    r: () => may("operate") && restart(this.job()),
    l: () => go(`#/log/${this.job().id}`),
    c: () => copy(stopCommand(this.job())),
    Escape: () => go("#/"),
  };

  job() {
    return live.jobs.get(this.props.id) ?? this.state.status?.job ?? [...live.jobs.values()].find((job) => job.name === this.props.id);
  }

  componentDidMount() {
    this.props.bind(this.keys);
    this.off = onStream(({ event, data }) => {
      const of = data.job ?? data.id;
      if (event === "event" && of === this.job()?.id) this.setState(({ events }) => ({ events: [...events, data] }));
      if (event === "job" && data.id === this.job()?.id) this.read();
    });
    this.read();
    get(`/v1/jobs/${this.props.id}/events`).then((events) => {
      const ask = events.findLast((event) => event.event === "asked");
      if (ask && this.job()?.state === "stopping") asked(ask);
      this.setState({ events });
    }, () => {});
    this.timer = setInterval(() => document.hidden || isLost() || !this.job() || this.job().state === "ended" || this.members(), 2000);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
    this.off();
    const ask = asks.get(this.props.id);
    // The receipt was seen.
    if (ask && this.job()?.state === "ended") asks.delete(this.props.id);
  }

  async read() {
    try {
      const status = await get(`/v1/jobs/${this.props.id}`);
      const row = status.job ?? status;
      this.setState({ status: status.job ? status : { job: row }, error: undefined });
      if (row.state !== "ended") return this.members();
      this.setState({ receipt: await get(`/v1/jobs/${row.id}/receipt`) });
    } catch (error) {
      this.setState({ error });
    }
  }

  /** The living members. Those that have gone stay, grey, until the receipt. CPU is the rate between two looks. */
  async members() {
    const answer = await get(`/v1/jobs/${this.props.id}/tree`).catch(() => undefined);
    if (!answer) return;
    const now = performance.now() / 1000;
    foundAlive(answer.id, answer.processes.length);
    this.setState(({ seen, first }) => {
      const alive = new Set(answer.processes.map((member) => `${member.pid}.${member.start}`));
      // Processes come and go; only those that a stop has ended stay in sight.
      const kept = this.job()?.state === "stopping" ? [...seen] : [...seen].filter(([key]) => alive.has(key));
      const next = new Map(kept.map(([key, member]) => [key, alive.has(key) ? member : { ...member, gone: true }]));
      for (const member of answer.processes) {
        const key = `${member.pid}.${member.start}`;
        const before = seen.get(key);
        const rate = before && now > before.at ? Math.max(0, (member.cpu - before.cpu) / (now - before.at)) : before?.rate;
        // An orphan stays where it was in the tree.
        next.set(key, { ...member, ppid: before?.ppid ?? member.ppid, at: now, rate: member.cpu_rate ?? rate, late: before ? before.late : first && this.job()?.state === "stopping" });
      }
      return { seen: next, first: true };
    });
  }

  render({ id }, { status, receipt, error, events, seen }) {
    const job = this.job();
    if (!job) return html`<main class="wrap"><${Crumb} last=${shortId(id)} />${error ? html`<${Problem} error=${error} />` : html`<${Ghosts} />`}</main>`;
    const ended = job.state === "ended";
    const output = job.output ?? status?.job.output;
    const begin = Date.parse(job.started ?? job.created);
    const ran = ended ? (Date.parse(job.ended) - begin) / 1000 : (serverNow() - begin) / 1000;
    const lines = output ? output.stdout.lines + output.stderr.lines : undefined;
    return html`<main class=${`wrap ${isLost() ? "stale" : ""}`}><${Crumb} job=${job} />
<div class="jobhead"><div class="grow"><div class="title"><h1>${nameOf(job)}</h1><${State} chip of=${stateOf(job, serverNow())} /><${Tags} job=${job} /><span class="mono muted">${shortId(job.id)}</span><span class="muted">${ended ? "ran " : ""}${span(ran)}, run ${job.run}</span></div>
<div class="cut">${job.state === "stopping" ? html`<${Stopping} job=${job} events=${events} />` : html`<code class="soft" title=${commandOf(job)}>${commandOf(job)}</code>`}</div></div>
<div class="acts"><${Clock} job=${job} />${ended && html`<a class="btn btn-l" href=${`#/log/${job.id}`}>Log ${lines !== undefined && html`<span class="muted">${plural(lines, "line")}</span>`} <kbd aria-hidden="true">l</kbd></a>`}
${may("operate") && job.mode !== "run" && html`<button class="btn btn-l" disabled=${job.state === "stopping" || isLost()} onClick=${() => restart(job)}><${Icon} id="restart" />Restart <kbd aria-hidden="true">r</kbd></button>`}
${may("stop") && phase(job, asks.get(job.id), serverNow()).step === "ready" && !isLost() && html`<button class="btn btn-l btn-ko" onClick=${this.keys.X}>Kill now</button>`}<${StopButton} job=${job} large tab /></div></div>
<${Answer} job=${job} />
${ended ? (receipt ? html`<${Receipt} receipt=${receipt} job=${job} />` : error ? html`<${Problem} error=${error} />` : html`<${Ghosts} />`) : ""}
${ended ? "" : html`<dl class="card facts"><div><dt>Where</dt><dd title=${job.cwd}>${job.cwd}</dd></div><div><dt>Owner</dt><dd>${ownerOf(job) ? `${ownerOf(job)}, ${status?.on_owner_exit === "keep" ? "outlives it" : "stops with it"}` : "none"}</dd></div><div><dt>Limits</dt><dd>${limits(job)}</dd></div><div><dt>Held by</dt><dd>${job.held ?? "–"}${status?.defeated_by?.length ? html`, <details class="pop"><summary>what defeats it</summary><ul class="card">${status.defeated_by.map((way) => html`<li>${way}</li>`)}</ul></details>` : ""}</dd></div><div><dt>Use</dt><dd>CPU ${percent(job.vitals?.cpu)}, ${bytes(job.vitals?.memory)}</dd></div><div><dt>Output</dt><dd>${outputFacts(output)}</dd></div></dl>
<div class="two"><div class="stack"><${Processes} job=${job} seen=${[...seen.values()]} /><section class="card"><header><h2>Events</h2></header><${Timeline} events=${events} /></section></div><${LogView} job=${job} small /></div>`}
${ended && html`<section class="card after"><header><h2>Events</h2></header><${Timeline} events=${events} /></section>`}</main>`;
  }
}

const Clock = ({ job }) => html`<${Tick} every=${100}>${() => {
  const at = countdown(job);
  if (at?.left === undefined || isLost()) return "";
  const over = at.step === "killing" || at.left === 0;
  return html`<div class="clock" role="timer" aria-label=${over ? "KILL" : `${at.left.toFixed(0)} seconds of grace left`}><${Ring} share=${at.share} /><span><b>${over ? "KILL" : `${at.left.toFixed(1)} s`}</b><span class="muted">${over ? "was sent" : "until KILL"}</span></span></div>`;
}}<//>`;

function Stopping({ job, events }) {
  const { alive, seen } = job.stopping ?? {};
  const asked = events.findLast((event) => event.event === "stop_asked");
  const by = asked && [actor(asked.actor), asked.actor?.reason && `Reason: ${asked.actor.reason}`].filter(Boolean).join(". ");
  return html`<span class="strong act">${alive === undefined ? "Stopping." : `${alive}${seen ? ` of ${seen}` : ""} still alive.`}</span> <span class="soft">${by ? `Asked ${/^(over|by) /.test(by) ? "" : "by "}${by}` : ""}</span>`;
}

function Processes({ job, seen }) {
  const alive = seen.filter((member) => !member.gone).length;
  const root = seen.find((member) => member.pid === job.root?.pid);
  const pids = new Set(seen.map((member) => member.pid));
  const sid = root?.sid ?? job.root?.pid;
  const stopping = job.state === "stopping";
  const note = (icon, text, tone = "") => html`<span class=${`note ${tone}`}><${Icon} id=${icon} />${text}</span>`;
  const notes = (member) => [
    sid && member.sid !== sid && note("out", "own session"),
    !member.gone && (member.state === "T" || member.state === "stopped") && note("pause", "stopped (T)"),
    !member.gone && member.ignores_term && !stopping && note("deaf", "ignores TERM", "warn"),
    !member.gone && stopping && note("deaf", member.late ? "started after TERM" : "asked, still alive", "warn"),
    root && member.uid !== root.uid && note("deaf", "other user", "bad"),
    root && !root.gone && member !== root && !pids.has(member.ppid) && note("down", "adopted"),
  ];
  return html`<section class="card"><header><h2>Processes</h2><span class="muted">${seen.length ? `${alive} alive, ${stopping || alive < seen.length ? `${seen.length - alive} gone` : "all would be stopped"}` : ""}</span></header>
<div class="tree" role="table" aria-label="Processes"><div role="row" class="thead"><span role="columnheader">PID</span><span role="columnheader">Command</span><span role="columnheader" class="num">CPU</span><span role="columnheader" class="num">Memory</span></div>${tree(seen).map(({ member, branch }) => html`<div role="row" key=${`${member.pid}.${member.start}`} class=${member.gone ? "gone" : ""}><span role="cell" class="mono muted">${member.pid}</span><span role="cell" class="who"><span class="br" aria-hidden="true">${branch}</span><code title=${member.command}>${member.command}</code>${notes(member)}</span><span role="cell" class="num">${member.gone ? "" : percent(member.rate)}</span><span role="cell" class="num">${member.gone ? html`<span class="flex muted"><${Icon} id="check" class="i-s" />exited</span>` : bytes(member.memory)}</span></div>`)}${!seen.length && html`<div class="empty slim">${count(0)} processes seen</div>`}</div></section>`;
}
