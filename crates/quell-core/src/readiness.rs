//! What shows that a job is ready.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What shows that a job is ready. All that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadyRules {
    /// A process of the job listens on this TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A line of its output matches this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// This URL answers with a status from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// This shell command exits with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
}

impl ReadyRules {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What shows that a job is ready, and how to check it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyCheck {
    /// What shows it.
    #[serde(default, skip_serializing_if = "ReadyRules::is_empty")]
    pub rules: ReadyRules,
    /// How often to check, where no event reports a change.
    #[serde(with = "crate::seconds")]
    pub interval: Duration,
    /// How long one check may take.
    #[serde(with = "crate::seconds")]
    pub timeout: Duration,
}

impl Default for ReadyCheck {
    fn default() -> Self {
        let (interval, timeout) = (Duration::from_millis(250), Duration::from_secs(5));
        Self { rules: ReadyRules::default(), interval, timeout }
    }
}

impl ReadyCheck {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
