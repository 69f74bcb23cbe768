//! Signals to processes that quell didn't start, under the guard.
//!
//! The process is pinned before anything is known of it, and stays pinned to the last signal: its number may be another's
//! by then, and that one is never meant. How it is asked, given its time, killed and counted is the same table as for jobs
//! ([`Lifecycle`]).

mod facts;
mod set;

use std::time::{Duration, Instant};

use crate::{BUILT_IN, Decision, Verb, decide_kill, decide_verb, read_pid};
use quell_core::{
    Action, Actor, Cause, Count, KillReason, Lifecycle, LifecycleEvent, LifecycleRules, ProcId, Signal,
    StopMode, StopPlan, StopRequest, Until, Verdict,
};
use quell_sys::Sent;
use quell_sys::fault::{FaultPoint, fault_point};
use serde::{Serialize, Serializer};

pub use self::set::KillTarget;
use self::set::{Process, Set};
use crate::Guard;
use crate::{Error, Result};

/// The signals that ask a process to end. Who gets another one is expected to go on, and is not killed for that.
const ENDING: [&str; 5] = ["TERM", "INT", "QUIT", "ABRT", "KILL"];

/// How often it is looked whom the members have started meanwhile. A fork of somebody who is no child of ours makes no event
/// that an ordinary user could wait for, and who was started by one that has ended since is found no more. So it is looked
/// when a member ends, and this often besides.
const LOOK: Duration = Duration::from_millis(50);

/// A look at a large tree takes long: so much of the time is left free between two of them.
const REST: u32 = 4;

/// How to do it.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// What is sent first.
    pub signal: Signal,
    /// How long the process may take to end before it is killed; none at all if this is zero.
    pub grace: Duration,
    /// How long the kill may take to be proven.
    pub verify: Duration,
    /// Those below it, too.
    pub tree: bool,
}

impl Default for Kill {
    fn default() -> Self {
        let plan = StopPlan::default();
        Self { signal: Signal::TERM, grace: plan.grace, verify: plan.verify, tree: false }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillAnswer {
    /// The number that was given.
    pub pid: u32,
    /// Who had it.
    pub identity: ProcId,
    /// What it was called.
    pub name: String,
    /// What was sent first.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub signal: Signal,
    /// Whether it was still running after its grace and had to be killed. Without a grace the kill was wanted.
    pub escalated: bool,
    /// Whether it, or anyone below it that was meant, is alive.
    pub still_running: bool,
    /// Whether what was asked for has happened: it is gone; or, for a signal that ends nobody, it was sent.
    pub success: bool,
    /// What was proven.
    pub verdict: KillVerdict,
    /// How long it took, in seconds.
    #[serde(serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// Everybody who was meant.
    pub members: Vec<KillTarget>,
    /// What the guard said.
    pub decision: Decision,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e6)
}

/// What was proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KillVerdict {
    /// Nobody of them lives.
    Gone,
    /// The signal was sent; it is none that ends a process.
    Sent,
    /// So many live on.
    Survivors {
        /// How many.
        count: usize,
    },
    /// Nobody of those who were seen lives, but there may have been others below them.
    Unproven {
        /// Why that isn't known.
        why: String,
    },
}

/// Whether `pid` may be signalled like that, without doing it.
pub fn check(gate: &Guard, pid: &str, kill: &Kill) -> Result<Decision> {
    let number = match read_pid(pid) {
        Ok(number) => number,
        Err(decision) => return Ok(*decision),
    };
    let verb = decide_verb(gate.policy(), Verb::Kill);
    if !verb.allowed {
        return Ok(verb);
    }
    let (_, decision) = look(gate, number, kill)?;
    Ok(decision)
}

/// Signals `pid`, and comes back when it is proven gone, or was not to be had.
pub fn kill(gate: &Guard, pid: &str, kill: &Kill) -> Result<KillAnswer> {
    let number = match read_pid(pid) {
        Ok(number) => number,
        Err(decision) => return Err(gate.refuse(Verb::Kill, pid, *decision)),
    };
    // Before anybody is looked at: who may not kill is not told who is there.
    let verb = decide_verb(gate.policy(), Verb::Kill);
    if !verb.allowed {
        return Err(gate.refuse(Verb::Kill, pid, verb));
    }
    let (mut set, decision) =
        look(gate, number, kill).map_err(|error| gate.failed(Verb::Kill, pid, error))?;
    let permit = gate.decided(Verb::Kill, pid, decision)?;
    fault_point(FaultPoint::VictimValidated);
    let begun = Instant::now();
    let root = set.root();
    let name = set.name();
    let (verdict, escalated) = if ENDING.contains(&kill.signal.to_string().as_str()) {
        end(&mut set, kill, gate)
    } else {
        set.signal(kill.signal, gate);
        let verdict = match set.alive() {
            _ if set.was_sent() => KillVerdict::Sent,
            // It has ended between the last look and the signal: nobody got one.
            0 => KillVerdict::Gone,
            count => KillVerdict::Survivors { count },
        };
        (verdict, false)
    };
    let members = set.members();
    let answer = KillAnswer {
        pid: number,
        identity: root,
        name,
        signal: kill.signal,
        escalated,
        still_running: set.alive() > 0,
        success: matches!(verdict, KillVerdict::Gone | KillVerdict::Sent),
        verdict,
        took: begun.elapsed(),
        members,
        decision: permit.decision().clone(),
    };
    // It is done, and was allowed on record: a log that is full now changes nothing of that.
    let _ = permit.record(pid, &answer, None);
    Ok(answer)
}

