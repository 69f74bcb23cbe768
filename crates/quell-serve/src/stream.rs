//! `GET /v1/stream`: rows, events and output as they come. Each stream pulls: events from the ring by their number, output from the
//! disk by its cursor, when the client has room. So a slow client costs no memory and loses nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use quell::binary::responses::Followed;
use quell::binary::{
    Interest, JobInternals, LineOrCut, Lines, LogReader, json, log_cut, log_line, look, now,
};
use quell::{Cursor, Error, Job, JobId, JobState};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::answer::Failure;
use crate::call::{Call, Reply};
use crate::hub::{Bell, Subscription};
use crate::pools;
use crate::query::event_id;
use crate::state::{self, State, StreamPlace};

/// How often something is sent when nothing happens, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many events are sent at once.
const BATCH: usize = 256;
/// How much output is sent at once.
const BATCH_BYTES: usize = 64 * 1024;
/// How long lines that come one by one are collected.
const COLLECT: Duration = Duration::from_millis(50);
/// How many outputs one stream follows.
const MOST_LOGS: usize = 16;

/// The body of a stream: what its task has made. Dropping it ends the task.
struct StreamBody {
    chunks: mpsc::Receiver<Bytes>,
    _place: StreamPlace,
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.chunks.poll_recv(context).map(|chunk| Some(Ok(Frame::data(chunk?))))
    }
}

/// A body of lines, each sent as it comes.
pub struct LineBody(pub mpsc::Receiver<Bytes>);

impl HttpBody for LineBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|line| Some(Ok(Frame::data(line?))))
    }
}

/// Begins a stream.
pub async fn stream(call: Call) -> Reply {
    let state = call.state.clone();
    let logs = call.query.logs("logs");
    if logs.len() > MOST_LOGS {
        return Err(Failure::bad_value(format!("a stream follows {MOST_LOGS} outputs at most")));
    }
    let place = state.take_stream(call.caller.token.clone())?;
    let wants_events = call.query.text("events").is_none() || call.query.flag("events");
    let last = *state.hub.last().borrow();
    let (next, reset) = match call.header("last-event-id").or(call.query.text("after")) {
        None => (last, None),
        Some(id) => match event_id(id) {
            Some((epoch, number))
                if epoch == state.epoch.to_string() && state.hub.after(number, 0).is_some() =>
            {
                (number, None)
            }
            Some((epoch, _)) if epoch == state.epoch.to_string() => (last, Some("gap")),
            _ => (last, Some("epoch")),
        },
    };
    let hello = Hello {
        epoch: state.epoch,
        role: call.caller.role,
        server: env!("CARGO_PKG_VERSION"),
        now: now(),
        next: format!("{}.{next}", state.epoch),
    };
    let bell = Arc::new(Bell::default());
    let (rung, shared) = (bell.clone(), state.clone());
    let logs = pools::run(&state.pools.reads, move || {
        let access = call.access("", None)?;
        let begin = |(name, cursor): (String, Option<Cursor>)| {
            let job = access.quell.job(&name)?;
            job.check_has_logs()?;
            let subscription = shared.hub.subscribe(&job, Interest::Output, &rung);
            Ok((
                job.id(),
                Log { job, cursor: cursor.unwrap_or_default(), is_due: true, _subscription: subscription },
            ))
        };
        logs.into_iter().map(begin).collect::<Result<BTreeMap<_, _>, Error>>()
    })
    .await??;
    let (sender, chunks) = mpsc::channel(1);
    let pump = Pump { state, next, wants_events, logs, bell };
    tokio::spawn(pump.run(sender, hello, reset));
    let mut response = Response::new(Body::new(StreamBody { chunks, _place: place }));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

/// The first event of a stream.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// This run of the server. Ids of events from another one mean nothing.
    epoch: JobId,
    /// The rights of the token.
    role: crate::Role,
    /// The version of the server.
    server: &'static str,
    /// The server's clock.
    now: quell::Timestamp,
    /// The id of the last event before this stream.
    next: String,
}

/// The output of a job that is followed.
struct Log {
    job: Job,
    cursor: Cursor,
    /// Whether there may be more than was read.
    is_due: bool,
    _subscription: Subscription,
}

/// Makes what a stream sends.
struct Pump {
    state: Arc<State>,
    /// The number of the last event that was sent.
    next: u64,
    wants_events: bool,
    logs: BTreeMap<JobId, Log>,
    bell: Arc<Bell>,
}

