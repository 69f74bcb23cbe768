import assert from "node:assert/strict";
import { test } from "node:test";
import { Clock, deadline, secondsLeft } from "../../../crates/quell-serve/page/clock.js";

test("the server's clock is the one that the earliest message shows", () => {
  let local = 1000;
  const clock = new Clock(() => local);
  clock.heard(500_000);
  local = 2000;
  // This one was on its way for 300 ms.
  clock.heard(500_700);
  assert.equal(clock.now(), 501_000);
  local = 3000;
  assert.equal(clock.now(), 502_000);
});

test("a countdown runs to 0.0, by the server's clock, in steps", () => {
  const end = "2026-11-16T20:00:10.000Z";
  const now = Date.parse("2026-11-16T20:00:03.820Z");
  assert.equal(secondsLeft(end, now).toFixed(1), "6.2");
  assert.equal(secondsLeft(end, now, 1), 7);
  assert.equal(secondsLeft(end, Date.parse(end) + 5000), 0);
  assert.equal(secondsLeft(undefined, now), undefined);
});

test("the deadline is the server's, else the time of the ask and the grace", () => {
  assert.equal(deadline({ deadline: "2026-11-16T20:00:10.000Z" }), Date.parse("2026-11-16T20:00:10.000Z"));
  assert.equal(deadline({ asked_at: "2026-11-16T20:00:00.000Z", grace: 2.5 }), Date.parse("2026-11-16T20:00:02.500Z"));
  assert.equal(deadline({}), undefined);
});
