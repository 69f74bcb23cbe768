//! What front and standby do while their keeper runs: they keep what it reports, continue it if it was stopped, and kill it if it
//! does not answer.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_contain::{KeeperReport, MARKER_SEARCH_PATIENCE};
use quell_core::{Actor, LastKnown, Member, RootOutcome, Signal, Step, StepKind, Verdict};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{Forked, PidFd, Polled, SignalFd, Sources, Timers};

use super::channel::{FrontCommand, JsonChannel, KeeperEvent, RunResult};
use super::engine::TRIM_AFTER;
use super::evidence::Evidence;
use super::job::{SupervisedJob, describe, system};
use super::receipt_sink::READER_PATIENCE;
use crate::{Finished, Left, StartError};

/// The signals by which a front is asked to stop its job.
pub const STOP_SIGNALS: [&str; 4] = ["INT", "TERM", "HUP", "QUIT"];

/// How long a keeper may be silent when it should answer: first until it is continued, and then again until it is killed.
const SILENCE: Duration = Duration::from_secs(3);
/// The additional time for a start: two exchanges with the user's systemd.
const BIRTH: Duration = Duration::from_secs(10);

/// What a front or a standby waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchSource {
    Channel,
    Signals,
    Keeper,
    Root,
    Starter,
    Owner,
}

/// What is due in a front or a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchTimer {
    /// The keeper should have sent anything at all: it got a command, or the root has exited.
    Answer,
    /// The keeper should have reported the end of the present phase.
    Phase,
    /// The keeper is continued, if it is still stopped.
    ResumeKeeper,
    TrimMemory,
}

/// How the watch has ended.
#[derive(Debug)]
pub enum KeeperOutcome {
    Done(Box<Finished>),
    Failed(StartError),
    /// The root has exited. The keeper goes on with what it left, and needs no watch.
    Left(Box<Left>),
    /// The keeper has exited without a report.
    Lost,
}

pub struct KeeperWatch {
    pub job: SupervisedJob,
    keeper: PidFd,
    pub(super) channel: JsonChannel,
    pub signals: SignalFd,
    /// The evidence of the present run, for a takeover.
    pub evidence: Evidence,
    pub report: KeeperReport,
    /// What the keeper has reported of the present run.
    pub known: LastKnown,
    /// The root (or its init), until it exits.
    root: Option<PidFd>,
    pub(super) stopping: bool,
    /// Whether the keeper had begun to kill. It does not report which processes it has killed.
    pub(super) killing: bool,
    pub interrupted: bool,
    /// When the first stop signal came.
    pub(super) first_stop: Option<Instant>,
    /// The stop signals of a client that its server has got.
    pub(super) passed_on: Vec<Signal>,
    timers: Timers<WatchTimer>,
    /// Whether the keeper was continued and has not answered since.
    resumed: bool,
    /// How many runs the keeper has reported.
    pub runs: u32,
    /// The members that the keeper has reported in this run, and how they were asked to exit.
    pub members: Vec<(Vec<Member>, Option<Step>)>,
    /// The process that has started a background job, until the job runs.
    pub starter: Option<UnixStream>,
    /// The owner of a foreground job. That of a background job is watched by its keeper.
    pub owner: Option<PidFd>,
}

/// Forks the keeper, which runs `keep` and exits. This process becomes a subreaper and watches it. Both get the `resources`.
pub fn fork_keeper<R>(
    job: SupervisedJob,
    watched: &[Signal],
    resources: R,
    keep: impl FnOnce(SupervisedJob, R, JsonChannel, Evidence),
) -> Result<(KeeperWatch, R), StartError> {
    let signals = SignalFd::new(watched).map_err(system("watch signals"))?;
    quell_sys::set_subreaper().map_err(system("become a subreaper"))?;
    let (ours, theirs) = JsonChannel::pair().map_err(system("make a socket pair"))?;
    let evidence = Evidence::new();
    match quell_sys::fork().map_err(system("fork"))? {
        Forked::Child => {
            drop((ours, signals));
            keep(job, resources, theirs, evidence);
            std::process::exit(0)
        }
        Forked::Parent(keeper) => {
            drop(theirs);
            fault_point(FaultPoint::KeeperForked);
            Ok((KeeperWatch::new(job, keeper, ours, signals, evidence), resources))
        }
    }
}

