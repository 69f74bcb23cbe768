//! `cargo xtask compare`: what is left alive after each tool has stopped a misbehaving program and said so.
//!
//! The programs are the bad actors of the tests (`tests/actors`). The count is made in /proc, by a token on their command
//! lines, and shares no code with quell.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quell_core::Signal;
use quell_sys::{PidFd, Polled, poll_until};

use crate::bench::bench_env::{BenchEnv, PATIENCE, finish, output, until};
use crate::bench::daemons::{AgentExec, Orders, Pm2, Pueue, Supervisor};
use crate::bench::options::Options;
use crate::bench::peers::Peers;
use crate::bench::{build, root};

/// The kinds of actor, and what the table calls them.
const KINDS: [(&str, &str); 7] = [
    ("tree", "plain tree"),
    ("setsid", "own session"),
    ("daemon", "double-forked daemon"),
    ("ignore-term", "ignores TERM"),
    ("stopped", "stopped"),
    ("term-spawner", "starts another on TERM"),
    ("clear-env", "own session, environment cleared"),
];

/// Where the table is in README.md.
const BEGIN: &str = "<!-- compare: written by `cargo xtask compare` -->";
const END: &str = "<!-- /compare -->";

/// How long a process may take to disappear after the tool has said that it is stopped.
const SETTLE: Duration = Duration::from_millis(500);
/// The grace of tools that have one, in seconds.
const GRACE: &str = "1";

/// Starts an actor with a tool, stops it with the same tool, and returns when that says that it is stopped.
type Stop<'a> = Box<dyn Fn(&Actor) -> Result<(), String> + 'a>;

/// One tool: its name, how it is used, and what stops a program with it.
struct Contender<'a> {
    name: &'static str,
    how: &'static str,
    stop: Result<Stop<'a>, String>,
}

/// A bad actor that is to be started and stopped.
struct Actor {
    /// `env QUELL_TEST_READY=FILE actor KIND TOKEN`.
    words: Vec<String>,
    ready: PathBuf,
    token: String,
}

impl Actor {
    fn new(env: &BenchEnv<'_>, program: &Path, kind: &str) -> Result<Self, String> {
        let ready = env.fresh("ready");
        fs::write(&ready, "").map_err(|why| format!("{}: {why}", ready.display()))?;
        let random = quell_sys::random_u128().map_err(|why| format!("random number: {why}"))?;
        let token = format!("compare-{random:032x}");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let variable = format!("QUELL_TEST_READY={}", text(&ready));
        let words = vec!["/usr/bin/env".into(), variable, text(program), kind.into(), token.clone()];
        Ok(Self { words, ready, token })
    }

    fn wait_until_up(&self) -> Result<(), String> {
        until("the actor is up", || fs::read(&self.ready).is_ok_and(|text| !text.is_empty()))
    }

    /// Its living processes. A zombie is dead.
    fn alive(&self) -> Vec<PidFd> {
        let is_ours = |pid: u32| {
            quell_sys::cmdline(pid).iter().any(|word| word == &self.token)
                && quell_sys::stat(pid).is_ok_and(|stat| stat.state != b'Z')
        };
        let pids = quell_sys::pids().unwrap_or_default().into_iter();
        let pins = pids.filter(|pid| is_ours(*pid)).filter_map(|pid| PidFd::open(pid).ok());
        pins.filter(|pin| is_ours(pin.pid()) && pin.is_alive()).collect()
    }

    /// How many live when the tool has said that it is done and they had a moment to disappear.
    fn left(&self) -> usize {
        let deadline = Instant::now() + SETTLE;
        while !self.alive().is_empty() && Instant::now() < deadline {
            // No event tells of the end of another process's children.
            sleep(Duration::from_millis(10));
        }
        self.alive().len()
    }

    /// Kills what is left. An actor that starts another one is met again.
    fn end(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let alive = self.alive();
            if alive.is_empty() {
                return;
            }
            for pin in alive {
                pin.signal(Signal::KILL);
            }
        }
    }
}

