//! Processes outside of every job, which a stop must leave alone.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use crate::{
    eventually,
    oracle::{Oracle, Process},
    run::PATIENCE,
    test_env::TestEnv,
};

/// Something outside the job. Its own token ends it with the test.
#[derive(Debug)]
pub struct Outsider {
    /// What finds its processes.
    pub oracle: Oracle,
    /// The first of them.
    pub child: Child,
}

impl Outsider {
    /// Runs these words as the environment's user, in the environment's cgroup if it has one; `$N` is what to give `sleep`.
    pub fn start(env: &TestEnv, words: &[&str], variables: &[(&str, &str)]) -> Outsider {
        let oracle = Oracle::new();
        let all: Vec<String> =
            env.prefix().into_iter().chain(words.iter().map(|word| word.to_string())).collect();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).env("N", oracle.nap()).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Outsider { child: command.spawn().expect("a process"), oracle }
    }

    /// Runs a script of bash's in a session of its own.
    pub fn script(env: &TestEnv, script: &str) -> Outsider {
        Outsider::start(env, &["setsid", "bash", "-c", script], &[])
    }

    /// A sleep in a session of its own, with these variables.
    pub fn sleeper(env: &TestEnv, variables: &[(&str, &str)]) -> (Outsider, Process) {
        let outsider = Outsider::start(env, &["setsid", "bash", "-c", "exec sleep $N"], variables);
        let process = outsider.find("sleep");
        (outsider, process)
    }

    /// A PID namespace outside of every job, and its init; none where user namespaces can't be made.
    pub fn pid_namespace(env: &TestEnv) -> Option<(Outsider, Process)> {
        Outsider::namespace(env, &["unshare", "-Urfp", "bash", "-c", "exec sleep $N"])
    }

    /// The namespaces that these words make, and the init in them, which is a sleep; none where they can't be made.
    pub fn namespace(env: &TestEnv, words: &[&str]) -> Option<(Outsider, Process)> {
        let outsider = Outsider::start(env, words, &[]);
        let mut init = None;
        eventually(PATIENCE, || {
            init = outsider.oracle.survivors().into_iter().find(|found| found.command.starts_with("sleep"));
            init.is_some() || Process::now(outsider.child.id()).is_none_or(|now| now.state() == Some('Z'))
        });
        init.map(|init| (outsider, init))
    }

    /// Waits for the process whose command line begins with `command`.
    pub fn find(&self, command: &str) -> Process {
        let find = || self.oracle.survivors().into_iter().find(|found| found.command.starts_with(command));
        assert!(eventually(PATIENCE, || find().is_some()), "no {command}");
        find().expect(command)
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        self.oracle.end_survivors();
        let _ = self.child.wait();
    }
}

/// How many seconds ago a process started.
pub fn age(process: &Process) -> f64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    uptime - process.start as f64 / 100.0
}
