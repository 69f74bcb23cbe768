// Everything by keyboard alone: find a job, open it, read its log, mark, stop and read the receipt.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { World } from "./harness.mjs";

let world;

before(async () => {
  world = await World.begin();
});

after(() => world?.end());

test("a job is found, opened, read and stopped without a pointer", async () => {
  const id = world.start("alpha", ["--grace", "1s"], ["bash", "-c", "echo hello from alpha; exec sleep 600"]);
  world.start("beta", ["--grace", "1s"], ["sleep", "600"]);
  const context = await world.context();
  const page = await world.page(context);
  await page.locator(`#j-${id}`).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("alph");
  await page.locator("tr.job", { hasText: "beta" }).waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "alpha" }).waitFor();
  await page.locator(".ln", { hasText: "hello from alpha" }).waitFor();
  await page.keyboard.press("l");
  await page.waitForURL(/#\/log\//);
  await page.locator(".ln", { hasText: "hello from alpha" }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL(/#\/job\//);
  await page.locator(".acts .btn-p").waitFor();
  await page.keyboard.press("x");
  await page.getByRole("heading", { name: "0 left" }).waitFor();
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("rows are walked with j and k, marked with space, and the bar is reached with x", async () => {
  const session = { QUELL_SESSION: "walk" };
  for (const name of ["w1", "w2", "w3"]) world.start(name, ["--grace", "1s"], ["sleep", "600"], session);
  const context = await world.context();
  const page = await world.page(context, "#/?q=session:walk");
  await page.waitForFunction(() => document.querySelectorAll("tr.job").length === 3);
  for (const key of ["j", "j", "k"]) await page.keyboard.press(key);
  const at = await page.evaluate(() => document.activeElement.id);
  assert.match(at, /^j-/);
  await page.keyboard.press("Space");
  await page.keyboard.press("j");
  await page.keyboard.press("Space");
  await page.getByText("2 marked").waitFor();
  // k moves and never kills.
  await page.keyboard.press("k");
  assert.equal(await page.locator('tr.job[aria-selected="true"]').count(), 2);
  await page.keyboard.press("x");
  await page.keyboard.press("Enter");
  await page.getByText("2 of 2 ended, 0 left").first().waitFor();
  assert.equal(world.json("list").jobs.filter((job) => job.session === "walk" && job.state !== "ended").length, 1);
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("letters do nothing while a field has the focus, and the list is one tab stop", async () => {
  world.start("typed", ["--grace", "1s"], ["sleep", "600"]);
  const context = await world.context();
  const page = await world.page(context);
  await page.locator("tr.job").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("xxkill");
  assert.equal(await page.getByRole("searchbox", { name: /Filter/ }).inputValue(), "xxkill");
  assert.equal(await page.locator("tr.job").count(), 0);
  await page.getByRole("searchbox", { name: /Filter/ }).fill("");
  await page.locator("tr.job").first().waitFor();
  assert.equal(await page.locator('tr.job[tabindex="0"]').count(), 1);
  assert.equal(world.json("list").jobs.filter((job) => job.state === "stopping").length, 0);
  await context.close();
});

test("nothing moves while the pointer is in the list: changes wait behind a note", async () => {
  const context = await world.context();
  const page = await world.page(context);
  await page.locator("tr.job").first().hover();
  const before = await page.locator("tr.job").evaluateAll((rows) => rows.map((row) => row.id));
  const id = world.start("newcomer", ["--grace", "1s"], ["sleep", "600"]);
  await page.getByRole("button", { name: /change.*show/ }).waitFor();
  assert.deepEqual(await page.locator("tr.job").evaluateAll((rows) => rows.map((row) => row.id)), before);
  await page.getByRole("button", { name: /change.*show/ }).click();
  await page.locator(`#j-${id}`).waitFor();
  await context.close();
});
