//! Ending a wait from another thread.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// Ends waits early, from another thread. Clones are the same interrupt. Once raised it stays so.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// let interrupt = quell::Interrupt::new()?;
/// let wanted = quell::WaitFor::end().or_interrupted(&interrupt);
/// let job = quell::Quell::open()?.job("build")?;
/// std::thread::spawn(move || interrupt.raise());
/// let waited = job.wait(&wanted, None)?; // `Condition::Nothing`, unless the job has ended
/// # let _ = waited;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Pipe>);

/// When the writer is closed, the reader becomes readable: it is at the end of its input.
#[derive(Debug)]
struct Pipe {
    reader: PipeReader,
    writer: Mutex<Option<PipeWriter>>,
}

impl Interrupt {
    /// One that is not raised.
    pub fn new() -> Result<Self> {
        let (reader, writer) = std::io::pipe().map_err(Error::io("pipe"))?;
        Ok(Self(Arc::new(Pipe { reader, writer: Mutex::new(Some(writer)) })))
    }

    /// Ends all waits that have it, and all that will.
    pub fn raise(&self) {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl AsFd for Interrupt {
    /// Readable once it is raised.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.reader.as_fd()
    }
}
