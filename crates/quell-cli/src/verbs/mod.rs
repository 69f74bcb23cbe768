//! The verbs about jobs, one file each.

mod complete;
mod completions;
mod config;
pub mod doctor;
mod events;
mod gc;
mod guard;
pub mod guard_check;
mod interrupts;
mod job_selection;
mod kill;
mod list;
mod logs;
mod man;
mod restart;
mod rm;
pub mod run;
mod send;
mod service;
mod signal;
mod start;
mod stats;
mod status;
mod stop;
mod sweep;
mod test;
mod tree;
mod wait;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use quell::binary::{EventLog, Home, QuellInternals};
use quell::{Error, Quell};
use serde::Serialize;

use crate::args::{self, CliCommand};
use crate::errors::{self, exit};
use crate::output;

/// Carries out a verb, and returns the exit code.
pub fn carry_out(verb: CliCommand) -> ExitCode {
    // The audit line of a run names its job, whose receipt has the rest.
    let job = match &verb {
        CliCommand::Run(args) if !args.no_record => quell::binary::new_job_id(),
        _ => None,
    };
    // The roles talk only to quell, and read the settings themselves.
    if !matches!(verb, CliCommand::Keep | CliCommand::Tell)
        && let Ok(loaded) = guard_check::settings()
    {
        output::hide(loaded.config.mask());
    }
    let log = match EventLog::from_variable() {
        // Their caller has checked it, and they have no output.
        Err(_) if matches!(verb, CliCommand::Keep | CliCommand::Tell) => Ok(None),
        log => log,
    };
    // What is refused writes nothing to the log.
    let admitted = log.and_then(|log| {
        guard_check::admit(&verb, job)?;
        log.map_or(Ok(()), |log| log.begin(&called()))
    });
    if let Err(error) = admitted {
        // The other exit codes of `run` belong to its command.
        let (code, body) = match (&verb, &error) {
            (CliCommand::Run(_), Error::Start(error)) => (exit::FAILED, errors::of_run(error).1),
            (CliCommand::Run(_), _) => (exit::FAILED, errors::body(&error)),
            _ => (errors::exit_code(&error), errors::body(&error)),
        };
        let json = args::wants_json(&std::env::args_os().collect::<Vec<_>>());
        return output::fail(&called(), json, code, &body);
    }
    match verb {
        CliCommand::Start(args) => start::start(args.0),
        CliCommand::Stop(args) => stop::stop(&args),
        CliCommand::Test(args) => test::test(args.0),
        CliCommand::Logs(args) => logs::logs(&args),
        CliCommand::Events(args) => events::events(&args),
        CliCommand::Wait(args) => wait::wait(&args),
        CliCommand::Send(args) => send::send(&args),
        CliCommand::Signal(args) => signal::signal(&args),
        CliCommand::Restart(args) => restart::restart(&args),
        CliCommand::List(args) => list::list(&args),
        CliCommand::Status(args) => status::status(&args),
        CliCommand::Tree(args) => tree::tree(&args),
        CliCommand::Stats(args) => stats::stats(&args),
        CliCommand::Rm(args) => rm::rm(&args),
        CliCommand::Kill(args) => kill::kill(&args),
        CliCommand::Guard(args) => guard::guard(&args),
        CliCommand::Gc(args) => gc::gc(&args),
        CliCommand::Complete(args) => complete::complete(&args),
        CliCommand::Completions(args) => completions::completions(&args),
        CliCommand::Man(args) => man::man(&args),
        CliCommand::Sweep(args) => sweep::sweep(&args),
        CliCommand::Service(args) => service::service(&args),
        CliCommand::Config(args) => config::config(&args),
        CliCommand::Keep => {
            quell::binary::keeper_main(quell_test::judge_request).unwrap_or_else(|error| no_request(&error))
        }
        CliCommand::Tell => quell::binary::notify_hooks_main().unwrap_or_else(|error| no_request(&error)),
        #[cfg(feature = "faults")]
        CliCommand::Points => {
            let lines = quell::binary::fault_names().into_iter().map(|name| name + "\n");
            output::to_stdout(&lines.collect::<String>()).unwrap_or(ExitCode::SUCCESS)
        }
        CliCommand::Run(args) => crate::verbs::run::run(args.0, job),
        CliCommand::Doctor(args) => crate::verbs::doctor::doctor(&args),
    }
}

/// Says that a role in which quell executes itself got no request.
fn no_request(error: &io::Error) -> ExitCode {
    let message = format!("can't read a request from standard input: {error}");
    let hint = "quell itself calls this; `quell start` starts a job";
    output::fail(&called(), false, exit::USAGE, &errors::said("bad_value", message, hint))
}

/// The verb as it was called.
fn called() -> String {
    std::env::args_os().nth(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The user's jobs, kept by this program.
fn quell() -> Result<Quell, Error> {
    let home = Home::find().ok_or(Error::NoHome)?;
    home.check().map_err(Error::io(home.dir()))?;
    let quell = quell::binary::open(home, "/proc/self/exe");
    Ok(match guard_check::permit() {
        Some(permit) => quell.permitted(permit.clone()),
        None => quell,
    })
}

/// Prints an error and returns its exit code.
fn fail(verb: &str, json: bool, error: &Error) -> ExitCode {
    output::fail(verb, json, errors::exit_code(error), &errors::body(error))
}

/// A success as programs read it, on a line of its own.
fn envelope(verb: &str, data: &impl Serialize) -> String {
    format!("{}\n", quell::binary::success(verb, data))
}

/// How many jobs are dealt with at the same time; each waits for its own tree.
const AT_ONCE: usize = 64;

/// Does the same with many jobs, some of them at a time, and passes each result to `each`, in the order of the jobs and as soon
/// as it is known. A single job needs no thread. If no threads can be started, one job after the other.
fn at_once<T: Send>(
    jobs: &[quell::Job],
    act: impl Fn(&quell::Job) -> Result<T, Error> + Sync,
    mut each: impl FnMut(&quell::Job, Result<T, Error>),
) {
    if let [job] = jobs {
        return each(job, act(job));
    }
    let (next, (tell, told)) = (AtomicUsize::new(0), mpsc::channel());
    let work = |tell: mpsc::Sender<(usize, Result<T, Error>)>| {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(job) = jobs.get(at)
        {
            let _ = tell.send((at, act(job)));
        }
    };
    std::thread::scope(|scope| {
        let worker = |_| {
            let (tell, work) = (tell.clone(), &work);
            quell::binary::thread().spawn_scoped(scope, move || work(tell)).is_ok()
        };
        if (0..AT_ONCE.min(jobs.len())).filter(|number| worker(*number)).count() == 0 {
            work(tell.clone());
        }
        drop(tell);
        let (mut done, mut shown) = (BTreeMap::new(), 0);
        for (at, result) in told {
            done.insert(at, result);
            while let Some(result) = done.remove(&shown) {
                each(&jobs[shown], result);
                shown += 1;
            }
        }
        // A thread that panicked has printed why.
        let failed = || Err(Error::Keeper("a thread of this command failed".into()));
        for (at, job) in jobs.iter().enumerate().skip(shown) {
            each(job, done.remove(&at).unwrap_or_else(failed));
        }
    });
}
