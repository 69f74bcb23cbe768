//! Jobs that were never run, with the records of real ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use quell::StatsFilter;
use quell::binary::{Home, JobDir, stats_of};
use quell_core::{
    Actor, AskScope, Cause, ContainmentInfo, ContainmentKind, Fate, Grace, JobBrief, JobId, JobRequest,
    JobSpec, KillReason, Member, Moment, Output, ProcId, Receipt, RecordedState, RecordedTree, RootOutcome,
    RootReport, SCHEMA, SessionKind, StateRecord, Step, StepKind, Timestamp, Usage, Verdict,
};
use quell_store::Lock;
use tempfile::TempDir;

/// The first of November 2023, in milliseconds: the fake jobs were made at this time and after it.
pub const THEN: u64 = 1_698_796_800_000;

/// A home that is removed when dropped.
pub struct TestHome {
    pub home: Home,
    _removed: TempDir,
}

impl TestHome {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        Self { home: Home::at(dir.path().join("home")), _removed: dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.dir().join(name)
    }
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A job to be made: the n-th second after `THEN`, for as many seconds as `lasted`.
pub struct Fake {
    pub second: u64,
    pub random: u128,
    pub lasted: f64,
    pub name: Option<&'static str>,
    pub session: Option<&'static str>,
    pub tags: Vec<(&'static str, &'static str)>,
    pub cause: Cause,
    pub outcome: RootOutcome,
    pub verdict: Verdict,
    pub killed: bool,
    pub grace_used: Option<f64>,
    pub leaked: bool,
    pub boot: String,
}

impl Fake {
    pub fn at(second: u64) -> Self {
        Self {
            second,
            random: quell_sys::random_u128().unwrap(),
            lasted: 1.0,
            name: None,
            session: None,
            tags: Vec::new(),
            cause: Cause::OwnExit,
            outcome: RootOutcome::Exited { code: 0 },
            verdict: Verdict::Gone,
            killed: false,
            grace_used: None,
            leaked: false,
            boot: quell_sys::boot_id(),
        }
    }

    pub fn id(&self) -> JobId {
        JobId::new(THEN + self.second * 1000, self.random)
    }

    fn moment(&self, at: f64) -> Moment {
        let ms = (THEN + self.second * 1000) as i64 + (at * 1000.0) as i64;
        Moment { at, wall: Timestamp::from_unix_ms(ms) }
    }

    pub fn spec(&self) -> JobSpec {
        let mut request = JobRequest::background(["sleep", "1"]);
        request.session = self.session.map(str::to_owned);
        request.name = self.name.map(str::to_owned);
        request.tags = self.tags();
        request.cwd = Some("/".into());
        JobSpec {
            schema: SCHEMA.into(),
            id: self.id(),
            marker: "m".into(),
            boot_id: self.boot.clone(),
            pid_namespace: 0,
            created: self.moment(0.0).wall,
            request,
        }
    }

