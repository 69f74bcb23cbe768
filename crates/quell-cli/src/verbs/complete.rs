//! `quell __complete`: the words that can stand on a command line, for the completion scripts.

use std::collections::BTreeSet;
use std::process::ExitCode;

use quell::binary::QuellInternals;
use quell::{Error, Filter, JobState, JobView, Signal};

use super::Admitted;
use crate::args::{CompleteArgs, CompleteWhat};
use crate::output;

/// How many ended jobs are offered.
const ENDED: usize = 50;

/// Prints the words, one a line. Errors are not printed, because the user is editing a line.
pub fn complete(admitted: Admitted, args: &CompleteArgs) -> ExitCode {
    let words = words(admitted, args.what).unwrap_or_default();
    let text: String = words.into_iter().map(|word| word + "\n").collect();
    output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS)
}

fn words(admitted: Admitted, what: CompleteWhat) -> Result<Vec<String>, Error> {
    let jobs = |limit: usize| {
        let quell = admitted.quell?;
        quell.list(&Filter { limit: Some(limit), ..Filter::default() }).map(|listing| (quell, listing.jobs))
    };
    let is_live = |job: &JobView| job.state != JobState::Ended;
    let (quell, jobs) = match what {
        CompleteWhat::States => return Ok(JobState::ALL.iter().map(ToString::to_string).collect()),
        CompleteWhat::Signals => {
            return Ok((1..=31).filter_map(Signal::new).map(|signal| signal.to_string()).collect());
        }
        CompleteWhat::Live => jobs(0)?,
        CompleteWhat::Ended | CompleteWhat::Any | CompleteWhat::Tags | CompleteWhat::Sessions => jobs(ENDED)?,
    };
    let unique = |words: BTreeSet<String>| words.into_iter().collect();
    let jobs: Vec<JobView> = match what {
        CompleteWhat::Tags => {
            let tags = jobs.iter().flat_map(|job| &job.tags).map(|(key, value)| format!("{key}={value}"));
            return Ok(unique(tags.collect()));
        }
        CompleteWhat::Sessions => {
            return Ok(unique(jobs.into_iter().filter_map(|job| job.session).collect()));
        }
        CompleteWhat::Live => jobs.into_iter().filter(is_live).collect(),
        CompleteWhat::Ended => jobs.into_iter().filter(|job| !is_live(job)).collect(),
        CompleteWhat::Any | CompleteWhat::States | CompleteWhat::Signals => jobs,
    };
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let short = quell::binary::short_ids(quell.home(), &ids)?;
    let mut words: Vec<String> = Vec::new();
    for name in jobs.into_iter().filter_map(|job| job.name) {
        // Several finished jobs may have had the same name.
        if !words.contains(&name) {
            words.push(name);
        }
    }
    words.extend(short);
    Ok(words)
}
