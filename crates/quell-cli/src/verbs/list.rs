//! `quell list`: the live jobs, and the last finished ones.

use std::process::ExitCode;

use quell::binary::QuellInternals;
use quell::{Error, Filter, JobState, JobView, Quell, RecoveredList, RootOutcome, Timestamp, Verdict};

use super::{Admitted, envelope, fail, job_selection};
use crate::args::ListArgs;
use crate::errors::exit;
use crate::output;
use crate::render::{self, Cell, Reader, Style, Table};

/// Lists them.
pub fn list(admitted: Admitted, args: &ListArgs) -> ExitCode {
    let listed = filter(args).and_then(|filter| {
        let quell = admitted.quell?;
        let listed = quell.list_recovered(&filter)?;
        Ok((quell, listed))
    });
    let text = listed.and_then(|(quell, RecoveredList { listing, recovered, failed })| {
        recovered.into_iter().for_each(job_selection::report_recovered);
        failed.iter().for_each(job_selection::report_not_recovered);
        for warning in &listing.warnings {
            output::to_stderr(&format!("quell: {}\n", render::printable(warning)));
        }
        let unproven = !failed.is_empty() || listing.jobs.iter().any(JobView::is_not_proven_dead);
        let code = if unproven { exit::NOT_PROVEN_DEAD } else { 0 };
        if args.json {
            return Ok((envelope("list", &listing), code));
        }
        if args.ids {
            return Ok((listing.jobs.iter().map(|job| format!("{}\n", job.id)).collect(), code));
        }
        if listing.jobs.is_empty() {
            output::to_stderr(if is_filtered(args) {
                "quell: no job matches\n"
            } else {
                "quell: no jobs yet; `quell start -- CMD` starts one, `quell run -- CMD` runs one in the foreground\n"
            });
            return Ok((String::new(), code));
        }
        let table = table(&quell, &listing.jobs)?;
        if listing.jobs.iter().any(|job| job.outlived.is_some()) {
            let note =
                "`outlived`: processes outlived the command and were stopped (--until tree waits for them, --leak keep lets them run)";
            output::to_stderr(&format!("quell: {note}\n"));
        }
        if listing.more > 0 {
            let more = render::count(listing.more, "more has ended", "more have ended");
            output::to_stderr(&format!("quell: {more} (`quell list --all` shows all)\n"));
        }
        Ok((table, code))
    });
    match text {
        Ok((text, code)) => output::painted_to_stdout(&text).unwrap_or(ExitCode::from(code)),
        Err(error) => fail("list", args.json, &error),
    }
}

fn is_filtered(args: &ListArgs) -> bool {
    let ListArgs { state, tag, session, name, since, limit, .. } = args;
    !state.is_empty()
        || !tag.is_empty()
        || session.is_some()
        || name.is_some()
        || since.is_some()
        || limit.is_some()
}

fn filter(args: &ListArgs) -> Result<Filter, Error> {
    Ok(Filter {
        all: args.all,
        states: job_selection::states(&args.state)?,
        tags: job_selection::tags(&args.tag)?,
        session: args.session.clone(),
        name: args.name.clone(),
        limit: args.limit,
        since: job_selection::since(args.since),
        before: None,
    })
}

fn table(quell: &Quell, jobs: &[JobView]) -> Result<String, Error> {
    let now = quell::binary::now();
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let mut table = Table::new(["ID", "NAME", "STATE", "AGE", "HELD", "COMMAND"], &[3]);
    for (job, id) in jobs.iter().zip(quell::binary::short_ids(quell.home(), &ids)?) {
        table.row([
            id.into(),
            job.name.as_deref().unwrap_or("-").into(),
            state(job),
            age(job, now).into(),
            job.held.map_or("-", |held| held.as_str()).into(),
            command(job).into(),
        ]);
    }
    Ok(table.lines(Reader::of_stdout()))
}

/// What runs: the command, or what a command has left behind that has exited.
fn command(job: &JobView) -> String {
    let command = render::command_line(&job.command);
    if job.is_left_behind() { format!("left by: {command}") } else { command }
}

/// The time since its end, or its beginning.
fn age(job: &JobView, now: Timestamp) -> String {
    render::ago(now, job.ended.or(job.started).unwrap_or(job.created))
}

/// The state, with the outcome of what has ended: `ended 0`, `ended SIGKILL`, `lost`.
pub fn state(job: &JobView) -> Cell {
    let word = job.state.as_str();
    match job.state {
        JobState::Created | JobState::Starting | JobState::Stopping | JobState::Waiting => {
            Cell::new(word, Style::Busy)
        }
        JobState::Running | JobState::Ready => Cell::new(word, Style::Good),
        JobState::Lost => Cell::new(word, Style::Bad),
        JobState::Ended => {
            let (how, style) = match &job.outcome {
                Some(RootOutcome::Exited { code: 0 }) => ("0".into(), Style::Faint),
                Some(RootOutcome::Exited { code }) => (code.to_string(), Style::Bad),
                Some(RootOutcome::Signaled { signal, .. }) => (format!("SIG{signal}"), Style::Bad),
                Some(RootOutcome::NotStarted { .. }) => ("unstarted".into(), Style::Bad),
                Some(RootOutcome::Unknown) | None => ("?".into(), Style::Bad),
            };
            match job.verdict {
                Some(Verdict::Survivors { .. }) => Cell::new(format!("{word} {how} ALIVE"), Style::Bad),
                Some(Verdict::Unproven { .. }) => Cell::new(format!("{word} {how} UNPROVEN"), Style::Bad),
                Some(Verdict::Gone) | None => {
                    let limit = if job.restart_limit_reached { ", restart limit" } else { "" };
                    let outlived =
                        job.outlived.map(|count| format!(", {count} outlived")).unwrap_or_default();
                    let style = if limit.is_empty() && outlived.is_empty() { style } else { Style::Bad };
                    Cell::new(format!("{word} {how}{limit}{outlived}"), style)
                }
            }
        }
    }
}
