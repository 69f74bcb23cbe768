//! What holds a tree: one of four backends, each in its own file. `ladder` chooses. All matches over
//! the four are in this file.

mod cgroup;
mod ladder;
mod pidns;
mod reaper;
mod scope;

use std::io;

use quell_core::{ContainmentKind, JobId, ProcId, RootOutcome};
use quell_sys::{ChildRules, Launch, Polled, Program};

use super::cgroup_fs::{Cgroup, own_dir};
use super::containment::{Birth, KeeperReport, SpawnError};
use super::stop::SignalRound;
use cgroup::JobCgroup;
pub(super) use ladder::acquire;
use pidns::Pidns;
use reaper::Reaper;
pub(super) use scope::BUS_PATIENCE;
use scope::SystemdScope;

#[derive(Debug)]
pub(super) enum Backend {
    Reaper(Reaper),
    Cgroup(JobCgroup),
    Scope(SystemdScope),
    Pidns(Pidns),
}

/// A stub that waits until it may execute the program.
pub(super) struct Spawned {
    /// Our direct child.
    pub pid: u32,
    pub birth: Birth,
    /// Whether it is inside the containment, or why not.
    pub held: Result<(), String>,
}

/// Whether and how a root has ended.
pub(super) enum RootExit {
    NotYet,
    /// None if the init of a PID namespace was killed before it could report the outcome.
    Ended(Option<RootOutcome>),
}

/// How a tree is kept from growing while it is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Brake {
    /// The kernel prevents new processes.
    Held,
    /// Nothing prevents them: each member has to be stopped.
    StopMembers,
}

impl Backend {
    /// The reaper, which needs nothing.
    pub fn reaper() -> Self {
        Self::Reaper(Reaper)
    }

    /// What held the tree of a lost keeper, if it still exists.
    pub fn reopen(id: JobId, reported: &KeeperReport) -> Self {
        match reported.held {
            Some(ContainmentKind::Pidns) => Self::Pidns(Pidns::reopen()),
            Some(ContainmentKind::Scope) => Self::Scope(SystemdScope::reopen(reported_cgroup(id, reported))),
            // A keeper that was lost before its first report may have made the cgroup.
            Some(ContainmentKind::Cgroup | ContainmentKind::Reaper) | None => {
                let cgroup = reported_cgroup(id, reported).map(JobCgroup::reopen);
                cgroup.map_or_else(Self::reaper, Self::Cgroup)
            }
        }
    }

    pub fn kind(&self) -> ContainmentKind {
        match self {
            Self::Reaper(_) => ContainmentKind::Reaper,
            Self::Cgroup(_) => ContainmentKind::Cgroup,
            Self::Scope(_) => ContainmentKind::Scope,
            Self::Pidns(_) => ContainmentKind::Pidns,
        }
    }

