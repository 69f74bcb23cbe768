//! Every verb of the command line asks the guard here, by its name in the table of effects.

use std::ffi::OsString;

use quell::binary::{AccessRequest, Config, Home, Loaded, QuellInternals};
use quell::{Environment, Error, JobId, Quell};
use quell_guard::{Guard, Permit, Verb, decide_verb};

use crate::args::{CliCommand, StopArgs};
use crate::output;

/// What a verb works with, once the guard has allowed it.
pub struct Admitted {
    /// The settings, or why they can't be read. Read once, so that the guard and the verb use the same ones.
    pub settings: Result<Loaded, Error>,
    /// The user's jobs, or why their home can't be used. Calls for the verb go by its permit.
    pub quell: Result<Quell, Error>,
    /// None for a verb that asks the guard itself.
    pub permit: Option<Permit>,
}

/// The guard for a verb that asks it itself, with the reason that the caller gave.
pub fn guard(quell: &Quell, config: &Config, reason: Option<String>) -> Guard {
    Guard::new(quell.home(), config.guard.clone()).because(reason).masking(config.mask())
}

/// Permits or refuses a verb. `job` is the id of the job that a `run` will make.
pub fn admit(verb: &CliCommand, job: Option<JobId>) -> Result<Admitted, Error> {
    let (settings, home) = (Config::load_here(), Home::find());
    match &settings {
        Ok(loaded) => output::hide(loaded.config.mask()),
        Err(_) => output::hide_by_settings(),
    }
    // These decide with all that they know of what is meant, if the policy can be read.
    let decides = matches!(verb, CliCommand::Kill(_) | CliCommand::Service(_) | CliCommand::Test(_));
    let asked = name(verb, settings.as_ref().ok()).filter(|_| !decides || settings.is_err());
    let (permit, settings) = match asked {
        Some((name, target)) => {
            let request = AccessRequest { verb: name, target, reason: reason(verb), job, through: None };
            let (permit, settings) = ask(verb, request, home.as_ref(), settings)?;
            (Some(permit), settings)
        }
        None => (None, settings),
    };
    for warning in permit.iter().flat_map(Permit::warnings) {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let quell = quell::binary::open_permitted(home, "/proc/self/exe", permit.clone());
    Ok(Admitted { quell, settings, permit })
}

/// What to do about a policy that does not allow `verb`.
pub fn hint_if_refused(verb: Verb) -> Option<String> {
    let decision = decide_verb(&Config::load_here().ok()?.config.guard, verb);
    (!decision.allowed).then_some(decision.hint)
}

fn ask(
    verb: &CliCommand,
    request: AccessRequest,
    home: Option<&Home>,
    settings: Result<Loaded, Error>,
) -> Result<(Permit, Result<Loaded, Error>), Error> {
    // A mistake in a settings file does not prevent looking and stopping, also if QUELL_CONFIG names it. Any other variable that the
    // caller has set by mistake is named.
    let settings = match settings {
        Err(Error::Variable { ref name, .. }) if name == "QUELL_CONFIG" => settings,
        Err(error @ (Error::UnknownVariable { .. } | Error::Variable { .. })) => return Err(error),
        settings => settings,
    };
    let allows = |verb| settings.as_ref().is_ok_and(|loaded| decide_verb(&loaded.config.guard, verb).allowed);
    // A run without a record has no line in the audit log either, unless it is refused.
    let unrecorded = match verb {
        CliCommand::Run(args) => args.no_record && allows(Verb::Run),
        CliCommand::Wrap(args) => args.no_record && allows(Verb::Wrap),
        _ => false,
    };
    quell::binary::permit(settings, home.filter(|_| !unrecorded), request)
}

/// The caller's reason, for the audit log.
fn reason(verb: &CliCommand) -> Option<String> {
    match verb {
        CliCommand::Kill(args) => args.reason.clone(),
        CliCommand::Service(args) => args.reason.clone(),
        CliCommand::Stop(args) => args.reason.clone(),
        CliCommand::Test(args) => args.reason.clone(),
        _ => None,
    }
}

/// The program of a command, without its arguments, which may be private. `mask` names variables to be masked, over those of the
/// settings, and `set` has variables of the job.
fn program(
    command: &[OsString],
    settings: Option<&Loaded>,
    mask: &[String],
    set: &[(String, String)],
) -> String {
    let program = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let names = [settings.map_or(&[][..], |loaded| &loaded.config.start.mask), mask].concat();
    let set = set.iter().map(|(key, value)| (key.into(), value.into())).collect();
    Environment { set, ..Environment::default() }.mask(&names).apply(&program)
}

/// The selected jobs, as the caller named them.
fn selected(args: &StopArgs) -> String {
    let tags = args.tag.iter().map(|tag| format!("--tag {tag}"));
    let session = args.session.iter().map(|session| format!("--session {session}"));
    let all = args.all.then(|| "--all".to_owned());
    args.jobs.iter().cloned().chain(tags).chain(session).chain(all).collect::<Vec<_>>().join(" ")
}

/// The verb and its target; none for quell's own roles.
fn name(verb: &CliCommand, settings: Option<&Loaded>) -> Option<(Verb, String)> {
    let jobs = |jobs: &[String]| jobs.join(" ");
    Some(match verb {
        CliCommand::Run(args) => (Verb::Run, program(&args.command, settings, &[], &args.job.env)),
        CliCommand::Start(args) => (Verb::Start, program(&args.command, settings, &args.mask, &args.job.env)),
        CliCommand::Wrap(args) => (Verb::Wrap, program(&args.command, settings, &[], &[])),
        CliCommand::Stop(args) => (Verb::Stop, selected(args)),
        CliCommand::Logs(_) => (Verb::Logs, String::new()),
        CliCommand::Events(_) => (Verb::Events, String::new()),
        CliCommand::Wait(args) => (Verb::Wait, jobs(&args.jobs)),
        CliCommand::Send(args) => (Verb::Send, args.job.clone()),
        CliCommand::Signal(args) => (Verb::Signal, args.job.clone()),
        CliCommand::Restart(args) => (Verb::Restart, jobs(&args.jobs)),
        CliCommand::List(_) => (Verb::List, String::new()),
        CliCommand::Top(_) => (Verb::Top, String::new()),
        CliCommand::Status(_) => (Verb::Status, String::new()),
        CliCommand::Tree(_) => (Verb::Tree, String::new()),
        CliCommand::Stats(_) => (Verb::Stats, String::new()),
        CliCommand::Rm(args) => (Verb::Rm, jobs(&args.jobs)),
        CliCommand::Gc(_) => (Verb::Gc, String::new()),
        CliCommand::Sweep(_) => (Verb::Sweep, String::new()),
        CliCommand::Setup(args) => (Verb::Setup, super::setup::agent(args.agent).to_string()),
        CliCommand::Doctor(_) => (Verb::Doctor, String::new()),
        CliCommand::Config(_) => (Verb::Config, String::new()),
        CliCommand::Complete(_) => (Verb::List, String::new()),
        CliCommand::Completions(_) => (Verb::Completions, String::new()),
        CliCommand::Mcp(_) => (Verb::Mcp, String::new()),
        CliCommand::Serve(_) => (Verb::Serve, String::new()),
        CliCommand::Man(args) => (Verb::Man, args.dir.display().to_string()),
        CliCommand::Guard(_) => (Verb::Guard, String::new()),
        CliCommand::Kill(args) => (Verb::Kill, args.pid.clone()),
        CliCommand::Service(args) => (args.action.verb().verb(), args.name.clone()),
        CliCommand::Test(args) => (Verb::Test, program(&args.command, settings, &[], &[])),
        // They ask the guard about the request that they read.
        CliCommand::Role(_) => return None,
    })
}
