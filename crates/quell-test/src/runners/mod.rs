//! The test runners that quell knows: one table for each, in a file of its own.

mod cargo;
mod go;
mod jest;
mod pytest;
mod unittest;

pub(crate) use cargo::{cargo_verb, is_official};
pub(crate) use pytest::{adds_nothing, split_words};

use crate::check::{Options, PathWord, Rules, Verdict};

/// A program that runs tests, known by the way in which it is called.
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

/// What is known of a runner.
pub(crate) struct RunnerTable {
    /// What people call it, and what a policy may allow it by.
    pub name: &'static str,
    pub options: Options,
    /// The word behind which its own words end; what follows is read by the tests' program.
    pub end: &'static str,
    /// The options of that program, if they are known.
    pub behind: Option<&'static Options>,
    /// Words that may stand before its own, such as `run`.
    pub verbs: &'static str,
    /// The paths that a word names which is not an option.
    pub target: fn(&str, &Rules<'_>) -> Verdict<Vec<PathWord>>,
}

impl Runner {
    /// Its table; none for a command that is not a known runner.
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

    pub fn is_cargo(self) -> bool {
        matches!(self, Self::Cargo | Self::Nextest)
    }
}
