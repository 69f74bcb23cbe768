//! The verbs, one file each. The guard is asked first.

mod complete;
mod completions;
mod config;
mod doctor;
mod events;
mod for_each_parallel;
mod gc;
mod guard;
mod guard_check;
mod interrupts;
mod job_selection;
mod kill;
mod list;
mod logs;
mod man;
mod mcp;
mod restart;
mod rm;
mod run;
mod send;
mod serve;
mod service;
mod setup;
mod signal;
mod start;
mod stats;
mod status;
mod stop;
mod sweep;
mod test;
mod top;
mod tree;
mod wait;
mod wrap;

use std::io;
use std::process::ExitCode;

use quell::Error;
use quell::binary::EventLog;
use serde::Serialize;

use crate::args::{self, CliCommand, OwnRole};
use crate::errors::{self, exit};
use crate::output;
use for_each_parallel::for_each_parallel;
pub use guard_check::hint_if_refused;
use guard_check::{Admitted, guard as guard_of};

/// Carries out a verb, and returns the exit code.
pub fn carry_out(verb: CliCommand) -> ExitCode {
    if let CliCommand::Role(role) = &verb {
        return carry_out_role(role);
    }
    // The audit line of a run or a wrap names its job, whose receipt has the rest.
    let job = match &verb {
        CliCommand::Run(args) if !args.no_record => quell::binary::new_job_id(),
        CliCommand::Wrap(args) if !args.no_record => quell::binary::new_job_id(),
        _ => None,
    };
    // What is refused writes nothing to the event log.
    let admitted = EventLog::from_variable().and_then(|log| {
        let admitted = guard_check::admit(&verb, job)?;
        log.map_or(Ok(()), |log| log.begin(&called()))?;
        Ok(admitted)
    });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(error) => return refused(&verb, &error),
    };
    match verb {
        CliCommand::Start(args) => start::start(admitted, args.0),
        CliCommand::Stop(args) => stop::stop(admitted, &args),
        CliCommand::Test(args) => test::test(admitted, args.0),
        CliCommand::Logs(args) => logs::logs(admitted, &args),
        CliCommand::Events(args) => events::events(admitted, &args),
        CliCommand::Wait(args) => wait::wait(admitted, &args),
        CliCommand::Send(args) => send::send(admitted, &args),
        CliCommand::Signal(args) => signal::signal(admitted, &args),
        CliCommand::Restart(args) => restart::restart(admitted, &args),
        CliCommand::List(args) => list::list(admitted, &args),
        CliCommand::Top(args) => top::top(admitted, &args),
        CliCommand::Status(args) => status::status(admitted, &args),
        CliCommand::Tree(args) => tree::tree(admitted, &args),
        CliCommand::Stats(args) => stats::stats(admitted, &args),
        CliCommand::Rm(args) => rm::rm(admitted, &args),
        CliCommand::Kill(args) => kill::kill(admitted, &args),
        CliCommand::Guard(args) => guard::guard(admitted, &args),
        CliCommand::Gc(args) => gc::gc(admitted, &args),
        CliCommand::Complete(args) => complete::complete(admitted, &args),
        CliCommand::Completions(args) => completions::completions(&args),
        CliCommand::Man(args) => man::man(&args),
        CliCommand::Mcp(args) => mcp::mcp(admitted, args.0),
        CliCommand::Serve(args) => serve::serve(admitted, args.0),
        CliCommand::Sweep(args) => sweep::sweep(admitted, &args),
        CliCommand::Service(args) => service::service(admitted, &args),
        CliCommand::Setup(args) => setup::setup(admitted, &args),
        CliCommand::Config(args) => config::config(&args),
        CliCommand::Run(args) => run::run(admitted, args.0, job),
        CliCommand::Wrap(args) => wrap::wrap(admitted, args.0, job),
        CliCommand::Doctor(args) => doctor::doctor(&args),
        CliCommand::Role(role) => carry_out_role(&role),
    }
}

/// Carries out a role, which reads the settings itself and asks the guard about its request.
fn carry_out_role(role: &OwnRole) -> ExitCode {
    // The process that calls the role has checked the variable, and a role has no output.
    if let Ok(Some(log)) = EventLog::from_variable() {
        let _ = log.begin(&called());
    }
    let done = match role {
        OwnRole::Keep => quell::binary::keeper_main(quell_test::check_request),
        OwnRole::NotifyHooks => quell::binary::notify_hooks_main(),
        #[cfg(feature = "faults")]
        OwnRole::Points => {
            let lines = quell::binary::fault_names().into_iter().map(|name| name + "\n");
            Ok(output::to_stdout(&lines.collect::<String>()).unwrap_or(ExitCode::SUCCESS))
        }
    };
    done.unwrap_or_else(|error| no_request(&error))
}

/// Prints why a verb is not carried out.
fn refused(verb: &CliCommand, error: &Error) -> ExitCode {
    // The other exit codes of `run` and `wrap` belong to their command.
    let (code, body) = match (verb, error) {
        (CliCommand::Run(_) | CliCommand::Wrap(_), Error::Start(error)) => {
            (exit::FAILED, errors::of_run(error).1)
        }
        (CliCommand::Run(_) | CliCommand::Wrap(_), _) => (exit::FAILED, errors::body(error)),
        _ => (errors::exit_code(error), errors::body(error)),
    };
    let json = args::wants_json(&crate::words());
    output::hide_by_settings();
    output::fail(&called(), json, code, &body)
}

/// Says that a role in which quell executes itself got no request.
fn no_request(error: &io::Error) -> ExitCode {
    let message = format!("can't read a request from standard input: {error}");
    let hint = "quell itself calls this; `quell start` starts a job";
    output::fail(&called(), false, exit::USAGE, &errors::said("bad_value", message, hint))
}

/// The verb as it was called.
fn called() -> String {
    crate::words().get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Prints an error and returns its exit code.
fn fail(verb: &str, json: bool, error: &Error) -> ExitCode {
    output::fail(verb, json, errors::exit_code(error), &errors::body(error))
}

/// A success as programs read it, on a line of its own.
fn envelope(verb: &str, data: &impl Serialize) -> String {
    format!("{}\n", quell::binary::success(verb, data))
}
