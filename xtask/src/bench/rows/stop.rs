//! From the stop request to the answer that no process is left.

use std::path::Path;
use std::time::Instant;

use quell::binary::{Home, open};
use quell_sys::PidFd;

use super::raw::{self, Cgroup};
use crate::bench::bench_env::{BenchEnv, finish, ms, output, ready, time, until};
use crate::bench::daemons::{AgentExec, Orders, Pueue};
use crate::bench::row::{Outcome, Row};

const RAW_GROUP: &str = "raw killpg + count";
const RAW_CGROUP: &str = "raw cgroup.kill + count";
const PSUTIL: &str =
    "a library in a running Python; misses what has left the tree, and may hit a process that reuses a pid";
const TREE_KILL: &str =
    "a library in a running Node; runs ps for each process; doesn't look whether the others are gone";
const AGENT: &str = "signals the group; what has left it stays";
const PUEUE: &str = "signals the group; what has left it stays; until `status` says that it is done";
const POLITE: &str = "TERM to each, then count, audit, receipt";
const NOW: &str = "kill at once, then count, audit, receipt";
const LIBRARY: &str = "`quell stop` without a process of its own";

pub fn one<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let row = Row::new("stop-1", "stop request → verified zero and said so, 1 process", "ms")
        .bar(RAW_GROUP, 4.0, 2.5)
        .peer(
            RAW_GROUP,
            "SIGKILL at once, reaped, no process of the group in /proc; what has left the group stays; no record",
            || raw::group(env),
        )
        .maybe("psutil", PSUTIL, Orders::psutil(env), |orders| move || asked(env, &orders, 1))
        .maybe("agent-exec", AGENT, AgentExec::find(env), |agent| move || agent_exec(env, &agent, 1))
        .maybe("pueue", PUEUE, Pueue::start(env, 0), |pueue| move || pueued(env, &pueue))
        .quell("quell stop", POLITE, move || cli(env, 1, &[], &[]))
        .quell("quell stop --now", NOW, move || cli(env, 1, &[], &["--now"]))
        .quell("quell, as a library", LIBRARY, move || library(env, 1));
    Ok(vec![row])
}

pub fn hundred<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let row = many_processes(env, 100)
        .maybe("tree-kill", TREE_KILL, Orders::tree_kill(env), |orders| move || asked(env, &orders, 100))
        .maybe("agent-exec", AGENT, AgentExec::find(env), |agent| move || agent_exec(env, &agent, 100));
    Ok(vec![row])
}

pub fn thousand<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    Ok(vec![many_processes(env, 1000)])
}

pub fn ten_thousand<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    if env.options.quick {
        Err("not with --quick".into())
    } else {
        Ok(vec![many_processes(env, 10_000).rounds(10)])
    }
}

fn many_processes<'a>(env: &'a BenchEnv<'_>, count: usize) -> Row<'a> {
    Row::new(format!("stop-{count}"), format!("stop request → verified zero, {count} processes"), "ms")
        .bar(RAW_CGROUP, 1.5, 1.2)
        .maybe(RAW_CGROUP, "SIGKILL at once; no record", Cgroup::make(env), |cgroup| {
            move || cgroup.stop(env, count)
        })
        .maybe("psutil", PSUTIL, Orders::psutil(env), |orders| move || asked(env, &orders, count))
        .quell("quell stop", POLITE, move || cli(env, count, &[], &[]))
        .quell("quell stop --now", NOW, move || cli(env, count, &[], &["--now"]))
        .quell("quell, as a library", LIBRARY, move || library(env, count))
}

