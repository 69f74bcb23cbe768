//! The helper of a job: a process that runs hooks (`hooks.rs`) and readiness checks that can take long. A job has one only if
//! it is needed. It is not an ancestor of the tree, so nothing that it starts can be taken for a member. Each of its commands
//! is a `quell run` with a time limit, and leaves nothing behind. If that quell is killed, the helper adopts what it has
//! started, and kills it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use quell_core::{Hook, HookEvent, JobEvent, Mask, ReadyCheck, Signal, format_duration};
use quell_store::JobDir;
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{Forked, PidFd, Polled, SignalFd, Sources};
use serde::{Deserialize, Serialize};

use super::channel::JsonChannel;
use super::hooks::failure_of;
use super::http_probe;
use super::readiness::{Probe, ProbeSuccess};
use crate::control_protocol::StopValue;

const HELPER_NAME: &str = "quell-helper";
/// How long a check that is stopped, or whose quell was killed, may take to end by itself. Its keeper takes half a second.
const FORCE: Duration = Duration::from_secs(1);
/// How long the end of a run waits for the proof that its check is gone. More than [`FORCE`], for a busy machine.
const REST_PATIENCE: Duration = Duration::from_secs(3);

/// From the keeper to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// An event that hooks wait for.
    Event(Box<JobEvent>),
    /// A run of the program has begun: look for readiness.
    Probe,
    /// The answer over HTTP came from a process outside the tree: ask again.
    AskAgain,
    /// The run is over: stop looking for readiness, and report when nothing of that is left.
    Rest(RestRequest),
}

/// A request to rest: the process that asks, and how often it has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestRequest(u32, u32);

/// From a helper to its keeper.
#[derive(Debug, Serialize, Deserialize)]
enum HelperReport {
    Found(ProbeSuccess),
    /// No process of a readiness check is left.
    AtRest(RestRequest),
}

/// What a helper knows of its job.
pub struct HelperBrief<'a> {
    /// Where a failed hook is noted, if the job has a record.
    pub job: Option<&'a JobDir>,
    /// The job's command, masked.
    pub command: Vec<String>,
    /// What its history does not show.
    pub mask: &'a Mask,
    pub cwd: Option<&'a Path>,
    pub environment: &'a [(OsString, OsString)],
    pub hooks: &'a [Hook],
    pub ready: &'a ReadyCheck,
}

/// The connection to a helper. It does nothing if the job has no helper or the helper is gone.
#[derive(Debug, Default)]
pub struct HelperLink {
    channel: Option<JsonChannel>,
    /// The events that hooks wait for.
    awaited: Vec<HookEvent>,
    /// Whether the helper may have started a command that checks the readiness and is not proven gone.
    checks: bool,
    rest: Option<(RestRequest, Instant)>,
    rests: u32,
}

impl HelperLink {
    /// Has the helper look for readiness.
    pub fn probe(&mut self, ready: &ReadyCheck) {
        // If the helper did not get the task, no check can be running.
        let given = self.give(&Task::Probe);
        (self.checks, self.rest) = (given && ready.rules.cmd.is_some(), None);
    }

    /// Has the helper end what looks for readiness. See [`HelperLink::wait_at_rest`].
    pub fn rest(&mut self) {
        if self.rest.is_none() {
            self.rests += 1;
            let request = RestRequest(quell_sys::pid(), self.rests);
            self.give(&Task::Rest(request));
            self.rest = Some((request, Instant::now()));
        }
    }

    /// Waits until no process of a readiness check is left. False if that is not proven.
    pub fn wait_at_rest(&mut self) -> bool {
        let until = self.rest.map_or_else(Instant::now, |(_, since)| since + REST_PATIENCE);
        while self.checks {
            let Some(polled) = self.polled() else { break };
            if !quell_sys::poll_until(&[polled], Some(until)).is_ok_and(|ready| ready[0]) {
                break;
            }
            self.receive();
        }
        !self.checks
    }

