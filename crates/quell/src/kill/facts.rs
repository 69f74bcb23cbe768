//! What the guard wants to know of a process.

use std::path::Path;

use quell_contain::{JOB_VARIABLE, KEEPER_NAME};
use quell_core::JobId;
use quell_core::guard::{Kin, ProcessFacts};
use quell_sys::Stat;

/// What quell's own processes are called; who calls itself so is left alone, too.
const QUELLS: [&str; 4] = [KEEPER_NAME, "quell-understud", "quell-aide", "quell-init"];

/// Gathers it. Good only if the process is pinned, and still alive afterwards.
pub(super) fn gather(stat: &Stat) -> ProcessFacts {
    let pid = stat.pid;
    let executed = quell_sys::executed(pid);
    let uid = quell_sys::effective_uid(pid).unwrap_or(0);
    let own = quell_sys::executed(quell_sys::pid());
    let same = |(dev, ino, _): &(u64, u64, _)| own.as_ref().is_some_and(|own| (own.0, own.1) == (*dev, *ino));
    ProcessFacts {
        pid,
        kernel_thread: is_kernels(stat),
        is_quell: executed.as_ref().is_some_and(same) || QUELLS.contains(&stat.comm.as_str()),
        names: names(stat, executed.as_ref().map(|(_, _, path)| path.as_path())),
        uid,
        user: quell_sys::user_name(uid),
        caller_uid: quell_sys::uid(),
        above_caller: kin(pid),
        job: job(pid),
        in_container: !quell_sys::in_first_pid_namespace(),
    }
}

/// A thread of the kernel, or something that the kernel has started by itself.
fn is_kernels(stat: &Stat) -> bool {
    stat.is_kernel_thread()
        || (stat.ppid != 0 && quell_sys::stat(stat.ppid).is_ok_and(|parent| parent.is_kernel_thread()))
}

fn names(stat: &Stat, executed: Option<&Path>) -> Vec<String> {
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let called = quell_sys::cmdline(stat.pid).first().and_then(|word| last(Path::new(word)));
    let file = executed.and_then(last);
    let file = file.map(|name| name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned));
    let mut names = vec![stat.comm.clone()];
    for name in [file, called].into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// How it stands to whoever called quell.
fn kin(pid: u32) -> Option<Kin> {
    let mut at = quell_sys::pid();
    // A chain of parents is no longer than there are processes; that it ends is certain only while nobody forks.
    for step in 0..1 << 16 {
        if at == pid {
            return Some(if step < 2 { Kin::Caller } else { Kin::Ancestor });
        }
        match quell_sys::stat(at) {
            Ok(stat) if stat.ppid > 0 => at = stat.ppid,
            Ok(_) | Err(_) => return None,
        }
    }
    None
}

/// The job that it is in, by its cgroup or by what its environment says, unless the caller is in the same one.
fn job(pid: u32) -> Option<String> {
    let id = |text: &str| text.parse::<JobId>().ok();
    let in_cgroup = |text: &str| {
        text.split(['/', '\n'])
            .rev()
            .filter_map(|part| part.strip_prefix("quell-"))
            .find_map(|rest| id(rest.trim_end_matches("-keeper").trim_end_matches(".scope")))
    };
    let of = |pid: u32, variable: Option<String>| {
        in_cgroup(&quell_sys::cgroups(pid)).or_else(|| variable.and_then(|text| id(&text)))
    };
    let theirs = of(pid, quell_sys::variable_of(pid, JOB_VARIABLE))?;
    let ours = of(quell_sys::pid(), std::env::var(JOB_VARIABLE).ok());
    (ours != Some(theirs)).then(|| theirs.to_string())
}
