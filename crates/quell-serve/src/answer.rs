//! Answers: quell's envelope, the status that belongs to an error's code, and the headers of every answer.

use std::sync::OnceLock;

use axum::body::Body;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Response, StatusCode};
use quell::{Error, ErrorBody, StartError};
use serde::Serialize;
use serde_json::{Value, json};

/// Why a request is not carried out.
#[derive(Debug)]
pub struct HttpFailure {
    status: u16,
    body: Box<ErrorBody>,
    allow: Option<&'static str>,
}

impl HttpFailure {
    pub fn new(status: u16, code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (code, message, hint) = (code.into(), message.into(), hint.into());
        let body = ErrorBody { code, message, hint, retryable: false, details: json!({}) };
        Self { status, body: Box::new(body), allow: None }
    }

    /// A value of the request that is not valid.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(400, "bad_value", message, "docs/schema/openapi.json has what each request takes")
    }

    /// A mistake of quell's own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "internal", message, "QUELL_LOG=FILE shows what quell does; please report this")
    }

    pub fn retryable(mut self) -> Self {
        self.body.retryable = true;
        self
    }

    /// Adds a fact.
    pub fn with(mut self, name: &str, fact: impl Serialize) -> Self {
        if !self.body.details.is_object() {
            self.body.details = json!({});
        }
        self.body.details[name] = serde_json::to_value(fact).unwrap_or(Value::Null);
        self
    }

    /// Names the methods that the path has.
    pub fn allowing(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    pub fn body(&self) -> &ErrorBody {
        &self.body
    }

    pub fn into_body(self) -> ErrorBody {
        *self.body
    }

    pub fn respond(&self, kind: &str) -> Response<Body> {
        let mut response = json_response(self.status, quell::binary::failure(kind, &self.body));
        if self.status == 401 {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = self.allow {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

/// Words what to do about an error, as the command line does.
static HINT: OnceLock<fn(&Error) -> String> = OnceLock::new();

/// Sets what words the hints, once.
pub fn hint_with(hint: fn(&Error) -> String) {
    let _ = HINT.set(hint);
}

impl From<Error> for HttpFailure {
    fn from(error: Error) -> Self {
        let hint = HINT.get().map(|hint| hint(&error)).unwrap_or_default();
        let mut failure = Self::new(status_of(&error), error.code(), error.to_string(), hint);
        failure.body.retryable = error.is_retryable();
        failure.body.details = error.details();
        failure
    }
}

/// The status for an error of the library.
fn status_of(error: &Error) -> u16 {
    match error {
        Error::Refused(_) => 403,
        Error::NoSuchJob(_) => 404,
        Error::BadValue(_) | Error::InvalidJob(_) => 400,
        Error::Ambiguous { .. }
        | Error::State(_)
        | Error::NoReadyCheck(_)
        | Error::KeptElsewhere { .. }
        | Error::NotProvenDead(_)
        | Error::Start(StartError::NameTaken { .. }) => 409,
        Error::Start(StartError::Record { .. } | StartError::System { .. } | StartError::Proc(_)) => 500,
        Error::Start(_) => 422,
        Error::TimedOut(_) | Error::NotRead { .. } => 504,
        Error::Keeper(_) => 503,
        _ => 500,
    }
}

/// A success, in quell's envelope.
pub fn success(status: u16, kind: &str, data: &impl Serialize) -> Response<Body> {
    json_response(status, quell::binary::success(kind, data))
}

fn json_response(status: u16, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a page may load and do: only its own files, and no text is ever made into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; worker-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
    form-action 'none'; require-trusted-types-for 'script'";

/// The headers of every answer. Answers with a cache rule of their own keep it.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
