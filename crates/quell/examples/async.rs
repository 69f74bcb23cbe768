//! Starts and stops several jobs at once from async code.
//!
//! `cargo run -p quell --features tokio --example async`; the `quell` program has to be on the PATH, or in QUELL_BIN.

use std::time::Duration;

use quell::{Condition, Quell, StopOptions, Verdict, WaitFor};

#[tokio::main(flavor = "current_thread")]
async fn main() -> quell::Result<()> {
    let quell = Quell::open()?;
    let mut stops = Vec::new();
    for _ in 0..3 {
        let job = quell.command("sleep").arg("60").owned_by_this_process().start()?;
        let waited = job.wait_async(WaitFor::end(), Some(Duration::from_millis(10))).await?;
        assert_eq!(waited.met, Condition::Nothing);
        // All of them are stopped at the same time.
        stops.push(tokio::spawn(async move { job.stop_async(StopOptions::default()).await }));
    }
    for stop in stops {
        let stopped = stop.await.expect("the task ran")?;
        assert_eq!(stopped.receipt().verdict, Verdict::Gone);
    }
    println!("3 jobs, all gone");
    Ok(())
}
