//! `quell gc`: removes old jobs, by age, number and size.

use std::fmt::Write;
use std::process::ExitCode;

use quell::{Error, GcReport, GcRules};

use super::{Admitted, envelope, fail};
use crate::args::{GcArgs, RuleArg};
use crate::output;
use crate::render;

/// Removes them, and prints which.
pub fn gc(admitted: Admitted, args: &GcArgs) -> ExitCode {
    match collect(admitted, args) {
        Ok(report) => {
            let said = if args.json { envelope("gc", &report) } else { describe(&report) };
            output::to_stdout(&said).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("gc", args.json, &error),
    }
}

fn collect(admitted: Admitted, args: &GcArgs) -> Result<GcReport, Error> {
    let (quell, loaded) = (admitted.quell?, admitted.settings?);
    for warning in &loaded.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let configured = loaded.config.gc.rules();
    let rules = GcRules {
        max_age: args.max_age.map_or(configured.max_age, |RuleArg(age)| age),
        max_count: args.max_count.map_or(configured.max_count, |RuleArg(count)| count),
        max_size: args.max_size.map_or(configured.max_size, |RuleArg(size)| size),
        force: args.force,
    };
    quell.gc(&rules, args.dry_run.into())
}

fn describe(report: &GcReport) -> String {
    let mut text = String::new();
    for id in &report.removed {
        let _ = writeln!(text, "{id} {}", if report.dry_run { "would be removed" } else { "removed" });
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "{} stays: {}", skipped.id, render::printable(&skipped.why));
    }
    if report.remains > 0 {
        let remains = render::count(report.remains, "remnant", "remnants");
        let done = if report.dry_run { "would be cleaned away" } else { "cleaned away" };
        let _ = writeln!(text, "{remains} of jobs that never came to be {done}");
    }
    let removed = render::count(report.removed.len() as u64, "job", "jobs");
    let (done, freed) = if report.dry_run { ("to remove", "to free") } else { ("removed", "freed") };
    let _ = writeln!(text, "{removed} {done}, {} {freed}, {} kept", render::bytes(report.bytes), report.kept);
    text
}
