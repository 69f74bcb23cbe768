//! `host_kill` and `host_service`: what the policy allows, and a person approves each time.

use std::time::Duration;

use quell::Signal;
use quell::binary::Config;
use quell_guard::kill::{Kill, Victim, examine, kill as kill_process};
use quell_guard::service::{ServiceOptions, act, check as check_service};
use quell_guard::{Decision, Guard, ServiceVerb, Verb};
use serde::Deserialize;
use serde_json::json;

use super::tests_run::refused;
use super::{Outcome, ToolCall};
use crate::answer::text;
use crate::approval::Approval;
use crate::clean::quoted;
use crate::failure::ToolFailure;

/// How much of a reason, and of a command line, a question shows.
const LONGEST_REASON: usize = 300;
const LONGEST_COMMAND: usize = 500;

#[derive(Deserialize)]
struct KillArguments {
    pid: u64,
    signal: Option<String>,
    #[serde(default)]
    tree: bool,
    grace_s: Option<u64>,
    reason: String,
}

pub fn kill(call: &ToolCall) -> Result<Outcome, ToolFailure> {
    let args: KillArguments = call.read()?;
    let config = Config::load_here()?.config;
    let guard = call.guard(&config, Some(args.reason.clone()));
    let signal = match args.signal.as_deref() {
        Some(signal) => signal.parse::<Signal>().map_err(|error| ToolFailure::argument(error.to_string()))?,
        None => Signal::TERM,
    };
    let grace = args.grace_s.map_or(config.stop.grace, |grace| Duration::from_secs(grace.min(30)));
    let mut options = Kill { signal, tree: args.tree, grace, verify: config.stop.verify, expected: None };
    let pid = args.pid.to_string();
    // The policy first: the user is not asked about what is refused anyway.
    let (decision, victim) = examine(&guard, &pid, &options)?;
    let Some(victim) = victim.filter(|_| decision.allowed) else {
        return Err(guard.refuse(Verb::Kill, &pid, decision).into());
    };
    // What is approved is the end of this process, not of any that has its PID later.
    options.expected = Some(victim.id);
    let tree = if args.tree { " --tree" } else { "" };
    let typed = format!("quell kill {pid} --signal {signal}{tree}");
    let question = about_kill(signal, args.tree, &victim, &args.reason);
    if let Some(outcome) = unapproved(call, &guard, Verb::Kill, &pid, decision, question, &typed)? {
        return Ok(outcome);
    }
    let answer = kill_process(&guard, &pid, &options)?;
    Ok(Outcome::Answer(text(json!(answer).to_string())))
}

/// The question about a kill. It is another one for another process, also one with the same PID.
fn about_kill(signal: Signal, tree: bool, victim: &Victim, reason: &str) -> String {
    format!(
        "Send {signal} to process {}{}?\nName: {}\nCommand line: {}\nUser: {}\nStarted: {}\nThe agent's reason: {}",
        victim.id.pid,
        if tree { " and its descendants" } else { "" },
        quoted(&victim.name, LONGEST_COMMAND),
        quoted(&victim.command.join(" "), LONGEST_COMMAND),
        victim.users.iter().map(|user| quoted(user, LONGEST_COMMAND)).collect::<Vec<_>>().join(", "),
        victim.started,
        quoted(reason, LONGEST_REASON)
    )
}

#[derive(Deserialize)]
struct ServiceArguments {
    service: String,
    action: String,
    #[serde(default)]
    user: bool,
    reason: String,
}

pub fn service(call: &ToolCall) -> Result<Outcome, ToolFailure> {
    let args: ServiceArguments = call.read()?;
    let config = Config::load_here()?.config;
    let guard = call.guard(&config, Some(args.reason.clone()));
    let action = match args.action.as_str() {
        "start" => ServiceVerb::Start,
        "stop" => ServiceVerb::Stop,
        "restart" => ServiceVerb::Restart,
        _ => ServiceVerb::Status,
    };
    let options = ServiceOptions { user: args.user, timeout: call.shared.options.max_wait };
    let decision = check_service(&guard, action, &args.service, &options)?;
    if !decision.allowed {
        return Err(guard.refuse(action.verb(), &args.service, decision).into());
    }
    let user = if args.user { " --user" } else { "" };
    let typed = format!("quell service {} {}{user}", args.action, args.service);
    let question = format!(
        "{} the service {}{}?\nThe agent's reason: {}",
        action.as_str(),
        quoted(&args.service, LONGEST_COMMAND),
        if args.user { " of this user" } else { "" },
        quoted(&args.reason, LONGEST_REASON)
    );
    // Looking changes nothing.
    if action != ServiceVerb::Status
        && let Some(outcome) =
            unapproved(call, &guard, action.verb(), &args.service, decision, question, &typed)?
    {
        return Ok(outcome);
    }
    let answer = act(&guard, action, &args.service, &options)?;
    Ok(Outcome::Answer(text(json!(answer).to_string())))
}

/// The question, or a refusal, unless the user has approved the call.
fn unapproved(
    call: &ToolCall,
    guard: &Guard,
    verb: Verb,
    target: &str,
    decision: Decision,
    question: String,
    typed: &str,
) -> Result<Option<Outcome>, ToolFailure> {
    match call.decided(&question) {
        Some(Approval::Given) => Ok(None),
        None => Ok(Some(Outcome::Ask(question))),
        Some(approval) => {
            let rule = "built-in".to_owned();
            let reason = "what touches the host needs the user's approval".to_owned();
            let decision = refused(Decision { rule, reason, ..decision }, approval, typed);
            Err(guard.refuse(verb, target, decision).into())
        }
    }
}
