//! How to call quell from code that must not block: each call goes to a thread where blocking is allowed, and its result
//! comes back over a channel. With tokio the same is `tokio::task::spawn_blocking(move || job.stop(&stop)).await`.
//!
//! `cargo run -p quell --example async_pattern`; the `quell` program is to be on the PATH, or in QUELL_BIN.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use quell::{Error, Job, JobRequest, Quell, Stop};

/// Runs `call` where blocking is allowed. The receiver stands for the future of an async runtime.
fn spawn_blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (send, receive) = channel();
    thread::spawn(move || send.send(call()));
    receive
}

/// What `.await` would be.
fn join<T>(calls: Vec<Receiver<quell::Result<T>>>) -> quell::Result<Vec<T>> {
    let lost = |_| Error::Keeper("a call has panicked".into());
    calls.into_iter().map(|call| call.recv().map_err(lost)?).collect()
}

fn main() -> quell::Result<()> {
    let quell = Quell::new()?;
    let starts = (0..3).map(|_| {
        let quell = quell.clone();
        spawn_blocking(move || quell.start(&JobRequest::background(["sleep", "60"])))
    });
    let jobs: Vec<Job> = join(starts.collect())?;
    let stops = jobs.iter().map(|job| {
        let job = job.clone();
        spawn_blocking(move || {
            let stopped = job.stop(&Stop::default())?;
            job.remove(false)?;
            Ok(stopped)
        })
    });
    let stopped = join(stops.collect())?;
    println!("{} jobs, all gone", stopped.len());
    Ok(())
}
