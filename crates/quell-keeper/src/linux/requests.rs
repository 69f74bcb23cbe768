//! What the request of a client does. It is the same while the program runs and while the job waits for its next run.

use quell_core::{Actor, Cause, EventKind, ProcId, StopMode};
use quell_sys::fault::{FaultPoint, fault_point};

use super::caller::caller_of;
use super::control_server::ClientRequest;
use super::engine::Supervisor;
use crate::control_protocol::{Answer, Call, LiveMember};

/// How many bytes of a command line a tree shows.
const LONGEST_SHOWN: usize = 4096;

impl Supervisor {
    pub(super) fn handle_request(&mut self, request: ClientRequest) {
        let ClientRequest { client, pid, uid, call } = request;
        tracing::debug!("request {} from pid {pid}, uid {uid}", call.name());
        let waiting = self.is_waiting();
        let answer = match call {
            Call::Stop { kill, grace, ask, reason, leftovers } => {
                let grace = grace.unwrap_or(self.job.rules.plan.grace);
                let mode = if kill { StopMode::Kill } else { StopMode::Within(grace) };
                self.host.control.answer(client, &Answer::Accepted);
                fault_point(FaultPoint::StopHeard);
                let (cause, actor) = match self.run.engine.life.own_end().filter(|_| leftovers && !waiting) {
                    Some(own_end) => own_end,
                    None => (Cause::User, self.actor(pid, uid, reason)),
                };
                return self.ask_stop_of(cause, actor, mode, ask);
            }
            Call::Signal { .. } | Call::Send { .. } if waiting => {
                Answer::refused("wrong_state", "it waits to be started again")
            }
            Call::Signal { signal, tree } => {
                let sent = if tree {
                    self.run.containment.signal_all(signal)
                } else {
                    usize::from(self.run.containment.forward_signal(signal))
                };
                if sent > 0 {
                    let actor = self.actor(pid, uid, None);
                    self.run.engine.life.signal_sent(signal, actor.clone());
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

    /// The process behind a request from `pid`.
    fn actor(&self, pid: u32, uid: u32, reason: Option<String>) -> Actor {
        let mask = &self.job.mask;
        let (pid, command) = caller_of(pid, mask);
        Actor::Client { pid, uid, command, reason: reason.map(|reason| mask.apply(&reason)) }
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
            });
        });
        members
    }
}
