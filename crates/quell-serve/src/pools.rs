//! Threads for calls of the library, which block. Each kind has its own limit, so that nothing keeps a stop waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::answer::HttpFailure;

/// How many calls that read are carried out at once.
const READS: usize = 16;
/// How many stops are asked for at once.
const ASKS: usize = 64;
/// How many stops that were heard are looked after at once.
const FOLLOWED: usize = 1024;
/// How many streams read output at once. Few, so that a thousand of them leave the processors to a stop.
const OUTPUTS: usize = 2;
/// How many other changes are carried out at once: starts, restarts, input, removal.
const CHANGES: usize = 16;
/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// The limits.
#[derive(Clone, Debug)]
pub struct Pools {
    pub reads: Arc<Semaphore>,
    pub asks: Arc<Semaphore>,
    pub followed: Arc<Semaphore>,
    pub outputs: Arc<Semaphore>,
    pub changes: Arc<Semaphore>,
}

impl Pools {
    pub fn new() -> Self {
        let [reads, asks, followed, outputs, changes] =
            [READS, ASKS, FOLLOWED, OUTPUTS, CHANGES].map(|most| Arc::new(Semaphore::new(most)));
        Self { reads, asks, followed, outputs, changes }
    }
}

fn busy(why: &str) -> HttpFailure {
    HttpFailure::new(503, "busy", why, "try again in a moment").retryable()
}

/// Waits for a place.
pub async fn place(pool: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, HttpFailure> {
    let place = tokio::time::timeout(PATIENCE, pool.clone().acquire_owned()).await;
    place.ok().and_then(Result::ok).ok_or_else(|| busy("too many calls are under way"))
}

/// Carries out a call that blocks, on a thread of its own.
pub async fn run<T: Send + 'static>(
    pool: &Arc<Semaphore>,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpFailure> {
    let place = place(pool).await?;
    let (done, result) = oneshot::channel();
    spawn(move || {
        // The place is free when the answer is there, not after it.
        let result = call();
        drop(place);
        let _ = done.send(result);
    })?;
    result.await.map_err(|_| HttpFailure::internal("the call ended without a result"))
}

/// Starts a thread.
pub fn spawn(call: impl FnOnce() + Send + 'static) -> Result<(), HttpFailure> {
    let thread = quell::binary::thread().name("serve-call".into()).spawn(call);
    thread.map(drop).map_err(|error| busy(&format!("can't start a thread: {error}")))
}
