//! `quell sweep`: finish the stop of jobs without a keeper.

use std::process::ExitCode;

use super::Admitted;
use crate::args::SweepArgs;
use crate::errors::exit;
use crate::output;

/// Sweeps, and prints what was found and done.
pub fn sweep(admitted: Admitted, args: &SweepArgs) -> ExitCode {
    let report = match admitted.quell.and_then(|quell| quell.sweep(args.dry_run.into())) {
        Ok(report) => report,
        Err(error) => return super::fail("sweep", args.json, &error),
    };
    let text = if args.json {
        format!("{}\n", quell::binary::success("sweep", &report))
    } else {
        words::describe(&report)
    };
    let verdict = if report.all_gone() { ExitCode::SUCCESS } else { ExitCode::from(exit::NOT_PROVEN_DEAD) };
    output::to_stdout(&text).unwrap_or(verdict)
}

mod words {
    use std::fmt::Write;

    use quell::binary::printable;
    use quell::{Cause, Verdict};
    use quell::{LeftoverAction, SweepAction, SweepReport, SweptJob};

    /// The report for people.
    pub fn describe(report: &SweepReport) -> String {
        let mut text = String::new();
        for job in &report.jobs {
            let name = job.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            let what = if report.dry_run { plan(job) } else { deed(job) };
            let _ = writeln!(text, "{}{name}: {what}", job.id);
            if let Some(error) = &job.error {
                let _ = writeln!(text, "  {}", printable(error));
            }
            for id in &job.survivors {
                let _ = writeln!(text, "  still alive: pid {}", id.pid);
            }
        }
        for leftover in &report.leftovers {
            let path = leftover.path.display();
            let _ = match (&leftover.error, report.dry_run, leftover.action) {
                (Some(error), _, _) => writeln!(text, "{path}: can't be removed: {error}"),
                (None, true, LeftoverAction::Kill) => {
                    writeln!(text, "{path}: what is in it would be killed, and it removed")
                }
                (None, true, LeftoverAction::Remove) => writeln!(text, "{path}: would be removed"),
                (None, false, LeftoverAction::Kill) => {
                    writeln!(text, "{path}: killed what was in it, removed")
                }
                (None, false, LeftoverAction::Remove) => writeln!(text, "{path}: removed"),
            };
        }
        let kept = match report.kept {
            0 => "no job is alive".to_owned(),
            1 => "1 job is alive and kept".to_owned(),
            n => format!("{n} jobs are alive and kept"),
        };
        let (reported, lost): (Vec<_>, Vec<_>) =
            report.jobs.iter().partition(|job| job.action == SweepAction::Report);
        let lost = match lost.len() {
            0 => "no job was lost".to_owned(),
            1 => "1 job was lost".to_owned(),
            n => format!("{n} jobs were lost"),
        };
        let unproven = match reported.len() {
            0 => String::new(),
            1 => ", 1 earlier end is not proven (`quell rm` forgets it)".to_owned(),
            n => format!(", {n} earlier ends are not proven (`quell rm` forgets them)"),
        };
        let _ = writeln!(text, "{lost}, {kept}{unproven}");
        text
    }

    fn processes(count: usize) -> String {
        if count == 1 { "1 process".into() } else { format!("{count} processes") }
    }

    fn plan(job: &SweptJob) -> String {
        match job.action {
            SweepAction::Stop => format!("its keeper is lost; {} would be killed", processes(job.processes)),
            SweepAction::Settle => "it has ended; its record would be closed".into(),
            SweepAction::Remove => "it never ran; its record would be removed".into(),
            SweepAction::Wait => "another quell is finishing it".into(),
            SweepAction::Report => deed(job),
        }
    }

    fn deed(job: &SweptJob) -> String {
        let left = match &job.verdict {
            Some(Verdict::Gone) => ", 0 left".to_owned(),
            Some(Verdict::Survivors { count }) => format!(", {count} LEFT ALIVE"),
            Some(Verdict::Unproven { why }) => format!(", not proven dead: {why}"),
            None => String::new(),
        };
        match job.action {
            SweepAction::Stop if job.cause == Some(Cause::HostReboot) => "ended with its host".into(),
            SweepAction::Stop => format!("its keeper was lost: {} found{left}", processes(job.processes)),
            SweepAction::Settle | SweepAction::Report => format!("it had ended{left}"),
            SweepAction::Remove => "it never ran; its record is removed".into(),
            SweepAction::Wait => format!("finished by another quell{left}"),
        }
    }
}
