//! A connection to the user's systemd manager: addresses, the socket and calls, all with one deadline.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::ScopeError;
use super::wire::{ENDIAN, ERROR, In, MANAGER_CALL, Message, Out};

/// The receiver of a call.
pub(super) struct Object {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) interface: &'static str,
}

pub(super) const MANAGER: Object = Object {
    name: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
pub(super) const BUS: Object =
    Object { name: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

/// An address at which a user manager may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusAddress {
    /// The socket's path, or its abstract name.
    pub(super) name: OsString,
    pub(super) is_abstract: bool,
    /// It is the manager's own socket, without a bus: no Hello, no match rules.
    pub(super) direct: bool,
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_abstract { "abstract" } else { "path" };
        write!(f, "unix:{kind}={}", self.name.display())
    }
}

/// The addresses to try, best first: DBUS_SESSION_BUS_ADDRESS, then the bus and the manager's own socket in XDG_RUNTIME_DIR, or
/// where systemd makes that directory: many MCP clients start their servers with a few variables only. The bus there is for shells that have another session bus (dbus-run-session), the manager's socket for hosts without a user
/// bus. None of them need exist.
pub(super) fn bus_addresses() -> Result<Vec<BusAddress>, ScopeError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let (session, runtime) = (set("DBUS_SESSION_BUS_ADDRESS"), set("XDG_RUNTIME_DIR"));
    let runtime = runtime.or_else(|| runtime_dir(Path::new("/run/user")));
    let found = addresses(session.as_deref(), runtime.as_deref());
    if found.is_empty() {
        let shown = |value: Option<OsString>| value.map_or("unset".into(), |value| format!("{value:?}"));
        return Err(ScopeError::NoAddress { session: shown(session), runtime: shown(runtime) });
    }
    Ok(found)
}

/// This user's runtime directory below `base`, if it exists and belongs to this user alone.
pub(super) fn runtime_dir(base: &Path) -> Option<OsString> {
    let dir = base.join(quell_sys::uid().to_string());
    let found = std::fs::symlink_metadata(&dir).ok()?;
    let is_own = found.is_dir() && found.uid() == quell_sys::uid() && found.mode() & 0o022 == 0;
    is_own.then(|| dir.into_os_string())
}

pub(super) fn addresses(session: Option<&OsStr>, runtime: Option<&OsStr>) -> Vec<BusAddress> {
    let entries = session.into_iter().flat_map(|list| list.as_bytes().split(|&b| b == b';'));
    let mut found: Vec<BusAddress> = entries.filter_map(unix_socket).collect();
    for (file, direct) in [("/bus", false), ("/systemd/private", true)] {
        let Some(dir) = runtime else { break };
        let mut name = dir.to_owned();
        name.push(file);
        if !found.iter().any(|other| other.name == name && !other.is_abstract) {
            found.push(BusAddress { name, is_abstract: false, direct });
        }
    }
    found
}

/// One entry of a D-Bus address list, `unix:path=/run/user/0/bus,guid=…`. None if it is not a Unix socket.
pub(super) fn unix_socket(entry: &[u8]) -> Option<BusAddress> {
    let pairs = entry.strip_prefix(b"unix:")?;
    pairs.split(|&b| b == b',').find_map(|pair| {
        let (value, is_abstract) = match (pair.strip_prefix(b"path="), pair.strip_prefix(b"abstract=")) {
            (Some(path), _) => (path, false),
            (None, Some(name)) => (name, true),
            (None, None) => return None,
        };
        let name = OsString::from_vec(unescape(value)?);
        (!name.is_empty()).then_some(BusAddress { name, is_abstract, direct: false })
    })
}

/// Undoes the `%2f` escapes of a D-Bus address value.
pub fn unescape(value: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            plain.push(byte);
            rest = tail;
            continue;
        }
        let (hex, tail) = tail.split_at_checked(2)?;
        plain.push(u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()?);
        rest = tail;
    }
    Some(plain)
}

/// An authenticated connection. No operation on it waits beyond the deadline.
pub(super) struct Bus {
    pub(super) stream: UnixStream,
    pub(super) address: BusAddress,
    pub(super) deadline: Instant,
    /// The operation under way, for the error.
    pub(super) step: &'static str,
    pub(super) serial: u32,
    pub(super) output: Vec<u8>,
    pub(super) input: Vec<u8>,
}

