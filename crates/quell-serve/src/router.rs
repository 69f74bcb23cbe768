//! The router, made from the table, and what every request goes through.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::middleware::{self, Next};
use axum::routing::{MethodFilter, MethodRouter};

use crate::answer::{HttpFailure, protect};
use crate::call::enter;
use crate::gate;
use crate::route::Verbs;
use crate::routes;
use crate::state::{Peer, State};

/// The methods of a path, for the `Allow` header.
fn allowed(path: &str) -> &'static str {
    let has = |method| routes::all().any(|route| route.path == path && route.method == method);
    match (has(Verbs::Get), has(Verbs::Post), has(Verbs::Delete)) {
        (true, true, _) => "GET, POST",
        (true, _, true) => "GET, DELETE",
        (true, _, _) => "GET",
        (_, true, _) => "POST",
        _ => "DELETE",
    }
}

/// The router of all rows.
pub fn router(state: &Arc<State>) -> Router {
    let mut router = Router::new();
    for route in routes::all() {
        let state = state.clone();
        let filter = match route.method {
            Verbs::Get => MethodFilter::GET,
            Verbs::Post => MethodFilter::POST,
            Verbs::Delete => MethodFilter::DELETE,
        };
        let act = move |request: Request<Body>| enter(state.clone(), route, request);
        let no_method = move || async move {
            let why = format!("{} takes another method", route.path);
            let failure = HttpFailure::new(405, "method_not_allowed", why, "see the Allow header");
            failure.allowing(allowed(route.path)).respond(route.kind)
        };
        // The rows of one path are merged, so only the first of them says what the others are.
        let is_first = routes::all()
            .find(|other| other.path == route.path)
            .is_some_and(|first| std::ptr::eq(first, route));
        let mut methods = MethodRouter::new().on(filter, act);
        if is_first {
            methods = methods.fallback(no_method);
        }
        router = router.route(route.path, methods);
    }
    let unknown = || async {
        let hint = "GET /v1/openapi.json has all paths";
        HttpFailure::new(404, "not_found", "there is no such path", hint).respond("serve")
    };
    let shared = state.clone();
    let checked = move |request: Request<Body>, next: Next| check(shared.clone(), request, next);
    router.fallback(unknown).layer(middleware::from_fn(checked))
}

/// What comes before all rows: is the request for this server at all? And what comes after them: the headers of every answer.
async fn check(state: Arc<State>, request: Request<Body>, next: Next) -> Response<Body> {
    let is_tcp = matches!(request.extensions().get::<Peer>(), Some(Peer::Tcp(_)));
    let checked = if is_tcp { gate::check(&state.hosts, &request) } else { Ok(()) };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.respond("serve"),
    };
    protect(response.headers_mut());
    response
}
