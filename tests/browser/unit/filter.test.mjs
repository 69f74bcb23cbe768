import assert from "node:assert/strict";
import { test } from "node:test";
import { filter, groups, parseRoute, route } from "../../../crates/quell-serve/page/filter.js";

const jobs = [
  { id: "01A", name: "web", state: "running", session: "shop", command: ["npm", "run", "dev"], tags: { team: "core", role: "server" }, created: "1", vitals: { cpu: 0.8, memory: 5e8, processes: 4 } },
  { id: "01B", name: "db", state: "ready", session: "shop", command: ["postgres"], tags: { role: "db" }, created: "2", vitals: { cpu: 0.1, memory: 2e9, processes: 9 } },
  { id: "01C", name: "bot", state: "lost", session: "triage", command: ["codex"], created: "3" },
];
const found = (text) => jobs.filter(filter(text)).map((job) => job.name);

test("words match names, commands, tags and sessions; all must match", () => {
  assert.deepEqual(found(""), ["web", "db", "bot"]);
  assert.deepEqual(found("shop"), ["web", "db"]);
  assert.deepEqual(found("SHOP npm"), ["web"]);
  assert.deepEqual(found("-shop"), ["bot"]);
});

test("fields, labels and numbers narrow further", () => {
  assert.deepEqual(found("state:ready"), ["db"]);
  assert.deepEqual(found("session:tri"), ["bot"]);
  assert.deepEqual(found("tag:role=s"), ["web"]);
  assert.deepEqual(found("role=db"), ["db"]);
  assert.deepEqual(found("cpu>50"), ["web"]);
  assert.deepEqual(found("mem>1G"), ["db"]);
  assert.deepEqual(found("procs<5"), ["web"]);
});

test("what needs attention comes first and is listed once; its group still counts it", () => {
  const parts = groups([...jobs, { id: "01D", name: "sick", state: "lost", session: "shop", created: "0" }], { by: "session" });
  assert.deepEqual(parts.map((part) => [part.name ?? "!", part.jobs.map((job) => job.name)]), [["!", ["bot", "sick"]], ["shop", ["db", "web"]]]);
  assert.deepEqual(parts[1].all.map((job) => job.name), ["db", "web", "sick"]);
});

test("jobs are grouped by a label, with those without it last", () => {
  assert.deepEqual(groups(jobs.slice(0, 2).concat({ id: "01E", state: "running", created: "9" }), { by: "tag role" }).slice(1).map((part) => part.name), ["db", "server", ""]);
});

test("a route is the same after writing and reading", () => {
  const at = { path: ["log", "a/b c"], query: { q: "x&y=#", at: "14:06" } };
  assert.deepEqual(parseRoute(route(at.path, at.query)), at);
  assert.deepEqual(parseRoute("#/job/%E0%A4%A"), { path: ["job", "%E0%A4%A"], query: {} });
});

test("500 jobs are filtered in less than 100 ms of this process", () => {
  const many = Array.from({ length: 500 }, (_, i) => ({ ...jobs[i % 3], id: `01${i}` }));
  const began = process.cpuUsage().user;
  many.filter(filter("shop -npm state:ready mem>1G"));
  assert.ok(process.cpuUsage().user - began < 100_000);
});
