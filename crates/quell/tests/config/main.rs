//! Settings from real files and given variables.
#![cfg(target_os = "linux")]

mod docs;
mod errors;
mod files;
mod layers;
mod trust;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quell::Error;
use quell::binary::{Config, Loaded};
use tempfile::TempDir;

/// A home with a project in it, removed when dropped.
struct ConfigDirs {
    dir: PathBuf,
    _removed: TempDir,
}

impl ConfigDirs {
    fn new() -> Self {
        let made = TempDir::new().unwrap();
        fs::create_dir_all(made.path().join("project/sub/dir")).unwrap();
        // Without links, as messages name the files.
        Self { dir: fs::canonicalize(made.path()).unwrap(), _removed: made }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        // Independent of the umask.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn user(&self, text: &str) -> PathBuf {
        self.write(".config/quell/config.toml", text)
    }

    fn project(&self, text: &str) -> PathBuf {
        self.write("project/quell.toml", text)
    }

    /// The settings in the project, with these variables and HOME.
    fn load(&self, variables: &[(&str, &str)]) -> Result<Loaded, Error> {
        self.load_in(&self.path("project"), variables)
    }

    fn load_in(&self, cwd: &Path, variables: &[(&str, &str)]) -> Result<Loaded, Error> {
        let home = (OsString::from("HOME"), self.dir.clone().into_os_string());
        let given = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Config::load(cwd, [home].into_iter().chain(given))
    }
}

/// The value of a setting and where it is from, as people see it.
fn shown(loaded: &Loaded, key: &str) -> (String, String) {
    let found = loaded.values.iter().find(|sourced| sourced.key == key).unwrap_or_else(|| panic!("no {key}"));
    (found.value.clone(), found.source.to_string())
}
