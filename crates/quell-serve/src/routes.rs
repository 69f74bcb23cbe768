//! The one table of what can be called. The router, the order of checks and the OpenAPI document are made from it.

use quell_guard::Verb;

use crate::query::{Kind, Param};
use crate::route::{BodyKind, Pool, Route, Verbs, Who};
use crate::{Role, api, assets, stream};

const VIEW: Who = Who::Role(Role::View);
const STOP: Who = Who::Role(Role::Stop);
const OPERATE: Who = Who::Role(Role::Operate);
const ADMIN: Who = Who::Role(Role::Admin);

const fn param(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, about }
}

/// A route that reads, for the others to vary.
const READ: Route = Route {
    method: Verbs::Get,
    path: "",
    verb: None,
    who: VIEW,
    query: &[],
    body: BodyKind::None,
    pool: Pool::Reads,
    kind: "",
    answers: &[],
    errors: &[],
    about: "",
    act: |call| Box::pin(api::server::health(call)),
};

/// All of them.
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
        body: BodyKind::Json("Nothing"),
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
        who: Who::Role(Role::Metrics),
        kind: "metrics",
        answers: &[(200, "")],
        about: "Metrics in Prometheus' text format",
        act: |call| Box::pin(api::server::metrics(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs",
        verb: Some(Verb::List),
        query: &[
            param("state", Kind::States, "In one of these states"),
            param("tag", Kind::Tags, "With all of these labels"),
            param("session", Kind::Text, "Of this session"),
            param("name", Kind::Text, "Of this name"),
            param("since", Kind::Time, "Finished ones only if they ended then or later"),
            param("limit", Kind::Count(500), "How many finished ones; 50 if not given"),
            param("before", Kind::Job, "Only finished ones that ended before this one, by its id: the next page"),
        ],
        kind: "list",
        answers: &[(200, "JobsAnswer")],
        about: "List the live jobs and the ones that ended last",
        act: |call| Box::pin(api::jobs::list(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}",
        verb: Some(Verb::Status),
        kind: "status",
        answers: &[(200, "StatusAnswer")],
        about: "Everything that is known of a job",
        act: |call| Box::pin(api::jobs::status(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}/tree",
        verb: Some(Verb::Tree),
        kind: "tree",
        answers: &[(200, "TreeAnswer")],
        about: "The processes of a job",
        act: |call| Box::pin(api::jobs::tree(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}/receipt",
        verb: Some(Verb::Status),
        kind: "receipt",
        answers: &[(200, "Receipt")],
        about: "The receipt of a job that has ended",
        act: |call| Box::pin(api::jobs::receipt(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}/events",
        verb: Some(Verb::Events),
        kind: "events",
        answers: &[(200, "[JobEvent]")],
        about: "The history of a job",
        act: |call| Box::pin(api::jobs::events(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}/logs",
        verb: Some(Verb::Logs),
        query: &[
            param("since", Kind::Cursor, "Only what comes after this"),
            param("until", Kind::Cursor, "Only what comes before this"),
            param("head", Kind::Count(api::logs::MOST_LINES), "The first lines"),
            param("tail", Kind::Count(api::logs::MOST_LINES), "The last lines"),
            param("budget", Kind::Count(api::logs::MOST), "Bytes of text; 256 KiB if not given"),
            param("grep", Kind::Text, "Only lines that match this regular expression"),
            param("stream", Kind::Word(&["stdout", "stderr"]), "Only this stream"),
        ],
        kind: "logs",
        answers: &[(200, "LogsView")],
        about: "A part of the output of a job",
        act: |call| Box::pin(api::logs::logs(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/jobs/{job}/stop",
        verb: Some(Verb::Stop),
        who: STOP,
        query: &[param("wait", Kind::Wait(50), "How long to wait for the end; 0 if not given")],
        body: BodyKind::Json("StopBody"),
        pool: Pool::Asks,
        kind: "stop",
        answers: &[(200, "StopAnswer"), (202, "HeardAnswer")],
        about: "Stop a job: 202 when its keeper has heard it, 200 with the receipt when it has ended",
        act: |call| Box::pin(api::stop::stop(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/jobs",
        verb: Some(Verb::Start),
        who: ADMIN,
        query: &[param("wait_ready", Kind::Wait(50), "How long to wait until it is ready; no wait if not given")],
        body: BodyKind::Json("StartBody"),
        pool: Pool::Changes,
        kind: "start",
        answers: &[(201, "StartAnswer"), (200, "StartAnswer")],
        errors: &[404, 409, 422, 504],
        about: "Start a job. With Idempotency-Key, a request that is repeated gets the same job, and 200",
        act: |call| Box::pin(api::start::start(call)),
        ..READ
    },
    Route {
        path: "/v1/jobs/{job}/output/{stream}",
        verb: Some(Verb::Logs),
        kind: "logs",
        answers: &[(200, ""), (206, "")],
        errors: &[416],
        about: "The bytes of a stream as they were written, stdout or stderr; takes Range",
        act: |call| Box::pin(api::output::output(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/jobs/{job}/signal",
        verb: Some(Verb::Signal),
        who: OPERATE,
        body: BodyKind::Json("SignalBody"),
        pool: Pool::Changes,
        kind: "signal",
        answers: &[(200, "SignalAnswer")],
        about: "Send a signal to a job",
        act: |call| Box::pin(api::control::signal(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/jobs/{job}/send",
        verb: Some(Verb::Send),
        who: OPERATE,
        query: &[param("eof", Kind::Flag, "Close the input afterwards")],
        body: BodyKind::Bytes,
        pool: Pool::Changes,
        kind: "send",
        answers: &[(200, "SendAnswer")],
        about: "Write the body to the standard input of a job",
        act: |call| Box::pin(api::control::send(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/jobs/{job}/restart",
        verb: Some(Verb::Restart),
        who: OPERATE,
        query: &[param("wait_ready", Kind::Wait(50), "How long to wait until it is ready; no wait if not given")],
        body: BodyKind::Json("StopBody"),
        pool: Pool::Changes,
        kind: "restart",
        answers: &[(201, "StartAnswer")],
        errors: &[422],
        about: "Stop a job and start the same command again",
        act: |call| Box::pin(api::start::restart(call)),
        ..READ
    },
    Route {
        method: Verbs::Delete,
        path: "/v1/jobs/{job}",
        verb: Some(Verb::Rm),
        who: OPERATE,
        query: &[param("force", Kind::Flag, "Also if it is not proven dead")],
        pool: Pool::Changes,
        kind: "rm",
        answers: &[(200, "RmAnswer")],
        about: "Remove the record, log and receipt of a job that has ended",
        act: |call| Box::pin(api::control::remove(call)),
        ..READ
    },
    Route {
        method: Verbs::Post,
        path: "/v1/stop",
        verb: Some(Verb::Stop),
        who: STOP,
        body: BodyKind::Json("GroupStopBody"),
        pool: Pool::Asks,
        kind: "stop",
        answers: &[(200, "application/x-ndjson")],
        errors: &[404, 409],
        about: "Stop several jobs: a line for each as it ends; 409 if the number differs from `expect`",
        act: |call| Box::pin(api::group::stop(call)),
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
        path: "/v1/wait",
        verb: Some(Verb::Wait),
        query: &[
            param("job", Kind::Jobs, "The jobs, 1 to 100"),
            param("ready", Kind::Flag, "Also until it is ready"),
            param("log", Kind::Text, "Also until a line matches this regular expression"),
            param("since", Kind::Cursor, "Look for lines only after this"),
            param("stall", Kind::Wait(3600), "Also until it was silent for this long"),
            param("any", Kind::Flag, "Until one of the jobs has met its condition, not all"),
            param("for", Kind::Wait(50), "How long to wait; 0 if not given"),
        ],
        kind: "wait",
        answers: &[(200, "WaitAnswer")],
        errors: &[404, 409, 504],
        about: "Wait for the end of jobs, and what else is named; `met` is `nothing` when the time was up",
        act: |call| Box::pin(api::waits::wait(call)),
        ..READ
    },
    Route {
        path: "/v1/events",
        verb: Some(Verb::Events),
        query: &[
            param("after", Kind::EventId, "Only what came after this; waits for it as long as `for`"),
            param("since", Kind::Time, "Only what happened then or later"),
            param("job", Kind::Jobs, "Only of these jobs"),
            param("tag", Kind::Tags, "Only of jobs with all of these labels; not with `after`"),
            param("kind", Kind::Jobs, "Only of this kind; can be given more than once"),
            param("limit", Kind::Count(10_000), "The last so many; 1000 if not given"),
            param("for", Kind::Wait(50), "How long to wait for the first one"),
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
            param("since", Kind::Time, "Jobs that ended then or later"),
            param("tag", Kind::Tags, "With all of these labels"),
            param("by", Kind::Word(&["auto", "hour", "day", "week"]), "The step of the sums over time"),
            param("by_tag", Kind::Text, "Only the sums of this label's values"),
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
        query: &[param("limit", Kind::Count(10_000), "The last so many lines; 200 if not given")],
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
            param("events", Kind::Flag, "Whether rows and events are sent; true if not given"),
            param("logs", Kind::Logs, "Jobs whose output is sent, each from its cursor on"),
            param("vitals", Kind::Wait(60), "How often CPU and memory are sent"),
            param("after", Kind::EventId, "Go on after this event, as the header Last-Event-ID does"),
        ],
        kind: "stream",
        answers: &[(200, "text/event-stream")],
        errors: &[429],
        about: "Rows, events and output as they come (server-sent events)",
        act: |call| Box::pin(stream::stream(call)),
        ..READ
    },
];
