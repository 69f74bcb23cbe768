//! Whether a job is ready: a line of its output, a port that a member listens on, and what the helper finds out.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::{EventKind, Phase, ReadyCheck, Until};
use quell_store::{MATCHED, Stream, line_matches};
use quell_sys::fault::{FaultPoint, fault_point};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::engine::Supervisor;
use super::helper::Task;

/// What the helper looks for, because it may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// An answer over HTTP.
    Http,
    /// A command that succeeds.
    Cmd,
}

/// A probe of the helper that has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeSuccess {
    /// This address gave a good answer over HTTP.
    Answer(SocketAddr),
    /// The command has succeeded.
    Command,
}

impl ProbeSuccess {
    pub fn probe(self) -> Probe {
        match self {
            Self::Answer(_) => Probe::Http,
            Self::Command => Probe::Cmd,
        }
    }
}

/// What is still missing in one run of the program.
#[derive(Debug)]
pub struct Readiness {
    log: Option<Regex>,
    port: Option<u16>,
    probes: Vec<Probe>,
    partial: [Vec<u8>; 2],
    interval: Duration,
    next_look: Option<Instant>,
    /// The address that has answered over HTTP, until it is checked that a member listens there.
    answered: Option<SocketAddr>,
    began: Instant,
    reported: bool,
}

impl Readiness {
    pub fn new(check: &ReadyCheck) -> Result<Self, String> {
        let ReadyCheck { rules, interval, .. } = check;
        let log = rules.log.as_deref().map(Regex::new).transpose();
        let log =
            log.map_err(|error| format!("the pattern for the output is not a regular expression: {error}"))?;
        let probes = [(rules.http.is_some(), Probe::Http), (rules.cmd.is_some(), Probe::Cmd)];
        Ok(Self {
            log,
            port: rules.port,
            probes: probes.into_iter().filter(|(wanted, _)| *wanted).map(|(_, probe)| probe).collect(),
            partial: [Vec::new(), Vec::new()],
            interval: *interval,
            next_look: None,
            answered: None,
            began: Instant::now(),
            // A job without a readiness check is never reported as ready.
            reported: rules.is_empty(),
        })
    }

    /// The program runs: its readiness is checked from now on. Output that it has already written counts.
    pub fn begin(&mut self) {
        self.began = Instant::now();
        self.next_look = self.port.map(|_| Instant::now());
    }

    /// Whether a line of output is missing.
    pub fn wants_output(&self) -> bool {
        self.log.is_some()
    }

    /// Looks at output. Only whole lines count: the rest of a line can change its meaning.
    pub fn read(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(regex) = &self.log else { return };
        let partial = &mut self.partial[usize::from(stream == Stream::Stderr)];
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let text = part.strip_suffix(b"\n");
            let bytes = text.unwrap_or(part);
            let room = MATCHED.saturating_sub(partial.len());
            partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if text.is_none() {
                continue;
            }
            if line_matches(regex, partial) {
                self.log = None;
                self.partial = [Vec::new(), Vec::new()];
                return;
            }
            partial.clear();
        }
        // An idle keeper should be small.
        if partial.is_empty() {
            *partial = Vec::new();
        }
    }

    pub fn found(&mut self, found: ProbeSuccess) {
        match found {
            ProbeSuccess::Answer(address) => self.answered = Some(address),
            ProbeSuccess::Command => self.probes.retain(|other| *other != Probe::Cmd),
        }
    }

    /// Checks that the answer came from a member. Returns false if another process has answered: then ask again.
    fn check_answer(&mut self, containment: &Containment) -> bool {
        let Some(address) = self.answered.take() else { return true };
        let own = is_listening(containment, address.port(), Some(address.ip()));
        if own {
            self.probes.retain(|other| *other != Probe::Http);
        }
        own
    }

    /// When to look at the port.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks whether a member listens on the port. A listener outside the tree does not count.
    fn look(&mut self, containment: &Containment) {
        let Some(port) = self.port else { return };
        // No event reports a new listener.
        self.next_look = Some(Instant::now() + self.interval);
        if is_listening(containment, port, None) {
            self.port = None;
            self.next_look = None;
        }
    }

    /// The seconds until the job was ready, once, when nothing is missing any more.
    fn take_ready(&mut self) -> Option<f64> {
        if self.reported || self.log.is_some() || self.port.is_some() || !self.probes.is_empty() {
            return None;
        }
        self.reported = true;
        Some(self.began.elapsed().as_secs_f64())
    }
}

/// Whether a member listens on the port, so that a connection to the address reaches it.
fn is_listening(containment: &Containment, port: u16, address: Option<IpAddr>) -> bool {
    let inodes = quell_sys::listeners(port, address);
    let mut found = false;
    if !inodes.is_empty() {
        containment.each_member(|stat| found |= quell_sys::holds_socket(stat.pid, &inodes));
    }
    found
}

impl Supervisor {
    /// Prepares the readiness checks before the program can print anything.
    pub(super) fn expect_readiness(&mut self) {
        let Some(background) = self.job.request.as_background() else { return };
        match Readiness::new(&background.ready) {
            Ok(readiness) => self.host.readiness = Some(readiness),
            // The caller has got this error already, where that was possible.
            Err(why) => self.warn(why),
        }
    }

    pub(super) fn begin_readiness(&mut self) {
        if let Some(readiness) = &mut self.host.readiness {
            readiness.begin();
            self.job.request.as_background().iter().for_each(|rules| self.helper.probe(&rules.ready));
        }
        self.check_readiness();
    }

    /// Readiness is not looked for any more. A standby that has taken over does not know whether its keeper did.
    pub(super) fn end_readiness(&mut self) {
        self.host.readiness = None;
        self.helper.rest();
    }

    /// Looks for readiness in what the root has written before its exit.
    pub(super) fn read_last_output(&mut self) {
        let readiness = self.host.readiness.as_mut().filter(|readiness| readiness.wants_output());
        if let (Some(readiness), Some(output)) = (readiness, &mut self.host.output) {
            output.read_last(|stream, bytes| readiness.read(stream, bytes));
        }
        self.check_readiness();
    }

    pub(super) fn check_readiness(&mut self) {
        // A server may have gone into the background, so that its root has exited.
        let lives_on = self.phase() == Phase::Draining && self.job.rules.until == Until::Tree;
        if self.phase() != Phase::Running && !lives_on {
            return;
        }
        let Some(readiness) = &mut self.host.readiness else { return };
        if readiness.deadline().is_some_and(|due| due <= Instant::now()) {
            readiness.look(&self.run.containment);
        }
        if !readiness.check_answer(&self.run.containment) {
            self.helper.give(&Task::AskAgain);
        }
        if let Some(after) = readiness.take_ready() {
            self.run.ready = Some(self.run.evidence.now());
            self.set_recorded_members(self.run.containment.living());
            self.record_state();
            fault_point(FaultPoint::ReadyPublished);
            self.record_event(EventKind::Ready { after });
        }
    }
}
