//! Many jobs: how fast they come and go, how they are listed when they have ended, and while they live.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::bench::bench_env::{BenchEnv, finish, ms, output, time};
use crate::bench::daemons::{AgentExec, Pueue};
use crate::bench::row::Row;

const RAW: &str = "raw killpg + wait";
const WORKERS: usize = 2;

/// Milliseconds a job, so that less is better as everywhere.
pub fn rate<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let each = if env.options.quick { 10 } else { 50 };
    let jobs = (each * WORKERS) as f64;
    let row = Row::new("rate", format!("jobs started and ended, {WORKERS} at once: time a job"), "ms")
        .rounds(15)
        .bar("agent-exec", 0.2, None)
        .bar("pueue", 1.0 / 3.0, None)
        .maybe("agent-exec", "`run` until it has ended", AgentExec::find(env), |agent| {
            move || {
                let (_, start) = workers(each, &|| agent.call(&["run", "--", "/bin/true"]), finish)?;
                Ok(ms(start) / jobs)
            }
        })
        .maybe(
            "pueue",
            "no limit of how many run at once; until `status` says that all are done, as `wait` looks every 2 s",
            Pueue::start(env, 0),
            |pueue| {
                move || {
                    let add = || pueue.client(&["add", "--immediate", "--", "/bin/true"]);
                    let (_, start) = workers(each, &add, finish)?;
                    while !pueue.all_done()? {}
                    let elapsed = ms(start) / jobs;
                    finish(pueue.client(&["clean"]))?;
                    Ok(elapsed)
                }
            },
        )
        .quell("quell run", "in the foreground, recorded", move || {
            let (_, start) = workers(each, &|| env.quell(&["run", "--", "/bin/true"]), finish)?;
            Ok(ms(start) / jobs)
        })
        .quell("quell start; quell wait", "in the background, synced to disk; one `wait` for all", move || {
            let begin = || env.quell(&["start", "--", "/bin/true"]);
            let (ids, start) = workers(each, &begin, |command| Ok(output(command)?.0))?;
            let mut wait = env.quell(&["wait"]);
            wait.args(ids);
            finish(wait)?;
            Ok(ms(start) / jobs)
        });
    Ok(vec![row])
}

/// Does `each` jobs in each worker: what came of them, and when they began. An environment is for one thread: jobs are made here and
/// done there.
fn workers<T: Send, R: Send>(
    each: usize,
    make: &dyn Fn() -> T,
    work: fn(T) -> Result<R, String>,
) -> Result<(Vec<R>, Instant), String> {
    let jobs: Vec<Vec<T>> = (0..WORKERS).map(|_| (0..each).map(|_| make()).collect()).collect();
    let start = Instant::now();
    let results: Vec<Result<Vec<R>, String>> = thread::scope(|scope| {
        let go = |jobs: Vec<T>| scope.spawn(move || jobs.into_iter().map(work).collect());
        let workers: Vec<_> = jobs.into_iter().map(go).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Err("a worker panicked".into()))).collect()
    });
    let results = results.into_iter().collect::<Result<Vec<_>, String>>()?;
    Ok((results.into_iter().flatten().collect(), start))
}

/// `list` with few and with many jobs that have ended: copies of the record of a real one.
pub fn list<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let many = if env.options.quick { 1000 } else { 100_000 };
    for count in [100, many] {
        fill(env, count)?;
    }
    let call = move |count: usize, words: &'static [&'static str]| {
        move || {
            let mut command = env.quell(words);
            command.env("QUELL_HOME", home(env, count));
            time(command)
        }
    };
    const LIST: &[&str] = &["list", "--limit", "50"];
    const TAG: &[&str] = &["list", "--limit", "50", "--tag", "hundredth=yes"];
    let list = Row::new("list", format!("`list` of the latest 50 with {many} finished jobs"), "ms")
        .bar("with 100", 2.0, None)
        .peer("with 100", "quell itself, with 100 finished jobs", call(100, LIST))
        .quell("quell list", "from the index", call(many, LIST));
    let tag = Row::new(
        "list-tag",
        format!("`list --tag` with {many} finished jobs, a hundredth of them have it"),
        "ms",
    )
    .bar("with 100", 2.0, None)
    .peer("with 100", "quell itself, with 100 finished jobs", call(100, TAG))
    .quell("quell list --tag", "from the index", call(many, TAG));
    Ok(vec![list, tag])
}