    fn tags(&self) -> BTreeMap<String, String> {
        self.tags.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn record(&self, state: RecordedState, at: f64) -> StateRecord {
        StateRecord {
            schema: SCHEMA.into(),
            id: self.id(),
            run: 1,
            since: self.moment(at),
            keeper: None,
            standby: None,
            marker: "m".into(),
            home_cgroups: Vec::new(),
            state,
        }
    }

    fn tree() -> RecordedTree {
        RecordedTree {
            containment: ContainmentKind::Reaper,
            session: SessionKind::Own,
            root: ProcId { pid: 4_000_000, start: 1 },
            inner: None,
            cgroup: None,
            members: Vec::new(),
        }
    }

    /// It runs.
    pub fn running(&self) -> StateRecord {
        self.record(RecordedState::Running { tree: Self::tree(), outcome: None }, 0.5)
    }

    /// It is ready.
    pub fn ready(&self) -> StateRecord {
        let ready = self.moment(0.5);
        self.record(RecordedState::Ready { tree: Self::tree(), outcome: None, ready }, 0.5)
    }

    /// It has ended, or has survivors.
    pub fn ended(&self) -> StateRecord {
        self.record(RecordedState::after(&self.receipt(), Some(Self::tree()), None), self.lasted)
    }

    pub fn receipt(&self) -> Receipt {
        let step =
            |step, at| Step { moment: self.moment(at), step, note: String::new(), signals: Vec::new() };
        let mut steps = vec![step(StepKind::Running, 0.0)];
        if self.grace_used.is_some() || self.leaked {
            steps.push(step(StepKind::Ask, 0.1));
        }
        if self.killed {
            steps.push(step(StepKind::Kill, 0.2));
        }
        let root = ProcId { pid: 4_000_000, start: 1 };
        Receipt {
            schema: SCHEMA.into(),
            job: JobBrief {
                id: self.id(),
                name: self.name.map(str::to_owned),
                tags: self.tags(),
                command: vec!["sleep".into(), "1".into()],
                cwd: "/".into(),
                timeout: None,
            },
            boot_id: self.boot.clone(),
            started: self.moment(0.0),
            ended: self.moment(self.lasted),
            held: ContainmentInfo {
                containment: ContainmentKind::Reaper,
                session: SessionKind::Own,
                cgroup: None,
                defeated_by: Vec::new(),
            },
            cause: self.cause,
            actor: Actor::Program,
            root: RootReport { id: Some(root), outcome: self.outcome.clone() },
            ended_waiting: false,
            restart_limit_reached: false,
            left_at_root_exit: if self.leaked { vec![root] } else { Vec::new() },
            members: vec![Member {
                id: root,
                ppid: 1,
                pgid: 1,
                sid: 1,
                uid: 0,
                user: None,
                command: "sleep 1".into(),
                fate: match (self.killed, self.leaked) {
                    (true, _) => Fate::KilledAfterGrace,
                    (false, true) => Fate::ExitedOnAsk,
                    (false, false) => Fate::Exited,
                },
            }],
            members_omitted: 0,
            steps,
            survivors: Vec::new(),
            verdict: self.verdict.clone(),
            grace: Grace { asked: 5.0, used: self.grace_used },
            ask: AskScope::Tree,
            kill: self.killed.then_some(KillReason::GraceOver),
            usage: Usage::default(),
            output: Some(Output::default()),
            run: 1,
            warnings: Vec::new(),
        }
    }

    /// Puts it on record as running, kept as long as the lock is.
    pub fn live(&self, home: &Home) -> (JobId, Lock) {
        let job = home.job(self.id());
        let lock = job.create(&self.spec(), None).unwrap();
        job.append_state(&self.running()).unwrap();
        if let Some(name) = self.name {
            home.claim(name, self.id()).unwrap();
        }
        (self.id(), lock)
    }

    /// Ends it, as its keeper does.
    pub fn end(&self, job: &JobDir, lock: Lock) {
        job.write_receipt(&self.receipt()).unwrap();
        let record = self.ended();
        job.append_state(&record).unwrap();
        if record.state.is_ended() {
            job.mark_ended().unwrap();
        }
        // A process that another test forks in this instant has the file open too.
        lock.release();
    }

    /// Puts it on record and ends it.
    pub fn finish(&self, home: &Home) -> JobId {
        let (id, lock) = self.live(home);
        self.end(&home.job(id), lock);
        id
    }
}

/// `count` finished jobs, one a second.
pub fn finish(home: &Home, count: u64) -> Vec<JobId> {
    (0..count).map(|second| Fake::at(second).finish(home)).collect()
}

/// The jobs of a home.
pub fn quell(home: &Home) -> quell::Quell {
    quell::binary::open(home.clone(), "quell")
}

/// Removes old jobs.
pub fn gc(home: &Home, rules: &quell::GcRules, dry_run: bool) -> quell::Result<quell::GcReport> {
    quell(home).gc(rules, dry_run.into())
}

/// Sums over all finished jobs that ended at `since` or later and have all of `tags`.
pub fn stats(
    home: &Home,
    since: Option<SystemTime>,
    tags: &[quell::TagFilter],
) -> quell::Result<quell::Stats> {
    stats_of(home, &StatsFilter { since, tags: tags.to_vec(), ..StatsFilter::default() })
}
