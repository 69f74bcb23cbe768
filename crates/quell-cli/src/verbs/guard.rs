//! `quell guard check`: what the guard would decide. Nothing is done.

use std::process::ExitCode;

use quell::binary::responses::CheckAnswer;
use quell::{Error, JobRequest};
use quell_guard::{Decision, Policy, Verb, decide_verb, kill, read_verb, service};
use quell_test::{TestPlan, check_tests};

use super::{Admitted, envelope, fail, guard_of};
use crate::args::{CheckVerb, GuardArgs, GuardVerb};
use crate::errors::exit;
use crate::{output, render};

/// Asks the guard, and prints the decision.
pub fn guard(admitted: Admitted, args: &GuardArgs) -> ExitCode {
    let GuardVerb::Check(check) = &args.verb;
    let (json, verb, target) = match check {
        CheckVerb::Kill(args) => (args.json, "kill", args.pid.clone()),
        CheckVerb::Service(args) => (args.json, args.action.verb().verb().as_str(), args.name.clone()),
        CheckVerb::Test(args) => {
            let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
            (args.json, "test", words.join(" "))
        }
        CheckVerb::Verb(args) => (args.json, "verb", args.verb.clone()),
    };
    match decide(admitted, check, &target) {
        Ok(decision) => {
            let code = if decision.allowed { 0 } else { exit::REFUSED };
            let text = if json {
                envelope("guard", &CheckAnswer { verb: verb.into(), target, decision })
            } else {
                describe(&decision)
            };
            output::to_stdout(&output::hidden(&text)).unwrap_or(ExitCode::from(code))
        }
        Err(error) => fail("guard", json, &error),
    }
}

/// The decision. It does not quote any part of a masked value.
fn decide(admitted: Admitted, check: &CheckVerb, target: &str) -> Result<Decision, Error> {
    let config = admitted.settings?.config;
    let guard = guard_of(&admitted.quell?, &config, None);
    let decision = match check {
        CheckVerb::Kill(args) => kill::check(&guard, &args.pid, &super::kill::how(args))?,
        CheckVerb::Service(args) => {
            let options = service::ServiceOptions { user: args.user, ..service::ServiceOptions::default() };
            service::check(&guard, args.action.verb(), &args.name, &options)?
        }
        CheckVerb::Test(args) => {
            let plan = TestPlan {
                scope: args.scope.clone(),
                approved: args.approve,
                require_target: args.require_target,
                junit: args.junit.clone(),
                ..TestPlan::new(JobRequest {
                    mask: config.start.mask.clone(),
                    ..JobRequest::background(args.command.clone())
                })
            };
            return check_tests(&guard, &plan);
        }
        CheckVerb::Verb(args) => decide_by_name(guard.policy(), &args.verb),
    };
    Ok(decision.masked_about(&config.mask(), &[target.to_owned()]))
}

fn decide_by_name(policy: &Policy, name: &str) -> Decision {
    let verb = match read_verb(name) {
        Ok(verb) => verb,
        Err(refusal) => return *refusal,
    };
    let decision = decide_verb(policy, verb);
    // It starts a job again. That it stops one is part of the decision about the verb.
    let start = decide_verb(policy, Verb::Start);
    if verb == Verb::Restart && decision.allowed && !start.allowed {
        return Decision { reason: format!("a restart is also a start: {}", start.reason), ..start };
    }
    decision
}

fn describe(decision: &Decision) -> String {
    let word = if decision.allowed { "allowed" } else { "refused" };
    let [reason, hint] = [&decision.reason, &decision.hint].map(|text| render::printable(text));
    let head = format!("{word} by {}: {reason} ({})\n", decision.rule, decision.code);
    if decision.allowed { head } else { format!("{head}{hint}\n") }
}
