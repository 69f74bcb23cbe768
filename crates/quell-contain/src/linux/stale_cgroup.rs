//! Cgroups that were left behind, by a keeper that was killed before it wrote a record or that could not remove its cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{Count, JobId, Lifecycle, Signal, StopPlan, Verdict};
use quell_sys::{Polled, Sources};

use super::cgroup_fs::{Cgroup, own_dir, remove_tree};
use super::keeper_cgroup::keeper_cgroups;
use super::stop_engine::{Pace, StopEngine, Tree};

/// A keeper opens its cgroup long before the cgroup is this old.
const NEW: Duration = Duration::from_secs(60);
/// How soon a kill is repeated: before Linux 6.14 it could miss a fork.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// A cgroup that is named for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleCgroup {
    pub id: JobId,
    pub path: PathBuf,
}

/// The cgroups that are named for a job: below our own cgroup, its ancestors, their cgroups of keepers, and `places`. Those of
/// live jobs are among them.
pub fn stale_cgroups(places: &[PathBuf]) -> Vec<StaleCgroup> {
    let own = own_dir().unwrap_or_default();
    let above = own.ancestors().take_while(|dir| dir.join("cgroup.procs").exists()).map(Path::to_owned);
    let all: BTreeSet<PathBuf> = above.chain(keeper_cgroups()).chain(places.iter().cloned()).collect();
    let entries = all.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut found: Vec<StaleCgroup> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix("quell-")?;
            let id = name.parse().ok()?;
            Some(StaleCgroup { id, path: entry.path() })
        })
        .filter(|stale| stale.path.join("cgroup.procs").exists())
        .collect();
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    found
}

impl StaleCgroup {
    /// Whether a living process is in it. True if that can't be read.
    pub fn is_populated(&self) -> bool {
        let events = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        !events.lines().any(|line| line == "populated 0")
    }

    /// Whether it can be removed without its job's record, which may be in another home: it is not new, it is empty, and no
    /// quell has it open to start a process in it.
    pub fn is_abandoned(&self) -> bool {
        let age = fs::metadata(&self.path).and_then(|metadata| metadata.modified());
        let old = age.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NEW));
        old && !self.is_populated() && !self.is_open()
    }

    fn is_open(&self) -> bool {
        let quells = quell_sys::pids().unwrap_or_default().into_iter().filter(|&pid| {
            pid != quell_sys::pid() && quell_sys::stat(pid).is_ok_and(|stat| stat.comm.starts_with("quell"))
        });
        quells.into_iter().any(|pid| match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries
                .flatten()
                .any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(&self.path))),
            // It has exited meanwhile. On any other error it belongs to another user, and may have the cgroup open.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
    }

    /// Kills the processes in it within `patience`, and removes it. Only for a job that is known to be over.
    pub fn clear(&self, patience: Duration) -> Result<(), String> {
        if own_dir().is_ok_and(|own| own.starts_with(&self.path)) {
            return Err("this quell is itself in it".into());
        }
        if self.is_populated() {
            self.kill(patience)?;
        }
        remove_tree(&self.path).map_err(|error| error.to_string())
    }

    fn kill(&self, patience: Duration) -> Result<(), String> {
        let cgroup = Cgroup::open(&self.path).map_err(|error| error.to_string())?;
        let plan = StopPlan { signal: Signal::KILL, verify: patience, ..StopPlan::default() };
        let (life, first) = Lifecycle::adopted(plan);
        let mut tree = StaleTree { cgroup, engine: StopEngine::new(life), refused: None };
        StopEngine::run_to_end(&mut tree, first);
        match (tree.engine.life.verdict(), tree.refused) {
            (Some(Verdict::Gone), _) => Ok(()),
            (_, Some(why)) => Err(why),
            (_, None) => Err("a process in it does not exit".into()),
        }
    }
}

/// The processes in a stale cgroup, while they are killed.
struct StaleTree {
    cgroup: Cgroup,
    engine: StopEngine,
    /// Why the kernel does not kill or count them.
    refused: Option<String>,
}

impl Tree for StaleTree {
    fn pace(&self) -> Pace {
        Pace { again: KILL_AGAIN, look: None, rest_factor: 0, longest_rest: Duration::ZERO }
    }

    fn engine(&mut self) -> &mut StopEngine {
        &mut self.engine
    }

    fn count(&mut self) -> Count {
        match self.cgroup.populated() {
            Ok(false) => return Count::Alive(0),
            Ok(true) => {}
            Err(error) => self.refused = Some(error.to_string()),
        }
        if self.refused.is_some() { Count::Refused(1) } else { Count::Alive(1) }
    }

    fn kill_round(&mut self) -> bool {
        self.cgroup.brake();
        self.refused = self.cgroup.kill().err().map(|error| error.to_string());
        true
    }

    fn wait(&mut self, until: Option<Instant>) {
        let mut sources = Sources::default();
        sources.add_any((), self.cgroup.events().map(Polled::Priority));
        let _ = sources.wait(until);
    }
}
