//! What this host can do. Each ability is found by trying it.

use std::fs;
use std::time::Duration;

use quell_core::{ContainmentKind, Limits};
use quell_sys::UserNamespaces;

use super::{cgroup_fs, defeated_by, systemd};
use crate::{Ability, Doctor};

/// Tries every containment.
pub fn doctor() -> Doctor {
    let cgroup = try_cgroup();
    let bus = systemd::probe(Duration::from_secs(2));
    let pidns = quell_sys::user_namespaces();

    let proc = quell_sys::proc_is_ours();
    let children = quell_sys::own_children();
    let mut containments = vec![ContainmentKind::Reaper];
    if cgroup.is_ok() {
        containments.push(ContainmentKind::Cgroup);
    }
    if bus.is_ok() {
        containments.push(ContainmentKind::Scope);
    }
    if pidns.is_ok() {
        containments.push(ContainmentKind::Pidns);
    }
    let auto = match (&cgroup, &bus) {
        (Ok(_), _) => ContainmentKind::Cgroup,
        (Err(_), Ok(())) => ContainmentKind::Scope,
        (Err(_), Err(_)) => ContainmentKind::Reaper,
    };
    let yes_no = |ok: bool, yes: &str, no: &str| if ok { yes.to_owned() } else { no.to_owned() };
    let controllers = controllers();
    let inode = quell_sys::pidfd_inode().is_some();
    let groups = quell_sys::pidfd_signals_groups();
    let exit = quell_sys::pidfd_has_exit_info();
    let pidfd = quell_sys::PidFd::open(quell_sys::pid());
    let abilities = vec![
        ability(
            "proc",
            proc,
            yes_no(
                proc,
                if quell_sys::uid() != 0 && quell_sys::proc_hides_processes() {
                    "/proc shows this PID namespace, and hides some processes (hidepid): if all keepers of a job are killed, \
                     its end can't be proven"
                } else {
                    "/proc shows this PID namespace"
                },
                "/proc shows another PID namespace: no job can run",
            ),
        ),
        ability(
            "subreaper",
            children.is_ok(),
            children.map_or_else(
                |error| format!("/proc can't list our children: {error}"),
                |_| "orphans come to the keeper; /proc lists them".into(),
            ),
        ),
        Ability {
            name: "pidfd".into(),
            ok: pidfd.is_ok(),
            detail: pidfd
                .map_or_else(|error| error.to_string(), |_| "processes are signalled by descriptor".into()),
        },
        ability("pidfs_inode", inode, yes_no(inode, "identities are unique for a boot", "needs Linux 6.9")),
        ability("pidfd_group_signal", groups, yes_no(groups, "available", "needs Linux 6.9")),
        ability("pidfd_exit_code", exit, yes_no(exit, "available", "needs Linux 6.15")),
        match &cgroup {
            Ok(found) => ability("cgroup", true, found.clone()),
            Err(why) => ability("cgroup", false, why.clone()),
        },
        ability(
            "cgroup_limits",
            !controllers.is_empty(),
            if controllers.is_empty() {
                "no memory, pids or cpu controller here: --limit-… is refused, unless systemd holds the job"
                    .into()
            } else {
                controllers
            },
        ),
        match &bus {
            Ok(()) => ability("systemd_user", true, "the user manager answers on the bus".into()),
            Err(error) => ability("systemd_user", false, error.to_string()),
        },
        match pidns {
            Ok(UserNamespaces::NotNeeded) => {
                ability("pidns", true, "PID namespaces, without a user namespace".into())
            }
            Ok(UserNamespaces::Yes) => ability("pidns", true, "PID namespaces, in a user namespace".into()),
            Err(error) => ability("pidns", false, error.to_string()),
        },
        ability("limits", true, limits()),
    ];
    // Without /proc PIDs can't be checked, and `run` refuses to start.
    let auto = Some(auto).filter(|_| proc);
    containments.retain(|_| proc);
    Doctor {
        system: format!("Linux {}", quell_sys::kernel_release()),
        abilities,
        containments,
        auto,
        defeated_by: auto.map(defeated_by).unwrap_or_default(),
    }
}

fn ability(name: &str, ok: bool, detail: String) -> Ability {
    Ability { name: name.into(), ok, detail }
}

/// Makes a cgroup as for a job, and removes it again.
fn try_cgroup() -> Result<String, String> {
    let id = super::job_id::new_job_id().map_err(|error| error.to_string())?;
    let made = cgroup_fs::Cgroup::create(id, None, &Limits::default()).map_err(|error| error.to_string())?;
    let found =
        made.path().parent().map_or_else(String::new, |path| format!("v2, writable, in {}", path.display()));
    made.remove().map_err(|error| error.to_string())?;
    Ok(found)
}

/// The controllers of this process's cgroup. The kernel may still refuse to enable them for the cgroups below.
fn controllers() -> String {
    let own = cgroup_fs::own_dir().map(|dir| dir.join("cgroup.controllers"));
    let text = own.ok().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let found: Vec<&str> =
        text.split_whitespace().filter(|name| ["memory", "pids", "cpu"].contains(name)).collect();
    found.join(", ")
}

fn limits() -> String {
    let pid_max = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = |name: &str| {
        let line = own.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].split_whitespace().next().map(str::to_owned)
    };
    format!(
        "{} processes for this user, {} open files, pids up to {}",
        soft("Max processes").unwrap_or_else(|| "?".into()),
        soft("Max open files").unwrap_or_else(|| "?".into()),
        pid_max.trim()
    )
}
