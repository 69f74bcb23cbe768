//! The rows about the server, the host, and what happens.

use quell_guard::Verb;

use super::{ADMIN, OPERATE, READ, param};
use crate::query::ParamKind;
use crate::route::{BodyKind, Pool, Route, Verbs, Who};
use crate::{TokenRole, api, assets, stream};

/// The rows.
pub static ROUTES: &[Route] = &[
    Route {
        path: "/healthz",
        who: Who::Anyone,
        kind: "health",
        answers: &[(200, "")],
        about: "Whether the server answers",
        ..READ
    },
    Route {
        path: "/",
        who: Who::Anyone,
        kind: "page",
        answers: &[(200, "")],
        about: "The dashboard; it holds no secret",
        act: |call| Box::pin(assets::page(call)),
        ..READ
    },
    Route {
        path: "/assets/{hash}/{*file}",
        who: Who::Anyone,
        kind: "page",
        answers: &[(200, "")],
        errors: &[404],
        about: "A file of the dashboard",
        act: |call| Box::pin(assets::file(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/login",
        who: Who::Anyone,
        body: BodyKind::Json("LoginBody"),
        kind: "login",
        answers: &[(200, "LoginAnswer")],
        errors: &[401, 429],
        about: "Exchange the code of a login address for a session token",
        act: |call| Box::pin(api::server::login(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/login/code",
        who: ADMIN,
        body: BodyKind::Json("LoginCodeBody"),
        kind: "login",
        answers: &[(200, "LoginCodeAnswer")],
        errors: &[409],
        about: "Make an address that logs a browser in, once and within a minute",
        act: |call| Box::pin(api::server::login_code(call)),
        ..READ
    },
    Route {
        path: "/v1/server",
        kind: "serve",
        answers: &[(200, "ServerAnswer")],
        about: "What the server is, and the rights of the caller",
        act: |call| Box::pin(api::server::server(call)),
        ..READ
    },
    Route {
        path: "/metrics",
        verb: Some(Verb::Stats),
        who: Who::Role(TokenRole::Metrics),
        kind: "metrics",
        answers: &[(200, "")],
        about: "Metrics in Prometheus' text format",
        act: |call| Box::pin(api::server::metrics(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/gc",
        verb: Some(Verb::Gc),
        who: OPERATE,
        body: BodyKind::Json("DryRunBody"),
        pool: Pool::Changes,
        kind: "gc",
        answers: &[(200, "GcReport")],
        about: "Remove old jobs by the rules of the settings",
        act: |call| Box::pin(api::control::gc(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/sweep",
        verb: Some(Verb::Sweep),
        who: OPERATE,
        body: BodyKind::Json("DryRunBody"),
        pool: Pool::Changes,
        kind: "sweep",
        answers: &[(200, "SweepReport")],
        about: "Finish the stop of lost jobs",
        act: |call| Box::pin(api::control::sweep(call)),
        ..READ
    },
    Route {
        path: "/v1/events",
        verb: Some(Verb::Events),
        query: &[
            param("after", ParamKind::EventId, "Only what came after this; waits for it as long as `for`"),
            param("since", ParamKind::Time, "Only what happened then or later"),
            param("job", ParamKind::Jobs, "Only of these jobs"),
            param("tag", ParamKind::Tags, "Only of jobs with all of these labels; not with `after`"),
            param("kind", ParamKind::Words, "Only of these kinds"),
            param("limit", ParamKind::Count(10_000), "The last so many; 1000 if not given"),
            param("for", ParamKind::Wait(50), "How long to wait for the first one"),
        ],
        kind: "events",
        answers: &[(200, "EventsAnswer")],
        errors: &[404, 409],
        about: "The history of jobs, or what has happened after an event",
        act: |call| Box::pin(api::waits::events(call)),
        ..READ
    },
    Route {
        path: "/v1/stats",
        verb: Some(Verb::Stats),
        query: &[
            param("since", ParamKind::Time, "Jobs that ended then or later"),
            param("tag", ParamKind::Tags, "With all of these labels"),
            param("by", ParamKind::Word(&["auto", "hour", "day", "week"]), "The step of the sums over time"),
            param("by_tag", ParamKind::Text, "Only the sums of this label's values"),
        ],
        kind: "stats",
        answers: &[(200, "Stats")],
        about: "Sums over the jobs that have ended",
        act: |call| Box::pin(api::host::stats(call)),
        ..READ
    },
    Route {
        path: "/v1/audit",
        who: ADMIN,
        query: &[param("limit", ParamKind::Count(10_000), "The last so many lines; 200 if not given")],
        kind: "audit",
        answers: &[(200, "AuditAnswer")],
        about: "The decisions of the guard, and what was done",
        act: |call| Box::pin(api::host::audit(call)),
        ..READ
    },
    Route {
        path: "/v1/doctor",
        verb: Some(Verb::Doctor),
        kind: "doctor",
        answers: &[(200, "Doctor")],
        about: "What this host can do",
        act: |call| Box::pin(api::host::doctor(call)),
        ..READ
    },
    Route {
        path: "/v1/config",
        verb: Some(Verb::Config),
        kind: "config",
        answers: &[(200, "ConfigAnswer")],
        about: "The settings, and where each of them comes from",
        act: |call| Box::pin(api::host::config(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/guard/check",
        verb: Some(Verb::Guard),
        body: BodyKind::Json("CheckBody"),
        kind: "guard",
        answers: &[(200, "CheckAnswer")],
        about: "What the policy would decide about a verb",
        act: |call| Box::pin(api::host::check(call)),
        ..READ
    },
    Route {
        path: "/v1/openapi.json",
        kind: "openapi",
        answers: &[(200, "application/json")],
        about: "This document",
        act: |call| Box::pin(api::server::openapi(call)),
        ..READ
    },
    Route {
        path: "/v1/stream",
        verb: Some(Verb::Events),
        query: &[
            param("events", ParamKind::Flag, "Whether rows and events are sent; true if not given"),
            param("logs", ParamKind::Logs, "Jobs whose output is sent, each from its cursor on"),
            param(
                "vitals",
                ParamKind::Wait(60),
                "How often what changes without an event is sent, at most once a second: CPU, memory, processes, the last line, what needs attention",
            ),
            param("after", ParamKind::EventId, "Go on after this event, as the header Last-Event-ID does"),
        ],
        kind: "stream",
        answers: &[(200, "text/event-stream")],
        errors: &[404, 409, 429],
        about: "Rows, events and output as they come (server-sent events)",
        act: |call| Box::pin(stream::stream(call)),
        ..READ
    },
];