/// Pins the process, and those below it if they are meant, and holds each against the policy.
fn look(gate: &Guard, pid: u32, kill: &Kill) -> Result<(Set, Decision)> {
    let set = Set::pin(gate.home(), pid, kill.tree)?;
    let decide = |process: &Process| decide_kill(&gate.policy().kill, &process.facts, kill.signal);
    let mut decisions = set.processes().map(decide);
    let first = decisions.next().ok_or(Error::NoSuchProcess(pid))?;
    let below = decisions.find(|decision| !decision.allowed).filter(|_| first.allowed);
    drop(decisions);
    if let Some(refused) = below {
        let reason = format!("below {pid}: {}", refused.reason);
        return Ok((set, Decision { reason, ..refused }));
    }
    if !first.allowed {
        return Ok((set, first));
    }
    if let Some(why) = set.unseen() {
        let reason =
            format!("not everybody below {pid} can be seen, and one of them may be protected: {why}");
        let hint = "raise the limit of open files (`ulimit -n`), or end parts of the tree first";
        let refused = Decision::refuse("TREE_NOT_SEEN", BUILT_IN, reason, hint);
        return Ok((set, refused));
    }
    // The kernel has its own opinion, and is asked last: what the policy says is not for it to give away.
    if let Some(process) = set.processes().find(|process| process.pidfd.would_take_signals() == Sent::Refused)
    {
        let message = format!(
            "{} ({}) may not be signalled by this user",
            process.id.pid,
            process.name().escape_debug()
        );
        return Err(Error::NotPermitted(message));
    }
    Ok((set, first))
}

/// The ladder.
fn end(set: &mut Set, kill: &Kill, gate: &Guard) -> (KillVerdict, bool) {
    let plan =
        StopPlan { signal: kill.signal, grace: kill.grace, verify: kill.verify, ..StopPlan::default() };
    let mut life = Lifecycle::new(LifecycleRules { plan, until: Until::Tree, timeout: None });
    life.step(LifecycleEvent::Spawned);
    life.step(LifecycleEvent::Executed);
    let mode = if kill.signal == Signal::KILL { StopMode::Kill } else { StopMode::Within(kill.grace) };
    let mut events = vec![LifecycleEvent::StopAsked(StopRequest {
        cause: Cause::User,
        actor: Actor::Quell,
        mode,
        ask: None,
    })];
    let (mut deadline, mut escalated) = (None, false);
    let mut pause = LOOK;
    loop {
        let Some(event) = events.pop() else {
            // Whoever ends makes its descriptor readable.
            let look = kill.tree.then(|| Instant::now() + pause);
            let ended = set.wait(deadline.into_iter().chain(look).min());
            let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if kill.tree {
                let begun = Instant::now();
                set.grow();
                pause = LOOK.max(begun.elapsed() * REST);
            }
            let count = LifecycleEvent::Counted(Count::Alive(set.owed()));
            events.push(if !ended && over { LifecycleEvent::Deadline } else { count });
            continue;
        };
        for action in life.step(event) {
            match action {
                Action::Arm(time) => deadline = Some(Instant::now() + time),
                Action::Shorten(time) => {
                    deadline = deadline.map(|deadline: Instant| deadline.min(Instant::now() + time));
                }
                // Nobody is asked in turns here.
                Action::Extend(_) => {}
                Action::Disarm => deadline = None,
                Action::Ask { signal, .. } => {
                    set.signal(signal, gate);
                    set.wake();
                    if kill.tree {
                        set.grow();
                    }
                    if set.owed() == 0 {
                        events.push(LifecycleEvent::Counted(Count::Alive(0)));
                    }
                }
                Action::Count => {
                    if set.owed() == 0 {
                        events.push(LifecycleEvent::Counted(Count::Alive(0)));
                    }
                }
                Action::Kill => {
                    if kill.tree {
                        set.grow();
                    }
                    // A kill that was wanted is not an escalation.
                    let needed = life.kill_reason() == Some(KillReason::GraceOver);
                    escalated |= set.signal(Signal::KILL, gate) && needed;
                    if set.owed() == 0 {
                        events.push(LifecycleEvent::Counted(Count::Alive(0)));
                    }
                }
                Action::Publish => {}
                Action::Finish => {
                    // Nobody is proven gone who was spared.
                    let verdict = match (life.verdict(), set.alive(), set.unseen()) {
                        (Some(Verdict::Gone), 0, None) => KillVerdict::Gone,
                        (Some(Verdict::Gone), 0, Some(why)) => KillVerdict::Unproven { why: why.to_owned() },
                        (_, count, _) => KillVerdict::Survivors { count },
                    };
                    return (verdict, escalated);
                }
            }
        }
    }
}
