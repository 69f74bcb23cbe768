//! The search for processes that carry the job's marker and are not our descendants. Another daemon can have started them with
//! the job's environment.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{ProcId, Signal, SignalResult};
use quell_sys::{Polled, Stat};

use super::cgroup_fs::processes_in;
use super::keeper_cgroup::{Origin, cgroups_of, origin};
use super::member_log::MemberLog;
use super::stop::SignalRound;
use super::walk::{Pinned, pin};

/// The variable that marks a job's processes. It lists the markers of all jobs that they are in, outermost first, separated by
/// colons.
pub const MARK_VARIABLE: &str = "QUELL_MARK";

/// How members outside the tree are recognized. The keeper and a recovery use the same rule.
///
/// The marker can't be guessed, and only the job's processes get it. But a job can pass its environment to a service manager,
/// which passes it to services that are not the job's. So a marked process is left alone unless it is in a cgroup of the job's
/// starter or keeper.
#[derive(Clone, Debug)]
pub(super) struct MarkerRule<'a> {
    /// The secret that the job's processes have in their environment.
    pub marker: &'a str,
    /// No process of the job has an earlier start time.
    pub not_before: u64,
    /// The cgroups of the job's starter and keeper, in the form of [`cgroups_of`].
    pub starter_cgroups: Cow<'a, [String]>,
}

impl MarkerRule<'_> {
    /// Whether the process carries the marker and is not older than the job. Only a hint, unless the process is pinned.
    pub fn matches(&self, stat: &Stat) -> bool {
        stat.start >= self.not_before && has_marker(stat.pid, self.marker)
    }

    /// Whether a process that carries the marker is a member.
    pub fn is_in_starter_cgroup(&self, pid: u32) -> bool {
        self.starter_cgroups.contains(&cgroups_of(pid))
    }
}

/// Whether the environment of `pid` lists this marker.
pub(super) fn has_marker(pid: u32, marker: &str) -> bool {
    let listed = |pid: u32| quell_sys::variable_lists(pid, MARK_VARIABLE, marker);
    // The environment can't be read through a leader thread that has exited while other threads live.
    let by_threads = || {
        quell_sys::stat(pid).is_ok_and(|stat| stat.state == b'Z' && stat.threads > 1)
            && threads(pid).any(|thread| listed(thread) == Some(true))
    };
    is_marker(marker) && listed(pid).unwrap_or_else(by_threads)
}

/// Whether the text has the form of a marker. Other texts could occur in any environment.
fn is_marker(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Kills the members outside the tree and waits up to `patience` for them to exit. Returns those that are still alive, or an
/// error if the processes can't be listed.
///
/// They are looked for in the cgroup of the job's starter, and in `keeper_dir` if the job's processes start there. Each process is
/// pinned and then read again, so that a reused PID does no harm.
pub(super) fn kill_marked(
    marker_rule: &MarkerRule<'_>,
    keeper_dir: Option<PathBuf>,
    member_log: &mut MemberLog,
    patience: Duration,
) -> (SignalRound, io::Result<Vec<ProcId>>) {
    let deadline = Instant::now() + patience;
    let mut round = SignalRound::default();
    let (me, uid) = (quell_sys::pid(), quell_sys::uid());
    let here = origin();
    // A process that was found can have forked in the meantime, so only a pass without a find ends the search.
    for _ in 0..16 {
        let mut found = Vec::new();
        let pids = match candidates(&here, keeper_dir.as_deref()) {
            Ok(pids) => pids,
            Err(error) => return (round, Err(error)),
        };
        for pid in pids {
            // The cheapest check first: for most processes it is the only one.
            if pid == me
                || quell_sys::is_keeper_or_kernel_thread(pid)
                || (uid != 0 && quell_sys::uid_of(pid).ok() != Some(uid))
                || !has_marker(pid, marker_rule.marker)
            {
                continue;
            }
            let is_marked = |stat: &Stat| marker_rule.matches(stat) && marker_rule.is_in_starter_cgroup(pid);
            found.extend(pin(pid, is_marked).map(|Pinned { stat, pidfd }| (stat, pidfd)));
        }
        if found.is_empty() {
            return (round, Ok(Vec::new()));
        }
        for (stat, pidfd) in &found {
            member_log.note(stat);
            member_log.killed(stat.id(), pidfd);
            let result = pidfd.signal(Signal::KILL);
            round.push(Signal::KILL, stat.id(), result);
        }
        let mut left = Vec::new();
        for (stat, pidfd) in &found {
            // Waiting does not help if the signal was refused.
            let refused =
                round.signals.iter().any(|sent| sent.to == stat.id() && sent.result == SignalResult::Refused);
            let until = if refused { Instant::now() } else { deadline };
            let _ = quell_sys::poll_until(&[Polled::Read(pidfd.as_fd())], Some(until));
            if pidfd.is_alive() {
                left.push(stat.id());
            }
        }
        if !left.is_empty() {
            return (round, Ok(left));
        }
    }
    (round, Ok(Vec::new()))
}

/// The processes that may be in the cgroups `here` or in `keeper_dir`: the members of these if they can be listed, else all
/// processes.
fn candidates(here: &Origin, keeper_dir: Option<&Path>) -> io::Result<Vec<u32>> {
    let listed = here.dir().into_iter().chain(keeper_dir).map(processes_in).collect::<Option<Vec<_>>>();
    listed.filter(|_| here.dir().is_some()).map_or_else(quell_sys::pids, |pids| Ok(pids.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_word_is_not_a_marker() {
        for text in ["", "PATH=", "HOME=/root", "/usr/local/sbin:/usr/local/bin:/", "0", &"0".repeat(33)] {
            assert!(!is_marker(text), "{text}");
        }
        assert!(is_marker("00112233445566778899aabbccddeeff"));
    }
}
