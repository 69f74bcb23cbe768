// A home with real jobs, the real server and a browser. Everything that a test starts ends with it.

import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const require = createRequire(path.join(process.env.QUELL_BROWSER, "package.json"));
const { chromium } = require("playwright-core");
export const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** How long anything may take that a person waits for. */
const PATIENCE = 15000;

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.on("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A home of its own with a server, and a browser for it. */
export class World {
  static async begin() {
    const world = new World();
    world.home = mkdtempSync(path.join(tmpdir(), "quell-browser-"));
    try {
      world.port = await freePort();
      await world.serve();
      world.browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    } catch (error) {
      await world.end();
      throw error;
    }
    return world;
  }

  /** quell refuses variables that it does not know. */
  get env() {
    const others = Object.entries(process.env).filter(([name]) => !name.startsWith("QUELL_"));
    return { ...Object.fromEntries(others), QUELL_HOME: this.home };
  }

  /** What a verb prints. 1 is an answer: "no", or that a job has failed. */
  quell(...args) {
    const { status, stdout, stderr } = spawnSync(process.env.QUELL_UNDER_TEST, args, { env: this.env, encoding: "utf8" });
    if (status > 1 || status === null) throw new Error(`quell ${args.join(" ")}: ${status}: ${stderr}`);
    return stdout.trim();
  }

  /** The data of a verb's JSON. */
  json(...args) {
    return JSON.parse(this.quell(...args, "--json").split("\n")[0]).data;
  }

  /** Starts a job in the background. `env` adds variables, such as the session. Returns its id. */
  start(name, options, command, env = {}) {
    const args = ["start", "--name", name, ...options, "--", ...command];
    return execFileSync(process.env.QUELL_UNDER_TEST, args, { env: { ...this.env, ...env }, encoding: "utf8" }).trim();
  }

  async serve() {
    this.server = spawn(process.env.QUELL_UNDER_TEST, ["serve", "--port", String(this.port)], { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    this.server.stderr.on("data", (text) => (said += text));
    this.server.stdout.on("data", (text) => (said += text));
    const ended = new Promise((resolve) => this.server.on("exit", resolve));
    this.ended = ended;
    for (const began = Date.now(); Date.now() - began < PATIENCE; ) {
      const answer = await fetch(`http://127.0.0.1:${this.port}/healthz`).catch(() => undefined);
      if (answer?.ok) return;
      if (this.server.exitCode !== null) throw new Error(`quell serve ended: ${said}`);
      // Nothing tells another process that a port is open.
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`quell serve does not answer: ${said}`);
  }

  /** Sends a signal to the server, and for a fatal one waits for its end. */
  async signal(name) {
    this.server.kill(name);
    if (name !== "SIGSTOP" && name !== "SIGCONT") await this.ended;
  }

  /** A context of the browser that fails the test on errors of the page: `problems` has them. */
  async context(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    context.setDefaultTimeout(PATIENCE);
    context.problems = [];
    await context.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`)));
    context.on("weberror", (error) => context.problems.push(String(error.error().stack)));
    // What the network does while the server is away is not an error of the page.
    context.on("console", (message) => ["error", "warning"].includes(message.type()) && !/net::ERR_|Failed to load resource/.test(message.text()) && context.problems.push(message.text()));
    return context;
  }

  /** A page that is logged in, at this route. */
  async page(context, route = "#/") {
    const page = await context.newPage();
    await page.goto(this.quell("serve", "--url"));
    await page.locator("h1").first().waitFor();
    if (route !== "#/") await page.goto(`http://127.0.0.1:${this.port}/${route}`);
    return page;
  }

  async end() {
    await this.browser?.close();
    try {
      this.quell("stop", "--all", "--now");
    } catch (error) {
      console.error(String(error));
    }
    if (this.server && this.server.exitCode === null && this.server.signalCode === null) {
      this.server.kill("SIGCONT");
      await this.signal("SIGKILL");
    }
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** A job whose child ignores TERM, in a session of its own: only KILL ends it. */
export const IGNORES_TERM = ["bash", "-c", `(trap "" TERM; while :; do sleep 1; done) & setsid bash -c 'trap "" TERM; while :; do sleep 1; done' & echo ready; while :; do sleep 1; done`];

/** The processes of a job that are alive by /proc: those with its marker. */
export function alive(world, id) {
  return world.json("tree", id).processes?.length ?? 0;
}
