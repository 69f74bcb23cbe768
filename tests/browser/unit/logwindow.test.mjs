import assert from "node:assert/strict";
import { test } from "node:test";
import { formatCursor, keyOf, LogWindow, merged, parseCursor } from "../../../crates/quell-serve/page/logwindow.js";

/** A log of `count` lines "line 7"; each third goes to stderr. */
function log(count) {
  const at = { stdout: 0, stderr: 0 };
  return Array.from({ length: count }, (_, i) => {
    const stream = i % 3 === 2 ? "stderr" : "stdout";
    const line = { kind: "line", stream, text: `line ${i}`, offset: at[stream], ended: true, time: new Date(i * 1000).toISOString() };
    at[stream] += line.text.length + 1;
    return { ...line, cursor: formatCursor(at) };
  });
}
const page = (lines, cursor) => ({ lines, cuts: [], cursor: cursor ?? lines.at(-1).cursor });
const numbers = (window) => window.entries.map((entry) => (entry.kind === "cut" ? "cut" : Number(entry.text.slice(5))));

test("a cursor is the same after reading and writing", () => {
  assert.deepEqual(parseCursor("o12e34"), { stdout: 12, stderr: 34 });
  assert.equal(formatCursor(parseCursor("o12e34")), "o12e34");
  assert.equal(parseCursor("12"), undefined);
});

test("each line is there once, however the stream repeats after a new connection", () => {
  const lines = log(100);
  const window = new LogWindow();
  window.jump(page(lines.slice(20, 40)), { atEnd: true });
  for (let i = 40; i < 70; i++) window.append([lines[i]], lines[i].cursor);
  // The server was started again: the stream begins at an older cursor.
  for (let i = 55; i < 100; i++) window.append([lines[i]], lines[i].cursor);
  window.append(lines.slice(20, 60));
  assert.deepEqual(numbers(window), Array.from({ length: 80 }, (_, i) => i + 20));
});

test("older pages join without gap or double, up to the beginning", () => {
  const lines = log(60);
  const window = new LogWindow();
  window.jump(page(lines.slice(40)), { atEnd: true });
  assert.equal(window.atTop, false);
  window.prepend(page(lines.slice(18, 42)));
  assert.deepEqual(numbers(window), Array.from({ length: 42 }, (_, i) => i + 18));
  window.prepend(page(lines.slice(0, 18)));
  assert.equal(window.atTop, true);
  assert.equal(window.entries.length, 60);
});

test("the beginning of a page is found from its offsets when a stream has no line in it", () => {
  const lines = log(9).filter((line) => line.stream === "stdout");
  const window = new LogWindow();
  window.jump(page(lines.slice(3), "o42e21"));
  assert.deepEqual(window.from, { stdout: lines[3].offset, stderr: 21 });
});

test("a line that had no end yet is completed, not repeated", () => {
  const window = new LogWindow();
  window.jump(page([{ stream: "stdout", text: "prog", offset: 0, ended: false, time: "2026-11-16T20:00:00Z" }], "o0e0"), { atEnd: true });
  window.append([{ kind: "line", stream: "stdout", text: "progress", offset: 0, ended: true, time: "2026-11-16T20:00:00Z" }], "o9e0");
  window.append([{ kind: "line", stream: "stdout", text: "next", offset: 9, ended: true, time: "2026-11-16T20:00:00Z" }], "o14e0");
  assert.deepEqual(window.entries.map((entry) => entry.text), ["progress", "next"]);
});

test("a cut stands before the first line of its stream that follows it", () => {
  const lines = log(6).filter((line) => line.stream === "stdout");
  const cut = { stream: "stdout", from: 7, to: 21, bytes: 14, lines: 2, time: "2026-11-16T20:00:00Z" };
  const entries = merged({ lines: [lines[0], lines[3]], cuts: [cut] });
  assert.deepEqual(entries.map((entry) => entry.kind), ["line", "cut", "line"]);
  assert.notEqual(keyOf(entries[1]), keyOf({ ...entries[1], kind: "line", offset: 7 }));
});

test("memory is bounded: the other end of the window is dropped, and can be read again", () => {
  const lines = log(300);
  const window = new LogWindow(100);
  window.jump(page(lines.slice(0, 90)), { atEnd: true });
  for (const line of lines.slice(90)) window.append([line], line.cursor);
  assert.equal(window.entries.length, 100);
  assert.deepEqual(numbers(window)[0], 200);
  assert.equal(window.atTop, false);
  window.prepend(page(lines.slice(150, 200)));
  assert.equal(window.entries.length, 100);
  assert.equal(numbers(window)[0], 150);
  assert.equal(window.atEnd, false);
  // The end is asked for again from where the window ends now.
  window.append(lines.slice(250), lines.at(-1).cursor);
  assert.equal(new Set(numbers(window)).size, window.entries.length);
});
