//! What a supervisor does for the world outside its job: it answers calls, heeds the owner, says when the job is ready, and
//! writes its history. Only background jobs have that.

use std::time::Instant;

use quell_core::{Actor, Cause, EventKind, JobEvent, Mask, Phase, Receipt, StopMode, Until};
use quell_store::now;
use quell_sys::fault::{FaultPoint, fault_point};

use super::caller::caller_of;
use super::control_server::ClientRequest;
use super::engine::Supervisor;
use super::helper::{self, Task};
use super::readiness::Readiness;
use crate::control_protocol::{Answer, Call, LiveMember};

/// Whoever is behind a call from `pid`.
/// How many bytes of a command line a tree shows.
const LONGEST_SHOWN: usize = 4096;

pub(super) fn client(pid: u32, uid: u32, reason: Option<String>, mask: &Mask) -> Actor {
    let (pid, command) = caller_of(pid, mask);
    Actor::Client { pid, uid, command, reason: reason.map(|reason| mask.apply(&reason)) }
}

impl Supervisor {
    /// Does what is wanted at the desk.
    pub(super) fn grant(&mut self, wishes: Vec<ClientRequest>) {
        for wish in wishes {
            match wish {
                ClientRequest::OwnerGone => {
                    let kept = self.desk().is_some_and(|desk| desk.is_kept());
                    self.happen(EventKind::OwnerGone { kept });
                    if !kept {
                        let mode = StopMode::Within(self.job.rules.plan.grace);
                        self.ask_stop(Cause::OwnerGone, Actor::Quell, mode);
                    }
                }
                ClientRequest::TimeToLiveOver => {
                    self.happen(EventKind::TimedOut);
                    let mode = StopMode::Within(self.job.rules.plan.grace);
                    self.ask_stop(Cause::Timeout, Actor::Quell, mode);
                }
                ClientRequest::Call { key, pid, uid, call } => self.on_call(key, pid, uid, call),
            }
        }
        self.check_readiness();
    }

    fn on_call(&mut self, key: u64, pid: u32, uid: u32, call: Call) {
        tracing::debug!("request {} from pid {pid}, uid {uid}", call.name());
        let answer = match call {
            Call::Stop { kill, grace, ask, reason, leftovers } => {
                let grace = grace.unwrap_or(self.job.rules.plan.grace);
                let mode = if kill { StopMode::Kill } else { StopMode::Within(grace) };
                if let Some(desk) = self.desk() {
                    desk.answer(key, &Answer::Heard);
                    fault_point(FaultPoint::StopHeard);
                }
                let (cause, actor) = match self.engine.life.own_end().filter(|_| leftovers) {
                    Some(own_end) => own_end,
                    None => (Cause::User, client(pid, uid, reason, &self.kit.crew.mask)),
                };
                return self.ask_stop_of(cause, actor, mode, ask);
            }
            Call::Signal { signal, tree } => {
                let sent = if tree {
                    self.hold.pass_to_all(signal)
                } else {
                    usize::from(self.hold.forward_signal(signal))
                };
                if sent > 0 {
                    let actor = client(pid, uid, None, &self.kit.crew.mask);
                    self.engine.life.signal_sent(signal, actor.clone());
                    self.happen(EventKind::Signaled { signal, actor, members: sent });
                }
                Answer::Signaled { sent }
            }
            Call::Send { data, eof, within } => {
                if let Some(desk) = self.desk() {
                    desk.send(key, data, eof, within);
                }
                return;
            }
            Call::Look => {
                let members = self.living_members();
                self.note_members(members.iter().map(|member| member.id).collect(), None);
                Answer::Seen(members)
            }
            Call::Vitals => Answer::Vitals {
                cpu: self.hold.cpu_ticks() + quell_sys::collected_ticks(),
                output: self.desk().map_or(0, |desk| desk.taps.bytes()),
            },
        };
        if let Some(desk) = self.desk() {
            desk.answer(key, &answer);
        }
    }

