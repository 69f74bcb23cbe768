//! Stopping a job: ask its keeper, wait for the end, and look after keepers that don't answer.

mod under_way;

use std::path::Path;
use std::time::{Duration, Instant};

use quell_core::{AskScope, ProcId, Receipt, Signal, Verdict};
use quell_guard::Verb;
use quell_store::{JobDir, KeeperRole};

use crate::recover::{Keepers, RecoveredBy, Standing, not_proven_dead, recover};
use crate::{Error, Job, Result, record_stop, resolve};
use under_way::{StopStage, StopUnderWay};

pub use under_way::PendingStop;

/// How much longer than its plan a stop may take before its keepers are killed, and once more before it is given up: for the
/// proof, the record, and a busy machine.
const STOP_SLACK: Duration = Duration::from_secs(5);
/// How long a keeper may take to answer a stop before its state is looked at. Less than [`STOP_SLACK`].
const SILENCE: Duration = Duration::from_secs(2);
/// How long it may take before it is continued, if it was stopped: a client of `ask_to_stop` waits for the answer.
const FIRST_SILENCE: Duration = Duration::from_millis(300);
/// At this look a keeper that still does not answer is killed, though it may only be slow.
const LAST_LOOK: usize = 4;
/// How many times the directory of a job that is being removed is looked for.
const REMOVAL_LOOKS: usize = 500;

/// Continues the keeper of a job if it was stopped by a signal. A standby does that too, but a job can stop both of its keepers, and
/// then nothing would end it when its time is up or its owner exits. A front is left alone: Ctrl-Z may have stopped it.
pub(crate) fn continue_stopped_keeper(job: &JobDir) {
    let recorded = job.record().ok().and_then(|record| record.keeper);
    let is_stopped =
        |id: ProcId| quell_sys::stat(id.pid).is_ok_and(|stat| stat.start == id.start && stat.state == b'T');
    if recorded.is_some_and(is_stopped) {
        for keeper in job.keepers().into_iter().filter(|keeper| keeper.role == KeeperRole::Keeper) {
            keeper.signal(Signal::CONT);
        }
    }
}

/// How to stop a job. The default asks it to end, and kills what is left after the job's own grace.
///
/// ```
/// use std::time::Duration;
/// let options = quell::StopOptions::default().grace(Duration::from_secs(2)).reason("new version");
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StopOptions {
    pub(crate) kill: bool,
    grace: Option<Duration>,
    ask: Option<AskScope>,
    pub(crate) reason: Option<String>,
    leftovers: bool,
}

impl StopOptions {
    /// Kills at once, without asking first.
    pub fn kill() -> Self {
        Self { kill: true, ..Self::default() }
    }

    /// Sets the time between the request to end and the kill. A stop that is under way is shortened to it.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// Sets which processes are asked to end.
    pub fn ask(self, ask: AskScope) -> Self {
        Self { ask: Some(ask), ..self }
    }

    /// Sets the reason that the receipt and the audit log show.
    pub fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// Stops what has outlived the command. The cause of the end stays the command's own exit.
    pub fn only_leftovers(self) -> Self {
        Self { leftovers: true, ..self }
    }
}

/// A job that has ended, and what was proven about it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Stopped {
    receipt: Receipt,
    already_ended: bool,
}

impl Stopped {
    /// What happened, and what was proven.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The receipt, without the rest.
    pub fn into_receipt(self) -> Receipt {
        self.receipt
    }

    /// Whether the job had ended before it was stopped.
    pub fn already_ended(&self) -> bool {
        self.already_ended
    }
}

/// Which of a job's keepers are killed, in addition to those that can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doomed {
    None,
    /// The standby finishes the stop.
    Keeper,
    /// This process finishes the stop.
    All,
}

impl Job {
    /// Stops the whole tree, and returns when it is proven gone. See [`Job::stop_with`].
    pub fn stop(&self) -> Result<Stopped> {
        self.stop_with(&StopOptions::default())
    }

