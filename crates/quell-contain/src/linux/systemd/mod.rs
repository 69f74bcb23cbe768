//! Asks the user's systemd manager for a delegated scope, which is how a user without root gets a cgroup.
//!
//! The manager is reached over the user bus by a D-Bus client that knows four calls and one signal. It is our own because a job
//! waits for it before exec, and a bus may be absent, dead or hung: every step, including the connect, ends at one deadline.
//! The client crates can't do that (rustbus 0.19 has no deadline before it is authenticated, spins for ever if the bus hangs up
//! until then, and leaks its socket into children) or need an async runtime (zbus).
//!
//! ```text
//! connect -> EXTERNAL -> Hello, AddMatch, StartTransientUnit -> job path -> JobRemoved "done" -> /proc/PID/cgroup
//! ```

mod bus;
#[cfg(test)]
mod tests;
mod wire;

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use bus::{BUS, Bus, BusAddress, MANAGER, Object, bus_addresses, malformed};
use wire::{In, Out, SIGNAL};

#[cfg(feature = "fuzzing")]
pub use bus::unescape;

/// Takes one message off the front of `input`, as the client does. Returns the lengths of its body and its name.
#[cfg(feature = "fuzzing")]
pub fn take_message(input: &mut Vec<u8>) -> Option<Option<(usize, usize)>> {
    wire::Message::take(input).map(|taken| taken.map(|message| (message.body.len(), message.name.len())))
}

/// The properties of the scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeRequest<'a> {
    /// The unit's name, `quell-<id>.scope`. No other unit may have it.
    pub unit: &'a str,
    /// What `systemctl --user status` shows.
    pub description: &'a str,
    /// The first member: a live, blocked stub. systemd refuses an empty scope.
    pub pid: u32,
    /// Bytes.
    pub memory_max: Option<u64>,
    /// Processes and threads.
    pub tasks_max: Option<u64>,
    /// CPU time per second: 1.5 is one and a half CPUs.
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

/// Checks that a user manager replies. Changes nothing.
pub(crate) fn probe(timeout: Duration) -> Result<(), ScopeError> {
    on_first_manager(&bus_addresses()?, timeout, |bus| {
        bus.call(&Object { interface: "org.freedesktop.DBus.Peer", ..MANAGER }, "Ping", "", Out::default());
        while !bus.receive()?.answers_manager_call() {}
        Ok(())
    })
}

/// Starts the scope with `req.pid` in it. Returns its cgroup, as in the `0::` line of /proc/PID/cgroup. The caller may make
/// cgroups below it, and systemd removes it once it is empty.
///
/// After an error the manager may still move `req.pid` later. So the caller has to discard that stub and start another one for
/// the next containment.
pub(crate) fn start(req: &ScopeRequest<'_>, timeout: Duration) -> Result<String, ScopeError> {
    on_first_manager(&bus_addresses()?, timeout, |bus| start_on(bus, req))?;
    cgroup_of(req)
}

/// Requests the unit and waits until its start job is done.
fn start_on(bus: &mut Bus, req: &ScopeRequest<'_>) -> Result<(), ScopeError> {
    // Before the call, and only for our unit (the third argument), so that no other unit's job wakes us.
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

/// The stub's cgroup as the kernel reports it, which proves that it was moved.
fn cgroup_of(req: &ScopeRequest<'_>) -> Result<String, ScopeError> {
    let path = format!("/proc/{}/cgroup", req.pid);
    let text = fs::read_to_string(&path).map_err(|error| ScopeError::ReadCgroup { path, error })?;
    let found = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    // "/../" is a cgroup outside of our cgroup namespace, which has no path here.
    if found.rsplit('/').next() != Some(req.unit) || found.starts_with("/../") {
        return Err(ScopeError::NotMoved { pid: req.pid, found: found.into(), unit: req.unit.into() });
    }
    Ok(found.into())
}

/// Runs `ask` on the first address where a manager replies. All addresses share one deadline. If all fail, the error is that of
/// the first.
fn on_first_manager<T>(
    addresses: &[BusAddress],
    timeout: Duration,
    ask: impl Fn(&mut Bus) -> Result<T, ScopeError>,
) -> Result<T, ScopeError> {
    let deadline = Instant::now() + timeout;
    let mut first = None;
    for address in addresses {
        match Bus::connect(address, deadline).and_then(|mut bus| ask(&mut bus)) {
            // No manager has got a request yet, so the next address may be tried.
            Err(error @ (ScopeError::Connect { .. } | ScopeError::NoManager { .. })) => {
                first = first.or(Some(error));
            }
            settled => return settled,
        }
    }
    Err(first.unwrap_or(ScopeError::NoAddress { session: "unset".into(), runtime: "unset".into() }))
}