impl KeeperWatch {
    fn new(
        job: SupervisedJob,
        keeper: PidFd,
        channel: JsonChannel,
        signals: SignalFd,
        evidence: Evidence,
    ) -> Self {
        let mut watch = Self {
            job,
            keeper,
            channel,
            signals,
            evidence,
            report: KeeperReport::default(),
            known: LastKnown::default(),
            root: None,
            stopping: false,
            killing: false,
            interrupted: false,
            first_stop: None,
            passed_on: Vec::new(),
            timers: Timers::default(),
            resumed: false,
            runs: 0,
            members: Vec::new(),
            starter: None,
            owner: None,
        };
        watch.expect_phase_within_timeout();
        watch
    }

    /// Waits until the keeper has sent its last report, or has exited without one.
    pub fn run(&mut self) -> KeeperOutcome {
        loop {
            if let Some(outcome) = self.wait_and_handle() {
                return outcome;
            }
        }
    }

    fn wait_and_handle(&mut self) -> Option<KeeperOutcome> {
        // The starter waits until the program runs, and expects no other answer.
        if self.starter.is_some() && self.timers.due(WatchTimer::Answer).is_none() {
            self.expect_answer();
        }
        let mut sources = Sources::default();
        sources.add(WatchSource::Channel, Polled::Read(self.channel.as_fd()));
        sources.add(WatchSource::Signals, Polled::Read(self.signals.as_fd()));
        sources.add(WatchSource::Keeper, Polled::Read(self.keeper.as_fd()));
        sources.add_any(WatchSource::Root, self.root.as_ref().map(|root| Polled::Read(root.as_fd())));
        let starter = self.starter.as_ref().map(|starter| Polled::Read(starter.as_fd()));
        sources.add_any(WatchSource::Starter, starter);
        sources.add_any(WatchSource::Owner, self.owner.as_ref().map(|owner| Polled::Read(owner.as_fd())));
        // Without memory to poll, try again: the keeper goes on meanwhile.
        let ready = sources.wait(self.timers.next()).ok()?;
        if ready.has(WatchSource::Signals) {
            self.take_signals();
        }
        let keeper_gone = ready.has(WatchSource::Keeper);
        if ready.has(WatchSource::Channel) || keeper_gone {
            for event in self.channel.recv().messages {
                match self.on_event(event) {
                    Some(outcome @ KeeperOutcome::Left(_)) => {
                        fault_point(FaultPoint::LeftHeard);
                        return Some(outcome);
                    }
                    Some(outcome) => {
                        fault_point(FaultPoint::EndHeard);
                        self.collect_keeper();
                        return Some(outcome);
                    }
                    None => {}
                }
            }
        }
        if keeper_gone {
            return Some(KeeperOutcome::Lost);
        }
        // The starter is gone before it got an answer, so no process would know about the job.
        if ready.has(WatchSource::Starter) && self.starter.take().is_some() {
            self.command(&FrontCommand::stop(Actor::Unknown));
        }
        if ready.has(WatchSource::Owner) && self.owner.take().is_some() {
            self.command(&FrontCommand::OwnerGone);
        }
        if ready.has(WatchSource::Root) {
            self.root = None;
            // The keeper sees this too, and reports it.
            if self.known.root.is_none() {
                self.expect_answer();
            }
        }
        self.handle_timers(Instant::now());
        None
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            self.on_signal(signal);
        }
        // SIGCHLD reports a stopped child as well as an exited one.
        if self.is_keeper_stopped() {
            self.timers.bring_forward(WatchTimer::ResumeKeeper, SILENCE);
        } else {
            self.timers.disarm(WatchTimer::ResumeKeeper);
        }
    }

    fn handle_timers(&mut self, now: Instant) {
        // While the keeper is stopped, no output is read, and no client learns of the end of the job.
        if self.timers.take_due(WatchTimer::ResumeKeeper, now) && self.is_keeper_stopped() {
            tracing::debug!("the keeper is stopped: sent CONT to pid {}", self.keeper.pid());
            self.keeper.signal(Signal::CONT);
        }
        if self.timers.take_due(WatchTimer::TrimMemory, now) {
            quell_sys::drop_code_pages_in_wait();
        }
        let overdue = [WatchTimer::Answer, WatchTimer::Phase].map(|timer| self.timers.take_due(timer, now));
        if overdue.contains(&true) {
            self.resume_or_kill_keeper();
        }
    }

    fn is_keeper_stopped(&self) -> bool {
        quell_sys::is_stopped(self.keeper.pid())
    }

    /// Sends a command that the keeper has to answer.
    pub(super) fn command(&mut self, command: &FrontCommand) {
        let _ = self.channel.try_send(command);
        self.expect_answer();
    }

    /// How long the keeper may be silent. Until the stub exists, it may be waiting for D-Bus.
    fn patience(&self) -> Duration {
        if self.report.root.is_some() { SILENCE } else { SILENCE + BIRTH }
    }

    fn expect_phase_within_timeout(&mut self) {
        match self.job.request.timeout {
            Some(timeout) => self.timers.arm(WatchTimer::Phase, timeout + self.patience()),
            None => self.timers.disarm(WatchTimer::Phase),
        }
    }

    fn expect_answer(&mut self) {
        self.timers.bring_forward(WatchTimer::Answer, self.patience());
    }

    /// The keeper should have answered. It may have been stopped, so it is continued. If that does not help, it is killed, and
    /// this process takes over.
    fn resume_or_kill_keeper(&mut self) {
        self.timers.disarm(WatchTimer::Phase);
        self.timers.arm(WatchTimer::Answer, SILENCE);
        // An exec can take long: a keeper that waits for one is not killed.
        if self.starter.is_some() && !self.is_keeper_stopped() {
            return;
        }
        let signal = if self.resumed { Signal::KILL } else { Signal::CONT };
        tracing::debug!("the keeper does not answer: sent {signal} to pid {}", self.keeper.pid());
        self.keeper.signal(signal);
        self.resumed = true;
    }

    fn on_event(&mut self, event: KeeperEvent) -> Option<KeeperOutcome> {
        self.resumed = false;
        self.timers.disarm(WatchTimer::Answer);
        match event {
            KeeperEvent::Born { held, root, inner, cgroup, member } => {
                self.runs += 1;
                if self.runs > 1 {
                    self.evidence = Evidence::new();
                }
                let (held, base) = (Some(held), self.report.base.take());
                self.report = KeeperReport { held, root: Some(root), inner, cgroup, base };
                self.forget_run();
                self.members.push((Vec::from_iter(member), None));
                self.root = PidFd::open(root.pid).ok();
                fault_point(FaultPoint::BirthHeard);
            }
            KeeperEvent::Acknowledged => {}
            KeeperEvent::Running => {
                // The keeper has answered the starter.
                self.starter = None;
                if self.job.is_long_lived() {
                    self.timers.arm(WatchTimer::TrimMemory, TRIM_AFTER);
                }
            }
            KeeperEvent::Waiting(outcome) => {
                self.forget_run();
                self.timers.disarm(WatchTimer::Phase);
                // Until there is another run, this is the outcome of the job.
                self.known.root = Some(outcome);
            }
            KeeperEvent::Members { members, asked } => self.members.push((members, asked)),
            KeeperEvent::Stopping { killing, grace, ending, leaked, ask } => {
                (self.stopping, self.killing) = (true, killing);
                self.known.stop = Some((grace, ask));
                self.known.ending = ending;
                self.known.leaked = leaked;
                // The kill follows the grace. Proof, marker search and receipt follow the kill. The keeper reports both phases.
                let verify = self.job.request.stop.verify;
                let phase = if killing { verify + MARKER_SEARCH_PATIENCE + READER_PATIENCE } else { grace };
                self.timers.arm(WatchTimer::Phase, phase + SILENCE);
            }
            KeeperEvent::RootStopped => {
                // The shell should see its job stopped. If the shell has continued the whole group meanwhile, the root runs again.
                let root = self.report.inner.or(self.report.root);
                if root.is_some_and(|root| quell_sys::is_stopped(root.pid)) {
                    quell_sys::stop_self();
                }
            }
            KeeperEvent::RootExited(outcome) => {
                self.evidence.step(StepKind::RootExited, describe(&outcome), vec![]);
                self.known.root = Some(outcome);
                if self.job.keeps_left() && !self.stopping {
                    // The keeper counts, and reports what is left or the end.
                    self.timers.arm(WatchTimer::Phase, MARKER_SEARCH_PATIENCE + READER_PATIENCE + SILENCE);
                }
            }
            KeeperEvent::Left { count, members } => {
                let (id, interrupted) = (self.job.spec.id, self.interrupted);
                let outcome = self.known.root.clone().unwrap_or(RootOutcome::Unknown);
                let root = self.report.inner.or(self.report.root);
                return Some(KeeperOutcome::Left(Box::new(Left {
                    id,
                    root,
                    outcome,
                    count,
                    members,
                    interrupted,
                })));
            }
            KeeperEvent::Failed(failure) => return Some(KeeperOutcome::Failed(failure)),
            KeeperEvent::Done(result) => {
                let RunResult { receipt, leaked, failed, unwritten } = *result;
                return Some(match failed {
                    // If the stub is not proven gone, this is more than a failed start.
                    Some(failure) if receipt.verdict == Verdict::Gone => KeeperOutcome::Failed(failure),
                    Some(_) | None => {
                        let interrupted = self.interrupted;
                        KeeperOutcome::Done(Box::new(Finished { receipt, leaked, unwritten, interrupted }))
                    }
                });
            }
        }
        None
    }

    /// Drops what was known of an earlier run.
    fn forget_run(&mut self) {
        (self.known, self.root) = (LastKnown::default(), None);
        (self.stopping, self.killing) = (false, false);
        self.members.clear();
        self.expect_phase_within_timeout();
    }

    /// Reaps the keeper. Returns how it ended, if that is known.
    ///
    /// Never waits for longer than twice the silence. A process of the job may trace the keeper: then only that process can reap it, or
    /// hold it in its exit. The keeper is reaped with the other children when the tracer is gone.
    pub fn collect_keeper(&self) -> Option<RootOutcome> {
        let has_exited = || {
            let patience = Some(Instant::now() + SILENCE);
            quell_sys::poll_until(&[Polled::Read(self.keeper.as_fd())], patience).is_ok_and(|gone| gone[0])
        };
        // It only has to exit. If it is stopped meanwhile, it is killed.
        if !has_exited() {
            self.keeper.signal(Signal::KILL);
            has_exited();
        }
        Some(quell_sys::reap(self.keeper.pid()).ok()??.outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use quell_core::{Lifecycle, Signal};

    use super::*;
    use crate::platform::job::sample;

    #[expect(clippy::zombie_processes, reason = "the watch reaps it")]
    /// A watch over a process that poses as a keeper, and the keeper's end of the channel.
    fn watch(keeper: &[&str]) -> (KeeperWatch, JsonChannel, tempfile::TempDir) {
        let home = tempfile::tempdir().unwrap();
        let child = Command::new(keeper[0]).args(&keeper[1..]).spawn().unwrap();
        let keeper = PidFd::open(child.id()).unwrap();
        let (ours, theirs) = JsonChannel::pair().unwrap();
        let signals = SignalFd::new(&[Signal::CHLD]).unwrap();
        (KeeperWatch::new(sample::job(home.path()), keeper, ours, signals, Evidence::new()), theirs, home)
    }

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// Waits until the kernel shows the keeper stopped, or not stopped.
    fn await_stopped(watch: &KeeperWatch, stopped: bool) {
        let until = later(20);
        while watch.is_keeper_stopped() != stopped {
            assert!(Instant::now() < until, "the keeper is not in this state: stopped is {stopped}");
            std::thread::yield_now();
        }
    }

    fn stop(watch: &KeeperWatch) {
        watch.keeper.signal(Signal::STOP);
        await_stopped(watch, true);
    }

    #[test]
    fn a_silent_keeper_is_continued_and_then_killed() {
        let (mut watch, mut theirs, _home) = watch(&["sleep", "600"]);
        stop(&watch);
        watch.command(&FrontCommand::OwnerGone);
        assert!(matches!(theirs.recv().messages[..], [FrontCommand::OwnerGone]));
        watch.handle_timers(later(12));
        assert!(watch.is_keeper_stopped(), "a start may take so long");
        watch.handle_timers(later(14));
        await_stopped(&watch, false);
        watch.on_event(KeeperEvent::Acknowledged);
        watch.expect_answer();
        watch.handle_timers(later(28));
        assert!(watch.keeper.is_alive(), "it had answered, so it is continued first");
        watch.handle_timers(later(42));
        assert!(matches!(watch.run(), KeeperOutcome::Lost));
        let killed = watch.collect_keeper();
        assert!(matches!(killed, Some(RootOutcome::Signaled { signal: Signal::KILL, .. })), "{killed:?}");
    }

    #[test]
    fn a_stopped_keeper_is_continued_though_no_answer_is_due() {
        let (mut watch, _theirs, _home) = watch(&["sleep", "600"]);
        stop(&watch);
        watch.take_signals();
        watch.handle_timers(later(2));
        assert!(watch.is_keeper_stopped());
        watch.handle_timers(later(4));
        await_stopped(&watch, false);
        watch.keeper.signal(Signal::KILL);
        assert!(matches!(watch.run(), KeeperOutcome::Lost));
        watch.collect_keeper();
    }

    #[test]
    fn a_keeper_that_starts_the_program_is_not_killed_however_long_that_takes() {
        let (mut watch, mut theirs, _home) = watch(&["sleep", "600"]);
        let (starter, caller) = UnixStream::pair().unwrap();
        watch.starter = Some(starter);
        for seconds in [20, 40, 60] {
            watch.expect_answer();
            watch.handle_timers(later(seconds));
        }
        assert!(watch.keeper.is_alive() && !watch.resumed);
        drop(caller);
        assert!(watch.wait_and_handle().is_none());
        assert!(
            matches!(theirs.recv().messages[..], [FrontCommand::Stop { actor: Actor::Unknown, .. }]),
            "no caller"
        );
        watch.keeper.signal(Signal::KILL);
        assert!(matches!(watch.run(), KeeperOutcome::Lost));
        watch.collect_keeper();
    }

    #[test]
    fn the_last_report_of_a_keeper_counts_though_it_has_exited() {
        let (mut first, mut theirs, home) = watch(&["true"]);
        let receipt = sample::receipt(&first.job, &Lifecycle::new(first.job.rules));
        let mut result = RunResult { receipt, leaked: true, failed: None, unwritten: false };
        quell_sys::wait_exit(first.keeper.pid()).unwrap();
        theirs.send(&KeeperEvent::RootExited(RootOutcome::Exited { code: 3 })).unwrap();
        theirs.send(&KeeperEvent::Done(Box::new(result.clone()))).unwrap();
        let outcome = first.run();
        let KeeperOutcome::Done(finished) = outcome else { panic!("{outcome:?}") };
        assert!(finished.leaked);
        assert_eq!(first.known.root, Some(RootOutcome::Exited { code: 3 }));

        let (mut second, mut theirs, _other) = watch(&["true"]);
        result.failed = Some(StartError::Limit("no memory".into()));
        theirs.send(&KeeperEvent::Done(Box::new(result))).unwrap();
        let outcome = second.run();
        assert!(matches!(outcome, KeeperOutcome::Failed(StartError::Limit(_))), "{outcome:?}");
        drop(home);
    }
}
