//! Starts a program that starts another one, looks at the tree, and stops all of it.
//!
//! `cargo run -p quell --example builder`; the `quell` program has to be on the PATH, or in QUELL_BIN.

use std::time::Duration;

use quell::{Quell, Removal, StopOptions};

fn main() -> quell::Result<()> {
    let quell = Quell::open()?;
    // Nothing of it outlives this program, however this program ends.
    let job = quell.command("sh").args(["-c", "sleep 60 & sleep 60"]).owned_by_this_process().start()?;
    println!("{} is {}", job.id(), job.view()?.state);
    for member in job.members()? {
        println!("  {} {}", member.id.pid, member.command);
    }
    // Returns when every process is proven gone. An error means that it is not.
    let stopped = job.stop_with(&StopOptions::default().grace(Duration::from_secs(2)))?;
    println!("{} processes seen, all gone", stopped.receipt().members.len());
    job.remove(Removal::IfProvenDead)
}
