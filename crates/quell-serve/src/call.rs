//! One request, and the order in which it is checked: token, role, guard, body. Host and origin were checked before (`gate`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, Query as UrlQuery, RawPathParams};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, Response};
use quell::binary::{AccessRequest, Config, Loaded};
use quell::{Error, Job, Quell};
use quell_guard::{Verb, decide_verb};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::TokenRole;
use crate::answer::{HttpFailure, success};
use crate::pools;
use crate::query::Query;
use crate::route::{BodyKind, Pool, Route, Who};
use crate::sessions::LoginOrigin;
use crate::state::{Caller, Peer, State};

/// How long a body may take to arrive.
const BODY: Duration = Duration::from_secs(30);
/// The longest reason of a stop.
pub const LONGEST_REASON: usize = 1000;

/// The program that keeps jobs: this one.
pub const PROGRAM: &str = "/proc/self/exe";

/// The result of a request.
pub type Reply = Result<Response<Body>, HttpFailure>;

/// One request that was let in.
pub struct HttpCall {
    pub state: Arc<State>,
    pub route: &'static Route,
    pub caller: Caller,
    pub query: Query,
    pub path: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What a call works with once the guard has allowed it.
pub struct Access {
    pub quell: Quell,
    pub config: Config,
}

/// Checks a request, and carries it out.
pub async fn enter(state: Arc<State>, route: &'static Route, request: Request<Body>) -> Response<Body> {
    let (shared, began) = (state.clone(), Instant::now());
    let response = check_and_carry_out(state, route, request)
        .await
        .unwrap_or_else(|failure| failure.respond(route.kind));
    shared.counts.requests.note(route, response.status().as_u16(), began.elapsed());
    response
}

async fn check_and_carry_out(state: Arc<State>, route: &'static Route, request: Request<Body>) -> Reply {
    let (mut parts, body) = request.into_parts();
    let caller = authenticate(&state, route, &parts)?;
    let path = RawPathParams::from_request_parts(&mut parts, &()).await;
    let path = path.map_err(|_| HttpFailure::bad_value("the path is not UTF-8"))?;
    let path: Vec<_> = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if path.iter().any(|(_, value)| value.contains('\0')) {
        return Err(HttpFailure::bad_value("the path has a NUL byte"));
    }
    let mut call = HttpCall {
        query: Query::default(),
        state,
        route,
        caller,
        path,
        headers: std::mem::take(&mut parts.headers),
        body: Bytes::new(),
    };
    if let Some(verb) = route.verb.filter(|_| route.body != BodyKind::None) {
        call.check_guard(verb).await?;
    }
    let pairs = UrlQuery::<Vec<(String, String)>>::try_from_uri(&parts.uri);
    let pairs = pairs.map_err(|_| HttpFailure::bad_value("the query can't be read"))?.0;
    call.query = Query::new(route.query, pairs)?;
    call.body = read_body(route, &call.headers, body).await?;
    (route.act)(call).await
}

/// The caller, if its role may call this.
fn authenticate(state: &State, route: &Route, parts: &Parts) -> Result<Caller, HttpFailure> {
    let peer = parts.extensions.get::<Peer>().cloned();
    let peer = peer.ok_or_else(|| HttpFailure::internal("the connection has no peer"))?;
    let caller = match &peer {
        Peer::Socket { .. } => Caller { role: TokenRole::Admin, token: None, origin: None, peer },
        Peer::Tcp(_) => {
            let Who::Role(_) = route.who else {
                return Ok(Caller { role: TokenRole::Metrics, token: None, origin: None, peer });
            };
            let (name, role, origin) =
                find_token(state, &parts.headers).ok_or_else(|| deny(state, &parts.headers))?;
            Caller { role, token: Some(name), origin: Some(origin), peer }
        }
    };
    match route.who {
        Who::Role(needed) if !caller.role.includes(needed) => {
            let why = format!(
                "this takes the role {}, and the token has {}",
                needed.as_str(),
                caller.role.as_str()
            );
            let hint = "make a token with more rights: `quell serve --add-token NAME --role ROLE`";
            Err(HttpFailure::new(403, "role_too_low", why, hint))
        }
        Who::Role(_) | Who::Anyone => Ok(caller),
    }
}

fn find_token(state: &State, headers: &HeaderMap) -> Option<(String, TokenRole, LoginOrigin)> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (text, None) = (given.next()?.to_str().ok()?, given.next()) else { return None };
    let (scheme, token) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    state.find_token(token)
}

/// The refusal of a request without a token that is known. One without any is no attempt to guess it.
fn deny(state: &State, headers: &HeaderMap) -> HttpFailure {
    state.counts.denied.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if headers.contains_key(AUTHORIZATION) && state.sessions.is_too_often_wrong() {
        let hint = "wait a second; requests with a right token go on";
        return HttpFailure::new(429, "too_many_attempts", "too many wrong tokens", hint).retryable();
    }
    let hint = "send `Authorization: Bearer TOKEN`; serve/token in quell's home has one, and `quell serve --url` logs a browser in";
    HttpFailure::new(401, "not_logged_in", "the token is missing or not known", hint)
}

