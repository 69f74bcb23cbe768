//! The fault campaign. Many clients call quell at once while a nemesis kills and stops its processes, damages its files and
//! changes the host under it; a checker holds what quell said against what the processes did.
//!
//! `campaign [--seconds N] [--seed N] [--only N] [--width N]`: see docs/reliability.md.

#[cfg(target_os = "linux")]
mod checker;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod ledger;
#[cfg(target_os = "linux")]
mod metrics;
#[cfg(target_os = "linux")]
mod nemesis;
#[cfg(target_os = "linux")]
mod play;
#[cfg(target_os = "linux")]
mod rng;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod scenario;
#[cfg(target_os = "linux")]
mod worker_journal;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("campaign: jobs run on Linux only, and so does this");
}
