//! `quell kill`: a process that quell didn't start, under the guard.

use std::process::ExitCode;

use quell::{KillReason, Signal};
use quell_guard::kill::{Kill, KillAnswer, KillVerdict};

use super::{Admitted, envelope, fail, guard_of};
use crate::args::KillArgs;
use crate::errors::exit;
use crate::output;
use crate::render;

/// What the guard decides about: signal and tree.
pub fn how(args: &KillArgs) -> Kill {
    Kill { signal: args.signal, tree: args.tree, ..Kill::default() }
}

/// Ends it, and prints the result.
pub fn kill(admitted: Admitted, args: &KillArgs) -> ExitCode {
    let done = admitted.quell.and_then(|quell| {
        let config = admitted.settings?.config;
        let stop = &config.stop;
        let options = Kill { grace: args.grace.unwrap_or(stop.grace), verify: stop.verify, ..how(args) };
        let guard = guard_of(&quell, &config, args.reason.clone());
        Ok(quell_guard::kill::kill(&guard, &args.pid, &options)?)
    });
    match done {
        Ok(answer) => {
            let text = if args.json { envelope("kill", &answer) } else { describe(&answer) };
            let code = if answer.success { 0 } else { exit::NOT_PROVEN_DEAD };
            output::to_stdout(&text).unwrap_or(ExitCode::from(code))
        }
        Err(error) => fail("kill", args.json, &error),
    }
}

fn describe(answer: &KillAnswer) -> String {
    let who = format!("{} ({})", answer.pid, render::printable(&answer.name));
    let below = answer.members.len() - 1;
    let whole = match below {
        0 => who.clone(),
        _ => format!("{who} and {} below it", render::count(below as u64, "process", "processes")),
    };
    let took = render::seconds(answer.took.as_secs_f64());
    let mut spared = answer.members.iter().filter_map(|member| member.spared.as_ref());
    match &answer.verdict {
        KillVerdict::Gone => {
            let how = match answer.kill {
                Some(KillReason::GraceOver) => format!("killed when {} was not enough", answer.signal),
                Some(_) if answer.signal != Signal::KILL => "killed (no grace)".to_owned(),
                Some(_) | None => format!("by {}", answer.signal),
            };
            format!("{whole}: gone after {took}, {how}\n")
        }
        KillVerdict::Sent => format!("{whole}: {} sent\n", answer.signal),
        KillVerdict::Unproven { why } => {
            format!("{whole}: gone after {took}, but there may be others: {}\n", render::printable(why))
        }
        KillVerdict::Survivors { count } => match spared.next() {
            Some(spared) => {
                let reason = render::printable(&spared.reason);
                format!("{whole}: {count} still alive after {took}, and spared: {reason} ({})\n", spared.code)
            }
            None => format!("{whole}: {count} still alive after {took}; the kernel has not let go of it\n"),
        },
    }
}
