//! Checks everything about a program that can be wrong, before anything is made for its job.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quell_contain::{JOB_VARIABLE, MARK_VARIABLE};
use quell_core::{Environment, JobId, JobRequest};
use quell_sys::{Program, fault};

use crate::{ExecRemedy, StartError};

/// Finds the program of `request`, with its arguments, environment and directory.
pub fn program(request: &JobRequest, id: JobId, marker: &str) -> Result<Program, StartError> {
    let cwd = working_dir(request.cwd.as_deref())?;
    let environment = environment(&request.env, id, marker);
    let name = request.command.first().ok_or_else(|| StartError::NotFound(String::new()))?;
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

/// Checks that the program of `request` could be executed now: its directory and its file exist, and this user may use them.
pub fn check(request: &JobRequest) -> Result<(), StartError> {
    let id = JobId::new(quell_sys::unix_ms(), 0);
    program(request, id, "").map(drop)
}

fn c_string(text: OsString, what: &str) -> Result<CString, StartError> {
    CString::new(text.into_vec()).map_err(|_| StartError::Nul(what.to_owned()))
}

/// The directory as an absolute path. It exists, is a directory and may be searched.
fn working_dir(asked: Option<&Path>) -> Result<PathBuf, StartError> {
    let path = asked.unwrap_or(Path::new("."));
    let bad = |error: io::Error| StartError::Cwd { path: path.to_owned(), error: error.to_string() };
    let absolute = match (asked, std::env::current_dir()) {
        (Some(path), _) if path.is_absolute() => path.to_owned(),
        (Some(path), Ok(here)) => here.join(path),
        (None, Ok(here)) => here,
        // The current directory was removed, or is below a directory that this user may not search. It can still be used.
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
    // A job in a job has both markers: the marker search of the outer job must find the members of the inner one too.
    let outer = std::env::var(MARK_VARIABLE).ok().filter(|outer| !outer.is_empty() && outer.len() < 4096);
    let chain = outer.map_or_else(|| marker.to_owned(), |outer| format!("{outer}:{marker}"));
    all.insert(MARK_VARIABLE.into(), chain.into());
    all
}

/// Finds `name` as execvp does: a path relative to `cwd`, a plain name along `path`.
pub fn find_program(name: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, StartError> {
    let shown = name.to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(StartError::NotFound(shown));
    }
    if name.as_bytes().contains(&b'/') {
        let file = cwd.join(name);
        return match executable(&file) {
            // Unchanged, because a script sees it as $0. It is executed in `cwd`.
            Ok(()) => Ok(PathBuf::from(name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StartError::NotFound(shown)),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => Err(StartError::Directory(shown)),
            Err(error) => {
                let (why, remedy) = (error.to_string(), remedy(&error));
                Err(StartError::NotExecutable { program: shown, why, remedy })
            }
        };
    }
    let mut refused = None;
    for dir in std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))) {
        let file = cwd.join(dir).join(name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            // A file that this user can't see counts as missing.
            Err(error) if fs::metadata(&file).is_ok() => {
                refused = refused.or(Some(format!("{}: {error}", file.display())));
            }
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(why) => StartError::NotExecutable { program: shown, why, remedy: ExecRemedy::Right },
        None => StartError::NotFound(shown),
    })
}

/// What the user can do about a failed exec.
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
