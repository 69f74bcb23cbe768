//! The search for the members of a job that nobody keeps any more, by a process that is no ancestor of them.
//!
//! What makes a living process a member, each checked behind a pin:
//! - it is the recorded root: pid and start time, and what quell made of it: the leader of a session of its own, the init
//!   of a PID namespace, or in a shared session at least the marker or the cgroup. A record can be rewritten by any
//!   process of the user, a session can't;
//! - it is in the job's cgroup;
//! - it bears the job's marker, and no service manager has put it into a service of its own;
//! - its parent is a member;
//! - it is in the session that the root made, while a member that was proven otherwise is in it too. The number of a
//!   session can't be another's as long as somebody is in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_core::{HeldBy, JobId, ProcId, SessionKind};
use quell_sys::Stat;

use super::cgroup::{Cgroup, cgroup2_mount, dir_of, v2_path};
use super::nest::cgroups_of;
use super::roll::identity;
use super::walk::{Below, Proven, Seen, pin, walk_below};

/// How long, and for how many looks, a hunt waits for somebody to be born. Who does not get to run in this time is found by
/// a pass.
const QUIET: Duration = Duration::from_millis(3);
const QUIET_LOOKS: usize = 200;
/// After how many births of others, or of processes that were gone too soon to be known, a hunt is given up; or after how
/// few, if they took so long that a chain would have had its turn.
const STRANGERS: usize = 4096;
const FEW_STRANGERS: usize = 64;
const COLD: Duration = Duration::from_millis(500);

/// What the record says of a job whose keeper and understudy are gone.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// Which job.
    pub id: JobId,
    /// What held it, as far as that was written down.
    pub held: Option<HeldBy>,
    /// Its root, or the init of its PID namespace. None: no instruction of the program has run, or nobody knows.
    pub root: Option<ProcId>,
    /// Its cgroup. Used only if it is named as one of quell's.
    pub cgroup: Option<&'a Path>,
    /// Whose session the root was in.
    pub session: SessionKind,
    /// The job's marker; empty where it is not known.
    pub marker: &'a str,
    /// Who was named as a survivor. A record can be rewritten, so nobody is signalled for being named there; but while one
    /// of them lives, the job is not gone.
    pub survivors: &'a [ProcId],
}

/// How a member is got hold of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bond {
    /// It is in the job's cgroup.
    Cgroup,
    /// It is the init of the job's PID namespace.
    Init,
    /// It is below that, and goes with it.
    Namespace,
    /// Nothing holds it.
    Loose,
}

/// The variable that names a job to its own processes.
pub const JOB_VARIABLE: &str = "QUELL_JOB";

/// The search for one job's members.
pub(super) struct Search<'a> {
    left: &'a Left<'a>,
    cgroup: Option<&'a Cgroup>,
    hierarchy: Option<Hierarchy>,
    /// The services in which the job may be at home.
    services: BTreeSet<String>,
    /// What the job's processes have in their environment.
    marker: Option<String>,
}

impl<'a> Search<'a> {
    pub(super) fn new(left: &'a Left<'a>, cgroup: Option<&'a Cgroup>) -> Self {
        let mut services = services_of(quell_sys::pid());
        if let Some(root) = left.root.filter(|root| super::is_alive(*root)) {
            services.extend(services_of(root.pid));
        }
        services.extend(left.cgroup.and_then(|path| service_in(&path.to_string_lossy())));
        let marker = match left.marker {
            // It can't be read any more. The id is no secret, but nobody has it in this place who was not given it.
            "" => Some(format!("{JOB_VARIABLE}={}", left.id)),
            marker => Some(marker.to_owned()).filter(|marker| is_marker(marker)),
        };
        Self { left, cgroup, hierarchy: Hierarchy::find(), services, marker }
    }

    /// Shows every living member once. Like each walk it races with forks: only a pass that shows nobody new says anything.
    /// What bears the marker in another service is left alone, and returned.
    pub(super) fn pass(&self, mut show: impl FnMut(&Seen, Bond)) -> Vec<ProcId> {
        let mut pass = Pass { search: self, known: BTreeSet::new(), seeds: Vec::new(), anchors: Vec::new() };
        if let Some(root) = self.left.root
            && let Some(seen) = pin(root.pid, |stat| self.is_root(stat))
        {
            let init = self.left.held == Some(HeldBy::Pidns);
            let bond = if init { Bond::Init } else { self.bond(root.pid) };
            pass.meet(&seen, bond, &mut show);
            if init {
                pass.descend(|_| Bond::Namespace, &mut show);
            }
        }
        for pid in self.cgroup.map(Cgroup::members).unwrap_or_default() {
            if let Some(seen) = pin(pid, |_| self.bond(pid) == Bond::Cgroup) {
                pass.meet(&seen, Bond::Cgroup, &mut show);
            }
        }
        let mut elsewhere = Vec::new();
        for pid in quell_sys::pids().unwrap_or_default() {
            if !self.bears_marker(pid) {
                continue;
            }
            // Asked again behind the pin.
            let Some(seen) = pin(pid, |stat| self.is_marked(stat)) else { continue };
            if self.is_at_home(pid) {
                pass.meet(&seen, self.bond(pid), &mut show);
            } else if pass.known.insert(identity(&seen.stat)) {
                elsewhere.push(identity(&seen.stat));
            }
        }
        pass.descend(|pid| self.bond(pid), &mut show);
        pass.meet_session(&mut show);
        pass.descend(|pid| self.bond(pid), &mut show);
        elsewhere
    }

