//! The audit: processes that bear the job's marker but are no descendants of ours, such as what another daemon started
//! with the job's environment.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_core::{ProcId, Signal, SignalResult};
use quell_sys::{PidFd, Polled};

use super::cgroup::processes_in;
use super::nest::{Origin, cgroups_of, origin};
use super::roll::{Roll, identity};
use super::stop::Round;

/// Kills whoever bears `marker` and started no earlier than the job, and waits for their ends for `patience` at most.
/// Who is still alive then is returned.
///
/// The marker is unguessable and was given to nobody but the job. But a job may have handed its environment to a service
/// manager, which gives it to services that are none of its business: whoever was put into another cgroup than that of
/// whoever started the job is left alone. Each process is pinned first and read again behind the pin, so that a number that
/// was reused in between does no harm.
pub fn audit(marker: &str, born: u64, roll: &mut Roll, patience: Duration) -> (Round, Vec<ProcId>) {
    let deadline = Instant::now() + patience;
    let mut round = Round::default();
    let (me, uid) = (quell_sys::pid(), quell_sys::uid());
    let here = origin();
    // Whoever is found may have forked meanwhile; a pass that finds nobody ends the search.
    for _ in 0..16 {
        let mut found = Vec::new();
        for pid in candidates(&here) {
            // The cheapest question first: of most of them it is the only one.
            if pid == me
                || quell_sys::keeps_or_is_kernels(pid)
                || (uid != 0 && quell_sys::uid_of(pid).ok() != Some(uid))
                || !quell_sys::environ_contains(pid, marker)
            {
                continue;
            }
            let Ok(pidfd) = PidFd::open(pid) else { continue };
            let Ok(stat) = quell_sys::stat(pid) else { continue };
            let ours = stat.start >= born
                && cgroups_of(pid) == here.cgroups
                && quell_sys::environ_contains(pid, marker);
            if ours && pidfd.is_alive() {
                found.push((stat, pidfd));
            }
        }
        if found.is_empty() {
            return (round, Vec::new());
        }
        for (stat, pidfd) in &found {
            roll.see(stat);
            roll.killed(identity(stat));
            let result = pidfd.signal(Signal::KILL);
            round.push(Signal::KILL, identity(stat), result);
        }
        let mut left = Vec::new();
        for (stat, pidfd) in &found {
            // A refused signal will not work for being waited for.
            let refused = round
                .signals
                .iter()
                .any(|sent| sent.to == identity(stat) && sent.result == SignalResult::Refused);
            let until = if refused { Instant::now() } else { deadline };
            let _ = quell_sys::poll_until(&[Polled::Read(pidfd.as_fd())], Some(until));
            if pidfd.is_alive() {
                left.push(identity(stat));
            }
        }
        if !left.is_empty() {
            return (round, left);
        }
    }
    (round, Vec::new())
}

/// Who may be in the cgroups `here`: the members of its cgroup v2, if they can be listed, else everybody.
fn candidates(here: &Origin) -> Vec<u32> {
    let listed = here.dir().and_then(processes_in);
    listed.unwrap_or_else(|| quell_sys::pids().unwrap_or_default())
}
