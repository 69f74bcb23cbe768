//! `quell stop`: stops jobs in parallel, with a receipt for each.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quell::binary::responses::{StopAnswer, StoppedJob};
use quell::binary::{QuellInternals, account};
use quell::units::format_duration;
use quell::{Error, ErrorBody, Filter, Job, Quell, StopOptions, Stopped, Verdict};
use serde_json::json;

use super::{Admitted, envelope, fail, for_each_parallel};
use crate::args::StopArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::progress::Progress;
use crate::render::{self, format};

/// Stops the jobs, and prints the result for each.
pub fn stop(admitted: Admitted, args: &StopArgs) -> ExitCode {
    let (jobs, unknown) = match admitted.quell.and_then(|quell| which(&quell, args)) {
        Ok(which) => which,
        Err(error) => return fail("stop", args.json, &error),
    };
    let mut how = options(args.now, args.grace, args.reason.clone());
    if let Some(ask) = args.ask {
        how = how.ask(ask.into());
    }
    let (count, left) = (jobs.len(), Arc::new(AtomicUsize::new(jobs.len())));
    let counted = left.clone();
    let progress = Progress::show(!args.json && !args.quiet, move |passed| {
        let passed = format_duration(Duration::from_secs(passed.as_secs()));
        let left = counted.load(Ordering::Relaxed);
        format!("quell: stopping {}, {left} left ({passed})", render::count(count as u64, "job", "jobs"))
    });
    let mut teller =
        Teller { json: args.json, quiet: args.quiet, several: jobs.len() > 1, ..Teller::default() };
    // Reported first: the others may take long.
    unknown.into_iter().for_each(|error| teller.failed(error));
    let stop = |job: &Job| job.stop_with(&how);
    for_each_parallel(&jobs, stop, |job, ended| {
        left.fetch_sub(1, Ordering::Relaxed);
        progress.aside(|| match ended {
            Ok(stopped) => teller.stopped(job, stopped),
            // A job that was stopped before its program ran leaves no record. It is reported only if it was named.
            Err(Error::NoSuchJob(_)) if args.jobs.is_empty() => {}
            Err(error) => teller.failed(error),
        });
    });
    drop(progress);
    if jobs.is_empty() && teller.failed.is_empty() && !args.json && !args.quiet {
        output::to_stderr("quell: no live job matches\n");
    }
    teller.close()
}

/// How a job is stopped: at once with `now`, else after the grace.
pub fn options(now: bool, grace: Option<Duration>, reason: Option<String>) -> StopOptions {
    let mut options = if now { StopOptions::kill() } else { StopOptions::default() };
    if let Some(grace) = grace {
        options = options.grace(grace);
    }
    if let Some(reason) = reason {
        options = options.reason(reason);
    }
    options
}

/// Prints the results: for people one by one, for programs in one answer at the end.
#[derive(Default)]
struct Teller {
    json: bool,
    /// Whether only errors are printed.
    quiet: bool,
    /// Whether a receipt has to name its job.
    several: bool,
    jobs: Vec<StoppedJob>,
    failed: Vec<ErrorBody>,
    worst: u8,
}

impl Teller {
    fn stopped(&mut self, job: &Job, stopped: Stopped) {
        let (already_ended, receipt) = (stopped.already_ended(), stopped.into_receipt());
        if receipt.verdict != Verdict::Gone {
            self.worst = self.worst.max(exit::NOT_PROVEN_DEAD);
        }
        if self.json {
            return self.jobs.push(StoppedJob { id: receipt.job.id, already_ended, receipt });
        }
        if self.quiet && receipt.verdict == Verdict::Gone {
            return;
        }
        let columns = render::columns_of(&std::io::stdout());
        let text = match (already_ended, &receipt.verdict) {
            (true, Verdict::Gone) => format!("{} had ended already\n", format::job(job)),
            (true, verdict) => {
                format!("{} had ended already, {}\n", format::job(job), format::verdict(verdict))
            }
            (false, _) if self.several => {
                account::account_as(&format!("quell: {}", format::job(job)), &receipt, columns)
            }
            (false, _) => account::account(&receipt, columns),
        };
        if output::to_stdout(&text).is_some() {
            self.worst = exit::FAILED;
        }
    }

    fn failed(&mut self, error: Error) {
        self.worst = self.worst.max(errors::exit_code(&error));
        if !self.json {
            fail("stop", false, &error);
        }
        self.failed.push(errors::body(&error));
    }

    /// The exit code.
    fn close(self) -> ExitCode {
        let code = ExitCode::from(self.worst);
        match self.failed.as_slice() {
            _ if !self.json => code,
            [error] if self.jobs.is_empty() => output::fail("stop", true, self.worst, error),
            [error, ..] if self.jobs.is_empty() => {
                let details = json!({ "failed": self.failed });
                output::fail("stop", true, self.worst, &ErrorBody { details, ..error.clone() })
            }
            _ => {
                let answer = StopAnswer { jobs: self.jobs, failed: self.failed };
                output::to_stdout(&envelope("stop", &answer)).unwrap_or(code)
            }
        }
    }
}

/// The named and the selected jobs, and an error for each word that names no job.
fn which(quell: &Quell, args: &StopArgs) -> Result<(Vec<Job>, Vec<Error>), Error> {
    let (mut jobs, mut unknown) = (Vec::new(), Vec::new());
    for text in &args.jobs {
        match quell.job(text) {
            Ok(job) => jobs.push(job),
            Err(error) => unknown.push(error),
        }
    }
    if args.session.is_some() || !args.tag.is_empty() {
        let tags = args.tag.iter().map(|tag| tag.parse()).collect::<Result<Vec<_>, quell::InvalidTag>>();
        let tags = tags.map_err(|error| Error::BadValue(error.to_string()))?;
        jobs.extend(quell.to_stop(&Filter { tags, session: args.session.clone(), ..Filter::default() })?);
    } else if args.all {
        jobs.extend(quell.to_stop(&Filter::default())?);
    }
    // The same job may be named twice.
    jobs.sort_by_key(Job::id);
    jobs.dedup_by_key(|job| job.id());
    Ok((jobs, unknown))
}
