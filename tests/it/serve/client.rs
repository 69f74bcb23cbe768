//! A client of `quell serve` that shares no code with it: it writes requests and reads answers as bytes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quell_tests::eventually;
use quell_tests::run::{PATIENCE, Running};
use quell_tests::test_env::TestEnv;
use serde_json::Value;

/// A server that runs.
pub struct Server {
    pub running: Running,
    pub port: u16,
    pub token: String,
    home: PathBuf,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of an error, or nothing.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let is_it =
            |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        Some(self.head.lines().find(is_it)?.split_once(':')?.1.trim())
    }
}

impl Server {
    /// A server on a port that is free.
    pub fn start(env: &TestEnv, options: &[&str]) -> Self {
        Self::start_at(env, 0, options)
    }

    pub fn start_at(env: &TestEnv, port: u16, options: &[&str]) -> Self {
        let _ = fs::remove_file(env.home().join("serve/state.json"));
        Self::of(env, env.quell("serve").args(["--port", &port.to_string()]).args(options).start())
    }

    /// The server that was started there, once it listens.
    pub fn of(env: &TestEnv, mut running: Running) -> Self {
        let home = env.home();
        let is_up = || home.join("serve/state.json").exists();
        let up = eventually(PATIENCE, || is_up() || running.wait_exit(Duration::ZERO).is_some());
        assert!(up && is_up(), "quell serve: {}", running.stderr());
        let token = fs::read_to_string(home.join("serve/token")).expect("a token").trim().to_owned();
        let state = fs::read_to_string(home.join("serve/state.json")).expect("a state");
        let state: Value = serde_json::from_str(&state).expect("JSON");
        let port = state["url"].as_str().and_then(|url| url.rsplit(':').next()?.parse().ok());
        Self { running, port: port.expect("a port"), token, home }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> PathBuf {
        self.home.join("serve/api.sock")
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes, and reads until the server closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // The server may answer before it has read everything.
        let _ = stream.write_all(bytes);
        read_answer(stream)
    }

    /// A request with these headers and no others but the host.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host = self.host();
        let own = [("Host", host.as_str())];
        let own = if headers.iter().any(|(name, _)| *name == "Host") { &[][..] } else { &own[..] };
        self.raw(request(method, path, &[own, headers].concat(), body).as_bytes())
    }

    /// A request with the token of the server, and JSON.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_with(&self.token, method, path, body)
    }

    pub fn ask_with(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        self.send(method, path, &headers, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// The same over the socket, without a token.
    pub fn over_socket(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers = [("Host", "quell"), ("Content-Type", "application/json")];
        stream.write_all(request(method, path, &headers, body).as_bytes()).unwrap();
        read_answer(stream)
    }

    /// Opens a stream.
    pub fn stream(&self, token: &str, query: &str, after: Option<&str>) -> Stream {
        let mut stream = self.connect();
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let head = format!(
            "GET /v1/stream{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n{after}\r\n",
            self.host()
        );
        stream.write_all(head.as_bytes()).unwrap();
        Stream { lines: BufReader::new(stream), head: String::new() }
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn read_answer(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset has had its answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        unchunk(body)
    } else {
        body.into()
    };
    Answer { status, head: head.to_owned(), body }
}

fn unchunk(mut text: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        body += &rest[..size];
        text = rest[size..].trim_start_matches("\r\n");
    }
    body
}

/// A stream of events.
pub struct Stream {
    lines: BufReader<TcpStream>,
    pub head: String,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Stream {
    /// The next event; none at the end. Panics if none comes in time.
    pub fn next(&mut self) -> Option<Event> {
        let (mut kind, mut id, mut data) = (String::new(), None, None);
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => panic!("no event came: {error}"),
            }
            let line = line.trim_end();
            if let Some(text) = line.strip_prefix("event: ") {
                kind = text.to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")));
            } else if line.is_empty() {
                if let Some(data) = data.take() {
                    return Some(Event { kind, id, data });
                }
            } else if self.head.len() < 4096 {
                self.head += line;
                self.head.push('\n');
            }
        }
    }

    /// The next event of this kind for which `is_it` holds.
    pub fn until(&mut self, kind: &str, is_it: impl Fn(&Value) -> bool) -> Event {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.next() {
                Some(event) if event.kind == kind && is_it(&event.data) => return event,
                Some(_) => {}
                None => break,
            }
        }
        panic!("no `{kind}` came");
    }
}
