//! Arguments that are built only when their verb is given: building those of all verbs took half of the time that a command
//! needs to start.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Whether they are all wanted now, as for completions and manual pages.
pub static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// The arguments of a verb.
pub struct Late<T>(pub T);

impl<T> Deref for Late<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Late<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Late<T> {
    fn augment_args(command: Command) -> Command {
        if AT_ONCE.load(Ordering::Relaxed) {
            T::augment_args(command)
        } else {
            command.defer(T::augment_args)
        }
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(T::augment_args_for_update)
    }
}
