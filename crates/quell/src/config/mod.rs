//! Settings and their origin. The order of precedence is: flag, `QUELL_*` variable, the project's `quell.toml`, the user's
//! file, default. `docs/config.md` is the page for users.
//!
//! `keys.rs` has the one table of all settings with their defaults. Each layer provides texts, which the readers in that table
//! parse into the fields of [`Config`]. An invalid text is an error in every layer, even if a stronger layer overrides it.

mod find;
mod guard;
mod hooks;
mod keys;
mod load;
mod origin;
mod settings_file;
mod suggest;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{Contain, Hook, JobRequest, Mask, OnOwnerExit, RestartRules, StopPlan, Until};
use quell_guard::Policy;

use crate::{AttentionRules, GcRules};

pub use load::Loaded;
pub use origin::{ConfigFile, FileLine, Layer, SettingOrigin, Sourced};

/// All settings, combined and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How jobs are stopped.
    pub stop: StopPlan,
    /// How background jobs are started.
    pub start: StartConfig,
    /// How tests are run.
    pub test: TestConfig,
    /// Which finished jobs are removed.
    pub gc: GcConfig,
    /// How readiness is checked.
    pub ready: ReadyConfig,
    /// Which jobs need attention.
    pub attention: AttentionRules,
    /// Hooks: the user's first, then those of a trusted project. All paths are absolute.
    pub hooks: Vec<Hook>,
    /// The policy.
    pub guard: Policy,
    /// The directories whose `quell.toml` may set hooks and settings that affect all jobs, as written in the user's file.
    pub trusted: Vec<PathBuf>,
}

impl Config {
    /// Without the defaults of `keys.rs`.
    fn unset() -> Self {
        let mut guard = Policy::default();
        guard.test.approval_variable = guard::APPROVAL.into();
        Self {
            stop: StopPlan::default(),
            start: StartConfig::default(),
            test: TestConfig::default(),
            gc: GcConfig::default(),
            ready: ReadyConfig::default(),
            attention: AttentionRules::default(),
            hooks: Vec::new(),
            guard,
            trusted: Vec::new(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Self::unset();
        for key in keys::KEYS {
            // A test checks that each default is valid.
            let _ = (key.set)(&mut config, key.default);
        }
        config
    }
}

/// How background jobs are started: `[start]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartConfig {
    /// The limit of the log of each stream, in bytes.
    pub max_log: u64,
    /// The containment.
    pub contain: Contain,
    /// When a job is over.
    pub until: Until,
    /// The default time for `--wait-ready`. Not zero.
    pub wait_ready: Duration,
    /// When a program is started again after its exit.
    pub restart: RestartRules,
    /// What happens to a job when its owner exits.
    pub on_owner_exit: OnOwnerExit,
    /// The variables whose values are masked everywhere. No duplicates.
    pub mask: Vec<String>,
}

impl Config {
    /// Applies the settings for all jobs to a request, without hooks for a hook's own command.
    pub fn configure(&self, request: &mut JobRequest) {
        request.stop = self.stop;
        request.contain = self.start.contain;
        request.until = self.start.until;
        request.mask = self.start.mask.clone();
        // Only with hooks: the check for a hook's own command reads all ancestors.
        if !self.hooks.is_empty() && !quell_keeper::is_below_a_helper() {
            request.hooks = self.hooks.clone();
        }
    }

    /// The masked values, from the environment of this process.
    pub fn mask(&self) -> Mask {
        self.mask_with(&[], &[])
    }

    /// The same with additional names, and with the additional variables of a job.
    pub(crate) fn mask_with(&self, names: &[String], set: &[(OsString, OsString)]) -> Mask {
        let names = [self.start.mask.as_slice(), names].concat();
        if names.is_empty() {
            return Mask::default();
        }
        Mask::new(&names, &std::env::vars_os().chain(set.iter().cloned()).collect::<Vec<_>>())
    }
}

/// How tests are run: `[test]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestConfig {
    /// The default timeout; none for no limit.
    pub timeout: Option<Duration>,
}

/// Which finished jobs are removed: `[gc]`. None means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcConfig {
    /// Whether quell removes them automatically.
    pub auto: bool,
    /// Remove jobs that ended longer ago than this.
    pub max_age: Option<Duration>,
    /// Keep at most this many.
    pub max_count: Option<u64>,
    /// Keep at most this many bytes in total.
    pub max_size: Option<u64>,
}

impl GcConfig {
    /// The rules for a gc.
    pub fn rules(&self) -> GcRules {
        GcRules {
            max_age: self.max_age,
            // There can't be more than that.
            max_count: self.max_count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            max_size: self.max_size,
            force: false,
        }
    }
}

/// How readiness is checked: `[ready]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyConfig {
    /// The time between two checks. Not zero.
    pub interval: Duration,
    /// The timeout of one HTTP request or one command. Not zero.
    pub timeout: Duration,
}

/// Entry points for the fuzzer. Not part of the public interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    /// Parses the text of a configuration file.
    pub fn read(text: &str) -> Result<(), String> {
        let path = std::path::Path::new("/etc/quell.toml");
        let read = super::settings_file::parse(path, super::Layer::User, Some("/home/u".as_ref()), text);
        read.map(drop).map_err(|error| error.to_string())
    }
}
