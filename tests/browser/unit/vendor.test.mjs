import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const PAGE = new URL("../../../crates/quell-serve/page/", import.meta.url);
const names = (folder) => readdirSync(new URL(folder, PAGE)).filter((name) => name !== "VENDORED.md");
const own = names(".").filter((name) => /\.(js|html|css)$/.test(name));
const read = (name) => readFileSync(new URL(name, PAGE));

test("each vendored file is the one that the table names, with its version, licence and sum", () => {
  const rows = [...read("vendor/VENDORED.md").toString().matchAll(/^\| `([^`]+)` \| .* \| ([\d.]+) \| (MIT|Apache-2.0) \| `([0-9a-f]{64})` \|$/gm)];
  assert.deepEqual(rows.map((row) => row[1]).sort(), names("vendor/").sort());
  for (const [, name, , , sum] of rows) assert.equal(createHash("sha256").update(read(`vendor/${name}`)).digest("hex"), sum, name);
});

test("what makes markup or code of a string is not used, and no style is inline", () => {
  for (const name of own) {
    const text = read(name).toString();
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacent|dangerouslySet|document\.write|\beval\(|new Function|DOMParser|cssText|javascript:|\bstyle=/, name);
  }
  assert.doesNotMatch(read("index.html").toString(), /<script(?![^>]*src=)|\son\w+=/);
});

test("nothing is loaded from elsewhere", () => {
  for (const name of own) assert.doesNotMatch(read(name).toString(), /(?:src|href|url|import)\s*[=(]\s*["']?(?:https?:)?\/\/\w/, name);
});

/** The modules that `name` imports at once, and their own. */
function loaded(name, seen = new Set()) {
  if (seen.has(name)) return seen;
  seen.add(name);
  for (const [, path] of read(name).toString().matchAll(/^(?:import|export) .*?from "\.\/(.+?)";$/gms)) loaded(path, seen);
  return seen;
}

test("the fleet loads less than 150 kB", () => {
  const files = ["index.html", "quell.css", "vendor/uPlot.min.css", "hub.js", ...loaded("app.js")];
  const size = [...new Set(files)].reduce((sum, name) => sum + read(name).length, 0);
  assert.ok(size < 150_000, `${size} bytes`);
  assert.ok(!files.includes("log.js") && !files.includes("vendor/uPlot.iife.min.js"));
});
