//! The audit log: the guard's decisions and what was done, one JSON object per line, in quell's home.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{AskedThrough, Decision, Timestamp};
use quell_store::Home;
use serde::{Deserialize, Serialize};

use crate::{Effect, Error, Result};

/// A log of this size is renamed and a new one begun. One old log is kept.
const CAP: u64 = 16 << 20;

/// How many characters of the caller's text are kept in a line.
const LONGEST: usize = 400;

/// A line of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditLine {
    /// `quell/1`.
    pub schema: String,
    /// The time.
    pub at: Timestamp,
    /// Whether this is a decision or an act.
    pub kind: Kind,
    /// The verb.
    pub verb: String,
    /// How far the verb goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// What it is done to.
    pub target: String,
    /// The process that asked for it.
    pub actor: Asker,
    /// The caller's reason: `--reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The guard's decision.
    pub decision: Decision,
    /// The job, whose receipt has more. A `run` that could not be started has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The guard decided.
    Decision,
    /// Something was done.
    Act,
}

/// The process that called quell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asker {
    /// Its PID.
    pub pid: u32,
    /// Its name, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its user.
    pub uid: u32,
    /// The job that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The session that its environment names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The interface through which another program asked.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub through: Option<AskedThrough>,
}

impl Asker {
    /// The parent of this process.
    pub(super) fn here() -> Self {
        Self::new(quell_sys::stat(quell_sys::parent()).ok())
    }

    /// This process, which is a server. The job and the session that it is in are not those of its peers.
    fn of_server(process: Option<quell_sys::Stat>) -> Self {
        Self { job: None, session: None, ..Self::new(process) }
    }

    pub(super) fn server() -> Self {
        Self::of_server(quell_sys::stat(quell_sys::pid()).ok())
    }

    /// The caller of one of quell's own roles, for `through`: see [`Asker::of_caller`]. If the parent is a server that was called by
    /// a peer, it is the parent.
    pub fn of_role(through: Option<AskedThrough>) -> Self {
        let is_server = through.as_ref().is_some_and(|through| through.peer.is_some());
        let asker = if is_server {
            Self::of_server(quell_sys::stat(quell_sys::parent()).ok())
        } else {
            Self::of_caller()
        };
        asker.through(through)
    }

    /// The parent of this process; or if that is quell too, the parent of that.
    pub fn of_caller() -> Self {
        let parent = quell_sys::stat(quell_sys::parent()).ok();
        let is_quell =
            |parent: &&quell_sys::Stat| quell_sys::same_executable_file(parent.pid, quell_sys::pid());
        let caller = parent.as_ref().filter(is_quell);
        let caller = caller.and_then(|parent| quell_sys::stat(parent.ppid).ok());
        Self::new(caller.or(parent))
    }

    /// The same, with the interface through which it asked.
    pub fn through(self, through: Option<AskedThrough>) -> Self {
        Self { through, ..self }
    }

    fn new(process: Option<quell_sys::Stat>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            pid: process.as_ref().map_or(0, |stat| stat.pid),
            name: process.map(|stat| stat.comm),
            uid: quell_sys::uid(),
            job: variable(quell_contain::JOB_VARIABLE),
            session: variable("QUELL_SESSION"),
            through: None,
        }
    }
}

pub(super) fn path(home: &Home) -> PathBuf {
    home.dir().join("audit.jsonl")
}

fn old_path(home: &Home) -> PathBuf {
    home.dir().join("audit.1.jsonl")
}

/// Adds a line. The error names the file that is in the way.
pub(super) fn append(home: &Home, line: &AuditLine) -> Result<()> {
    let (file, size) = write(home, line).map_err(Error::io(path(home)))?;
    if size > CAP && file.try_lock().is_ok() {
        rotate(home, &file).map_err(Error::io(old_path(home)))?;
    }
    Ok(())
}

/// Returns the file, and its size.
fn write(home: &Home, line: &AuditLine) -> io::Result<(File, u64)> {
    let short = |text: &str| -> String { text.chars().take(LONGEST).collect() };
    let actor = Asker {
        job: line.actor.job.as_deref().map(short),
        session: line.actor.session.as_deref().map(short),
        through: line.actor.through.as_ref().map(|through| AskedThrough {
            surface: short(&through.surface),
            client: through.client.as_deref().map(short),
            token: through.token.as_deref().map(short),
            peer: through.peer.as_deref().map(short),
        }),
        ..line.actor.clone()
    };
    let cause = line.cause.as_deref().map(short);
    let line = AuditLine { target: short(&line.target), cause, actor, ..line.clone() };
    let path = path(home);
    let open = || quell_sys::open_private_found(&path, quell_sys::OpenMode::Append);
    home.check()?;
    let (mut file, found) = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => home.make().and_then(|()| open())?,
        other => other?,
    };
    let size = found.len();
    // If the disk was full, the last line may be cut. This one must not be joined to it.
    let mut bytes = if is_cut(&file, size) { vec![b'\n'] } else { Vec::new() };
    bytes.extend(quell_core::json_line(&line)?);
    // Appended in one write, so lines that other processes write at the same time are not mixed with it.
    file.write_all(&bytes)?;
    Ok((file, size + bytes.len() as u64))
}

/// Renames the file that is too long, which this process has locked. Another process that finds it too long does not get the
/// lock, or finds that it has been renamed.
fn rotate(home: &Home, file: &File) -> io::Result<()> {
    let (path, it) = (path(home), file.metadata()?);
    let is_it = |here: fs::Metadata| (here.dev(), here.ino()) == (it.dev(), it.ino());
    if fs::symlink_metadata(&path).is_ok_and(is_it) { fs::rename(&path, old_path(home)) } else { Ok(()) }
}

/// Whether the last line of the file, which had this size, is cut. A line that another process is writing can be seen in parts,
/// so the file is looked at twice. At worst there is an empty line.
fn is_cut(file: &File, size: u64) -> bool {
    let mut last = [b'\n'];
    // An empty file has no last byte.
    if size == 0 || file.read_exact_at(&mut last, size - 1).is_err() || last == *b"\n" {
        return false;
    }
    // A write takes microseconds, and no event reports its end.
    std::thread::sleep(Duration::from_millis(2));
    file.metadata().is_ok_and(|found| found.len() == size)
}

/// The lines that can be read. A cut line is skipped.
pub(super) fn read(home: &Home) -> io::Result<Vec<AuditLine>> {
    let bytes = |path: PathBuf| match quell_sys::read_private(&path, 4 * CAP) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    // The new file first: a file that is renamed in between is read twice, not missed.
    let (new, old) = (bytes(path(home))?, bytes(old_path(home))?);
    let new = if old.starts_with(&new) { Vec::new() } else { new };
    let lines = [old, new].concat();
    Ok(lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
