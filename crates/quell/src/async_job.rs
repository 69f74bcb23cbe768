//! Async versions of the calls that wait for other processes. Each of them runs on a thread where blocking is allowed.

use std::time::Duration;

use crate::{Error, Job, Result, StopOptions, Stopped, WaitFor, Waited};

impl Job {
    /// [`Job::wait`] for async code. Needs the feature `tokio` and a tokio runtime. A future that is dropped does not end the wait.
    pub async fn wait_async(&self, wanted: WaitFor, within: Option<Duration>) -> Result<Waited> {
        self.blocking(move |job| job.wait(&wanted, within)).await
    }

    /// [`Job::wait_ready`] for async code. Needs the feature `tokio` and a tokio runtime.
    pub async fn wait_ready_async(&self, within: Duration) -> Result<()> {
        self.blocking(move |job| job.wait_ready(within)).await
    }

    /// [`Job::stop_with`] for async code. Needs the feature `tokio` and a tokio runtime. The stop goes on if the future is dropped.
    pub async fn stop_async(&self, options: StopOptions) -> Result<Stopped> {
        self.blocking(move |job| job.stop_with(&options)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = self.clone();
        let failed = |error| Error::Keeper(format!("the blocking call was lost: {error}"));
        tokio::task::spawn_blocking(move || call(&job)).await.map_err(failed)?
    }
}
