import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../../crates/quell-serve/page/sse.js";

const STREAM = "retry: 2000\n\nevent: job\nid: e.1\ndata: {\"a\":1}\n\n: keep-alive\n\ndata: one\ndata: two\r\n\r\nevent:log\rdata:x\r\r";

test("an event is the same however the text is cut into chunks", () => {
  const whole = new SseParser().push(STREAM + "\n");
  for (let size = 1; size < 12; size++) {
    const parser = new SseParser();
    const events = [];
    for (let i = 0; i < STREAM.length; i += size) events.push(...parser.push(STREAM.slice(i, i + size)));
    events.push(...parser.push("\n"));
    assert.deepEqual(events, whole, `chunks of ${size}`);
  }
  assert.deepEqual(whole.map(({ event, data }) => [event, data]), [["job", '{"a":1}'], ["", "keep-alive"], ["message", "one\ntwo"], ["log", "x"]]);
});

test("an id stays until the next one, and half an event is not given out", () => {
  const parser = new SseParser();
  assert.equal(parser.push("id: 7\ndata: a\n\ndata: b\n\n")[1].id, "7");
  assert.deepEqual(parser.push("data: half\n"), []);
  assert.deepEqual(parser.push("\n").map(({ data }) => data), ["half"]);
});
