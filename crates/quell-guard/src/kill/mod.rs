//! Signals to processes that quell didn't start, under the guard.
//!
//! A process is pinned before anything is read about it, and stays pinned until the last signal, so a process that gets its
//! PID later is never signalled. It is asked, given its grace, killed and counted by the same engine as a job ([`StopEngine`]).

mod facts;
mod set;
mod victim;

use std::time::{Duration, Instant};

use quell_contain::{Pace, StopEngine, Tree};
use quell_core::{AskScope, Count, KillReason, Lifecycle, ProcId, Signal, StopPlan, Verdict};
use quell_sys::Sent;
use quell_sys::fault::{FaultPoint, fault_point};
use serde::{Serialize, Serializer};

pub use self::set::KillTarget;
use self::set::{PinnedSet, Process};
pub use self::victim::Victim;
use crate::{BUILT_IN, Decision, DecisionCode, Error, Guard, KillPolicy, Result, Verb};
use crate::{decide_kill, decide_verb, read_pid};

/// The signals that ask a process to exit. After any other signal it is expected to go on, and is not killed.
const ENDING: [&str; 5] = ["TERM", "INT", "QUIT", "ABRT", "KILL"];

/// How often the tree is searched for new processes: no event reports the fork of a process that is not our child. A process
/// whose parent has exited before a search is not found.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

/// A search of a large tree takes long: the next one waits for this many times as long.
const REST_FACTOR: u32 = 4;

/// How a process is killed.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// The first signal.
    pub signal: Signal,
    /// How long the process may take to exit before it is killed. Zero: it is killed at once.
    pub grace: Duration,
    /// How long the kill may take to be proven.
    pub verify: Duration,
    /// Signal its descendants too.
    pub tree: bool,
    /// Signal only this process: another one that has its PID counts as no process.
    pub expected: Option<ProcId>,
}

impl Default for Kill {
    fn default() -> Self {
        let plan = StopPlan::default();
        Self { signal: Signal::TERM, grace: plan.grace, verify: plan.verify, tree: false, expected: None }
    }
}

/// The result of `quell kill`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KillAnswer {
    /// The PID that was given.
    pub pid: u32,
    /// The process that had it.
    pub identity: ProcId,
    /// Its name.
    pub name: String,
    /// The first signal.
    pub signal: Signal,
    /// Why KILL was sent; absent where no process needed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill: Option<KillReason>,
    /// Whether it, or with `--tree` one of its descendants, is alive.
    pub still_running: bool,
    /// Whether it is gone; or, for a signal that does not end a process, whether the signal was sent.
    pub success: bool,
    /// What was proven.
    pub verdict: KillVerdict,
    /// How long it took, in seconds.
    #[serde(serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub took: Duration,
    /// The process, and with `--tree` its descendants.
    pub members: Vec<KillTarget>,
    /// The guard's decision.
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
    /// None of the processes is alive.
    Gone,
    /// The signal was sent. It does not end a process.
    Sent,
    /// Some processes are alive.
    Survivors {
        /// How many.
        count: usize,
    },
    /// None of the processes that were seen is alive, but some descendants may not have been seen.
    Unproven {
        /// Why they were not seen.
        why: String,
    },
}

/// Whether the policy allows this signal to `pid`. Nothing is sent.
pub fn check(guard: &Guard, pid: &str, kill: &Kill) -> Result<Decision> {
    match read_target(guard, pid) {
        Ok(number) => Ok(pin_and_decide(guard, number, kill)?.1),
        Err(refusal) => Ok(*refusal),
    }
}

/// The same with what a person needs to know about the process; none if the policy does not allow `kill` at all.
pub fn examine(guard: &Guard, pid: &str, kill: &Kill) -> Result<(Decision, Option<Victim>)> {
    let number = match read_target(guard, pid) {
        Ok(number) => number,
        Err(refusal) => return Ok((*refusal, None)),
    };
    let (set, decision) = pin_and_decide(guard, number, kill)?;
    let victim = Victim::of(set.root()).ok_or(Error::NoSuchProcess(number))?;
    Ok((decision, Some(victim)))
}

/// The PID, if the policy allows `kill` at all. This comes before the process is looked at: a caller that may not kill does not
/// learn which processes exist.
fn read_target(guard: &Guard, pid: &str) -> std::result::Result<u32, Box<Decision>> {
    let number = read_pid(pid)?;
    decide_verb(guard.policy(), Verb::Kill).ok().map(|_| number)
}

