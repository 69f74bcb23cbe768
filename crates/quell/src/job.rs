//! One job, in the hands of a program.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use quell_core::{AskScope, JobId, ProcId, Receipt, Signal, StateRecord, StopPlan, Verdict};
use quell_keeper::control_protocol::{Answer, Call, LiveMember};
use quell_store::{JobDir, KeeperRole, Liveness, Watch};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{PidFd, Sent};

use quell_guard::Verb;

use crate::call::{Caller, Heard, Knocking, PATIENCE};
use crate::recover::{Finisher, Keepers, Standing, Survivors, not_proven_dead, settle};
use crate::{Error, JobState, JobView, Quell, Result, record_stop, resolve, settle_lost};

/// How much longer than its plan a stop may take before its keepers are killed, and once more before it is given up: the
/// audit, the record, a busy machine.
const STOP_SLACK: Duration = Duration::from_secs(5);
/// How long a job may take to get its control socket, or to lose it.
const SOCKET_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether a job that is being removed is gone.
const REMOVAL_LOOKS: usize = 500;

/// How long a keeper may be silent when it is asked to stop its job, before it is looked at.
const SILENCE: Duration = Duration::from_secs(2);
/// At which of these looks a keeper that is still silent is killed, though it may only be slow.
const LAST_LOOK: usize = 4;

/// Which of a job's keepers a look kills, besides those that can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doomed {
    None,
    /// The standby finishes the stop.
    Keeper,
    /// The stop is finished by this process.
    All,
}

/// When the keepers of a job that is being stopped are looked at.
struct Looks {
    due: Instant,
    count: usize,
}

impl Looks {
    fn new() -> Self {
        Self { due: Instant::now() + SILENCE, count: 0 }
    }

    fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.due;
        if due {
            *self = Self { due: Instant::now() + SILENCE, count: self.count + 1 };
        }
        due
    }
}

/// How to stop a job.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Without asking it first.
    pub kill: bool,
    /// The grace, if it is not to be the job's own. A stop that is under way is shortened to it. A job in the foreground
    /// has its own in any case: it is asked by a signal, which carries nothing.
    pub grace: Option<Duration>,
    /// Which processes are asked first, if that is not to be as the job has it. A job in the foreground goes by its own.
    pub ask: Option<AskScope>,
    /// Why, for the receipt of a job in the background.
    pub reason: Option<String>,
    /// Whether only what has outlived the command is meant: then the cause of the end is the command's own.
    pub leftovers: bool,
}

/// A job that is over.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// What happened.
    pub receipt: Receipt,
    /// Whether it had ended before.
    pub was_over: bool,
}

/// A job. It is only named by this: dropping it does nothing to the job.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) quell: Quell,
    dir: JobDir,
}

impl Job {
    pub(crate) fn new(quell: Quell, id: JobId) -> Self {
        let dir = quell.home().job(id);
        Self { quell, dir }
    }

    /// Its id.
    pub fn id(&self) -> JobId {
        self.dir.id()
    }

    /// Whose gate its calls pass.
    pub(crate) fn quell(&self) -> &Quell {
        &self.quell
    }

    /// Where it is on disk.
    pub fn dir(&self) -> &JobDir {
        &self.dir
    }

    /// How it is now. If its keeper was lost, its stop is finished first.
    pub fn view(&self) -> Result<JobView> {
        settle_lost(&self.dir)?;
        JobView::look(&self.dir)
    }

    /// What happened, once it has ended.
    pub fn receipt(&self) -> Result<Receipt> {
        self.dir.receipt().map_err(Error::io(self.dir.dir().join("receipt.json")))
    }

    /// Finishes it if its keepers were lost; whether it is over then. The policy must allow that, unless the job is a test run
    /// that was started through this handle: a test run ends what it has started.
    pub fn settle(&self) -> Result<bool> {
        if self.quell.started == Some(self.id()) {
            settle(&self.dir, Survivors::KillAgain, Keepers::Unknown, Finisher::Stop)?;
        } else {
            settle_lost(&self.dir)?;
        }
        self.is_over()
    }

