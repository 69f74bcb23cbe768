//! `GET /v1/stream`: rows, events and output as they come. Each stream pulls: events from the ring by their number, output from the
//! disk by its cursor, when the client has room. So a slow client costs no memory and loses nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use quell::binary::{Interest, JobInternals, json, now};
use quell::{AttentionRules, Cursor, Error, Job, JobId, Quell};
use quell_guard::Verb;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::TokenRole;
use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};
use crate::hub::{Bell, Subscription};
use crate::pools;
use crate::query::event_id;
use crate::sessions::LoginOrigin;
use crate::state::{self, State, StreamPlace};
use crate::vitals::{self, Snapshot};

/// How often something is sent when nothing happens, so that a broken connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many events are sent at once.
const BATCH: usize = 256;
/// How long lines that come one by one are collected.
const COLLECT: Duration = Duration::from_millis(50);
/// How many outputs one stream follows.
const MOST_LOGS: usize = 16;
/// How often vitals are sent at most.
const SHORTEST_EVERY: Duration = Duration::from_secs(1);

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
pub async fn stream(call: HttpCall) -> Reply {
    let state = call.state.clone();
    let logs = call.query.logs("logs");
    if logs.len() > MOST_LOGS {
        return Err(HttpFailure::bad_value(format!("a stream follows {MOST_LOGS} outputs at most")));
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
    let origin = call.caller.origin.clone();
    let every = call.query.wait("vitals").filter(|every| !every.is_zero());
    let (logs, vitals) = pools::run(&state.pools.reads, move || {
        let access = call.access("", None)?;
        // Its rows are those of the list.
        if wants_events || every.is_some() {
            call.check_also(Verb::List)?;
        }
        let begin = |(name, cursor): (String, Option<Cursor>)| {
            let job = access.quell.job(&name)?;
            job.check_has_logs()?;
            let subscription = shared.hub.subscribe(&job, Interest::Output, &rung);
            Ok((
                job.id(),
                Log {
                    job,
                    cursor: cursor.unwrap_or_default(),
                    due: Some(Instant::now()),
                    _subscription: subscription,
                },
            ))
        };
        let logs = logs.into_iter().map(begin).collect::<Result<BTreeMap<_, _>, Error>>()?;
        let (quell, rules) = (access.quell.clone(), access.config.attention);
        let feed = |every: Duration| VitalsFeed {
            every: every.max(SHORTEST_EVERY),
            due: Instant::now(),
            quell,
            rules,
            sent: None,
        };
        Ok::<_, Error>((logs, every.map(feed)))
    })
    .await??;
    let (sender, chunks) = mpsc::channel(1);
    let pump = Pump { state, origin, next, wants_events, logs, vitals, bell };
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
    role: TokenRole,
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
    /// Since when there may be more than was read.
    due: Option<Instant>,
    _subscription: Subscription,
}

/// What changes without an event, as often as the client wants it.
struct VitalsFeed {
    every: Duration,
    due: Instant,
    quell: Quell,
    rules: AttentionRules,
    /// What the client has; none before the first time.
    sent: Option<Arc<Snapshot>>,
}

/// Makes what a stream sends.
struct Pump {
    state: Arc<State>,
    /// What the caller's login hangs on; none at the socket.
    origin: Option<LoginOrigin>,
    /// The number of the last event that was sent.
    next: u64,
    wants_events: bool,
    logs: BTreeMap<JobId, Log>,
    vitals: Option<VitalsFeed>,
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
            let quiet_until = Instant::now() + KEEP_ALIVE;
            while text.is_empty() {
                let until = self.vitals.as_ref().map_or(quiet_until, |vitals| vitals.due.min(quiet_until));
                tokio::select! {
                    () = state::end(&mut ending) => {
                        room.send("event: bye\ndata: {\"why\":\"stopping\"}\n\n".into());
                        return;
                    }
                    () = sender.closed() => return,
                    _ = last.changed() => {}
                    jobs = self.bell.rung() => {
                        for job in jobs {
                            self.logs.entry(job).and_modify(|log| log.due = Some(Instant::now()));
                        }
                        // Lines that are written one by one are sent together.
                        tokio::time::sleep(COLLECT).await;
                    }
                    () = tokio::time::sleep_until(until.into()) => {
                        if Instant::now() >= quiet_until {
                            text += ": keep-alive\n\n";
                        }
                    }
                }
                self.collect(&mut text).await;
            }
            if !self.is_logged_in() {
                room.send("event: bye\ndata: {\"why\":\"logged_out\"}\n\n".into());
                return;
            }
            room.send(std::mem::take(&mut text).into());
        }
    }

    /// Whether the token with which the stream was opened still allows it.
    fn is_logged_in(&self) -> bool {
        let may_view = |origin| self.state.role_of(origin).is_some_and(|role| role.includes(TokenRole::View));
        self.origin.as_ref().is_none_or(may_view)
    }

    /// Adds what there is to send.
    async fn collect(&mut self, text: &mut String) {
        if self.wants_events {
            self.add_events(text);
        }
        self.add_vitals(text).await;
        let due: Vec<JobId> =
            self.logs.iter().filter(|(_, log)| log.due.is_some()).map(|(id, _)| *id).collect();
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

    async fn add_vitals(&mut self, text: &mut String) {
        let Some(feed) = self.vitals.as_mut().filter(|feed| feed.due <= Instant::now()) else { return };
        // Streams that ask as often share what is read.
        let age = feed.every / 2;
        let now = self.state.vitals.recent(&self.state.pools, &feed.quell, feed.rules, age).await;
        let news = vitals::changes(feed.sent.as_deref().unwrap_or(&Snapshot::new()), &now);
        if !news.is_empty() || feed.sent.is_none() {
            let _ = write!(text, "event: vitals\ndata: {}\n\n", json(&news));
        }
        (feed.sent, feed.due) = (Some(now), Instant::now() + feed.every);
    }

    async fn add_output(&mut self, text: &mut String, id: JobId) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        let Some(since) = log.due else { return };
        let (job, cursor, state) = (log.job.clone(), log.cursor, self.state.clone());
        let read = match self.state.readings.known(id, cursor, since) {
            Some(read) => Ok(Ok(read)),
            None => {
                let read = move || state.readings.read(&job, cursor, since);
                pools::run(&self.state.pools.outputs, read).await
            }
        };
        match read {
            Ok(Ok(read)) => {
                *text += &read.text;
                (log.cursor, log.due) = (read.cursor, read.is_more.then(Instant::now));
            }
            // The job was removed.
            Ok(Err(_)) => drop(self.logs.remove(&id)),
            // Too many calls are under way: the next round reads it.
            Err(_) => {}
        }
    }
}
