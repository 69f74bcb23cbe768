//! `QUELL_LOG=FILE`: writes what quell's own processes do, one line per event: time, role, PID, job, event.
//!
//! The events are those of `tracing`. Without a listener each costs one load of an atomic. They name steps, states, signals and
//! PIDs, but never a command line, variable, input or output of a job.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use quell_core::printable;
use quell_store::{Home, now};
use quell_sys::OpenMode;
use quell_sys::fault::{self, LOG_VARIABLE};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{Config, Error, Result};

/// Starts to write events to the file that `QUELL_LOG` names. The first event states the role of this process. Does nothing
/// without the variable.
///
/// The file is created with mode 0600, or appended to. A link, a file of another user, and a file that quell itself reads are
/// refused.
pub fn log_to_variable(what: impl FnOnce() -> String) -> Result<()> {
    let Some(named) = std::env::var_os(LOG_VARIABLE).filter(|named| !named.is_empty()) else { return Ok(()) };
    let named = PathBuf::from(named);
    let refuse = |error: io::Error| Error::Variable {
        name: LOG_VARIABLE.into(),
        message: format!("can't write {}: {error}", printable(&named.to_string_lossy())),
        hint: "name a file that this user can write, or unset it".into(),
    };
    let path = std::path::absolute(&named).and_then(|path| check_place(&path)).map_err(refuse)?;
    quell_sys::open_private(&path, OpenMode::Append).map_err(refuse)?;
    // A program that uses this library may have its own subscriber.
    let _ = tracing::subscriber::set_global_default(LogFile { path });
    tracing::debug!("begins: {}", what());
    Ok(())
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

/// A subscriber that writes each event as a line to a file.
struct LogFile {
    path: PathBuf,
}

impl Subscriber for LogFile {
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
        // Opened for each line, because a keeper closes every inherited descriptor.
        if let Ok(mut file) = quell_sys::open_private(&self.path, OpenMode::Append) {
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