    fn living_members(&self) -> Vec<LiveMember> {
        let mut members = Vec::new();
        let (tick, page) = (quell_sys::ticks_per_second() as f64, quell_sys::page_size());
        self.hold.each_member(|stat| {
            let words = quell_sys::whole_cmdline(stat.pid);
            let command = if words.is_empty() { format!("[{}]", stat.comm) } else { words.join(" ") };
            let mut command = self.kit.crew.mask.apply(&command);
            if command.len() > LONGEST_SHOWN {
                // Masked first: a value may lie across the cut.
                let end = (0..=LONGEST_SHOWN).rev().find(|&end| command.is_char_boundary(end)).unwrap_or(0);
                command.truncate(end);
                command.push('…');
            }
            members.push(LiveMember {
                id: quell_core::ProcId { pid: stat.pid, start: stat.start },
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

    /// Looks no more for what would show that the job is ready.
    pub(super) fn look_no_more(&mut self) {
        if let Some(desk) = self.desk() {
            desk.readiness = None;
            desk.give(&Task::Rest);
        }
    }

    /// Gets ready to see what shows that the job is ready: before the program can say anything.
    pub(super) fn expect_readiness(&mut self) {
        let Some(desk) = self.desk() else { return };
        match Readiness::new(&desk.rules.ready) {
            Ok(readiness) => desk.readiness = Some(readiness),
            // The caller was told already, where it could be.
            Err(why) => self.warn(why),
        }
    }

    /// Begins to look for it.
    pub(super) fn look_for_readiness(&mut self) {
        let Some(desk) = self.desk() else { return };
        if let Some(readiness) = &mut desk.readiness {
            readiness.begin();
            desk.give(&Task::Probe);
        }
        self.check_readiness();
    }

    /// Looks for readiness in what the root has written before its exit.
    pub(super) fn read_last_signs(&mut self) {
        let Some(desk) = self.desk() else { return };
        if let Some(readiness) = desk.readiness.as_mut().filter(|readiness| readiness.wants_output()) {
            desk.taps.read_last(|stream, bytes| readiness.read(stream, bytes));
        }
        self.check_readiness();
    }

    fn check_readiness(&mut self) {
        // A server may have gone into the background, and its root with it.
        let lives_on = self.engine.life.state() == Phase::Draining && self.job.rules.until == Until::Tree;
        if self.engine.life.state() != Phase::Running && !lives_on {
            return;
        }
        let Some(desk) = self.kit.desk.as_deref_mut() else { return };
        let Some(readiness) = &mut desk.readiness else { return };
        if readiness.deadline().is_some_and(|due| due <= Instant::now()) {
            readiness.look(&self.hold);
        }
        if !readiness.check_answer(&self.hold) {
            desk.give(&Task::AskAgain);
        }
        let Some(readiness) = &mut desk.readiness else { return };
        if let Some(after) = readiness.take_ready() {
            self.ready = Some(self.evidence.now());
            self.take_down_members(self.hold.living());
            self.publish();
            fault_point(FaultPoint::ReadyPublished);
            self.happen(EventKind::Ready { after });
        }
    }

    /// Whether the job has a history or hooks.
    pub(super) fn is_told(&self) -> bool {
        self.kit.desk.is_some() || self.kit.helper.is_some()
    }

    /// Writes the history of a background job, and tells its hooks. A job in the foreground has hooks only.
    pub(super) fn happen(&mut self, what: EventKind) {
        if !self.is_told() {
            return;
        }
        let (spec, run) = (&self.job.spec, self.run);
        let event = JobEvent::new(spec, now(), run, what);
        if let Some(helper) = &mut self.kit.helper {
            helper::tell(helper, &spec.request.hooks, &event);
        }
        let (Some(desk), Some(store)) = (self.kit.desk.as_deref_mut(), &self.job.store) else { return };
        // A record that was removed on purpose needs no history.
        let written = if store.exists() { store.log_event(&event) } else { Ok(()) };
        desk.tell(&event);
        if let Err(error) = written {
            self.warn(format!("an event could not be written: {error}"));
        }
    }

    /// Takes the last of the output, and puts down what it came to.
    pub(super) fn finish_output(&mut self, receipt: &mut Receipt) {
        receipt.run = self.run;
        for member in &mut receipt.members {
            member.command = self.kit.crew.mask.apply_to_cut(&member.command);
        }
        let Some(desk) = self.kit.desk.as_deref_mut() else { return };
        desk.taps.read_last(|_, _| {});
        receipt.warnings.extend(desk.taps.take_warning());
        receipt.output = Some(desk.taps.totals());
    }
}
