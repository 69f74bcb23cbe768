//! Which jobs are meant, and what lost ones come to when they are met.

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

/// The time that was so long ago; the beginning of time if the clock does not go back that far.
pub fn since(age: Option<Duration>) -> Option<SystemTime> {
    age.map(|age| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// The job that a word means. If its keeper was lost its stop is finished first, and that is told.
pub fn meet(quell: &Quell, text: &str) -> Result<Job, Error> {
    let job = quell.job(text)?;
    // A question about it gets an error with the answer.
    if let Ok(true) = job.finish_if_lost() {
        tell_finished(job.id());
    }
    Ok(job)
}

/// The same for a verb that shows also a lost job: says why one is not finished.
pub fn look_at(quell: &Quell, text: &str) -> Result<Job, Error> {
    let job = quell.job(text)?;
    match job.finish_if_lost() {
        Ok(true) => tell_finished(job.id()),
        Ok(false) => {}
        Err(error) => tell_unfinished(&error),
    }
    Ok(job)
}

/// Says why the stop of a lost job was not finished.
pub fn tell_unfinished(error: &Error) {
    let [error, hint] = [error.to_string(), errors::hint(error)].map(|text| render::printable(&text));
    output::to_stderr(&format!("quell: {error} ({hint})\n"));
}

/// Says that the stop of a lost job was finished.
pub fn tell_finished(id: quell::JobId) {
    output::to_stderr(&format!("quell: the keeper of {id} was killed; its stop is finished now\n"));
}
