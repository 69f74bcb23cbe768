//! The stop of a job that has no keeper, from its record alone.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{
    ContainmentInfo, ContainmentKind, Count, Fate, LastKnown, Lifecycle, LifecycleRules, Member, Moment,
    ProcId, RootOutcome, Signal, Step, StepKind, StopPlan, Until, Verdict,
};
use quell_sys::fault::{FaultPoint, fault_point};
use quell_sys::{Polled, Sent, Sources};

use super::cgroup_fs::Cgroup;
use super::discovery::{Discovery, HeldVia, OrphanedJob, own_lineage};
use super::member_log::MemberLog;
use super::proof::describe_verdict;
use super::recorded_cgroup::RecordedCgroups;
use super::stop::SignalRound;
use super::stop_engine::{Pace, StopEngine, Tree};
use super::walk::{Pinned, ProcessRef, pin};

/// How many passes the brake makes in one round, at most, before the kill.
const BRAKE_PASSES: usize = 64;
/// How long the init of a PID namespace may take to exit.
const INIT_EXIT: Duration = Duration::from_millis(200);
/// How often a cgroup is killed again while it is not empty: before Linux 6.14 a kill could miss a fork, and no event reports
/// that.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// How long a chase goes on without a trace of a chain: before the first pass, and after all other members were found.
const COLD_AT_FIRST: Duration = Duration::from_millis(100);
const COLD: Duration = Duration::from_millis(500);
/// How many steps are listed. A kill that uses all its time has many rounds, all alike.
const STEPS: usize = 64;

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    pub held: ContainmentInfo,
    /// The root itself, if it is known. In a PID namespace the record has only its init.
    pub root: Option<ProcId>,
    /// How the root ended, if it was alive until now.
    pub outcome: Option<RootOutcome>,
    pub steps: Vec<Step>,
    /// Every member that was still there, with its fate.
    pub members: Vec<Member>,
    /// How many more members there were.
    pub members_omitted: u64,
    /// Members that are not proven dead.
    pub survivors: Vec<ProcId>,
    pub verdict: Verdict,
    /// The tree's peak memory, if its cgroup tells it.
    pub peak_memory: Option<u64>,
    /// Problems that did not affect the stop, such as a cgroup that could not be removed.
    pub warnings: Vec<String>,
}

/// The living members of the job. Signals nothing. Fails if /proc could not be read completely.
pub fn living_members(job: &OrphanedJob<'_>) -> io::Result<Vec<Member>> {
    let recorded = RecordedCgroups::of(job);
    let mut member_log = MemberLog::default();
    Discovery::new(job, &recorded.found).pass(|seen, via| {
        if via != HeldVia::Init {
            member_log.note(&seen.stat);
        }
    })?;
    let members = member_log.with_fates(&[], Duration::ZERO).0.into_iter();
    Ok(members.map(|member| Member { fate: Fate::Alive, ..member }).collect())
}

/// Why the job may have living processes, or None if it can't have any. Signals nothing.
pub fn why_maybe_alive(job: &OrphanedJob<'_>) -> Option<String> {
    match living_members(job).map(|members| members.len()) {
        Ok(0) => job.possible_members().after_loss(),
        Ok(alive) => Some(format!("{alive} of its processes are alive")),
        Err(error) => Some(unlisted(&error)),
    }
}

