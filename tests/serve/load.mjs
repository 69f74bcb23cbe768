// `quell serve` under load: is a stop heard while a thousand streams are open, how quickly does the server end, what does it cost idle,
// and how large may the home be? Prints each figure beside its bound; 1 if one is missed. The figures are of this machine.

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { World } from "../browser/harness.mjs";

const STREAMS = 1000;
const OF_TOKEN = 64;
const SLOW = 200;
const LIVE = Number(process.env.LIVE ?? 500);
const FINISHED = Number(process.env.FINISHED ?? 100000);
const LINES = Number(process.env.LINES ?? 10000000);

let missed = 0;
function say(what, figure, bound, unit) {
  const holds = figure < bound;
  missed += holds ? 0 : 1;
  console.log(`${holds ? "ok    " : "MISSED"} ${what}: ${figure.toFixed(figure < 10 ? 2 : 0)} ${unit} (bound: ${bound} ${unit})`);
}

const ms = (since) => Number(process.hrtime.bigint() - since) / 1e6;
const begin = () => process.hrtime.bigint();
const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** A connection that sends `text`. A reader takes what comes; the others never do. */
async function connect(port, text, reads) {
  const socket = net.connect(port, "127.0.0.1");
  socket.on("error", () => {});
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  socket.write(text);
  if (reads) socket.on("data", (data) => (socket.seen = (socket.seen ?? "") + (socket.seen?.length > 500 ? "" : data)));
  else socket.pause();
  return socket;
}

async function call(world, token, method, route, body) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const answer = await fetch(`http://127.0.0.1:${world.port}${route}`, { method, headers, body });
  return { status: answer.status, text: await answer.text() };
}

