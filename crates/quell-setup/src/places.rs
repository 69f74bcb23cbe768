//! The directories in which agents keep their files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Error;

/// The variables with which agents are told to keep their files elsewhere.
const VARIABLES: [&str; 3] = ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"];

/// Where the files of this user and of this project are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The user's home.
    pub home: PathBuf,
    /// The user's directory for configuration files.
    pub config: PathBuf,
    /// The project's directory.
    pub project: PathBuf,
    variables: BTreeMap<&'static str, PathBuf>,
}

impl Places {
    /// Those that this process sees: its environment and its working directory.
    pub fn here() -> Result<Self, Error> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let home = absolute("HOME").or_else(quell_sys::own_home).ok_or(Error::NoUserHome)?;
        let project = std::env::current_dir().map_err(|error| Error::Io {
            path: PathBuf::from("."),
            error,
            doing: "find the current directory",
        })?;
        let mut places = Self::new(&home, &project);
        if let Some(config) = absolute("XDG_CONFIG_HOME") {
            places.config = config;
        }
        // An agent takes a relative one from its own working directory, which is the project's.
        places.variables =
            VARIABLES.iter().filter_map(|name| Some((*name, project.join(variable(name)?)))).collect();
        Ok(places)
    }

    /// Those of a user at `home` in `project`, without any variables.
    pub fn new(home: &Path, project: &Path) -> Self {
        let (home, project) = (home.to_owned(), project.to_owned());
        Self { config: home.join(".config"), home, project, variables: BTreeMap::new() }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Path> {
        self.variables.get(name).map(PathBuf::as_path)
    }

    /// The directory that the variable names, else the home.
    pub(crate) fn variable_or_home(&self, name: &str) -> &Path {
        self.variable(name).unwrap_or(&self.home)
    }
}