    /// The cgroup that holds the tree, if any.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::Cgroup(backend) => Some(backend.cgroup()),
            Self::Scope(backend) => backend.cgroup(),
            Self::Reaper(_) | Self::Pidns(_) => None,
        }
    }

    /// Whether our direct child is an init of quell's own, above the root.
    pub fn has_init(&self) -> bool {
        matches!(self, Self::Pidns(_))
    }

    /// Makes the stub. On an error, no process is left.
    pub fn spawn(&mut self, id: JobId, program: &Program, rules: &ChildRules) -> Result<Spawned, SpawnError> {
        match self {
            Self::Reaper(backend) => backend.spawn(program, rules),
            Self::Cgroup(backend) => backend.spawn(program, rules),
            Self::Scope(backend) => backend.spawn(id, program, rules),
            Self::Pidns(backend) => backend.spawn(program, rules),
        }
    }

    /// What the keeper must poll in addition to SIGCHLD.
    pub fn source(&self) -> Option<Polled<'_>> {
        match self {
            Self::Pidns(backend) => backend.source(),
            Self::Reaper(_) | Self::Cgroup(_) | Self::Scope(_) => {
                self.cgroup().and_then(Cgroup::events).map(Polled::Priority)
            }
        }
    }

    /// How the root ended. `child` is our direct child, which stays unreaped.
    pub fn root_exit(&mut self, child: ProcId) -> RootExit {
        match self {
            Self::Pidns(backend) => backend.root_exit(child),
            Self::Reaper(_) | Self::Cgroup(_) | Self::Scope(_) => match quell_sys::peek(child.pid) {
                Ok(Some(exit)) => RootExit::Ended(Some(exit.outcome)),
                Ok(None) | Err(_) => RootExit::NotYet,
            },
        }
    }

    /// Whether job control has stopped the root since the last call.
    pub fn take_root_stop(&mut self, child: Option<ProcId>) -> bool {
        match self {
            Self::Pidns(backend) => backend.take_root_stop(),
            Self::Reaper(_) | Self::Cgroup(_) | Self::Scope(_) => {
                child.is_some_and(|child| quell_sys::take_stop(child.pid))
            }
        }
    }

    /// Keeps the tree from growing while it is killed.
    pub fn brake(&self) -> Brake {
        match self {
            Self::Reaper(_) => Brake::StopMembers,
            Self::Cgroup(_) | Self::Scope(_) | Self::Pidns(_) => {
                if let Some(cgroup) = self.cgroup() {
                    cgroup.brake();
                }
                Brake::Held
            }
        }
    }

    /// Kills what the kernel can kill as a whole. `child` is our direct child.
    pub fn kill(&self, child: Option<ProcId>, round: &mut SignalRound) {
        match self {
            Self::Reaper(_) => {}
            Self::Cgroup(_) | Self::Scope(_) => {
                if let Some(cgroup) = self.cgroup() {
                    round.kill_cgroup(cgroup);
                }
            }
            Self::Pidns(backend) => backend.kill(child, round),
        }
    }

    /// Removes what was made for the job. Fails while a process is in it.
    pub fn release(&self) -> io::Result<()> {
        match self {
            Self::Cgroup(backend) => backend.release(),
            // systemd removes the directory of a scope when it is empty.
            Self::Reaper(_) | Self::Scope(_) | Self::Pidns(_) => Ok(()),
        }
    }
}

/// What defeats every containment except a PID namespace.
const ENTERED: &str = "a descendant that entered the PID namespace of another program: its orphans there are not killed, and the \
     verdict is `unproven` while one may be alive; one that has cleared its environment, and is in that program's cgroup \
     and mounts, can't be told from its own processes";

/// What can defeat a containment, as text for receipts, `quell status` and `quell doctor`.
pub fn defeated_by(kind: ContainmentKind) -> Vec<String> {
    let common = [
        "a process that another program starts on the job's behalf (a service manager, a container engine, at, cron)",
        "a process in uninterruptible sleep, until the kernel lets go of it",
    ];
    let own = match kind {
        ContainmentKind::Reaper => reaper::DEFEATED_BY,
        ContainmentKind::Cgroup | ContainmentKind::Scope => cgroup::DEFEATED_BY,
        ContainmentKind::Pidns => pidns::DEFEATED_BY,
    };
    own.iter().chain(&common).map(|&text| text.to_owned()).collect()
}

/// The cgroup of a lost keeper. If the keeper did not report it, it is found by its name.
fn reported_cgroup(id: JobId, reported: &KeeperReport) -> Option<Cgroup> {
    let named = || Some(reported.base.clone().or_else(|| own_dir().ok())?.join(Cgroup::name(id)));
    Cgroup::open(&reported.cgroup.clone().or_else(named)?).ok()
}

/// Makes a stub in our own PID namespace, inside the cgroup if there is one. The second value tells whether it started inside.
fn launch(
    program: &Program,
    rules: &ChildRules,
    cgroup: Option<&Cgroup>,
) -> Result<(Spawned, bool), SpawnError> {
    let launch = Launch { program, rules, cgroup: cgroup.map(Cgroup::dir) };
    let stub = quell_sys::launch(&launch).map_err(SpawnError::Process)?;
    let birth = Birth { go: stub.go, status: stub.status };
    Ok((Spawned { pid: stub.child.pid(), birth, held: Ok(()) }, stub.in_cgroup))
}
