//! The audit: processes that carry the job's marker but are not descendants of ours, such as what another daemon started
//! with the job's environment.

use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{ProcId, Signal, SignalResult};
use quell_sys::{Polled, Stat};

use super::cgroup_fs::processes_in;
use super::keeper_cgroup::{Origin, cgroups_of, origin};
use super::member_log::MemberLog;
use super::stop::SignalRound;
use super::walk::{Pinned, pin};

/// The variable that marks a job's processes: the markers of all jobs that they are in, the outermost first, with colons
/// between them.
pub const MARK_VARIABLE: &str = "QUELL_MARK";

/// How processes of a job that are outside its tree are recognized: the one rule, for the keeper and after a loss.
///
/// The marker is unguessable and was given to no other process. But a job may have handed its environment to a service
/// manager, which gives it to services that are not the job's: a process in another cgroup than those of the job's
/// starter and keeper is left alone.
#[derive(Clone, Debug)]
pub(super) struct MarkerRule<'a> {
    /// The secret.
    pub marker: &'a str,
    /// No process of the job started earlier.
    pub not_before: u64,
    /// The cgroups in which a marked process is the job's, as [`cgroups_of`] gives them.
    pub starter_cgroups: Cow<'a, [String]>,
}

impl MarkerRule<'_> {
    /// Whether it carries the marker and is not older than the job. A hint until it is asked again behind a pin.
    pub fn matches(&self, stat: &Stat) -> bool {
        stat.start >= self.not_before && has_marker(stat.pid, self.marker)
    }

    /// Whether a process that carries the marker is the job's.
    pub fn is_in_starter_cgroup(&self, pid: u32) -> bool {
        self.starter_cgroups.contains(&cgroups_of(pid))
    }
}

/// Whether the environment of `pid` has this marker.
pub(super) fn has_marker(pid: u32, marker: &str) -> bool {
    let listed = |pid: u32| quell_sys::variable_lists(pid, MARK_VARIABLE, marker);
    // The environment can't be read through a leader thread that has exited while other threads live.
    let by_threads = || {
        quell_sys::stat(pid).is_ok_and(|stat| stat.state == b'Z' && stat.threads > 1)
            && threads(pid).any(|thread| listed(thread) == Some(true))
    };
    is_marker(marker) && listed(pid).unwrap_or_else(by_threads)
}

/// Whether it is a marker as quell makes them.
fn is_marker(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Kills the processes outside the tree that are the job's by `mark`, and waits for their ends for `patience` at most.
/// Those that are still alive then are returned, or why the processes could not be listed.
///
/// Each process is pinned first and read again behind the pin, so that a number that was reused in between does no harm.
pub(super) fn kill_marked(
    marker_rule: &MarkerRule<'_>,
    member_log: &mut MemberLog,
    patience: Duration,
) -> (SignalRound, io::Result<Vec<ProcId>>) {
    let deadline = Instant::now() + patience;
    let mut round = SignalRound::default();
    let (me, uid) = (quell_sys::pid(), quell_sys::uid());
    let here = origin();
    // Whoever is found may have forked meanwhile; a pass that finds nobody ends the search.
    for _ in 0..16 {
        let mut found = Vec::new();
        let pids = match candidates(&here) {
            Ok(pids) => pids,
            Err(error) => return (round, Err(error)),
        };
        for pid in pids {
            // The cheapest question first: of most of them it is the only one.
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
            // A refused signal will not work for being waited for.
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

/// Who may be in the cgroups `here`: the members of its cgroup v2, if they can be listed, else everybody.
fn candidates(here: &Origin) -> io::Result<Vec<u32>> {
    here.dir().and_then(processes_in).map_or_else(quell_sys::pids, Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_everybody_bears_is_no_marker() {
        for text in ["", "PATH=", "HOME=/root", "/usr/local/sbin:/usr/local/bin:/", "0", &"0".repeat(33)] {
            assert!(!is_marker(text), "{text}");
        }
        assert!(is_marker("00112233445566778899aabbccddeeff"));
    }
}