pub fn sessions<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let title = "stop request → verified zero, 1000 processes in 1000 sessions, without a cgroup";
    let reaper = &["--contain", "reaper"];
    let row = Row::new("stop-1000-sessions", title, "ms")
        .maybe(RAW_CGROUP, "beside it, although it needs a cgroup", Cgroup::make(env), |cgroup| {
            move || cgroup.stop(env, 1000)
        })
        .maybe("psutil", PSUTIL, Orders::psutil(env), |orders| {
            move || asked_words(&orders, &mut env.tree(1000, &env.path("ready")), &env.path("ready"), true)
        })
        .quell("quell stop, reaper", POLITE, move || cli_sessions(env, 1000, reaper, &[]))
        .quell("quell stop --now, reaper", NOW, move || cli_sessions(env, 1000, reaper, &["--now"]));
    Ok(vec![row])
}

fn begin(env: &BenchEnv<'_>, start: &[&str], tree: &[String], file: &Path) -> Result<String, String> {
    let mut command = env.quell(&["start"]);
    let (id, _) = output({
        command.args(start).arg("--").args(tree);
        command
    })?;
    ready(file)?;
    Ok(id)
}

fn cli(env: &BenchEnv<'_>, count: usize, start: &[&str], stop: &[&str]) -> Outcome {
    let file = env.fresh("ready");
    let id = begin(env, start, &env.tree(count, &file), &file)?;
    stopped(env, &id, stop)
}

fn cli_sessions(env: &BenchEnv<'_>, count: usize, start: &[&str], stop: &[&str]) -> Outcome {
    let file = env.fresh("ready");
    let mut tree = env.tree(count, &file);
    tree.push("sessions".into());
    let id = begin(env, start, &tree, &file)?;
    stopped(env, &id, stop)
}

/// The exit code 0 says that all are proven gone.
fn stopped(env: &BenchEnv<'_>, id: &str, stop: &[&str]) -> Outcome {
    let mut command = env.quell(&["stop", id]);
    command.args(stop);
    time(command)
}

fn library(env: &BenchEnv<'_>, count: usize) -> Outcome {
    let file = env.fresh("ready");
    let id = begin(env, &[], &env.tree(count, &file), &file)?;
    let quell = open(Home::at(env.home()), env.program());
    let failed = |why: quell::Error| why.to_string();
    let start = Instant::now();
    let job = quell.job(&id).map_err(failed)?;
    let stopped = job.stop().map_err(failed)?;
    let elapsed = ms(start);
    match &stopped.receipt().verdict {
        quell_core::Verdict::Gone => Ok(elapsed),
        other => Err(format!("{other:?}")),
    }
}

fn asked(env: &BenchEnv<'_>, orders: &Orders, count: usize) -> Outcome {
    let file = env.fresh("ready");
    asked_words(orders, &mut env.tree(count, &file), &file, false)
}

fn asked_words(orders: &Orders, tree: &mut Vec<String>, file: &Path, sessions: bool) -> Outcome {
    if sessions {
        tree.push("sessions".into());
    }
    orders.ask(&format!("start {}", tree.join(" ")))?;
    ready(file)?;
    let start = Instant::now();
    let left = orders.ask("stop")?;
    let elapsed = ms(start);
    if left == "0" { Ok(elapsed) } else { Err(format!("{left} are left")) }
}

fn agent_exec(env: &BenchEnv<'_>, agent: &AgentExec<'_, '_>, count: usize) -> Outcome {
    let file = env.fresh("ready");
    let (id, _) = agent.start(&env.tree(count, &file))?;
    let pid = ready(&file)?;
    // It comes back when it has seen the end of the first process.
    let elapsed = time(agent.call(&["kill", "--signal", "KILL", &id]))?;
    until("the job is gone", || !PidFd::open(pid).is_ok_and(|pin| pin.is_alive()))?;
    Ok(elapsed)
}

fn pueued(env: &BenchEnv<'_>, pueue: &Pueue<'_, '_>) -> Outcome {
    let file = env.fresh("ready");
    let (id, _) = pueue.add(&env.tree(1, &file))?;
    ready(&file)?;
    let start = Instant::now();
    finish(pueue.client(&["kill", &id]))?;
    while !pueue.done(&id)? {}
    Ok(ms(start))
}
