//! The log of what the guard has decided and of what was done: one JSON object per line, in quell's home.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{Decision, Timestamp};
use quell_store::Home;
use serde::{Deserialize, Serialize};

use crate::Effect;

/// When the log is begun anew; the one before it is kept.
const CAP: u64 = 16 << 20;

/// How much of something that a stranger has written is kept in a line.
const LONGEST: usize = 400;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditLine {
    /// `quell/1`.
    pub schema: String,
    /// When.
    pub at: Timestamp,
    /// Whether it was decided or done.
    pub kind: Kind,
    /// What was to be done.
    pub verb: String,
    /// What that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// To what.
    pub target: String,
    /// Who wanted it.
    pub actor: Asker,
    /// Why, in the words of who wanted it: `--reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What the guard said.
    pub decision: Decision,
    /// The job that it was about, whose receipt tells more. Of a `run` that could not be started there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

/// Which kind of line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The guard was asked.
    Decision,
    /// It was done.
    Act,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asker {
    /// The process that called quell.
    pub pid: u32,
    /// Its short name, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its user.
    pub uid: u32,
    /// The job that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The session that it says it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Asker {
    /// Whoever called this process.
    pub(super) fn here() -> Self {
        Self::new(quell_sys::stat(quell_sys::parent()).ok())
    }

    /// The process that wants what this one was executed for: its parent, or the caller of that one if it is quell, too.
    pub fn of_caller() -> Self {
        let parent = quell_sys::stat(quell_sys::parent()).ok();
        let is_quell =
            |parent: &&quell_sys::Stat| quell_sys::same_executable_file(parent.pid, quell_sys::pid());
        let caller = parent.as_ref().filter(is_quell);
        let caller = caller.and_then(|parent| quell_sys::stat(parent.ppid).ok());
        Self::new(caller.or(parent))
    }

    fn new(process: Option<quell_sys::Stat>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            pid: process.as_ref().map_or(0, |stat| stat.pid),
            name: process.map(|stat| stat.comm),
            uid: quell_sys::uid(),
            job: variable(quell_contain::JOB_VARIABLE),
            session: variable("QUELL_SESSION"),
        }
    }
}

pub(super) fn path(home: &Home) -> PathBuf {
    home.dir().join("audit.jsonl")
}

fn old_path(home: &Home) -> PathBuf {
    home.dir().join("audit.1.jsonl")
}

pub(super) fn append(home: &Home, line: &AuditLine) -> io::Result<()> {
    let short = |text: &str| -> String { text.chars().take(LONGEST).collect() };
    let actor = Asker {
        job: line.actor.job.as_deref().map(short),
        session: line.actor.session.as_deref().map(short),
        ..line.actor.clone()
    };
    let cause = line.cause.as_deref().map(short);
    let line = AuditLine { target: short(&line.target), cause, actor, ..line.clone() };
    let path = path(home);
    let open = || quell_sys::open_private(&path, quell_sys::OpenMode::Append);
    home.check()?;
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => home.make().and_then(|()| open())?,
        other => other?,
    };
    let (size, is_cut) = end_of(&mut file);
    // One that was cut, by a disk that was full, must not take this one with it.
    let mut bytes = if is_cut { vec![b'\n'] } else { Vec::new() };
    serde_json::to_writer(&mut bytes, &line)?;
    bytes.push(b'\n');
    // Only ever added to, in one write: what others add at the same time stands before or behind it.
    file.write_all(&bytes)?;
    if size + bytes.len() as u64 > CAP && file.try_lock().is_ok() {
        // Whoever else finds it too long is behind the lock, or finds another file here: none is put aside twice.
        let is_it = |here: fs::Metadata, it: fs::Metadata| (here.dev(), here.ino()) == (it.dev(), it.ino());
        if is_it(fs::symlink_metadata(&path)?, file.metadata()?) {
            fs::rename(&path, old_path(home))?;
        }
    }
    Ok(())
}

/// How long it is, and whether the last line has no end, and gets none: what somebody is just writing is seen in parts.
/// Nothing tells that it is whole, so it is looked at twice; at worst there is an empty line.
fn end_of(file: &mut File) -> (u64, bool) {
    let mut last = || -> io::Result<(u64, u8)> {
        let mut byte = [b'\n'];
        let at = file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut byte)?;
        Ok((at, byte[0]))
    };
    // There is no last byte of an empty file.
    let Ok((at, byte)) = last() else { return (0, false) };
    if byte == b'\n' {
        return (at + 1, false);
    }
    // Whoever is writing needs microseconds, and nothing tells when it is done.
    std::thread::sleep(Duration::from_millis(2));
    (at + 1, last().is_ok_and(|again| again == (at, byte)))
}

/// What can be read of it; a line that was cut by a crash is passed over.
pub(super) fn read(home: &Home) -> io::Result<Vec<AuditLine>> {
    let bytes = |path: PathBuf| match quell_sys::read_private(&path, 4 * CAP) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    // In this order: one that is put aside in between is there twice, not nowhere.
    let (new, old) = (bytes(path(home))?, bytes(old_path(home))?);
    let new = if old.starts_with(&new) { Vec::new() } else { new };
    let lines = [old, new].concat();
    Ok(lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