    /// Finishes it if its keepers were lost, and if the policy allows that; whether it was finished.
    pub fn settle_lost(&self) -> Result<bool> {
        settle_lost(&self.dir)
    }

    /// Whether it has ended, or was never there.
    pub(crate) fn is_over(&self) -> Result<bool> {
        match self.dir.liveness().map_err(Error::io(self.dir.live_path()))? {
            Liveness::Ended => Ok(true),
            Liveness::Supervised | Liveness::Finishing | Liveness::Orphaned(_) => Ok(false),
        }
    }

    /// Stops the whole tree, and comes back when it is proven gone: with the receipt. Right in any state: a job that has
    /// ended says so, one whose keeper was lost is finished here, a stop that is under way is joined.
    ///
    /// An error means that it is not proven dead; it can be tried again.
    pub fn stop(&self, stop: &Stop) -> Result<Stopped> {
        let permit = self.quell.permit_because(Verb::Stop, &self.id().to_string(), stop.reason.clone())?;
        let stopped = self.stop_admitted(stop);
        if let Some(permit) = permit {
            record_stop(&permit, self.id(), &stopped);
        }
        stopped
    }

    /// The same for a caller that has a permit.
    pub(crate) fn stop_admitted(&self, stop: &Stop) -> Result<Stopped> {
        let ended = |was_over| Ok(Stopped { receipt: self.ended_receipt()?, was_over });
        match settle(&self.dir, Survivors::KillAgain, Keepers::Unknown, Finisher::Stop)? {
            Standing::Over => {
                let receipt = self.ended_receipt()?;
                // The record says so, which the job can rewrite. A cgroup that is still there says more.
                let has_cgroup = receipt.held.cgroup.as_ref().is_some_and(|path| Path::new(path).exists());
                if !has_cgroup || !resolve::record_remains(self.quell.home(), Some(self.id())) {
                    return Ok(Stopped { receipt, was_over: true });
                }
                settle(&self.dir, Survivors::KillAgain, Keepers::Unknown, Finisher::Stop)?;
                return ended(false);
            }
            Standing::Finished => return ended(false),
            Standing::Kept => {}
        }
        let plan = self.dir.spec().map_or_else(|_| StopPlan::default(), |spec| spec.request.stop);
        let patience = stop.grace.unwrap_or(plan.grace) + plan.verify + STOP_SLACK;
        let (mut deadline, mut forced) = (Instant::now() + patience, false);
        let (mut asked, mut knocking, mut looks) = (false, Knocking::new(), Looks::new());
        // The keeper that has heard holds the line until the end is on record. Without that, changes on disk tell of it: that
        // costs more, as the kernel takes its time to end such a watch.
        let (mut line, mut watch) = (None, None);
        let mut keepers = Keepers::Unknown;
        // Pinned now: when the job is over there is no lock any more that would prove which process it is.
        let standby = self.keeper_in(|record| record.standby);
        loop {
            if !asked {
                (asked, line) = self.ask_to_stop(stop, &mut keepers)?;
            }
            if !asked {
                knocking.missed(&self.dir);
            }
            // Without a socket there is no process to ask yet, or any more; nothing tells when there is.
            let soon = Instant::now() + Duration::from_millis(20);
            // Keepers may be stopped at any time, also after they have heard; nothing tells of that either.
            let until = if asked { looks.due } else { soon.min(looks.due) }.min(deadline);
            match (&line, &mut watch) {
                (Some(keeper), _) => {
                    if Caller::wait_closed([keeper], Some(until))? {
                        line = None;
                    }
                }
                (None, Some(watch)) => {
                    Watch::wait(watch, Some(until)).map_err(Error::io(self.dir.dir()))?;
                }
                // What has happened before is seen now.
                (None, None) => watch = Some(self.watch()?),
            }
            let survivors = if asked { Survivors::Report } else { Survivors::KillAgain };
            match settle(&self.dir, survivors, keepers, Finisher::Stop)? {
                Standing::Over | Standing::Finished => {
                    // One that was stopped could not end with its job.
                    standby.map(|standby| standby.signal(Signal::CONT));
                    return ended(false);
                }
                Standing::Kept => {}
            }
            if Instant::now() >= deadline {
                if forced {
                    return Err(Error::NotProvenDead(format!("{} has not ended in its time", self.id())));
                }
                (forced, deadline) = (true, Instant::now() + plan.verify + STOP_SLACK);
                self.look_after_keepers(looks.count, Doomed::All);
                keepers = Keepers::Killed;
            } else if looks.is_due() {
                keepers = self.look_after_keepers(looks.count, Doomed::None);
            }
        }
    }

