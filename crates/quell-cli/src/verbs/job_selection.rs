//! Which jobs a verb is about. Lost ones are finished first.

use std::time::{Duration, SystemTime};

use quell::binary::JobInternals;
use quell::{Error, Job, JobState, Quell, TagFilter};

use crate::errors;
use crate::output;
use crate::render;

/// The labels that are asked for.
pub fn tags(texts: &[String]) -> Result<Vec<TagFilter>, Error> {
    let tags = texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>, quell::InvalidTag>>();
    tags.map_err(|error| Error::BadValue(error.to_string()))
}

/// The states that are asked for.
pub fn states(texts: &[String]) -> Result<Vec<JobState>, Error> {
    let states = texts.iter().map(|text| text.parse()).collect::<Result<_, quell::InvalidState>>();
    states.map_err(|error| Error::BadValue(error.to_string()))
}

/// The time this long ago; 1970 if the clock does not go back that far.
pub fn since(age: Option<Duration>) -> Option<SystemTime> {
    age.map(|age| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// The job that a word names. A lost job is finished first, and that is reported.
pub fn meet(quell: &Quell, text: &str) -> Result<Job, Error> {
    let job = quell.job(text)?;
    // A later call reports the error.
    if let Ok(true) = job.recover_if_orphaned() {
        report_recovered(job.id());
    }
    Ok(job)
}

/// The same for a verb that also shows lost jobs: reports why one is not finished.
pub fn look_at(quell: &Quell, text: &str) -> Result<Job, Error> {
    let job = quell.job(text)?;
    match job.recover_if_orphaned() {
        Ok(true) => report_recovered(job.id()),
        Ok(false) => {}
        Err(error) => report_not_recovered(&error),
    }
    Ok(job)
}

/// Reports why the stop of a lost job was not finished.
pub fn report_not_recovered(error: &Error) {
    let [error, hint] = [error.to_string(), errors::hint(error)].map(|text| render::printable(&text));
    output::to_stderr(&format!("quell: {error} ({hint})\n"));
}

/// Reports that the stop of a lost job was finished.
pub fn report_recovered(id: quell::JobId) {
    output::to_stderr(&format!("quell: the keeper of {id} was lost; its stop is finished now\n"));
}
