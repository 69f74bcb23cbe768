//! The platforms on which quell can't keep jobs yet.

#[path = "verbs/doctor.rs"]
pub mod doctor;

use std::process::ExitCode;

use crate::args::{self, CliCommand};
use crate::errors::{self, exit};
use crate::output;

/// Reports that this platform is not supported yet.
pub fn carry_out(verb: CliCommand) -> ExitCode {
    if let CliCommand::Doctor(args) = verb {
        return doctor::doctor(&args);
    }
    let json = args::wants_json(&std::env::args_os().collect::<Vec<_>>());
    let message = quell::binary::supported().err().map(|error| error.to_string()).unwrap_or_default();
    let error = errors::said("unsupported_platform", message, "run quell on Linux");
    output::fail("quell", json, exit::FAILED, &error)
}
