//! What a keeper serves in addition to its tree: clients, output, input, the owner, readiness, the process that started the job.
//! It lasts over all runs of the program. A job in the foreground has `Host::default()`, with the client of a server
//! at most, or with a control socket and an owner if it keeps what its root leaves behind: each other part is empty and does nothing.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_core::ClientProcess;
use quell_sys::{PidFd, Polled, Ready, Sources};

use super::backoff::Backoff;
use super::control_server::{ClientRequest, ControlServer};
use super::engine::KeeperSource;
use super::input::{Answers, ProgramInput};
use super::output::OutputCapture;
use super::readiness::Readiness;
use super::server::ServerWatch;
use crate::control_protocol::Answer;

#[derive(Default)]
pub struct Host {
    pub control: ControlServer,
    pub output: Option<OutputCapture>,
    pub input: ProgramInput,
    pub owner: Option<PidFd>,
    /// The name of an owner that the receipt names.
    pub owner_named: Option<ClientProcess>,
    pub server: Option<ServerWatch>,
    pub readiness: Option<Readiness>,
    pub backoff: Backoff,
    /// The process that waits to be told that the program runs.
    pub starter: Option<UnixStream>,
}

impl Host {
    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        if let Some(output) = &self.output {
            output.add_sources(sources);
        }
        sources.add_any(KeeperSource::Input, self.input.polled());
        sources.add_any(KeeperSource::Fifo, self.input.fifo());
        sources.add_any(KeeperSource::Owner, self.owner.as_ref().map(|owner| Polled::Read(owner.as_fd())));
        if let Some(server) = &self.server {
            server.add_sources(sources);
        }
        self.control.add_sources(sources);
    }

    /// When something is due that no descriptor reports.
    pub fn deadline(&self) -> Option<Instant> {
        let readiness = self.readiness.as_ref().and_then(Readiness::deadline);
        readiness.into_iter().chain(self.input.deadline()).min()
    }

    /// Moves output and input, and returns what clients have asked for.
    pub fn receive(&mut self, ready: &Ready<KeeperSource>) -> Vec<ClientRequest> {
        if let Some(output) = &mut self.output {
            let readiness = &mut self.readiness;
            output.read(ready, |stream, bytes| {
                if let Some(readiness) = readiness {
                    readiness.read(stream, bytes);
                }
            });
        }
        if ready.has(KeeperSource::Input) {
            self.write_input();
        }
        if ready.has(KeeperSource::Fifo) {
            self.input.release_fifo();
        }
        let requests = self.control.receive(ready);
        self.input.retain(|client| self.control.is_connected(client));
        let expired = self.input.expire(Instant::now());
        self.answer_all(expired);
        requests
    }

    /// Accepts a request to write to the program.
    pub fn send(&mut self, client: u64, data: Vec<u8>, eof: bool, within: Duration) {
        match self.input.push(client, data, eof, within) {
            Ok(()) => self.write_input(),
            Err(why) => self.control.answer(client, &Answer::refused("stdin_closed", &why)),
        }
    }

    fn write_input(&mut self) {
        let written = self.input.write();
        self.answer_all(written);
    }

    pub fn close_input(&mut self) {
        let refused = self.input.close("the program has ended");
        self.answer_all(refused);
    }

    fn answer_all(&mut self, answers: Answers) {
        answers.iter().for_each(|(client, answer)| self.control.answer(*client, answer));
    }

    /// Whether the owner has exited. True once.
    pub fn take_owner_exit(&mut self, ready: &Ready<KeeperSource>) -> bool {
        // Without memory to poll every source counts as ready.
        ready.has(KeeperSource::Owner) && self.owner.take_if(|owner| !owner.is_alive()).is_some()
    }
}
