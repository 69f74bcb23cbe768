//! From the last instruction of a job to the return of the command that waits for it. The job itself writes when that was.

use std::fs;
use std::path::Path;

use crate::bench::bench_env::{BenchEnv, finish, monotonic};
use crate::bench::daemons::{AgentExec, Pueue};
use crate::bench::row::{Outcome, Row};

/// How long the job lives: long enough for the wait to be under way.
const NAP_MS: u64 = 100;

pub fn rows<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let row = Row::new("wait", "job's last instruction → `wait` returned", "ms")
        .bar("timeout", 3.0, 2.0)
        .maybe("timeout", "waits for its child alone", env.peers.get("timeout"), |program| {
            move || {
                let (words, file) = last(env);
                let mut command = env.command(&program);
                command.arg("5").args(words);
                finish(command)?;
                since(&file)
            }
        })
        .maybe("agent-exec wait", "looks again after a time", AgentExec::find(env), |agent| {
            move || {
                let (words, file) = last(env);
                let (id, _) = agent.start(&words)?;
                finish(agent.call(&["wait", "--poll", "0", &id]))?;
                since(&file)
            }
        })
        .maybe("pueue wait", "looks again after a time", Pueue::start(env, 0), |pueue| {
            move || {
                let (words, file) = last(env);
                let (id, _) = pueue.add(&words)?;
                finish(pueue.client(&["wait", "--quiet", &id]))?;
                since(&file)
            }
        })
        .quell("quell run", "counted to zero and recorded before it returns", move || {
            let (words, file) = last(env);
            let mut command = env.quell(&["run", "--"]);
            command.args(words);
            finish(command)?;
            since(&file)
        })
        .quell(
            "quell wait",
            "counted to zero and recorded before it returns; synced to disk right after",
            move || {
                let (words, file) = last(env);
                let mut command = env.quell(&["start", "--"]);
                command.args(words);
                let (id, _) = crate::bench::bench_env::output(command)?;
                finish(env.quell(&["wait", &id]))?;
                since(&file)
            },
        );
    Ok(vec![row])
}

fn last(env: &BenchEnv<'_>) -> (Vec<String>, std::path::PathBuf) {
    let file = env.fresh("last");
    let word = |path: &Path| path.to_string_lossy().into_owned();
    (vec![word(env.job()), "last".into(), NAP_MS.to_string(), word(&file)], file)
}

/// How long ago the job's last act was.
fn since(file: &Path) -> Outcome {
    let now = monotonic();
    let failed = |why: String| format!("{}: {why}", file.display());
    let text = fs::read_to_string(file).map_err(|why| failed(why.to_string()))?;
    let then: i64 =
        text.trim().parse().map_err(|_| failed("the job has not written when it ended".into()))?;
    let _ = fs::remove_file(file);
    Ok((now - then) as f64 / 1e6)
}
