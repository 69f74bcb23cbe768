// An event as a line: what happened, and by what. The job page and the feed show them.

import { html, Icon } from "./parts.js";
import { actor, cause, clock, duration, outcome, plural } from "./words.js";

const LINES = {
  created: (e) => ["dot", "muted", "Created", e.session ? `session ${e.session}` : ""],
  started: (e) => ["running", "ok", e.run > 1 ? `Running, run ${e.run}` : "Running", e.root ? `root ${e.root.pid}` : ""],
  ready: (e) => ["ready", "ok", "Ready", `after ${duration(e.after)}`],
  stop_asked: (e) => ["ask", "act", "Stop asked", [e.cause === "user" ? "" : cause(e.cause), actor(e.actor), e.actor?.reason && `"${e.actor.reason}"`].filter(Boolean).join(", ")],
  signaled: (e) => ["dot", "muted", `${e.signal} sent to ${e.members}`, `by ${actor(e.actor)}`],
  asked: (e) => ["ask", "act", `${e.signal} to ${e.to === "root" ? "the root" : e.members}`, `grace ${duration(e.grace)}`],
  killed: (e) => ["killed", "bad", "KILL", { grace_over: "the grace was over", wanted: "as was asked", keeper_lost: "its keeper was lost" }[e.reason] ?? ""],
  timed_out: () => ["stopping", "warn", "Timed out", ""],
  leaked: (e) => ["half", "warn", `${plural(e.members, "process")} outlived the command`, ""],
  root_exited: (e) => ["half", "muted", `Root ${outcome(e.outcome)}`, ""],
  owner_gone: (e) => ["half", "warn", "Its owner is gone", e.kept ? "it is kept" : "it is stopped"],
  ended: (e) => [
    e.verdict?.kind === "gone" ? "gone" : "alive",
    e.verdict?.kind === "gone" ? "ok" : "bad",
    e.verdict?.kind === "gone" ? "Ended, 0 left" : e.verdict?.kind === "survivors" ? `Ended, ${e.verdict.count} left alive` : "Ended, not proven dead",
    [outcome(e.outcome), cause(e.cause), e.counts && plural(e.counts.processes, "process"), e.counts?.killed ? `${e.counts.killed} killed` : ""].filter(Boolean).join(", "),
  ],
  restarting: (e) => ["restart", "act", "Restarts", `in ${duration(e.delay)}`],
  not_restarted: (e) => ["stop", "muted", "Not started again", cause(e.cause)],
  restart_limit_reached: (e) => ["restart", "warn", "Restart limit reached", plural(e.restarts, "restart")],
  standby_lost: () => ["lost", "warn", "Standby lost", "the keeper goes on alone"],
  lost: (e) => ["lost", "bad", "Keeper lost", `the stop was finished by ${e.finished_by}`],
  hook_failed: (e) => ["x", "bad", `Hook at ${e.at} failed`, e.why],
};

export function eventLine(event) {
  const [icon, tone, text, more] = (LINES[event.event] ?? ((e) => ["dot", "muted", String(e.event).replaceAll("_", " ").replaceAll(".", " "), ""]))(event);
  return { icon, tone, text, more };
}

export const Timeline = ({ events }) =>
  html`<ol class="tl">${events.map((event, i) => {
    const { icon, tone, text, more } = eventLine(event);
    return html`<li key=${i}><time datetime=${event.time}>${clock(event.time, 2)}</time><${Icon} id=${icon} class=${tone} /><span>${text} <span class="muted">${more}</span></span></li>`;
  })}</ol>`;
