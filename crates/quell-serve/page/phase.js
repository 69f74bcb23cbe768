// The steps of a Stop button, from what the server says of the job and what this page has asked.

import { deadline } from "./clock.js";

/** A double click stays one request: "Kill now" takes presses this many ms after the first one. */
export const ARMED = 800;

/** The step of the Stop button: none, ready, sent, grace, killing, gone, left, unheard or refused. `now` is the server's time. */
export function phase(job, ask, now, local = Date.now()) {
  const left = job.verdict?.count ?? job.survivors?.length ?? 0;
  if (job.state === "ended") {
    if (ask?.step === "sent") return { step: "sent", since: ask.at };
    if (job.verdict && job.verdict.kind !== "gone") return { step: "left", left };
    return { step: ask ? "gone" : "none" };
  }
  const alive = job.stopping?.alive ?? job.vitals?.processes ?? job.members;
  if (ask?.step === "sent") return { step: ask.kill ? "killing" : "sent", since: ask.at, alive };
  const stopping = job.state === "stopping";
  if (!stopping && (ask?.step === "unheard" || ask?.step === "refused")) return { step: ask.step, error: ask.error };
  if (!stopping && ask?.step !== "heard") return { step: "ready", alive };
  const end = deadline(job.stopping);
  if (ask?.kill || (end !== undefined && now >= end)) return { step: "killing", alive, late: end };
  return { step: "grace", alive, end, given: job.stopping?.grace, armed: !ask || local - ask.at >= ARMED };
}
