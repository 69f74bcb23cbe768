//! `quell start`: a command in the background.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use quell::binary::responses::StartAnswer;
use quell::binary::{JobInternals, Loaded};
use quell::units::format_duration;
use quell::{
    Background, Condition, Environment, Error, GcRules, Job, JobRequest, Leak, OnOwnerExit, Owner, Quell,
    ReadyCheck, ReadyRules, RestartPolicy, Stdin, Waited,
};

use super::interrupts::Interrupts;
use super::{Admitted, envelope, fail};
use crate::args::{OwnerArg, OwnerExitArg, RestartArg, StartArgs};
use crate::output;
use crate::progress::Progress;
use crate::render;
use crate::render::format;
use crate::verbs::run;

/// Starts the command and prints the job's id.
pub fn start(admitted: Admitted, args: StartArgs) -> ExitCode {
    let json = args.json;
    let Wanted { wait_ready, request, gc } = match wanted(admitted.settings, args) {
        Ok(wanted) => wanted,
        Err(code) => return code,
    };
    let quell = match admitted.quell {
        Ok(quell) => quell,
        Err(error) => return fail("start", json, &error),
    };
    // The one object comes after the wait: a signal must not keep the id from the caller.
    let interrupts = (json && wait_ready.is_some()).then(Interrupts::hold);
    let job = match quell.start(&request) {
        Ok(job) => job,
        Err(error) => return fail("start", json, &error),
    };
    let code = match (wait_ready, interrupts) {
        (None, _) => print(&job, json, None).unwrap_or(ExitCode::SUCCESS),
        (Some(patience), Some(interrupts)) => wait_with_json(&job, patience, interrupts),
        (Some(patience), None) => wait(&job, patience),
    };
    auto_gc(&quell, gc);
    code
}

/// Prints the id, and then waits until the job is ready.
fn wait(job: &Job, patience: Duration) -> ExitCode {
    if let Some(code) = print(job, false, None) {
        return code;
    }
    let waited = {
        let name = format::job(job);
        let _progress = Progress::show(true, move |passed| {
            let [passed, limit] =
                [passed, patience].map(|time| format_duration(Duration::from_secs(time.as_secs())));
            format!("quell: waiting until {name} is ready ({passed} of {limit})")
        });
        job.wait_for_readiness(patience)
    };
    waited.map_or_else(|error| fail("start", false, &error), |waited| report(job, &waited))
}

/// Waits until the job is ready, and prints the one object: also if a signal ends the wait.
fn wait_with_json(job: &Job, patience: Duration, mut interrupts: Interrupts) -> ExitCode {
    let interrupted = job.clone();
    interrupts.exit_after(move || {
        let _ = print(&interrupted, true, Some(Condition::Nothing));
    });
    let waited = job.wait_for_readiness(patience);
    interrupts.finish();
    match waited {
        Ok(waited) => print(job, true, Some(waited.met)).unwrap_or_else(|| report(job, &waited)),
        Err(error) => {
            let code = fail("start", true, &error);
            report_running(job);
            code
        }
    }
}

/// Removes a few old jobs, after the caller got the id. The job runs whether this fails or not, so errors are not printed.
fn auto_gc(quell: &Quell, rules: Option<GcRules>) {
    if let Some(rules) = rules {
        let _ = quell.auto_gc(&rules);
    }
}

/// Names the job that runs although this call fails: the caller could not learn it otherwise.
pub(super) fn report_running(job: &Job) {
    let id = job.id();
    output::to_stderr(&format!("quell: the job runs all the same: {id} (`quell stop {id}` stops it)\n"));
}

/// Prints the job: its id, or the object. Returns the exit code of an error.
fn print(job: &Job, json: bool, met: Option<Condition>) -> Option<ExitCode> {
    let text =
        if json { envelope("start", &StartAnswer::new(job, None, met)) } else { format!("{}\n", job.id()) };
    output::to_stdout(&text).inspect(|_| report_running(job))
}

/// Prints how the wait for readiness ended.
fn report(job: &Job, waited: &Waited) -> ExitCode {
    let (code, words) = format::readiness(job, waited);
    output::to_stderr(&words);
    ExitCode::from(code)
}

