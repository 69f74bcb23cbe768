//! The server that runs, for other commands of its user: they talk to it over its socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use quell::binary::Home;
use quell::{Error, Result};
use serde_json::Value;

use crate::files::{Files, Serving};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const LONGEST: u64 = 64 * 1024;

/// The server that runs for `home`; none if none does.
pub fn status(home: &Home) -> Result<Option<Serving>> {
    if !home.dir().join("serve").exists() {
        return Ok(None);
    }
    Files::open(home)?.serving()
}

/// An address that logs a browser in, once and within a minute.
pub fn login_url(home: &Home) -> Result<String> {
    let socket = Files::open(home)?.socket();
    let answer = post(&socket, "/v1/login/code").map_err(Error::io(&socket))?;
    let url = answer.pointer("/data/url").and_then(Value::as_str);
    url.map(str::to_owned).ok_or_else(|| {
        let why =
            answer.pointer("/error/message").and_then(Value::as_str).unwrap_or("its answer can't be read");
        Error::State(format!("quell serve gives no login address: {why}"))
    })
}

fn post(socket: &std::path::Path, path: &str) -> std::io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = "Host: quell\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close";
    stream.write_all(format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n{{}}").as_bytes())?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(std::io::Error::other)
}
