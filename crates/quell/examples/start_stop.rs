//! Starts a program that starts another one, looks at the tree, and stops all of it.
//!
//! `cargo run -p quell --example start_stop`; the `quell` program is to be on the PATH, or in QUELL_BIN.

use std::time::Duration;

use quell::{Quell, Start, Stop};

fn main() -> quell::Result<()> {
    let quell = Quell::new()?;
    let mut start = Start::new(["sh", "-c", "sleep 60 & sleep 60"]);
    // Nothing of it outlives this program, however that ends.
    start.owner = Some(quell::owner_process(std::process::id())?);
    let job = quell.start(&start)?;
    println!("{} is {}", job.id(), job.view()?.state);

    for member in job.tree()? {
        println!("  {} {}", member.id.pid, member.command);
    }

    // Comes back when everything is proven gone; an error says that it is not.
    let stop = Stop { grace: Some(Duration::from_secs(2)), ..Stop::default() };
    let stopped = job.stop(&stop)?;
    println!("{} processes seen, all gone", stopped.receipt.members.len());
    job.remove(false)
}
