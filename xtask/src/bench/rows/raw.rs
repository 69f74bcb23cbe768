//! The least that a stop can cost: the kernel asked directly, from a process that runs already.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;

use quell_core::Signal;
use quell_sys::{Polled, poll_until};

use crate::bench::bench_env::{BenchEnv, PATIENCE, ms, ready};
use crate::bench::row::Outcome;

/// A group, killed, reaped, and looked for in /proc.
pub fn group(env: &BenchEnv<'_>) -> Outcome {
    let file = env.fresh("ready");
    let words = env.tree(1, &file);
    let mut command = env.command(&words[0]);
    let mut child =
        command.args(&words[1..]).process_group(0).spawn().map_err(|why| format!("job: {why}"))?;
    let up = ready(&file);
    let start = Instant::now();
    // Our own child, not yet reaped: the number is its own.
    let sent = quell_sys::signal_group(child.id(), Signal::KILL);
    let waited = child.wait();
    let left = count(child.id());
    let elapsed = ms(start);
    up?;
    sent.map_err(|why| format!("killpg: {why}"))?;
    waited.map_err(|why| format!("wait: {why}"))?;
    if left == 0 { Ok(elapsed) } else { Err(format!("{left} are left in the group")) }
}

/// How many processes are in a group.
fn count(pgid: u32) -> usize {
    let pids = quell_sys::pids().unwrap_or_default();
    pids.into_iter().filter(|&pid| quell_sys::stat(pid).is_ok_and(|stat| stat.pgid == pgid)).count()
}

/// A cgroup of our own, removed in the end.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Below the top, which an ordinary user can't write to.
    pub fn make(env: &BenchEnv<'_>) -> Result<Self, String> {
        let text = fs::read_to_string("/proc/self/mountinfo").map_err(|why| format!("mountinfo: {why}"))?;
        let line = text.lines().find(|line| line.contains(" - cgroup2 ")).ok_or("no cgroup2 is mounted")?;
        let mount = line.split(' ').nth(4).unwrap_or_default();
        let dir = PathBuf::from(mount).join(env.name());
        match fs::create_dir(&dir) {
            Ok(()) => Ok(Self(dir)),
            Err(why) => Err(format!("{}: {why}", dir.display())),
        }
    }

    /// A tree of `count` in it. The shell puts itself there and becomes the job.
    fn start(&self, env: &BenchEnv<'_>, count: usize) -> Result<Child, String> {
        let file = env.fresh("ready");
        let mut command = env.command("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""]).arg(&self.0);
        let child = command.args(env.tree(count, &file)).spawn().map_err(|why| format!("job: {why}"))?;
        ready(&file)?;
        Ok(child)
    }

    /// `cgroup.kill`, until the kernel says that the cgroup is empty.
    pub fn stop(&self, env: &BenchEnv<'_>, count: usize) -> Outcome {
        let mut child = self.start(env, count)?;
        let failed = |why: std::io::Error| format!("{}: {why}", self.0.display());
        let start = Instant::now();
        let mut events = File::open(self.0.join("cgroup.events")).map_err(failed)?;
        fs::write(self.0.join("cgroup.kill"), "1").map_err(failed)?;
        loop {
            let mut text = String::new();
            events.rewind().and_then(|()| events.read_to_string(&mut text)).map_err(failed)?;
            if text.contains("populated 0") {
                break;
            }
            poll_until(&[Polled::Priority(events.as_fd())], Some(start + PATIENCE)).map_err(failed)?;
            if start.elapsed() > PATIENCE {
                return Err("cgroup.kill did not empty the cgroup".into());
            }
        }
        let elapsed = ms(start);
        child.wait().map_err(|why| format!("wait: {why}"))?;
        Ok(elapsed)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let removed =
            crate::bench::bench_env::until("the cgroup is removed", || fs::remove_dir(&self.0).is_ok());
        if let Err(why) = removed {
            eprintln!("{}: {why}", self.0.display());
        }
    }
}

/// So many groups of one process each, killed and reaped.
pub fn groups(env: &BenchEnv<'_>, count: usize) -> Outcome {
    let mut children = Vec::with_capacity(count);
    for _ in 0..count {
        let file = env.fresh("ready");
        let words = env.tree(1, &file);
        let mut command = env.command(&words[0]);
        let child =
            command.args(&words[1..]).process_group(0).spawn().map_err(|why| format!("job: {why}"))?;
        children.push(child);
        ready(&file)?;
    }
    let start = Instant::now();
    for child in &children {
        // Our own children, not yet reaped.
        quell_sys::signal_group(child.id(), Signal::KILL).map_err(|why| format!("killpg: {why}"))?;
    }
    for child in &mut children {
        child.wait().map_err(|why| format!("wait: {why}"))?;
    }
    Ok(ms(start))
}
