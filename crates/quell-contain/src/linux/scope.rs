//! Asks the user's own systemd manager for a delegated scope: the way to a cgroup of one's own without root.
//!
//! The manager is reached over the user bus by a D-Bus client that knows four calls and one signal. It is our
//! own because this is on the way to exec, and a bus may be absent, dead or hung: every step, the connect
//! included, ends at one deadline. The client crates can't promise that (rustbus 0.19 has no deadline before it
//! is authenticated, spins for ever on a bus that hangs up until then, and leaks its socket into children) or
//! bring an async runtime (zbus).
//!
//! ```text
//! connect -> EXTERNAL -> Hello, AddMatch, StartTransientUnit -> job path -> JobRemoved "done" -> /proc/PID/cgroup
//! ```

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Whom a call is for.
struct Object {
    name: &'static str,
    path: &'static str,
    interface: &'static str,
}

const MANAGER: Object = Object {
    name: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const BUS: Object =
    Object { name: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus" };

/// What the scope is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeRequest<'a> {
    /// The unit's name, `quell-<id>.scope`, new to the manager.
    pub unit: &'a str,
    /// What `systemctl --user status` shows.
    pub description: &'a str,
    /// The first member: a live, blocked stub. systemd refuses an empty scope.
    pub pid: u32,
    /// Bytes.
    pub memory_max: Option<u64>,
    /// Processes and threads.
    pub tasks_max: Option<u64>,
    /// Processors' worth of time; 1.5 is one and a half.
    pub cpu_cores: Option<f64>,
}

/// Why there is no scope.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    #[error("no user bus: DBUS_SESSION_BUS_ADDRESS is {session}, XDG_RUNTIME_DIR is {runtime}")]
    NoAddress { session: String, runtime: String },
    #[error("connect to {address}: {error}")]
    Connect { address: BusAddress, error: io::Error },
    #[error("no systemd user manager at {address}: {message}")]
    NoManager { address: BusAddress, message: String },
    #[error("{step} at {address}: {error}")]
    Lost { step: &'static str, address: BusAddress, error: io::Error },
    #[error("{step} refused: {message} ({name})")]
    Refused { step: &'static str, message: String, name: String },
    #[error("start of {unit} ended as {result:?}")]
    JobFailed { unit: String, result: String },
    #[error("read {path}: {error}")]
    ReadCgroup { path: String, error: io::Error },
    #[error("pid {pid} is in cgroup {found:?}, not in a reachable {unit}")]
    NotMoved { pid: u32, found: String, unit: String },
}

/// Does a user manager answer? Changes nothing.
pub(crate) fn probe(timeout: Duration) -> Result<(), ScopeError> {
    on_first_manager(&bus_addresses()?, timeout, |bus| {
        bus.call(&Object { interface: "org.freedesktop.DBus.Peer", ..MANAGER }, "Ping", "", Out::default());
        while !bus.receive()?.answers_manager_call() {}
        Ok(())
    })
}

/// Starts the scope with `req.pid` in it. Returns its cgroup, as the `0::` line of /proc/PID/cgroup gives it;
/// the cgroup is the caller's to divide, and systemd removes it once it is empty.
///
/// After an error the manager may still be about to move `req.pid` (a late answer is not taken back): give up
/// that stub and start another for the next containment.
pub(crate) fn start(req: &ScopeRequest<'_>, timeout: Duration) -> Result<String, ScopeError> {
    on_first_manager(&bus_addresses()?, timeout, |bus| start_on(bus, req))?;
    cgroup_of(req)
}

/// Asks for the unit and waits until its start job is done.
fn start_on(bus: &mut Bus, req: &ScopeRequest<'_>) -> Result<(), ScopeError> {
    // Before the call, and narrowed to our unit (the third argument), so that no other job wakes us.
    let mut rule = Out::default();
    rule.string(&format!(
        "type='signal',sender='{}',interface='{}',member='JobRemoved',arg2='{}'",
        MANAGER.name, MANAGER.interface, req.unit
    ));
    bus.call(&BUS, "AddMatch", "s", rule);
    bus.call(&MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit_properties(req));

    let mut job = None;
    let mut removed = Vec::new();
    loop {
        let message = bus.receive()?;
        let mut body = In { bytes: &message.body, at: 0 };
        if message.answers_manager_call() {
            job = Some(body.string().ok_or_else(|| bus.lost(malformed()))?);
            bus.step = "JobRemoved";
        } else if message.kind == SIGNAL && message.name == "JobRemoved" {
            let (_id, path, unit, result) = (body.u32(), body.string(), body.string(), body.string());
            if unit.as_deref() == Some(req.unit) {
                removed.push((path, result.unwrap_or_default()));
            }
        }
        let is_ours = |path: &Option<String>| job.is_some() && *path == job;
        if let Some((_, result)) = removed.iter().find(|(path, _)| is_ours(path)) {
            return match result.as_str() {
                "done" => Ok(()),
                _ => Err(ScopeError::JobFailed { unit: req.unit.into(), result: result.clone() }),
            };
        }
    }
}

/// The arguments of StartTransientUnit: name, mode, properties, no auxiliary units.
fn unit_properties(req: &ScopeRequest<'_>) -> Out {
    let mut body = Out::default();
    body.string(req.unit);
    body.string("fail");
    body.array(8, |list| {
        list.property("Description", "s", |value| value.string(req.description));
        list.property("Delegate", "b", |value| value.u32(1));
        list.property("CollectMode", "s", |value| value.string("inactive-or-failed"));
        list.property("PIDs", "au", |value| value.array(4, |pids| pids.u32(req.pid)));
        let cpu_usec = req.cpu_cores.map(|cores| (cores * 1e6) as u64);
        for (name, limit) in
            [("MemoryMax", req.memory_max), ("TasksMax", req.tasks_max), ("CPUQuotaPerSecUSec", cpu_usec)]
        {
            if let Some(limit) = limit {
                list.property(name, "t", |value| value.u64(limit));
            }
        }
    });
    body.array(8, |_| {});
    body
}

/// Where the kernel says that the stub is: the proof that the move took place.
fn cgroup_of(req: &ScopeRequest<'_>) -> Result<String, ScopeError> {
    let path = format!("/proc/{}/cgroup", req.pid);
    let text = fs::read_to_string(&path).map_err(|error| ScopeError::ReadCgroup { path, error })?;
    let found = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    // "/../" is a cgroup outside of our cgroup namespace: we have no path to it.
    if found.rsplit('/').next() != Some(req.unit) || found.starts_with("/../") {
        return Err(ScopeError::NotMoved { pid: req.pid, found: found.into(), unit: req.unit.into() });
    }
    Ok(found.into())
}

/// Runs `ask` on the first address where a manager answers; all of them share one deadline. The error is that
/// of the best address.
fn on_first_manager<T>(
    addresses: &[BusAddress],
    timeout: Duration,
    ask: impl Fn(&mut Bus) -> Result<T, ScopeError>,
) -> Result<T, ScopeError> {
    let deadline = Instant::now() + timeout;
    let mut first = None;
    for address in addresses {
        match Bus::connect(address, deadline).and_then(|mut bus| ask(&mut bus)) {
            // Nothing was asked of any manager yet, so the next address may be tried.
            Err(error @ (ScopeError::Connect { .. } | ScopeError::NoManager { .. })) => {
                first = first.or(Some(error));
            }
            settled => return settled,
        }
    }
    Err(first.unwrap_or(ScopeError::NoAddress { session: "unset".into(), runtime: "unset".into() }))
}

/// Where a user manager may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusAddress {
    /// The socket's path, or its abstract name.
    name: OsString,
    is_abstract: bool,
    /// The manager's own socket, without a bus between: no Hello, no match rules.
    direct: bool,
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_abstract { "abstract" } else { "path" };
        write!(f, "unix:{kind}={}", self.name.display())
    }
}

