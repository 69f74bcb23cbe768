import assert from "node:assert/strict";
import { test } from "node:test";
import { ansi, plain } from "../../../crates/quell-serve/page/ansi.js";

test("colors become classes, and the text stays", () => {
  assert.deepEqual(ansi("a \x1b[1;31mred\x1b[0m b"), [{ text: "a ", class: "" }, { text: "red", class: "a-bold a-c1" }, { text: " b", class: "" }]);
  assert.equal(ansi("\x1b[38;5;196mx")[0].class, "a-c1");
  assert.equal(ansi("\x1b[38;2;0;200;0mx")[0].class, "a-c2");
  assert.equal(ansi("\x1b[38:5:4mx")[0].class, "a-c4");
  assert.equal(ansi("\x1b[48;5;1;32mx")[0].class, "a-c2");
});

test("everything but colors is dropped: cursor moves, titles, device strings, links of the terminal", () => {
  assert.equal(plain("\x1b[2J\x1b[H\x1b[?25lok\x1b[K"), "ok");
  assert.equal(plain("\x1b]0;title\x07ok"), "ok");
  assert.equal(plain("\x1b]8;;http://evil/\x1b\\text\x1b]8;;\x1b\\!"), "text!");
  assert.equal(plain("\x1bP1;2|data\x1b\\ok"), "ok");
  assert.equal(plain("\x1b(Bok\x1b"), "ok");
  assert.equal(plain("ok\x1b[1;"), "ok");
});

test("a progress line shows what was written last", () => {
  assert.equal(plain("10%\r50%\r100%"), "100%");
  assert.equal(plain("done\r"), "done");
});

test("characters that hide or reorder text are shown as replaced", () => {
  assert.equal(plain("a\u202eb\u2066c\u200bd\x07e"), "a\ufffdb\ufffdc\ufffdd\ufffde");
});

test("only http addresses are links, and markup stays text", () => {
  const spans = ansi('see https://example.test/a?b=1, or javascript:alert(1) <script>alert("x")</script>');
  assert.deepEqual(spans.filter((span) => span.href).map((span) => span.href), ["https://example.test/a?b=1"]);
  assert.equal(spans.map((span) => span.text).join(""), 'see https://example.test/a?b=1, or javascript:alert(1) <script>alert("x")</script>');
});

test("the time for a hostile line grows with its length, not faster", () => {
  // Time of this process, as the machine may be busy. The best of three.
  const cost = (text) => Math.min(...[1, 2, 3].map(() => {
    const began = process.cpuUsage().user;
    ansi(text);
    return process.cpuUsage().user - began;
  }));
  for (const piece of ["\x1b", "\x1b[", "\x1b]x", "\x1b[1;", "\r", "http://", "\x1b[38;5;", "https://a."]) {
    const [small, large] = [20_000, 160_000].map((size) => cost(piece.repeat(size / piece.length)));
    assert.ok(large < 50_000 + 40 * small, `${JSON.stringify(piece)}: ${small} and ${large} us`);
  }
});

test("random bytes never throw, and no control character is left", () => {
  let seed = 7;
  const next = () => (seed = (seed * 48271) % 2147483647);
  const alphabet = "\x1b[]\\m;0138PX^_?\x07\rab<>&\u202e\u009b ";
  for (let round = 0; round < 5000; round++) {
    const text = Array.from({ length: next() % 40 }, () => alphabet[next() % alphabet.length]).join("");
    assert.doesNotMatch(plain(text), /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/, JSON.stringify(text));
  }
});
