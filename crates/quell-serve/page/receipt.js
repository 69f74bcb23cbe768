// The receipt of a job: the verdict, then what was done, and what became of each process.

import { save } from "./api.js";
import { Command, copy, html, Icon, Line } from "./parts.js";
import { actor, bytes, cause, count, duration, fate, outcome, outputFacts, percent, plural, span, tree } from "./words.js";

const step = (receipt, kind) => receipt.steps.find((one) => one.step === kind);
export const askSignal = (receipt) => step(receipt, "ask")?.signals?.[0]?.signal ?? "TERM";
/** Seconds with the digits that matter in a stop. */
const secs = (s) => `${s < 100 ? s.toFixed(3) : s.toFixed(2)} s`;
const MOST = 20;

/** "0 left", and the sentence under it. */
export function verdict(receipt) {
  const seen = receipt.members.length + (receipt.members_omitted ?? 0);
  const left = receipt.survivors.length;
  const asked = step(receipt, "stop_asked") ?? step(receipt, "ask") ?? step(receipt, "kill");
  const took = asked && `${(receipt.ended.at - asked.at).toFixed(2)} s`;
  const of = seen === 1 ? "Its process is not alive." : `None of the ${seen} is alive.`;
  if (receipt.verdict.kind === "gone") {
    const how = receipt.ended_waiting ? "It had no process when it ended." : `${asked ? `Stopped in ${took}` : `Ended ${receipt.cause === "own_exit" ? "by itself" : `because ${cause(receipt.cause)}`}`}. ${of}`;
    return { word: "0 left", icon: "gone", tone: "ok", text: `${how} Counted by the kernel, not assumed.` };
  }
  if (receipt.verdict.kind === "survivors") {
    return { word: `${left} left alive`, icon: "alive", tone: "bad", text: `The stop took ${took ?? "–"}. ${seen - left} of ${seen} are gone, ${left} ${left === 1 ? "is" : "are"} not. quell did all that it may do.` };
  }
  return { word: "Not proven", icon: "alive", tone: "bad", text: `${receipt.verdict.why ?? "The tree could not be counted"}.` };
}

function counts(receipt) {
  const by = (...kinds) => receipt.members.filter((member) => kinds.includes(member.fate)).length;
  const signal = askSignal(receipt);
  const left = receipt.survivors.length;
  const asked = step(receipt, "ask") || step(receipt, "kill");
  const before = asked ? by("exited", "ended") : 0;
  const killed = (n) => (n ? "bad" : "muted");
  return [
    [receipt.members.length + (receipt.members_omitted ?? 0), before ? `processes seen, ${before} ended by themselves` : "processes seen"],
    asked ? [by("exited_on_ask"), `exited on ${signal}`, "check", "ok"] : [by("exited", "ended"), "exited", "check", "ok"],
    [by("killed_after_grace"), "killed after the grace", "killed", killed(by("killed_after_grace"))],
    [by("killed"), "killed without it", "killed", killed(by("killed"))],
    [left, "left alive", left ? "alive" : receipt.verdict.kind === "gone" ? "gone" : "alive", left || receipt.verdict.kind !== "gone" ? "bad" : "ok"],
  ];
}

