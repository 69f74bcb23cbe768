//! Stopping a job: ask its keeper, wait for the end, and look after keepers that don't answer.

use std::path::Path;
use std::time::{Duration, Instant};

use quell_core::{AskScope, ProcId, Receipt, Signal, StopPlan, Verdict};
use quell_guard::Verb;
use quell_keeper::control_protocol::{Answer, Call, StopValue};
use quell_store::{KeeperRole, Watch};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{PidFd, Sent};

use crate::keeper_client::{KeeperClient, Reply, SocketRevival};
use crate::recover::{Keepers, RecoveredBy, Standing, Survivors, not_proven_dead, recover, recover_with};
use crate::{Error, Job, Result, record_stop, resolve};

/// How much longer than its plan a stop may take before its keepers are killed, and once more before it is given up: for the
/// proof, the record, and a busy machine.
const STOP_SLACK: Duration = Duration::from_secs(5);
/// How long a keeper may take to answer a stop before its state is looked at. Less than [`STOP_SLACK`].
const SILENCE: Duration = Duration::from_secs(2);
/// At this look a keeper that still does not answer is killed, though it may only be slow.
const LAST_LOOK: usize = 4;
/// How many times the directory of a job that is being removed is looked for.
const REMOVAL_LOOKS: usize = 500;

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
        let permit = self.quell.permit_because(Verb::Stop, &self.id().to_string(), options.reason.clone())?;
        let stopped = self.stop_permitted(options).and_then(|stopped| {
            let Some(next) = self.restarted_meanwhile()? else { return Ok(stopped) };
            next.stop_permitted(options)
        });
        if let Some(permit) = permit {
            record_stop(&permit, self.id(), &stopped);
        }
        stopped
    }

    /// The same for a caller that has a permit.
    pub(crate) fn stop_permitted(&self, options: &StopOptions) -> Result<Stopped> {
        match recover(self.dir(), RecoveredBy::Stop)? {
            Standing::Kept => StopUnderWay::new(self, options).finish(),
            Standing::Recovered => self.stopped(),
            Standing::Ended => {
                let receipt = self.ended_receipt()?;
                // The job can rewrite its record. A cgroup that still exists is better evidence.
                let has_cgroup = receipt.held.cgroup.as_ref().is_some_and(|path| Path::new(path).exists());
                if !has_cgroup || !resolve::record_remains(self.quell.home(), Some(self.id())) {
                    return Ok(Stopped { receipt, already_ended: true });
                }
                recover(self.dir(), RecoveredBy::Stop)?;
                self.stopped()
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

/// The stop of a job that has a keeper.
struct StopUnderWay<'a> {
    job: &'a Job,
    options: &'a StopOptions,
    began: Instant,
    /// Whether a keeper or front has got the request.
    asked: bool,
    /// Held by the keeper until the end is on record.
    connection: Option<KeeperClient>,
    /// Used where there is no connection. It costs more, because the kernel takes long to close it.
    watch: Option<Watch>,
    revival: SocketRevival,
    keepers: Keepers,
    standby: Option<ProcId>,
    next_look: Instant,
    looks: usize,
    /// When the keepers are killed, and at the second time the stop is given up. Set at the first look.
    deadline: Option<Instant>,
    forced: bool,
}

impl<'a> StopUnderWay<'a> {
    fn new(job: &'a Job, options: &'a StopOptions) -> Self {
        let began = Instant::now();
        Self {
            job,
            options,
            began,
            asked: false,
            connection: None,
            watch: None,
            revival: SocketRevival::new(),
            keepers: Keepers::Unknown,
            standby: None,
            next_look: began + SILENCE,
            looks: 0,
            deadline: None,
            forced: false,
        }
    }

    fn finish(mut self) -> Result<Stopped> {
        loop {
            if !self.asked {
                self.asked = self.ask()?;
                if self.asked {
                    self.standby = self.job.dir().record().ok().and_then(|record| record.standby);
                } else {
                    self.revival.missed(self.job.dir());
                }
            }
            self.wait()?;
            // The job had a keeper when this stop began, so survivors on record were found meanwhile.
            let survivors = if self.asked { Survivors::Report } else { Survivors::LookBriefly };
            if recover_with(self.job.dir(), RecoveredBy::Stop, survivors, self.keepers)? != Standing::Kept {
                self.standby.iter().for_each(continue_standby);
                return self.job.stopped();
            }
            self.look()?;
        }
    }

    /// Waits until something may have changed.
    fn wait(&mut self) -> Result<()> {
        // No event reports that a keeper was stopped by a signal, or that the socket exists.
        let mut until = self.deadline.map_or(self.next_look, |deadline| deadline.min(self.next_look));
        if !self.asked {
            until = until.min(Instant::now() + Duration::from_millis(20));
        }
        if let Some(keeper) = &self.connection {
            if KeeperClient::wait_closed([keeper], Some(until))? {
                self.connection = None;
            }
        } else if let Some(watch) = &mut self.watch {
            watch.wait(Some(until)).map_err(Error::io(self.job.dir().dir()))?;
        } else {
            // The caller looks at what has happened before.
            self.watch = Some(self.job.watch()?);
        }
        Ok(())
    }

    /// Looks after the keepers if that is due.
    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        let due = now >= self.next_look;
        if due {
            (self.next_look, self.looks) = (now + SILENCE, self.looks + 1);
        }
        if !due && self.deadline.is_none() {
            return Ok(());
        }
        let plan = || self.job.dir().spec().map_or_else(|_| StopPlan::default(), |spec| spec.request.stop);
        let (began, grace) = (self.began, self.options.grace);
        let deadline = *self.deadline.get_or_insert_with(|| {
            let plan = plan();
            began + grace.unwrap_or(plan.grace) + plan.verify + STOP_SLACK
        });
        if now >= deadline {
            if self.forced {
                return Err(Error::NotProvenDead(format!("{} has not ended in its time", self.job.id())));
            }
            self.job.look_after_keepers(self.looks, Doomed::All);
            self.keepers = Keepers::Killed;
            (self.forced, self.deadline) = (true, Some(Instant::now() + plan().verify + STOP_SLACK));
        } else if due {
            self.keepers = self.job.look_after_keepers(self.looks, Doomed::None);
        }
        Ok(())
    }

    /// Asks the keeper, or the front of a foreground job. Returns whether one of them got the request.
    fn ask(&mut self) -> Result<bool> {
        let connected = self.until_it_acts(|job| match KeeperClient::connect_within(job.dir(), SILENCE) {
            Err(Error::TimedOut(_)) => Ok(None),
            connected => connected.map(Some),
        })?;
        let Some(mut keeper) = connected else {
            // The keeper takes no calls and was killed: its standby finishes the stop.
            return Ok(true);
        };
        let Some(connection) = &mut keeper else { return self.ask_front() };
        let StopOptions { kill, grace, ask, reason, leftovers } = self.options.clone();
        connection.send(&Call::Stop { kill, grace, ask, reason, leftovers })?;
        fault_point(FaultPoint::StopSent);
        let reply = self.until_it_acts(|_| match connection.receive(SILENCE) {
            Ok(Reply::Silence) => Ok(None),
            // Not the keeper's words: another process has replaced its socket, and the keeper will make a new one.
            Err(Error::Keeper(_)) => Ok(Some(Reply::Closed)),
            reply => reply.map(Some),
        })?;
        Ok(match reply {
            Some(Reply::Answer(Answer::Accepted)) => {
                self.connection = keeper;
                true
            }
            Some(Reply::Answer(_) | Reply::Closed) => false,
            Some(Reply::Silence) | None => true,
        })
    }

    /// Repeats an attempt that needs the keeper until it has a result, and looks after the keepers in between. The last look kills the
    /// keeper; then there is no result, and the standby finishes the stop, or this process if all keepers were killed.
    fn until_it_acts<T>(&mut self, mut attempt: impl FnMut(&Job) -> Result<Option<T>>) -> Result<Option<T>> {
        for look in 1..=LAST_LOOK {
            if let Some(result) = attempt(self.job)? {
                return Ok(Some(result));
            }
            let doomed = if look == LAST_LOOK { Doomed::Keeper } else { Doomed::None };
            self.keepers = self.job.look_after_keepers(look, doomed);
            if self.keepers == Keepers::Killed {
                break;
            }
        }
        Ok(None)
    }

    /// Asks a foreground job by a signal to its front, as it has no socket. Returns whether there was a front to get it.
    fn ask_front(&self) -> Result<bool> {
        let dir = self.job.dir();
        let Ok(record) = dir.record() else { return Ok(false) };
        let is_foreground = dir.spec().is_ok_and(|spec| spec.request.is_foreground());
        let Some(recorded) = record.standby.filter(|_| is_foreground) else { return Ok(false) };
        let here = || PidFd::of(recorded).filter(|_| dir.is_kept_by(recorded, record.keeper));
        // A front in another PID namespace has another number here than on record.
        let elsewhere = || dir.keepers().into_iter().find(|keeper| keeper.role == KeeperRole::Standby);
        let Some(front) = here().or_else(|| Some(elsewhere()?.into_pidfd())) else { return Ok(false) };
        let StopOptions { kill, grace, ask, .. } = self.options.clone();
        let value = StopValue { kill, grace, ask }.encode();
        let mut sent = front.signal_with(Signal::ASK_FRONT, value);
        // Its user may have too many signals pending; a plain one is always taken.
        if sent == Sent::Refused {
            sent = front.signal(Signal::TERM);
        }
        // It may have been suspended from its terminal.
        front.signal(Signal::CONT);
        Ok(sent == Sent::Yes)
    }
}

/// Continues the standby of a job that has ended, if it was stopped by a signal: it could not exit with its job. The lock that proved
/// its role is gone, so its identity and its program are checked instead.
fn continue_standby(id: &ProcId) {
    let is_stopped = |stat: quell_sys::Stat| stat.start == id.start && stat.state == b'T';
    if quell_sys::stat(id.pid).is_ok_and(is_stopped)
        && let Some(standby) = PidFd::of(*id).filter(|_| quell_sys::is_quell(id.pid))
    {
        standby.signal(Signal::CONT);
    }
}
