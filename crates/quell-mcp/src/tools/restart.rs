//! `restart_job`.

use std::time::Duration;

use quell::{Condition, Job, StopOptions, WaitFor};
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::json;

use super::ToolCall;
use crate::answer::{brief, facts};
use crate::failure::ToolFailure;

#[derive(Deserialize)]
struct RestartArguments {
    job: String,
    wait_s: Option<u64>,
    reason: Option<String>,
}

pub fn restart_job(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: RestartArguments = call.read()?;
    let access = call.access(&args.job, args.reason.clone())?;
    let (wait, _) = call.wait(args.wait_s, 30);
    let old = call.find_own(&access, &args.job)?;
    let mut options = StopOptions::default();
    if let Some(reason) = &args.reason {
        options = options.reason(reason);
    }
    // A job that lived for another client lives for this one now.
    let job = old.restart_owned_by(call.shared.lease.owner()?, &options)?;
    call.watch(&job);
    let result = describe(call, &old, &job, wait);
    call.about(&job, result)
}

fn describe(call: &ToolCall, old: &Job, job: &Job, wait: Duration) -> Result<CallToolResult, ToolFailure> {
    let has_sign = job.status()?.ready_rules.is_some();
    let mut answer = json!({ "restarted_from": old.id() });
    if has_sign {
        let wanted = WaitFor::end().ready().or_interrupted(&call.interrupt);
        let met = job.wait(&wanted, Some(wait))?.met;
        answer["ready"] = (met == Condition::Ready).into();
    }
    answer["job"] = brief(&job.view()?, &call.shared.lease.session);
    Ok(facts(answer))
}
