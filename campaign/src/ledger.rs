//! What is known of each job: what its program was to do, what the clients asked and were told, and what was done to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::worker_journal::Work;

/// What the nemesis did to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Its keeper was killed.
    Keeper,
    /// Its standby was killed.
    Standby,
    /// Both, neither of them able to act in between.
    Both,
    /// One of them was stopped for a while.
    Stopped,
    /// Its root was killed.
    Root,
    /// A record was damaged.
    Damaged,
    /// A record was closed to its user.
    Closed,
    /// Its socket was deleted.
    Socket,
    /// Its lock, its state or its directory was deleted.
    Deleted,
    /// Its record was rewritten, and its keepers were killed.
    Forged,
    /// Its cgroup was emptied and removed.
    Cgroup,
    /// Its machine was restarted, as far as it can tell.
    Reboot,
    /// Its keeper may open no more files.
    Files,
    /// The process it lived for was killed.
    Owner,
    /// The command that started it was killed, or met an injected fault.
    Start,
}

/// One job.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Its lineage: a restarted job has that of the old one.
    pub tag: String,
    pub work: Work,
    /// Whether a client was told that it runs.
    pub told: bool,
    /// Requests to stop it, those of `restart` included.
    pub stops: usize,
    /// Signals that clients sent to it, TERM and others.
    pub terms: usize,
    pub others: usize,
    /// Whether a client asked for its removal.
    pub removed: bool,
    /// Whether it is to be started again by its keeper.
    pub again: bool,
    /// Whether it has a time to live.
    pub timed: bool,
    pub harms: BTreeSet<Harm>,
    /// The command line of the orphan that it left in another PID namespace.
    pub orphan: Option<String>,
}

impl Job {
    pub fn suffered(&self, harms: &[Harm]) -> bool {
        harms.iter().any(|harm| self.harms.contains(harm))
    }

    /// Whether both keepers may be lost.
    pub fn lost(&self) -> bool {
        self.suffered(&[Harm::Both, Harm::Reboot, Harm::Start])
            || self.harms.contains(&Harm::Keeper)
                && self.suffered(&[Harm::Standby, Harm::Stopped, Harm::Files])
            // A keeper that starves, or is taken for dead while it sleeps, is killed by its standby.
            || self.harms.contains(&Harm::Standby) && self.suffered(&[Harm::Stopped, Harm::Files])
    }
}

/// All jobs of a scenario, by id.
#[derive(Debug, Default)]
pub struct Ledger {
    jobs: Mutex<BTreeMap<String, Job>>,
    /// How many `gc` have begun, and how many are done.
    gcs: AtomicUsize,
    gcs_done: AtomicUsize,
}

impl Ledger {
    pub fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known of a job. Its id may never have been printed.
    pub fn note(&self, id: &str, change: impl FnOnce(&mut Job)) {
        change(self.jobs().entry(id.to_owned()).or_default());
    }

    /// Notes what is about to be done to a job.
    pub fn harm(&self, id: &str, harm: Harm) {
        self.note(id, |job| {
            job.harms.insert(harm);
        });
    }

    /// What is known of a job now.
    pub fn get(&self, id: &str) -> Job {
        self.jobs().get(id).cloned().unwrap_or_default()
    }

    /// Notes that whatever has ended may be removed until `gc` is done.
    pub fn while_tidying(&self, gc: impl FnOnce()) {
        self.gcs.fetch_add(1, Ordering::SeqCst);
        self.told().iter().for_each(|id| self.note(id, |job| job.removed = true));
        gc();
        self.gcs_done.fetch_add(1, Ordering::SeqCst);
    }

    /// What [`Self::may_be_collected`] needs to know.
    pub fn gcs_done(&self) -> usize {
        self.gcs_done.load(Ordering::SeqCst)
    }

    /// Whether a `gc` was under way at some time since `before` was asked for: one that began a job then, and that ended at
    /// once, may hear of it when it is removed already.
    pub fn may_be_collected(&self, before: usize) -> bool {
        self.gcs.load(Ordering::SeqCst) > before
    }

    /// The ids of the jobs that a client was told of.
    pub fn told(&self) -> Vec<String> {
        self.jobs().iter().filter(|(_, job)| job.told).map(|(id, _)| id.clone()).collect()
    }
}
