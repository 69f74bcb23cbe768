// Every screen, in both themes and at three widths: no error, no violation of the CSP, no sideways scroll, nothing serious for axe.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AXE, IGNORES_TERM, World } from "./harness.mjs";

let world;
let jobs;

before(async () => {
  world = await World.begin();
  const session = { QUELL_SESSION: "fix-flaky-checkout" };
  jobs = {
    web: world.start("web", ["--tag", "role=server", "--ready-log", "listening"], ["bash", "-c", "echo listening on 3000; while :; do echo GET / 200; echo oops >&2; sleep 1; done"], session),
    e2e: world.start("e2e", ["--tag", "role=test", "--grace", "10s"], IGNORES_TERM, session),
    half: world.start("half", ["--until", "tree"], ["bash", "-c", "(while :; do sleep 1; done) & exit 0"]),
    done: world.start("a-job-with-a-rather-long-name-that-needs-room", [], ["sh", "-c", "seq 1 3000; exit 3"]),
  };
  world.quell("wait", jobs.done);
});

after(() => world?.end());

const SCREENS = { fleet: () => "#/", job: () => `#/job/${jobs.e2e}`, receipt: () => `#/job/${jobs.done}`, log: () => `#/log/${jobs.web}`, history: () => "#/history", feed: () => "#/feed", audit: () => "#/feed?tab=audit", host: () => "#/host" };
/** What shows that a screen has read its data. */
const SEEN = { fleet: "tr.job", job: ".tree [role=row] code", receipt: ".verdict h2", log: ".ln", history: ".kpis", feed: ".feed", audit: ".feed", host: ".tbl" };

const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 390], ["dark", 390], ["light", 320]]) {
  test(`each screen opens without errors, sideways scroll or serious findings of axe: ${colorScheme}, ${width} px`, async () => {
    const context = await world.context({ colorScheme, viewport: { width, height: 844 } });
    // axe is put into the page past the CSP, as a developer tool is.
    await context.addInitScript(AXE);
    const page = await world.page(context);
    for (const [screen, route] of Object.entries(SCREENS)) {
      await page.goto(`http://127.0.0.1:${world.port}/${route()}`);
      await page.locator(SEEN[screen]).first().waitFor();
      assert.ok((await sideways(page)) <= 0, `${screen} scrolls sideways by ${await sideways(page)} px`);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
      const serious = violations.filter((one) => ["serious", "critical"].includes(one.impact));
      assert.deepEqual(serious.map((one) => `${screen}: ${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3).join(" | ")}`), []);
    }
    assert.deepEqual(context.problems, []);
    await context.close();
  });
}

test("the stopping job, the bar of marked jobs and the keys have no serious findings either", async () => {
  const context = await world.context();
  await context.addInitScript(AXE);
  const page = await world.page(context);
  await page.getByRole("button", { name: /^Stop \d jobs? of fix-flaky/ }).click();
  await page.locator(".bar .btn-p").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  assert.deepEqual(violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => `${one.id}: ${one.nodes[0].html}`), []);
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("the filter, the view and the groups are in the address, and work again from it", async () => {
  const context = await world.context();
  const page = await world.page(context);
  await page.getByRole("searchbox", { name: /Filter/ }).fill("role=server");
  await page.locator("tr.job", { hasText: "e2e" }).waitFor({ state: "detached" });
  assert.equal(await page.locator("tr.job").count(), 1);
  assert.match(page.url(), /q=role%3Dserver/);
  await page.getByLabel("Group").selectOption("tag role");
  const address = page.url();
  await page.goto(`http://127.0.0.1:${world.port}/#/host`);
  await page.goto(address);
  await page.locator("tr.grp b", { hasText: "server" }).waitFor();
  assert.equal(await page.locator("tr.job").count(), 1);
  await context.close();
});

test("a job that needs attention comes first, with the root's outcome and its tree as two facts", async () => {
  const context = await world.context();
  const page = await world.page(context);
  const first = page.locator("tr.job").first();
  await first.getByText("Root exited 0").waitFor();
  assert.match(await first.innerText(), /half/);
  await context.close();
});

test("a row shows what its job uses now and its last line, also in a tab that is opened later", async () => {
  const context = await world.context();
  const first = await world.page(context);
  const seen = async (page) => {
    const row = page.locator("tr.job", { hasText: "web" }).first();
    await row.locator(".c7 .l1", { hasText: /GET \/ 200|oops/ }).waitFor();
    await row.locator(".c5", { hasText: /kB|MB/ }).waitFor();
    await row.locator(".c6", { hasText: /^[1-9]/ }).waitFor();
    await row.locator(".c4", { hasText: "%" }).waitFor();
  };
  await seen(first);
  await seen(await world.page(context));
  assert.deepEqual(context.problems, []);
  await context.close();
});

test("a login address works once, and its code leaves the address at once", async () => {
  const context = await world.context();
  const url = world.quell("serve", "--url");
  const page = await context.newPage();
  await page.goto(url);
  await page.locator("tr.job").first().waitFor();
  assert.doesNotMatch(page.url(), /code/);
  const other = await world.context();
  const again = await other.newPage();
  await again.goto(url);
  await again.getByText("used already").waitFor();
  await again.getByText("quell serve --url").waitFor();
  assert.deepEqual(context.problems, []);
  await context.close();
  await other.close();
});

test("without a token the page says how to get one, and shows nothing of the jobs", async () => {
  const context = await world.context();
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${world.port}/#/job/${jobs.web}`);
  await page.getByText("quell serve --url").waitFor();
  assert.doesNotMatch(await page.locator("body").innerText(), /fix-flaky|role=server/);
  assert.deepEqual(await context.cookies(), []);
  await context.close();
});