const threads = (pid) => readdirSync(`/proc/${pid}/task`);
const switches = (pid) => threads(pid).reduce((sum, task) => sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/task/${task}/status`, "utf8"))[1]), 0);
const pss = (pid) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))[1]) / 1024;

async function idle(world) {
  world.start("idle", [], ["sleep", "600"]);
  await pause(3000);
  const { pid } = world.server;
  const before = switches(pid);
  // The time over which wake-ups are counted.
  await pause(10000);
  say("idle, one job: wake-ups", (switches(pid) - before) / 10, 0.2, "a second");
  say("idle, one job: memory (PSS)", pss(pid), 12, "MiB");
}

async function stopAmongStreams(world) {
  const token = (name, role) => world.quell("serve", "--add-token", name, "--role", role);
  const tokens = Array.from({ length: Math.ceil(STREAMS / OF_TOKEN) }, (_, i) => token(`load${i}`, "view"));
  const id = world.start("target", ["--grace", "30s"], ["bash", "-c", "trap '' TERM; while :; do echo line; sleep 0.01; done"]);
  const sockets = [];
  for (let i = 0; i < STREAMS; i++) {
    const head = `GET /v1/stream?vitals=2s&logs=${id} HTTP/1.1\r\nHost: 127.0.0.1:${world.port}\r\nAuthorization: Bearer ${tokens[i % tokens.length]}\r\n\r\n`;
    sockets.push(await connect(world.port, head, i % 2 === 0));
  }
  // Slow heads: a byte a second.
  const slow = await Promise.all(Array.from({ length: SLOW }, () => connect(world.port, "GET /v1/jobs HTTP/1.1\r\nX-", true)));
  const trickle = setInterval(() => slow.forEach((socket) => socket.write("x")), 1000);
  await pause(3000);
  const refused = sockets.filter((socket, i) => i % 2 === 0 && !/^HTTP\/1.1 200/.test(socket.seen ?? "")).length;
  say(`streams of ${STREAMS} that did not begin`, refused, 1, "streams");
  const keeper = world.json("status", id).job.keeper.pid;
  const stopper = token("stopper", "stop");
  const heard = [];
  for (let i = 0; i < 5; i++) {
    const one = i === 0 ? id : world.start(`other${i}`, ["--grace", "1s"], ["sleep", "600"]);
    const pid = i === 0 ? keeper : world.json("status", one).job.keeper.pid;
    process.kill(pid, "SIGSTOP");
    const began = begin();
    const answer = await call(world, stopper, "POST", `/v1/jobs/${one}/stop`, "{}");
    heard.push(ms(began));
    if (![200, 202].includes(answer.status)) throw new Error(`the stop: ${answer.status} ${answer.text}`);
  }
  say(`a stop among ${STREAMS} streams, half of them unread, ${SLOW} slow heads, the keeper stopped: heard after (worst of 5)`, Math.max(...heard) / 1000, 1, "s");
  await call(world, stopper, "POST", `/v1/jobs/${id}/stop?wait=20s`, '{"kill":true}');
  say(`memory with ${STREAMS} streams (PSS)`, pss(world.server.pid), 120, "MiB");
  clearInterval(trickle);
  for (const socket of [...sockets.slice(200), ...slow]) socket.destroy();
  await pause(1000);
  const began = begin();
  await world.signal("SIGTERM");
  say("SIGTERM with 200 streams: ended after", ms(began) / 1000, 2, "s");
  for (const socket of sockets) socket.destroy();
  await world.serve();
}

/** Copies of the record of a real job, each with an id of its own. */
function fill(world, count) {
  const id = world.start("done", [], ["true"]);
  world.quell("wait", id);
  const jobs = path.join(world.home, "jobs");
  const files = readdirSync(path.join(jobs, id)).map((name) => [name, readFileSync(path.join(jobs, id, name), "latin1")]);
  for (let number = 1; number < count; number++) {
    const other = `${id.slice(0, 4)}${number.toString().padStart(6, "0")}${id.slice(10)}`;
    const dir = path.join(jobs, other);
    mkdirSync(dir, { mode: 0o700 });
    for (const [name, text] of files) writeFileSync(path.join(dir, name), text.replaceAll(id, other), { mode: 0o600, encoding: "latin1" });
  }
}

async function scale(world) {
  fill(world, FINISHED);
  world.quell("list", "--limit", "1");
  for (let i = 0; i < LIVE; i++) world.start(`live${i}`, [], ["sleep", "600"]);
  const token = readFileSync(path.join(world.home, "serve/token"), "utf8").trim();
  let began = begin();
  const list = await call(world, token, "GET", "/v1/jobs?limit=100");
  say(`${LIVE} live and ${FINISHED} finished jobs: the list`, ms(began) / 1000, 2, "s");
  if (JSON.parse(list.text).data.jobs.length < LIVE) throw new Error("the list has too few jobs");
  if (world.browser) {
    const page = await world.page(await world.context());
    const address = page.url();
    await page.goto("about:blank");
    began = begin();
    await page.goto(address);
    await page.locator("tr.job").first().waitFor();
    say("the page: first rows", ms(began) / 1000, 2, "s");
    await page.getByText(`${LIVE + 1}`, { exact: false }).first().waitFor();
    const took = await page.evaluate(async (name) => {
      const field = document.querySelector("input[type=search], .field input");
      const rows = () => document.querySelectorAll("tr.job").length;
      const began = performance.now();
      field.focus();
      field.value = name;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      while (rows() !== 1) await new Promise((resolve) => requestAnimationFrame(resolve));
      return performance.now() - began;
    }, `live${LIVE - 1}`);
    say("the page: filter", took, 100, "ms");
  }
  const log = world.start("log", ["--max-log", "2GiB"], ["seq", "1", String(LINES)]);
  world.quell("wait", log, "--timeout", "10m");
  const ask = async (what, query) => {
    const started = begin();
    const answer = await call(world, token, "GET", `/v1/jobs/${log}/logs?${query}`);
    if (answer.status !== 200 || !answer.text.includes('"text"')) throw new Error(`${what}: ${answer.status} ${answer.text.slice(0, 300)}`);
    say(`a log of ${LINES} lines: ${what}`, ms(started) / 1000, 1, "s");
    return JSON.parse(answer.text).data;
  };
  await ask("its end", "tail=200");
  await ask("its top", "head=200");
  await ask("a grep hit", `grep=${encodeURIComponent(`^${LINES - 7}$`)}&head=1`);
}

const world = await World.begin();
try {
  await idle(world);
  await stopAmongStreams(world);
  await scale(world);
} finally {
  await world.end();
}
process.exit(missed ? 1 : 0);
