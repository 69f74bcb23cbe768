//! `quell service`: a service of systemd, as far as the guard allows.

use std::process::ExitCode;

use quell_guard::ServiceVerb;
use quell_guard::service::{ServiceAnswer, ServiceOptions, act};

use super::{Admitted, envelope, fail, guard_of};
use crate::args::ServiceArgs;
use crate::{output, render};

/// Carries out the verb, and prints the state of the service.
pub fn service(admitted: Admitted, args: &ServiceArgs) -> ExitCode {
    let options = ServiceOptions { user: args.user, timeout: args.timeout };
    let done = admitted.quell.and_then(|quell| {
        let guard = guard_of(&quell, &admitted.settings?.config, args.reason.clone());
        Ok(act(&guard, args.action.verb(), &args.name, &options)?)
    });
    match done {
        Ok(answer) => {
            let text = if args.json { envelope("service", &answer) } else { told(&answer) };
            let code = match &answer {
                answer if answer.success => 0,
                answer if answer.timed_out => 6,
                _ => 1,
            };
            output::to_stdout(&text).unwrap_or(ExitCode::from(code))
        }
        Err(error) => fail("service", args.json, &error),
    }
}

/// A line about the state, and one about the reason if there is one.
fn told(answer: &ServiceAnswer) -> String {
    let done = match (answer.command, answer.success) {
        (ServiceVerb::Start, true) => "started, ",
        (ServiceVerb::Start, false) => "NOT started, ",
        (ServiceVerb::Stop, true) => "stopped, ",
        (ServiceVerb::Stop, false) => "NOT stopped, ",
        (ServiceVerb::Restart, true) => "restarted, ",
        (ServiceVerb::Restart, false) => "NOT restarted, ",
        (ServiceVerb::Status, _) => "",
    };
    let pid = answer.main_pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    let alias = if answer.unit == answer.service { String::new() } else { format!(" ({})", answer.unit) };
    let mut text = format!("{}{alias}: {done}{} ({}){pid}\n", answer.service, answer.state, answer.sub_state);
    // systemctl's own words are shown only after a failure.
    let words = answer.stderr.lines().map(str::trim).find(|line| !line.is_empty() && !answer.success);
    let more: Vec<&str> = answer.note.as_deref().into_iter().chain(words).collect();
    if !more.is_empty() {
        text.push_str(&format!("  {}\n", render::printable(&more.join(": "))));
    }
    text
}
