//! The rows about jobs.

use quell_guard::Verb;

use super::{ADMIN, OPERATE, READ, STOP, param};
use crate::api;
use crate::query::ParamKind;
use crate::route::{BodyKind, Pool, Route, Verbs};

/// The rows.
pub static ROUTES: &[Route] = &[
    Route {
        path: "/v1/jobs",
        verb: Some(Verb::List),
        query: &[
            param("state", ParamKind::States, "In one of these states"),
            param("tag", ParamKind::Tags, "With all of these labels"),
            param("session", ParamKind::Text, "Of this session"),
            param("name", ParamKind::Text, "Of this name"),
            param("since", ParamKind::Time, "Finished ones only if they ended then or later"),
            param("limit", ParamKind::Count(500), "How many finished ones; 50 if not given"),
            param(
                "before",
                ParamKind::Job,
                "Only finished ones that ended before this one, by its id: the next page",
            ),
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
            param("since", ParamKind::Cursor, "Only what comes after this"),
            param("until", ParamKind::Cursor, "Only what comes before this"),
            param("head", ParamKind::Count(api::logs::MOST_LINES), "The first lines"),
            param("tail", ParamKind::Count(api::logs::MOST_LINES), "The last lines"),
            param("budget", ParamKind::Count(api::logs::MOST), "Bytes of text; 256 KiB if not given"),
            param("grep", ParamKind::Pattern, "Only lines that match this regular expression"),
            param("stream", ParamKind::Word(&["stdout", "stderr"]), "Only this stream"),
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
        query: &[param("wait", ParamKind::Wait(50), "How long to wait for the end; 0 if not given")],
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
        query: &[param(
            "wait_ready",
            ParamKind::Wait(50),
            "How long to wait until it is ready; no wait if not given",
        )],
        body: BodyKind::Json("StartBody"),
        pool: Pool::Changes,
        kind: "start",
        answers: &[(201, "StartAnswer"), (200, "StartAnswer")],
        errors: &[404, 409, 422, 504],
        about: "Start a job. With Idempotency-Key, a request that is repeated gets the same job, and 200",
        act: |call| Box::pin(api::start::start(call)),
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
        query: &[param("eof", ParamKind::Flag, "Close the input afterwards")],
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
        query: &[param(
            "wait_ready",
            ParamKind::Wait(50),
            "How long to wait until it is ready; no wait if not given",
        )],
        body: BodyKind::Json("StopBody"),
        pool: Pool::Changes,
        kind: "restart",
        answers: &[(201, "StartAnswer")],
        errors: &[422],
        about: "Stop a job and start the same command again",
        act: |call| Box::pin(api::start::restart(call)),
    },
    Route {
        method: Verbs::Delete,
        path: "/v1/jobs/{job}",
        verb: Some(Verb::Rm),
        who: OPERATE,
        query: &[param("force", ParamKind::Flag, "Also if it is not proven dead")],
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
        path: "/v1/wait",
        verb: Some(Verb::Wait),
        query: &[
            param("job", ParamKind::Jobs, "The jobs, 1 to 100"),
            param("ready", ParamKind::Flag, "Also until it is ready"),
            param("log", ParamKind::Pattern, "Also until a line matches this regular expression"),
            param("since", ParamKind::Cursor, "Look for lines only after this"),
            param("stall", ParamKind::Wait(3600), "Also until it was silent for this long"),
            param("any", ParamKind::Flag, "Until one of the jobs has met its condition, not all"),
            param("for", ParamKind::Wait(50), "How long to wait; 0 if not given"),
        ],
        kind: "wait",
        answers: &[(200, "WaitAnswer")],
        errors: &[404, 409, 504],
        about: "Wait for the end of jobs, and what else is named; `met` is `nothing` when the time was up",
        act: |call| Box::pin(api::waits::wait(call)),
        ..READ
    },
];