async fn read_body(route: &Route, headers: &HeaderMap, body: Body) -> Result<Bytes, HttpFailure> {
    let most = match route.body {
        BodyKind::None => 0,
        BodyKind::Json(_) => 1 << 20,
        BodyKind::Bytes => 16 << 20,
    };
    if let BodyKind::Json(_) = route.body {
        let found = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = found.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let why = "the body has to be JSON";
            return Err(HttpFailure::new(415, "not_json", why, "send Content-Type: application/json"));
        }
    }
    let too_large = || {
        let why = format!("the body is larger than {most} bytes");
        HttpFailure::new(413, "too_large", why, "send less at once")
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // The client has gone, or has sent too much.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(HttpFailure::new(408, "too_slow", "the body did not arrive in time", "send it faster")),
    }
}

/// Reads the settings, for a request that works without them too.
pub fn settings() -> quell::Result<Loaded> {
    Config::load_here()
}

impl HttpCall {
    /// Refuses what the policy refuses, before the body is read.
    async fn check_guard(&self, verb: Verb) -> Result<(), HttpFailure> {
        let (home, through) = (self.state.home.clone(), self.caller.through());
        let check = move || {
            let settings = settings();
            let policy = settings.as_ref().map(|loaded| &loaded.config.guard);
            if policy.is_ok_and(|policy| decide_verb(policy, verb).allowed) {
                return Ok(());
            }
            let is_stop = verb == Verb::Stop;
            let target = String::new();
            let request = AccessRequest { verb, target, reason: None, job: None, through: Some(through) };
            match settings {
                // It is allowed without a policy, and is asked again with its target.
                Err(_) if is_stop => Ok(()),
                settings => quell::binary::permit(settings, Some(&home), request).map(drop),
            }
        };
        Ok(pools::run(self.pool(), check).await??)
    }

    fn pool(&self) -> &Arc<Semaphore> {
        match self.route.pool {
            Pool::Reads => &self.state.pools.reads,
            Pool::Asks => &self.state.pools.asks,
            Pool::Changes => &self.state.pools.changes,
        }
    }

    /// Asks the guard for the verb of the route. Blocks.
    pub fn access(&self, target: &str, reason: Option<String>) -> Result<Access, Error> {
        self.access_with(settings(), target, reason)
    }

    /// The same with settings for another directory.
    pub fn access_with(
        &self,
        settings: quell::Result<Loaded>,
        target: &str,
        reason: Option<String>,
    ) -> Result<Access, Error> {
        let (home, through) = (&self.state.home, self.caller.through());
        let verb = self.route.verb.unwrap_or(Verb::Serve);
        let request =
            AccessRequest { verb, target: target.into(), reason, job: None, through: Some(through.clone()) };
        let (permit, settings) = quell::binary::permit(settings, Some(home), request)?;
        let quell = quell::binary::open_for_server(home.clone(), PROGRAM, Some(permit), through)?;
        // Verbs that work without a policy need no settings either.
        Ok(Access { quell, config: settings.map(|loaded| loaded.config).unwrap_or_default() })
    }

    /// Asks the guard for a verb that the answer shows something of beside that of the route. Blocks.
    pub fn check_also(&self, verb: Verb) -> Result<(), Error> {
        let through = Some(self.caller.through());
        let request = AccessRequest { verb, target: String::new(), reason: None, job: None, through };
        quell::binary::permit(settings(), Some(&self.state.home), request).map(drop)
    }

    /// Carries the call out on a thread, with what the guard allows, and answers with the data.
    pub async fn with_access<T: Serialize + Send + 'static>(
        self,
        act: impl FnOnce(&Self, &Access) -> Result<T, HttpFailure> + Send + 'static,
    ) -> Reply {
        let (pool, kind) = (self.pool().clone(), self.route.kind);
        let target = self.path.first().map(|(_, value)| value.clone()).unwrap_or_default();
        let data = pools::run(&pool, move || act(&self, &self.access(&target, None)?)).await??;
        Ok(success(200, kind, &data))
    }

    /// The value of a part of the path.
    pub fn part(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The job that the path names. Blocks.
    pub fn job(&self, access: &Access) -> Result<Job, Error> {
        access.quell.job(self.part("job"))
    }

    /// The body. An empty one is an empty object.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpFailure> {
        let bytes: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        // serde would read a list as the fields in their order.
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Err(HttpFailure::bad_value("the body is not a JSON object"));
        }
        serde_json::from_slice(bytes).map_err(|error| HttpFailure::bad_value(format!("the body: {error}")))
    }

    /// A header, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
