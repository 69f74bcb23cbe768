//! This quell's program file, and whether a word in a configuration names it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Error;

/// This quell.
#[derive(Clone, Debug)]
pub(crate) struct OwnProgram {
    /// The path that configurations get.
    pub path: String,
    file: (u64, u64),
    /// Where programs without a path are looked for.
    search: Vec<PathBuf>,
}

/// What a word in a configuration would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedProgram {
    ThisQuell,
    /// Another file.
    Other(PathBuf),
    /// The program was not found.
    Missing,
}

impl OwnProgram {
    /// The program that this process executes. If PATH leads to it, the path is that one: a link there is what stays when a new
    /// version is installed.
    pub fn find() -> Result<Self, Error> {
        let unknown = |why: String| Error::NoOwnPath(why);
        let path = std::env::current_exe().map_err(|error| unknown(error.to_string()))?;
        let search = std::env::var_os("PATH").unwrap_or_default();
        Self::at(&path, &search)
    }

    /// The program at `path`, with this search path.
    pub fn at(path: &Path, search: &OsStr) -> Result<Self, Error> {
        let unknown = |why: String| Error::NoOwnPath(format!("{}: {why}", path.display()));
        let found = fs::metadata(path).map_err(|error| unknown(error.to_string()))?;
        let search = std::env::split_paths(search).filter(|dir| dir.is_absolute()).collect();
        let own = Self { path: String::new(), file: identity(&found), search };
        let shorter = own.search.iter().map(|dir| dir.join("quell")).find(|path| own.is_at(path));
        let chosen = shorter.unwrap_or_else(|| path.to_owned());
        let path = chosen.to_str().ok_or_else(|| unknown("it is not UTF-8".into()))?.to_owned();
        Ok(Self { path, ..own })
    }

    /// What `word` would start. A path that is not absolute depends on a working directory that is not known.
    pub fn named_by(&self, word: &str) -> NamedProgram {
        let path = Path::new(word);
        let found = if word.contains('/') {
            Some(path.to_owned()).filter(|path| path.is_absolute())
        } else {
            self.search.iter().map(|dir| dir.join(path)).find(|path| is_program(path))
        };
        match found {
            Some(path) if self.is_at(&path) => NamedProgram::ThisQuell,
            Some(path) if is_program(&path) => NamedProgram::Other(path),
            Some(_) | None => NamedProgram::Missing,
        }
    }

    pub fn is_named_by(&self, word: &str) -> bool {
        self.named_by(word) == NamedProgram::ThisQuell
    }

    fn is_at(&self, path: &Path) -> bool {
        is_program(path) && fs::metadata(path).is_ok_and(|found| identity(&found) == self.file)
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