/// Kills what is left of a job whose keeper and standby are gone, and counts. `now` is the job's clock.
///
/// Before: the caller holds the job's lock, and the record is of this boot. After: no process of the job is alive, or the
/// survivors are named, or the verdict says why that is unknown. Takes at most `plan.verify` and the time of the last count. It
/// can be interrupted at any point and started again.
pub fn recover(job: &OrphanedJob<'_>, plan: &StopPlan, now: &dyn Fn() -> Moment) -> Recovered {
    let recorded = RecordedCgroups::of(job);
    let rules = LifecycleRules { plan: *plan, until: Until::Tree, timeout: None };
    let (life, actions) = Lifecycle::orphaned(rules, LastKnown::default());
    let mut work = Recovery {
        discovery: Discovery::new(job, &recorded.found),
        job,
        cgroups: &recorded.found,
        now,
        findings: Findings::default(),
        steps: Vec::new(),
        own: own_lineage(),
        refused: BTreeSet::new(),
        elsewhere: Vec::new(),
        members_above_us: Vec::new(),
        unlisted: None,
        searches: 0,
        chase_timed_out: false,
        engine: StopEngine::new(life),
        caught: VecDeque::new(),
        caught_at: None,
        killed_at: None,
        is_empty: false,
    };
    work.find_members_above_us();
    if work.members_above_us.is_empty() {
        StopEngine::run_to_end(&mut work, actions);
    } else {
        work.step(
            StepKind::Kill,
            "not done: this quell is itself a process of the job".into(),
            SignalRound::default(),
        );
    }
    let mut survivors = if work.searches == 0 { Vec::new() } else { work.survivors() };
    survivors.extend(std::mem::take(&mut work.members_above_us));
    survivors.sort_unstable();
    survivors.dedup();
    let verdict = work.verdict(&recorded, &survivors);
    work.step(StepKind::Verify, describe_verdict(&verdict), SignalRound::default());
    work.close(survivors, verdict)
}

/// What all rounds have found.
#[derive(Default)]
struct Findings {
    member_log: MemberLog,
    /// The root below a PID namespace's init.
    inner: Option<ProcId>,
    /// How the root ended, if it was found alive.
    outcome: Option<RootOutcome>,
}

/// The members that one round finds.
struct Caught<'a> {
    root: Option<ProcId>,
    findings: &'a mut Findings,
    /// This process and its ancestors.
    own: &'a BTreeSet<ProcId>,
    /// Those of them that are members.
    members_above_us: &'a mut Vec<ProcId>,
    /// Whether the namespace's init survived its KILL.
    init_is_held: bool,
    known: BTreeSet<ProcId>,
    found: Vec<(ProcessRef, HeldVia)>,
}

impl Caught<'_> {
    /// Notes a member that is about to be killed, and stops it if nothing holds it. Returns whether it is new and could have
    /// forked until now.
    fn take(&mut self, seen: &Pinned, via: HeldVia) -> bool {
        let id = seen.stat.id();
        if !self.known.insert(id) {
            return false;
        }
        // They were not found before, because their parents or their environment have changed. They are never signalled.
        if self.own.contains(&id) {
            self.findings.member_log.note(&seen.stat);
            self.members_above_us.push(id);
            return false;
        }
        // The first process below init is the root.
        if via == HeldVia::Namespace {
            self.findings.inner.get_or_insert(id);
        }
        let is_loose = via == HeldVia::Nothing || (via == HeldVia::Namespace && self.init_is_held);
        if is_loose {
            seen.pidfd.signal(Signal::STOP);
        }
        if via != HeldVia::Init {
            self.findings.member_log.note(&seen.stat);
            self.findings.member_log.killed(id, &seen.pidfd);
        }
        if self.root == Some(id) || self.findings.inner == Some(id) {
            self.findings.outcome = Some(RootOutcome::Signaled { signal: Signal::KILL, core: false });
        }
        self.found.push((ProcessRef::of(seen), via));
        is_loose
    }
}

struct Recovery<'a> {
    discovery: Discovery<'a>,
    job: &'a OrphanedJob<'a>,
    cgroups: &'a [Cgroup],
    now: &'a dyn Fn() -> Moment,
    findings: Findings,
    steps: Vec<Step>,
    /// This process and its ancestors.
    own: BTreeSet<ProcId>,
    /// Those of them that are members: quell was called from within the job.
    members_above_us: Vec<ProcId>,
    /// Members that may not be signalled: trying again does not help.
    refused: BTreeSet<ProcId>,
    /// Processes that carry the marker in another cgroup.
    elsewhere: Vec<ProcId>,
    /// Why the processes could not be listed completely.
    unlisted: Option<String>,
    /// How many searches there were.
    searches: usize,
    /// Whether the deadline came before a chain of forking processes was stopped.
    chase_timed_out: bool,
    engine: StopEngine,
    /// The members that the last search found and that may be alive, and when it began.
    caught: VecDeque<(ProcessRef, HeldVia)>,
    caught_at: Option<Moment>,
    /// When they were killed.
    killed_at: Option<Instant>,
    /// Whether the last search found no member: then the recovery is complete.
    is_empty: bool,
}

