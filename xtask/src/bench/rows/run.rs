//! `/bin/true` in the foreground.

use crate::bench::bench_env::{BenchEnv, finish, ms, time};
use crate::bench::daemons::{AgentExec, Pueue};
use crate::bench::row::Row;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn rows<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let wrapped = move |program: PathBuf, words: &'static [&'static str]| {
        move || {
            let mut command = env.command(&program);
            command.args(words).arg("/bin/true");
            time(command)
        }
    };
    let quell = move |words: &'static [&'static str]| move || time(env.quell(words));
    let row = Row::new("run", "run `/bin/true` in the foreground", "ms")
        .bar("timeout", 1.5, 1.2)
        .peer("bare", "posix_spawn and waitpid: nothing but the run itself", || {
            time(env.command("/bin/true"))
        })
        .maybe(
            "timeout",
            "stops its process group at best; no record, no containment, no receipt",
            env.peers.get("timeout"),
            |program| wrapped(program, &["5"]),
        )
        .maybe(
            "tini -s",
            "reaps orphans, leaves what outlives the program; no record",
            env.peers.get("tini"),
            |program| wrapped(program, &["-s", "--"]),
        )
        .maybe(
            "dumb-init",
            "signals its session; what has left that stays; no record",
            env.peers.get("dumb-init"),
            |program| wrapped(program, &["--"]),
        )
        .maybe(
            "bwrap",
            "a PID namespace that dies with it; nothing polite first, no count, no record",
            env.peers.get("bwrap"),
            |program| {
                wrapped(
                    program,
                    &["--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--"],
                )
            },
        )
        .maybe(
            "agent-exec",
            "keeps record and output; signals a group; waits by looking again",
            AgentExec::find(env),
            |agent| move || time(agent.call(&["run", "--", "/bin/true"])),
        )
        .maybe(
            "pueue",
            "keeps record and output; one daemon for all; `wait` looks every so often",
            Pueue::start(env, 0),
            |pueue| {
                move || {
                    let start = Instant::now();
                    let (id, _) = pueue.add(&["/bin/true".into()])?;
                    finish(pueue.client(&["wait", "--quiet", &id]))?;
                    Ok(ms(start))
                }
            },
        )
        .quell(
            "quell run",
            "the strongest containment of this host and the reaper, recorded, counted",
            quell(&["run", "--", "/bin/true"]),
        )
        .quell(
            "quell run --contain reaper",
            "subreaper and session, recorded, counted",
            quell(&["run", "--contain", "reaper", "--", "/bin/true"]),
        );
    let Some(home) = InMemory::make(env) else { return Ok(vec![row]) };
    let row = row.quell(
        "quell run, home in memory",
        "as the first, with its record on a tmpfs: what is left is not the disk's",
        move || {
            let mut command = env.quell(&["run", "--", "/bin/true"]);
            command.env("QUELL_HOME", &home.0);
            time(command)
        },
    );
    Ok(vec![row])
}

/// A directory in memory, removed in the end.
struct InMemory(PathBuf);

impl InMemory {
    fn make(env: &BenchEnv<'_>) -> Option<Self> {
        let path = Path::new("/dev/shm").join(env.name());
        std::fs::create_dir(&path).ok().map(|()| Self(path))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
