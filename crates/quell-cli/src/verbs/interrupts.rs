//! Signals that mean the job that a verb waits for: the verb stops it, and lives to say what came of it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use quell::{Job, Stop};
use quell_core::Signal;
use quell_sys::{Polled, SignalFd};

/// What would end this process, and is heard instead.
const HEARD: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Holds them back for as long as it is there.
pub struct Interrupts {
    heard: Vec<Signal>,
    watch: Option<SignalFd>,
    first: Arc<AtomicI32>,
}

impl Interrupts {
    /// From here on none is lost. Before any other thread is there: each has its own mask.
    pub fn hold() -> Self {
        // What the caller ignores on purpose (nohup, a background job of a script) stays ignored.
        let ignored = quell_sys::ignored_at_start(&HEARD);
        let heard: Vec<Signal> = HEARD.into_iter().filter(|signal| !ignored.contains(signal)).collect();
        let watch = SignalFd::new(&heard).ok();
        if watch.is_none() {
            // No process would read them, so they keep their default action.
            quell_sys::unblock(&heard);
        }
        Self { heard, watch, first: Arc::default() }
    }

    /// Stops `job` when one comes, or has come already; a second one kills it.
    pub fn stop(&mut self, job: &Job, verb: &'static str) {
        let Some(watch) = self.watch.take() else { return };
        let (job, first) = (job.clone(), self.first.clone());
        let hear = move || {
            loop {
                let _ = quell_sys::poll_until(&[Polled::Read(watch.as_fd())], None);
                let Some(came) = watch.next() else { continue };
                let again = first
                    .compare_exchange(0, came.signal.number(), Ordering::SeqCst, Ordering::SeqCst)
                    .is_err();
                let reason = Some(format!("{} came to `quell {verb}`", came.signal));
                let (job, stop) = (job.clone(), Stop { kill: again, reason, ..Stop::default() });
                // It waits for the end, and the next signal must not wait for it. What comes of it is on record.
                let _ = quell_sys::thread().spawn(move || job.stop(&stop));
            }
        };
        let _ = quell_sys::thread().spawn(hear);
    }

    /// The first that came, if any. From here on they end this process again.
    pub fn let_go(self) -> Option<Signal> {
        quell_sys::unblock(&self.heard);
        Signal::new(self.first.load(Ordering::SeqCst))
    }
}
