// What a Stop button shows and does. A stop that gets no answer in three seconds says so, with the command that works without us.

import { post, postLines } from "./api.js";
import { changed, live } from "./live.js";
import { ARMED } from "./phase.js";
import { handle, nameOf, plural } from "./words.js";

/** What was asked from this page, by job: `{at, step, kill, error}`. `step` is sent, heard, unheard or refused. */
export const asks = new Map();
export const PATIENCE = 3000;
export const spoken = { text: "" };

export function say(text) {
  spoken.text = text;
  changed();
}

/** Asks for the stop of one job, or for its kill. */
export async function stop(job, { kill = false, grace, reason } = {}) {
  const ask = { at: Date.now(), step: "sent", kill };
  asks.set(job.id, ask);
  say(`${nameOf(job)}: ${kill ? "kill" : "stop"} asked`);
  try {
    await post(`/v1/jobs/${job.id}/stop`, { kill: kill || undefined, grace, reason: reason || undefined }, { timeout: PATIENCE });
    ask.step = "heard";
  } catch (error) {
    // 409: heard, and not all are proven dead; the row says so.
    ask.step = error.status === 409 ? "heard" : error.status ? "refused" : "unheard";
    ask.error = error;
    say(`${nameOf(job)}: ${ask.step === "heard" ? "not proven dead" : error.status ? error.message : "the stop was not heard"}`);
  }
  changed();
  // The press counts from 0.8 s on.
  setTimeout(changed, ARMED);
}

export const stopCommand = (job) => `quell stop ${handle(job)}`;

/** What `job`, which has just ended, is said to have ended with. */
export function heardEnd(job) {
  if (!asks.has(job.id)) return;
  say(`${nameOf(job)}: ${job.verdict?.kind === "gone" ? "0 left" : job.verdict?.kind === "survivors" ? `${job.verdict.count} left alive` : "not proven dead"}`);
}

/** The stop of several jobs: the set is that which was marked. `{jobs, expect, ended, left, failed, busy, error, found}`. */
export const bulk = { run: undefined };

export async function stopMany(ids, { expect, grace, reason, kill }) {
  const run = { ids: [...ids], ended: 0, left: 0, failed: [], busy: true };
  bulk.run = run;
  for (const id of ids) asks.set(id, { at: Date.now(), step: "heard", kill });
  say(`${plural(ids.length, "job")}: stop asked`);
  changed();
  try {
    await postLines("/v1/stop", { jobs: run.ids, expect, grace, kill: kill || undefined, reason: reason || undefined }, (line) => {
      const data = line.data ?? line;
      if (line.error || data.error) run.failed.push({ id: data.id ?? line.id, error: line.error ?? data.error });
      else run.ended++;
      run.left += data.receipt?.survivors?.length ?? 0;
      changed();
    });
  } catch (error) {
    run.error = error;
    if (error.code === "count_differs") run.found = { jobs: error.details.ids.length };
    for (const id of ids) if (live.jobs.get(id)?.state !== "stopping") asks.delete(id);
  }
  run.busy = false;
  say(run.error ? run.error.message : `${run.ended} of ${run.ids.length} ended, ${run.left} left`);
}
