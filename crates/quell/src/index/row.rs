//! One row of the index.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use quell_core::{Cause, JobId, KillReason, Receipt, RootOutcome, StepKind};
use quell_store::{JobDir, Liveness};
use rusqlite::{Connection, params};
use serde::Serialize;

use crate::Error;
use crate::view::{JobView, Records};

/// A finished job whose records can't be read.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The job's id.
    pub id: JobId,
    /// What is wrong, and with which file.
    pub why: String,
}

/// One job.
pub(super) struct Row {
    id: JobId,
    size: u64,
    found: Result<Known, Broken>,
}

struct Known {
    view: JobView,
    boot: String,
    /// Numbers of the last run.
    run: Option<Run>,
}

#[derive(Default)]
struct Run {
    duration: f64,
    stopped: bool,
    /// It was asked to end and could use its whole grace.
    asked: bool,
    escalated: bool,
    leaked: bool,
    grace_asked: f64,
    grace_used: Option<f64>,
}

impl Run {
    fn of(receipt: &Receipt) -> Self {
        let stop = |kind| matches!(kind, StepKind::StopAsked | StepKind::Ask | StepKind::Kill);
        Self {
            duration: (receipt.ended.at - receipt.started.at).max(0.0),
            stopped: receipt.steps.iter().any(|step| stop(step.step)),
            asked: receipt.time_of(StepKind::Ask).is_some()
                && receipt.grace.asked > 0.0
                && receipt.kill != Some(KillReason::Wanted),
            escalated: receipt.escalated(),
            leaked: receipt.outlived() > 0,
            grace_asked: receipt.grace.asked,
            grace_used: receipt.grace.used,
        }
    }
}

fn is_live(job: &JobDir) -> Result<bool, Error> {
    match job.liveness() {
        Ok(liveness) => Ok(!matches!(liveness, Liveness::Ended)),
        Err(error) if quell_sys::is_out_of_descriptors(&error) => Err(Error::io(job.dir())(error)),
        Err(_) => Ok(false),
    }
}

impl Row {
    /// The row of a job that has ended; none if the job does not exist, or only its lock was deleted. Fails without free
    /// descriptors.
    pub fn of(job: &JobDir) -> Result<Option<Self>, Error> {
        let found = match Records::read(job) {
            Ok(records) if !records.have_ended() && is_live(job)? => return Ok(None),
            Ok(records) => Ok(Known {
                view: records.view().without_keeper(),
                boot: records.spec.boot_id.clone(),
                run: records.receipt.as_ref().map(Run::of),
            }),
            Err(_) if !job.exists() => return Ok(None),
            Err(error) if error.is_out_of_descriptors() => return Err(error),
            Err(error) => Err(Broken { id: job.id(), why: error.to_string() }),
        };
        Ok(Some(Self { id: job.id(), size: size_of(job.dir()), found }))
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Adds it to the index, or replaces the row of the job.
    pub fn insert(&self, db: &Connection) -> rusqlite::Result<()> {
        let id = self.id.to_string();
        delete(db, &id)?;
        match &self.found {
            Ok(known) => self.insert_known(db, &id, known),
            Err(broken) => {
                let born = i64::try_from(self.id.unix_ms()).unwrap_or(i64::MAX);
                db.prepare_cached(
                    "INSERT INTO jobs (id, state, created, ended, command, tags, size, stopped, asked, escalated,
                     timed_out, leaked, broken) VALUES (?1, 'lost', ?2, ?2, '', '{}', ?3, 0, 0, 0, 0, 0, ?4)",
                )?
                .execute(params![id, born, self.size.cast_signed(), broken.why])?;
                Ok(())
            }
        }
    }

    fn insert_known(&self, db: &Connection, id: &str, known: &Known) -> rusqlite::Result<()> {
        let Known { view, boot, run } = known;
        let ended = view.ended.unwrap_or(view.since).unix_ms();
        let code = match &view.outcome {
            Some(RootOutcome::Exited { code }) => Some(*code),
            _ => None,
        };
        let none = Run::default();
        let numbers = run.as_ref().unwrap_or(&none);
        db.prepare_cached(
            "INSERT INTO jobs (id, name, session, state, created, ended, command, tags, size, boot, cause,
             outcome, code, verdict, duration, stopped, asked, escalated, timed_out, leaked, grace_asked, grace_used,
             view)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
             ?22, ?23)",
        )?
        .execute(params![
            id,
            view.name,
            view.session,
            view.state.as_str(),
            view.created.unix_ms(),
            ended,
            view.command.join(" "),
            json(&view.tags),
            self.size.cast_signed(),
            boot,
            view.cause.as_ref().map(variant_name),
            view.outcome.as_ref().and_then(kind),
            code,
            view.verdict.as_ref().and_then(kind),
            run.as_ref().map(|run| run.duration),
            numbers.stopped,
            numbers.asked,
            numbers.escalated,
            view.cause == Some(Cause::Timeout),
            numbers.leaked,
            run.as_ref().map(|run| run.grace_asked),
            numbers.grace_used,
            json(view),
        ])?;
        let mut tag =
            db.prepare_cached("INSERT INTO tags (key, value, ended, id) VALUES (?1, ?2, ?3, ?4)")?;
        for (key, value) in &view.tags {
            tag.execute(params![key, value, ended, id])?;
        }
        Ok(())
    }
}

/// Removes the row of a job.
pub(super) fn delete(db: &Connection, id: &str) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM tags WHERE id = ?1")?.execute([id])?;
    db.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id]).map(drop)
}

fn json(value: &impl Serialize) -> String {
    // Serializing quell's own types fails only for a path that is not UTF-8.
    serde_json::to_string(value).unwrap_or_default()
}

/// The word that serde writes for a variant without fields.
fn variant_name(value: &impl Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}

/// The word that serde writes for a variant with fields.
fn kind(value: &impl Serialize) -> Option<String> {
    Some(serde_json::to_value(value).ok()?.get("kind")?.as_str()?.to_owned())
}

/// The size of a directory on disk in bytes, as far as it can be read.
fn size_of(dir: &Path) -> u64 {
    let sum = || -> io::Result<u64> {
        let mut bytes = fs::symlink_metadata(dir)?.blocks() * 512;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            bytes += match entry.file_type()?.is_dir() {
                true => size_of(&entry.path()),
                false => entry.metadata().map_or(0, |metadata| metadata.blocks() * 512),
            };
        }
        Ok(bytes)
    };
    sum().unwrap_or(0)
}