    /// Looks for a chain of processes that fork and die, each gone before a pass gets to it: at the newest pid, over and
    /// over, until nobody is born any more, or so many were that none can have been the job's. Whether there was a trace of
    /// one, and the time was over before it was lost.
    pub(super) fn hunt(&self, deadline: Instant, mut show: impl FnMut(&Seen)) -> bool {
        let (mut last, mut looks, mut strangers, mut traced) = (0, 0, 0, false);
        let (mut born, mut trace) = (Instant::now(), Instant::now());
        // No event tells of a stranger's fork; the loop is as tight as it can be, and short.
        while Instant::now() < deadline {
            let Some(newest) = quell_sys::newest_pid() else { return false };
            if newest == last {
                looks += 1;
                if looks > QUIET_LOOKS && born.elapsed() > QUIET {
                    return false;
                }
                continue;
            }
            (last, looks, born) = (newest, 0, Instant::now());
            let mut marked = false;
            let seen = pin(newest, |stat| {
                marked = self.is_marked(stat) && self.is_at_home(newest);
                marked
            });
            if let Some(seen) = seen {
                show(&seen);
            }
            if marked {
                (strangers, trace, traced) = (0, Instant::now(), true);
            } else {
                strangers += 1;
            }
            if strangers > STRANGERS || (strangers > FEW_STRANGERS && trace.elapsed() > COLD) {
                return false;
            }
        }
        traced
    }

    fn bond(&self, pid: u32) -> Bond {
        let dir = || self.hierarchy.as_ref()?.dir(pid);
        let held = self.cgroup.is_some_and(|cgroup| dir().is_some_and(|dir| dir.starts_with(cgroup.path())));
        if held { Bond::Cgroup } else { Bond::Loose }
    }

    /// Whether it is the recorded root. The identity is what the record says, and anyone can be named there; the rest is
    /// what the program can't undo.
    fn is_root(&self, stat: &Stat) -> bool {
        if self.left.root != Some(identity(stat)) || stat.pid == 1 {
            return false;
        }
        if self.left.held == Some(HeldBy::Pidns) {
            return quell_sys::inner_pid(stat.pid) == Some(1);
        }
        let leads = self.left.session == SessionKind::Own && stat.sid == stat.pid;
        leads || self.bond(stat.pid) == Bond::Cgroup || self.bears_marker(stat.pid)
    }

    fn bears_marker(&self, pid: u32) -> bool {
        let Some(marker) = self.marker.as_deref().filter(|_| pid != quell_sys::pid()) else { return false };
        quell_sys::environ_contains(pid, marker)
            // The environment can't be read through a leader that has exited while other threads live.
            || (quell_sys::stat(pid).is_ok_and(|stat| stat.state == b'Z' && stat.threads > 1)
                && threads(pid).any(|thread| quell_sys::environ_contains(thread, marker)))
    }

    fn is_marked(&self, stat: &Stat) -> bool {
        self.left.root.is_none_or(|root| stat.start >= root.start) && self.bears_marker(stat.pid)
    }

    /// A job may have handed its environment to a service manager, which gives it to services that are none of its
    /// business. They are known by the service that they are in; a scope or a plain cgroup is where people's own commands
    /// run, and a job in a service is expected in the same one as its root, its cgroup or us.
    fn is_at_home(&self, pid: u32) -> bool {
        self.bond(pid) == Bond::Cgroup || services_of(pid).is_subset(&self.services)
    }
}

