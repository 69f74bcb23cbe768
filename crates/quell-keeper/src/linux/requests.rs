//! What the request of a client does. It is the same while the program runs and while the job waits for its next run.

use std::time::{Duration, Instant};

use quell_core::{Actor, AskedThrough, Cause, EventKind, Phase, ProcId, Signal, StopMode, StopRequest};
use quell_sys::Disposition;
use quell_sys::fault::{FaultPoint, fault_point};

use super::caller::{caller_of, command_of};
use super::control_server::ClientRequest;
use super::engine::Supervisor;
use crate::control_protocol::{Answer, Call, LiveMember};

/// How many bytes of a command line a tree shows.
const LONGEST_SHOWN: usize = 4096;

/// How long after `quell signal` the root can die of that signal if it has a handler for it or blocks it. A handler often sends
/// its process the same signal again. The kernel does not say which process has sent a deadly signal; after this time it
/// counts as another one.
const HANDLED_WITHIN: Duration = Duration::from_millis(500);

impl Supervisor {
    pub(super) fn handle_request(&mut self, request: ClientRequest) {
        let ClientRequest { client, pid, uid, call } = request;
        tracing::debug!("request {} from pid {pid}, uid {uid}", call.name());
        let waiting = self.is_waiting();
        let answer = match call {
            Call::Stop { kill, grace, ask, reason, leftovers, through } => {
                let grace = grace.unwrap_or(self.job.rules.plan.grace);
                let mode = if kill { StopMode::Kill } else { StopMode::Within(grace) };
                self.host.control.answer(client, &Answer::Accepted);
                fault_point(FaultPoint::StopHeard);
                let draining = self.phase() == Phase::Draining;
                if let Some((cause, actor)) = self.run.engine.life.own_end().filter(|_| leftovers && draining)
                {
                    self.note_leftovers();
                    return self.stop_with(StopRequest { cause, actor, mode, ask, signal: None });
                }
                let actor = self.actor(pid, uid, reason, through);
                let cause = Cause::User;
                return self.ask_stop_of(StopRequest { cause, actor, mode, ask, signal: None });
            }
            Call::Signal { .. } | Call::Send { .. } if waiting => {
                Answer::refused("wrong_state", "it waits to be started again")
            }
            Call::Signal { signal, tree } => {
                let disposition = self.run.containment.root_disposition(signal);
                let sent = if tree {
                    self.run.containment.signal_all(signal)
                } else {
                    usize::from(self.run.containment.forward_signal(signal))
                };
                if sent > 0 {
                    let actor = self.actor(pid, uid, None, None);
                    self.note_signal(signal, actor.clone(), disposition);
                    self.record_event(EventKind::Signaled { signal, actor, members: sent });
                }
                Answer::Signaled { sent }
            }
            Call::Send { data, eof, within } => return self.host.send(client, data, eof, within),
            Call::ListMembers => {
                let members = self.living_members();
                self.note_members(members.iter().map(|member| member.id).collect(), None);
                Answer::Members(members)
            }
            Call::Vitals => Answer::Vitals {
                cpu: self.run.containment.cpu_ticks() + quell_sys::collected_ticks(),
                output: self.host.output.as_ref().map_or(0, |output| output.bytes()),
            },
        };
        self.host.control.answer(client, &answer);
    }

    /// Notes a signal that the root was sent and that it may die of.
    fn note_signal(&mut self, signal: Signal, actor: Actor, disposition: Option<Disposition>) {
        self.run.handled_signals.retain(|(other, _)| *other != signal);
        match disposition {
            Some(Disposition::Ignored) => return self.run.engine.life.signal_survived(signal),
            // The kernel has begun to end it.
            Some(Disposition::Default) => {}
            Some(Disposition::Handled) | None => {
                self.run.handled_signals.push((signal, Instant::now() + HANDLED_WITHIN));
            }
        }
        self.run.engine.life.signal_sent(signal, actor);
    }

    /// Forgets the signals that the root has handled: it has died of something else.
    pub(super) fn forget_handled_signals(&mut self) {
        let now = Instant::now();
        for (signal, until) in std::mem::take(&mut self.run.handled_signals) {
            if until < now {
                self.run.engine.life.signal_survived(signal);
            }
        }
    }

    /// The process behind a request from `pid`.
    fn actor(&self, pid: u32, uid: u32, reason: Option<String>, through: Option<AskedThrough>) -> Actor {
        let mask = &self.job.mask;
        // A server that was called by a peer asks in the name of that, not of the process that has started it.
        let is_server = through.as_ref().is_some_and(|through| through.peer.is_some());
        let (pid, command) = if is_server { (pid, command_of(pid, mask)) } else { caller_of(pid, mask) };
        let reason = reason.map(|reason| mask.apply(&reason));
        Actor::Client { pid, uid, command, reason, through: through.map(Box::new) }
    }

    fn living_members(&self) -> Vec<LiveMember> {
        let mut members = Vec::new();
        let (tick, page) = (quell_sys::ticks_per_second() as f64, quell_sys::page_size());
        self.run.containment.each_member(|stat| {
            let words = quell_sys::whole_cmdline(stat.pid);
            let command = if words.is_empty() { format!("[{}]", stat.comm) } else { words.join(" ") };
            // Masked before it is cut: a value could lie across the cut.
            let mut command = self.job.mask.apply(&command);
            if command.len() > LONGEST_SHOWN {
                let end = (0..=LONGEST_SHOWN).rev().find(|&end| command.is_char_boundary(end)).unwrap_or(0);
                command.truncate(end);
                command.push('…');
            }
            members.push(LiveMember {
                id: ProcId { pid: stat.pid, start: stat.start },
                ppid: stat.ppid,
                pgid: stat.pgid,
                sid: stat.sid,
                uid: quell_sys::uid_of(stat.pid).unwrap_or(0),
                state: stat.state as char,
                cpu: stat.cpu as f64 / tick,
                memory: stat.resident * page,
                command,
                ignores_term: quell_sys::ignores_term(stat.pid),
            });
        });
        members
    }
}
