//! Prints what a job writes, line by line, until it has ended.
//!
//! `cargo run -p quell --example follow`; the `quell` program has to be on the PATH, or in QUELL_BIN.

use quell::{Quell, Removal, Verdict};

fn main() -> quell::Result<()> {
    let quell = Quell::open()?;
    let script = "for i in 1 2 3; do echo line $i; sleep 0.1; done; printf 'no line end'";
    let job = quell.command("sh").args(["-c", script]).start()?;
    let mut lines = job.follow()?;
    for line in &mut lines {
        let line = line?;
        println!("{}: {}", line.stream, line.text);
    }
    println!("{} bytes were not kept", lines.dropped_bytes());
    println!("{}", if job.receipt()?.verdict == Verdict::Gone { "all gone" } else { "not proven gone" });
    job.remove(Removal::IfProvenDead)
}