impl Pump {
    async fn run(mut self, sender: mpsc::Sender<Bytes>, hello: Hello, reset: Option<&'static str>) {
        let mut text = format!("retry: 2000\n\nevent: hello\ndata: {}\n\n", json(&hello));
        if let Some(why) = reset {
            self.add_reset(&mut text, why);
        }
        let mut ending = self.state.ending.subscribe();
        let mut last = self.state.hub.last();
        loop {
            // Only when the client has taken the chunk before.
            let Ok(room) = sender.reserve().await else { return };
            if text.is_empty() {
                self.collect(&mut text).await;
            }
            while text.is_empty() {
                tokio::select! {
                    () = state::end(&mut ending) => {
                        room.send("event: bye\ndata: {\"why\":\"stopping\"}\n\n".into());
                        return;
                    }
                    () = sender.closed() => return,
                    _ = last.changed() => {}
                    jobs = self.bell.rung() => {
                        for job in jobs {
                            self.logs.entry(job).and_modify(|log| log.is_due = true);
                        }
                        // Lines that are written one by one are sent together.
                        tokio::time::sleep(COLLECT).await;
                    }
                    () = tokio::time::sleep(KEEP_ALIVE) => text += ": keep-alive\n\n",
                }
                self.collect(&mut text).await;
            }
            room.send(std::mem::take(&mut text).into());
        }
    }

    /// Adds what there is to send.
    async fn collect(&mut self, text: &mut String) {
        if self.wants_events {
            self.add_events(text);
        }
        let due: Vec<JobId> = self.logs.iter().filter(|(_, log)| log.is_due).map(|(id, _)| *id).collect();
        for id in due {
            self.add_output(text, id).await;
        }
    }

    fn add_events(&mut self, text: &mut String) {
        let Some((items, next)) = self.state.hub.after(self.next, BATCH) else {
            self.next = *self.state.hub.last().borrow();
            return self.add_reset(text, "gap");
        };
        for (number, item) in items {
            let (kind, data) = (item.kind.as_str(), item.text.unwrap_or_else(|| "null".into()));
            let _ = write!(text, "event: {kind}\nid: {}.{number}\ndata: {data}\n\n", self.state.epoch);
        }
        self.next = next;
    }

    fn add_reset(&self, text: &mut String, why: &str) {
        self.state.counts.resets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let data = json!({ "why": why, "next": format!("{}.{}", self.state.epoch, self.next) });
        let _ = write!(text, "event: reset\ndata: {data}\n\n");
    }

    async fn add_output(&mut self, text: &mut String, id: JobId) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        let (job, cursor) = (log.job.clone(), log.cursor);
        let read = pools::run(&self.state.pools.reads, move || read_on(&job, cursor)).await;
        match read {
            Ok(Ok(read)) => {
                *text += &read.text;
                (log.cursor, log.is_due) = (read.cursor, read.is_more);
            }
            // The job was removed.
            Ok(Err(_)) => drop(self.logs.remove(&id)),
            // Too many calls are under way: the next round reads it.
            Err(_) => {}
        }
    }
}

/// Output that was read.
struct ReadOn {
    text: String,
    cursor: Cursor,
    /// Whether there is more already.
    is_more: bool,
}

#[derive(Serialize)]
struct OfJob<'a> {
    job: JobId,
    #[serde(flatten)]
    followed: &'a Followed,
}

/// Reads what follows `cursor`, up to [`BATCH_BYTES`]. The last line of a job may have no line end.
fn read_on(job: &Job, cursor: Cursor) -> quell::Result<ReadOn> {
    let failed = || Error::io(job.dir().dir());
    // Before reading: a job that had ended then writes no more.
    let has_ended = look(job.dir())?.state == JobState::Ended;
    let mut reader = LogReader::open(job.dir().dir()).map_err(failed())?;
    reader.seek(cursor);
    let mut lines = Lines::new(reader);
    let (mut text, mut is_more) = (String::new(), false);
    loop {
        let next = match lines.next_line().map_err(failed())? {
            None if has_ended => lines.next_begun().map(LineOrCut::Line),
            next => next,
        };
        let Some(next) = next else { break };
        let cursor = lines.cursor();
        let (kind, followed) = match next {
            LineOrCut::Line(line) => ("log", Followed::Line { line: log_line(&line), cursor }),
            LineOrCut::Cut(cut) => ("cut", Followed::Cut { cut: log_cut(&cut), cursor }),
        };
        let _ =
            write!(text, "event: {kind}\ndata: {}\n\n", json(&OfJob { job: job.id(), followed: &followed }));
        if text.len() >= BATCH_BYTES {
            is_more = true;
            break;
        }
    }
    Ok(ReadOn { text, cursor: lines.cursor(), is_more })
}
