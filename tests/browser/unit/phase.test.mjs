import assert from "node:assert/strict";
import { test } from "node:test";
import { ARMED, phase } from "../../../crates/quell-serve/page/phase.js";

const now = Date.parse("2026-11-16T20:00:00Z");
const local = 1_000_000;
const running = { state: "running", vitals: { processes: 6 } };
const stopping = { state: "stopping", stopping: { asked_at: "2026-11-16T19:59:56Z", grace: 10, alive: 3, seen: 13 } };
const step = (job, ask, at = now) => phase(job, ask, at, local).step;

test("one press asks, and the answer of the keeper begins the grace", () => {
  assert.equal(step(running), "ready");
  assert.equal(step(running, { step: "sent", at: local }), "sent");
  assert.equal(step(running, { step: "heard", at: local }), "grace");
  assert.equal(step(stopping, { step: "heard", at: local }), "grace");
  assert.equal(phase(stopping, undefined, now, local).end, now + 6000);
});

test("a double click stays one request: kill takes presses from 0.8 s on", () => {
  assert.equal(phase(stopping, { step: "heard", at: local - ARMED + 1 }, now, local).armed, false);
  assert.equal(phase(stopping, { step: "heard", at: local - ARMED }, now, local).armed, true);
  // A stop that was asked elsewhere has no first click here.
  assert.equal(phase(stopping, undefined, now, local).armed, true);
});

test("after the deadline or a second press it is killing", () => {
  assert.equal(step(stopping, { step: "heard", at: local }, now + 6001), "killing");
  assert.equal(step(stopping, { step: "heard", kill: true, at: local }), "killing");
});

test("a stop that was not heard says so until the job stops all the same", () => {
  assert.equal(step(running, { step: "unheard", at: local }), "unheard");
  assert.equal(step(running, { step: "refused", at: local }), "refused");
  assert.equal(step(stopping, { step: "unheard", at: local }), "grace");
});

test("only the count says 0 left", () => {
  const ended = { state: "ended", verdict: { kind: "gone" } };
  assert.equal(step(ended, { step: "heard", at: local }), "gone");
  assert.equal(step(ended), "none");
  assert.deepEqual(phase({ state: "ended", verdict: { kind: "survivors", count: 2 } }, undefined, now, local), { step: "left", left: 2 });
  assert.equal(step({ state: "ended", verdict: { kind: "unproven" } }, { step: "heard", at: local }), "left");
});