/// The request, and settings that are not part of it.
struct Wanted {
    /// How long to wait for readiness; none for no wait.
    wait_ready: Option<Duration>,
    request: JobRequest,
    /// The rules of the automatic gc, if it is on.
    gc: Option<GcRules>,
}

/// Warns about variables to be masked that the job does not have: a misspelled name would show a secret.
fn warn_of_unknown(mask: &[String], environment: &Environment) {
    let set = |name: &str| environment.set.iter().any(|(key, _)| key == name);
    let inherited = |name: &str| !environment.clear && std::env::var_os(name).is_some();
    for name in mask.iter().filter(|name| !set(name) && !inherited(name)) {
        let name = render::printable(name);
        output::to_stderr(&format!(
            "quell: --mask {name}: the job has no such variable, so nothing is masked\n"
        ));
    }
}

/// The request: options over settings.
fn wanted(settings: Result<Loaded, Error>, args: StartArgs) -> Result<Wanted, ExitCode> {
    let json = args.json;
    let said = |error: Error| fail("start", json, &error);
    let loaded = settings.map_err(said)?;
    for warning in &loaded.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let config = loaded.config;
    let mut background = Background {
        stdin: match args.stdin {
            Some(word) if word == "null" && args.pty => {
                let why =
                    "a terminal is its own standard input, so it can't be null: leave out --stdin or --pty";
                return Err(said(Error::BadValue(why.into())));
            }
            None => Stdin::Null,
            Some(word) if word == "null" => Stdin::Null,
            Some(word) if word == "pipe" => Stdin::Pipe,
            Some(word) if word == "-" => Stdin::Inherited,
            Some(file) => Stdin::File(PathBuf::from(file)),
        },
        pty: args.pty,
        max_log: args.max_log.unwrap_or(config.start.max_log),
        ready: ReadyCheck {
            rules: ReadyRules {
                port: args.ready_port,
                log: args.ready_log,
                http: args.ready_http,
                cmd: args.ready_cmd,
            },
            interval: config.ready.interval,
            timeout: config.ready.timeout,
        },
        restart: config.start.restart,
        on_owner_exit: match args.on_owner_exit {
            None => config.start.on_owner_exit,
            Some(OwnerExitArg::Stop) => OnOwnerExit::Stop,
            Some(OwnerExitArg::Keep) => OnOwnerExit::Keep,
        },
        ttl: args.ttl,
        ..Background::default()
    };
    if let Some(policy) = args.restart {
        background.restart.policy = match policy {
            RestartArg::No => RestartPolicy::No,
            RestartArg::OnFailure => RestartPolicy::OnFailure,
            RestartArg::Always => RestartPolicy::Always,
        };
    }
    if let Some(limit) = args.restart_limit {
        background.restart.limit = limit.0;
    }
    if let Some(owner) = &args.owner {
        background.owner = run::owner(owner).map_err(said)?.map(|id| Owner::Process { id });
    }
    let has_sign = !background.ready.rules.is_empty();
    let mut request = JobRequest::new(args.command, background);
    request.session = args.owner.as_ref().and_then(OwnerArg::session);
    config.configure(&mut request);
    request.mask.extend(args.mask.iter().cloned());
    run::apply(args.job, &mut request).map_err(|body| {
        output::fail("start", json, if body.code == "bad_env_file" { 2 } else { 125 }, &body)
    })?;
    if request.leak == Leak::Keep {
        let why = "--leak keep is about the return of `quell run`; with `quell start`, --until tree keeps what the command leaves";
        return Err(said(Error::BadValue(why.into())));
    }
    if request.leak == Leak::Fail {
        let why =
            "--leak fail is about the exit code of `quell run`; `quell start` has given its own by then";
        return Err(said(Error::BadValue(why.into())));
    }
    warn_of_unknown(&args.mask, &request.env);
    let wait_ready = args.wait_ready.map(|wait| wait.0.unwrap_or(config.start.wait_ready));
    if wait_ready.is_some() && !has_sign {
        let why = "--wait-ready needs something to wait for: --ready-port, --ready-log, --ready-http or --ready-cmd";
        return Err(said(Error::BadValue(why.into())));
    }
    let gc = config.gc.auto.then(|| config.gc.rules());
    Ok(Wanted { wait_ready, request, gc })
}
