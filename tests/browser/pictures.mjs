// The pictures of docs/serve: the real pages, with real jobs. `tests/browser/run --pictures` makes them again.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { World } from "./harness.mjs";

const PROGRAMS = {
  agent: `echo "$1"; i=0; while :; do i=$((i+1)); echo "step $i: read src/cart.ts"; sleep 3; echo "step $i: ran npm test -- cart"; sleep 4; done`,
  "dev-server": `echo "ready on http://localhost:5173"; ./esbuild & while :; do echo "GET /cart 200 in $((RANDOM % 30 + 3)) ms"; sleep 2; done`,
  esbuild: `while :; do for i in 1 2 3 4 5 6 7 8 9; do :; done; sleep 0.01; done`,
  database: `./worker & ./worker & echo "database system is ready to accept connections"; while :; do sleep 5; echo "checkpoint complete: wrote 41 buffers"; done`,
  worker: `while :; do sleep 5; done`,
  checkout: `./browser & setsid ./browser & n=0; while :; do n=$((n+1)); echo "ok $n - checkout with card $n"; [ $((n % 9)) = 0 ] && echo "not ok - card was declined" >&2; sleep 0.5; done`,
  browser: `trap "" TERM; while :; do i=$((RANDOM / 2)); while [ $i -gt 0 ]; do i=$((i-1)); done; sleep 0.1; done`,
  backfill: `n=0; while :; do n=$((n+500)); echo "shard $1: $n rows"; i=$((RANDOM * 8)); while [ $i -gt 0 ]; do i=$((i-1)); done; sleep 0.3; done`,
  docs: `./watcher & echo "built 214 pages"; exit 0`,
  watcher: `while :; do sleep 5; done`,
  lint: `echo "src/cart.ts:41 'total' is assigned but never used"; sleep 0.5; exit 1`,
};

const dir = mkdtempSync(path.join(tmpdir(), "shop-"));
for (const [name, script] of Object.entries(PROGRAMS)) writeFileSync(path.join(dir, name), `#!/bin/bash\n${script}\n`, { mode: 0o755 });
const to = path.resolve(process.argv[2]);
process.chdir(dir);
const world = await World.begin();
try {
  const of = (session) => ({ QUELL_SESSION: session });
  const fix = of("fix-flaky-checkout");
  world.start("planner", ["--tag", "role=agent"], ["./agent", "Find out why checkout is flaky"], fix);
  const web = world.start("web", ["--tag", "role=server", "--ready-log", "ready on"], ["./dev-server", "--port", "5173"], fix);
  world.start("pg", ["--tag", "role=db", "--ready-log", "ready to accept"], ["./database", "-p", "55432"], fix);
  const e2e = world.start("e2e", ["--tag", "role=test", "--grace", "8s"], ["./checkout", "--workers", "2"], fix);
  const billing = of("billing-v2");
  world.start("billing-agent", ["--tag", "role=agent", "--tag", "team=billing"], ["./agent", "Move invoices to the new tax service"], billing);
  for (const shard of ["1/2", "2/2"]) world.start(`backfill-${shard[0]}`, ["--tag", "team=billing"], ["./backfill", shard], billing);
  world.start("docs-agent", ["--tag", "role=agent", "--until", "tree"], ["./docs", "--watch"]);
  for (let i = 0; i < 3; i++) world.quell("wait", world.start("lint", ["--tag", "role=test"], ["./lint"], fix));

  const open = async (route, options = {}) => world.page(await world.context({ viewport: { width: 1280, height: 800 }, deviceScaleFactor: 1, ...options }), route);
  const shoot = (page, name) => page.screenshot({ path: path.join(to, `${name}.png`) });
  const seen = (page) => page.waitForTimeout(1500);

  // The line of the CPU shows the last half minute.
  const fleet = await open("#/");
  const dark = await open("#/", { colorScheme: "dark" });
  await fleet.waitForTimeout(31000);
  await shoot(fleet, "fleet");
  await shoot(dark, "fleet-dark");
  const phone = await open("#/", { viewport: { width: 390, height: 844 } });
  await seen(phone);
  await shoot(phone, "phone");

  const log = await open(`#/log/${web}`);
  await seen(log);
  await shoot(log, "log");

  const job = await open(`#/job/${e2e}`);
  await job.waitForTimeout(4000);
  await shoot(job, "job");
  await job.locator(".acts .btn-p").click();
  await job.getByRole("timer").waitFor();
  await job.waitForTimeout(2500);
  await shoot(job, "job-stopping");
  await job.getByRole("heading", { name: "0 left" }).waitFor();
  await seen(job);
  await shoot(job, "receipt");
  await job.emulateMedia({ colorScheme: "dark" });
  await shoot(job, "receipt-dark");

  for (const screen of ["history", "feed", "host"]) {
    const page = await open(`#/${screen}`);
    await seen(page);
    await shoot(page, screen);
  }
} finally {
  await world.end();
  rmSync(dir, { recursive: true, force: true });
}
