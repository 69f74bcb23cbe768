//! The arguments of `doctor`.

use clap::Args;

#[derive(Args)]
#[command(after_help = "\
Exit codes:
  0    a cgroup or a PID namespace can hold a job here
  1    only the reaper can
  125  quell failed

Examples:
  quell doctor
  quell doctor --json")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