/** The steps as lines: seconds since the stop was asked, or since the start. */
function steps(receipt) {
  const counted = verdict(receipt);
  const zero = (step(receipt, "stop_asked") ?? step(receipt, "ask") ?? { at: 0 }).at;
  const sent = (one) => {
    const ok = one.signals.filter((signal) => signal.result === "sent").length;
    return ok < one.signals.length ? `${ok} delivered, ${one.signals.length - ok} not` : `${ok} delivered`;
  };
  const list = receipt.steps.filter((one) => one.at >= zero || one.step === "root_exited").map((one) => {
    const to = plural(new Set((one.signals ?? []).map((signal) => signal.to.pid)).size, "process");
    const line = {
      stop_asked: () => ["ask", "act", "Stop asked", [actor(receipt.actor), receipt.actor.reason && `"${receipt.actor.reason}"`, receipt.actor.through ? "" : one.note].filter(Boolean).join(", ")],
      ask: () => ["ask", "act", `${one.signals?.[0]?.signal ?? "TERM"} to ${to}`, [one.note, one.signals?.length && sent(one)].filter(Boolean).join("; ")],
      kill: () => ["killed", "bad", one.signals?.length ? `KILL to ${to}` : "KILL", [{ grace_over: "the grace was over", wanted: "as was asked", keeper_lost: "its keeper was lost" }[receipt.kill], one.note].filter(Boolean).join("; ")],
      root_exited: () => ["half", "muted", `Root ${outcome(receipt.root.outcome)}`, one.note],
      audit: () => ["eye", "muted", "Searched outside the tree", one.note],
      verify: () => [counted.icon, counted.tone, `Counted: ${counted.word}`, one.note === counted.word ? "" : one.note],
      born: () => ["dot", "muted", "Made", one.note],
      running: () => ["running", "ok", "Running", one.note],
      input_closed: () => ["ask", "act", "Input closed", one.note],
      start_failed: () => ["x", "bad", "Not started", one.note],
    }[one.step] ?? (() => ["dot", "muted", one.step, one.note]);
    const [icon, tone, text, more] = line();
    return { at: one.at - zero, icon, tone, text, more, kind: one.step };
  });
  return { list: list.filter((one) => one.at >= 0 || zero === 0), zero };
}

/** The members as rows; of more than 20 those first that did not just exit. */
function Fates({ receipt }) {
  const signal = askSignal(receipt);
  const root = receipt.members.find((member) => member.pid === receipt.root.id?.pid);
  const rows = tree(receipt.members);
  const plain = ({ member }) => member.fate === "exited_on_ask" || member.fate === "exited";
  const shown = rows.length > MOST ? [...rows.filter((row) => !plain(row)), ...rows.filter(plain)].slice(0, 200).map((row) => ({ ...row, branch: "" })) : rows;
  const more = rows.length - shown.length + (receipt.members_omitted ?? 0);
  return html`<div class="tree fates" role="table" aria-label="What became of each"><div role="row" class="thead"><span role="columnheader">PID</span><span role="columnheader">Command</span><span role="columnheader">Fate</span></div>${shown.map(({ member, branch }) => {
    const end = fate(member.fate, signal);
    return html`<div role="row" key=${`${member.pid}.${member.start}`}><span role="cell" class="mono muted">${member.pid}</span><span role="cell" class="who"><span class="br" aria-hidden="true">${branch}</span><code title=${member.command}>${member.command}</code>${root && member.sid !== root.sid && member.sid !== 0 && html`<span class="note"><${Icon} id="out" />own session</span>`}</span><span role="cell" class=${`flex ${member.fate === "alive" ? "bad strong" : ""}`}><${Icon} id=${end.icon} class=${end.tone} /><span class=${end.tone === "bad" ? "strong" : ""}>${end.word}</span></span></div>`;
  })}${more > 0 && html`<div class="thead" role="row"><span role="cell"></span><span role="cell">and ${count(more)} more</span></div>`}</div>`;
}

/** The receipt in one line, close to what `quell run` prints. */
export function headline(receipt) {
  const at = (kind) => step(receipt, kind)?.at.toFixed(2);
  const seen = receipt.members.length + (receipt.members_omitted ?? 0);
  const late = receipt.members.filter((member) => member.fate === "killed_after_grace").length;
  const words = { own_exit: "ended by itself", user: "stopped", timeout: `timed out after ${duration(receipt.job.timeout)}`, start_failed: "did not start", host_reboot: "ended with its host" };
  return [
    `quell: ${words[receipt.cause] ?? `stopped, because ${cause(receipt.cause)}`}: ${plural(seen, "process")}`,
    at("ask") && `${askSignal(receipt)} at ${at("ask")}s`,
    at("kill") && `KILL at ${at("kill")}s${late ? ` (${late} still running)` : ""}`,
    receipt.verdict.kind === "gone" ? "0 left" : receipt.verdict.kind === "survivors" ? `${receipt.survivors.length} LEFT ALIVE` : `not proven dead: ${receipt.verdict.why}`,
  ].filter(Boolean).join(", ");
}

