//! `quell start`: a command in the background.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use quell::Passed;
use quell::answers::StartAnswer;
use quell::{Environment, Error, GcRules, Input, Job, Quell, Start, Waited};
use quell_core::{Leak, OnOwnerExit, ReadyRules, RestartPolicy};

use super::{envelope, fail, gc, guard_check, quell};
use crate::args::{OwnerArg, OwnerExitArg, RestartArg, StartArgs};
use crate::output;
use crate::render;
use crate::render::format;
use crate::verbs::run::{self, Settings};

/// Starts the command and prints the job's id.
pub fn start(args: StartArgs, passed: &Passed) -> ExitCode {
    let json = args.json;
    let program = guard_check::program(&args.command);
    let Request { wait_ready, start, gc } = match request(args) {
        Ok(request) => request,
        Err(code) => return code,
    };
    let quell = match quell() {
        Ok(quell) => quell,
        Err(error) => return fail("start", json, &error),
    };
    let started = quell.start(&start);
    passed.started(&program, &started);
    let job = match started {
        Ok(job) => job,
        Err(error) => return fail("start", json, &error),
    };
    let code = match wait_ready.map(|patience| job.wait_ready(patience)).transpose() {
        Ok(waited) => report(&job, json, waited),
        Err(error) => {
            let code = fail("start", json, &error);
            tell_running(&job);
            code
        }
    };
    tidy(&quell, gc);
    code
}

/// Removes a few old jobs, now that the caller has the id. The job runs whatever comes of this, so nothing is said.
fn tidy(quell: &Quell, rules: Option<GcRules>) {
    if let Some(rules) = rules {
        let _ = quell.tidy(&rules);
    }
}

/// Says what nobody could know otherwise: which job runs, though this call fails.
pub(super) fn tell_running(job: &Job) {
    let id = job.id();
    output::to_stderr(&format!("quell: the job runs all the same: {id} (`quell stop {id}` stops it)\n"));
}

fn report(job: &Job, json: bool, waited: Option<Waited>) -> ExitCode {
    let met = waited.as_ref().map(|waited| waited.met);
    let text = if json {
        envelope(
            "start",
            &StartAnswer { id: job.id(), job: job.view().ok(), last_lines: job.last_lines(met), met },
        )
    } else {
        format!("{}\n", job.id())
    };
    if let Some(code) = output::to_stdout(&text) {
        tell_running(job);
        return code;
    }
    let (code, words) = waited.map_or((0, String::new()), |waited| format::readiness(job, &waited));
    output::to_stderr(&words);
    ExitCode::from(code)
}

/// What was asked for, and what is configured beside it.
struct Request {
    /// How long readiness is waited for; none if it is not.
    wait_ready: Option<Duration>,
    start: Start,
    /// The rules of the gc that happens by itself, if it does.
    gc: Option<GcRules>,
}

/// Says which of the variables to be masked the job does not have: a slip would show a secret.
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

/// What was asked for, over what is configured.
fn request(args: StartArgs) -> Result<Request, ExitCode> {
    let json = args.json;
    let said = |error: Error| fail("start", json, &error);
    let loaded = guard_check::settings().map_err(said)?;
    for warning in &loaded.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    let config = loaded.config.clone();
    let settings = Settings {
        plan: config.stop,
        contain: config.start.contain,
        until: config.start.until,
        hooks: run::hooks(&config.hooks),
        mask: config.start.mask.iter().chain(&args.mask).cloned().collect(),
    };
    let common = run::common(args.job, &settings).map_err(|body| {
        output::fail("start", json, if body.code == "bad_env_file" { 2 } else { 125 }, &body)
    })?;
    if common.leak == Leak::Fail {
        let why =
            "--leak fail is about the exit code of `quell run`; `quell start` has given its own by then";
        return Err(said(Error::BadValue(why.into())));
    }
    let mut start = Start::new(args.command);
    start.cwd = common.cwd;
    start.environment = common.environment;
    (start.contain, start.limits, start.plan) = (common.contain, common.limits, common.plan);
    (start.timeout, start.until, start.leak) = (common.timeout, common.until, common.leak);
    (start.name, start.tags) = (common.name, common.tags);
    start.stdin = match args.stdin.to_str() {
        Some("null") => Input::Null,
        Some("pipe") => Input::Pipe,
        Some("-") => Input::Inherit,
        Some(_) | None => Input::File(PathBuf::from(args.stdin)),
    };
    start.pty = args.pty;
    start.max_log = args.max_log.unwrap_or(config.start.max_log);
    start.ready =
        ReadyRules { port: args.ready_port, log: args.ready_log, http: args.ready_http, cmd: args.ready_cmd };
    (start.ready_interval, start.ready_timeout) = (config.ready.interval, config.ready.timeout);
    start.restart = config.start.restart;
    if let Some(policy) = args.restart {
        start.restart.policy = match policy {
            RestartArg::No => RestartPolicy::No,
            RestartArg::OnFailure => RestartPolicy::OnFailure,
            RestartArg::Always => RestartPolicy::Always,
        };
    }
    if let Some(limit) = args.restart_limit {
        start.restart.limit = limit.0;
    }
    match &args.owner {
        None => {}
        Some(OwnerArg::Session(name)) => start.session = Some(name.clone()),
        Some(owner) => start.owner = run::owner(owner).map_err(said)?,
    }
    start.on_owner_exit = match args.on_owner_exit {
        None => config.start.on_owner_exit,
        Some(OwnerExitArg::Stop) => OnOwnerExit::Stop,
        Some(OwnerExitArg::Keep) => OnOwnerExit::Keep,
    };
    start.ttl = args.ttl;
    start.hooks = settings.hooks;
    warn_of_unknown(&args.mask, &start.environment);
    start.mask = settings.mask;
    let wait_ready = args.wait_ready.map(|wait| wait.0.unwrap_or(config.start.wait_ready));
    if wait_ready.is_some() && start.ready.is_empty() {
        let why = "--wait-ready needs something to wait for: --ready-port, --ready-log, --ready-http or --ready-cmd";
        return Err(said(Error::BadValue(why.into())));
    }
    let gc = config.gc.auto.then(|| gc::rules(&config.gc));
    Ok(Request { wait_ready, start, gc })
}
