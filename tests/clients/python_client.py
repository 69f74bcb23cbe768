"""The Python SDK as a client of `quell mcp`. The argument is the mode of its `Client`; 1.x has only `legacy`."""

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version

from mcp import StdioServerParameters

MODE = sys.argv[1]
MAJOR = int(version("mcp").split(".")[0])
SERVER = StdioServerParameters(
    command=os.environ["QUELL_UNDER_TEST"],
    args=["mcp"],
    env={name: os.environ[name] for name in ("QUELL_HOME", "PATH", "HOME") if name in os.environ},
)
TOOLS = [
    "run_command", "start_job", "wait_for", "read_output", "list_jobs", "job_status", "stop_jobs", "send_input",
    "restart_job", "run_tests",
]


def field(thing, new, old):
    """1.x names its fields as the wire does."""
    return getattr(thing, new) if hasattr(thing, new) else getattr(thing, old)


async def check(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == TOOLS, tools

    async def call(tool, **arguments):
        result = await client.call_tool(tool, arguments)
        return result.content[0].text, bool(field(result, "is_error", "isError")), result

    text, failed, _ = await call("run_command", command="echo from python; exit 3")
    assert not failed and ": exited 3 " in text and "from python" in text, text
    text, failed, _ = await call("run_command", command="true", nonsense=1)
    assert failed and "has no argument `nonsense`" in text, text
    text, failed, _ = await call("start_job", command="echo up; sleep 600", name="web", ready_log="up")
    assert not failed and "(web): ready" in text, text
    text, _, result = await call("list_jobs")
    structured = field(result, "structured_content", "structuredContent")
    assert json.loads(text) == structured and len(structured["jobs"]) == 2, text
    # Two calls at once: the first waits for what the second does.
    waiting = asyncio.create_task(call("wait_for", jobs=["web"], wait_s=40))
    await asyncio.sleep(0)
    _, failed, result = await call("stop_jobs", jobs=["web"], reason="done")
    stopped = field(result, "structured_content", "structuredContent")
    assert not failed and stopped["jobs"][0]["left"] == 0, stopped
    text, _, _ = await waiting
    assert "(stopped: done)" in text, text
    text, _, _ = await call("start_job", command="sleep 600", name="last")
    # It is not answered: the connection is closed beside it.
    blocked = asyncio.create_task(call("wait_for", jobs=["last"], wait_s=40))
    await asyncio.sleep(0.2)
    blocked.cancel()


async def main():
    if MAJOR >= 2:
        from mcp import Client

        async with Client(SERVER, mode=MODE) as client:
            await check(client)
            negotiated, begun = client.protocol_version, time.monotonic()
        return negotiated, time.monotonic() - begun
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async with stdio_client(SERVER) as (read, write):
        async with ClientSession(read, write) as client:
            negotiated = (await client.initialize()).protocolVersion
            await client.send_ping()
            await check(client)
        begun = time.monotonic()
    return negotiated, time.monotonic() - begun


negotiated, closing = asyncio.run(main())
# The SDK kills a server after 2 seconds.
assert closing < 1.9, closing
assert (MODE == "legacy") == (negotiated < "2026"), negotiated
print(f"ok: Python SDK {version('mcp')}, {MODE}: {negotiated}, closed in {closing * 1000:.0f} ms")
