//! When an ended program is started again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When an ended program is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// When it did not exit with 0, also after its timeout, unless the job was stopped.
    OnFailure,
    /// Whenever it has ended, also by its timeout, unless the job was stopped.
    Always,
}

/// How often and how soon an ended program is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartRules {
    /// When it is started again.
    pub policy: RestartPolicy,
    /// The largest number of restarts; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The first wait in seconds; each further one is twice as long.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub delay: Duration,
    /// The longest wait in seconds. After a run that lasted longer than this, the first wait is used again.
    #[serde(with = "crate::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub max_delay: Duration,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::No,
            limit: Some(10),
            delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(60),
        }
    }
}
