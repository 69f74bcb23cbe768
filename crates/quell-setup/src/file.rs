//! A configuration file on disk: read with care, replaced atomically.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::{ConfigScope, Error};

/// No configuration of an agent is larger.
const LARGEST: u64 = 64 << 20;

/// A configuration file as it was found.
#[derive(Clone, Debug)]
pub(crate) struct AgentFile {
    /// Where it really is: all links are followed.
    pub path: PathBuf,
    /// None if the file does not exist.
    pub text: Option<String>,
}

impl AgentFile {
    /// Reads the file. One that does not exist is not an error, but one that can't be a configuration is.
    pub fn read(named: &Path) -> Result<Self, Error> {
        let path = match fs::canonicalize(named) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if named.symlink_metadata().is_ok() {
                    return Err(unsuitable(named, "it is a link to a file that does not exist"));
                }
                return Ok(Self { path: future_path(named)?, text: None });
            }
            Err(error) => return Err(Error::io("find", named)(error)),
        };
        let bytes = read(&path)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            let why = "it is not UTF-8".into();
            Error::Unparsable { path: path.clone(), why }
        })?;
        Ok(Self { path, text: Some(text) })
    }

    /// Replaces the file, which gets the mode and group that it had. Fails if it is not as it was when it was read. Returns the
    /// directories that had to be made.
    pub fn write(&self, text: &str, scope: ConfigScope) -> Result<Vec<PathBuf>, Error> {
        let made = match &self.text {
            Some(_) => Vec::new(),
            None => make_above(&self.path)?,
        };
        let result = self.replace(text, scope);
        if result.is_err() {
            remove_empty(&made);
        }
        result.map(|()| made)
    }

    fn replace(&self, text: &str, scope: ConfigScope) -> Result<(), Error> {
        let failed = |error| Error::io("write", &self.path)(error);
        let old = self.check_unchanged()?;
        let new = beside(&self.path, &format!("quell-new-{}", std::process::id()));
        let written =
            write_new(&new, text, old.as_ref(), scope).and_then(|file| file.sync_all()).map_err(failed);
        // As late as possible. What another program writes from here on until the rename is lost, as with every editor.
        let written = written.and_then(|()| self.check_unchanged()).and_then(|_| match &self.text {
            Some(_) => fs::rename(&new, &self.path).map_err(failed),
            // Fails if another program has made the file meanwhile.
            None => match fs::hard_link(&new, &self.path) {
                Ok(()) => fs::remove_file(&new).map_err(failed),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Err(Error::ChangedMeanwhile(self.path.clone()))
                }
                // The file system has no hard links.
                Err(_) => fs::rename(&new, &self.path).map_err(failed),
            },
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        sync_above(&self.path);
        Ok(())
    }

    /// Deletes the file, and those of `made` directories that are empty then. Fails if it is not as it was when it was read.
    pub fn delete(&self, made: &[PathBuf]) -> Result<(), Error> {
        self.check_unchanged()?;
        fs::remove_file(&self.path).map_err(Error::io("delete", &self.path))?;
        sync_above(&self.path);
        remove_empty(made);
        Ok(())
    }

    /// Writes `text` to a new file beside this one, with the mode of this one. Returns its path.
    pub fn write_backup(&self, text: &str, scope: ConfigScope) -> Result<PathBuf, Error> {
        let old = self.check_unchanged()?;
        let names = std::iter::once("quell-backup".to_owned());
        let names = names.chain((2..1000).map(|number| format!("quell-backup-{number}")));
        for name in names {
            let path = beside(&self.path, &name);
            match write_new(&path, text, old.as_ref(), scope).and_then(|file| file.sync_all()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("write the backup", &path)(error)),
                Ok(()) => return Ok(path),
            }
        }
        Err(unsuitable(&self.path, "there are too many backups of it"))
    }

    /// Fails if the file is not as it was when it was read, or if a new file in its place would not be the same to others.
    fn check_unchanged(&self) -> Result<Option<fs::Metadata>, Error> {
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other.map_err(Error::io("find", &self.path))?),
        };
        let is_same = match (&found, &self.text) {
            (None, None) => true,
            (Some(_), Some(text)) => read(&self.path)? == text.as_bytes(),
            _ => false,
        };
        if !is_same {
            return Err(Error::ChangedMeanwhile(self.path.clone()));
        }
        if let Some(found) = &found {
            if found.uid() != quell_sys::uid() {
                return Err(foreign(&self.path, found.uid()));
            }
            if found.nlink() > 1 {
                return Err(unsuitable(
                    &self.path,
                    "it has a second name (a hard link), which would keep the old content",
                ));
            }
        }
        Ok(found)
    }
}

/// The bytes of a regular file. Never waits, whatever is there.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |error| Error::io("read", path)(error);
    let file =
        OpenOptions::new().read(true).custom_flags(quell_sys::OPEN_NONBLOCK).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(unsuitable(path, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(unsuitable(path, "it is larger than any configuration"));
    }
    Ok(bytes)
}

/// Makes a file that must not exist yet.
fn write_new(path: &Path, text: &str, like: Option<&fs::Metadata>, scope: ConfigScope) -> io::Result<File> {
    let mode = match (like, scope) {
        // Until it has the mode of the old one.
        (Some(_), _) | (None, ConfigScope::User) => 0o600,
        // To be shared with others; the umask applies.
        (None, ConfigScope::Project) => 0o666,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| match like {
        Some(like) => {
            // A group that this user is not in can't be given.
            let _ = fchown(&file, None, Some(like.gid()));
            file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))
        }
        None => Ok(()),
    });
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written.map(|()| file)
}

/// `.NAME.SUFFIX` for temporary files would be hidden from their user, so `NAME.SUFFIX`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// Where a file that does not exist yet will really be.
fn future_path(named: &Path) -> Result<PathBuf, Error> {
    let failed = |error| Error::io("find", named)(error);
    let named = std::path::absolute(named).map_err(failed)?;
    for above in named.ancestors().skip(1) {
        match fs::canonicalize(above) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
            Ok(found) => {
                let owner = fs::metadata(&found).map_err(failed)?.uid();
                // As root, called by `sudo`, quell would make files in a user's home that the user can't change.
                if quell_sys::uid() == 0 && owner != 0 {
                    return Err(foreign(&found, owner));
                }
                return Ok(found.join(named.strip_prefix(above).unwrap_or(&named)));
            }
        }
    }
    Err(unsuitable(&named, "its directory does not exist"))
}

/// Makes the directories above `path`, and returns those that were missing, the outermost first.
fn make_above(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let missing = path.ancestors().skip(1).take_while(|dir| !dir.exists()).map(Path::to_owned);
    let mut missing: Vec<PathBuf> = missing.collect();
    missing.reverse();
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).create(dir).map_err(Error::io("make the directory", dir))?;
    }
    Ok(missing)
}

fn remove_empty(made: &[PathBuf]) {
    for dir in made.iter().rev() {
        // One that is in use now is not empty.
        let _ = fs::remove_dir(dir);
    }
}

/// Some file systems can't; the new file is in its place all the same.
fn sync_above(path: &Path) {
    if let Some(dir) = path.parent() {
        let _ = File::open(dir).and_then(|dir| dir.sync_all());
    }
}

fn unsuitable(path: &Path, why: impl Into<String>) -> Error {
    Error::UnsuitableFile { path: path.to_owned(), why: why.into() }
}

fn foreign(path: &Path, uid: u32) -> Error {
    unsuitable(path, format!("it belongs to another user (uid {uid})"))
}
