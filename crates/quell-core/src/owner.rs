//! What a job lives for.

use serde::{Deserialize, Serialize};

use crate::{JobId, ProcId};

/// What a job lives for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Owner {
    /// A process.
    Process {
        /// Its identity.
        #[serde(flatten)]
        id: ProcId,
    },
    /// Another job.
    Job {
        /// Its id.
        job: JobId,
    },
}

/// What happens to a job whose owner is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnOwnerExit {
    /// It is stopped.
    #[default]
    Stop,
    /// It keeps running.
    Keep,
}