export function Receipt({ receipt, job }) {
  const at = verdict(receipt);
  const { list, zero } = steps(receipt);
  const { asked, used } = receipt.grace;
  const line = receipt.headline ? `quell: ${receipt.headline}` : headline(receipt);
  const text = () => copy([line, ...tree(receipt.members).map(({ member, branch }) => `${branch}${member.command}  ${member.pid}  ${fate(member.fate, askSignal(receipt)).word}`)].join("\n"));
  const json = () => save(new Blob([JSON.stringify(receipt, null, 2)], { type: "application/json" }), `receipt-${job.id}.json`);
  const left = receipt.survivors.map((id) => receipt.members.find((member) => member.pid === id.pid) ?? id);
  return html`<article class="card receipt" aria-label="Receipt"><div class="verdict"><span class=${at.tone}><${Icon} id=${at.icon} class="i-l" /></span><div><h2>${at.word}</h2><p>${at.text}</p></div><div class="flex"><button class="btn" onClick=${text}><${Icon} id="copy" />Copy as text</button><button class="btn" onClick=${json}><${Icon} id="load" />receipt.json</button></div></div>
${left.length > 0 && html`<div class="left">${left.map((member) => html`<span><span class="mono strong">${member.pid}</span> <code>${member.command}</code>${member.user ? ` of user ${member.user} (${member.uid})` : ""} was alive at the last count.</span>`)}<span class="flex"><${Command} text=${`ps -o pid,user,stat,wchan,cmd -p ${left.map((member) => member.pid).join(",")}`} /></span></div>`}
<div class="counts">${counts(receipt).map(([n, word, icon, tone]) => html`<div><b>${count(n)}</b><span class=${word === "left alive" && tone === "bad" ? "bad strong" : ""}>${icon && html`<${Icon} id=${icon} class=${tone} />`}${word}</span></div>`)}</div>
<div class="sheet"><section><h2>What was done <span class="muted">seconds since the ${zero ? "stop was asked" : "start"}</span></h2><ol class="steps">${list.map((one, i) => html`<li key=${i}><time>${secs(one.at)}</time><${Icon} id=${one.icon} class=${one.tone} /><span><span class=${one.kind === "root_exited" || one.kind === "audit" ? "" : "strong"}>${one.text}</span>${one.more && html`<small>${one.more}</small>`}${one.kind === "ask" && used !== undefined && used !== null && asked > 0 && html`<${Line} class="meter" share=${Math.min(1, used / asked)} label=${`Grace used: ${percent(used / asked)}`} /><small>grace: ${asked.toFixed(2)} s given, ${Math.min(used, asked).toFixed(2)} s used (${percent(Math.min(1, used / asked))})</small>`}</span></li>`)}</ol></section>
<section><h2>What became of each</h2><${Fates} receipt=${receipt} /></section></div>
<dl class="foot"><div><dt>The root's own outcome</dt><dd>${outcome(receipt.root.outcome) || "–"}</dd></div><div><dt>How it was held</dt><dd>${receipt.held.containment}, from before the first instruction. ${receipt.held.defeated_by?.length ? html`<details><summary>${plural(receipt.held.defeated_by.length, "way")} to defeat it</summary><ul>${receipt.held.defeated_by.map((way) => html`<li>${way}</li>`)}</ul></details>` : ""}</dd></div><div><dt>What it used</dt><dd>CPU ${span(receipt.usage.cpu_user + receipt.usage.cpu_system)}, most memory of one process ${bytes(receipt.usage.peak_process_memory)}${receipt.output ? `, output ${outputFacts(receipt.output)}` : ""}</dd></div></dl>
${receipt.warnings?.length > 0 && html`<div class="left warnings">${receipt.warnings.map((text) => html`<span>${text}</span>`)}</div>`}
<div class="cli"><code class="grow">${line}</code><span class="muted">${receipt.verdict.kind === "gone" ? "in one line" : "quell stop: exit code 5"}</span></div></article>`;
}
