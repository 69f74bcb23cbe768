//! `stop_jobs`.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use quell::binary::QuellInternals;
use quell::{Fate, Filter, Job, Receipt, StopOptions, Stopped, Verdict};
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ToolCall;
use crate::answer::facts;
use crate::failure::ToolFailure;

/// The longest grace that can be asked for: the answer has to come in time.
const LONGEST_GRACE: u64 = 30;
/// How many jobs are stopped at the same time.
const AT_ONCE: usize = 16;
/// How many processes that did not exit when asked are named.
const NAMED: usize = 10;

#[derive(Deserialize)]
struct StopArguments {
    #[serde(default)]
    jobs: Vec<String>,
    #[serde(default)]
    all_mine: bool,
    grace_s: Option<u64>,
    reason: String,
}

pub fn stop_jobs(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: StopArguments = call.read()?;
    if args.jobs.is_empty() != args.all_mine {
        return Err(ToolFailure::argument("give either `jobs` or all_mine=true"));
    }
    let target = if args.all_mine { "--session".to_owned() } else { args.jobs.join(" ") };
    let access = call.access(&target, Some(args.reason.clone()))?;
    let jobs = if args.all_mine {
        let session = Some(call.shared.lease.session.clone());
        access.quell.to_stop(&Filter { session, ..Filter::default() })?
    } else {
        args.jobs.iter().map(|text| call.find_own(&access, text)).collect::<Result<Vec<_>, _>>()?
    };
    let mut options = StopOptions::default().reason(&args.reason);
    if let Some(grace) = args.grace_s {
        options = options.grace(Duration::from_secs(grace.min(LONGEST_GRACE)));
    }
    let deadline = Instant::now() + call.shared.options.max_wait;
    let (stopped, is_complete) = stop_all(call, jobs, &options, deadline);
    let is_error = stopped.iter().any(|job| job.get("error").is_some());
    let mut answer = facts(json!({ "jobs": stopped, "complete": is_complete }));
    if is_error {
        // What was proven of each job is what the model needs now.
        answer.is_error = Some(true);
    }
    Ok(answer)
}

/// Stops the jobs side by side. A job that takes longer than `deadline` goes on being stopped, also if this server exits: its keeper
/// does that.
fn stop_all(call: &ToolCall, jobs: Vec<Job>, options: &StopOptions, deadline: Instant) -> (Vec<Value>, bool) {
    let mut answers: Vec<Value> = jobs
        .iter()
        .map(|job| json!({ "id": job.id(), "state": "stopping", "hint": "wait_for tells its end" }))
        .collect();
    let (send, results) = mpsc::channel();
    let mut waiting: Vec<(usize, Job)> = jobs.into_iter().enumerate().rev().collect();
    let (mut under_way, mut left) = (0, waiting.len());
    while left > 0 {
        while under_way < AT_ONCE
            && let Some((at, job)) = waiting.pop()
        {
            let (send, options, slot) = (send.clone(), options.clone(), call.slot.clone());
            let stop = move || {
                let _slot = slot;
                let stopped = job.stop_with(&options);
                let _ = send.send((at, answer(&job, stopped)));
            };
            match std::thread::Builder::new().name("mcp-stop".into()).spawn(stop) {
                Ok(_) => under_way += 1,
                Err(error) => {
                    answers[at] =
                        json!({ "id": answers[at]["id"], "error": format!("can't start a thread: {error}") });
                    left -= 1;
                }
            }
        }
        if under_way == 0 {
            continue;
        }
        match results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((at, answer)) => {
                answers[at] = answer;
                (under_way, left) = (under_way - 1, left - 1);
            }
            Err(_) => break,
        }
    }
    (answers, left == 0)
}

fn answer(job: &Job, stopped: quell::Result<Stopped>) -> Value {
    match stopped {
        Ok(stopped) => {
            let mut answer = described(stopped.receipt());
            answer["already_ended"] = stopped.already_ended().into();
            answer
        }
        Err(error) => {
            json!({ "id": job.id(), "error": error.to_string(), "code": error.code(), "left": "unknown" })
        }
    }
}

/// What a stop did and proved.
fn described(receipt: &Receipt) -> Value {
    let left = match &receipt.verdict {
        Verdict::Gone => json!(0),
        Verdict::Survivors { count } => json!(count),
        Verdict::Unproven { why } => json!(why),
    };
    let killed = receipt.members.iter().filter(|member| member.fate == Fate::KilledAfterGrace);
    let killed: Vec<String> =
        killed.take(NAMED).map(|member| format!("{} {}", member.id.pid, member.command)).collect();
    let mut answer = json!({
        "id": receipt.job.id,
        "verdict": receipt.verdict,
        "left": left,
        "processes": receipt.members.len() as u64 + receipt.members_omitted,
        "outcome": receipt.root.outcome,
        "cause": receipt.cause,
    });
    if let Some(name) = &receipt.job.name {
        answer["name"] = json!(name);
    }
    if let Some(kill) = receipt.kill {
        answer["killed_because"] = json!(kill);
    }
    if let Some(used) = receipt.grace.used {
        answer["grace_used_s"] = json!((used * 1000.0).round() / 1000.0);
    }
    if !killed.is_empty() {
        answer["still_running_after_grace"] = json!(killed);
    }
    answer
}
