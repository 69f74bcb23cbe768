//! Every verb of the command line asks the guard here, by its name in the table of effects.

use std::ffi::OsString;
use std::sync::OnceLock;

use quell::binary::{AccessRequest, Config, Loaded, QuellInternals};
use quell::{Environment, Error, JobId, Quell};
use quell_guard::{Guard, Permit, Verb, decide_verb};

use crate::args::{CliCommand, StopArgs};
use crate::output;

/// The settings of this command. Read once, so that the guard and the verb use the same ones.
pub fn settings() -> Result<&'static Loaded, Error> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    match LOADED.get() {
        Some(loaded) => Ok(loaded),
        None => Config::load_here().map(|loaded| LOADED.get_or_init(|| loaded)),
    }
}

/// The guard of this command, with the reason that the caller gave.
pub fn of(quell: &Quell, reason: Option<String>) -> Result<Guard, Error> {
    let config = &settings()?.config;
    Ok(Guard::new(quell.home(), config.guard.clone()).because(reason).masking(config.mask()))
}

/// The permit of this command.
static PERMIT: OnceLock<Permit> = OnceLock::new();

/// The permit of this command; none for a verb that asks the guard itself.
pub fn permit() -> Option<&'static Permit> {
    PERMIT.get()
}

/// Permits or refuses a verb. `job` is the id of the job that a `run` will make.
pub fn admit(verb: &CliCommand, job: Option<JobId>) -> Result<(), Error> {
    // These decide with all that they know of what is meant, if the policy can be read.
    let decides = matches!(verb, CliCommand::Kill(_) | CliCommand::Service(_) | CliCommand::Test(_));
    if decides && settings().is_ok() {
        return Ok(());
    }
    if let Some((name, target)) = name(verb) {
        let permit = ask(verb, name, target, job)?;
        for warning in permit.warnings() {
            output::to_stderr(&format!("quell: {warning}\n"));
        }
        PERMIT.get_or_init(|| permit);
    }
    Ok(())
}

/// What to do about a policy that does not allow `verb`.
pub fn hint_if_refused(verb: Verb) -> Option<String> {
    let decision = decide_verb(&settings().ok()?.config.guard, verb);
    (!decision.allowed).then_some(decision.hint)
}

fn ask(verb: &CliCommand, name: Verb, target: String, job: Option<JobId>) -> Result<Permit, Error> {
    let policy = settings().map(|loaded| loaded.config.guard.clone());
    // A mistake in a settings file does not prevent looking and stopping, also if QUELL_CONFIG names it. Any other variable that the
    // caller has set by mistake is named.
    match policy {
        Err(Error::Variable { ref name, .. }) if name == "QUELL_CONFIG" => {}
        Err(error @ (Error::UnknownVariable { .. } | Error::Variable { .. })) => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let mask = settings().map(|loaded| loaded.config.mask()).unwrap_or_default();
    let is_run = matches!(verb, CliCommand::Run(_));
    let refuses_run = is_run && !policy.as_ref().is_ok_and(|policy| decide_verb(policy, Verb::Run).allowed);
    let home = quell::binary::Home::find();
    // A run without a record has no line in the audit log either, unless it is refused.
    let unrecorded = matches!(verb, CliCommand::Run(args) if args.no_record) && !refuses_run;
    let home = home.filter(|_| !unrecorded);
    let reason = match verb {
        CliCommand::Kill(args) => args.reason.clone(),
        CliCommand::Service(args) => args.reason.clone(),
        CliCommand::Stop(args) => args.reason.clone(),
        CliCommand::Test(args) => args.reason.clone(),
        _ => None,
    };
    quell::binary::permit(policy, home.as_ref(), AccessRequest { verb: name, target, reason, job, mask })
}

/// The program of a command, without its arguments, which may be private.
pub fn program(command: &[OsString]) -> String {
    let program = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let names = settings().map_or(&[][..], |loaded| &loaded.config.start.mask);
    Environment::default().mask(names).apply(&program)
}

/// The selected jobs, as the caller named them.
fn selected(args: &StopArgs) -> String {
    let tags = args.tag.iter().map(|tag| format!("--tag {tag}"));
    let session = args.session.iter().map(|session| format!("--session {session}"));
    let all = args.all.then(|| "--all".to_owned());
    args.jobs.iter().cloned().chain(tags).chain(session).chain(all).collect::<Vec<_>>().join(" ")
}

/// The verb and its target; none for quell's own roles.
fn name(verb: &CliCommand) -> Option<(Verb, String)> {
    let jobs = |jobs: &[String]| jobs.join(" ");
    Some(match verb {
        CliCommand::Run(args) => (Verb::Run, program(&args.command)),
        CliCommand::Start(args) => (Verb::Start, program(&args.command)),
        CliCommand::Stop(args) => (Verb::Stop, selected(args)),
        CliCommand::Logs(_) => (Verb::Logs, String::new()),
        CliCommand::Events(_) => (Verb::Events, String::new()),
        CliCommand::Wait(args) => (Verb::Wait, jobs(&args.jobs)),
        CliCommand::Send(args) => (Verb::Send, args.job.clone()),
        CliCommand::Signal(args) => (Verb::Signal, args.job.clone()),
        CliCommand::Restart(args) => (Verb::Restart, jobs(&args.jobs)),
        CliCommand::List(_) => (Verb::List, String::new()),
        CliCommand::Status(_) => (Verb::Status, String::new()),
        CliCommand::Tree(_) => (Verb::Tree, String::new()),
        CliCommand::Stats(_) => (Verb::Stats, String::new()),
        CliCommand::Rm(args) => (Verb::Rm, jobs(&args.jobs)),
        CliCommand::Gc(_) => (Verb::Gc, String::new()),
        CliCommand::Sweep(_) => (Verb::Sweep, String::new()),
        CliCommand::Doctor(_) => (Verb::Doctor, String::new()),
        CliCommand::Config(_) => (Verb::Config, String::new()),
        CliCommand::Complete(_) => (Verb::List, String::new()),
        CliCommand::Completions(_) => (Verb::Completions, String::new()),
        CliCommand::Man(args) => (Verb::Man, args.dir.display().to_string()),
        CliCommand::Guard(_) => (Verb::Guard, String::new()),
        CliCommand::Kill(args) => (Verb::Kill, args.pid.clone()),
        CliCommand::Service(args) => (args.action.verb().verb(), args.name.clone()),
        CliCommand::Test(args) => (Verb::Test, program(&args.command)),
        // They ask the guard about the request that they read.
        CliCommand::Keep | CliCommand::Tell => return None,
        #[cfg(feature = "faults")]
        CliCommand::Points => return None,
    })
}
