//! `quell rm`: removes the records of finished jobs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use quell::binary::responses::RmAnswer;
use quell::binary::{JobInternals, look};
use quell::{Error, Job, JobState, Quell, Removal};

use super::{Admitted, envelope, fail, job_selection};
use crate::args::RmArgs;
use crate::errors::{self, exit};
use crate::output;

/// Removes each, and returns the highest exit code. If one of the words names no job, nothing is removed.
pub fn rm(admitted: Admitted, args: &RmArgs) -> ExitCode {
    let jobs = match admitted.quell.and_then(|quell| which(&quell, args)) {
        Ok(jobs) => jobs,
        Err(error) => return fail("rm", args.json, &error),
    };
    let mut worst = 0;
    for job in &jobs {
        let was_lost = look(job.dir()).is_ok_and(|view| view.state == JobState::Lost);
        let removed = job.remove(if args.force { Removal::Force } else { Removal::IfProvenDead });
        let is_lost = || look(job.dir()).is_ok_and(|view| view.state == JobState::Lost);
        let is_finished = match &removed {
            // With force it is removed either way.
            Ok(()) => !args.force,
            Err(Error::NotProvenDead(_)) => !is_lost(),
            Err(_) => false,
        };
        if was_lost && is_finished {
            job_selection::report_recovered(job.id());
        }
        let code = match removed {
            Ok(()) => {
                let id = job.id();
                let said =
                    if args.json { envelope("rm", &RmAnswer { id }) } else { format!("{id} removed\n") };
                if output::to_stdout(&said).is_some() { exit::FAILED } else { 0 }
            }
            Err(error) => {
                fail("rm", args.json, &error);
                errors::exit_code(&error)
            }
        };
        worst = worst.max(code);
    }
    ExitCode::from(worst)
}

fn which(quell: &Quell, args: &RmArgs) -> Result<Vec<Job>, Error> {
    // All words are resolved before the first job is finished or removed.
    let mut jobs = args.jobs.iter().map(|text| quell.job(text)).collect::<Result<Vec<_>, _>>()?;
    // The same job may be named twice.
    let mut seen = BTreeSet::new();
    jobs.retain(|job| seen.insert(job.id()));
    Ok(jobs)
}
