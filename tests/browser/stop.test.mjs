// Stop always answers: heard, the grace counts down, a second press kills, and the receipt says what is left.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { IGNORES_TERM, World } from "./harness.mjs";

let world;

before(async () => {
  world = await World.begin();
});

after(() => world?.end());

test("a stop of a job that ignores TERM counts down, kills and ends in a receipt with 0 left", async () => {
  const id = world.start("deaf", ["--grace", "2s"], IGNORES_TERM);
  const context = await world.context();
  const page = await world.page(context, `#/job/${id}`);
  await page.locator(".acts .btn-p").click();
  await page.getByRole("button", { name: /^Kill/ }).waitFor();
  await page.getByRole("timer").waitFor();
  await page.getByRole("heading", { name: "0 left" }).waitFor();
  const counts = await page.locator(".counts").innerText();
  assert.match(counts, /[1-9]\d*\s+killed after the grace/);
  assert.equal(world.json("status", id).job.verdict.kind, "gone");
  assert.equal(world.json("status", id).job.cause, "user");
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("a second press kills at once, long before the grace is over; a double click does not", async () => {
  const id = world.start("patient", ["--grace", "60s"], IGNORES_TERM);
  const context = await world.context();
  const page = await world.page(context, `#/job/${id}`);
  await page.locator(".acts .btn-p").dblclick();
  await page.getByRole("button", { name: /^Kill/ }).waitFor();
  // The press counts from 0.8 s on, so that a double click stays one request: this wait is the time that is tested.
  await page.waitForTimeout(1000);
  assert.equal(world.json("status", id).job.state, "stopping");
  await page.getByRole("button", { name: /^Kill/ }).click();
  await page.getByRole("heading", { name: "0 left" }).waitFor();
  assert.match(await page.locator(".counts").innerText(), /[1-9]\d*\s+killed without it/);
  await context.close();
});

test("a stop is heard while the job's keeper is stopped by SIGSTOP", async () => {
  const id = world.start("frozen", ["--grace", "1s"], ["sleep", "600"]);
  const { pid } = world.json("status", id).job.keeper;
  const context = await world.context();
  const page = await world.page(context);
  process.kill(pid, "SIGSTOP");
  await page.locator(`#j-${id} .stop`).click();
  await page.locator(`#j-${id}`).getByRole("link", { name: /^0 left/ }).waitFor();
  await page.locator(`#j-${id}`).getByRole("link", { name: /^0 left/ }).click();
  await page.getByRole("heading", { name: "0 left" }).waitFor();
  assert.equal(world.json("status", id).job.verdict.kind, "gone");
  await context.close();
});

test("eight tabs share one stream, and a stop in the last one works", async (t) => {
  // A server of its own: no stream of another test is counted.
  const world = await World.begin();
  t.after(() => world.end());
  const id = world.start("shared", ["--grace", "1s"], ["sleep", "600"]);
  const context = await world.context();
  const first = await world.page(context);
  const tabs = [first];
  for (let i = 1; i < 8; i++) {
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${world.port}/#/`);
    await page.locator(`#j-${id}`).waitFor();
    tabs.push(page);
  }
  const server = await first.evaluate(() => fetch("/v1/server", { headers: { Authorization: `Bearer ${sessionStorage.getItem("quell-token")}` } }).then((answer) => answer.json()));
  assert.equal(server.data.streams, 1);
  const began = Date.now();
  await tabs[7].locator(`#j-${id} .stop`).click();
  await tabs[7].locator(`#j-${id}`).getByText("0 left").waitFor();
  assert.ok(Date.now() - began < 5000);
  // The others see the end too: each has the same rows.
  for (const page of tabs.slice(0, 7)) await page.waitForFunction((job) => !document.querySelector(`#j-${job}`) || /Stopped/.test(document.querySelector(`#j-${job}`).innerText), id);
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("a stop that gets no answer in 3 s says so, with the command that works without the server", async () => {
  const id = world.start("unheard", ["--grace", "1s"], ["sleep", "600"]);
  const context = await world.context();
  const page = await world.page(context, `#/job/${id}`);
  await page.locator(".acts .btn-p").waitFor();
  await world.signal("SIGSTOP");
  try {
    await page.locator(".acts .btn-p").click();
    await page.getByRole("button", { name: /^Asking/ }).waitFor();
    await page.getByRole("button", { name: /^Not heard. Copy: quell stop unheard/ }).waitFor({ timeout: 4500 });
  } finally {
    await world.signal("SIGCONT");
  }
  // The command is the one that works.
  world.quell("stop", "unheard");
  await page.getByRole("heading", { name: "0 left" }).waitFor();
  await context.close();
});

test("several jobs are stopped by one press that names their number, and each end is counted", async () => {
  const session = { QUELL_SESSION: "crowd" };
  const ids = ["one", "two", "three"].map((name) => world.start(`crowd-${name}`, ["--grace", "1s"], ["sleep", "600"], session));
  const context = await world.context();
  const page = await world.page(context);
  await page.getByRole("button", { name: "Stop 3 jobs of crowd" }).click();
  await page.getByLabel("Reason, for the receipts").fill("end of the shift");
  await page.locator(".bar").getByRole("button", { name: /^Stop 3 jobs/ }).click();
  await page.getByText("3 of 3 ended, 0 left").first().waitFor();
  for (const id of ids) assert.equal(world.json("status", id).job.actor.reason, "end of the shift");
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("the page says that the server is gone, how old its data is, and which command stops a job", async () => {
  world.start("orphan", ["--grace", "1s"], ["sleep", "600"]);
  const context = await world.context();
  const page = await world.page(context);
  await page.locator("tr.job", { hasText: "orphan" }).waitFor();
  await world.signal("SIGKILL");
  await page.getByText("No connection to quell serve for").waitFor();
  await page.getByText("quell stop orphan").waitFor();
  assert.equal(await page.locator("tr.job", { hasText: "orphan" }).getByRole("button", { name: "Copy stop" }).count(), 1);
  await world.serve();
  // A session is kept in the server's memory only: after a restart a new address is needed.
  await page.getByText("quell serve --url").waitFor();
  await context.close();
});
