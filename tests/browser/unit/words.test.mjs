import assert from "node:assert/strict";
import { test } from "node:test";
import { attention, bytes, commandOf, duration, fate, severity, span, stateOf, tree } from "../../../crates/quell-serve/page/words.js";

const now = Date.parse("2026-11-16T20:00:00Z");
const job = (values) => ({ id: "01M7GXP8WZ0000000000000000", state: "running", since: "2026-11-16T19:00:00Z", run: 1, ...values });
const word = (values) => stateOf(job(values), now).word;
const ended = (values) => ({ state: "ended", ended: "2026-11-16T19:57:00Z", verdict: { kind: "gone" }, ...values });

test("each state has its word", () => {
  assert.deepEqual(["created", "starting", "running", "ready", "waiting", "stopping", "lost"].map((state) => word({ state })), ["Starting", "Starting", "Running", "Ready", "Waiting", "Stopping", "Lost"]);
  assert.equal(word(ended({ cause: "own_exit", outcome: { kind: "exited", code: 0 } })), "Ended 0");
  assert.equal(word(ended({ cause: "own_exit", outcome: { kind: "exited", code: 3 } })), "Failed 3");
  assert.equal(word(ended({ cause: "external_signal", outcome: { kind: "signaled", signal: "SEGV", core: true } })), "Failed SEGV");
  assert.equal(word(ended({ cause: "user", outcome: { kind: "signaled", signal: "TERM" } })), "Stopped");
  assert.equal(word(ended({ cause: "start_failed", outcome: { kind: "not_started", reason: "no such file" } })), "Not started");
});

test("stopped is never said before the count", () => {
  assert.equal(word({ state: "stopping", outcome: { kind: "exited", code: 0 }, cause: "user" }), "Stopping");
  assert.equal(word(ended({ cause: "user", verdict: { kind: "survivors", count: 2 } })), "2 left alive");
  assert.equal(word(ended({ cause: "user", verdict: { kind: "unproven", why: "x" } })), "Not proven");
});

test("a root that has exited while its tree lives is not called running", () => {
  const half = { outcome: { kind: "exited", code: 0 }, vitals: { processes: 4 } };
  assert.equal(word(half), "Root exited 0");
  assert.equal(stateOf(job(half), now).note, "4 live on");
});

test("the library's word for attention wins over what the record shows", () => {
  assert.equal(attention(job({ attention: { kind: "silent", reason: "no output, no CPU: 38 min" } })), "silent");
  assert.equal(stateOf(job({ attention: { kind: "silent", reason: "no output, no CPU: 38 min" } }), now).note, "no output, no CPU: 38 min");
  assert.equal(word({ state: "stopping", attention: { kind: "stop_overdue" } }), "Stop overdue");
  assert.ok(severity(job(ended({ verdict: { kind: "survivors", count: 1 } }))) < severity(job({ state: "lost" })));
  assert.equal(severity(job({})), 99);
  assert.equal(attention(job(ended({ verdict: { kind: "unproven" } }))), "not_proven");
  assert.equal(attention(job(ended({ verdict: { kind: "unproven" }, checked: true }))), undefined, "the host was restarted since");
});

test("numbers are short and true", () => {
  assert.deepEqual([0.04, 9.94, 9.96, 99.4, 1080, 7200, 259200, NaN].map(duration), ["0.0 s", "9.9 s", "10 s", "99 s", "18 min", "2 h", "3 d", "–"]);
  assert.deepEqual([382, 3600, 60, 12.3, 90061].map(span), ["6 min 22 s", "1 h", "1 min", "12 s", "1 d 1 h"]);
  assert.deepEqual([0, 999, 1000, 212e6, 1.1e9, 640e9, undefined].map(bytes), ["0 B", "999 B", "1 kB", "212 MB", "1.1 GB", "640 GB", "–"]);
});

test("a command can be pasted into a shell", () => {
  assert.equal(commandOf({ command: ["sh", "-c", "it's $HOME", ""] }), `sh -c 'it'\\''s $HOME' ''`);
});

test("the tree draws every member once, also in a ring of parents", () => {
  const member = (pid, ppid) => ({ pid, ppid });
  const rows = tree([member(1, 0), member(2, 1), member(3, 2), member(4, 1), member(8, 9), member(9, 8)]);
  assert.deepEqual(rows.map((row) => row.branch + row.member.pid), ["1", "├─ 2", "│  └─ 3", "└─ 4", "8", "└─ 9"]);
});

test("each fate of a receipt has a word", () => {
  assert.equal(fate("killed_after_grace").word, "still running, killed");
  assert.equal(fate("exited_on_ask", "INT").word, "exited on INT");
  assert.equal(fate("alive").tone, "bad");
});
