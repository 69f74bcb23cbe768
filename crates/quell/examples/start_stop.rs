//! Starts a program that starts another one, looks at the tree, and stops all of it.
//!
//! `cargo run -p quell --example start_stop`; the `quell` program is to be on the PATH, or in QUELL_BIN.

use std::time::Duration;

use quell::{Background, JobRequest, Owner, Quell, Stop};

fn main() -> quell::Result<()> {
    let quell = Quell::new()?;
    // Nothing of it outlives this program, however that ends.
    let owner = Some(Owner::Process { id: quell::owner_process(std::process::id())? });
    let background = Background { owner, ..Background::default() };
    let job = quell.start(&JobRequest::new(["sh", "-c", "sleep 60 & sleep 60"], background))?;
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
