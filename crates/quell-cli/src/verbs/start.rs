//! `quell start`: a command in the background.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use quell::binary::JobInternals;
use quell::binary::responses::StartAnswer;
use quell::{
    Background, Environment, Error, GcRules, Job, JobRequest, Leak, OnOwnerExit, Owner, Quell, ReadyCheck,
    ReadyRules, RestartPolicy, Stdin, Waited,
};

use super::{envelope, fail, gc, guard_check, quell};
use crate::args::{OwnerArg, OwnerExitArg, RestartArg, StartArgs};
use crate::output;
use crate::render;
use crate::render::format;
use crate::verbs::run;

/// Starts the command and prints the job's id.
pub fn start(args: StartArgs) -> ExitCode {
    let json = args.json;
    let program = guard_check::program(&args.command);
    let Wanted { wait_ready, request, gc } = match wanted(args) {
        Ok(wanted) => wanted,
        Err(code) => return code,
    };
    let quell = match quell() {
        Ok(quell) => quell,
        Err(error) => return fail("start", json, &error),
    };
    let started = quell.start(&request);
    if let Some(permit) = guard_check::permit() {
        quell::binary::record_start(permit, &program, &started);
    }
    let job = match started {
        Ok(job) => job,
        Err(error) => return fail("start", json, &error),
    };
    let code = match wait_ready.map(|patience| job.wait_for_readiness(patience)).transpose() {
        Ok(waited) => report(&job, json, waited),
        Err(error) => {
            let code = fail("start", json, &error);
            report_running(&job);
            code
        }
    };
    auto_gc(&quell, gc);
    code
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

fn report(job: &Job, json: bool, waited: Option<Waited>) -> ExitCode {
    let met = waited.as_ref().map(|waited| waited.met);
    let text =
        if json { envelope("start", &StartAnswer::new(job, None, met)) } else { format!("{}\n", job.id()) };
    if let Some(code) = output::to_stdout(&text) {
        report_running(job);
        return code;
    }
    let (code, words) = waited.map_or((0, String::new()), |waited| format::readiness(job, &waited));
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
fn wanted(args: StartArgs) -> Result<Wanted, ExitCode> {
    let json = args.json;
    let said = |error: Error| fail("start", json, &error);
    let loaded = guard_check::settings().map_err(said)?;
    for warning in &loaded.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let config = loaded.config.clone();
    let mut background = Background {
        stdin: match args.stdin.to_str() {
            Some("null") => Stdin::Null,
            Some("pipe") => Stdin::Pipe,
            Some("-") => Stdin::Inherited,
            Some(_) | None => Stdin::File(PathBuf::from(args.stdin)),
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
    run::configure(&mut request, &config);
    request.mask.extend(args.mask.iter().cloned());
    run::apply(args.job, &mut request).map_err(|body| {
        output::fail("start", json, if body.code == "bad_env_file" { 2 } else { 125 }, &body)
    })?;
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
    let gc = config.gc.auto.then(|| gc::rules(&config.gc));
    Ok(Wanted { wait_ready, request, gc })
}
