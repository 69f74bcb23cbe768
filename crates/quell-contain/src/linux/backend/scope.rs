//! Held by a systemd scope: a cgroup that the user's service manager makes, for hosts where quell may not make one itself.

use std::time::Duration;

use quell_core::{JobId, Limits};
use quell_sys::{ChildRules, Program};

use super::super::cgroup_fs::{Cgroup, dir_of_process};
use super::super::systemd::{self, ScopeError, ScopeRequest};
use super::{SpawnError, Spawned, launch};

/// How long the user's systemd may take to reply.
pub(in super::super) const BUS_PATIENCE: Duration = Duration::from_secs(5);

/// A scope. systemd makes it together with its first process.
#[derive(Debug)]
pub struct SystemdScope {
    limits: Limits,
    cgroup: Option<Cgroup>,
}

impl SystemdScope {
    /// Checks that a service manager replies.
    pub fn acquire(limits: &Limits) -> Result<Self, ScopeError> {
        systemd::probe(BUS_PATIENCE).map(|()| Self { limits: *limits, cgroup: None })
    }

    pub fn reopen(cgroup: Option<Cgroup>) -> Self {
        Self { limits: Limits::default(), cgroup }
    }

    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    pub fn spawn(&mut self, id: JobId, program: &Program, rules: &ChildRules) -> Result<Spawned, SpawnError> {
        let (mut spawned, _) = launch(program, rules, None)?;
        spawned.held = self.start(id, spawned.pid).map(|cgroup| self.cgroup = Some(cgroup));
        Ok(spawned)
    }

    /// Makes the scope with the stub in it.
    fn start(&self, id: JobId, pid: u32) -> Result<Cgroup, String> {
        let unit = format!("quell-{id}.scope");
        let limits = &self.limits;
        let request = ScopeRequest {
            unit: &unit,
            description: "a job of quell",
            pid,
            memory_max: limits.memory,
            tasks_max: limits.procs,
            cpu_cores: limits.cpu,
        };
        systemd::start(&request, BUS_PATIENCE).map_err(|error| error.to_string())?;
        let dir = dir_of_process(&pid.to_string()).map_err(|error| error.to_string())?;
        // The manager accepts a limit even if it lacks the controller to enforce it.
        for (wanted, file) in [
            (limits.memory.is_some(), "memory.max"),
            (limits.procs.is_some(), "pids.max"),
            (limits.cpu.is_some(), "cpu.max"),
        ] {
            let set = std::fs::read_to_string(dir.join(file)).is_ok_and(|text| !text.starts_with("max"));
            if wanted && !set {
                let dir = dir.display();
                return Err(format!("the systemd user manager can't hold this limit: no {file} in {dir}"));
            }
        }
        Cgroup::open(&dir).map_err(|error| error.to_string())
    }
}