/// Signals `pid`, and returns when it is proven gone or `kill.verify` is over.
pub fn kill(guard: &Guard, pid: &str, kill: &Kill) -> Result<KillAnswer> {
    let number = read_target(guard, pid).map_err(|refusal| guard.refuse(Verb::Kill, pid, *refusal))?;
    let (mut set, decision) =
        pin_and_decide(guard, number, kill).map_err(|error| guard.failed(Verb::Kill, pid, error))?;
    let permit = guard.decided(Verb::Kill, pid, decision)?;
    fault_point(FaultPoint::VictimValidated);
    let begun = Instant::now();
    let (identity, name) = (set.root().id, set.root().name().to_owned());
    let (verdict, reason) = if ENDING.contains(&kill.signal.to_string().as_str()) {
        stop(&mut set, kill)
    } else {
        let sent = set.signal(kill.signal);
        let verdict = match set.alive() {
            _ if sent => KillVerdict::Sent,
            // It exited before the signal.
            0 => KillVerdict::Gone,
            count => KillVerdict::Survivors { count },
        };
        (verdict, None)
    };
    let answer = KillAnswer {
        pid: number,
        identity,
        name,
        signal: kill.signal,
        kill: reason,
        still_running: set.alive() > 0,
        success: matches!(verdict, KillVerdict::Gone | KillVerdict::Sent),
        verdict,
        took: begun.elapsed(),
        members: set.members(),
        decision: permit.decision().clone(),
    };
    // The decision is in the log already. If the log is full now, the result is still the result.
    let _ = permit.record(pid, &answer, None);
    Ok(answer)
}

/// Pins the process, with `--tree` its descendants too, and asks the policy about each of them.
fn pin_and_decide<'g>(guard: &'g Guard, pid: u32, kill: &Kill) -> Result<(PinnedSet<'g>, Decision)> {
    let set = PinnedSet::pin(guard, pid, kill.tree)?;
    if kill.expected.is_some_and(|expected| expected != set.root().id) {
        return Err(Error::NoSuchProcess(pid));
    }
    let decision = decide(&set, &guard.policy().kill, kill.signal)?;
    Ok((set, decision))
}

fn decide(set: &PinnedSet<'_>, policy: &KillPolicy, signal: Signal) -> Result<Decision> {
    let decide = |process: &Process| decide_kill(policy, &process.facts, signal);
    let (first, pid) = (decide(set.root()), set.root().id.pid);
    if !first.allowed {
        return Ok(first);
    }
    if let Some(refused) = set.processes().map(decide).find(|decision| !decision.allowed) {
        return Ok(Decision { reason: format!("below {pid}: {}", refused.reason), ..refused });
    }
    if let Some(why) = set.unseen() {
        let reason = format!("not every process below {pid} can be seen, and one may be protected: {why}");
        let hint = "raise the limit of open files (`ulimit -n`), or end parts of the tree first";
        return Ok(Decision::refuse(DecisionCode::TreeNotSeen, BUILT_IN, reason, hint));
    }
    // The kernel is asked last: a caller that the policy refuses does not learn what the kernel would allow.
    let is_refused = |process: &&Process| process.pidfd.would_take_signals() == Sent::Refused;
    match set.processes().find(is_refused) {
        Some(process) => {
            let name = process.name().escape_debug();
            let message = format!("{} ({name}) may not be signalled by this user", process.id.pid);
            Err(Error::NotPermitted(message))
        }
        None => Ok(first),
    }
}

/// Stops the set. Why it was killed, if it had to be, comes with the verdict.
fn stop(set: &mut PinnedSet<'_>, kill: &Kill) -> (KillVerdict, Option<KillReason>) {
    let plan =
        StopPlan { signal: kill.signal, grace: kill.grace, verify: kill.verify, ..StopPlan::default() };
    let (life, first) = Lifecycle::adopted(plan);
    let mut stop = KillStop { set, engine: StopEngine::new(life), killed: false };
    StopEngine::run_to_end(&mut stop, first);
    let verdict = match (stop.engine.life.verdict(), stop.set.unseen()) {
        (Some(Verdict::Gone), None) => {
            stop.set.why_orphans().map_or(KillVerdict::Gone, |why| KillVerdict::Unproven { why })
        }
        (Some(Verdict::Gone), Some(why)) => KillVerdict::Unproven { why: why.to_owned() },
        _ => KillVerdict::Survivors { count: stop.set.alive() },
    };
    // The request and a kill soon after it may both be pending. If the kernel reports that the request ended the process, the kill
    // does not count.
    let killed = stop.killed && (kill.signal == Signal::KILL || !stop.set.died_of(kill.signal));
    (verdict, stop.engine.life.kill_reason().filter(|_| killed))
}

struct KillStop<'s, 'g> {
    set: &'s mut PinnedSet<'g>,
    engine: StopEngine,
    /// Whether a process got KILL.
    killed: bool,
}

impl Tree for KillStop<'_, '_> {
    fn pace(&self) -> Pace {
        let again = SEARCH_INTERVAL.max(self.set.search_took() * REST_FACTOR);
        Pace {
            again,
            look: self.set.is_tree().then_some(again),
            rest_factor: REST_FACTOR,
            longest_rest: SEARCH_INTERVAL,
        }
    }

    fn engine(&mut self) -> &mut StopEngine {
        &mut self.engine
    }

    fn count(&mut self) -> Count {
        self.set.grow();
        match (self.set.signallable(), self.set.alive()) {
            (0, spared @ 1..) => Count::Refused(spared),
            (living, _) => Count::Alive(living),
        }
    }

    fn ask(&mut self, signal: Signal, _: AskScope) {
        self.set.signal(signal);
        self.set.wake();
    }

    fn kill_round(&mut self) -> bool {
        self.set.grow();
        self.killed |= self.set.signal(Signal::KILL);
        true
    }

    fn wait(&mut self, until: Option<Instant>) {
        self.set.wait(until);
    }
}