impl Bus {
    pub(super) fn connect(address: &BusAddress, deadline: Instant) -> Result<Self, ScopeError> {
        let failed = |error| ScopeError::Connect { address: address.clone(), error };
        let stream = open_socket(address, deadline).map_err(failed)?;
        let (output, input) = (b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n".to_vec(), Vec::new());
        let mut bus =
            Self { stream, address: address.clone(), deadline, step: "Hello", serial: 0, output, input };
        bus.authenticate().map_err(failed)?;
        bus.call(&BUS, "Hello", "", Out::default());
        Ok(bus)
    }

    /// EXTERNAL without a name: the peer takes our uid from the socket, which is correct in a user namespace too.
    pub(super) fn authenticate(&mut self) -> io::Result<()> {
        loop {
            let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") else {
                self.exchange()?;
                continue;
            };
            let line: Vec<u8> = self.input.drain(..end + 2).take(end).collect();
            if line.starts_with(b"OK") {
                return Ok(());
            }
            if line != b"DATA" {
                let answer = format!("login answered by {:?}", String::from_utf8_lossy(&line));
                return Err(io::Error::new(ErrorKind::PermissionDenied, answer));
            }
        }
    }

    /// Queues a method call. All calls are sent with one write, and the bus keeps their order. NO_AUTO_START makes a bus
    /// without a manager reply with an error at once.
    pub(super) fn call(&mut self, to: &Object, member: &'static str, signature: &str, body: Out) {
        const METHOD_CALL: u8 = 1;
        const NO_AUTO_START: u8 = 2;
        let to_bus = to.name == BUS.name;
        if to_bus && self.address.direct {
            return;
        }
        self.step = member;
        self.serial = if to_bus { self.serial + 1 } else { MANAGER_CALL };
        let mut message = Out(vec![ENDIAN, METHOD_CALL, NO_AUTO_START, 1]);
        message.u32(body.0.len() as u32);
        message.u32(self.serial);
        message.array(8, |fields| {
            fields.variant(1, "o", |field| field.string(to.path));
            fields.variant(2, "s", |field| field.string(to.interface));
            fields.variant(3, "s", |field| field.string(member));
            fields.variant(6, "s", |field| field.string(to.name));
            fields.variant(8, "g", |field| field.signature(signature));
        });
        message.align(8);
        self.output.extend(message.0);
        self.output.extend(body.0);
    }

    /// Sends what is queued and waits for a message. An error reply to any of our calls ends the exchange.
    pub(super) fn receive(&mut self) -> Result<Message, ScopeError> {
        let message = loop {
            match Message::take(&mut self.input) {
                Some(Some(message)) => break message,
                Some(None) => self.exchange().map_err(|error| self.lost(error))?,
                None => return Err(self.lost(malformed())),
            }
        };
        if message.kind != ERROR {
            return Ok(message);
        }
        let text = In { bytes: &message.body, at: 0 }.string().unwrap_or_default();
        match message.name.strip_prefix("org.freedesktop.DBus.Error.") {
            Some("ServiceUnknown" | "NameHasNoOwner") => {
                Err(ScopeError::NoManager { address: self.address.clone(), message: text })
            }
            _ => Err(ScopeError::Refused { step: self.step, message: text, name: message.name }),
        }
    }

    /// Sends what is queued, then adds at least one byte to the input.
    pub(super) fn exchange(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        loop {
            let left = time_left(self.deadline)?;
            let (flags, moved) = if self.output.is_empty() {
                (PollFlags::IN, self.stream.read(&mut chunk))
            } else {
                (PollFlags::OUT, self.stream.write(&self.output))
            };
            match moved {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the bus hung up")),
                Ok(sent) if flags == PollFlags::OUT => drop(self.output.drain(..sent)),
                Ok(read) => {
                    self.input.extend(&chunk[..read]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = left.try_into().map_err(io::Error::other)?;
                    match poll(&mut [PollFd::new(&self.stream, flags)], Some(&left)) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn lost(&self, error: io::Error) -> ScopeError {
        ScopeError::Lost { step: self.step, address: self.address.clone(), error }
    }
}

pub(super) fn open_socket(address: &BusAddress, deadline: Instant) -> io::Result<UnixStream> {
    let target = if address.is_abstract {
        SocketAddrUnix::new_abstract_name(address.name.as_bytes())?
    } else {
        SocketAddrUnix::new(address.name.as_os_str())?
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    loop {
        // A connect blocks while the listener's backlog is full, until the send timeout.
        set_socket_timeout(&socket, Timeout::Send, Some(time_left(deadline)?))?;
        match rustix::net::connect(&socket, &target) {
            Ok(()) => break,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

pub(super) fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(ErrorKind::TimedOut, "no answer in time")) } else { Ok(left) }
}

pub(super) fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a malformed message")
}
