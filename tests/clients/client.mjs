// The TypeScript SDKs as clients of `quell mcp`. The argument is the mode of version negotiation, or `sdk1` for the 1.x line.
import assert from 'node:assert/strict';

const mode = process.argv[2];
const isOld = mode === 'sdk1';
const { Client } = await import(isOld ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = await import(
    isOld ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio'
);
const tools = ['run_command', 'start_job', 'wait_for', 'read_output', 'list_jobs', 'job_status', 'stop_jobs', 'send_input',
    'restart_job', 'run_tests'];

const { QUELL_HOME, PATH, HOME } = process.env;
const transport = new StdioClientTransport({
    command: process.env.QUELL_UNDER_TEST, args: ['mcp'], env: { QUELL_HOME, PATH, HOME },
});
const negotiation = mode === 'auto' || mode === 'legacy' ? { mode } : { mode: { pin: mode } };
const client = new Client({ name: 'test', version: '1' }, isOld ? {} : { versionNegotiation: negotiation });
await client.connect(transport);

const listed = await client.listTools();
assert.deepEqual(listed.tools.map((tool) => tool.name), tools);
const call = (name, args, options) => isOld
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options);
const text = (result) => result.content[0].text;

let result = await call('run_command', { command: 'echo from node; exit 3' });
assert.match(text(result), /: exited 3 [^]*from node/);
result = await call('run_command', { command: 'true', nonsense: 1 });
assert.ok(result.isError && text(result).includes('has no argument `nonsense`'));
result = await call('start_job', { command: 'echo up; sleep 600', name: 'web', ready_log: 'up' });
assert.match(text(result), /\(web\): ready/);
result = await call('list_jobs', {});
assert.deepEqual(JSON.parse(text(result)), result.structuredContent);
// Two calls at once: the first waits for what the second does.
const waiting = call('wait_for', { jobs: ['web'], wait_s: 40 });
result = await call('stop_jobs', { jobs: ['web'], reason: 'done' });
assert.equal(result.structuredContent.jobs[0].left, 0);
assert.match(text(await waiting), /\(stopped: done\)/);
// A call that the client cancels: it gets no answer, and the connection goes on.
const abort = new AbortController();
const cancelled = call('run_command', { command: 'sleep 600', wait_s: 40 }, { signal: abort.signal }).catch(() => 'cancelled');
setTimeout(() => abort.abort(), 200);
assert.equal(await cancelled, 'cancelled');
result = await call('start_job', { command: 'sleep 600', name: 'last' });
const blocked = call('wait_for', { jobs: ['last'], wait_s: 40 }).catch(() => 'closed');
const begun = performance.now();
await client.close();
const closing = performance.now() - begun;
await blocked;
// The SDK sends TERM after 2 seconds.
assert.ok(closing < 1900, `closing took ${closing} ms`);
const name = isOld ? 'sdk' : 'client';
const { readFileSync } = await import('node:fs');
const { version } = JSON.parse(readFileSync(new URL(`node_modules/@modelcontextprotocol/${name}/package.json`, import.meta.url)));
console.log(`ok: @modelcontextprotocol/${name} ${version}, ${mode}: closed in ${closing.toFixed(0)} ms`);
