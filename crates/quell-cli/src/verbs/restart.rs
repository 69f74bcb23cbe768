//! `quell restart`: stop jobs and start the same commands again.

use std::process::ExitCode;

use quell::binary::JobInternals;
use quell::binary::responses::StartAnswer;
use std::time::Duration;

use quell::{Error, Job, StopOptions, Verdict, WaitFor, Waited};

use super::start::report_running;
use super::stop;
use super::{Admitted, envelope, fail, for_each_parallel};
use crate::args::RestartArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::format;

/// The result for one job: the new job, and how the wait for it ended. None if its id could not be printed.
type Restarted = Result<Option<(Job, Option<Waited>)>, Error>;

/// Restarts the jobs, all at the same time, and prints the new ids.
pub fn restart(admitted: Admitted, args: &RestartArgs) -> ExitCode {
    let prepared = admitted.quell.and_then(|quell| {
        let mut jobs = args.jobs.iter().map(|text| quell.job(text)).collect::<Result<Vec<_>, _>>()?;
        // The same job may be named twice.
        jobs.sort_by_key(Job::id);
        jobs.dedup_by_key(|job| job.id());
        let patience = match args.wait_ready {
            Some(wait) => Some(wait.0.map_or_else(
                || admitted.settings.map(|loaded| loaded.config.start.wait_ready),
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
    let how = stop::options(args.now, args.grace, args.reason.clone());
    let mut worst = 0;
    let restart = |job: &Job| again(job, &how, patience, args.json);
    for_each_parallel(&jobs, restart, |old, done| worst = worst.max(report(old, args.json, done)));
    ExitCode::from(worst)
}

/// Restarts a job. Its new id is printed before the wait, unless the one object comes after it.
fn again(job: &Job, how: &StopOptions, patience: Option<Duration>, json: bool) -> Restarted {
    if patience.is_some() {
        // Before anything is stopped.
        job.check_can_meet(&WaitFor::end().ready())?;
    }
    let new = job.restart(how)?;
    if !json && output::to_stdout(&format!("{}\n", new.id())).is_some() {
        report_running(&new);
        return Ok(None);
    }
    let waited = patience.map(|patience| new.wait_for_readiness(patience)).transpose()?;
    Ok(Some((new, waited)))
}

fn report(old: &Job, json: bool, done: Restarted) -> u8 {
    let (new, waited) = match done {
        Ok(Some(done)) => done,
        Ok(None) => return exit::FAILED,
        Err(error) => {
            // It may name the program or a file, unmasked.
            if let Ok(launch) = old.dir().launch() {
                output::hide(launch.request.masked_values());
            }
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
    let met = waited.as_ref().map(|waited| waited.met);
    if json && output::to_stdout(&envelope("restart", &StartAnswer::new(&new, Some(old.id()), met))).is_some()
    {
        report_running(&new);
        return exit::FAILED;
    }
    let (code, words) = waited.map_or((0, String::new()), |waited| format::readiness(&new, &waited));
    output::to_stderr(&words);
    if code == 0 { old_code } else { code }
}
