//! The arguments of `doctor`.

use clap::Args;

#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 if something stronger than the reaper can hold a job here, 1 if only the reaper can.

Examples:
  quell doctor
  quell doctor --json")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
