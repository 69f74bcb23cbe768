//! The published JSON schemas of the `data` that each verb prints with `--json`. Receipts (`quell run`) have theirs in
//! `quell-core`.

use quell_core::schema::{Failure, written};

use crate::answers::{ConfigAnswer, RmAnswer, StartAnswer, StatusAnswer, StopAnswer, TreeAnswer};
use crate::{GcReport, Listing, Stats, SweepReport};

/// A verb's name, and what makes its schema.
pub type Published = (&'static str, fn() -> String);

/// All of them: the name is that of the file in docs/schema, and of the verb. `error` is the whole envelope of a failure.
pub const ALL: &[Published] = &[
    ("config", written::<ConfigAnswer>),
    ("doctor", written::<quell_contain::Doctor>),
    ("error", written::<Failure>),
    ("gc", written::<GcReport>),
    ("list", written::<Listing>),
    ("rm", written::<RmAnswer>),
    ("start", written::<StartAnswer>),
    ("stats", written::<Stats>),
    ("status", written::<StatusAnswer>),
    ("stop", written::<StopAnswer>),
    ("sweep", written::<SweepReport>),
    ("tree", written::<TreeAnswer>),
];