/// `cargo xtask compare`.
pub fn main(words: Vec<String>) -> Result<ExitCode, String> {
    let options = Options::parse(words)?;
    let quell = build(&options)?;
    let peers = Peers::gather(&options);
    let env = BenchEnv::new(&quell, &peers, &options)?;
    let table = compare(&env);
    for left in env.close() {
        eprintln!("compare: {left}");
    }
    let table = table?;
    print!("{table}");
    write_into_readme(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// Puts the table between the two markers of the README.
fn write_into_readme(table: &str) -> Result<(), String> {
    let file = root().join("README.md");
    let readme = fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
    let (head, rest) = readme.split_once(BEGIN).ok_or("README.md has no place for the table")?;
    let (_, tail) = rest.split_once(END).ok_or("README.md has no end of the table")?;
    let text = format!("{head}{BEGIN}\n{}\n{table}{END}{tail}", include_str!("compare/intro.md").trim_end());
    fs::write(&file, text).map_err(|why| format!("{}: {why}", file.display()))
}

fn compare(env: &BenchEnv<'_>) -> Result<String, String> {
    let program = build_actors(env)?;
    let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
    let mut table =
        format!("\n| | {} | used as |\n|---|{}---|\n", names.join(" | "), "---|".repeat(KINDS.len()));
    for contender in contenders(env) {
        let cells: Vec<String> = KINDS
            .iter()
            .map(|(kind, _)| {
                let stop = contender.stop.as_ref().map_err(String::clone)?;
                let actor = Actor::new(env, &program, kind)?;
                let stopped = stop(&actor);
                let left = actor.left();
                actor.end();
                stopped.map(|()| if left == 0 { "0".to_owned() } else { format!("**{left} alive**") })
            })
            .map(|cell: Result<String, String>| {
                cell.unwrap_or_else(|why| {
                    eprintln!("{}: {why}", contender.name);
                    "not measured".into()
                })
            })
            .collect();
        table += &format!("| {} | {} | {} |\n", contender.name, cells.join(" | "), contender.how);
    }
    let versions: Vec<String> = ["timeout", "tini", "pueue", "supervisord", "pm2", "agent-exec", "psutil"]
        .iter()
        .filter_map(|name| Some(format!("{name} {}", env.peers.version(name)?)))
        .collect();
    table += &format!("\nMeasured with {}, on Linux {}.\n", versions.join(", "), kernel());
    Ok(table)
}

/// The version of the running kernel, without the distribution's suffix.
fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.split(['-', '\n']).next().unwrap_or_default().to_owned()
}

fn build_actors(env: &BenchEnv<'_>) -> Result<PathBuf, String> {
    let (program, sources) = (env.path("actor"), root().join("tests/actors"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-pthread", "-o"]).arg(&program);
    cc.args(["actor.c", "escapes.c", "probes.c"].map(|file| sources.join(file)));
    finish(cc)?;
    Ok(program)
}

fn contenders<'a>(env: &'a BenchEnv<'_>) -> Vec<Contender<'a>> {
    vec![
        contender("timeout", "`timeout -k 1 1 CMD`", env.peers.get("timeout"), |timeout| {
            move |actor: &Actor| {
                let mut command = env.command(&timeout);
                // Its exit code says how the command ended.
                let _ = finish({
                    command.args(["-k", GRACE, GRACE]).args(&actor.words);
                    command
                });
                Ok(())
            }
        }),
        contender("tini", "`tini -s -g`, TERM, KILL after 1 s", env.peers.get("tini"), |tini| {
            move |actor: &Actor| terminate(env, &tini, &["-s", "-g", "--"], actor)
        }),
        contender("pueue", "`pueue kill`", Pueue::start(env, 0), |pueue| {
            move |actor: &Actor| {
                let (id, _) = pueue.add(&actor.words)?;
                actor.wait_until_up()?;
                finish(pueue.client(&["kill", &id]))?;
                until("pueue says that it is done", || pueue.done(&id).unwrap_or(false))
            }
        }),
        Contender {
            name: "supervisord",
            how: "`stopasgroup`, `killasgroup`, `supervisorctl stop`",
            stop: env.peers.get("supervisord").map(|_| {
                let stop = move |actor: &Actor| {
                    let supervisor = Supervisor::start(env, &actor.words)?;
                    finish(supervisor.ctl(&["start", "job"]))?;
                    actor.wait_until_up()?;
                    finish(supervisor.ctl(&["stop", "job"]))
                };
                Box::new(stop) as Stop<'a>
            }),
        },
        contender("pm2", "`pm2 stop`, which kills the tree", Pm2::start(env), |pm2| {
            move |actor: &Actor| {
                let mut start = pm2.call(&["start", "--name", &actor.token, "--no-autorestart"]);
                start.args(["--kill-timeout", "1000", "--interpreter", "none", &actor.words[0], "--"]);
                finish({
                    start.args(&actor.words[1..]);
                    start
                })?;
                actor.wait_until_up()?;
                finish(pm2.call(&["stop", &actor.token]))?;
                finish(pm2.call(&["delete", &actor.token]))
            }
        }),
        contender("agent-exec", "`agent-exec kill --signal KILL`", AgentExec::find(env), |agent| {
            move |actor: &Actor| {
                let (id, _) = agent.start(&actor.words)?;
                actor.wait_until_up()?;
                finish(agent.call(&["kill", "--signal", "KILL", &id]))
            }
        }),
        contender("psutil", "`children(recursive=True)`, `kill()` each", Orders::psutil(env), |orders| {
            move |actor: &Actor| {
                orders.ask(&format!("start {}", actor.words.join(" ")))?;
                actor.wait_until_up()?;
                orders.ask("stop").map(drop)
            }
        }),
        contender("**quell**", "`quell stop --grace 1s`", Ok(()), |()| {
            move |actor: &Actor| quell(env, actor, &[])
        }),
        contender("**quell**, no cgroup", "`quell start --contain reaper`", Ok(()), |()| {
            move |actor: &Actor| quell(env, actor, &["--contain", "reaper"])
        }),
    ]
}

fn contender<'a, T, F: Fn(&Actor) -> Result<(), String> + 'a>(
    name: &'static str,
    how: &'static str,
    peer: Result<T, String>,
    stop: impl FnOnce(T) -> F,
) -> Contender<'a> {
    Contender { name, how, stop: peer.map(|peer| Box::new(stop(peer)) as Stop<'a>) }
}

fn quell(env: &BenchEnv<'_>, actor: &Actor, contain: &[&str]) -> Result<(), String> {
    let mut start = env.quell(&["start"]);
    let (id, _) = output({
        start.args(contain).arg("--").args(&actor.words);
        start
    })?;
    actor.wait_until_up()?;
    finish(env.quell(&["stop", "--grace", "1s", &id]))
}

/// What a container engine does with its init: TERM, and KILL when the grace is over.
fn terminate(env: &BenchEnv<'_>, program: &Path, options: &[&str], actor: &Actor) -> Result<(), String> {
    let mut command = env.command(program);
    command.args(options).args(&actor.words);
    let mut child = command.spawn().map_err(|why| format!("{}: {why}", program.display()))?;
    let up = actor.wait_until_up();
    // Our own child, not yet reaped: the number is its own.
    let pin = PidFd::open(child.id()).map_err(|why| why.to_string())?;
    pin.signal(Signal::TERM);
    let grace = Instant::now() + Duration::from_secs(1);
    if !poll_until(&[Polled::Read(pin.as_fd())], Some(grace)).is_ok_and(|ready| ready[0]) {
        pin.signal(Signal::KILL);
    }
    child.wait().map_err(|why| why.to_string())?;
    up
}
