//! The OpenAPI document, made from the table of routes and from the types. `docs/schema/openapi.json` is what this makes.

use quell::binary::responses as answers;
use quell::schema::Failed;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::api::{control, group, host, jobs, server, start, stop, waits};
use crate::hub::SessionStopped;
use crate::query::{Param, ParamKind};
use crate::route::{BodyKind, Route, Verbs, Who};
use crate::routes;
use crate::stream::Hello;
use crate::vitals::Snapshot;

/// Where the types are in the document.
const TYPES: &str = "/components/schemas";

/// The document, as pretty JSON with a final newline.
pub fn document() -> String {
    let settings = |settings: SchemaSettings| {
        settings.with(|settings| settings.definitions_path = TYPES.into()).into_generator()
    };
    let mut made = settings(SchemaSettings::draft2020_12().for_serialize());
    let mut read = settings(SchemaSettings::draft2020_12().for_deserialize());
    let mut paths = Map::new();
    for route in routes::all() {
        let path = route.path.replace("{*", "{");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[method(route)] = operation(route, &mut made, &mut read);
    }
    let failure = made.subschema_for::<Failed>();
    let mut types = made.take_definitions(true);
    for (name, schema) in read.take_definitions(true) {
        // A type that is sent and read is described as it is sent.
        types.entry(name).or_insert(schema);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "quell serve",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            "description": "Jobs over HTTP, on this host only. docs/serve.md describes it.",
        },
        "servers": [{ "url": "http://127.0.0.1:7835" }],
        "paths": paths,
        "components": {
            "schemas": types,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "responses": {
                "Failure": {
                    "description": "The request was not carried out; `error.code` says why",
                    "content": { "application/json": { "schema": failure } },
                },
            },
        },
    });
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn method(route: &Route) -> &'static str {
    match route.method {
        Verbs::Get => "get",
        Verbs::Post => "post",
        Verbs::Delete => "delete",
    }
}

fn operation(route: &Route, made: &mut SchemaGenerator, read: &mut SchemaGenerator) -> Value {
    let parts = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = parts.map(|name| part(name.trim_start_matches('*'))).collect();
    parameters.extend(route.query.iter().map(query));
    if route.path == "/v1/jobs" && route.method == Verbs::Post {
        let schema = json!({ "type": "string", "pattern": "^[!-~]{1,64}$" });
        let about = "The same key with the same body gets the same job";
        parameters.push(
            json!({ "name": "Idempotency-Key", "in": "header", "description": about, "schema": schema }),
        );
    }
    let mut responses = Map::new();
    for (status, name) in route.answers {
        responses.insert(status.to_string(), answer(route, name, made));
    }
    for status in statuses(route) {
        let failure = || json!({ "$ref": "#/components/responses/Failure" });
        responses.entry(status.to_string()).or_insert_with(failure);
    }
    let role = match route.who {
        Who::Anyone => "no token".to_owned(),
        Who::Role(role) => format!("role {}", role.as_str()),
    };
    let verb = route.verb.map(|verb| format!(", guard verb `{verb}`")).unwrap_or_default();
    let mut operation = json!({
        "operationId": id(route),
        "summary": route.about,
        "description": format!("Needs: {role}{verb}."),
        "parameters": parameters,
        "responses": responses,
        "security": match route.who {
            Who::Anyone => json!([]),
            Who::Role(_) => json!([{ "token": [] }]),
        },
    });
    match route.body {
        BodyKind::None => {}
        BodyKind::Json(name) => {
            let schema = body(name, read);
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        BodyKind::Bytes => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/octet-stream": {} } });
        }
    }
    operation
}

/// The method and the words of the path.
fn id(route: &Route) -> String {
    let words = route.path.split(['/', '.']).map(|word| word.trim_matches(['{', '}', '*']));
    words
        .filter(|word| !word.is_empty() && *word != "v1")
        .fold(method(route).to_owned(), |id, word| id + "_" + word)
}