/// Whether it is a marker as quell makes them. Another text, such as `HOME=`, would be found in everybody's environment.
fn is_marker(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct Pass<'s, 'a> {
    search: &'s Search<'a>,
    known: BTreeSet<ProcId>,
    /// Who was met, and has not been looked below yet.
    seeds: Vec<Proven>,
    /// Who is in a session of the root's number.
    anchors: Vec<Proven>,
}

impl Pass<'_, '_> {
    fn meet(&mut self, seen: &Seen, bond: Bond, show: &mut impl FnMut(&Seen, Bond)) -> Below {
        if !self.known.insert(identity(&seen.stat)) {
            return Below::Skip;
        }
        let root = self.search.left.root;
        if bond != Bond::Init && root.is_some_and(|root| root.pid == seen.stat.sid) {
            self.anchors.push(Proven::of(seen));
        }
        self.seeds.push(Proven::of(seen));
        show(seen, bond);
        Below::Visit
    }

    fn descend(&mut self, bond: impl Fn(u32) -> Bond, show: &mut impl FnMut(&Seen, Bond)) {
        let seeds = std::mem::take(&mut self.seeds);
        walk_below(seeds, |seen| self.meet(seen, bond(seen.stat.pid), show));
        // The walk has been below all of them.
        self.seeds.clear();
    }

    fn meet_session(&mut self, show: &mut impl FnMut(&Seen, Bond)) {
        let left = self.search.left;
        let own = left.session == SessionKind::Own && left.held != Some(HeldBy::Pidns);
        let Some(root) = left.root.filter(|_| own) else { return };
        // A number that a process bears is no longer that of an older session.
        if quell_sys::stat(root.pid).is_ok_and(|stat| identity(&stat) != root) {
            return;
        }
        let anchors = std::mem::take(&mut self.anchors);
        let Some(anchor) = anchors.iter().find_map(Proven::pin_again) else { return };
        for pid in quell_sys::pids().unwrap_or_default() {
            if let Some(seen) = pin(pid, |stat| stat.sid == root.pid && anchor.is_alive()) {
                self.meet(&seen, self.search.bond(pid), show);
            }
        }
    }
}

/// This process and those above it: who must never be signalled.
pub(super) fn ourselves() -> BTreeSet<ProcId> {
    let mut found = BTreeSet::new();
    let mut pid = quell_sys::pid();
    while let Ok(stat) = quell_sys::stat(pid) {
        // A number that was reused on the way up could lead in a circle.
        if !found.insert(identity(&stat)) || stat.ppid == 0 {
            break;
        }
        pid = stat.ppid;
    }
    found
}

fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Where the cgroup v2 hierarchy is.
struct Hierarchy {
    root: String,
    mount: String,
}

impl Hierarchy {
    fn find() -> Option<Self> {
        let (root, mount) = cgroup2_mount(&std::fs::read_to_string("/proc/self/mountinfo").ok()?)?;
        Some(Self { root, mount })
    }

    fn dir(&self, pid: u32) -> Option<PathBuf> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        dir_of(&self.root, &self.mount, v2_path(&text)?)
    }
}

/// The services that service managers have put a process into: by its cgroup v2, and by systemd's own hierarchy on hybrid
/// hosts.
fn services_of(pid: u32) -> BTreeSet<String> {
    cgroups_of(pid).iter().filter_map(|path| service_in(path)).collect()
}

/// The innermost unit in a path of cgroups, if it is a service.
fn service_in(path: &str) -> Option<String> {
    let unit = path.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    unit.ends_with(".service").then(|| unit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_in_the_user_manager_is_no_service() {
        let service = |path: &str| service_in(path);
        assert_eq!(service("0::/user.slice/user-1.slice/user@1.service/app.slice/term.scope"), None);
        assert_eq!(service("0::/user.slice/user-1.slice/session-3.scope"), None);
        assert_eq!(service("0::/"), None);
    }

    #[test]
    fn the_service_of_a_cgroup_within_it_is_found() {
        let found = |path: &str, name: &str| assert_eq!(service_in(path).as_deref(), Some(name));
        found("0::/system.slice/web.service", "web.service");
        found("1:name=systemd:/user.slice/user@1.service/app.slice/db.service/worker", "db.service");
        found("/sys/fs/cgroup/system.slice/agent.service/quell-01KA3W6Z0GJ8X4T9M2N7Q5R1SB", "agent.service");
    }

    #[test]
    fn a_word_that_everybody_bears_is_no_marker() {
        for text in ["", "PATH=", "HOME=/root", "/usr/local/sbin:/usr/local/bin:/", "0", &"0".repeat(33)] {
            assert!(!is_marker(text), "{text}");
        }
        assert!(is_marker("00112233445566778899aabbccddeeff"));
    }

    #[test]
    fn we_are_among_ourselves_and_so_is_our_parent() {
        let own = ourselves();
        let stat = quell_sys::stat(quell_sys::pid()).unwrap();
        assert!(own.contains(&identity(&stat)));
        assert!(own.iter().any(|id| id.pid == stat.ppid));
    }
}
