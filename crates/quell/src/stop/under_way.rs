//! A stop that was asked for: waiting for its end, and looking after keepers that stand still.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quell_core::{ProcId, Signal, StopPlan};
use quell_guard::Permit;
use quell_keeper::control_protocol::{Answer, Call, StopValue};
use quell_store::{KeeperRole, Watch};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{PidFd, Sent};

use super::{Doomed, FIRST_SILENCE, LAST_LOOK, SILENCE, STOP_SLACK, StopOptions, Stopped};
use crate::keeper_client::{KeeperClient, Reply, SocketRevival};
use crate::recover::{Keepers, RecoveredBy, Standing, Survivors, recover_with};
use crate::{Error, Job, Result, record_stop};

/// A stop that was asked for. [`Job::ask_to_stop`] begins one.
#[derive(Debug)]
#[must_use = "nothing looks after the keepers until `wait` is called"]
pub struct PendingStop {
    pub(super) job: Job,
    pub(super) permit: Option<Arc<Permit>>,
    pub(super) options: StopOptions,
    pub(super) progress: StopStage,
}

impl PendingStop {
    /// Waits until the tree is proven gone, and so is that of a job that a restart has started meanwhile. An error means that the job is
    /// not proven dead.
    pub fn wait(self) -> Result<Stopped> {
        let stopped = match self.progress {
            StopStage::Asked(under_way) => under_way.finish(),
            StopStage::Over(stopped) => Ok(*stopped),
        };
        let stopped = stopped.and_then(|stopped| {
            let Some(next) = self.job.restarted_meanwhile()? else { return Ok(stopped) };
            next.stop_permitted(&self.options)
        });
        if let Some(permit) = self.permit {
            record_stop(&permit, self.job.id(), &stopped);
        }
        stopped
    }

    /// Whether the job had ended before the end of a stop had to be waited for.
    pub fn is_over(&self) -> bool {
        matches!(self.progress, StopStage::Over(_))
    }
}

/// How far a stop is.
#[derive(Debug)]
pub(super) enum StopStage {
    Asked(Box<StopUnderWay>),
    Over(Box<Stopped>),
}

/// The stop of a job that has a keeper.
#[derive(Debug)]
pub(super) struct StopUnderWay {
    job: Job,
    options: StopOptions,
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

impl StopUnderWay {
    pub(super) fn new(job: &Job, options: &StopOptions) -> Self {
        let began = Instant::now();
        Self {
            job: job.clone(),
            options: options.clone(),
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

    /// Asks until a keeper or front has got the request, or the job has ended.
    pub(super) fn begin(mut self) -> Result<StopStage> {
        loop {
            self.ask_once()?;
            if self.asked {
                return Ok(StopStage::Asked(Box::new(self)));
            }
            if let Some(stopped) = self.wait_on()? {
                return Ok(StopStage::Over(Box::new(stopped)));
            }
        }
    }

    /// Waits for the end.
    pub(super) fn finish(mut self: Box<Self>) -> Result<Stopped> {
        loop {
            if let Some(stopped) = self.wait_on()? {
                return Ok(stopped);
            }
            if !self.asked {
                self.ask_once()?;
            }
        }
    }

    fn ask_once(&mut self) -> Result<()> {
        self.asked = self.ask()?;
        if self.asked {
            self.standby = self.job.dir().record().ok().and_then(|record| record.standby);
        } else {
            self.revival.missed(self.job.dir());
        }
        Ok(())
    }

    /// Waits until something may have changed, and looks at the job and its keepers. Returns the end, once it is there.
    fn wait_on(&mut self) -> Result<Option<Stopped>> {
        self.wait()?;
        // The job had a keeper when this stop began, so survivors on record were found meanwhile.
        let survivors = if self.asked { Survivors::Report } else { Survivors::LookBriefly };
        if recover_with(self.job.dir(), RecoveredBy::Stop, survivors, self.keepers)? != Standing::Kept {
            self.standby.iter().for_each(continue_standby);
            return self.job.stopped().map(Some);
        }
        self.look()?;
        Ok(None)
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
        let through = self.job.quell.through.clone();
        connection.send(&Call::Stop { kill, grace, ask, reason, leftovers, through })?;
        fault_point(FaultPoint::StopSent);
        let reply = self.until_it_acts(|job| match receive(job, connection) {
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
            if let Some(result) = attempt(&self.job)? {
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

/// Waits for the keeper's answer. A keeper that is stopped by a signal is continued as soon as it is late.
fn receive(job: &Job, connection: &mut KeeperClient) -> Result<Reply> {
    match connection.receive(FIRST_SILENCE)? {
        Reply::Silence => {
            for keeper in job.dir().keepers().iter().filter(|keeper| keeper.state() == Some(b'T')) {
                keeper.signal(Signal::CONT);
            }
            connection.receive(SILENCE - FIRST_SILENCE)
        }
        reply => Ok(reply),
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
