// The log: each line once whatever happens to the server, hostile output stays text, and the whole log on disk can be reached.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { World } from "./harness.mjs";

let world;

before(async () => {
  world = await World.begin();
});

after(() => world?.end());

const texts = (page) => page.locator(".ln .tx").allInnerTexts();

test("the server is killed and started again while a log is followed: each line is there exactly once", async () => {
  const id = world.start("ticker", [], ["bash", "-c", "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.02; done; sleep 600"]);
  const context = await world.context();
  const page = await world.page(context, `#/log/${id}`);
  await page.getByText("line 40", { exact: true }).waitFor();
  await world.signal("SIGKILL");
  await world.serve();
  // The sessions are in the server's memory. With a new address the same tab goes on where it was.
  await page.getByText("quell serve --url").waitFor();
  await page.goto(world.quell("serve", "--url"));
  await page.getByText("line 400", { exact: true }).waitFor();
  assert.deepEqual((await texts(page)).filter((text) => text.startsWith("line ")), Array.from({ length: 400 }, (_, i) => `line ${i + 1}`));
  await context.close();
});

test("markup, escapes and characters that reorder text stay text", async () => {
  const hostile = String.raw`printf '<script>document.title="owned"</script><img src=x onerror="document.title=1">\n\033]0;title\007\033[31mred\033[0m \033]8;;javascript:alert(1)\007link\033]8;;\007\n'; printf 'user\342\200\256txt.exe\n'; printf '\033[2Jhttps://example.test/a javascript:alert(1)\n'; sleep 600`;
  const id = world.start("hostile", ["--tag", "x=<b>bold</b>"], ["bash", "-c", hostile]);
  const context = await world.context();
  const page = await world.page(context, `#/log/${id}`);
  await page.getByText("example.test").first().waitFor();
  const lines = await texts(page);
  assert.equal(lines[0], '<script>document.title="owned"</script><img src=x onerror="document.title=1">');
  assert.equal(lines[1], "red link");
  assert.equal(lines[2], "user\ufffdtxt.exe");
  assert.equal(await page.locator(".log script, .log img").count(), 0);
  assert.deepEqual(await page.locator(".log a").evaluateAll((links) => links.map((link) => link.getAttribute("href"))), ["https://example.test/a"]);
  assert.match(await page.title(), /quell$/);
  await page.goto(`http://127.0.0.1:${world.port}/#/`);
  await page.getByText("x=<b>bold</b>").waitFor();
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("a search looks at the whole log on disk, and n and N go through the hits", async () => {
  const id = world.start("long", [], ["bash", "-c", "for i in $(seq 1 20000); do echo row $i; done; echo; sleep 600"]);
  world.quell("wait", id, "--log", "row 20000", "--timeout", "20s");
  const context = await world.context();
  const page = await world.page(context, `#/log/${id}`);
  await page.getByText("row 20000", { exact: true }).waitFor();
  assert.ok((await page.locator(".ln").count()) <= 2000);
  await page.keyboard.press("/");
  await page.keyboard.type("row (7|1500)$");
  await page.keyboard.press("Enter");
  await page.getByText(/^hit 2 of 2/).waitFor();
  assert.deepEqual((await page.locator(".ln mark").allInnerTexts()).sort(), ["row 1500", "row 7"]);
  await page.locator(".log").focus();
  await page.keyboard.press("N");
  await page.getByText(/^hit 1 of 2/).waitFor();
  assert.equal(await page.locator(".ln.hit .tx").innerText(), "row 7");
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("scrolling up reads older lines from disk without gap or double, up to the first", async () => {
  const id = world.start("deep", [], ["bash", "-c", "seq -f 'n%.0f' 1 2500; sleep 600"]);
  world.quell("wait", id, "--log", "n2500", "--timeout", "20s");
  const context = await world.context();
  const page = await world.page(context, `#/log/${id}`);
  await page.getByText("n2500", { exact: true }).waitFor();
  const read = new Set();
  for (let round = 0; round < 60 && !read.has("n1"); round++) {
    const lines = await texts(page);
    const numbers = lines.map((text) => Number(text.slice(1)));
    numbers.slice(1).forEach((n, i) => assert.equal(n, numbers[i] + 1, "each line follows the one before it"));
    for (const text of lines) read.add(text);
    const first = lines[0];
    if (first === "n1") break;
    await page.locator(".log").evaluate((log) => log.scrollTo(0, 0));
    await page.waitForFunction((text) => document.querySelector(".ln .tx").innerText !== text, first);
  }
  assert.equal(read.size, 2500);
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("what was not kept is shown as a row with its exact size", async () => {
  const id = world.start("cut", ["--max-log", "64K"], ["bash", "-c", "seq -f 'n%.0f' 1 100000; sleep 600"]);
  world.quell("wait", id, "--log", "n100000", "--timeout", "20s");
  const { cuts } = world.json("logs", id);
  const context = await world.context();
  const page = await world.page(context, `#/log/${id}`);
  await page.getByText("n100000", { exact: true }).waitFor();
  await page.keyboard.press("g");
  await page.getByText("n1", { exact: true }).waitFor();
  for (let round = 0; round < 60 && !(await page.locator(".cutrow").count()); round++) {
    const last = (await texts(page)).at(-1);
    await page.locator(".log").evaluate((log) => log.scrollTo(0, log.scrollHeight));
    await page.waitForFunction((text) => document.querySelector(".cutrow") || [...document.querySelectorAll(".ln .tx")].at(-1).innerText !== text, last);
  }
  const row = await page.locator(".cutrow").first().innerText();
  assert.match(row, /were not kept here/);
  assert.ok(row.includes(Number(cuts[0].from).toLocaleString("en")) && row.includes(Number(cuts[0].to).toLocaleString("en")), row);
  await context.close();
});
