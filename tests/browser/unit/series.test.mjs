import assert from "node:assert/strict";
import { test } from "node:test";
import { filled, rates } from "../../../crates/quell-serve/page/series.js";
import { timeOf } from "../../../crates/quell-serve/page/words.js";

const day = (date, values = {}) => ({ start: `2026-11-${date}T00:00:00Z`, seconds: 86400, jobs: 1, stopped: 0, killed: 0, ...values });

test("days on which nothing ended are days of the chart too", () => {
  const steps = filled([day(13), day(16)], 7, Date.parse("2026-11-18T09:00:00Z"));
  assert.deepEqual(steps.map((step) => new Date(step.start).getUTCDate()), [12, 13, 14, 15, 16, 17, 18]);
  assert.deepEqual(steps.map((step) => step.jobs), [0, 1, 0, 0, 1, 0, 0]);
  assert.deepEqual(filled([], 7), []);
});

test("a rate is that of the last 24 hours, and of fewer than ten stops there is none", () => {
  const hour = (h, stopped, killed) => ({ start: new Date(Date.parse("2026-11-16T00:00:00Z") + h * 3600000).toISOString(), seconds: 3600, stopped, killed });
  const steps = Array.from({ length: 30 }, (_, h) => hour(h, h === 0 || h === 25 ? 10 : 0, h === 0 ? 5 : 0));
  const found = rates(steps);
  assert.equal(found[0], 0.5);
  assert.equal(found[23], 0.5);
  assert.equal(found[24], null);
  assert.equal(found[25], 0);
  assert.deepEqual(rates([day(16, { stopped: 9, killed: 9 })]), [null]);
});

test("a time is read on the day of the log, or with its date", () => {
  const near = "2026-11-16T12:00:00";
  assert.equal(timeOf("14:06:40", near).getTime(), new Date("2026-11-16T14:06:40").getTime());
  assert.equal(timeOf("9:05", near).getTime(), new Date("2026-11-16T09:05:00").getTime());
  assert.equal(timeOf("14:06:40.25", near).getMilliseconds(), 250);
  assert.equal(timeOf("2026-01-31T12:00:00Z", near).toISOString(), "2026-01-31T12:00:00.000Z");
  assert.equal(timeOf("soon", near), undefined);
});
