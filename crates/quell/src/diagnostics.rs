//! `QUELL_LOG=FILE`: writes what quell's own processes do, one line per event: time, role, PID, job, event.
//!
//! The events are those of `tracing`. Without a listener each costs one load of an atomic. They name steps, states, signals and
//! PIDs, but never a command line, variable, input or output of a job.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use quell_core::{Timestamp, printable};
use quell_store::{Home, now};
use quell_sys::OpenMode;
use quell_sys::fault::{self, LOG_VARIABLE};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{Config, Error, Result};

/// The file that `QUELL_LOG` names. It is new, empty or an earlier log of this user's. It has no other name, is not reached
/// through a link, and quell itself does not read it.
pub struct EventLog {
    path: PathBuf,
}

impl EventLog {
    /// Checks the file, and writes nothing. None without the variable.
    pub fn from_variable() -> Result<Option<Self>> {
        let named = std::env::var_os(LOG_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
        let Some(named) = named else { return Ok(None) };
        let path = std::path::absolute(&named).and_then(|path| check_place(&path));
        let checked = path.and_then(|path| match open(&path, OpenMode::Extend) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => Ok(path),
        });
        checked.map(|path| Some(Self { path })).map_err(unusable(&named))
    }

    /// Starts to write events. The first one says what this process does. The file is made with mode 0600.
    pub fn begin(self, what: &str) -> Result<()> {
        open(&self.path, OpenMode::Append).map_err(unusable(&self.path))?;
        // A program that uses this library may have its own subscriber.
        let _ = tracing::subscriber::set_global_default(self);
        tracing::debug!("begins: {what}");
        Ok(())
    }
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = printable(&path.to_string_lossy());
    move |error| Error::Variable {
        name: LOG_VARIABLE.into(),
        message: format!("can't write {path}: {error}"),
        hint: "name a new file, an empty one or an earlier log that this user can write, or unset it".into(),
    }
}

/// Opens the file if events may be written to it.
fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
    let file = quell_sys::open_private(path, mode)?;
    let found = file.metadata()?;
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if found.uid() != quell_sys::uid() {
        return refuse("it belongs to another user");
    }
    if found.nlink() != 1 {
        return refuse("it has a second name (a hard link)");
    }
    let mut head = [0; 64];
    let length = file.read_at(&mut head, 0)?;
    if length > 0 && !is_log(&head[..length]) {
        return refuse("it has other content than events of quell");
    }
    Ok(file)
}

/// Whether a file that begins like this has events: a time, then a role.
fn is_log(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let mut words = head.split(' ');
    let [time, role] = [words.next(), words.next()].map(Option::unwrap_or_default);
    time.parse::<Timestamp>().is_ok() && fault::is_role(role)
}

/// The path without links. An error if quell reads jobs or settings from it: writing there would change them.
fn check_place(path: &Path) -> io::Result<PathBuf> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let real = dir.canonicalize()?.join(name);
    let home = Home::find().map(|home| home.dir().canonicalize().unwrap_or_else(|_| home.dir().to_owned()));
    if home.is_some_and(|home| real.starts_with(home)) || Config::is_read_from(&real, Path::new("/")) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "quell reads jobs or settings from there",
        ));
    }
    Ok(real)
}

/// Writes each event as a line.
impl Subscriber for EventLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("quell")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let job = fault::job();
        let job = if job.is_empty() { "-" } else { &job };
        let (time, role, pid) = (now(), fault::role(), quell_sys::pid());
        let line = format!("{time} {role} {pid} {job} {}\n", printable(&message.0));
        // Opened for each line, because a keeper closes every inherited descriptor; and checked, as it may be another file now.
        if let Ok(mut file) = open(&self.path, OpenMode::Append) {
            // A failure to write diagnostics does not affect the job.
            let _ = file.write_all(line.as_bytes());
        }
    }

    // Spans are not used.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