    pub fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    pub fn polled(&self) -> Option<Polled<'_>> {
        self.channel.as_ref().map(|channel| Polled::Read(channel.as_fd()))
    }

    /// Reports an event, if a hook waits for it.
    pub fn notify(&mut self, event: &JobEvent) {
        if event.what.hook_event().is_some_and(|at| self.awaited.contains(&at)) {
            self.give(&Task::Event(Box::new(event.clone())));
        }
    }

    /// Sends a task. If the helper is gone or its channel is full, the task is dropped, because the job does not wait. Returns
    /// whether it was sent.
    pub fn give(&mut self, task: &Task) -> bool {
        self.channel.as_mut().is_some_and(|channel| channel.try_send(task).is_ok())
    }

    /// Reports an event, and waits for room if necessary.
    pub fn send_event(&mut self, event: JobEvent) {
        if let Some(channel) = &mut self.channel {
            let _ = channel.send(&Task::Event(Box::new(event)));
        }
    }

    /// The readiness that the helper has found.
    pub fn receive(&mut self) -> Vec<ProbeSuccess> {
        let Some(channel) = &mut self.channel else { return Vec::new() };
        let received = channel.recv();
        if received.closed {
            self.channel = None;
        }
        let mut found = Vec::new();
        for report in received.messages {
            match report {
                HelperReport::Found(success) => {
                    // Its `quell run` has proven that nothing of it is left.
                    self.checks &= success.probe() != Probe::Cmd;
                    found.push(success);
                }
                HelperReport::AtRest(request) => {
                    self.checks &= self.rest.is_none_or(|(asked, _)| asked != request);
                }
            }
        }
        found
    }
}

/// Starts a helper if there is something to do for one.
///
/// It is forked twice, before this process is a subreaper. So its parent is the next subreaper above this process.
pub fn start(brief: &HelperBrief<'_>) -> io::Result<HelperLink> {
    if brief.hooks.is_empty() && brief.ready.rules.http.is_none() && brief.ready.rules.cmd.is_none() {
        return Ok(HelperLink::default());
    }
    let (ours, theirs) = JsonChannel::pair()?;
    match quell_sys::fork()? {
        Forked::Parent(between) => {
            quell_sys::wait_exit(between.pid())?;
            quell_sys::reap(between.pid())?;
            let awaited = brief.hooks.iter().flat_map(|hook| hook.on.iter().copied()).collect();
            let checks = brief.ready.rules.cmd.is_some();
            Ok(HelperLink { channel: Some(ours), awaited, checks, ..HelperLink::default() })
        }
        Forked::Child => {
            drop(ours);
            if let Ok(Forked::Child) = quell_sys::fork() {
                helper_main(brief, theirs);
            }
            std::process::exit(0)
        }
    }
}

fn helper_main(brief: &HelperBrief<'_>, channel: JsonChannel) {
    quell_sys::set_name(HELPER_NAME);
    fault::act_as(Role::Helper);
    fault_point(FaultPoint::HelperBegun);
    // Only the keepers hold the lock: a slow hook must not make the job look alive. And hooks must not keep the caller's pipes,
    // terminal and directory busy.
    quell_sys::keep_open_only(channel.as_fd());
    let _ = quell_sys::redirect_to_null(true, true, true);
    let _ = quell_sys::leave_session();
    let _ = std::env::set_current_dir("/");
    if let (Ok(signals), Ok(())) = (SignalFd::new(&[Signal::CHLD]), quell_sys::set_subreaper()) {
        let (running, probing) = (Vec::new(), Vec::new());
        let (http, next_probe, rest, force) = (None, None, None, None);
        Helper { brief, channel, signals, running, probing, http, next_probe, rest, force, forced: false }
            .serve();
    }
}

/// What a command of the helper is for.
pub enum Command {
    Hook {
        name: String,
        at: HookEvent,
        run: u32,
    },
    Probe,
    /// A probe of a run that is over.
    Abandoned,
}