/// The statuses of errors: those of the row, and those that follow from it.
fn statuses(route: &Route) -> Vec<u16> {
    let mut statuses = vec![400, 403, 500, 503];
    statuses.extend(route.errors);
    if route.who != Who::Anyone {
        statuses.extend([401, 429]);
    }
    if route.path.contains("{job}") {
        statuses.extend([404, 409, 504]);
    }
    if route.body != BodyKind::None {
        statuses.extend([408, 413]);
    }
    if let BodyKind::Json(_) = route.body {
        statuses.push(415);
    }
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn part(name: &str) -> Value {
    let schema = match name {
        "stream" => json!({ "type": "string", "enum": ["stdout", "stderr"] }),
        "job" => json!({ "type": "string", "pattern": JOB }),
        _ => json!({ "type": "string" }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

/// A job: an id, the beginning of one, or a name.
const JOB: &str = "^[0-9A-Za-z._-]{1,64}$";
const CURSOR: &str = "o[0-9]{1,18}e[0-9]{1,18}";

fn query(param: &Param) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let one = match param.kind {
        ParamKind::Text => text("^[^\\u0000]*$"),
        ParamKind::Pattern => json!({ "type": "string", "format": "regex" }),
        ParamKind::Jobs => text(JOB),
        ParamKind::Job => text("^[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
        ParamKind::Words => text("^[a-z_]{1,40}$"),
        ParamKind::Tags => text("^[^=\\u0000]+(=[^\\u0000]*)?$"),
        ParamKind::States => {
            json!({ "type": "string", "enum": quell::JobState::ALL.map(|state| state.as_str()) })
        }
        ParamKind::Word(words) => json!({ "type": "string", "enum": words }),
        ParamKind::Flag => json!({ "type": "string", "enum": ["true", "false", "1", "0"] }),
        ParamKind::Count(most) => json!({ "type": "integer", "minimum": 0, "maximum": most }),
        ParamKind::Wait(most) => {
            let seconds = (0..=most).map(|seconds| seconds.to_string()).collect::<Vec<_>>().join("|");
            let seconds = if most <= 60 { format!("({seconds})s") } else { "(0|[1-9][0-9]{0,2})s".into() };
            text(&format!("^({seconds}|(0|[1-9][0-9]{{0,3}})ms)$"))
        }
        ParamKind::Time => text(
            "^([1-9][0-9]{0,3}[smhd]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)$",
        ),
        ParamKind::Cursor => text(&format!("^{CURSOR}$")),
        ParamKind::Logs => text(&format!("^[0-9A-Za-z._-]{{1,64}}(@{CURSOR})?$")),
        ParamKind::EventId => text("^[0-7][0-9A-HJKMNP-TV-Z]{25}\\.[0-9]{1,18}$"),
    };
    let schema = if param.kind.is_repeatable() { json!({ "type": "array", "items": one }) } else { one };
    json!({ "name": param.name, "in": "query", "description": param.about, "schema": schema })
}

fn body(name: &str, read: &mut SchemaGenerator) -> Schema {
    match name {
        "StopBody" => read.subschema_for::<stop::StopBody>(),
        "GroupStopBody" => read.subschema_for::<group::GroupStopBody>(),
        "StartBody" => read.subschema_for::<start::StartBody>(),
        "SignalBody" => read.subschema_for::<control::SignalBody>(),
        "DryRunBody" => read.subschema_for::<control::DryRunBody>(),
        "CheckBody" => read.subschema_for::<host::CheckBody>(),
        "LoginBody" => read.subschema_for::<server::LoginBody>(),
        "LoginCodeBody" => read.subschema_for::<server::LoginCodeBody>(),
        other => unreachable!("the body {other} has no schema"),
    }
}

fn answer(route: &Route, name: &str, made: &mut SchemaGenerator) -> Value {
    let of = |kind: &str, schema: Value| json!({ "description": route.about, "content": { kind: { "schema": schema } } });
    match name {
        "" => {
            let kind = match route.kind {
                "page" => "text/html",
                "logs" => "application/octet-stream",
                _ => "text/plain",
            };
            of(kind, json!({}))
        }
        "application/json" => of(name, json!({ "type": "object" })),
        "application/x-ndjson" => {
            let line = made.subschema_for::<group::GroupStopLine>();
            let mut answer = of(name, json!({}));
            answer["x-line"] = line.to_value();
            answer
        }
        "text/event-stream" => {
            let mut answer = of(name, json!({ "type": "string" }));
            answer["x-events"] = json!({
                "hello": made.subschema_for::<Hello>(),
                "job": made.subschema_for::<quell::JobView>(),
                "event": made.subschema_for::<quell::JobEvent>(),
                "session.stopped": made.subschema_for::<SessionStopped>(),
                "vitals": made.subschema_for::<Snapshot>(),
                "log": made.subschema_for::<answers::Followed>(),
                "cut": made.subschema_for::<answers::Followed>(),
            });
            answer
        }
        name => {
            let data = data(name, made);
            let envelope = json!({
                "type": "object",
                "properties": {
                    "schema": { "const": "quell/1" },
                    "ok": { "const": true },
                    "type": { "const": route.kind },
                    "data": data,
                },
                "required": ["schema", "ok", "type", "data"],
                "additionalProperties": false,
            });
            of("application/json", envelope)
        }
    }
}

fn data(name: &str, made: &mut SchemaGenerator) -> Schema {
    match name {
        "JobsAnswer" => made.subschema_for::<jobs::JobsAnswer>(),
        "StatusAnswer" => made.subschema_for::<answers::StatusAnswer>(),
        "TreeAnswer" => made.subschema_for::<answers::TreeAnswer>(),
        "Receipt" => made.subschema_for::<quell::Receipt>(),
        "[JobEvent]" => made.subschema_for::<Vec<quell::JobEvent>>(),
        "LogsView" => made.subschema_for::<quell::LogsView>(),
        "StopAnswer" => made.subschema_for::<answers::StopAnswer>(),
        "HeardAnswer" => made.subschema_for::<stop::HeardAnswer>(),
        "StartAnswer" => made.subschema_for::<answers::StartAnswer>(),
        "SignalAnswer" => made.subschema_for::<answers::SignalAnswer>(),
        "SendAnswer" => made.subschema_for::<answers::SendAnswer>(),
        "RmAnswer" => made.subschema_for::<answers::RmAnswer>(),
        "GcReport" => made.subschema_for::<quell::GcReport>(),
        "SweepReport" => made.subschema_for::<quell::SweepReport>(),
        "WaitAnswer" => made.subschema_for::<answers::WaitAnswer>(),
        "EventsAnswer" => made.subschema_for::<waits::EventsAnswer>(),
        "Stats" => made.subschema_for::<quell::Stats>(),
        "AuditAnswer" => made.subschema_for::<host::AuditAnswer>(),
        "Doctor" => made.subschema_for::<quell::binary::Doctor>(),
        "ConfigAnswer" => made.subschema_for::<answers::ConfigAnswer>(),
        "CheckAnswer" => made.subschema_for::<answers::CheckAnswer>(),
        "ServerAnswer" => made.subschema_for::<server::ServerAnswer>(),
        "LoginAnswer" => made.subschema_for::<server::LoginAnswer>(),
        "LoginCodeAnswer" => made.subschema_for::<server::LoginCodeAnswer>(),
        other => unreachable!("the answer {other} has no schema"),
    }
}
