//! A gibibyte of output, kept, beside `cat` into a file.

use std::fs;
use std::path::Path;

use crate::bench::bench_env::{BenchEnv, finish, ms, output, time};
use crate::bench::daemons::{AgentExec, Pueue};
use crate::bench::row::{Outcome, Row};
use std::time::Instant;

/// How long a line is, with its end: ten million of them are 1 GiB.
const LINE: usize = 107;
/// How long one peer may take, which reads line by line.
const AGENT_SECONDS: &str = "60";

pub fn bulk<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let mib = if env.options.quick { 256 } else { 1024 };
    let script = format!("head -c {mib}M /dev/zero");
    let title = format!("{mib} MiB of output captured");
    let row = row(env, Row::new("output", title, "ms").bar("cat", 1.25, 1.1), script, mib << 20);
    Ok(vec![row])
}

pub fn lines<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let count = if env.options.quick { 2_500_000 } else { 10_000_000 };
    let script = format!("yes {} | head -n {count}", "y".repeat(LINE - 1));
    let title = format!("{count} lines of {LINE} bytes captured, with index and times");
    let row = row(env, Row::new("lines", title, "ms").bar("cat", 1.5, None), script, count * LINE as u64);
    Ok(vec![row])
}

fn row<'a>(env: &'a BenchEnv<'_>, row: Row<'a>, script: String, bytes: u64) -> Row<'a> {
    let row = row.rounds(10);
    let shell = move |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let (cat, own, agent_script, pueue_script) = (script.clone(), script.clone(), script.clone(), script);
    row.peer("cat", "`… | cat > file`: no times, no cap, no record", move || {
        let file = env.fresh("cat");
        let mut command = env.command("/bin/sh");
        command.args(["-c", &format!("{cat} | cat > {}", file.display())]);
        let elapsed = time(command)?;
        whole(&file, bytes)?;
        Ok(elapsed)
    })
    .maybe("agent-exec", "keeps all of it", AgentExec::find(env), |agent| {
        move || {
            let start = Instant::now();
            let (id, _) = agent.start(&shell(&agent_script))?;
            let waited = output(agent.call(&["wait", "--poll", "0", "--until", AGENT_SECONDS, &id]));
            let elapsed = ms(start);
            if !waited?.0.contains("\"state\":\"exited\"") {
                finish(agent.call(&["kill", "--signal", "KILL", &id]))?;
                return Err(format!("not within {AGENT_SECONDS} s"));
            }
            let _ = fs::remove_dir_all(env.path("agent-exec"));
            Ok(elapsed)
        }
    })
    .maybe(
        "pueue",
        "the program writes into the file itself; `wait` looks every 2 s",
        Pueue::start(env, 0),
        |pueue| {
            move || {
                let start = Instant::now();
                let (id, _) = pueue.add(std::slice::from_ref(&pueue_script))?;
                finish(pueue.client(&["wait", "--quiet", &id]))?;
                let elapsed = ms(start);
                finish(pueue.client(&["clean"]))?;
                Ok(elapsed)
            }
        },
    )
    .quell(
        "quell start; quell wait",
        "times and an exact cut; synced to disk when all is told",
        move || {
            let start = Instant::now();
            let mut command = env.quell(&["start", "--max-log", "4G", "--"]);
            command.args(shell(&own));
            let (id, _) = output(command)?;
            finish(env.quell(&["wait", &id]))?;
            let elapsed = ms(start);
            let dir = env.home().join("jobs").join(&id);
            kept(&dir, bytes)?;
            finish(env.quell(&["rm", &id]))?;
            Ok(elapsed)
        },
    )
}

fn whole(file: &Path, bytes: u64) -> Outcome {
    let length = fs::metadata(file).map_err(|why| format!("{}: {why}", file.display()))?.len();
    let _ = fs::remove_file(file);
    if length == bytes { Ok(0.0) } else { Err(format!("{length} bytes were kept instead of {bytes}")) }
}

/// All that the program has written is in the job's segments.
fn kept(dir: &Path, bytes: u64) -> Outcome {
    let entries = fs::read_dir(dir).map_err(|why| format!("{}: {why}", dir.display()))?.flatten();
    let logs = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("stdout") && name.ends_with(".log")
    });
    let length: u64 = logs.map(|entry| entry.metadata().map_or(0, |found| found.len())).sum();
    if length == bytes { Ok(0.0) } else { Err(format!("{length} bytes were kept instead of {bytes}")) }
}
