//! `quell setup`: quell in the configuration of an agent.

use std::fmt::Write;
use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use quell::binary::QuellInternals;
use quell_setup::{
    Agent, ConfigScope, Installation, OtherServers, Setup, SetupAction, SetupAnswer, SetupPlan, SetupState,
    WrapState,
};

use super::{Admitted, envelope, fail};
use crate::args::{AgentArg, SetupArgs};
use crate::errors::{self, exit};
use crate::output;
use crate::render::{self, printable};

/// Does it, and prints the result.
pub fn setup(admitted: Admitted, args: &SetupArgs) -> ExitCode {
    let (quell, permit) = match (admitted.quell, admitted.permit) {
        (Ok(quell), Some(permit)) => (quell, permit),
        (Err(error), _) => return fail("setup", args.json, &error),
        (Ok(_), None) => return not_permitted(args.json),
    };
    let scope = if args.project { ConfigScope::Project } else { ConfigScope::User };
    let others = if args.wrap { OtherServers::Wrap } else { OtherServers::Leave };
    let agent = agent(args.agent);
    let mut diff = String::new();
    let done = Setup::here(quell.home()).and_then(|setup| {
        if args.print {
            return setup.print(agent, scope).map(Some);
        }
        if args.check {
            return setup.check(agent, scope, others).map(Some);
        }
        let plan = match args.remove {
            true => setup.plan_remove(agent, scope),
            false => setup.plan_add(agent, scope, others),
        }?;
        if args.dry_run {
            diff = describe_plan(&plan);
            return Ok(Some(plan.dry_run()));
        }
        if plan.is_change() && !args.yes && !confirm(&plan) {
            return Ok(None);
        }
        plan.commit(&permit).map(Some)
    });
    match done {
        Ok(Some(answer)) => {
            let text = if args.json { envelope("setup", &answer) } else { diff + &describe(&answer) };
            let is_no = answer.action == SetupAction::Check && !answer.state.works;
            output::to_stdout(&text).unwrap_or(ExitCode::from(if is_no { exit::NO } else { 0 }))
        }
        Ok(None) => not_confirmed(args.json),
        Err(error) => {
            let (code, mut body) = errors::of_setup(&error);
            body.hint = body.hint.replace("AGENT", agent.as_str());
            output::fail("setup", args.json, code, &body)
        }
    }
}

/// What setup has written, for `quell doctor`: a name, whether it works, and a sentence.
pub fn installed() -> Vec<(String, bool, String)> {
    let Some(home) = quell::binary::Home::find() else { return Vec::new() };
    match Setup::installed_in(&home) {
        Ok(all) => all.iter().map(describe_installation).collect(),
        Err(error) => vec![("setup".into(), false, error.to_string())],
    }
}

fn describe_installation(installation: &Installation) -> (String, bool, String) {
    let Installation { agent, scope, file, state } = installation;
    let name = match scope {
        ConfigScope::User => format!("setup {agent}"),
        ConfigScope::Project => format!("setup {agent} --project"),
    };
    let file = file.display();
    match state {
        Err(error) => (name, false, error.to_string()),
        Ok(state) if !state.installed => (name, false, format!("{file} has no entry for quell any more")),
        Ok(state) if !state.works => (name, false, format!("{file}: {}", state.problems.join("; "))),
        Ok(state) => (name, true, format!("{file}{}", wrapped(state))),
    }
}

pub fn agent(arg: AgentArg) -> Agent {
    match arg {
        AgentArg::Claude => Agent::Claude,
        AgentArg::Codex => Agent::Codex,
        AgentArg::Gemini => Agent::Gemini,
        AgentArg::Opencode => Agent::Opencode,
        AgentArg::Cursor => Agent::Cursor,
        AgentArg::Vscode => Agent::Vscode,
        AgentArg::Windsurf => Agent::Windsurf,
    }
}

/// Shows the change and asks. Without a terminal the answer is no.
fn confirm(plan: &SetupPlan) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    output::to_stderr(&format!("{}Write this? [y/N] ", describe_plan(plan)));
    let mut answer = String::new();
    // The end of input leaves the text empty, which is not a yes.
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn not_confirmed(json: bool) -> ExitCode {
    let error = errors::said(
        "not_confirmed",
        "nothing was changed: the change was not confirmed",
        "--dry-run shows the change; without a terminal, pass --yes to confirm it",
    );
    output::fail("setup", json, exit::REFUSED, &error)
}

/// Each call of the verb has a permit, so this is not reached.
fn not_permitted(json: bool) -> ExitCode {
    let error = errors::said("internal", "the guard was not asked about setup", "report this");
    output::fail("setup", json, exit::FAILED, &error)
}

fn describe_plan(plan: &SetupPlan) -> String {
    if !plan.is_change() {
        return String::new();
    }
    format!("{}\n{}", shown(plan.file()), plan.diff())
}

fn describe(answer: &SetupAnswer) -> String {
    let (file, title) = (shown(&answer.file), answer.agent.title());
    let would = if answer.dry_run { "would be " } else { "" };
    let mut text = match answer.action {
        SetupAction::Print => {
            output::to_stderr(&format!("quell: this belongs into {file}\n"));
            return answer.entry.clone().unwrap_or_default();
        }
        SetupAction::Check => return describe_check(answer),
        SetupAction::Add if !answer.changed => format!("{title}: {file} has quell already\n"),
        SetupAction::Remove if !answer.changed => format!("{title}: {file} has nothing that setup wrote\n"),
        SetupAction::Add => {
            format!("{title}: quell {would}added to {file}{}\n", wrapped(&answer.state))
        }
        SetupAction::Remove => format!("{title}: quell {would}removed from {file}\n"),
    };
    if let Some(backup) = &answer.backup {
        let _ = writeln!(text, "  as it was: {}", shown(backup));
    }
    if answer.action == SetupAction::Add && answer.changed && !answer.dry_run {
        let _ = writeln!(text, "  {}", answer.agent.note(answer.scope));
    }
    if answer.action == SetupAction::Remove && answer.state.installed {
        let _ = writeln!(text, "  the entry for quell was there before setup, and stays");
    }
    text
}

fn describe_check(answer: &SetupAnswer) -> String {
    let (file, title, state) = (shown(&answer.file), answer.agent.title(), &answer.state);
    let mut text = match &state.command {
        None => format!("{title}: quell is not in {file}\n"),
        Some(words) => {
            format!("{title}: {file} starts {}{}\n", render::command_line(words), wrapped(state))
        }
    };
    for problem in &state.problems {
        let _ = writeln!(text, "  {}", printable(problem));
    }
    text
}

fn wrapped(state: &SetupState) -> String {
    let names: Vec<String> = state.names(WrapState::Wrapped).into_iter().map(printable).collect();
    if names.is_empty() { String::new() } else { format!("; wrapped: {}", names.join(", ")) }
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}