impl Tree for Recovery<'_> {
    fn pace(&self) -> Pace {
        // There is no search while a member that was found is alive, so no rest between searches is needed.
        Pace { again: KILL_AGAIN, look: None, rest_factor: 0, longest_rest: Duration::ZERO }
    }

    fn engine(&mut self) -> &mut StopEngine {
        &mut self.engine
    }

    /// Searches only when all members that were found are dead and the cgroups are empty. Then only a search can tell whether
    /// new members have started meanwhile.
    fn count(&mut self) -> Count {
        while self.caught.front().is_some_and(|(member, _)| !self.is_waited_for(member)) {
            self.caught.pop_front();
        }
        if self.caught.is_empty() && !self.cgroups.iter().any(may_be_populated) && !self.is_empty {
            self.search();
        }
        match (self.is_empty, self.caught.len()) {
            (true, _) => Count::Alive(0),
            (false, living) => Count::Alive(living.max(1)),
        }
    }

    fn kill_round(&mut self) -> bool {
        let is_waited_for = self.killed_at.is_some_and(|since| !self.is_overdue(since));
        // The members were killed and are waited for. The kill of a cgroup may have missed a fork, so it is repeated.
        let kill_again = |cgroup: &Cgroup| !may_be_populated(cgroup) || cgroup.kill().is_ok();
        if is_waited_for && self.cgroups.iter().all(kill_again) {
            return true;
        }
        if self.searches == 0 || self.killed_at.is_some() {
            self.search();
        }
        self.kill_caught();
        true
    }

    /// Waits for the first member that was found, and for the cgroups.
    fn wait(&mut self, until: Option<Instant>) {
        let first = self.caught.front().and_then(|(member, _)| member.pin_again());
        let mut sources = Sources::default();
        sources.add_any((), first.as_ref().map(|first| Polled::Read(first.as_fd())));
        for news in self.cgroups.iter().filter(|cgroup| may_be_populated(cgroup)).filter_map(Cgroup::events) {
            sources.add((), Polled::Priority(news));
        }
        let _ = sources.wait(until);
    }
}

