//! Finds the configuration files and checks their owner: a file of another user must not change our settings.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::keys::Problem;
use crate::Error;

/// The file of a project.
pub(crate) const PROJECT_FILE: &str = "quell.toml";

/// The name of a file that holds only `[guard]`: the machine's, and the user's beside `config.toml`.
pub(crate) const GUARD_FILE: &str = "guard.toml";

/// The largest file that is read: far more than is written by hand.
const LARGEST: u64 = 1 << 20;

/// Expands `~` and `~/x`; other texts are returned unchanged. None if the home directory is not known.
pub(crate) fn expand(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix('~') {
        Some("") => home.map(Path::to_owned),
        Some(rest) if rest.starts_with('/') => home.map(|home| home.join(rest.trim_start_matches('/'))),
        Some(_) | None => Some(PathBuf::from(text)),
    }
}

/// Makes a path absolute. Relative paths start at the directory of the file they are written in.
pub(crate) fn beside(file: &Path, text: &str, home: Option<&Path>) -> Result<PathBuf, Problem> {
    let path = expand(text, home).ok_or_else(|| {
        Problem::new(format!("`{text}`: there is no home directory"), "set HOME, or give the whole path")
    })?;
    // Drop the `./` of `./hook.sh`: messages are clearer without it.
    Ok(file.parent().unwrap_or(Path::new("/")).join(path).components().collect())
}

/// The directory where the search for a project begins.
pub(crate) struct Here {
    /// The path as given.
    pub dir: PathBuf,
    /// The same without links, so that its parents are the real ones. None if it is not a directory.
    physical: Option<PathBuf>,
}

impl Here {
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), physical: fs::canonicalize(dir).ok() }
    }

    /// The working directory of this process. The kernel reports it without links.
    pub(crate) fn now() -> Self {
        let dir = std::env::current_dir().unwrap_or_default();
        // The kernel reports a relative path if the directory cannot be reached from the root.
        Self { physical: Some(dir.clone()).filter(|dir| dir.is_absolute()), dir }
    }
}

/// The nearest `quell.toml` in this directory or its parents. The search stops at a directory of another user, unless the user
/// trusts that directory: its parents may be under the control of that other user.
pub(crate) fn project_file(here: &Here, trusted: &[PathBuf]) -> Option<PathBuf> {
    for dir in here.physical.as_deref()?.ancestors() {
        let file = dir.join(PROJECT_FILE);
        // Stop at any file with this name, even if it is refused later: going on would let a file higher up replace it.
        if fs::symlink_metadata(&file).is_ok() {
            return Some(file);
        }
        let ours = fs::metadata(dir).is_ok_and(|found| is_ours(&found));
        if !ours && !trusted.iter().any(|trusted| dir.starts_with(trusted)) {
            return None;
        }
    }
    None
}

/// The directories without links. Missing ones are left out.
pub(crate) fn physical(directories: &[PathBuf]) -> Vec<PathBuf> {
    directories.iter().filter_map(|dir| fs::canonicalize(dir).ok()).collect()
}

/// The error about a whole file or directory.
fn refuse(path: &Path, message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::Config { file: path.to_owned(), line: 0, message: message.into(), hint: hint.into() }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |error| refuse(path, format!("can't be read: {error}"), "check its permissions")
}

fn is_ours(found: &Metadata) -> bool {
    [0, quell_sys::uid()].contains(&found.uid())
}

/// The users that may own a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOwner {
    /// Root only, and writable by root only: the file restricts all users.
    Root,
    /// The user or root.
    UserOrRoot,
    /// Any user: the project is trusted.
    Any,
}

impl FileOwner {
    fn fits(self, found: &Metadata) -> bool {
        match self {
            Self::Root => found.uid() == 0,
            Self::UserOrRoot => is_ours(found),
            Self::Any => true,
        }
    }
}

/// Whether the path exists. A path that cannot be examined counts as existing.
pub(crate) fn is_there(path: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    path.symlink_metadata().map_or_else(|error| !absent.contains(&error.kind()), |_| true)
}

