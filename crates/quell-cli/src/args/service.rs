//! The arguments of `service`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell_core::guard::ServiceVerb;

use super::common::patience;

const SERVICE_HELP: &str = "\
Only what the policy allows ([guard.service] in the settings; nothing by default) is touched, and never what the host or
the way to it depends on: systemd, dbus, ssh, the network and the like, whatever alias it goes by. What systemd says
afterwards counts: a service is started if it is active, and stopped if it isn't and has no main process. A oneshot that
ran to its end is not active, and no success. docs/guard.md says how a policy is written.

Exit codes: 0 it is as asked, or active for `status`; 1 it isn't; 2 usage; 3 no such service; 4 refused by the policy or
by systemd; 6 systemd was not done in time, and goes on; 125 there is no systemd, or quell failed.

Examples:
  quell service status nginx
  quell service restart worker@3 --timeout 30s
  quell service start web --user --json";

#[derive(Args)]
#[command(after_help = SERVICE_HELP)]
pub struct ServiceArgs {
    #[command(flatten)]
    pub what: ServiceWhat,
    /// How long systemd may take
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "90s")]
    pub timeout: Duration,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Which service, and what is meant to be done with it.
#[derive(Args)]
pub struct ServiceWhat {
    /// What to do with it
    #[arg(value_name = "ACTION")]
    pub action: ServiceAction,
    /// The service, with or without `.service`
    // What looks like an option is refused by the guard, with its code.
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub name: String,
    /// One of the user's own manager, not of the system's
    #[arg(long)]
    pub user: bool,
}

/// What can be done with a service.
#[derive(Clone, Copy, ValueEnum)]
pub enum ServiceAction {
    /// Start it
    Start,
    /// Stop it
    Stop,
    /// Stop it if it runs, and start it
    Restart,
    /// Say how it is
    Status,
}

impl ServiceAction {
    /// As the guard has it.
    pub fn verb(self) -> ServiceVerb {
        match self {
            Self::Start => ServiceVerb::Start,
            Self::Stop => ServiceVerb::Stop,
            Self::Restart => ServiceVerb::Restart,
            Self::Status => ServiceVerb::Status,
        }
    }
}
