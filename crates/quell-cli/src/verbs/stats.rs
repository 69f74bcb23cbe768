//! `quell stats`: what the jobs that have ended add up to.

use std::process::ExitCode;

use quell::{Error, Spread, Stats};

use super::{envelope, fail, quell, select};
use crate::args::StatsArgs;
use crate::output;
use crate::show::{self, Cell, Reader, fields};

/// Adds up.
pub fn stats(args: &StatsArgs) -> ExitCode {
    match sums(args) {
        Ok(stats) => {
            let said = if args.json { envelope("stats", &stats) } else { describe(&stats) };
            output::to_stdout(&said).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("stats", args.json, &error),
    }
}

fn sums(args: &StatsArgs) -> Result<Stats, Error> {
    let tags = select::tags(&args.tag)?;
    quell::stats(quell()?.home(), select::since(args.since), &tags)
}

fn describe(stats: &Stats) -> String {
    let head = format!("{} ended\n", show::count(stats.jobs, "job has", "jobs have"));
    if stats.jobs == 0 {
        return head;
    }
    let exits = stats.exits;
    let mut rows: Vec<(&str, Cell)> = Vec::new();
    let mut row = |label, value: String| rows.push((label, Cell::from(value)));
    let ends = [
        (exits.ok, "with 0"),
        (exits.failed, "with another code"),
        (exits.signaled, "by a signal"),
        (exits.not_started, "never ran"),
        (exits.unknown, "unknown"),
    ];
    let ends: Vec<String> =
        ends.iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{count} {how}")).collect();
    row("exits", ends.join(", "));
    let causes: Vec<String> =
        stats.by_cause.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    row("causes", causes.join(", "));
    row("timeouts", stats.timeouts.to_string());
    row("stopped", stats.stopped.to_string());
    let rate = stats.kill_rate.map(|rate| format!(" ({:.0} % of those stopped)", rate * 100.0));
    row("killed", format!("{}{}", stats.killed, rate.unwrap_or_default()));
    row("leaks", stats.leaks.to_string());
    row("not proven", stats.not_proven.to_string());
    let spread = |spread: Spread| {
        let [median, p90, max] = [spread.median, spread.p90, spread.max].map(show::seconds);
        format!("median {median}, 9 in 10 within {p90}, longest {max}")
    };
    if let Some(grace) = stats.grace_used {
        row("grace used", spread(grace));
    }
    if let Some(duration) = stats.duration {
        row("duration", spread(duration));
    }
    head + &fields(&rows, Reader::of_stdout())
}
