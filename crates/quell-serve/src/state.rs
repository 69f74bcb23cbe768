//! What all requests share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use quell::binary::{AskedThrough, Home};
use quell::{Error, JobId, Result, Timestamp};
use tokio::sync::watch;

use crate::TokenRole;
use crate::answer::HttpFailure;
use crate::gate::Hosts;
use crate::hub::Hub;
use crate::metrics::{Metrics, Requests};
use crate::pools::Pools;
use crate::sessions::{LoginOrigin, Sessions};
use crate::stream_output::Readings;
use crate::tokens::Tokens;
use crate::vitals::SharedVitals;

/// How many streams there are at most. Fewer than connections, so that other requests always have a place.
const STREAMS: usize = 1024;
/// How many streams one token has at most.
const STREAMS_OF_TOKEN: usize = 64;

/// What all requests share.
#[derive(Debug)]
pub struct State {
    pub home: Home,
    /// Names this server among its restarts: the numbers of events begin again with each.
    pub epoch: JobId,
    pub started: Timestamp,
    pub hosts: Hosts,
    pub hub: Arc<Hub>,
    pub pools: Pools,
    pub readings: Readings,
    pub tokens: Tokens,
    pub sessions: Sessions,
    pub metrics: Metrics,
    pub vitals: SharedVitals,
    pub url: Option<String>,
    /// True once the server is about to exit.
    pub ending: watch::Sender<bool>,
    streams: Mutex<HashMap<Option<String>, usize>>,
    /// Held by a start with an idempotency key.
    pub keyed_starts: tokio::sync::Mutex<()>,
    pub counts: ServeCounts,
}

/// What the server has done, for metrics.
#[derive(Debug, Default)]
pub struct ServeCounts {
    /// The requests that were answered.
    pub requests: Requests,
    /// Wrong or missing tokens.
    pub denied: AtomicU64,
    /// Streams whose client has missed events.
    pub resets: AtomicU64,
}

impl State {
    pub fn new(
        home: Home,
        epoch: JobId,
        hosts: Hosts,
        hub: Arc<Hub>,
        tokens: Tokens,
        metrics: Metrics,
        url: Option<String>,
    ) -> Self {
        Self {
            home,
            epoch,
            started: quell::binary::now(),
            hosts,
            vitals: SharedVitals::new(hub.quell()),
            hub,
            pools: Pools::new(),
            readings: Readings::default(),
            tokens,
            sessions: Sessions::default(),
            metrics,
            url,
            ending: watch::Sender::new(false),
            streams: Mutex::default(),
            keyed_starts: tokio::sync::Mutex::default(),
            counts: ServeCounts::default(),
        }
    }

    /// The caller's name, rights and origin by what it has sent as its token: one on disk, or that of a session.
    pub fn find_token(&self, text: &str) -> Option<(String, TokenRole, LoginOrigin)> {
        if let Some(token) = self.tokens.find(text) {
            return Some((token.name, token.role, LoginOrigin::token(text.to_owned())));
        }
        let (name, origin) = self.sessions.find(text)?;
        Some((name, self.role_of(&origin)?, origin))
    }

    /// The rights that a login has now; none if its token was removed or its session has ended.
    pub fn role_of(&self, origin: &LoginOrigin) -> Option<TokenRole> {
        let token = self.tokens.find(&origin.token)?;
        (!origin.is_over()).then_some(token.role)
    }

    /// A code that logs a browser in, with the rights of `origin`; at the socket, with those of `serve/token`.
    pub fn login_code(&self, origin: Option<LoginOrigin>) -> Result<String> {
        let default = || self.tokens.default_text().map(LoginOrigin::token);
        let missing = || Error::BadValue("serve/token has no token: start the server again".into());
        self.sessions.code(origin.or_else(default).ok_or_else(missing)?)
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// A place for a stream of `token`; callers over the socket have none.
    pub fn take_stream(
        self: &Arc<Self>,
        token: Option<String>,
    ) -> std::result::Result<StreamPlace, HttpFailure> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = streams.values().sum();
        let own = streams.get(&token).copied().unwrap_or_default();
        if all >= STREAMS || (token.is_some() && own >= STREAMS_OF_TOKEN) {
            let why = format!("{all} streams are open, {own} of them with this token");
            let hint = "close other tabs, or share one stream; each client can have its own token";
            return Err(HttpFailure::new(429, "too_many_streams", why, hint).retryable());
        }
        streams.insert(token.clone(), own + 1);
        drop(streams);
        Ok(StreamPlace { state: self.clone(), token })
    }
}

/// Waits until the server is about to exit.
pub async fn end(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}

/// The place of a stream, until it is dropped.
#[derive(Debug)]
pub struct StreamPlace {
    state: Arc<State>,
    token: Option<String>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = self.state.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = streams.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.token);
            }
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process of this user, or of root, at the socket.
    Socket { pid: Option<i32>, uid: u32 },
    /// Any process of this host, or of another one through a tunnel.
    Tcp(std::net::SocketAddr),
}

/// What is known of a caller that was let in.
#[derive(Clone, Debug)]
pub struct Caller {
    pub role: TokenRole,
    /// The name of its token; none at the socket.
    pub token: Option<String>,
    /// What its login hangs on; none at the socket.
    pub origin: Option<LoginOrigin>,
    pub peer: Peer,
}

impl Caller {
    /// The caller as receipts and the audit log name it.
    pub fn through(&self) -> AskedThrough {
        let (surface, peer) = match &self.peer {
            Peer::Socket { pid: Some(pid), uid } => ("socket", format!("pid {pid} of user {uid}")),
            Peer::Socket { pid: None, uid } => ("socket", format!("user {uid}")),
            Peer::Tcp(address) => ("http", address.to_string()),
        };
        AskedThrough { token: self.token.clone(), peer: Some(peer), ..AskedThrough::new(surface) }
    }
}
