//! Everything about a program that can be wrong before it is started, found out before anything exists.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use quell_contain::{JOB_VARIABLE, MARK_VARIABLE};
use quell_core::{Environment, JobId, JobRequest, ReceiptTarget};
use quell_sys::{Program, fault};

use super::evidence::Outlet;
use crate::error::DESCRIPTOR;
use crate::{ExecRemedy, RunError};

/// The program of `request`, found and ready to execute.
pub fn program(request: &JobRequest, id: JobId, marker: &str) -> Result<Program, RunError> {
    let cwd = working_dir(request.cwd.as_deref())?;
    let environment = environment(&request.env, id, marker);
    let name = request.command.first().ok_or_else(|| RunError::NotFound(String::new()))?;
    let path = find_program(name, environment.get(OsStr::new("PATH")).map(OsString::as_os_str), &cwd)?;
    let variables = environment.into_iter().map(|(mut key, value)| {
        key.push("=");
        key.push(value);
        c_string(key, "the environment")
    });
    Ok(Program {
        path: c_string(path.into_os_string(), "the program's path")?,
        argv: request
            .command
            .iter()
            .map(|word| c_string(word.clone(), "the command"))
            .collect::<Result<_, _>>()?,
        envp: variables.collect::<Result<_, _>>()?,
        cwd: c_string(cwd.into_os_string(), "the working directory")?,
    })
}

/// Whether the program of `request` could be executed now: its directory and its file are there, for this user.
pub fn check(request: &JobRequest) -> Result<(), RunError> {
    let id = JobId::new(quell_sys::unix_ms(), 0);
    program(request, id, "").map(drop)
}

fn c_string(text: OsString, what: &str) -> Result<CString, RunError> {
    CString::new(text.into_vec()).map_err(|_| RunError::Nul(what.to_owned()))
}

/// The directory as an absolute path, entered in thought: it exists, is a directory and may be searched.
fn working_dir(asked: Option<&Path>) -> Result<PathBuf, RunError> {
    let path = asked.unwrap_or(Path::new("."));
    let bad = |error: io::Error| RunError::Cwd { path: path.to_owned(), error: error.to_string() };
    let absolute = match (asked, std::env::current_dir()) {
        (Some(path), _) if path.is_absolute() => path.to_owned(),
        (Some(path), Ok(here)) => here.join(path),
        (None, Ok(here)) => here,
        // A directory that was removed, or above which somebody else's permissions end, can still be stayed in.
        (None, Err(_)) => return Ok(PathBuf::from(".")),
        (Some(_), Err(error)) => return Err(bad(error)),
    };
    if asked.is_some() {
        if !fs::metadata(&absolute).map_err(bad)?.is_dir() {
            return Err(bad(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        fs::metadata(absolute.join(".")).map_err(bad)?;
    }
    Ok(absolute)
}

fn environment(asked: &Environment, id: JobId, marker: &str) -> BTreeMap<OsString, OsString> {
    let mut all = asked.variables();
    fault::VARIABLES.iter().for_each(|own| drop(all.remove(OsStr::new(own))));
    all.insert(JOB_VARIABLE.into(), id.to_string().into());
    // A job in a job bears both marks: who audits the outer one must find what belongs to the inner one too.
    let outer = std::env::var(MARK_VARIABLE).ok().filter(|outer| !outer.is_empty() && outer.len() < 4096);
    let chain = outer.map_or_else(|| marker.to_owned(), |outer| format!("{outer}:{marker}"));
    all.insert(MARK_VARIABLE.into(), chain.into());
    all
}

/// Finds `name` as execvp would: a path as it is (seen from `cwd`), a plain name along `path`.
pub fn find_program(name: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, RunError> {
    let shown = name.to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(RunError::NotFound(shown));
    }
    if name.as_bytes().contains(&b'/') {
        let file = cwd.join(name);
        return match executable(&file) {
            // As it was given: a script finds it in its $0, and by then the directory is the one that was meant.
            Ok(()) => Ok(PathBuf::from(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RunError::NotFound(shown)),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Err(RunError::Directory(shown)),
            Err(error) => {
                let (why, remedy) = (error.to_string(), remedy(&error));
                Err(RunError::NotExecutable { program: shown, why, remedy })
            }
        };
    }
    let mut refused = None;
    for dir in std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))) {
        let file = cwd.join(dir).join(name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            // What can't be seen is not there.
            Err(error) if fs::metadata(&file).is_ok() => {
                refused = refused.or(Some(format!("{}: {error}", file.display())));
            }
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(why) => RunError::NotExecutable { program: shown, why, remedy: ExecRemedy::Right },
        None => RunError::NotFound(shown),
    })
}

/// What helps against a failed exec.
pub fn remedy(error: &io::Error) -> ExecRemedy {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong => ExecRemedy::ShorterArguments,
        io::ErrorKind::ExecutableFileBusy => ExecRemedy::ClosedFile,
        _ if quell_sys::is_link_loop(error) => ExecRemedy::FewerLinks,
        _ => ExecRemedy::Right,
    }
}

fn executable(file: &Path) -> io::Result<()> {
    let metadata = fs::metadata(file)?;
    if metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    if metadata.permissions().mode() & 0o111 == 0 || !quell_sys::may_execute(file) {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(())
}

/// Opens the receipt's places. The caller's descriptor goes first: a number that is not open now would soon be that of
/// something of ours.
pub fn open_outlets(targets: &[ReceiptTarget], inherited: &mut Vec<i32>) -> Result<Vec<Outlet>, RunError> {
    let mut outlets = Vec::new();
    let bad = |target: &str, error: std::io::Error| RunError::Receipt {
        target: target.to_owned(),
        error: error.to_string(),
    };
    for target in targets {
        if let ReceiptTarget::Fd(fd) = target {
            let name = format!("{DESCRIPTOR}{fd}");
            if *fd > 2 && !inherited.contains(fd) {
                return Err(bad(&name, std::io::Error::other("it is not open")));
            }
            let file = quell_sys::take_descriptor(*fd).map_err(|error| bad(&name, error))?;
            inherited.retain(|other| other != fd);
            outlets.push(Outlet { name, file: File::from(file), is_ours: false, made: None, named: None });
        }
    }
    for target in targets {
        if let ReceiptTarget::File(path) = target {
            let name = path.display().to_string();
            outlets.push(open_outlet(path).map_err(|error| bad(&name, error))?);
        }
    }
    Ok(outlets)
}

/// Opens a file for the receipt. What it holds is replaced when there is one to write, not before; and never if it is what
/// the program itself writes to.
fn open_outlet(path: &Path) -> std::io::Result<Outlet> {
    let name = path.display().to_string();
    let is_new = !path.exists();
    let file = quell_sys::open_to_write(path)?;
    let found = file.metadata()?;
    let same = |other: BorrowedFd<'_>| {
        let other = other.try_clone_to_owned().map(File::from).ok()?;
        let of = other.metadata().ok()?;
        ((of.dev(), of.ino()) == (found.dev(), found.ino())).then_some(other)
    };
    // Through their own descriptor, so that what both write stands one behind the other.
    match same(std::io::stdout().as_fd()).or_else(|| same(std::io::stderr().as_fd())) {
        Some(file) => Ok(Outlet { name, file, is_ours: false, made: None, named: None }),
        None => {
            let made = is_new.then(|| path.to_owned());
            // The descriptors below /dev/fd are others in the keeper.
            let has_name = found.is_file() && found.nlink() > 0;
            let named = if has_name { Some(std::path::absolute(path)?) } else { None };
            Ok(Outlet { name, file, is_ours: true, made, named })
        }
    }
}
