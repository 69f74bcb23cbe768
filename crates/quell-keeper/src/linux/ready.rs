//! Whether a job is ready: a line of its output, a port that it listens on, and what its aide has found out.

use std::time::{Duration, Instant};

use quell_contain::Hold;
use quell_core::ReadyRules;
use quell_store::Stream;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

/// The longest part of a line that is looked at.
const LINE: usize = 8 * 1024;

/// What an aide looks for, as it may take its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// An answer over HTTP.
    Http,
    /// A command that succeeds.
    Cmd,
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
    began: Instant,
    said: bool,
}

impl Readiness {
    /// Everything is still missing.
    pub fn new(rules: &ReadyRules, interval: Duration) -> Result<Self, String> {
        let log = rules.log.as_deref().map(Regex::new).transpose();
        let log = log.map_err(|error| format!("--ready-log is no regular expression: {error}"))?;
        let probes = [(rules.http.is_some(), Probe::Http), (rules.cmd.is_some(), Probe::Cmd)];
        Ok(Self {
            log,
            port: rules.port,
            probes: probes.into_iter().filter(|(wanted, _)| *wanted).map(|(_, probe)| probe).collect(),
            partial: [Vec::new(), Vec::new()],
            interval,
            next_look: None,
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

    /// Looks at output.
    pub fn read(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(regex) = &self.log else { return };
        let partial = &mut self.partial[usize::from(stream == Stream::Stderr)];
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE - partial.len().min(LINE);
            partial.extend_from_slice(&line[..line.len().min(room)]);
            let ended = partial.ends_with(b"\n") || line.ends_with(b"\n");
            // A prompt without a line end counts as well.
            let text = String::from_utf8_lossy(partial.strip_suffix(b"\n").unwrap_or(partial));
            if regex.is_match(&text) {
                self.log = None;
                self.partial = [Vec::new(), Vec::new()];
                return;
            }
            if ended {
                partial.clear();
            }
        }
    }

    /// An aide has found out.
    pub fn found(&mut self, probe: Probe) {
        self.probes.retain(|other| *other != probe);
    }

    /// When [`Readiness::look`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks whether a member listens on the port. A stranger who does is not what was asked for.
    pub fn look(&mut self, hold: &Hold) {
        let Some(port) = self.port else { return };
        // Nothing tells of a new listener.
        self.next_look = Some(Instant::now() + self.interval);
        let inodes = quell_sys::listeners(port);
        if inodes.is_empty() {
            return;
        }
        let mut found = false;
        hold.each_member(|stat| found |= quell_sys::holds_socket(stat.pid, &inodes));
        if found {
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
