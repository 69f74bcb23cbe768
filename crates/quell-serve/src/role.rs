//! What a token may do.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The rights of a token. Each of the first four includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Role"))]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Look at jobs and their output.
    View,
    /// The same, and stop jobs.
    Stop,
    /// The same, and signal, restart and remove them.
    Operate,
    /// Everything, also to start jobs.
    Admin,
    /// Read `/metrics`, and nothing else.
    Metrics,
}

impl TokenRole {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::View, Self::Stop, Self::Operate, Self::Admin, Self::Metrics];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Stop => "stop",
            Self::Operate => "operate",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    /// Whether it includes the rights of `needed`.
    pub fn includes(self, needed: Self) -> bool {
        match (self, needed) {
            (_, Self::Metrics) => true,
            (Self::Metrics, _) => false,
            (has, needed) => has as u8 >= needed as u8,
        }
    }
}

impl FromStr for TokenRole {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_the_ones_before_it_and_metrics_only_itself() {
        let rights = |role: TokenRole| TokenRole::ALL.map(|needed| role.includes(needed));
        assert_eq!(rights(TokenRole::View), [true, false, false, false, true]);
        assert_eq!(rights(TokenRole::Stop), [true, true, false, false, true]);
        assert_eq!(rights(TokenRole::Operate), [true, true, true, false, true]);
        assert_eq!(rights(TokenRole::Admin), [true; 5]);
        assert_eq!(rights(TokenRole::Metrics), [false, false, false, false, true]);
    }
}