    /// Stops the whole tree, and returns when it is proven gone. It may be called in any state: a job that has ended is reported
    /// as such, a lost job is finished here, and a stop that is under way is joined. A restart that is under way starts no new job,
    /// or the new job is stopped too; then the result is about that one.
    ///
    /// An error means that the job is not proven dead. It can be tried again.
    pub fn stop_with(&self, options: &StopOptions) -> Result<Stopped> {
        self.ask_to_stop(options)?.wait()
    }

    /// Begins a stop, and returns as soon as it cannot be missed any more: the keeper has heard it, or there is no keeper that
    /// could. [`PendingStop::wait`] returns the end.
    ///
    /// The stop goes on if nothing waits for it. A keeper that stands still later is looked after only while something waits.
    pub fn ask_to_stop(&self, options: &StopOptions) -> Result<PendingStop> {
        let permit = self.quell.permit_because(Verb::Stop, &self.id().to_string(), options.reason.clone())?;
        match self.begin_stop(options) {
            Ok(progress) => Ok(PendingStop { job: self.clone(), permit, options: options.clone(), progress }),
            Err(error) => {
                let stopped = Err(error);
                if let Some(permit) = permit {
                    record_stop(&permit, self.id(), &stopped);
                }
                stopped.map(|_| unreachable!("it is an error"))
            }
        }
    }

    /// Stops the job for a caller that has a permit.
    pub(crate) fn stop_permitted(&self, options: &StopOptions) -> Result<Stopped> {
        match self.begin_stop(options)? {
            StopStage::Asked(under_way) => under_way.finish(),
            StopStage::Over(stopped) => Ok(*stopped),
        }
    }

    fn begin_stop(&self, options: &StopOptions) -> Result<StopStage> {
        let over = |stopped| Ok(StopStage::Over(Box::new(stopped)));
        match recover(self.dir(), RecoveredBy::Stop)? {
            Standing::Kept => StopUnderWay::new(self, options).begin(),
            Standing::Recovered => over(self.stopped()?),
            Standing::Ended => {
                let receipt = self.ended_receipt()?;
                // The job can rewrite its record. A cgroup that still exists is better evidence.
                let has_cgroup = receipt.held.cgroup.as_ref().is_some_and(|path| Path::new(path).exists());
                if !has_cgroup || !resolve::record_remains(self.quell.home(), Some(self.id())) {
                    return over(Stopped { receipt, already_ended: true });
                }
                recover(self.dir(), RecoveredBy::Stop)?;
                over(self.stopped()?)
            }
        }
    }

    fn stopped(&self) -> Result<Stopped> {
        Ok(Stopped { receipt: self.ended_receipt()?, already_ended: false })
    }

    /// The receipt of a job that has ended. A job that never ran has none, and its files are being removed one by one.
    fn ended_receipt(&self) -> Result<Receipt> {
        for look in 0.. {
            if !self.dir().exists() {
                return Err(Error::NoSuchJob(self.id().to_string()));
            }
            let receipt = match self.receipt() {
                Err(Error::Io { error, .. })
                    if error.kind() == std::io::ErrorKind::NotFound && look < REMOVAL_LOOKS =>
                {
                    // No event reports that the last file is gone.
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                other => other?,
            };
            return match &receipt.verdict {
                Verdict::Survivors { .. } => Err(not_proven_dead(self.id(), &receipt.survivors)),
                Verdict::Gone | Verdict::Unproven { .. } => Ok(receipt),
            };
        }
        unreachable!("the last look returns")
    }

    /// Looks at the keepers of a job whose stop makes no progress, for the `look`th time. A keeper that was stopped by a signal is
    /// continued. A keeper that a tracer holds, or that is stopped again, is killed, and so are those that are `doomed`.
    ///
    /// After: the killed keepers have exited. If one of them can't exit, all keepers are killed and [`Keepers::Killed`] is
    /// returned, because the standby would wait for that exit forever.
    fn look_after_keepers(&self, look: usize, doomed: Doomed) -> Keepers {
        let mut killed = Vec::new();
        for keeper in self.dir().keepers() {
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
        for keeper in self.dir().keepers() {
            keeper.signal(Signal::KILL);
        }
        Keepers::Killed
    }
}
