//! `quell stop`: many jobs at once, a receipt each.

use std::process::ExitCode;

use quell::answers::StopAnswer;
use quell::guard::Passed;
use quell::{Error, Filter, Job, Quell, Stop, Stopped};
use quell_core::{Verdict, account};

use super::{at_once, envelope, fail, phrases, quell};
use crate::args::StopArgs;
use crate::output;

/// Exit code: not proven dead.
const NOT_PROVEN_DEAD: u8 = 5;

/// Stops the jobs, and says what became of each.
pub fn stop(args: &StopArgs, passed: &Passed) -> ExitCode {
    let (jobs, unknown) = match quell().and_then(|quell| which(&quell, args)) {
        Ok(which) => which,
        Err(error) => return fail("stop", args.json, &error),
    };
    let how = Stop { kill: args.now, grace: args.grace, reason: args.reason.clone() };
    let mut worst = 0;
    // Told first: the others may take their time.
    for error in &unknown {
        fail("stop", args.json, error);
        worst = worst.max(error.exit_code());
    }
    let stop = |job: &Job| job.stop(&how);
    at_once(&jobs, stop, |job, ended| {
        passed.stopped(job.id(), &ended);
        // One that was met while it began, and never ran, leaves nothing. Whoever named it is told so.
        if !matches!(ended, Err(Error::NoSuchJob(_))) || !args.jobs.is_empty() {
            worst = worst.max(report(job, args.json, ended));
        }
    });
    if jobs.is_empty() && unknown.is_empty() && !args.json {
        output::to_stderr("quell: no live job is meant by that\n");
    }
    ExitCode::from(worst)
}

/// Those that are named, and those that are selected; and what is wrong with the words that mean none.
fn which(quell: &Quell, args: &StopArgs) -> Result<(Vec<Job>, Vec<Error>), Error> {
    let (mut jobs, mut unknown) = (Vec::new(), Vec::new());
    for text in &args.jobs {
        match quell.job(text) {
            Ok(job) => jobs.push(job),
            Err(error) => unknown.push(error),
        }
    }
    if args.session.is_some() || !args.tag.is_empty() {
        let tags = args.tag.iter().map(|tag| tag.parse()).collect::<Result<Vec<_>, quell::BadTag>>();
        let tags = tags.map_err(|error| Error::BadValue(error.to_string()))?;
        let filter = Filter { tags, session: args.session.clone(), limit: Some(0), ..Filter::default() };
        jobs.extend(quell.list(&filter)?.jobs.into_iter().map(|view| quell.job_with(view.id)));
    } else if args.all {
        jobs.extend(quell.live()?);
    }
    // The same one may be meant twice.
    jobs.sort_by_key(Job::id);
    jobs.dedup_by_key(|job| job.id());
    Ok((jobs, unknown))
}

fn report(job: &Job, json: bool, ended: Result<Stopped, Error>) -> u8 {
    match ended {
        Ok(Stopped { receipt, was_over }) => {
            let text = match (json, was_over) {
                (true, _) => {
                    envelope("stop", &StopAnswer { id: job.id(), was_over, receipt: receipt.clone() })
                }
                (false, true) => match &receipt.verdict {
                    Verdict::Gone => format!("{} had ended already\n", job.id()),
                    verdict => format!("{} had ended already, {}\n", job.id(), phrases::verdict(verdict)),
                },
                (false, false) => account::account(&receipt),
            };
            match receipt.verdict {
                _ if output::to_stdout(&text).is_some() => output::FAILED,
                Verdict::Gone => 0,
                Verdict::Survivors { .. } | Verdict::Unproven { .. } => NOT_PROVEN_DEAD,
            }
        }
        Err(error) => {
            fail("stop", json, &error);
            error.exit_code()
        }
    }
}
