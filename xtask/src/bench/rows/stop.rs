//! From the stop request to the answer that no process is left.

use std::path::Path;
use std::time::Instant;

use quell::binary::{Home, open};
use quell_sys::PidFd;

use super::raw::{self, Cgroup};
use crate::bench::daemons::{AgentExec, Orders, Pueue};
use crate::bench::lab::{Lab, finish, ms, output, ready, time, until};
use crate::bench::row::{Outcome, Row};

const RAW_GROUP: &str = "raw killpg + count";
const RAW_CGROUP: &str = "raw cgroup.kill + count";
const PSUTIL: &str =
    "a library in a running Python; misses what has left the tree, and may hit a recycled pid's heirs";
const TREE_KILL: &str =
    "a library in a running Node; runs ps for each process; doesn't look whether the others are gone";
const AGENT: &str = "signals the group; what has left it stays";
const PUEUE: &str = "signals the group; what has left it stays; until `status` says that it is done";
const POLITE: &str = "TERM to each, then count, audit, receipt";
const NOW: &str = "kill at once, then count, audit, receipt";
const LIBRARY: &str = "`quell stop` without a process of its own";

pub fn one<'a>(lab: &'a Lab<'_>) -> Result<Vec<Row<'a>>, String> {
    let row = Row::new("stop-1", "stop request → verified zero and said so, 1 process", "ms")
        .bar(RAW_GROUP, 4.0, 2.5)
        .peer(
            RAW_GROUP,
            "SIGKILL at once, reaped, no process of the group in /proc; what has left the group stays; no record",
            || raw::group(lab),
        )
        .maybe("psutil", PSUTIL, Orders::psutil(lab), |orders| move || asked(lab, &orders, 1))
        .maybe("agent-exec", AGENT, AgentExec::find(lab), |agent| move || agent_exec(lab, &agent, 1))
        .maybe("pueue", PUEUE, Pueue::start(lab, 0), |pueue| move || pueued(lab, &pueue))
        .quell("quell stop", POLITE, move || cli(lab, 1, &[], &[]))
        .quell("quell stop --now", NOW, move || cli(lab, 1, &[], &["--now"]))
        .quell("quell, as a library", LIBRARY, move || library(lab, 1));
    Ok(vec![row])
}

pub fn hundred<'a>(lab: &'a Lab<'_>) -> Result<Vec<Row<'a>>, String> {
    let row = crowd(lab, 100)
        .maybe("tree-kill", TREE_KILL, Orders::tree_kill(lab), |orders| move || asked(lab, &orders, 100))
        .maybe("agent-exec", AGENT, AgentExec::find(lab), |agent| move || agent_exec(lab, &agent, 100));
    Ok(vec![row])
}

pub fn thousand<'a>(lab: &'a Lab<'_>) -> Result<Vec<Row<'a>>, String> {
    Ok(vec![crowd(lab, 1000)])
}

pub fn ten_thousand<'a>(lab: &'a Lab<'_>) -> Result<Vec<Row<'a>>, String> {
    if lab.options.quick { Err("not with --quick".into()) } else { Ok(vec![crowd(lab, 10_000).rounds(10)]) }
}

fn crowd<'a>(lab: &'a Lab<'_>, count: usize) -> Row<'a> {
    Row::new(format!("stop-{count}"), format!("stop request → verified zero, {count} processes"), "ms")
        .bar(RAW_CGROUP, 1.5, 1.2)
        .maybe(RAW_CGROUP, "SIGKILL at once; no record", Cgroup::make(lab), |cgroup| {
            move || cgroup.stop(lab, count)
        })
        .maybe("psutil", PSUTIL, Orders::psutil(lab), |orders| move || asked(lab, &orders, count))
        .quell("quell stop", POLITE, move || cli(lab, count, &[], &[]))
        .quell("quell stop --now", NOW, move || cli(lab, count, &[], &["--now"]))
        .quell("quell, as a library", LIBRARY, move || library(lab, count))
}

pub fn sessions<'a>(lab: &'a Lab<'_>) -> Result<Vec<Row<'a>>, String> {
    let title = "stop request → verified zero, 1000 processes in 1000 sessions, without a cgroup";
    let reaper = &["--contain", "reaper"];
    let row = Row::new("stop-1000-sessions", title, "ms")
        .maybe(RAW_CGROUP, "beside it, although it needs a cgroup", Cgroup::make(lab), |cgroup| {
            move || cgroup.stop(lab, 1000)
        })
        .maybe("psutil", PSUTIL, Orders::psutil(lab), |orders| {
            move || asked_words(&orders, &mut lab.tree(1000, &lab.path("ready")), &lab.path("ready"), true)
        })
        .quell("quell stop, reaper", POLITE, move || cli_sessions(lab, 1000, reaper, &[]))
        .quell("quell stop --now, reaper", NOW, move || cli_sessions(lab, 1000, reaper, &["--now"]));
    Ok(vec![row])
}

fn begin(lab: &Lab<'_>, start: &[&str], tree: &[String], file: &Path) -> Result<String, String> {
    let mut command = lab.quell(&["start"]);
    let (id, _) = output({
        command.args(start).arg("--").args(tree);
        command
    })?;
    ready(file)?;
    Ok(id)
}

fn cli(lab: &Lab<'_>, count: usize, start: &[&str], stop: &[&str]) -> Outcome {
    let file = lab.fresh("ready");
    let id = begin(lab, start, &lab.tree(count, &file), &file)?;
    stopped(lab, &id, stop)
}

fn cli_sessions(lab: &Lab<'_>, count: usize, start: &[&str], stop: &[&str]) -> Outcome {
    let file = lab.fresh("ready");
    let mut tree = lab.tree(count, &file);
    tree.push("sessions".into());
    let id = begin(lab, start, &tree, &file)?;
    stopped(lab, &id, stop)
}

/// The exit code 0 says that all are proven gone.
fn stopped(lab: &Lab<'_>, id: &str, stop: &[&str]) -> Outcome {
    let mut command = lab.quell(&["stop", id]);
    command.args(stop);
    time(command)
}

fn library(lab: &Lab<'_>, count: usize) -> Outcome {
    let file = lab.fresh("ready");
    let id = begin(lab, &[], &lab.tree(count, &file), &file)?;
    let quell = open(Home::at(lab.home()), lab.program());
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

fn asked(lab: &Lab<'_>, orders: &Orders, count: usize) -> Outcome {
    let file = lab.fresh("ready");
    asked_words(orders, &mut lab.tree(count, &file), &file, false)
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

fn agent_exec(lab: &Lab<'_>, agent: &AgentExec<'_, '_>, count: usize) -> Outcome {
    let file = lab.fresh("ready");
    let (id, _) = agent.start(&lab.tree(count, &file))?;
    let pid = ready(&file)?;
    // It comes back when it has seen the end of the first process.
    let elapsed = time(agent.call(&["kill", "--signal", "KILL", &id]))?;
    until("the job is gone", || !PidFd::open(pid).is_ok_and(|pin| pin.is_alive()))?;
    Ok(elapsed)
}

fn pueued(lab: &Lab<'_>, pueue: &Pueue<'_, '_>) -> Outcome {
    let file = lab.fresh("ready");
    let (id, _) = pueue.add(&lab.tree(1, &file))?;
    ready(&file)?;
    let start = Instant::now();
    finish(pueue.client(&["kill", &id]))?;
    while !pueue.done(&id)? {}
    Ok(ms(start))
}
