//! A server that its client talks to over standard input and output (`quell wrap`): how its keeper sees that the client is done
//! with it, and what follows.
//!
//! The server has the client's own descriptors. The keeper holds one more copy of standard input, which it never reads, to see
//! the hang-up, until the server has exited.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use quell_core::{Actor, Cause, ClientProcess, EventKind, Phase, ServerRules, StepKind, StopMode};
use quell_sys::{PidFd, Polled, Ready, Sources};

use super::engine::{KeeperSource, KeeperTimer, Supervisor};
use super::owner::pin_owner;
use crate::StartError;

/// How long a server may take to exit by itself when its client has exited: nothing reads its answers any more.
const CLIENT_GONE_GRACE: Duration = Duration::from_millis(500);

/// What the keeper of a server watches, until the server has exited.
pub struct ServerWatch {
    input: Option<OwnedFd>,
    clients: Vec<(PidFd, ClientProcess)>,
    eof_grace: Duration,
    /// Why the server is to exit, once it has begun to have time for that.
    leaving: Option<(Cause, Actor)>,
}

impl ServerWatch {
    /// Pins the clients, which must be alive.
    pub fn open(rules: &ServerRules) -> Result<Self, StartError> {
        let pin = |client: &ClientProcess| Ok((pin_owner(client.id)?, client.clone()));
        let clients = rules.clients.iter().map(pin).collect::<Result<_, StartError>>()?;
        Ok(Self { input: None, clients, eof_grace: rules.eof_grace, leaving: None })
    }

    /// Begins to watch this process's standard input. Before: the program has its own copy.
    pub fn watch_stdin(&mut self) {
        // With no descriptor left, the end of the client still ends the server.
        self.input = quell_sys::duplicate(std::io::stdin()).ok();
    }

    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        let input = self.input.as_ref().map(|input| Polled::HangUp(input.as_fd()));
        sources.add_any(KeeperSource::ServerInput, input);
        for (client, _) in &self.clients {
            sources.add(KeeperSource::ServerClient, Polled::Read(client.as_fd()));
        }
    }

    /// Whether the client has closed the server's input. True once.
    fn take_hang_up(&mut self, ready: &Ready<KeeperSource>) -> bool {
        // Without memory to poll every source counts as ready.
        let hung_up = |input: &mut OwnedFd| {
            let polled = [Polled::HangUp(input.as_fd())];
            quell_sys::poll_until(&polled, Some(Instant::now())).is_ok_and(|ready| ready[0])
        };
        ready.has(KeeperSource::ServerInput) && self.input.take_if(hung_up).is_some()
    }

    /// The first client that has exited. Then the others are not watched any more.
    fn take_exited_client(&mut self, ready: &Ready<KeeperSource>) -> Option<ClientProcess> {
        if !ready.has(KeeperSource::ServerClient) {
            return None;
        }
        let exited = self.clients.iter().find(|(client, _)| !client.is_alive())?.1.clone();
        self.clients.clear();
        Some(exited)
    }
}

impl Supervisor {
    /// Looks whether the client is done with its server.
    pub(super) fn watch_client(&mut self, ready: &Ready<KeeperSource>) {
        let Some(server) = &mut self.host.server else { return };
        let (eof_grace, hung_up) = (server.eof_grace, server.take_hang_up(ready));
        let exited = server.take_exited_client(ready);
        if hung_up {
            self.run.evidence.step(StepKind::InputClosed, String::new(), vec![]);
            self.let_server_exit(Cause::InputClosed, Actor::Unknown, eof_grace);
        }
        if let Some(client) = exited {
            self.record_event(EventKind::OwnerGone { kept: false });
            let actor = Actor::Owner { pid: client.id.pid, command: self.job.mask.apply(&client.name) };
            self.let_server_exit(Cause::OwnerGone, actor, eof_grace.min(CLIENT_GONE_GRACE));
        }
    }

    /// Gives the server time to exit by itself, and stops it then. The last reason counts: a client that exits closes the
    /// input first.
    fn let_server_exit(&mut self, cause: Cause, actor: Actor, within: Duration) {
        if let Some(server) = &mut self.host.server {
            server.leaving = Some((cause, actor));
            self.timers.bring_forward(KeeperTimer::ServerExit, within);
        }
    }

    /// The server had time to exit by itself, and did not.
    pub(super) fn stop_server(&mut self) {
        let leaving = self.host.server.as_mut().and_then(|server| server.leaving.take());
        if let Some((cause, actor)) = leaving.filter(|_| !self.is_ending()) {
            self.ask_stop(cause, actor, StopMode::Within(self.job.rules.plan.grace));
        }
    }

    /// Whether a time runs at whose end the server is stopped or killed.
    pub(super) fn has_server_clock(&self) -> bool {
        let leaving = self.host.server.as_ref().is_some_and(|server| server.leaving.is_some());
        self.job.server().is_some() && (leaving || self.is_ending())
    }

    fn is_ending(&self) -> bool {
        matches!(self.phase(), Phase::Asking | Phase::Killing | Phase::Ended)
    }

    /// The server has exited: its client should see that its input is closed, and what is left is stopped in any case.
    pub(super) fn forget_client(&mut self) {
        self.host.server = None;
        self.timers.disarm(KeeperTimer::ServerExit);
    }
}
