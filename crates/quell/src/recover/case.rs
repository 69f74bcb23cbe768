//! What the record of a job without a keeper says, and what the kernel says about the same job.

use std::io;
use std::time::{Duration, Instant};

use quell_contain::OrphanedJob;
use quell_core::{JobSpec, ProcId, RecordedState, RecordedTree, SessionKind, StateRecord, StopPlan};
use quell_store::{JobDir, Lock};

use super::{Keepers, LOOK_AGAIN};
use crate::{Error, Result};

/// How long a child that was never let go may take to exit after its keeper. Only its parent gets an event for that.
const STUB_EXIT: Duration = Duration::from_secs(1);

/// What is to be done about a job without a keeper.
pub(crate) enum RecoveryCase {
    /// It has a keeper after all: its standby is about to take over.
    Kept,
    /// Its program never ran.
    NeverRan(Option<Box<JobSpec>>),
    /// It has ended already. Its receipt may be missing.
    Ended(LostJob),
    /// It ran before the host was restarted: no process of it can be alive.
    Rebooted(LostJob),
    /// It may be alive.
    Lost(LostJob),
}

impl RecoveryCase {
    /// In a few words, for diagnostics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Kept => "it has a keeper",
            Self::NeverRan(_) => "its program never ran",
            Self::Ended(_) => "it has ended already",
            Self::Rebooted(_) => "it is of another boot",
            Self::Lost(_) => "its keepers are gone",
        }
    }

    /// Reads the record, which the job can delete and rewrite, and looks at what it can't. The caller holds the lock.
    pub(crate) fn of(job: &JobDir, lock: &Lock, keepers: Keepers) -> Result<Self> {
        let failed = |error| Error::Io { path: job.dir().to_owned(), error };
        let is_damaged =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData);
        let spec = match job.recorded_spec() {
            Ok(spec) => Some(Box::new(spec)),
            Err(error) if is_damaged(&error) => None,
            Err(error) => return Err(failed(error)),
        };
        let never_ran = || never_ran(job, lock, spec.as_deref());
        let record = match job.record() {
            Ok(record) => Some(Box::new(record)),
            // The program is let go only when its identity is on record.
            Err(error) if error.kind() == io::ErrorKind::NotFound && never_ran() => {
                return Ok(Self::NeverRan(spec));
            }
            Err(error) if is_damaged(&error) => None,
            Err(error) => return Err(failed(error)),
        };
        let other_boot = spec.as_ref().is_some_and(|spec| spec.boot_id != quell_sys::boot_id());
        if let Some(record) = &record {
            if keepers == Keepers::Unknown && !other_boot && has_keeper(job, record) {
                return Ok(Self::Kept);
            }
            // A standby that took over before there was a root had no tree to put on record.
            let has_no_tree = matches!(record.state, RecordedState::Stopping { tree: None, .. });
            if has_no_tree && record.run == 1 && never_ran() {
                return Ok(Self::NeverRan(spec));
            }
        }
        let says_ended = record.as_ref().is_some_and(|record| record.state.is_ended());
        let lost = LostJob::new(job, spec, record);
        let orphaned = lost.orphaned(job);
        let root = orphaned.root.filter(|_| keepers == Keepers::Unknown);
        if let Some((keeper, home)) = root.and_then(|root| quell_contain::living_keeper(job.id(), root)) {
            return Err(Error::KeptElsewhere { id: job.id(), keeper, home });
        }
        // The job can rewrite its record, but neither its id nor what the kernel shows.
        let rebooted = other_boot
            && quell_contain::earliest_start(job.id()) == 0
            && quell_contain::living_members(&orphaned).is_ok_and(|members| members.is_empty());
        // That it has ended was written by a keeper that was killed right after, or by the job itself.
        let may_live = || lost.elsewhere || quell_contain::why_maybe_alive(&orphaned).is_some();
        if says_ended && (rebooted || !may_live()) {
            return Ok(Self::Ended(lost));
        }
        Ok(if rebooted { Self::Rebooted(lost) } else { Self::Lost(lost) })
    }
}

/// What is known of a lost job.
pub(crate) struct LostJob {
    pub(super) spec: Option<Box<JobSpec>>,
    pub(super) record: Option<Box<StateRecord>>,
    /// Its marker, from a file of the record that is not damaged.
    pub(super) marker: String,
    /// Whether the PIDs on record are of this boot and of this PID namespace.
    pids_are_valid: bool,
    /// Whether it ran in a PID namespace whose processes can't be seen from here.
    pub(super) elsewhere: bool,
}

impl LostJob {
    pub(crate) fn new(job: &JobDir, spec: Option<Box<JobSpec>>, record: Option<Box<StateRecord>>) -> Self {
        let of_spec = spec.as_ref().map(|spec| spec.marker.clone());
        let of_record = record.as_ref().map(|record| record.marker.clone());
        let marker = choose_marker(job, of_spec, of_record);
        let namespace = quell_sys::own_pid_namespace();
        let same_namespace = |spec: &JobSpec| [0, namespace].contains(&spec.pid_namespace);
        let same_boot = |spec: &JobSpec| spec.boot_id == quell_sys::boot_id();
        let pids_are_valid = spec.as_ref().is_some_and(|spec| same_boot(spec) && same_namespace(spec));
        // From the first namespace all processes can be seen.
        let elsewhere =
            !quell_sys::in_first_pid_namespace() && spec.as_ref().is_some_and(|spec| !same_namespace(spec));
        Self { spec, record, marker, pids_are_valid, elsewhere }
    }

