//! The facts about a process that the guard decides by.

use std::path::Path;

use crate::{ProcessFacts, ProcessOwner, Relation};
use quell_contain::{JOB_VARIABLE, KEEPER_NAME};
use quell_core::JobId;
use quell_store::Home;
use quell_sys::Stat;

/// The names of quell's own processes. Any process with such a name is left alone.
const OWN_NAMES: [&str; 4] = [KEEPER_NAME, "quell-standby", "quell-helper", "quell-init"];

/// The kernel keeps this many bytes of a name.
const SHORT: usize = 15;

/// Reads the facts. They are about one process only if it is pinned, and still alive afterwards.
pub(super) fn gather(home: &Home, stat: &Stat) -> ProcessFacts {
    let pid = stat.pid;
    // The files of a leader thread that has exited are empty, but other threads may still run.
    let thread = quell_sys::living_thread(pid, stat);
    let executed = quell_sys::executed(thread);
    let words: Vec<String> =
        quell_sys::whole_cmdline(thread).iter().filter_map(|word| last(Path::new(word))).collect();
    let names = names(stat, &words, executed.as_deref());
    let job = OtherJob::of(home, stat, thread);
    ProcessFacts {
        pid,
        kernel_thread: is_of_kernel(stat),
        is_quell: is_own(stat)
            || names.iter().any(|name| name == "quell")
            || quell_sys::same_executable(thread, quell_sys::pid()),
        names,
        words,
        file_unknown: executed.is_none(),
        owners: owners(pid),
        caller_uid: quell_sys::uid(),
        above_caller: relation(pid),
        kept: matches!(job, Some(OtherJob::Unknown)),
        job: job.and_then(|job| job.id()),
        in_container: !quell_sys::in_first_pid_namespace(),
    }
}

fn owners(pid: u32) -> Vec<ProcessOwner> {
    // If nothing can be read, it counts as root's, to be safe.
    let uids: Vec<u32> = quell_sys::users_of(pid).map_or(vec![0], Vec::from);
    let mut owners: Vec<ProcessOwner> = Vec::new();
    for uid in uids {
        if !owners.iter().any(|owner| owner.uid == uid) {
            owners.push(ProcessOwner { uid, name: quell_sys::user_name(uid) });
        }
    }
    owners
}

/// Whether it is a thread of the kernel, or a program that the kernel started.
fn is_of_kernel(stat: &Stat) -> bool {
    stat.is_kernel_thread()
        || (stat.ppid != 0 && quell_sys::stat(stat.ppid).is_ok_and(|parent| parent.is_kernel_thread()))
}

/// Whether it is one of quell's own processes, by its name or its executable.
fn is_own(stat: &Stat) -> bool {
    OWN_NAMES.contains(&stat.comm.as_str()) || quell_sys::same_executable_file(stat.pid, quell_sys::pid())
}

fn last(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn names(stat: &Stat, words: &[String], executed: Option<&Path>) -> Vec<String> {
    let file = executed.and_then(last);
    let file = file.map(|name| name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned));
    // A script has the name of its file, cut by the kernel. The arguments of its interpreter have the whole name.
    let is_script = |word: &&String| stat.comm.len() == SHORT && word.starts_with(&stat.comm);
    let script = words.iter().skip(1).take(2).find(is_script).cloned();
    let mut names = vec![stat.comm.clone()];
    for name in [file, words.first().cloned(), script].into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The ancestors of a process, the nearest first. The limit is for a chain that changes while it is read.
fn above(pid: u32) -> impl Iterator<Item = Stat> {
    let parent = |pid: u32| {
        let ppid = quell_sys::stat(pid).ok()?.ppid;
        (ppid > 0).then(|| quell_sys::stat(ppid).ok())?
    };
    std::iter::successors(parent(pid), move |stat| parent(stat.pid)).take(1 << 16)
}

/// Its relation to the process that called quell.
fn relation(pid: u32) -> Option<Relation> {
    let own = quell_sys::pid();
    if pid == own {
        return Some(Relation::Caller);
    }
    if let Some(step) = above(own).position(|stat| stat.pid == pid) {
        return Some(if step == 0 { Relation::Caller } else { Relation::Ancestor });
    }
    // Without its parent, the caller is still in its session, and gets HUP when the session leader exits.
    let session = quell_sys::stat(own).is_ok_and(|stat| stat.sid == pid);
    session.then_some(Relation::Ancestor)
}

/// The job of a process, if it is not the caller's own.
enum OtherJob {
    Job(JobId),
    Unknown,
}

impl OtherJob {
    /// By its cgroup, its environment, or a keeper above it, in this order. An environment can be changed, so only the cgroup
    /// or the keeper can show that the process and the caller are in the same job.
    fn of(home: &Home, stat: &Stat, thread: u32) -> Option<Self> {
        let keeper = |pid: u32| above(pid).find(is_own).map(|stat| stat.id());
        let own = quell_sys::pid();
        let (theirs, ours) = (keeper(stat.pid), keeper(own));
        if theirs.is_some() && theirs == ours {
            return None;
        }
        let in_cgroup = in_cgroup(stat.pid);
        if in_cgroup.is_some() && in_cgroup == self::in_cgroup(own) {
            return None;
        }
        let said = || quell_sys::variable_of(thread, JOB_VARIABLE)?.parse::<JobId>().ok();
        if let Some(id) = in_cgroup.or_else(said) {
            return Some(Self::Job(id));
        }
        let keeper = theirs?;
        let live = home.live().unwrap_or_default();
        let kept = live.into_iter().find(|id| home.job(*id).is_kept_by(keeper, None));
        Some(kept.map_or(Self::Unknown, Self::Job))
    }

    fn id(&self) -> Option<String> {
        match self {
            Self::Job(id) => Some(id.to_string()),
            Self::Unknown => None,
        }
    }
}

fn in_cgroup(pid: u32) -> Option<JobId> {
    let text = quell_sys::cgroups(pid);
    let ours = text.split(['/', '\n']).rev().filter_map(|part| part.strip_prefix("quell-"));
    let id = |rest: &str| rest.trim_end_matches(".scope").trim_end_matches("-keeper").parse().ok();
    ours.filter_map(id).next()
}
