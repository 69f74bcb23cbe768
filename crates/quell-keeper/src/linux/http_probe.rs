//! The readiness check over HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Requests `url` in a thread, which writes the address of a good answer to the socket. Name resolution and the server can be
/// slow, and hooks must not wait for them.
pub fn ask(url: &str, patience: Duration) -> io::Result<UnixStream> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let url = url.to_owned();
    quell_sys::thread().spawn(move || {
        if let Some(address) = answers(&url, patience) {
            let _ = write!(theirs, "{address}");
        }
    })?;
    Ok(ours)
}

/// The address at which `http://host[:port]/path` answers with a status from 200 to 399.
fn answers(url: &str, patience: Duration) -> Option<SocketAddr> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    // The first address that answers counts.
    let status = |address| Some((address, status_at(&address, host, path, patience).ok()?));
    let (address, status) = address.to_socket_addrs().ok()?.find_map(status)?;
    (200..400).contains(&status).then_some(address)
}

fn status_at(address: &SocketAddr, host: &str, path: &str, patience: Duration) -> io::Result<u16> {
    let deadline = Instant::now() + patience;
    let mut stream = TcpStream::connect_timeout(address, patience)?;
    stream.set_write_timeout(Some(patience))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nUser-Agent: quell\r\n\r\n")?;
    // `HTTP/1.1 200` and one byte that ends the number.
    let mut head = [0u8; 13];
    let mut got = 0;
    while got < head.len() {
        // The time limit is for the whole answer: a server may send one byte at a time.
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut head[got..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length if left.is_zero() => return Err(io::Error::other(format!("only {length} bytes in time"))),
            length => got += length,
        }
    }
    status_in(&head).ok_or(io::ErrorKind::InvalidData.into())
}

/// The status in the beginning of an answer: three digits behind the version.
fn status_in(head: &[u8; 13]) -> Option<u16> {
    let text = std::str::from_utf8(head).ok()?;
    let (status, end) = text.strip_prefix("HTTP/1.")?.get(2..)?.split_at(3);
    let is_number = status.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && matches!(end, " " | "\r" | "\n") { status.parse().ok() } else { None }
}
