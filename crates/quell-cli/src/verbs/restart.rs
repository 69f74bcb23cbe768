//! `quell restart`: stop jobs and start the same commands again.

use std::process::ExitCode;

use std::time::Duration;

use quell::responses::StartAnswer;
use quell::{Conditions, Error, Job, Stop, Waited};
use quell_core::Verdict;

use super::start::tell_running;
use super::{at_once, envelope, fail, guard_check, quell};
use crate::args::RestartArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::format;

/// What became of one job: the new one, and what the wait for it came to.
type Restarted = Result<(Job, Option<Waited>), Error>;

/// Restarts the jobs, all at the same time, and prints the new ids.
pub fn restart(args: &RestartArgs) -> ExitCode {
    let prepared = quell().and_then(|quell| {
        let mut jobs = args.jobs.iter().map(|text| quell.job(text)).collect::<Result<Vec<_>, _>>()?;
        // The same one may be meant twice.
        jobs.sort_by_key(Job::id);
        jobs.dedup_by_key(|job| job.id());
        let patience = match args.wait_ready {
            Some(wait) => Some(wait.0.map_or_else(
                || guard_check::settings().map(|loaded| loaded.config.start.wait_ready),
                Ok::<Duration, Error>,
            )?),
            None => None,
        };
        Ok((jobs, patience))
    });
    let (jobs, patience) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return fail("restart", args.json, &error),
    };
    let how = Stop { kill: args.now, grace: args.grace, reason: args.reason.clone(), ..Stop::default() };
    let mut worst = 0;
    let restart = |job: &Job| again(job, &how, patience);
    at_once(&jobs, restart, |old, done| worst = worst.max(report(old, args.json, done)));
    ExitCode::from(worst)
}

fn again(job: &Job, how: &Stop, patience: Option<Duration>) -> Restarted {
    let Some(patience) = patience else { return Ok((job.restart(how)?, None)) };
    let ready = Conditions { ready: true, ..Conditions::default() };
    // Before anything is stopped.
    job.check_can_meet(&ready)?;
    let new = job.restart(how)?;
    let waited = new.wait_ready(patience)?;
    Ok((new, Some(waited)))
}

fn report(old: &Job, json: bool, done: Restarted) -> u8 {
    let (new, waited) = match done {
        Ok(done) => done,
        Err(error) => {
            fail("restart", json, &error);
            return errors::exit_code(&error);
        }
    };
    let mut old_code = 0;
    if let Ok(receipt) = old.receipt()
        && let Verdict::Unproven { .. } = receipt.verdict
    {
        old_code = exit::NOT_PROVEN_DEAD;
        let verdict = format::verdict(&receipt.verdict);
        output::to_stderr(&format!("quell: {} was started though {} is {verdict}\n", new.id(), old.id()));
    }
    let text = if json {
        let met = waited.as_ref().map(|waited| waited.met);
        envelope("restart", &StartAnswer::new(&new, Some(old.id()), met))
    } else {
        format!("{}\n", new.id())
    };
    if output::to_stdout(&text).is_some() {
        tell_running(&new);
        return exit::FAILED;
    }
    let (code, words) = waited.map_or((0, String::new()), |waited| format::readiness(&new, &waited));
    output::to_stderr(&words);
    if code == 0 { old_code } else { code }
}