fn home(env: &BenchEnv<'_>, count: usize) -> std::path::PathBuf {
    env.path(&format!("quell-{count}"))
}

/// A home with `count` finished jobs, of which every hundredth has a label.
fn fill(env: &BenchEnv<'_>, count: usize) -> Result<(), String> {
    let home = home(env, count);
    let call = |words: &[&str]| {
        let mut command = env.quell(words);
        command.env("QUELL_HOME", &home);
        command
    };
    let (id, _) = output(call(&["start", "--tag", "hundredth=yes", "--", "/bin/true"]))?;
    finish(call(&["wait", &id]))?;
    let jobs = home.join("jobs");
    let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
    let template = jobs.join(&id);
    let mut files = Vec::new();
    for entry in fs::read_dir(&template).map_err(|why| failed(&template, why))?.flatten() {
        if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push((entry.file_name(), text));
        }
    }
    for number in 1..count {
        let other = numbered(&id, number);
        let dir = jobs.join(&other);
        private_dir(&dir).map_err(|why| failed(&dir, why))?;
        for (name, text) in &files {
            let mut text = text.replace(&id, &other);
            if number % 100 != 0 {
                text = text.replace("\"hundredth\":\"yes\"", "");
            }
            private_file(&dir.join(name), &text).map_err(|why| failed(&dir, why))?;
        }
    }
    // The first one makes the index.
    let _ = fs::remove_file(home.join("index.db"));
    let (ids, _) = output(call(&["list", "--all", "--ids"]))?;
    match ids.lines().count() {
        found if found == count => Ok(()),
        found => Err(format!("{found} jobs are listed instead of {count}")),
    }
}

/// The id with another end: a number in its alphabet.
fn numbered(id: &str, mut number: usize) -> String {
    const ALPHABET: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut end = Vec::new();
    for _ in 0..6 {
        end.push(char::from(ALPHABET[number % 32]));
        number /= 32;
    }
    // The six before those stay, so that no copy meets the original.
    let end: String = end.into_iter().rev().collect();
    format!("{}{end}", &id[..id.len() - 6])
}

fn private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

fn private_file(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Thousands of jobs that live at once.
pub fn live<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let count = if env.options.quick { 500 } else { 5000 };
    let list = Row::new("live-list", format!("`list` with {count} live jobs"), "ms").quell(
        "quell list",
        "asks no keeper",
        {
            let mut up = false;
            move || {
                if !std::mem::replace(&mut up, true) {
                    start_jobs(env, count)?;
                }
                time(env.quell(&["list"]))
            }
        },
    );
    let title = format!("`stop --all` of {count} jobs");
    let stop = Row::new("live-stop", title, "ms")
        .rounds(3)
        .bar(RAW, 3.0, None)
        .peer(RAW, "SIGKILL at once, one group after the other; no record", move || {
            super::raw::groups(env, count)
        })
        .quell("quell stop --all", "TERM to each, count, receipt, synced to disk", move || {
            start_jobs(env, count)?;
            time(env.quell(&["stop", "--all"]))
        });
    Ok(vec![list, stop])
}

/// So many live jobs, of which none is there yet, or all.
fn start_jobs(env: &BenchEnv<'_>, count: usize) -> Result<(), String> {
    let (live, _) = output(env.quell(&["list", "--ids", "--limit", "0"]))?;
    let missing = count.saturating_sub(live.lines().count());
    let make = || {
        let mut command = env.quell(&["start", "--"]);
        command.args(env.tree(1, &env.fresh("ready")));
        command
    };
    workers(missing.div_ceil(WORKERS), &make, finish).map(drop)
}