/// Whether the directory of the machine's file exists. It must belong to root too: a user with write access could replace or
/// remove the file.
pub(crate) fn has_machine_dir(dir: &Path) -> Result<bool, Error> {
    let link = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        link => link.map_err(unreadable(dir))?,
    };
    let found = fs::metadata(dir).map_err(unreadable(dir))?;
    if !found.is_dir() {
        return Err(refuse(dir, "is not a directory", "make it a directory, or remove it"));
    }
    check_owner(dir, FileOwner::Root, &link, &found).map(|()| true)
}

/// Checks the owner, and that no other user can write.
fn check_owner(path: &Path, whose: FileOwner, link: &Metadata, found: &Metadata) -> Result<(), Error> {
    // Links are checked as well: the creator of a link in a shared directory chooses what is read.
    if let Some(stranger) = [link, found].into_iter().find(|found| !whose.fits(found)) {
        let message =
            format!("belongs to another user (uid {}), and would set things for you", stranger.uid());
        let hint =
            if whose == FileOwner::Root { format!("chown 0 {}", path.display()) } else { how_to_own(path) };
        return Err(refuse(path, message, hint));
    }
    if whose == FileOwner::Root && found.mode() & 0o022 != 0 {
        return Err(refuse(
            path,
            "users other than root can write it",
            format!("chmod go-w {}", path.display()),
        ));
    }
    if found.mode() & 0o002 != 0 {
        return Err(refuse(path, "every user can write it", format!("chmod o-w {}", path.display())));
    }
    Ok(())
}

/// Reads a file after checking its owner and mode. The checks are made on the open file, so that it cannot be exchanged in
/// between.
pub(crate) fn read(path: &Path, whose: FileOwner) -> Result<String, Error> {
    let failed = unreadable(path);
    let link = fs::symlink_metadata(path).map_err(&failed)?;
    // Opening a fifo would wait for a writer.
    if !fs::metadata(path).map_err(&failed)?.is_file() {
        return Err(refuse(path, "is not a regular file", "put a file there, or remove it"));
    }
    let file =
        OpenOptions::new().read(true).custom_flags(quell_sys::OPEN_NONBLOCK).open(path).map_err(&failed)?;
    let found = file.metadata().map_err(&failed)?;
    check_owner(path, whose, &link, &found)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(&failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(refuse(path, "is larger than 1 MiB", "it can't be quell's configuration"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let (message, hint) = ("is not UTF-8".into(), "save it as UTF-8".into());
        Error::Config { file: path.to_owned(), line, message, hint }
    })
}

fn how_to_own(path: &Path) -> String {
    let own = format!("chown {} {}", quell_sys::uid(), path.display());
    if path.file_name() == Some(OsStr::new(PROJECT_FILE)) {
        let dir = path.parent().unwrap_or(Path::new("/")).display();
        return format!(
            "{own}; or add {dir} to [trust] projects in your own file; or put an empty {PROJECT_FILE} of yours nearer"
        );
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_home_only_at_the_beginning_of_a_path() {
        let home = Some(Path::new("/home/u"));
        for (text, path) in [
            ("~", "/home/u"),
            ("~/a", "/home/u/a"),
            ("~//a", "/home/u/a"),
            ("a/~/b", "a/~/b"),
            ("~b/c", "~b/c"),
        ] {
            assert_eq!(expand(text, home), Some(PathBuf::from(path)), "{text}");
        }
        assert_eq!(expand("~/a", None), None);
    }

    #[test]
    fn a_path_is_meant_from_the_directory_of_its_file() {
        let file = Path::new("/p/quell.toml");
        for (text, path) in [("./a", "/p/a"), ("b/c", "/p/b/c"), ("/x", "/x"), ("../a", "/p/../a")] {
            assert_eq!(beside(file, text, None), Ok(PathBuf::from(path)), "{text}");
        }
        assert!(beside(file, "~/a", None).is_err());
    }
}
