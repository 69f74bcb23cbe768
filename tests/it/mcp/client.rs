//! A client of `quell mcp`: it writes lines and reads lines, and knows nothing else about the protocol.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use quell_tests::run::{PATIENCE, Running};
use quell_tests::test_env::TestEnv;
use serde_json::{Value, json};

/// A running server and the pipes to it.
pub struct Client {
    input: Option<PipeWriter>,
    lines: Receiver<String>,
    /// Messages that were read while another one was waited for.
    kept: Vec<Value>,
    pub server: Running,
    next: u64,
}

impl Client {
    /// A server with these options. No request was sent yet.
    pub fn start(env: &TestEnv, options: &[&str]) -> Self {
        Self::start_with(env, options, &[])
    }

    /// The same with variables.
    pub fn start_with(env: &TestEnv, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let (stdin, input) = std::io::pipe().unwrap();
        let (output, stdout) = std::io::pipe().unwrap();
        let mut quell = env.quell("mcp").args(options);
        // The tests may run inside an agent's session.
        for name in ["CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "QUELL_SESSION"] {
            quell = quell.env(name, "");
        }
        for (name, value) in variables {
            quell = quell.env(name, value);
        }
        let file = |fd: OwnedFd| File::from(fd);
        let server = quell.stdin(file(stdin.into())).stdout(file(stdout.into())).start();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { input: Some(input), lines, kept: Vec::new(), server, next: 1 }
    }

    /// A server that has been initialized by a client without capabilities.
    pub fn initialized(env: &TestEnv, options: &[&str]) -> Self {
        let mut client = Self::start(env, options);
        client.initialize("2025-11-25", json!({}));
        client
    }

    pub fn initialize(&mut self, version: &str, capabilities: Value) -> Value {
        let info = json!({ "name": "test client", "version": "1.2" });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
        let answer = self.ask("initialize", params);
        self.raw(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Writes a line as it is.
    pub fn raw(&mut self, line: &str) {
        self.raw_bytes(&[line.as_bytes(), b"\n"].concat());
    }

    pub fn raw_bytes(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("the input is open").write_all(bytes).expect("the server reads");
    }

    /// Sends a request, and returns its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.raw(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    /// Sends a call of a tool, and returns its id.
    pub fn send_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(&json!(id))
    }

    /// The answer to the request with this id.
    pub fn answer(&mut self, id: &Value) -> Value {
        self.message(&format!("the answer to {id}"), |message| {
            &message["id"] == id && message.get("method").is_none()
        })
    }

    /// The next message that fits.
    pub fn message(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = match self.read(left) {
                Some(message) => message,
                None => {
                    panic!("{what} did not come; kept: {:?}; stderr: {}", self.kept, self.server.stderr())
                }
            };
            if fits(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    /// The next message within this time. Every line must be one.
    pub fn read(&mut self, within: Duration) -> Option<Value> {
        match self.lines.recv_timeout(within) {
            Ok(line) => {
                let message: Value =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert_eq!(message["jsonrpc"], "2.0", "{line}");
                Some(message)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Calls a tool, and returns its result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.send_call(tool, arguments);
        let answer = self.answer(&json!(id));
        assert!(answer["result"].is_object(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool that succeeds, and returns its text.
    pub fn text(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        text_of(&result)
    }

    /// Calls a tool that succeeds, and returns its facts.
    pub fn facts(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        let text: Value = serde_json::from_str(&text_of(&result)).expect("the text is the same JSON");
        assert_eq!(text, result["structuredContent"], "{tool}");
        text
    }

    /// Calls a tool that fails, and returns its text.
    pub fn error(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        text_of(&result)
    }

    /// Closes the input.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Closes the input, and returns how the server ended and what it still wrote.
    pub fn finish(mut self) -> (Option<ExitStatus>, Vec<Value>) {
        self.close();
        let status = self.server.wait_exit(PATIENCE);
        let mut rest = std::mem::take(&mut self.kept);
        while let Some(message) = self.read(PATIENCE) {
            rest.push(message);
        }
        (status, rest)
    }

    /// The server is alive and answers.
    pub fn check_alive(&mut self, after: &str) {
        let answer = self.ask("ping", json!({}));
        assert_eq!(answer["result"], json!({}), "after {after}");
    }
}

/// The text of a result.
pub fn text_of(result: &Value) -> String {
    assert_eq!(result["content"].as_array().map(Vec::len), Some(1), "{result}");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

/// The id in an answer's first line.
pub fn job_of(text: &str) -> String {
    let id = text.strip_prefix("job ").and_then(|rest| rest.get(..26));
    id.unwrap_or_else(|| panic!("no job in {text}")).to_owned()
}