pub struct Helper<'a> {
    pub brief: &'a HelperBrief<'a>,
    channel: JsonChannel,
    signals: SignalFd,
    pub running: Vec<(Child, Command)>,
    probing: Vec<Probe>,
    /// Receives the address of a good answer from the thread of the HTTP probe.
    http: Option<UnixStream>,
    next_probe: Option<Instant>,
    /// What is answered when nothing of a check is left.
    rest: Option<RestRequest>,
    /// When what is left of a check is killed because it has not ended by itself, and whether that time has come.
    force: Option<Instant>,
    forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelperSource {
    Signals,
    Http,
    Channel,
}

impl Helper<'_> {
    fn serve(&mut self) {
        let mut closed = false;
        while !closed || !self.running.is_empty() || self.force.is_some() {
            let mut sources = Sources::default();
            sources.add(HelperSource::Signals, Polled::Read(self.signals.as_fd()));
            let http = self.http.as_ref().map(|http| Polled::Read(http.as_fd()));
            sources.add_any(HelperSource::Http, http);
            sources.add_any(HelperSource::Channel, (!closed).then(|| Polled::Read(self.channel.as_fd())));
            let force = self.force.filter(|_| !self.forced);
            let Ok(ready) = sources.wait(self.next_probe.into_iter().chain(force).min()) else { return };
            while self.signals.next().is_some() {}
            self.collect();
            if ready.has(HelperSource::Http) {
                self.read_http();
            }
            if ready.has(HelperSource::Channel) {
                let received = self.channel.recv::<Task>();
                received.messages.into_iter().for_each(|task| self.take(task));
                closed = received.closed;
            }
            if closed {
                self.stop_probing();
            }
            self.end_checks();
            if self.next_probe.is_some_and(|next| next <= Instant::now()) {
                self.probe();
            }
        }
    }

    fn take(&mut self, task: Task) {
        fault_point(FaultPoint::TaskHeard);
        match task {
            Task::Event(event) => self.run_hooks(&event),
            Task::Probe => {
                let ready = &self.brief.ready.rules;
                self.probing.clear();
                self.probing.extend(ready.http.as_ref().map(|_| Probe::Http));
                self.probing.extend(ready.cmd.as_ref().map(|_| Probe::Cmd));
                self.next_probe = (!self.probing.is_empty()).then(Instant::now);
            }
            Task::AskAgain => {
                self.probing.push(Probe::Http);
                self.next_probe.get_or_insert_with(|| Instant::now() + self.brief.ready.interval);
            }
            Task::Rest(request) => {
                self.rest = Some(request);
                self.stop_probing();
            }
        }
    }

    fn stop_probing(&mut self) {
        self.probing.clear();
        (self.next_probe, self.http) = (None, None);
        for (child, command) in &mut self.running {
            if matches!(command, Command::Probe) {
                *command = Command::Abandoned;
                self.force = Some(Instant::now() + FORCE);
                // It is our unreaped child, so its PID is not reused. It kills what it has started.
                if let Ok(probe) = PidFd::open(child.id()) {
                    probe.signal_with(
                        Signal::ASK_FRONT,
                        StopValue { kill: true, ..StopValue::default() }.encode(),
                    );
                    probe.signal(Signal::CONT);
                }
            }
        }
    }

    /// Reports that nothing of a check is left, once that is so. What does not end in its time is killed, and its children become
    /// ours, so that the next look finds them.
    fn end_checks(&mut self) {
        if self.rest.is_none() && self.force.is_none() {
            return;
        }
        let left = loop {
            let Ok(mut left) = quell_sys::own_children() else {
                // Nothing is known, so nothing is reported. The next look comes later.
                self.force = Some(Instant::now() + FORCE);
                return;
            };
            let mut reaped = false;
            left.retain(|pid| match self.running.iter().find(|(child, _)| child.id() == *pid) {
                Some((_, command)) => matches!(command, Command::Abandoned),
                // Its quell was killed.
                None => {
                    let lives = matches!(quell_sys::reap(*pid), Ok(None));
                    reaped |= !lives;
                    lives
                }
            });
            // A child that has exited may have left its own to us since they were listed.
            if !reaped {
                break left;
            }
        };
        if left.is_empty() {
            (self.force, self.forced) = (None, false);
            if let Some(request) = self.rest.take() {
                let _ = self.channel.try_send(&HelperReport::AtRest(request));
            }
            return;
        }
        self.forced |= *self.force.get_or_insert_with(|| Instant::now() + FORCE) <= Instant::now();
        if self.forced {
            // Children that are not reaped, so the PIDs are theirs.
            for child in left.into_iter().filter_map(|pid| PidFd::open(pid).ok()) {
                child.signal(Signal::KILL);
            }
        }
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].0.try_wait() {
                Ok(None) => at += 1,
                ended => {
                    let (_, command) = self.running.swap_remove(at);
                    let code = ended.ok().flatten().and_then(|status| status.code());
                    match command {
                        Command::Hook { name, at, run } if code != Some(0) => {
                            let why = code.map_or("it was killed".into(), failure_of);
                            self.hook_failed(&name, at, run, why);
                        }
                        Command::Probe if code == Some(0) => self.found(ProbeSuccess::Command),
                        // It was killed, and can't have stopped what it had started.
                        Command::Probe if code.is_none() => self.force = Some(Instant::now() + FORCE),
                        Command::Hook { .. } | Command::Probe | Command::Abandoned => {}
                    }
                }
            }
        }
    }

    fn probe(&mut self) {
        let ready = self.brief.ready;
        if self.probing.contains(&Probe::Http)
            && self.http.is_none()
            && let Some(url) = &ready.rules.http
        {
            self.http = http_probe::ask(url, ready.timeout).ok();
        }
        let runs = self.running.iter().any(|(_, command)| matches!(command, Command::Probe));
        if self.probing.contains(&Probe::Cmd)
            && !runs
            && let Some(text) = &ready.rules.cmd
        {
            self.try_command(text);
        }
        // No event reports that a server or a command would succeed now.
        self.next_probe = (!self.probing.is_empty()).then(|| Instant::now() + ready.interval);
    }

    fn read_http(&mut self) {
        let mut text = String::new();
        let read = self.http.take().is_some_and(|mut http| http.read_to_string(&mut text).is_ok());
        if let Some(address) = text.parse().ok().filter(|_| read) {
            self.found(ProbeSuccess::Answer(address));
        }
    }

    fn try_command(&mut self, text: &str) {
        let mut command = quell_run(self.brief.ready.timeout);
        command.args(["/bin/sh", "-c", text]).env_clear().envs(self.brief.environment.iter().cloned());
        command.stdin(Stdio::null()).current_dir(self.brief.cwd.unwrap_or("/".as_ref()));
        if let Ok(child) = command.spawn() {
            self.running.push((child, Command::Probe));
        }
    }

    fn found(&mut self, found: ProbeSuccess) {
        if self.probing.contains(&found.probe()) {
            self.probing.retain(|other| *other != found.probe());
            let _ = self.channel.try_send(&HelperReport::Found(found));
        }
    }
}

/// `quell run` with the options that all commands of a helper have; its output is discarded.
pub fn quell_run(timeout: Duration) -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("quell").args(["run", "--quiet", "--no-record", "--grace", "1s"]);
    // A shorter time would be written as 0, which means no limit.
    let timeout = timeout.max(Duration::from_millis(1));
    command.args(["--timeout", &format_duration(timeout), "--"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // The path of the executable may be relative to another directory.
    command.env_remove(fault::LOG_VARIABLE);
    command
}

/// Whether a hook started this process, directly or not. What a hook runs has no hooks: otherwise a hook that calls quell would
/// call itself without end.
pub fn is_below_a_helper() -> bool {
    let above = |pid: u32| quell_sys::stat(pid).and_then(|stat| quell_sys::stat(stat.ppid)).ok();
    std::iter::successors(above(quell_sys::pid()), |stat| above(stat.pid))
        .any(|stat| stat.comm == HELPER_NAME && quell_sys::same_executable_file(stat.pid, quell_sys::pid()))
}
