//! The published JSON schemas of the `data` that each verb prints with `--json`. Receipts (`quell run`, unless it has left a live job) have
//! theirs in `quell-core`, and test runs (`quell test`) in `quell-test`.

use quell_core::schema::Failure;
pub use quell_core::schema::{Failure as Failed, written};

use crate::responses::{
    CheckAnswer, ConfigAnswer, LogsAnswer, RmAnswer, RunLeft, SendAnswer, SignalAnswer, StartAnswer,
    StatusAnswer, StopAnswer, TreeAnswer, WaitAnswer,
};
use crate::{GcReport, Listing, Stats, SweepReport};
use quell_guard::service::ServiceAnswer;

/// A verb's name, and what makes its schema.
pub type Published = (&'static str, fn() -> String);

/// All of them: the name is that of the file in docs/schema, and of the verb. `error` is the whole envelope of a failure.
pub const ALL: &[Published] = &[
    ("config", written::<ConfigAnswer>),
    ("doctor", written::<quell_contain::Doctor>),
    ("error", written::<Failure>),
    ("events", written::<quell_core::JobEvent>),
    ("audit", written::<quell_guard::AuditLine>),
    ("gc", written::<GcReport>),
    ("guard", written::<CheckAnswer>),
    ("kill", written::<quell_guard::kill::KillAnswer>),
    ("list", written::<Listing>),
    ("logs", written::<LogsAnswer>),
    ("restart", written::<StartAnswer>),
    ("rm", written::<RmAnswer>),
    ("run", written::<RunLeft>),
    ("send", written::<SendAnswer>),
    ("service", written::<ServiceAnswer>),
    ("signal", written::<SignalAnswer>),
    ("start", written::<StartAnswer>),
    ("stats", written::<Stats>),
    ("status", written::<StatusAnswer>),
    ("stop", written::<StopAnswer>),
    ("sweep", written::<SweepReport>),
    ("tree", written::<TreeAnswer>),
    ("wait", written::<WaitAnswer>),
];
