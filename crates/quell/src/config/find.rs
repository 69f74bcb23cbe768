//! Where the files are, and whose: a stranger's file must not set anything for us.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::keys::Problem;
use crate::Error;

/// The name of a project's file.
pub(crate) const PROJECT_FILE: &str = "quell.toml";

/// The name of a file about nothing but the guard: the machine's, and the user's beside the other one.
pub(crate) const GUARD_FILE: &str = "guard.toml";

/// More than anybody writes by hand.
const LARGEST: u64 = 1 << 20;

/// `~` and `~/x` below the home; anything else as it is. None if there is no home to put there.
pub(crate) fn expand(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix('~') {
        Some("") => home.map(Path::to_owned),
        Some(rest) if rest.starts_with('/') => home.map(|home| home.join(rest.trim_start_matches('/'))),
        Some(_) | None => Some(PathBuf::from(text)),
    }
}

/// A path in a file is meant from the file's directory.
pub(crate) fn beside(file: &Path, text: &str, home: Option<&Path>) -> Result<PathBuf, Problem> {
    let path = expand(text, home).ok_or_else(|| {
        Problem::new(format!("`{text}`: there is no home directory"), "set HOME, or give the whole path")
    })?;
    // Without the dots of `./hook.sh`, which only hide in messages what is meant.
    Ok(file.parent().unwrap_or(Path::new("/")).join(path).components().collect())
}

/// A directory that settings are looked for from.
pub(crate) struct Here {
    /// As it is called.
    pub dir: PathBuf,
    /// Without links, so that "upwards" is what the kernel means by it; none if it is not a directory.
    physical: Option<PathBuf>,
}

impl Here {
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), physical: fs::canonicalize(dir).ok() }
    }

    /// The directory of this process, which the kernel names without links.
    pub(crate) fn now() -> Self {
        let dir = std::env::current_dir().unwrap_or_default();
        // One that can't be reached from the root has a relative name.
        Self { physical: Some(dir.clone()).filter(|dir| dir.is_absolute()), dir }
    }
}

/// The project's file: the nearest `quell.toml` upwards. The search ends at a directory that belongs to
/// another user (and that the user has not said to trust), because what lies above it is none of our business.
/// A place that is no directory has no project.
pub(crate) fn project_file(here: &Here, trusted: &[PathBuf]) -> Option<PathBuf> {
    let uid = quell_sys::uid();
    for dir in here.physical.as_deref()?.ancestors() {
        let file = dir.join(PROJECT_FILE);
        // Whatever bears the name counts, also what is then refused: to go on would let another file take its place.
        if fs::symlink_metadata(&file).is_ok() {
            return Some(file);
        }
        let ours = fs::metadata(dir).is_ok_and(|found| [0, uid].contains(&found.uid()));
        if !ours && !trusted.iter().any(|trusted| dir.starts_with(trusted)) {
            return None;
        }
    }
    None
}

/// The directories as the file system knows them; those that are not there trust nothing.
pub(crate) fn physical(directories: &[PathBuf]) -> Vec<PathBuf> {
    directories.iter().filter_map(|dir| fs::canonicalize(dir).ok()).collect()
}

fn is_ours(found: &Metadata) -> bool {
    [0, quell_sys::uid()].contains(&found.uid())
}

/// Whose a file may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Root's alone, and nobody else writes it: it binds whoever asks.
    Roots,
    /// The user's, or root's.
    Ours,
    /// The user has said that it may be somebody else's.
    Anybodys,
}

impl Whose {
    fn fits(self, found: &Metadata) -> bool {
        match self {
            Self::Roots => found.uid() == 0,
            Self::Ours => is_ours(found),
            Self::Anybodys => true,
        }
    }
}

/// Whether something bears this name, as far as can be known: only what is surely not there is not.
pub(crate) fn is_there(path: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    path.symlink_metadata().map_or_else(|error| !absent.contains(&error.kind()), |_| true)
}

/// Whether the directory of the machine's file is there. A user who can write it could put another file there, or take the file
/// away; so it has to be root's as well.
pub(crate) fn has_machine_dir(dir: &Path) -> Result<bool, Error> {
    let refuse =
        |message: String, hint: String| Error::Config { file: dir.to_owned(), line: 0, message, hint };
    let failed = |error: io::Error| refuse(format!("can't be read: {error}"), "check its permissions".into());
    let link = match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        link => link.map_err(failed)?,
    };
    let found = fs::metadata(dir).map_err(failed)?;
    if !found.is_dir() {
        return Err(refuse("is no directory".into(), "make it a directory, or remove it".into()));
    }
    check_owner(dir, Whose::Roots, &link, &found).map(|()| true)
}

/// Whether it is whose it has to be, and nobody else can write it.
fn check_owner(path: &Path, whose: Whose, link: &Metadata, found: &Metadata) -> Result<(), Error> {
    let refuse =
        |message: String, hint: String| Err(Error::Config { file: path.to_owned(), line: 0, message, hint });
    // Also of a link: who makes one in a shared directory chooses what is read.
    if let Some(stranger) = [link, found].into_iter().find(|found| !whose.fits(found)) {
        let message =
            format!("belongs to another user (uid {}), and would set things for you", stranger.uid());
        let hint =
            if whose == Whose::Roots { format!("chown 0 {}", path.display()) } else { how_to_own(path) };
        return refuse(message, hint);
    }
    if whose == Whose::Roots && found.mode() & 0o022 != 0 {
        return refuse("others than root can write it".into(), format!("chmod go-w {}", path.display()));
    }
    if found.mode() & 0o002 != 0 {
        return refuse("everybody can write it".into(), format!("chmod o-w {}", path.display()));
    }
    Ok(())
}

/// The text of a file of whom it may be, and that nobody else can write. What is checked is what is read: the open file,
/// not its name.
pub(crate) fn read(path: &Path, whose: Whose) -> Result<String, Error> {
    let refuse =
        |message: String, hint: String| Error::Config { file: path.to_owned(), line: 0, message, hint };
    let failed = |error: io::Error| refuse(format!("can't be read: {error}"), "check its permissions".into());
    let link = fs::symlink_metadata(path).map_err(failed)?;
    // To open a fifo would wait for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refuse("is no regular file".into(), "put a file there, or remove it".into()));
    }
    let file =
        OpenOptions::new().read(true).custom_flags(quell_sys::OPEN_NONBLOCK).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    check_owner(path, whose, &link, &found)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(refuse("is larger than 1 MiB".into(), "it can't be quell's configuration".into()));
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
