//! From the order to the printed id. What was started is ended before the next one's turn, outside of the figure.

use crate::bench::bench_env::{BenchEnv, finish, output, ready, time, until};
use crate::bench::daemons::{AgentExec, Pm2, Pueue, Supervisor};
use crate::bench::row::Row;
use quell_core::Signal;
use quell_sys::PidFd;

pub fn rows<'a>(env: &'a BenchEnv<'_>) -> Result<Vec<Row<'a>>, String> {
    let told = env.path("supervised");
    let row = Row::new("start", "start in the background until the id is printed", "ms")
        .bar("pueue", 1.0, None)
        .aim("setsid -f", 1.5)
        .maybe(
            "setsid -f",
            "says nothing of what it has started; keeps nothing; can't stop it",
            env.peers.get("setsid"),
            |program| {
                move || {
                    let file = env.fresh("ready");
                    let mut command = env.command(&program);
                    command.arg("-f").args(env.tree(1, &file));
                    let elapsed = time(command)?;
                    end(env, ready(&file)?)?;
                    Ok(elapsed)
                }
            },
        )
        .maybe(
            "pueue",
            "the daemon runs already; prints the number before the program runs",
            Pueue::start(env, 0),
            |pueue| {
                move || {
                    let file = env.fresh("ready");
                    let (id, elapsed) = pueue.add(&env.tree(1, &file))?;
                    let pid = ready(&file)?;
                    finish(pueue.client(&["kill", &id]))?;
                    gone(pid)?;
                    Ok(elapsed)
                }
            },
        )
        .maybe(
            "agent-exec",
            "a supervisor for each job; prints the id before the program runs",
            AgentExec::find(env),
            |agent| {
                move || {
                    let file = env.fresh("ready");
                    let (id, elapsed) = agent.start(&env.tree(1, &file))?;
                    let pid = ready(&file)?;
                    finish(agent.call(&["kill", &id]))?;
                    gone(pid)?;
                    Ok(elapsed)
                }
            },
        )
        .maybe(
            "supervisord",
            "the daemon runs already and knows the program by name",
            Supervisor::start(env, &env.tree(1, &told)),
            |supervisor| {
                let file = told.clone();
                move || {
                    let elapsed = time(supervisor.ctl(&["start", "job"]))?;
                    ready(&file)?;
                    finish(supervisor.ctl(&["stop", "job"]))?;
                    Ok(elapsed)
                }
            },
        )
        .maybe("pm2", "the daemon runs already", Pm2::start(env), |pm2| {
            move || {
                let file = env.fresh("ready");
                let words = env.tree(1, &file);
                let mut command =
                    pm2.call(&["start", "--silent", "--no-autorestart", "--name", "job", &words[0], "--"]);
                command.args(&words[1..]);
                let elapsed = time(command)?;
                ready(&file)?;
                finish(pm2.call(&["delete", "--silent", "job"]))?;
                Ok(elapsed)
            }
        })
        .quell(
            "quell start",
            "no daemon; prints the id when the program runs, contained and on record",
            move || {
                let file = env.fresh("ready");
                let mut command = env.quell(&["start", "--"]);
                command.args(env.tree(1, &file));
                let (id, elapsed) = output(command)?;
                ready(&file)?;
                finish(env.quell(&["stop", "--now", &id]))?;
                Ok(elapsed)
            },
        );
    Ok(vec![row])
}

/// Ends a job that no tool ends: it is the process that runs our own program.
fn end(env: &BenchEnv<'_>, pid: u32) -> Result<(), String> {
    let pin = PidFd::open(pid).map_err(|why| format!("pid {pid}: {why}"))?;
    if quell_sys::cmdline(pid).first().is_some_and(|program| *program == env.job().to_string_lossy()) {
        pin.signal(Signal::KILL);
    }
    gone(pid)
}

fn gone(pid: u32) -> Result<(), String> {
    until("the job is gone", || !PidFd::open(pid).is_ok_and(|pin| pin.is_alive()))
}