    fn ended_receipt(&self) -> Result<Receipt> {
        if !self.dir.exists() {
            return Err(Error::NoSuchJob(self.id().to_string()));
        }
        let receipt = self.last_receipt()?;
        match &receipt.verdict {
            Verdict::Survivors { .. } => Err(not_proven_dead(self.id(), &receipt.survivors)),
            Verdict::Gone | Verdict::Unproven { .. } => Ok(receipt),
        }
    }

    /// The receipt of a job that is over. One that never ran has none, and is being removed, file by file.
    fn last_receipt(&self) -> Result<Receipt> {
        for _ in 0..REMOVAL_LOOKS {
            match self.receipt() {
                Err(Error::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
            if !self.dir.exists() {
                return Err(Error::NoSuchJob(self.id().to_string()));
            }
            // Nothing that could be waited for tells of the last file.
            std::thread::sleep(Duration::from_millis(2));
        }
        self.receipt()
    }

    /// Asks whoever keeps the job; whether there was anybody to hear it, and the line to it.
    fn ask_to_stop(&self, stop: &Stop, keepers: &mut Keepers) -> Result<(bool, Option<Caller>)> {
        let called = match self.call_to_stop(keepers) {
            // The keeper was killed, and is not to be called again: its standby finishes the stop.
            Err(Error::TimedOut(_)) => return Ok((true, None)),
            other => other?,
        };
        if let Some(mut keeper) = called {
            let Stop { kill, grace, ask, reason, leftovers } = stop.clone();
            let call = Call::Stop { kill, grace, ask, reason, leftovers };
            keeper.say(&call)?;
            fault_point(FaultPoint::StopSent);
            return Ok(match self.hear_stop(&mut keeper, keepers)? {
                Heard::Answer(_) => (true, Some(keeper)),
                Heard::Gone => (false, None),
                Heard::Silence => (true, None),
            });
        }
        // A job in the foreground is asked as from a shell.
        let Ok(record) = self.dir.record() else { return Ok((false, None)) };
        let foreground = self.dir.spec().is_ok_and(|spec| spec.request.is_foreground());
        if !foreground {
            return Ok((false, None));
        }
        let here =
            record.standby.filter(|front| self.dir.is_kept_by(*front, record.keeper)).and_then(PidFd::of);
        // In another PID namespace than this it has another number on record.
        let elsewhere = || self.dir.keepers().into_iter().find(|keeper| keeper.role == KeeperRole::Standby);
        let signal: Box<dyn Fn(Signal) -> Sent> = match (here, record.standby) {
            (Some(front), _) => Box::new(move |signal| front.signal(signal)),
            (None, Some(_)) => match elsewhere() {
                Some(front) => Box::new(move |signal| front.signal(signal)),
                None => return Ok((false, None)),
            },
            (None, None) => return Ok((false, None)),
        };
        // It has been asked, and would take a second request for impatience.
        if !stop.kill && record.state.job_state() == JobState::Stopping {
            return Ok((true, None));
        }
        let heard = signal(Signal::TERM) == Sent::Yes;
        // A second request kills at once.
        if stop.kill {
            signal(Signal::INT);
        }
        // It may have been suspended, with its job, from its terminal.
        signal(Signal::CONT);
        Ok((heard, None))
    }

    /// Waits for a keeper to say that it has heard. One that stays silent is killed, and its standby finishes the stop; or
    /// this process, if that one can't go on either.
    fn hear_stop(&self, keeper: &mut Caller, keepers: &mut Keepers) -> Result<Heard> {
        for look in 1..=LAST_LOOK {
            match keeper.hear(SILENCE)? {
                Heard::Silence => {}
                heard => return Ok(heard),
            }
            let doomed = if look == LAST_LOOK { Doomed::Keeper } else { Doomed::None };
            *keepers = self.look_after_keepers(look, doomed);
            if *keepers == Keepers::Killed {
                break;
            }
        }
        Ok(Heard::Silence)
    }

    /// Connects to the keeper, and wakes one that was stopped so long ago that its queue is full. One that stays deaf is
    /// killed, and that is [`Error::TimedOut`].
    fn call_to_stop(&self, keepers: &mut Keepers) -> Result<Option<Caller>> {
        for look in 1..=LAST_LOOK {
            match Caller::connect_within(&self.dir, SILENCE) {
                Err(Error::TimedOut(_)) => {}
                other => return other,
            }
            let doomed = if look == LAST_LOOK { Doomed::Keeper } else { Doomed::None };
            *keepers = self.look_after_keepers(look, doomed);
            if *keepers == Keepers::Killed {
                break;
            }
        }
        Err(Error::TimedOut(format!("the keeper of {} takes no calls", self.id())))
    }

    /// Looks at the keepers of a job whose stop makes no progress, for the `look`th time. One that was stopped by a signal is
    /// continued. One that a tracer has stopped, or that is stopped again, can't go on and is killed, which nothing can
    /// hold up; so are those that are `doomed`. When this returns, those that were killed are gone. If one of them is kept
    /// from its exit, all of them are killed, and that is returned: the standby would wait for the exit in vain.
    fn look_after_keepers(&self, look: usize, doomed: Doomed) -> Keepers {
        let mut killed = Vec::new();
        for keeper in self.dir.keepers() {
            let kill = match keeper.state() {
                None => continue,
                Some(b't') => true,
                Some(b'T') if look > 1 => true,
                Some(_) => match doomed {
                    Doomed::None => false,
                    Doomed::Keeper => keeper.role == KeeperRole::Keeper,
                    Doomed::All => true,
                },
            };
            keeper.signal(if kill { Signal::KILL } else { Signal::CONT });
            killed.extend(kill.then_some(keeper));
        }
        let until = Instant::now() + SILENCE;
        if killed.into_iter().all(|keeper| keeper.wait_gone(until)) {
            return Keepers::Unknown;
        }
        for keeper in self.dir.keepers() {
            keeper.signal(Signal::KILL);
        }
        Keepers::Killed
    }

    /// One of those who keep the job, pinned; none if the record names somebody who does not.
    fn keeper_in(&self, role: impl Fn(&StateRecord) -> Option<ProcId>) -> Option<PidFd> {
        let record = self.dir.record().ok()?;
        let id = role(&record)?;
        let pidfd = PidFd::of(id)?;
        self.dir.is_kept_by(id, record.keeper).then_some(pidfd)
    }

    /// Something that wakes up when the job's record changes or its keepers are gone.
    pub fn watch(&self) -> Result<Watch> {
        let failed = || Error::io(self.dir.dir());
        let mut watch = Watch::new().map_err(failed())?;
        for path in [self.dir.dir().to_owned(), self.dir.live_path()] {
            match watch.add_quietly(&path) {
                Err(error)
                    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Err(failed()(error));
                }
                // Gone already: the caller looks before it waits.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(watch)
    }

    fn call(&self, call: &Call) -> Result<Answer> {
        self.reach(|keeper| keeper.ask(call))
    }

    /// The same, by `deadline` at the latest: also where the keeper was stopped and says nothing.
    fn call_by(&self, call: &Call, deadline: Option<Instant>) -> Result<Answer> {
        let Some(deadline) = deadline else { return self.call(call) };
        let left = || deadline.saturating_duration_since(Instant::now());
        self.reach_within(left(), |keeper| keeper.ask_for(call, left().min(PATIENCE)))
    }

    /// Does something with a connection to the keeper, which gives its answer; none if the keeper was gone meanwhile.
    pub(crate) fn reach(&self, ask: impl Fn(&mut Caller) -> Result<Option<Answer>>) -> Result<Answer> {
        self.reach_within(SOCKET_PATIENCE, ask)
    }

    fn reach_within(
        &self,
        patience: Duration,
        ask: impl Fn(&mut Caller) -> Result<Option<Answer>>,
    ) -> Result<Answer> {
        let deadline = Instant::now() + patience.min(SOCKET_PATIENCE);
        let (mut watch, mut knocking) = (self.watch()?, Knocking::new());
        loop {
            // Each time: a keeper may be killed while it is waited for.
            if settle(&self.dir, Survivors::KillAgain, Keepers::Unknown, Finisher::Reader)? != Standing::Kept
            {
                break;
            }
            if self.dir.spec().is_ok_and(|spec| spec.request.is_foreground()) {
                return Err(Error::State(format!(
                    "{} is in the foreground of another `quell run`, which has its input and passes signals on",
                    self.id()
                )));
            }
            // The kernel takes no 0 for a time.
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if let Some(mut keeper) = Caller::connect_within(&self.dir, left)?
                && let Some(answer) = ask(&mut keeper)?
            {
                return match answer {
                    Answer::Refused { why, .. } => Err(Error::State(format!("{}: {why}", self.id()))),
                    answer => Ok(answer),
                };
            }
            if Instant::now() >= deadline {
                return Err(Error::Keeper(format!("the keeper of {} does not listen", self.id())));
            }
            knocking.missed(&self.dir);
            // A job that has just begun has no socket yet.
            let soon = Instant::now() + Duration::from_millis(20);
            watch.wait(Some(soon)).map_err(Error::io(self.dir.dir()))?;
        }
        if !self.dir.exists() {
            return Err(Error::NoSuchJob(self.id().to_string()));
        }
        Err(Error::State(format!("{} has ended", self.id())))
    }

    pub(crate) fn strange(&self, answer: &Answer) -> Error {
        Error::Keeper(format!("the keeper of {} gave a strange answer: {answer:?}", self.id()))
    }

    /// Sends a signal to the root, or to everyone in the tree; how many got it.
    pub fn signal(&self, signal: Signal, tree: bool) -> Result<usize> {
        self.quell.permit(Verb::Signal, &self.id().to_string())?;
        match self.call(&Call::Signal { signal, tree })? {
            Answer::Signaled { sent } => Ok(sent),
            other => Err(self.strange(&other)),
        }
    }

    /// Who is in the tree now, parents first.
    pub fn tree(&self) -> Result<Vec<LiveMember>> {
        match self.call(&Call::Look)? {
            Answer::Seen(members) => Ok(members),
            other => Err(self.strange(&other)),
        }
    }

    /// How much the tree has done so far: CPU time in clock ticks, and bytes of output.
    pub fn vitals(&self) -> Result<(u64, u64)> {
        self.vitals_by(None)
    }

    /// The same, or an error, by `deadline`.
    pub(crate) fn vitals_by(&self, deadline: Option<Instant>) -> Result<(u64, u64)> {
        match self.call_by(&Call::Vitals, deadline)? {
            Answer::Vitals { cpu, output } => Ok((cpu, output)),
            other => Err(self.strange(&other)),
        }
    }

    /// Removes the record of a job that is over. One whose keeper was lost is finished first.
    pub fn remove(&self, force: bool) -> Result<()> {
        self.quell.permit(Verb::Rm, &self.id().to_string())?;
        match settle_lost(&self.dir) {
            Err(Error::NotProvenDead(_)) if force => {}
            // Its end is told once before it is forgotten.
            Ok(true) if !force => {
                if let Verdict::Unproven { why } = self.receipt()?.verdict {
                    return Err(Error::NotProvenDead(format!("{} is not proven dead: {why}", self.id())));
                }
            }
            other => drop(other?),
        }
        crate::gc::remove(self.quell.home(), self.id(), force)
    }
}
