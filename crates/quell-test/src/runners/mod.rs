//! The known test runners, with a table of options for each.

mod cargo;
mod go;
mod jest;
mod pytest;
mod unittest;

pub(crate) use cargo::{cargo_verb, is_official_toolchain};
pub(crate) use jest::{anchored, pattern_in_option, reads_paths, unanchored};
pub(crate) use pytest::{clears_addopts, shlex_split};

use crate::check::{Checked, Options, PathWord, Rules, is_among};

/// A test runner, recognized by the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `pytest`, `python -m pytest`.
    Pytest,
    /// `python -m unittest`.
    Unittest,
    /// `cargo test`.
    Cargo,
    /// `cargo nextest run`.
    Nextest,
    /// `go test`.
    Go,
    Jest,
    Vitest,
    /// Any other command.
    Other,
}

/// The command line of a runner.
pub(crate) struct RunnerTable {
    /// Its name in messages and in `guard.test.commands`.
    pub name: &'static str,
    pub options: Options,
    /// The word that ends the runner's own arguments. The test program reads the words after it. Empty if there is none.
    pub separator: &'static str,
    /// The options of the test program, if they are known.
    pub program_options: Option<&'static Options>,
    /// Subcommands that may be the first positional word, such as `run`.
    pub verbs: &'static str,
    /// Returns the paths that a positional word names.
    pub parse_target: fn(&str, &Rules<'_>) -> Checked<Vec<PathWord>>,
}

impl Runner {
    /// `None` for a command that is not a known runner.
    pub fn table(self) -> Option<&'static RunnerTable> {
        match self {
            Self::Pytest => Some(&pytest::TABLE),
            Self::Unittest => Some(&unittest::TABLE),
            Self::Cargo => Some(&cargo::TEST),
            Self::Nextest => Some(&cargo::NEXTEST),
            Self::Go => Some(&go::TABLE),
            Self::Jest => Some(&jest::JEST),
            Self::Vitest => Some(&jest::VITEST),
            Self::Other => None,
        }
    }

    pub fn name(self) -> &'static str {
        self.table().map_or("this command", |table| table.name)
    }

    /// Whether the runner prints or writes its results at its end if it has these arguments.
    pub fn reports(self, own: &[String]) -> bool {
        let has = |list: &str| own.iter().any(|word| is_among(list, word.split('=').next().unwrap_or(word)));
        let asks = has("-h --help -V --version");
        match self {
            Self::Pytest | Self::Unittest => !asks && !has("--markers"),
            // Examples are only built. A format such as JSON has no line `test result`.
            Self::Cargo => !asks && !has("--no-run --list --example --examples --format"),
            Self::Nextest => !asks && !has("--no-run") && has("run r"),
            Self::Go | Self::Jest | Self::Vitest | Self::Other => false,
        }
    }

    pub fn is_cargo(self) -> bool {
        matches!(self, Self::Cargo | Self::Nextest)
    }
}
