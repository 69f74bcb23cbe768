//! Names of jobs: `names/NAME` is a link whose target is a job's id.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::JobId;
use quell_sys::fault::{FaultPoint, fault_point};

use crate::files::{gone_is_fine, lock_within};
use crate::home::Home;
use crate::liveness::Liveness;

/// How long a claim waits for another one, which takes microseconds.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// Why a name can't be claimed.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    #[error("the name `{name}` is that of the live job {by}")]
    Taken { name: String, by: JobId },
    #[error("can't claim the name `{name}`: {error}")]
    Io { name: String, error: io::Error },
}

/// Whether `text` can be the name of a job: a plain file name, and not a path.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['.', '-'])
}

impl Home {
    /// The job that has `name`, or had it last.
    pub fn named(&self, name: &str) -> Option<JobId> {
        if !is_name(name) {
            return None;
        }
        fs::read_link(self.sub("names").join(name)).ok()?.to_str()?.parse().ok()
    }

    /// Gives `name` to `id`, unless a live job has it or a lost one, whose processes may be alive.
    pub fn claim(&self, name: &str, id: JobId) -> Result<(), NameError> {
        let failed = |error| NameError::Io { name: name.to_owned(), error };
        if !is_name(name) {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let names = self.sub("names");
        self.make_sub("names").map_err(failed)?;
        let _claims = lock_within(&names.join(".lock"), CLAIM_PATIENCE).map_err(failed)?;
        if let Some(by) = self.named(name).filter(|by| *by != id)
            && !matches!(self.job(by).liveness(), Ok(Liveness::Ended) | Err(_))
            // The end of a job is recorded shortly before its lock is released.
            && !self.job(by).wait_for_true_end()
        {
            return Err(NameError::Taken { name: name.to_owned(), by });
        }
        let new = names.join(format!(".{id}"));
        let link = symlink(id.to_string(), &new).and_then(|()| {
            fault_point(FaultPoint::NameLinked);
            fs::rename(&new, names.join(name))
        });
        link.map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })
    }

    /// Takes `name` away from `id`, if `id` still has it.
    pub fn release_name(&self, name: &str, id: JobId) {
        if let Ok(_claims) = lock_within(&self.sub("names").join(".lock"), CLAIM_PATIENCE)
            && self.named(name) == Some(id)
        {
            let _ = fs::remove_file(self.sub("names").join(name));
        }
    }

    /// Removes the links of processes that were killed while they claimed a name. Returns their number.
    pub fn remove_stale_name_links(&self) -> io::Result<usize> {
        let names = self.sub("names");
        let half_made = || -> io::Result<Vec<PathBuf>> {
            let entries = match fs::read_dir(&names) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                other => other?,
            };
            let is_half_made = |entry: &fs::DirEntry| {
                let name = entry.file_name();
                let id = name.to_str().and_then(|name| name.strip_prefix('.')).map(str::parse::<JobId>);
                matches!(id, Some(Ok(_)))
            };
            Ok(entries.flatten().filter(is_half_made).map(|entry| entry.path()).collect())
        };
        if half_made()?.is_empty() {
            return Ok(0);
        }
        // A claim holds the lock until its link has the name, so with the lock none is in progress.
        let _claims = lock_within(&names.join(".lock"), CLAIM_PATIENCE)?;
        let left = half_made()?;
        left.iter().try_for_each(|link| gone_is_fine(fs::remove_file(link)))?;
        Ok(left.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_a_path() {
        for text in ["", ".", "..", "a/b", "/etc", "-x", ".x", "a b", "a\0", "ä", &"x".repeat(65)] {
            assert!(!is_name(text), "{text}");
        }
        for text in ["web", "a.b-c_1", "0", "../x".trim_start_matches("../")] {
            assert!(is_name(text), "{text}");
        }
    }
}
