//! Signals during a verb that waits for a job: the verb stops the job if it is its own, and prints the result before it exits.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use quell::binary::{Polled, SignalFd};
use quell::{Job, Signal};

/// The signals that would end this process, and are handled instead.
const HEARD: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// In place of a signal: the verb has its result.
const FINISHED: i32 = -1;

/// Blocks them until it is dropped.
pub struct Interrupts {
    heard: Vec<Signal>,
    watch: Option<SignalFd>,
    first: Arc<AtomicI32>,
}

impl Interrupts {
    /// From here on no signal is lost. Called before any other thread is started: each thread has its own mask.
    pub fn hold() -> Self {
        // What the caller ignores on purpose (nohup, a background job of a script) stays ignored.
        let ignored = quell::binary::ignored_at_start(&HEARD);
        let heard: Vec<Signal> = HEARD.into_iter().filter(|signal| !ignored.contains(signal)).collect();
        let watch = SignalFd::new(&heard).ok();
        if watch.is_none() {
            // No process would read them, so they keep their default action.
            quell::binary::unblock(&heard);
        }
        Self { heard, watch, first: Arc::default() }
    }

    /// Stops `job` when one comes, or has come already; a second one kills it.
    pub fn stop(&mut self, job: &Job, verb: &'static str) {
        let Some(watch) = self.watch.take() else { return };
        let (job, first) = (job.clone(), self.first.clone());
        let hear = move || {
            loop {
                let _ = quell::binary::poll_until(&[Polled::Read(watch.as_fd())], None);
                let Some(came) = watch.next() else { continue };
                let again = first
                    .compare_exchange(0, came.signal.number(), Ordering::SeqCst, Ordering::SeqCst)
                    .is_err();
                let reason = format!("{} came to `quell {verb}`", came.signal);
                let (job, options) = (job.clone(), super::stop::options(again, None, Some(reason)));
                // In its own thread: a stop waits for the end, and the next signal must not wait. The record has the result.
                let _ = quell::binary::thread().spawn(move || job.stop_with(&options));
            }
        };
        let _ = quell::binary::thread().spawn(hear);
    }

    /// Calls `answer` when one comes, or has come already, and ends this process.
    pub fn exit_after(&mut self, answer: impl FnOnce() + Send + 'static) {
        let Some(watch) = self.watch.take() else { return };
        let first = self.first.clone();
        let hear = move || {
            let signal = loop {
                let _ = quell::binary::poll_until(&[Polled::Read(watch.as_fd())], None);
                if let Some(came) = watch.next() {
                    break came.signal.number();
                }
            };
            if first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                answer();
                std::process::exit(128 + signal);
            }
        };
        let _ = quell::binary::thread().spawn(hear);
    }

    /// The wait is over: signals change nothing from here on. If one came before, this process is about to end.
    pub fn finish(self) {
        if self.first.compare_exchange(0, FINISHED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            loop {
                std::thread::park();
            }
        }
    }

    /// The first signal that came, if any. From here on they end this process again.
    pub fn let_go(self) -> Option<Signal> {
        quell::binary::unblock(&self.heard);
        Signal::new(self.first.load(Ordering::SeqCst))
    }
}
