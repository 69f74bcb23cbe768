//! What each verb does, in one table. A word that is not in it is refused.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// How far a verb goes. The order counts: each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Looks, and changes nothing that a user would miss.
    Read,
    /// Starts something, or sends something to it.
    Write,
    /// Ends or removes something.
    Destructive,
}

impl Effect {
    /// The word for it in a policy and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

macro_rules! verbs {
    ($($verb:ident $word:literal $effect:ident,)*) => {
        /// A verb of any interface: the command line, the library, and programs that call them by these names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Verb {
            $(#[doc = concat!("`", $word, "`")] $verb,)*
        }

        impl Verb {
            /// All verbs, in the order of their words.
            pub const ALL: &'static [Self] = &[$(Self::$verb,)*];

            /// The word for it, in a policy and in the audit log.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$verb => $word,)*
                }
            }

            /// How far it goes.
            pub const fn effect(self) -> Effect {
                match self {
                    $(Self::$verb => Effect::$effect,)*
                }
            }
        }
    };
}

verbs! {
    Completions "completions" Read,
    Config "config" Read,
    Doctor "doctor" Read,
    Events "events" Read,
    Gc "gc" Destructive,
    Guard "guard" Read,
    Kill "kill" Destructive,
    List "list" Read,
    Logs "logs" Read,
    Man "man" Write,
    Mcp "mcp" Read,
    Restart "restart" Destructive,
    Rm "rm" Destructive,
    Run "run" Write,
    Send "send" Write,
    Serve "serve" Read,
    ServiceRestart "service restart" Destructive,
    ServiceStart "service start" Write,
    ServiceStatus "service status" Read,
    ServiceStop "service stop" Destructive,
    Setup "setup" Write,
    Signal "signal" Destructive,
    Start "start" Write,
    Stats "stats" Read,
    Status "status" Read,
    Stop "stop" Destructive,
    Sweep "sweep" Destructive,
    Test "test" Write,
    Top "top" Read,
    Tree "tree" Read,
    Wait "wait" Read,
    Wrap "wrap" Write,
}

impl Verb {
    /// The verb that a word names.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|verb| verb.as_str() == word)
    }

    /// The verbs that have to be allowed with it. That a restart is also a start is decided with the command that is started.
    pub(crate) const fn parts(self) -> &'static [Self] {
        match self {
            Self::Restart => &[Self::Stop],
            // It runs any command. A policy that was written before it existed still holds.
            Self::Wrap => &[Self::Run],
            Self::ServiceRestart => &[Self::ServiceStop, Self::ServiceStart],
            _ => &[],
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Verb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
