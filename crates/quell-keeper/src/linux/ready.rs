//! Whether a job is ready: a line of its output, a port that it listens on, and what its helper has found out.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quell_contain::Containment;
use quell_core::ReadyCheck;
use quell_store::{MATCHED, Stream, line_matches};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// What a helper looks for, as it may take its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// An answer over HTTP.
    Http,
    /// A command that succeeds.
    Cmd,
}

/// What a helper has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// There was a good answer over HTTP from this address.
    Answer(SocketAddr),
    /// The command has succeeded.
    Success,
}

impl Found {
    /// Which probe it was.
    pub fn probe(self) -> Probe {
        match self {
            Self::Answer(_) => Probe::Http,
            Self::Success => Probe::Cmd,
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
    /// Who has answered over HTTP, as far as nobody has looked whether it is the job.
    answered: Option<SocketAddr>,
    began: Instant,
    said: bool,
}

impl Readiness {
    /// Everything is still missing.
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
            // Nothing that could show it was asked for: then nobody is told either.
            said: rules.is_empty(),
        })
    }

    /// The program runs: from here on its readiness is looked for. What it has written already counts.
    pub fn begin(&mut self) {
        self.began = Instant::now();
        self.next_look = self.port.map(|_| Instant::now());
    }

    /// Whether a line of output is missing.
    pub fn wants_output(&self) -> bool {
        self.log.is_some()
    }

    /// Looks at output. Only whole lines count: what follows the beginning of a line may change what it says.
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

    /// A helper has found out.
    pub fn found(&mut self, found: Found) {
        match found {
            Found::Answer(address) => self.answered = Some(address),
            Found::Success => self.probes.retain(|other| *other != Probe::Cmd),
        }
    }

    /// Looks whether the answer came from a member. False if a stranger has answered: then it is to be asked for again.
    pub fn check_answer(&mut self, hold: &Containment) -> bool {
        let Some(address) = self.answered.take() else { return true };
        let own = is_listening(hold, address.port(), Some(address.ip()));
        if own {
            self.probes.retain(|other| *other != Probe::Http);
        }
        own
    }

    /// When [`Readiness::look`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks whether a member listens on the port. A stranger who does is not what was asked for.
    pub fn look(&mut self, hold: &Containment) {
        let Some(port) = self.port else { return };
        // Nothing tells of a new listener.
        self.next_look = Some(Instant::now() + self.interval);
        if is_listening(hold, port, None) {
            self.port = None;
            self.next_look = None;
        }
    }

    /// Whether nothing is missing any more, the first time that this is so: after how many seconds.
    pub fn take_ready(&mut self) -> Option<f64> {
        if self.said || self.log.is_some() || self.port.is_some() || !self.probes.is_empty() {
            return None;
        }
        self.said = true;
        Some(self.began.elapsed().as_secs_f64())
    }
}

/// Whether a member listens on the port, so that a connection to the address reaches it.
fn is_listening(hold: &Containment, port: u16, address: Option<IpAddr>) -> bool {
    let inodes = quell_sys::listeners(port, address);
    let mut found = false;
    if !inodes.is_empty() {
        hold.each_member(|stat| found |= quell_sys::holds_socket(stat.pid, &inodes));
    }
    found
}
