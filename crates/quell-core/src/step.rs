//! What was done to stop a job.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Moment, ProcId, Signal};

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The root exists, is contained and on record, and has not executed the program yet.
    Born,
    /// The program runs.
    Running,
    /// The program could not be executed.
    StartFailed,
    /// The root has ended (and is not reaped yet).
    RootExited,
    /// The client of a server has closed the server's standard input.
    InputClosed,
    /// A stop was requested.
    StopAsked,
    /// The signal that asks processes to end.
    Ask,
    /// The kill.
    Kill,
    /// The search for marked processes outside the tree.
    Audit,
    /// The final count.
    Verify,
}

/// One step, with its time and its signals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// When it was done.
    #[serde(flatten)]
    pub moment: Moment,
    /// What was done.
    pub step: StepKind,
    /// Details for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The signals that were sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SentSignal>,
}

/// How many signals of a step are shown.
const SHOWN_SIGNALS: usize = 32;

/// For diagnostics: `Ask; TERM to pid 12 (Sent)`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.step)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        for sent in self.signals.iter().take(SHOWN_SIGNALS) {
            write!(f, "; {} to pid {} ({:?})", sent.signal, sent.to.pid, sent.result)?;
        }
        match self.signals.len().saturating_sub(SHOWN_SIGNALS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// A signal that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentSignal {
    /// The signal.
    pub signal: Signal,
    /// The process that it was sent to.
    pub to: ProcId,
    /// The result.
    pub result: SignalResult,
}

/// The result of sending a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalResult {
    /// Delivered.
    Sent,
    /// The process had exited already.
    Gone,
    /// The kernel refused.
    Refused,
}
