//! The arguments of `service`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use quell_guard::ServiceVerb;

use super::common::patience;

const SERVICE_HELP: &str = "\
Only services that the policy allows are touched ([guard.service] in the settings; by default none), and \
never those that the host or the access to it depends on, such as systemd, dbus, ssh and the network, by any \
alias. docs/guard.md says how to write a policy.

The state after the action decides: a service is started if it is active, and stopped if it is not active \
and has no main process. A oneshot service that ran to its end is not active, so its start is not a success.

Exit codes:
  0    it is as asked, or active for `status`
  1    it is not
  2    wrong usage
  3    no such service
  4    refused by the guard or by systemd
  6    systemd took too long, and goes on
  125  there is no systemd, or quell failed

Examples:
  quell service status nginx
  quell service restart worker@3 --timeout 30s
  quell service start web --user --json";

#[derive(Args)]
#[command(after_help = SERVICE_HELP)]
pub struct ServiceArgs {
    /// What to do
    #[arg(value_name = "ACTION")]
    pub action: ServiceAction,
    /// Name of the service, with or without `.service`
    // What looks like an option is refused by the guard, with its code.
    #[arg(value_name = "NAME", allow_hyphen_values = true)]
    pub name: String,
    /// A service of your user manager, not of the system
    #[arg(long)]
    pub user: bool,
    /// Time that systemd may take
    #[arg(long, value_name = "DUR", value_parser = patience, default_value = "90s")]
    pub timeout: Duration,
    /// Reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What can be done with a service.
#[derive(Clone, Copy, ValueEnum)]
pub enum ServiceAction {
    /// Start it
    Start,
    /// Stop it
    Stop,
    /// Stop and start it
    Restart,
    /// Show its state
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
