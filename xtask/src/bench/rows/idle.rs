//! What an idle job costs: memory and wake-ups of the processes that keep it. The job itself is not counted.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::bench::bench_env::{BenchEnv, finish, ready};
use crate::bench::daemons::AgentExec;
use crate::bench::row::Row;

/// How long wake-ups are counted.
const WATCH: Duration = Duration::from_secs(5);
/// How long a keeper may take to come to rest.
const REST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum What {
    Pss,
    Rss,
    WakeUps,
}

/// How many jobs live while those of the second row are looked at.
const SEVERAL: usize = 10;

pub fn rows<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let title = "idle background job, all processes that keep it: PSS, when it is the only one";
    let alone = row(env, Row::new("idle-pss", title, "KiB").most(1024.0, 512.0), What::Pss, 1).rounds(10);
    let title = format!("the same, each of {SEVERAL}: what they share is divided");
    let several =
        row(env, Row::new("idle-pss-several", title, "KiB").most(1024.0, 512.0), What::Pss, SEVERAL)
            .rounds(10);
    let title = "the same, RSS, when it is the only one: what they share is counted twice";
    let rss = row(env, Row::new("idle-rss", title, "KiB"), What::Rss, 1).rounds(10);
    let title = "the same, wake-ups a second";
    let wakes = row(env, Row::new("idle-wake-ups", title, "1/s").most(0.0, None), What::WakeUps, 1).rounds(3);
    Ok(vec![alone, several, rss, wakes])
}

fn row<'a>(env: &'a BenchEnv<'_>, row: Row<'a>, what: What, count: usize) -> Row<'a> {
    row.maybe("agent-exec", "a supervisor for each job", AgentExec::find(env), |agent| {
        let program = env.peers.get("agent-exec").unwrap_or_default();
        move || {
            let mut ids = Vec::new();
            for _ in 0..count {
                let file = env.fresh("ready");
                ids.push(agent.start(&env.tree(1, &file))?.0);
                ready(&file)?;
            }
            let figure = measure(env, &program, what) / count as f64;
            for id in ids {
                finish(agent.call(&["kill", &id]))?;
            }
            Ok(figure)
        }
    })
    .quell("quell start", "keeper and standby: either can be killed", move || {
        for _ in 0..count {
            let file = env.fresh("ready");
            let mut command = env.quell(&["start", "--"]);
            command.args(env.tree(1, &file));
            finish(command)?;
            ready(&file)?;
        }
        let figure = measure(env, env.program(), what) / count as f64;
        finish(env.quell(&["stop", "--all", "--now"]))?;
        Ok(figure)
    })
}

/// The processes that run `program` for this environment, which has no other job now.
fn keepers(env: &BenchEnv<'_>, program: &Path) -> Vec<u32> {
    let runs = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    env.pids().into_iter().filter(|&pid| runs(pid)).collect()
}

fn measure(env: &BenchEnv<'_>, program: &Path, what: What) -> f64 {
    sleep(REST);
    let pids = keepers(env, program);
    match what {
        What::Pss => pids.iter().map(|pid| kib(*pid, "Pss:")).sum(),
        What::Rss => pids.iter().map(|pid| kib(*pid, "Rss:")).sum(),
        What::WakeUps => {
            let before: f64 = pids.iter().map(|pid| switches(*pid)).sum();
            sleep(WATCH);
            let after: f64 = pids.iter().map(|pid| switches(*pid)).sum();
            (after - before) / WATCH.as_secs_f64()
        }
    }
}

fn number(text: &str, key: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default()
}

fn kib(pid: u32, key: &str) -> f64 {
    number(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default(), key)
}

/// How often its threads have gone to sleep or were sent there.
fn switches(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let text = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    text.map(|text| number(&text, "voluntary_ctxt") + number(&text, "nonvoluntary_ctxt")).sum()
}
