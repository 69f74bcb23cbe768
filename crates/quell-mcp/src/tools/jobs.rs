//! `list_jobs` and `job_status`.

use quell::{Actor, Filter, JobState, ProcessTree};
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ToolCall;
use crate::answer::{age, brief, facts};
use crate::failure::ToolFailure;

/// How many processes are listed.
const LISTED: usize = 50;

#[derive(Deserialize)]
struct ListArguments {
    state: Option<String>,
    #[serde(default)]
    everyone: bool,
    limit: Option<usize>,
}

pub fn list_jobs(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: ListArguments = call.read()?;
    let access = call.access("", None)?;
    let session = call.shared.lease.session.clone();
    let live = || JobState::ALL.into_iter().filter(|state| *state != JobState::Ended).collect();
    let (states, limit) = match args.state.as_deref() {
        Some("live") => (live(), 0),
        Some("ended") => (vec![JobState::Ended], args.limit.unwrap_or(20).min(200)),
        _ => (Vec::new(), args.limit.unwrap_or(20).min(200)),
    };
    let filter = Filter {
        states,
        session: (!args.everyone).then(|| session.clone()),
        limit: Some(limit),
        ..Filter::default()
    };
    let listed = access.quell.list_recovered(&filter)?;
    let jobs: Vec<Value> = listed.listing.jobs.iter().map(|view| brief(view, &session)).collect();
    let mut answer = json!({ "jobs": jobs, "session": session });
    if listed.listing.more > 0 && args.state.as_deref() != Some("live") {
        answer["more_ended"] = listed.listing.more.into();
    }
    let warnings: Vec<String> =
        listed.listing.warnings.into_iter().chain(listed.failed.iter().map(ToString::to_string)).collect();
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    Ok(facts(answer))
}

#[derive(Deserialize)]
struct StatusArguments {
    job: String,
}

pub fn job_status(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: StatusArguments = call.read()?;
    let access = call.access("", None)?;
    let job = call.find(&access.quell, &args.job)?;
    let status = job.status()?;
    let view = &status.job;
    let mut fields = brief(view, &call.shared.lease.session);
    let mut add = |key: &str, value: Value| {
        if !(value.is_null() || value == json!({}) || value == json!([])) {
            fields[key] = value;
        }
    };
    add("cwd", json!(view.cwd));
    add("ready", json!(view.ready));
    add("held_by", json!(view.held));
    add("limits", json!(view.limits));
    add("timeout_s", json!(view.timeout));
    add("ttl_s", json!(status.ttl));
    add("owner", json!(view.owner));
    add("run", json!((view.run > 1).then_some(view.run)));
    add("restarted_from", json!(view.restarted_from));
    add("ready_when", json!(status.ready_rules));
    add("ended_by", json!(view.actor.as_ref().filter(|actor| **actor != Actor::Program)));
    add("verdict", json!(view.verdict));
    add("survivors", json!(view.survivors));
    add("outlived", json!(view.outlived));
    add("receipt", json!(status.receipt));
    add("output", json!(view.output));
    add("unwritten", json!(status.unwritten));
    let tested = call.tested(job.id());
    add("tests", json!(Some(tested).filter(|text| !text.is_empty())));
    if view.state != JobState::Ended {
        add("age_s", json!(age(view)));
        match job.tree() {
            Ok(ProcessTree::Alive(_, processes)) => {
                let shown = processes.iter().take(LISTED).map(|process| {
                    json!({
                        "pid": process.id.pid, "ppid": process.ppid, "state": process.state.to_string(),
                        "cpu_s": process.cpu, "memory": process.memory, "command": process.command,
                    })
                });
                add("processes", shown.collect());
                let more = processes.len().saturating_sub(LISTED);
                add("more_processes", json!((more > 0).then_some(more)));
            }
            // It has ended meanwhile, or its keeper does not answer: the rest is true all the same.
            Ok(ProcessTree::Ended(_)) => {}
            Err(error) => add("processes_unknown", json!(error.to_string())),
        }
    }
    Ok(facts(json!({ "job": fields })))
}