/// The addresses to try, best first: what DBUS_SESSION_BUS_ADDRESS names, then the bus and the manager's own
/// socket in XDG_RUNTIME_DIR. The latter two serve shells whose bus is not the manager's (dbus-run-session), and
/// the last one hosts without a user bus. None of them is promised to exist.
pub(crate) fn bus_addresses() -> Result<Vec<BusAddress>, ScopeError> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let (session, runtime) = (set("DBUS_SESSION_BUS_ADDRESS"), set("XDG_RUNTIME_DIR"));
    let found = addresses(session.as_deref(), runtime.as_deref());
    if found.is_empty() {
        let shown = |value: Option<OsString>| value.map_or("unset".into(), |value| format!("{value:?}"));
        return Err(ScopeError::NoAddress { session: shown(session), runtime: shown(runtime) });
    }
    Ok(found)
}

fn addresses(session: Option<&OsStr>, runtime: Option<&OsStr>) -> Vec<BusAddress> {
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

/// One entry of a D-Bus address list, `unix:path=/run/user/0/bus,guid=…`; None for what is not a unix socket.
fn unix_socket(entry: &[u8]) -> Option<BusAddress> {
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
fn unescape(value: &[u8]) -> Option<Vec<u8>> {
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

/// A connection that has authenticated. Nothing on it waits beyond the deadline.
struct Bus {
    stream: UnixStream,
    address: BusAddress,
    deadline: Instant,
    /// What is under way, for the error.
    step: &'static str,
    serial: u32,
    output: Vec<u8>,
    input: Vec<u8>,
}

impl Bus {
    fn connect(address: &BusAddress, deadline: Instant) -> Result<Self, ScopeError> {
        let failed = |error| ScopeError::Connect { address: address.clone(), error };
        let stream = open_socket(address, deadline).map_err(failed)?;
        let (output, input) = (b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n".to_vec(), Vec::new());
        let mut bus =
            Self { stream, address: address.clone(), deadline, step: "Hello", serial: 0, output, input };
        bus.authenticate().map_err(failed)?;
        bus.call(&BUS, "Hello", "", Out::default());
        Ok(bus)
    }

    /// EXTERNAL without a name: the peer takes our uid from the socket, which is right in a user namespace too.
    fn authenticate(&mut self) -> io::Result<()> {
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

    /// Queues a method call: all go out as one write, and the bus keeps their order. The receiver is not started
    /// if it is absent, so that a bus without a manager says so at once.
    fn call(&mut self, to: &Object, member: &'static str, signature: &str, body: Out) {
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

    /// Sends what is queued and waits for a message. An error answer to any of our calls ends the exchange.
    fn receive(&mut self) -> Result<Message, ScopeError> {
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
    fn exchange(&mut self) -> io::Result<()> {
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

    fn lost(&self, error: io::Error) -> ScopeError {
        ScopeError::Lost { step: self.step, address: self.address.clone(), error }
    }
}

fn open_socket(address: &BusAddress, deadline: Instant) -> io::Result<UnixStream> {
    let target = if address.is_abstract {
        SocketAddrUnix::new_abstract_name(address.name.as_bytes())?
    } else {
        SocketAddrUnix::new(address.name.as_os_str())?
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    loop {
        // A connect waits while the listener's backlog is full; the send timeout bounds it.
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

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(ErrorKind::TimedOut, "no answer in time")) } else { Ok(left) }
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a malformed message")
}

/// The peer is on this machine, so both sides write in its byte order.
const ENDIAN: u8 = if cfg!(target_endian = "big") { b'B' } else { b'l' };

/// The serial of the call to the manager; those to the bus itself count up from 1.
const MANAGER_CALL: u32 = 9;

const REPLY: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

/// Marshals values; alignment counts from the start of the buffer.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.align(8);
        self.0.extend(value.to_ne_bytes());
    }

    fn string(&mut self, value: &str) {
        self.u32(value.len() as u32);
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, value: &str) {
        self.0.push(value.len() as u8);
        self.0.extend(value.as_bytes());
        self.0.push(0);
    }

    /// The length counts neither itself nor the padding before the first element.
    fn array(&mut self, element_align: usize, fill: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length_end = self.0.len();
        self.align(element_align);
        let start = self.0.len();
        fill(self);
        let length = (self.0.len() - start) as u32;
        self.0[length_end - 4..length_end].copy_from_slice(&length.to_ne_bytes());
    }

    /// A header field, `(yv)`.
    fn variant(&mut self, code: u8, kind: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.0.push(code);
        self.signature(kind);
        value(self);
    }

    /// A unit's property, `(sv)`.
    fn property(&mut self, name: &str, kind: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.string(name);
        self.signature(kind);
        value(self);
    }
}

/// What we look at in a message.
#[derive(Debug, PartialEq)]
struct Message {
    kind: u8,
    reply_to: u32,
    /// The signal's member or the error's name.
    name: String,
    body: Vec<u8>,
}

impl Message {
    /// Takes one message off the front of `input`: Some(None) when it is not complete yet, None when it is
    /// malformed.
    fn take(input: &mut Vec<u8>) -> Option<Option<Self>> {
        const HEAD: usize = 16;
        // Nothing that we ask for has an answer near this size.
        const MAX: usize = 1 << 20;
        if input.len() < HEAD {
            return Some(None);
        }
        let mut head = In { bytes: &input[..HEAD], at: 4 };
        let (body_length, _serial, fields_length) = (head.u32()? as usize, head.u32()?, head.u32()? as usize);
        if input[0] != ENDIAN || body_length > MAX || fields_length > MAX {
            return None;
        }
        let fields_end = HEAD + fields_length;
        let body_start = fields_end.next_multiple_of(8);
        let end = body_start + body_length;
        if input.len() < end {
            return Some(None);
        }
        let body = input[body_start..end].to_vec();
        let mut message = Self { kind: input[1], reply_to: 0, name: String::new(), body };
        let mut fields = In { bytes: &input[..fields_end], at: HEAD };
        while fields.at < fields_end {
            fields.at = fields.at.next_multiple_of(8);
            let code = fields.u8()?;
            match (fields.signature()?.as_str(), code) {
                ("u", 5) => message.reply_to = fields.u32()?,
                ("u", _) => drop(fields.u32()?),
                ("s", 3 | 4) => message.name = fields.string()?,
                ("s" | "o", _) => drop(fields.string()?),
                ("g", _) => drop(fields.signature()?),
                _ => return None,
            }
        }
        input.drain(..end);
        Some(Some(message))
    }

    fn answers_manager_call(&self) -> bool {
        self.kind == REPLY && self.reply_to == MANAGER_CALL
    }
}

/// Unmarshals values; None when the bytes end too soon.
struct In<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl In<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.at = self.at.next_multiple_of(4);
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        self.terminated(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.u8()?.into();
        self.terminated(length)
    }

    fn terminated(&mut self, length: usize) -> Option<String> {
        let text = str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.u8()? == 0).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::thread;

    const BRIEF: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(30);

    fn at_path(name: &str, direct: bool) -> BusAddress {
        BusAddress { name: name.into(), is_abstract: false, direct }
    }

    fn found(session: &str, runtime: Option<&str>) -> Vec<BusAddress> {
        addresses(Some(OsStr::new(session)), runtime.map(OsStr::new))
    }

    #[test]
    fn a_path_is_read_from_among_other_keys() {
        assert_eq!(found("unix:path=/run/user/0/bus", None), [at_path("/run/user/0/bus", false)]);
        assert_eq!(found("unix:guid=01ab,path=/a/bus,x=y", None), [at_path("/a/bus", false)]);
    }

    #[test]
    fn an_abstract_name_is_told_from_a_path() {
        let expected = BusAddress { name: "/tmp/dbus-X".into(), is_abstract: true, direct: false };
        assert_eq!(found("unix:abstract=/tmp/dbus-X,guid=01ab", None), [expected]);
    }

    #[test]
    fn escapes_are_undone_and_broken_ones_refused() {
        assert_eq!(found("unix:path=/a%20b%2Cc", None), [at_path("/a b,c", false)]);
        assert_eq!(found("unix:path=/a%2", None), []);
        assert_eq!(found("unix:path=/a%zz", None), []);
    }

    #[test]
    fn only_unix_sockets_of_a_list_are_kept_in_their_order() {
        let list = "tcp:host=localhost,port=1;unix:path=/one;autolaunch:;unix:path=/two;unix:path=";
        assert_eq!(found(list, None), [at_path("/one", false), at_path("/two", false)]);
        for none in ["disabled:", "/dev/null", "unix:tmpdir=/tmp", "unix:", ";;", ""] {
            assert_eq!(found(none, None), [], "{none}");
        }
    }

    #[test]
    fn the_runtime_directory_comes_after_the_session_address_and_once() {
        let bus = at_path("/run/user/7/bus", false);
        let private = at_path("/run/user/7/systemd/private", true);
        let runtime = Some("/run/user/7");
        assert_eq!(addresses(None, runtime.map(OsStr::new)), [bus.clone(), private.clone()]);
        assert_eq!(found("unix:path=/run/user/7/bus", runtime), [bus.clone(), private.clone()]);
        assert_eq!(found("unix:path=/other", runtime), [at_path("/other", false), bus, private]);
        assert_eq!(addresses(None, None), []);
    }

    /// A listener in the abstract namespace: nothing to clean up.
    fn listener(test: &str) -> (UnixListener, BusAddress) {
        let name = format!("quell-scope-{}-{test}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an abstract address");
        let listener = UnixListener::bind_addr(&address).expect("a listener");
        (listener, BusAddress { name: name.into(), is_abstract: true, direct: false })
    }

    fn request() -> ScopeRequest<'static> {
        ScopeRequest {
            unit: "quell-x.scope",
            description: "x",
            pid: 1,
            memory_max: Some(1 << 20),
            tasks_max: Some(8),
            cpu_cores: Some(1.5),
        }
    }

    fn ask(addresses: &[BusAddress], timeout: Duration) -> Result<(), ScopeError> {
        on_first_manager(addresses, timeout, |bus| start_on(bus, &request()))
    }

    /// Authenticates one client, sends `answers` and holds the line until the client leaves.
    fn bus_that_answers(test: &str, answers: &[Vec<u8>]) -> Result<(), ScopeError> {
        let (listener, address) = listener(test);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut client, _) = listener.accept().expect("a client");
                client.write_all(b"DATA\r\nOK 01ab\r\n").expect("answered");
                client.write_all(&answers.concat()).expect("answered");
                let _reset_or_end = client.read_to_end(&mut Vec::new());
            });
            let absent = at_path("/nonexistent/quell/bus", false);
            ask(&[absent, address], if answers.is_empty() { BRIEF } else { LONG })
        })
    }

    fn answer(kind: u8, field: (u8, &str, &str), reply_to: u32, body: &Out) -> Vec<u8> {
        let mut message = Out(vec![ENDIAN, kind, 1, 1]);
        message.u32(body.0.len() as u32);
        message.u32(9);
        message.array(8, |fields| {
            fields.variant(field.0, field.1, |value| value.string(field.2));
            fields.variant(5, "u", |value| value.u32(reply_to));
        });
        message.align(8);
        message.0.extend_from_slice(&body.0);
        message.0
    }

    fn job_path(path: &str) -> Vec<u8> {
        let mut body = Out::default();
        body.string(path);
        answer(REPLY, (7, "s", ":1.0"), MANAGER_CALL, &body)
    }

    fn job_removed(path: &str, unit: &str, result: &str) -> Vec<u8> {
        let mut body = Out::default();
        body.u32(7);
        body.string(path);
        body.string(unit);
        body.string(result);
        answer(SIGNAL, (3, "s", "JobRemoved"), 0, &body)
    }

    fn ended_in_time(result: Result<(), ScopeError>) -> Option<&'static str> {
        match result {
            Err(ScopeError::Connect { error, .. }) if error.kind() == ErrorKind::TimedOut => Some("connect"),
            Err(ScopeError::Lost { error, step, .. }) if error.kind() == ErrorKind::TimedOut => Some(step),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bus_that_never_answers_is_left_at_the_deadline() {
        let (_listener, address) = listener("silent");
        let began = Instant::now();
        assert_eq!(ended_in_time(ask(&[address], BRIEF)), Some("connect"));
        assert!(began.elapsed() >= BRIEF);
        assert_eq!(ended_in_time(bus_that_answers("mute", &[])), Some("StartTransientUnit"));
    }

    #[test]
    fn a_bus_that_never_stops_talking_is_left_at_the_deadline() {
        let (listener, address) = listener("chatter");
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut client, _) = listener.accept().expect("a client");
                client.write_all(b"DATA\r\nOK 01ab\r\n").expect("answered");
                let noise = job_removed("/job/1", "other.scope", "done");
                while client.write_all(&noise).is_ok() {}
            });
            ask(&[address], BRIEF)
        });
        assert_eq!(ended_in_time(result), Some("StartTransientUnit"));
    }

    #[test]
    fn a_full_backlog_is_left_at_the_deadline() {
        let (listener, address) = listener("backlog");
        rustix::net::listen(&listener, 0).expect("a backlog of one");
        // A client that left is still in the queue.
        let queued = open_socket(&address, Instant::now() + LONG);
        drop(queued.expect("room for one"));
        let full = open_socket(&address, Instant::now() + BRIEF).expect_err("no room for two");
        assert_eq!(full.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_bus_that_is_absent_or_hangs_up_or_refuses_us_is_an_error_at_once() {
        let absent = ask(&[at_path("/nonexistent/quell/bus", false)], LONG).expect_err("nobody listens");
        let expected = "connect to unix:path=/nonexistent/quell/bus: No such file or directory (os error 2)";
        assert_eq!(absent.to_string(), expected);

        for (answer, expected) in [("", "the bus hung up"), ("REJECTED EXTERNAL\r\n", "login answered by")] {
            let (listener, address) = listener("hangup");
            let result = thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut client, _) = listener.accept().expect("a client");
                    let _calls = client.read(&mut [0; 100]).expect("a greeting");
                    client.write_all(answer.as_bytes()).expect("answered");
                });
                ask(&[address], LONG)
            });
            let text = result.expect_err("no bus").to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn the_start_is_over_when_our_own_job_is_done() {
        let other_unit = job_removed("/job/7", "other.scope", "failed");
        let other_job = job_removed("/job/6", "quell-x.scope", "canceled");
        let (path, done) = (job_path("/job/7"), job_removed("/job/7", "quell-x.scope", "done"));
        let in_order = [other_unit.clone(), other_job.clone(), path.clone(), done.clone()];
        assert!(bus_that_answers("done", &in_order).is_ok());
        assert!(bus_that_answers("early", &[other_unit, done, other_job, path]).is_ok());
    }

    #[test]
    fn a_failed_job_and_a_refusal_are_told_in_systemds_words() {
        let failure = [job_path("/job/7"), job_removed("/job/7", "quell-x.scope", "failed")];
        let failed = bus_that_answers("failed", &failure).expect_err("the job failed");
        assert_eq!(failed.to_string(), "start of quell-x.scope ended as \"failed\"");

        let refusal = |name| {
            let mut why = Out::default();
            why.string("Unit quell-x.scope already exists.");
            [answer(ERROR, (4, "s", name), MANAGER_CALL, &why)]
        };
        let exists = refusal("org.freedesktop.systemd1.UnitExists");
        let refused = bus_that_answers("refused", &exists).expect_err("the call was refused");
        assert_eq!(
            refused.to_string(),
            "StartTransientUnit refused: Unit quell-x.scope already exists. (org.freedesktop.systemd1.UnitExists)"
        );
    }

    #[test]
    fn a_bus_without_a_manager_is_passed_over() {
        let unknown = answer(
            ERROR,
            (4, "s", "org.freedesktop.DBus.Error.ServiceUnknown"),
            MANAGER_CALL,
            &Out::default(),
        );
        let absent = bus_that_answers("nobody", &[unknown]).expect_err("no manager");
        assert!(matches!(absent, ScopeError::Connect { .. }), "the first address's error, not {absent:?}");
    }

    #[test]
    fn a_malformed_message_is_an_error_and_never_a_panic() {
        let good = job_removed("/job/7", "quell-x.scope", "done");
        for cut in 0..good.len() {
            assert_eq!(Message::take(&mut good[..cut].to_vec()), Some(None), "cut at {cut}");
        }
        for (at, bits) in (0..good.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let mut bad = good.clone();
            bad[at] ^= bits;
            if let Some(Some(message)) = Message::take(&mut bad) {
                let mut body = In { bytes: &message.body, at: 0 };
                let _ = (body.u32(), body.string(), body.string(), body.string());
            }
        }
        let result = bus_that_answers("garbage", &[b"no message at all".to_vec()]);
        assert!(
            matches!(&result, Err(ScopeError::Lost { error, .. }) if error.kind() == ErrorKind::InvalidData)
        );
    }
}
