//! The server itself: health, login, what it is.

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use quell::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::answer::{HttpFailure, success};
use crate::call::{HttpCall, Reply};
use crate::metrics::Format;
use crate::{TokenRole, pools};

fn plain(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

pub async fn health(_: HttpCall) -> Reply {
    Ok(plain("ok\n".into()))
}

pub async fn metrics(call: HttpCall) -> Reply {
    let state = call.state.clone();
    let format = Format::accepted(call.header("accept").unwrap_or_default());
    let text = pools::run(&state.pools.reads, move || {
        let access = call.access("", None)?;
        Ok::<_, HttpFailure>(call.state.metrics.text(&access.quell, &call.state, format)?)
    });
    let mut response = plain(text.await??);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    Ok(response)
}

/// The document of this interface, as it was made when quell was built.
const OPENAPI: &str = include_str!("../../../../docs/schema/openapi.json");

pub async fn openapi(_: HttpCall) -> Reply {
    let mut response = plain(OPENAPI.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What the server is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerAnswer {
    /// Its version.
    pub version: &'static str,
    /// This run of it: the ids of events begin with it.
    pub epoch: JobId,
    /// The name of this host.
    pub host: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// The directory with the records.
    pub home: String,
    /// When it was started.
    pub started: Timestamp,
    /// Its clock.
    pub now: Timestamp,
    /// The rights of the caller.
    pub role: TokenRole,
    /// The name of the caller's token; absent at the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How many streams are open.
    pub streams: usize,
}

pub async fn server(call: HttpCall) -> Reply {
    let state = &call.state;
    let answer = ServerAnswer {
        version: env!("CARGO_PKG_VERSION"),
        epoch: state.epoch,
        host: quell::binary::host_name(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        home: state.home.dir().to_string_lossy().into_owned(),
        started: state.started,
        now: quell::binary::now(),
        role: call.caller.role,
        token: call.caller.token.clone(),
        streams: state.streams(),
    };
    Ok(success(200, call.route.kind, &answer))
}

/// A request for a login address: it has no fields.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoginCodeBody {}

/// A code from a login address.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// The code.
    pub code: String,
}

/// A session.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoginAnswer {
    /// The token of the session, for the `Authorization` header.
    pub token: String,
    /// Its rights.
    pub role: TokenRole,
    /// How long it works, in seconds.
    pub expires_in: u64,
}

pub async fn login(call: HttpCall) -> Reply {
    let body: LoginBody = call.json()?;
    let sessions = &call.state.sessions;
    let session = sessions.exchange(&body.code)?;
    match session.and_then(|(token, origin)| Some((token, call.state.role_of(&origin)?, origin.left()))) {
        Some((token, role, left)) => {
            let answer = LoginAnswer { token, role, expires_in: left.as_secs() };
            Ok(success(200, call.route.kind, &answer))
        }
        None if sessions.is_too_often_wrong() => {
            let hint = "wait a second";
            Err(HttpFailure::new(429, "too_many_attempts", "too many wrong codes", hint).retryable())
        }
        None => {
            let why =
                "the code is not known: it works once, for a minute, while the token lasts that made it";
            Err(HttpFailure::new(401, "not_logged_in", why, "`quell serve --url` prints a new address"))
        }
    }
}

/// An address that logs a browser in.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoginCodeAnswer {
    /// The address. It works once, and for a minute.
    pub url: String,
}

pub async fn login_code(call: HttpCall) -> Reply {
    let LoginCodeBody {} = call.json()?;
    let Some(url) = &call.state.url else {
        let why = "the server listens on its socket only";
        return Err(HttpFailure::new(409, "wrong_state", why, "start it without --no-tcp"));
    };
    let url = format!("{url}/#code={}", call.state.login_code(call.caller.origin.clone())?);
    Ok(success(200, call.route.kind, &LoginCodeAnswer { url }))
}
