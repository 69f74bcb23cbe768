//! One connection: its time limits, and the state by which the oldest idle one is found.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may have no request.
const IDLE: Duration = Duration::from_secs(60);
/// How long a client may take nothing of what is sent to it.
const UNREAD: Duration = Duration::from_secs(60);
/// How often a connection with a request under way is looked at.
const LOOK: Duration = Duration::from_secs(20);

/// What a connection is doing. Times are milliseconds since `began`, and 0 for never.
#[derive(Debug)]
pub struct Clock {
    began: Instant,
    requests: AtomicU32,
    idle_since: AtomicU64,
    head_since: AtomicU64,
    blocked_since: AtomicU64,
    /// A limit may be nearer than before.
    changed: Notify,
    /// Ends the connection.
    pub end: Notify,
}

impl Clock {
    pub fn new() -> Self {
        let [idle_since, head_since, blocked_since] = [1, 0, 0].map(AtomicU64::new);
        let (began, requests) = (Instant::now(), AtomicU32::new(0));
        let (changed, end) = (Notify::new(), Notify::new());
        Self { began, requests, idle_since, head_since, blocked_since, changed, end }
    }

    fn now(&self) -> u64 {
        (self.began.elapsed().as_millis() as u64).max(1)
    }

    /// A request has come. It is under way until the guard is dropped.
    pub fn request(self: &Arc<Self>) -> UnderWay {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// For how long there has been no request; none if there is one.
    pub fn idle(&self) -> Option<Duration> {
        let idle = self.requests.load(Ordering::Relaxed) == 0;
        idle.then(|| {
            Duration::from_millis(self.now().saturating_sub(self.idle_since.load(Ordering::Relaxed)))
        })
    }

    /// Returns when the connection has to end: one of its limits is over, or it was told to.
    pub async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            let Some(left) = self.next_look() else { return };
            tokio::select! {
                () = self.end.notified() => return,
                () = changed => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// When the connection has to be looked at again; none if it has to end now.
    fn next_look(&self) -> Option<Duration> {
        let now = self.now();
        let left = |since: u64, most: Duration| {
            most.checked_sub(Duration::from_millis(now.saturating_sub(since))).filter(|left| !left.is_zero())
        };
        let [idle, head, blocked] = [&self.idle_since, &self.head_since, &self.blocked_since]
            .map(|since| since.load(Ordering::Relaxed));
        let unread = if blocked > 0 { left(blocked, UNREAD)? } else { UNREAD };
        let rest = match (self.requests.load(Ordering::Relaxed), head) {
            (0, 0) => left(idle, IDLE)?,
            (0, head) => left(head, HEAD)?,
            (_, _) => LOOK,
        };
        Some(rest.min(unread))
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct UnderWay(Arc<Clock>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body whose request is under way until it is sent.
pub struct TimedBody {
    pub body: Body,
    pub _under_way: UnderWay,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The two ends of a socket, whose use is noted in a [`Clock`].
pub struct TimedSocket<S> {
    pub socket: S,
    pub clock: Arc<Clock>,
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let clock = &self.clock;
        if buffer.filled().len() > before && clock.requests.load(Ordering::Relaxed) == 0 {
            let now = clock.now();
            let _ = clock.head_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            clock.changed.notify_waiters();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> TimedSocket<S> {
    /// Notes whether the client takes what is written.
    fn note<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let since = &self.clock.blocked_since;
        match &done {
            Poll::Pending => {
                let _ = since.compare_exchange(0, self.clock.now(), Ordering::Relaxed, Ordering::Relaxed);
            }
            Poll::Ready(_) => since.store(0, Ordering::Relaxed),
        }
        done
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.note(done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.note(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
