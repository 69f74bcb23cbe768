"""Every line that `quell mcp` writes, against the official JSON schema of the version that it speaks.

The arguments are a directory with the schemas (`VERSION.json`) and the versions. A session of each version uses every tool, and the
methods around them, also in ways that are errors; each answer is checked as the result of its own method.
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

import jsonschema

QUELL = os.environ["QUELL_UNDER_TEST"]
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
PATIENCE = 60
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "ping": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}


class Schema:
    """The schema of one version."""

    def __init__(self, path):
        self.schema = json.loads(path.read_text())
        self.key = "$defs" if "$defs" in self.schema else "definitions"
        self.validators = {}

    def has(self, name):
        return name in self.schema[self.key]

    def check(self, name, message):
        """Fails unless `message` is a `name`."""
        if name not in self.validators:
            whole = {**self.schema, "$ref": f"#/{self.key}/{name}"}
            self.validators[name] = jsonschema.validators.validator_for(self.schema)(whole)
        error = jsonschema.exceptions.best_match(self.validators[name].iter_errors(message))
        if error is not None:
            raise AssertionError(f"not a {name}: {error.message} at {list(error.absolute_path)}: {json.dumps(message)[:2000]}")


class Session:
    """A client of one version; it checks every line that it reads."""

    def __init__(self, version, schema, directory):
        self.version, self.schema, self.directory = version, schema, directory
        self.modern = version == MODERN
        self.methods, self.checked, self.unidentified, self.last = {}, 0, 0, 0
        self.seen, self.lines = [], queue.Queue()
        environment = {name: os.environ[name] for name in ("QUELL_HOME", "PATH", "HOME") if name in os.environ}
        environment["QUELL_CONFIG"] = str(directory / "quell.toml")
        self.server = subprocess.Popen([QUELL, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory, env=environment)
        threading.Thread(target=self.read_all, daemon=True).start()

    def read_all(self):
        for line in self.server.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def write(self, message):
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.server.stdin.write(line + b"\n")
        self.server.stdin.flush()

    def send(self, method, **params):
        self.last += 1
        if self.modern:
            params["_meta"] = {
                **params.get("_meta", {}),
                META + "protocolVersion": self.version,
                META + "clientCapabilities": {"elicitation": {"form": {}}},
                META + "clientInfo": {"name": "schemas", "version": "1"},
            }
        self.methods[self.last] = method
        self.write({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.last

    def read(self):
        """The next message, checked. None at the end."""
        line = self.lines.get(timeout=PATIENCE)
        if line is None:
            return None
        assert line.endswith(b"\n"), line
        message = json.loads(line)
        self.check(message)
        self.seen.append(message)
        return message

    def check(self, message):
        self.checked += 1
        if "method" in message:
            self.schema.check("JSONRPCMessage", message)
            self.schema.check("ServerRequest" if "id" in message else "ServerNotification", message)
            return
        if "error" in message and "id" not in message and self.version < "2025-11-25":
            # Older schemas have no answer to a line without a usable id; JSON-RPC wants one.
            self.unidentified += 1
            message = {**message, "id": 0}
        self.schema.check("JSONRPCMessage", message)
        if "result" in message:
            self.schema.check("ServerResult", message["result"])
            name = RESULTS[self.methods[message["id"]]]
            if message["result"].get("resultType") == "input_required":
                name = "InputRequiredResult"
            self.schema.check(name, message["result"])

    def until(self, fits):
        while True:
            message = self.read()
            assert message is not None, "the server has ended"
            if fits(message):
                return message

    def ask(self, method, **params):
        number = self.send(method, **params)
        return self.until(lambda message: message.get("id") == number and "method" not in message)

    def call(self, tool, **arguments):
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def refused(self, line):
        """A line that is not a request gets an error without an id."""
        self.write(line)
        self.until(lambda message: "error" in message and "id" not in message)

    def open(self):
        if self.modern:
            self.ask("server/discover")
            return
        client = {"name": "schemas", "version": "1"}
        opened = self.ask("initialize", protocolVersion=self.version, capabilities={"elicitation": {}}, clientInfo=client)
        assert opened["result"]["protocolVersion"] == self.version, opened
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.ask("ping")

    def play(self):
        self.open()
        tools = self.ask("tools/list")["result"]["tools"]
        assert len(tools) == 12, [tool["name"] for tool in tools]
        self.call("run_command", command="seq 1 5000; echo no >&2; exit 3", max_bytes=300)
        self.call("run_command", command="cat", stdin="line\n")
        assert self.call("run_command", command="true", nonsense=1)["isError"]
        self.call("start_job", command="cat", name="cat", interactive=True)
        self.call("send_input", job="cat", text="hello", quiet_ms=100)
        self.call("start_job", command="echo up; sleep 600", name="web", ready_log="up")
        self.call("wait_for", jobs=["web"], until="log", pattern="u")
        self.call("read_output", job="web")
        for arguments in ({}, {"everyone": True, "state": "live"}):
            self.call("list_jobs", **arguments)
        self.call("job_status", job="web")
        self.call("restart_job", job="web")
        assert self.call("job_status", job="none")["isError"]
        self.progress()
        self.cancelled()
        self.asked()
        assert self.call("host_kill", pid=1, reason="try")["isError"]
        self.call("host_service", service="none", action="status", reason="try")
        self.call("stop_jobs", all_mine=True, reason="done")
        self.errors()
        if self.modern:
            assert "error" in self.ask("ping"), "this version has no ping"
            self.send("subscriptions/listen", notifications={"toolsListChanged": True})
            self.until(lambda message: message.get("method") == "notifications/subscriptions/acknowledged")
        self.server.stdin.close()
        while self.read() is not None:
            pass
        assert self.server.wait(PATIENCE) == 0

    def progress(self):
        self.ask("tools/call", name="run_command", arguments={"command": "echo goes on; sleep 5.5"}, _meta={"progressToken": "p"})
        assert any(message.get("method") == "notifications/progress" for message in self.seen)

    def cancelled(self):
        number = self.send("tools/call", name="run_command", arguments={"command": "sleep 600"})
        self.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        self.call("list_jobs")
        assert all(message.get("id") != number for message in self.seen if "method" not in message)

    def asked(self):
        """A call that the user has to approve."""
        answer = {"action": "accept", "content": {"approve": True}}
        call = {"name": "run_tests", "arguments": {"command": "false"}}
        if self.modern:
            asked = self.ask("tools/call", **call)["result"]
            assert asked["resultType"] == "input_required", asked
            responses = {key: answer for key in asked["inputRequests"]}
            result = self.ask("tools/call", **call, requestState=asked["requestState"], inputResponses=responses)
        elif self.version < "2025-06-18":
            # Elicitation is younger: a client that declares it all the same is not asked by this check.
            return
        else:
            number = self.send("tools/call", **call)
            question = self.until(lambda message: message.get("method") == "elicitation/create")
            self.write({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            result = self.until(lambda message: message.get("id") == number and "method" not in message)
        assert "tests" in result["result"]["content"][0]["text"], result

    def errors(self):
        for method in ("nonsense", "resources/list", "prompts/list", "completion/complete", "tasks/list"):
            assert "error" in self.ask(method), method
        assert "error" in self.ask("tools/call", name="nonsense", arguments={})
        assert "error" in self.ask("tools/call", arguments=7)
        for line in (b"not JSON", b"7", b"[]", b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}'):
            self.refused(line)
        if not self.modern:
            return
        unknown = {META + "protocolVersion": "1999-01-01", META + "clientCapabilities": {}}
        self.write({"jsonrpc": "2.0", "id": "old", "method": "tools/list", "params": {"_meta": unknown}})
        error = self.until(lambda message: message.get("id") == "old")
        self.schema.check("UnsupportedProtocolVersionError", error)


POLICY = """
[guard.test]
approval = true
[guard.kill]
allow = ["no-such-program"]
[guard.service]
allow = ["none"]
"""

for version in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "quell.toml").write_text(POLICY)
        session = Session(version, Schema(pathlib.Path(sys.argv[1]) / f"{version}.json"), directory)
        try:
            session.play()
        finally:
            session.server.kill()
    note = f", {session.unidentified} without an id" if session.unidentified else ""
    print(f"ok: the JSON schema of {version}: {session.checked} lines{note}")
