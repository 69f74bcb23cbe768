//! Settings, and where each of them comes from: a flag, else a `QUELL_*` variable, else the project's `quell.toml`, else
//! the user's own file, else the default. `docs/config.md` tells users about it.
//!
//! `keys.rs` has the one table of all settings. Every layer gives texts, which the table's readers turn into
//! the fields of [`Config`]; a text that can't be read is an error in every layer, also where a stronger one wins.

mod file;
mod find;
mod guard;
mod hooks;
mod keys;
mod load;
mod origin;
mod suggest;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{Contain, Hook, Mask, OnOwnerExit, RestartRules, StopPlan, Until};
use quell_guard::Policy;

pub use load::Loaded;
pub use origin::{ConfigFile, FileLine, Layer, SettingOrigin, Sourced};

/// All settings, final and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How jobs are stopped.
    pub stop: StopPlan,
    /// How background jobs are started.
    pub start: StartConfig,
    /// How tests are run.
    pub test: TestConfig,
    /// Which finished jobs are forgotten.
    pub gc: GcConfig,
    /// How readiness is looked for.
    pub ready: ReadyConfig,
    /// What is done at events of jobs: the user's first, then those of a trusted project. All paths in it are absolute.
    pub hooks: Vec<Hook>,
    /// What may be done.
    pub guard: Policy,
    /// The directories whose `quell.toml` may run commands and set what concerns all jobs; as the user's file names them.
    pub trusted: Vec<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let mut guard = Policy::default();
        guard.test.approval_variable = guard::APPROVAL.into();
        Self {
            stop: StopPlan::default(),
            start: StartConfig::default(),
            test: TestConfig::default(),
            gc: GcConfig::default(),
            ready: ReadyConfig::default(),
            hooks: Vec::new(),
            guard,
            trusted: Vec::new(),
        }
    }
}

/// How background jobs are started: `[start]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartConfig {
    /// How many bytes of each stream are kept.
    pub max_log: u64,
    /// What holds the tree.
    pub contain: Contain,
    /// What ends a job by itself.
    pub until: Until,
    /// How long readiness is waited for when that is asked for without a time. Not zero.
    pub wait_ready: Duration,
    /// When an ended program is started again.
    pub restart: RestartRules,
    /// What becomes of a job whose owner is gone.
    pub on_owner_exit: OnOwnerExit,
    /// The variables whose values are shown nowhere, each once.
    pub mask: Vec<String>,
}

impl Default for StartConfig {
    fn default() -> Self {
        Self {
            max_log: 64 << 20,
            contain: Contain::Auto,
            until: Until::Root,
            wait_ready: Duration::from_secs(30),
            restart: RestartRules::default(),
            on_owner_exit: OnOwnerExit::Stop,
            mask: Vec::new(),
        }
    }
}

impl Config {
    /// The values of the variables that are to be masked, as this process has them.
    pub fn mask(&self) -> Mask {
        self.mask_with(&[], &[])
    }

    /// The same with more names, and with variables that a job has besides.
    pub(crate) fn mask_with(&self, names: &[String], set: &[(OsString, OsString)]) -> Mask {
        let names = [self.start.mask.as_slice(), names].concat();
        if names.is_empty() {
            return Mask::default();
        }
        Mask::new(&names, &std::env::vars_os().chain(set.iter().cloned()).collect::<Vec<_>>())
    }
}

/// How tests are run: `[test]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestConfig {
    /// How long they may take; none for no limit.
    pub timeout: Option<Duration>,
}

impl Default for TestConfig {
    fn default() -> Self {
        Self { timeout: Some(Duration::from_secs(30 * 60)) }
    }
}

/// Which finished jobs are forgotten: `[gc]`. None is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcConfig {
    /// Whether that happens by itself.
    pub auto: bool,
    /// Those that ended longer ago than this.
    pub max_age: Option<Duration>,
    /// The oldest ones above this number.
    pub max_count: Option<u64>,
    /// The oldest ones while all together are larger than this many bytes.
    pub max_size: Option<u64>,
}

impl Default for GcConfig {
    fn default() -> Self {
        Self {
            auto: true,
            max_age: Some(Duration::from_secs(30 * 86_400)),
            max_count: None,
            max_size: Some(8 << 30),
        }
    }
}

/// How readiness is looked for: `[ready]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyConfig {
    /// The time between two looks. Not zero.
    pub interval: Duration,
    /// How long one question by HTTP or one command may take. Not zero.
    pub timeout: Duration,
}

impl Default for ReadyConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(250), timeout: Duration::from_secs(5) }
    }
}

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    /// Reads a configuration file's text; what is wrong with it, if it can't be used.
    pub fn read(text: &str) -> Result<(), String> {
        let path = std::path::Path::new("/etc/quell.toml");
        let read = super::file::parse(path, super::Layer::User, Some("/home/u".as_ref()), text);
        read.map(drop).map_err(|error| error.to_string())
    }
}