    /// Where to look for its processes. PIDs that may be of another boot or PID namespace are not used.
    pub(crate) fn orphaned(&self, job: &JobDir) -> OrphanedJob<'_> {
        let (record, tree) = (self.record.as_deref(), self.tree());
        let with_pids = tree.filter(|_| self.pids_are_valid);
        let survivors = record.filter(|_| self.pids_are_valid).and_then(|record| record.state.survivors());
        OrphanedJob {
            id: job.id(),
            held: tree.map(|tree| tree.containment),
            root: with_pids.map(|tree| tree.root),
            cgroup: tree.and_then(|tree| tree.cgroup.as_deref()),
            session: tree.map_or(SessionKind::Shared, |tree| tree.session),
            marker: &self.marker,
            starter_cgroups: record.map_or(&[], |record| &record.home_cgroups),
            members: with_pids.map_or(&[], |tree| &tree.members),
            survivors: survivors.unwrap_or_default(),
        }
    }

    /// Whether its record names survivors of an earlier stop.
    pub(crate) fn has_survivors(&self) -> bool {
        self.state().and_then(RecordedState::survivors).is_some()
    }

    pub(super) fn state(&self) -> Option<&RecordedState> {
        self.record.as_deref().map(|record| &record.state)
    }

    pub(super) fn tree(&self) -> Option<&RecordedTree> {
        self.state().and_then(RecordedState::tree)
    }

    pub(super) fn plan(&self) -> StopPlan {
        self.spec.as_ref().map_or_else(StopPlan::default, |spec| spec.request.stop)
    }

    /// How long the job has run, in seconds.
    pub(super) fn age(&self) -> f64 {
        let since_birth = self.tree().map(|tree| quell_sys::seconds_since(tree.root.start));
        since_birth.unwrap_or(0.0).max(self.last_known())
    }

    /// When its state was last written, in seconds since its start.
    pub(super) fn last_known(&self) -> f64 {
        self.record.as_ref().map_or(0.0, |record| record.since.at)
    }
}

/// The marker of a job by the files of its record, any of which may be damaged. If they differ: the one that two of them
/// have, or that a living process carries.
fn choose_marker(job: &JobDir, of_spec: Option<String>, of_record: Option<String>) -> String {
    let is_whole =
        |marker: &String| marker.len() == 32 && marker.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (of_spec.filter(is_whole), of_record.filter(is_whole)) {
        (Some(one), Some(other)) if one == other => one,
        (spec, record) => {
            let launch = job.launch().ok().map(|launch| launch.marker).filter(is_whole);
            let found: Vec<String> = spec.into_iter().chain(record).chain(launch).collect();
            let is_twice = |marker: &&String| found.iter().filter(|other| other == marker).count() > 1;
            let is_carried = |marker: &&String| {
                let members = || quell_contain::living_members(&only_marked(job, marker));
                found.len() > 1 && members().is_ok_and(|members| !members.is_empty())
            };
            let chosen = found.iter().find(is_twice).or_else(|| found.iter().find(is_carried));
            chosen.or_else(|| found.first()).cloned().unwrap_or_default()
        }
    }
}

/// Whether a process on record is alive and keeps the job. The keepers of a background job have its lock open; a front opens
/// it only when it takes over, so it is known by its identity.
fn has_keeper(job: &JobDir, record: &StateRecord) -> bool {
    let in_foreground = || job.spec().is_ok_and(|spec| spec.request.is_foreground());
    let keeps = |id: ProcId| quell_contain::is_alive(id) && job.is_kept_by(id, None);
    let is_front = |id: ProcId| quell_contain::is_alive(id) && quell_sys::is_quell(id.pid) && in_foreground();
    record.keeper.is_some_and(keeps) || record.standby.is_some_and(|id| keeps(id) || is_front(id))
}

/// Whether the program never ran: the lock of the job is as it was made, and the kernel shows no process of it. A child that
/// was never let go exits by itself after its keeper.
fn never_ran(job: &JobDir, lock: &Lock, spec: Option<&JobSpec>) -> bool {
    let until = Instant::now() + STUB_EXIT;
    while lock.is_as_made(job.id()) {
        if quell_contain::living_members(&without_root(job, spec)).is_ok_and(|members| members.is_empty()) {
            return true;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}

/// What may be left of a job whose program never ran: its cgroup.
pub(super) fn without_root<'a>(job: &JobDir, spec: Option<&'a JobSpec>) -> OrphanedJob<'a> {
    only_marked(job, spec.map_or("", |spec| &spec.marker))
}

/// A job of which only the marker is known.
fn only_marked<'a>(job: &JobDir, marker: &'a str) -> OrphanedJob<'a> {
    OrphanedJob {
        id: job.id(),
        held: None,
        root: None,
        cgroup: None,
        session: SessionKind::Shared,
        marker,
        starter_cgroups: &[],
        members: &[],
        survivors: &[],
    }
}
