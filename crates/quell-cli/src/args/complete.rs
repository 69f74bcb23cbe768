//! The arguments of `__complete`, which the completion scripts call.

use clap::{Args, ValueEnum};

#[derive(Args)]
pub struct CompleteArgs {
    /// What is completed
    #[arg(value_enum)]
    pub what: CompleteWhat,
}

/// What a word on a command line can be.
#[derive(Clone, Copy, ValueEnum)]
pub enum CompleteWhat {
    /// A job that lives
    Live,
    /// A job that has ended
    Ended,
    /// A job
    Any,
    /// A label
    Tags,
    /// A session
    Sessions,
    /// A state
    States,
    /// A signal
    Signals,
}
