//! What each verb does, in one table. What is not in it is refused.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// How far a verb goes. The order counts: each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Looks, and changes nothing that a user would miss.
    Read,
    /// Starts something, or speaks to it.
    Write,
    /// Ends or removes something.
    Destructive,
}

impl Effect {
    /// The word for it in a policy and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Destructive => "destructive",
        }
    }
}

/// A verb of any interface: the command line, the library, and whatever else calls them by these names. What is not here does not
/// exist for the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Prints completions for a shell.
    Completions,
    /// Shows the settings.
    Config,
    /// Says what the host can do.
    Doctor,
    /// Shows what happened to jobs.
    Events,
    /// Removes old jobs.
    Gc,
    /// Asks the guard, and does nothing.
    Guard,
    /// Signals a process that quell didn't start.
    Kill,
    /// Lists jobs.
    List,
    /// Shows the output of jobs.
    Logs,
    /// Writes manual pages.
    Man,
    /// Stops a job and starts it again.
    Restart,
    /// Removes the record of a job.
    Rm,
    /// Runs a job in the foreground.
    Run,
    /// Writes to the standard input of a job.
    Send,
    /// Restarts a service.
    ServiceRestart,
    /// Starts a service.
    ServiceStart,
    /// Says how a service is.
    ServiceStatus,
    /// Stops a service.
    ServiceStop,
    /// Signals a job.
    Signal,
    /// Starts a job in the background.
    Start,
    /// Counts jobs.
    Stats,
    /// Shows one job.
    Status,
    /// Stops jobs.
    Stop,
    /// Finishes lost jobs.
    Sweep,
    /// Runs tests.
    Test,
    /// Shows the processes of a job.
    Tree,
    /// Waits for jobs.
    Wait,
}

impl Verb {
    /// All of them, in the order of their words.
    pub const ALL: [Self; 27] = [
        Self::Completions,
        Self::Config,
        Self::Doctor,
        Self::Events,
        Self::Gc,
        Self::Guard,
        Self::Kill,
        Self::List,
        Self::Logs,
        Self::Man,
        Self::Restart,
        Self::Rm,
        Self::Run,
        Self::Send,
        Self::ServiceRestart,
        Self::ServiceStart,
        Self::ServiceStatus,
        Self::ServiceStop,
        Self::Signal,
        Self::Start,
        Self::Stats,
        Self::Status,
        Self::Stop,
        Self::Sweep,
        Self::Test,
        Self::Tree,
        Self::Wait,
    ];

    /// The word for it, in a policy and in the audit log; `service stop` for a verb below a verb.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Config => "config",
            Self::Doctor => "doctor",
            Self::Events => "events",
            Self::Gc => "gc",
            Self::Guard => "guard",
            Self::Kill => "kill",
            Self::List => "list",
            Self::Logs => "logs",
            Self::Man => "man",
            Self::Restart => "restart",
            Self::Rm => "rm",
            Self::Run => "run",
            Self::Send => "send",
            Self::ServiceRestart => "service restart",
            Self::ServiceStart => "service start",
            Self::ServiceStatus => "service status",
            Self::ServiceStop => "service stop",
            Self::Signal => "signal",
            Self::Start => "start",
            Self::Stats => "stats",
            Self::Status => "status",
            Self::Stop => "stop",
            Self::Sweep => "sweep",
            Self::Test => "test",
            Self::Tree => "tree",
            Self::Wait => "wait",
        }
    }

    /// How far it goes.
    pub const fn effect(self) -> Effect {
        match self {
            Self::Completions
            | Self::Config
            | Self::Doctor
            | Self::Events
            | Self::Guard
            | Self::List
            | Self::Logs
            | Self::ServiceStatus
            | Self::Stats
            | Self::Status
            | Self::Tree
            | Self::Wait => Effect::Read,
            Self::Man | Self::Run | Self::Send | Self::ServiceStart | Self::Start | Self::Test => {
                Effect::Write
            }
            Self::Gc
            | Self::Kill
            | Self::Restart
            | Self::Rm
            | Self::ServiceRestart
            | Self::ServiceStop
            | Self::Signal
            | Self::Stop
            | Self::Sweep => Effect::Destructive,
        }
    }

    /// The verb that a word names.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.word() == word)
    }

    /// What it does besides by other verbs' names. That a restart is also a start is decided with the command that is started.
    pub(crate) const fn parts(self) -> &'static [Self] {
        match self {
            Self::Restart => &[Self::Stop],
            Self::ServiceRestart => &[Self::ServiceStop, Self::ServiceStart],
            _ => &[],
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for Verb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}