impl Recovery<'_> {
    fn find_members_above_us(&mut self) {
        match self.discovery.members_above_us() {
            Ok(found) => {
                for stat in found {
                    self.findings.member_log.note(&stat);
                    self.members_above_us.push(stat.id());
                }
            }
            Err(error) => self.unlisted = Some(unlisted(&error)),
        }
    }

    /// Whether it is alive and may be signalled.
    fn is_waited_for(&self, member: &ProcessRef) -> bool {
        !self.refused.contains(&member.id) && member.pin_again().is_some()
    }

    /// Whether the init of a PID namespace should have exited by now, with all processes below it. A tracer can keep it from
    /// exiting: then those are killed one by one.
    fn is_overdue(&self, killed: Instant) -> bool {
        self.job.has_init() && killed.elapsed() > INIT_EXIT
    }

    fn search(&mut self) {
        self.caught_at = Some((self.now)());
        self.searches += 1;
        self.killed_at = None;
        let deadline = self.engine.deadline().unwrap_or_else(Instant::now);
        self.caught = self.brake(deadline).into();
        // Members that may not be signalled don't count: trying again does not help.
        let is_refused = |(member, _): &(ProcessRef, HeldVia)| self.refused.contains(&member.id);
        self.is_empty = self.caught.iter().all(is_refused) && !self.cgroups.iter().any(may_be_populated);
        fault_point(FaultPoint::LostBraked);
    }

    fn kill_caught(&mut self) {
        let mut round = SignalRound::default();
        for cgroup in self.cgroups {
            round.kill_cgroup(cgroup);
        }
        // In reverse order: if this process is killed meanwhile, the rest still has an ancestor that can be found again.
        // Members of a cgroup are included, because cgroup.kill skips a process whose leader thread has exited.
        let init_is_held = self.is_init_held();
        let is_signalled = |via: HeldVia| via != HeldVia::Namespace || init_is_held;
        for (member, via) in self.caught.iter().rev().filter(|(_, via)| is_signalled(*via)) {
            let sent = member.pin_again().map_or(Sent::Gone, |pidfd| pidfd.signal(Signal::KILL));
            match via {
                HeldVia::Nothing if sent == Sent::Refused => {
                    self.refused.insert(member.id);
                }
                HeldVia::Init => round.add_note("KILL to the namespace's init"),
                HeldVia::Nothing | HeldVia::Cgroup | HeldVia::Namespace => {}
            }
            round.push(Signal::KILL, member.id, sent);
        }
        self.killed_at = Some(Instant::now());
        if !self.caught.is_empty() {
            let began = self.caught_at.take().unwrap_or_else(|| (self.now)());
            self.step_at(began, StepKind::Kill, round);
        }
        fault_point(FaultPoint::KillRoundDone);
    }

    /// Keeps the tree from growing, and returns the members. Members that no cgroup or namespace holds are stopped, in repeated
    /// passes, until neither a pass nor a chase finds a new one.
    fn brake(&mut self, deadline: Instant) -> Vec<(ProcessRef, HeldVia)> {
        self.cgroups.iter().for_each(Cgroup::brake);
        let needs_chase = self.cgroups.is_empty() && !self.job.has_init();
        let init_is_held = self.is_init_held();
        let mut caught = Caught {
            root: self.job.root,
            findings: &mut self.findings,
            own: &self.own,
            members_above_us: &mut self.members_above_us,
            init_is_held,
            known: BTreeSet::new(),
            found: vec![],
        };
        // A chain leaves thousands of dead processes per second, and each makes a pass slower. So the chase comes first.
        if needs_chase && self.searches == 1 {
            let mut show = |seen: &Pinned| {
                caught.take(seen, HeldVia::Nothing);
            };
            self.discovery.chase_forks(COLD_AT_FIRST, deadline, &mut show);
        }
        for _ in 0..BRAKE_PASSES {
            let mut new = false;
            match self.discovery.pass(|seen, via| new |= caught.take(seen, via)) {
                Ok(elsewhere) => (self.elsewhere, self.unlisted) = (elsewhere, None),
                Err(error) => self.unlisted = Some(unlisted(&error)),
            }
            if !new && needs_chase {
                let mut show = |seen: &Pinned| new |= caught.take(seen, HeldVia::Nothing);
                self.chase_timed_out = self.discovery.chase_forks(COLD, deadline, &mut show);
            }
            if !new || Instant::now() >= deadline {
                break;
            }
        }
        caught.found
    }

    /// Whether the init of the job's PID namespace survived a KILL.
    fn is_init_held(&self) -> bool {
        self.job.has_init() && self.searches > 1
    }

    fn survivors(&mut self) -> Vec<ProcId> {
        let mut alive = Vec::new();
        let Self { discovery, findings, job, .. } = self;
        let passed = discovery.pass(|seen, _| {
            findings.member_log.note(&seen.stat);
            alive.push(seen.stat.id());
        });
        if let Err(error) = passed {
            self.unlisted = Some(unlisted(&error));
        }
        // A member that may not be signalled counts too.
        for id in job.members.iter().chain(job.survivors) {
            if alive.contains(id) {
                continue;
            }
            if let Some(seen) = pin(id.pid, |stat| stat.id() == *id) {
                findings.member_log.note(&seen.stat);
                alive.push(*id);
            } else if job.survivors.contains(id) && is_unseen(*id) {
                alive.push(*id);
            }
        }
        alive
    }

    /// The verdict. Without a keeper it is unknown which processes left the cgroup or the session, and the record can be
    /// forged: the job is gone only if no process of this host can be a member.
    fn verdict(&self, recorded: &RecordedCgroups, survivors: &[ProcId]) -> Verdict {
        if !survivors.is_empty() || self.chase_timed_out {
            return Verdict::Survivors { count: survivors.len().max(1) };
        }
        let closed = recorded.unusable.as_ref().map(|why| format!("its cgroup can't be used: {why}"));
        let populated = || recorded.found.iter().find_map(why_not_empty);
        let elsewhere = || {
            let pids: Vec<String> = self.elsewhere.iter().map(|id| id.pid.to_string()).collect();
            (!pids.is_empty()).then(|| {
                format!(
                    "processes that carry its marker in other cgroups were left alone: {}",
                    pids.join(", ")
                )
            })
        };
        let unlisted = || self.unlisted.clone();
        let why = closed.or_else(populated).or_else(elsewhere).or_else(unlisted);
        let why = why.or_else(|| self.job.possible_members().after_loss());
        why.map_or(Verdict::Gone, |why| Verdict::Unproven { why })
    }

    fn step(&mut self, step: StepKind, note: String, round: SignalRound) {
        self.step_at((self.now)(), step, SignalRound { note, ..round });
    }

    fn step_at(&mut self, moment: Moment, step: StepKind, round: SignalRound) {
        if self.steps.len() < STEPS || step == StepKind::Verify {
            self.steps.push(Step { moment, step, note: round.note, signals: round.signals });
        }
    }

    fn close(self, survivors: Vec<ProcId>, verdict: Verdict) -> Recovered {
        let mut warnings = Vec::new();
        let peak_memory = self.cgroups.first().and_then(Cgroup::peak_memory);
        let scope = self.job.held.is_some_and(ContainmentKind::is_removed_by_systemd);
        // systemd removes the directory of a scope when it is empty.
        for cgroup in self.cgroups.iter().filter(|_| survivors.is_empty() && !scope) {
            if why_not_empty(cgroup).is_none()
                && let Err(error) = cgroup.remove()
            {
                let path = cgroup.path().display();
                warnings.push(format!("the cgroup {path} could not be removed: {error}"));
            }
        }
        let found = self.cgroups.first().map(Cgroup::path);
        let containment = self.job.kind(found);
        let path = found.or(self.job.cgroup);
        let (members, members_omitted) = self.findings.member_log.with_fates(&survivors, Duration::ZERO);
        let alive = survivors.iter().any(|id| Some(*id) == self.job.root || Some(*id) == self.findings.inner);
        Recovered {
            held: ContainmentInfo {
                containment,
                session: self.job.session,
                cgroup: path.map(|path| path.display().to_string()),
                defeated_by: super::defeated_by(containment),
            },
            root: if containment.has_init() { self.findings.inner } else { self.job.root },
            outcome: self.findings.outcome.filter(|_| !alive),
            steps: self.steps,
            members,
            members_omitted,
            survivors,
            verdict,
            peak_memory,
            warnings,
        }
    }
}

/// Whether a process may be in `cgroup`, and an event will report when it is empty.
fn may_be_populated(cgroup: &Cgroup) -> bool {
    cgroup.populated().unwrap_or(true) && cgroup.events().is_some()
}

/// Whether a process has this PID and /proc does not show which one: it is hidden, or a mount covers its directory.
fn is_unseen(id: ProcId) -> bool {
    let is_hidden = quell_sys::stat(id.pid).is_err() || quell_sys::is_mounted_over(id.pid);
    is_hidden && quell_sys::PidFd::open(id.pid).is_ok_and(|pidfd| pidfd.is_alive())
}

/// The reason for an unproven verdict if the processes can't be listed.
fn unlisted(error: &io::Error) -> String {
    format!("the processes of this host can't be listed: {error}")
}

/// Why `cgroup` is not proven to be empty.
fn why_not_empty(cgroup: &Cgroup) -> Option<String> {
    match cgroup.populated() {
        Ok(false) => None,
        Ok(true) => Some("its cgroup is not empty, and its members can't be seen".into()),
        Err(error) => Some(format!("its cgroup can't be read: {error}")),
    }
}
