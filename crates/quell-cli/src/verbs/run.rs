//! `quell run`: a command in the foreground, and nothing of it left behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use quell_core::{
    Actor, Cause, Contain, ErrorBody, Hook, JobId, Leak, Limits, ProcId, RootOutcome, Signal, StopPlan,
    Until, Verdict, account, parse_environment,
};
use quell_keeper::{Environment, Finished, ReceiptTarget, RunError, RunRequest};
use serde_json::json;

use crate::args::{ContainArg, JobArgs, LeakArg, OwnerArg, RunArgs, UntilArg};
use crate::open_line;
use crate::output::{self, FAILED};

/// Exit code: not proven dead.
const SURVIVORS: u8 = 122;
/// Exit code: something outlived the command, and that was to be a failure.
const LEAKED: u8 = 123;
/// Exit code: timed out.
const TIMED_OUT: u8 = 124;

/// Runs the command and gives the exit code. `id` is that of the job, if it has one already.
pub fn run(args: RunArgs, id: Option<JobId>) -> ExitCode {
    let (json, quiet) = (args.json, args.quiet);
    if json && quell_sys::closed_at_start()[1] {
        let message = "stdout is closed, so --json has nowhere to write";
        return output::fail(
            "run",
            false,
            FAILED,
            &body("stdout_closed", message, "open it, or use --receipt FILE"),
        );
    }
    let request = match request(args) {
        Ok(request) => RunRequest { id, ..request },
        Err(error) => return output::fail("run", json, FAILED, &error),
    };
    let leak = request.leak;
    match quell_keeper::run(request) {
        Ok(finished) => report(&finished, leak, quiet, json),
        Err(error) => output::fail("run", json, error.exit_code(), &body_of(&error)),
    }
}

/// What is configured for all jobs.
pub struct Settings {
    /// How they are stopped.
    pub plan: StopPlan,
    /// How they are held.
    pub contain: Contain,
    /// What ends them.
    pub until: Until,
    /// What is done at their events.
    pub hooks: Vec<Hook>,
    /// The variables whose values are masked.
    pub mask: Vec<String>,
}

#[cfg(target_os = "linux")]
fn settings() -> Result<Settings, ErrorBody> {
    let config = &crate::verbs::guard_check::settings().map_err(|error| error.body())?.config;
    Ok(Settings {
        plan: config.stop,
        contain: config.start.contain,
        until: config.start.until,
        // Inside a job, the helper would be one of its processes, and count as left behind when the job ends.
        mask: config.start.mask.clone(),
        hooks: if quell::is_inside_a_job() { Vec::new() } else { hooks(&config.hooks) },
    })
}

/// The hooks that are configured; none for what a hook runs itself.
#[cfg(target_os = "linux")]
pub fn hooks(configured: &[Hook]) -> Vec<Hook> {
    if configured.is_empty() || quell_keeper::is_below_a_helper() { Vec::new() } else { configured.to_vec() }
}

#[cfg(not(target_os = "linux"))]
fn settings() -> Result<Settings, ErrorBody> {
    let (hooks, mask) = (Vec::new(), Vec::new());
    Ok(Settings {
        plan: StopPlan::default(),
        contain: Contain::default(),
        until: Until::default(),
        hooks,
        mask,
    })
}

/// What `run` and `start` have in common, over what is configured.
pub struct Common {
    pub cwd: Option<PathBuf>,
    pub environment: Environment,
    pub contain: Contain,
    pub limits: Limits,
    pub plan: StopPlan,
    pub timeout: Option<Duration>,
    pub until: Until,
    pub leak: Leak,
    pub name: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// The arguments that `run` and `start` have in common, checked.
pub fn common(args: JobArgs, settings: &Settings) -> Result<Common, ErrorBody> {
    let mut set: Vec<(OsString, OsString)> = Vec::new();
    for file in &args.env_file {
        set.extend(read_env_file(file)?);
    }
    set.extend(args.env.into_iter().map(|(key, value)| (key.into(), value.into())));
    let environment = Environment { clear: args.clear_env, set };
    output::hide(environment.mask(&settings.mask));
    Ok(Common {
        cwd: args.cwd,
        environment,
        contain: match args.contain {
            None => settings.contain,
            Some(ContainArg::Auto) => Contain::Auto,
            Some(ContainArg::Cgroup) => Contain::Cgroup,
            Some(ContainArg::Pidns) => Contain::Pidns,
            Some(ContainArg::Reaper) => Contain::Reaper,
        },
        limits: Limits { memory: args.limit_memory, procs: args.limit_procs, cpu: args.limit_cpu },
        plan: StopPlan {
            signal: args.signal.unwrap_or(settings.plan.signal),
            grace: args.grace.unwrap_or(settings.plan.grace),
            ask: args.ask.map_or(settings.plan.ask, Into::into),
            ..settings.plan
        },
        timeout: args.timeout,
        until: match args.until {
            None => settings.until,
            Some(UntilArg::Root) => Until::Root,
            Some(UntilArg::Tree) => Until::Tree,
        },
        leak: match args.leak {
            LeakArg::Stop => Leak::Stop,
            LeakArg::Report => Leak::Report,
            LeakArg::Fail => Leak::Fail,
        },
        name: args.name,
        tags: args.tag.into_iter().collect(),
    })
}

/// The process that is meant by `--owner`; none for a session.
#[cfg(target_os = "linux")]
pub fn owner(arg: &OwnerArg) -> Result<Option<ProcId>, quell::Error> {
    let this = std::process::id();
    let pid = match arg {
        OwnerArg::Session(_) => return Ok(None),
        OwnerArg::Pid(pid) => *pid,
        OwnerArg::Caller => quell::parent_of(this)?,
        OwnerArg::CallersParent => quell::parent_of(this).and_then(quell::parent_of)?,
    };
    quell::owner_process(pid).map(Some)
}

#[cfg(target_os = "linux")]
fn owner_of_run(arg: Option<&OwnerArg>) -> Result<Option<ProcId>, ErrorBody> {
    match arg {
        None => Ok(None),
        Some(OwnerArg::Session(_)) => {
            let message = "only a job in the background can be part of a session";
            Err(body("bad_value", message, "use `quell start --owner session:NAME`"))
        }
        Some(arg) => owner(arg).map_err(|error| error.body()),
    }
}

#[cfg(not(target_os = "linux"))]
fn owner_of_run(_arg: Option<&OwnerArg>) -> Result<Option<ProcId>, ErrorBody> {
    Ok(None)
}

fn request(args: RunArgs) -> Result<RunRequest, ErrorBody> {
    let owner = owner_of_run(args.owner.as_ref())?;
    let settings = settings()?;
    let common = common(args.job, &settings)?;
    let receipts =
        args.receipt.map(ReceiptTarget::File).into_iter().chain(args.receipt_fd.map(ReceiptTarget::Fd));
    Ok(RunRequest {
        id: None,
        command: args.command,
        cwd: common.cwd,
        environment: common.environment,
        contain: common.contain,
        limits: common.limits,
        plan: common.plan,
        timeout: common.timeout,
        until: common.until,
        leak: common.leak,
        name: common.name,
        tags: common.tags,
        receipts: receipts.collect(),
        uses_stdout: args.json,
        stdin: args.stdin.map(|path| if path.as_os_str() == "null" { "/dev/null".into() } else { path }),
        owner,
        hooks: settings.hooks,
        mask: settings.mask,
        background: None,
        home: if args.no_record { None } else { Some(home()?) },
    })
}

#[cfg(target_os = "linux")]
fn home() -> Result<PathBuf, ErrorBody> {
    let home = quell::Home::find().map(|home| home.dir().to_owned());
    home.ok_or_else(|| {
        body("no_home", "there is no place for the record", "set QUELL_HOME, or pass --no-record")
    })
}

#[cfg(not(target_os = "linux"))]
fn home() -> Result<PathBuf, ErrorBody> {
    Ok(PathBuf::new())
}

/// How large an environment file may be: more than the kernel lets a program have.
const ENV_FILE_CAP: u64 = 16 * 1024 * 1024;

fn read_env_file(file: &Path) -> Result<Vec<(OsString, OsString)>, ErrorBody> {
    let bad = |why: String| {
        let message = format!("can't use the environment file {}: {why}", file.display());
        body("bad_env_file", &message, "write one KEY=VALUE a line; lines that begin with # are comments")
    };
    // As far as an environment can get; a device has no end.
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(ENV_FILE_CAP).read_to_string(&mut text));
    if read.map_err(|error| bad(error.to_string()))? as u64 == ENV_FILE_CAP {
        return Err(bad(format!("it is larger than {ENV_FILE_CAP} bytes")));
    }
    let set = parse_environment(&text).map_err(|error| bad(error.to_string()))?;
    Ok(set.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

fn report(finished: &Finished, leak: Leak, quiet: bool, json: bool) -> ExitCode {
    let receipt = &finished.receipt;
    // A leak that is to be stopped and no more is one line for a program that reads stderr, and the tree for a person.
    let leaked = finished.leaked && receipt.outlived() > 0;
    let leak_shown = match leak {
        Leak::Stop => leaked && std::io::stderr().is_terminal(),
        Leak::Report | Leak::Fail => finished.leaked,
    };
    let timed_out = receipt.cause == Cause::Timeout;
    let shown = timed_out || leak_shown || receipt.killed() || receipt.verdict != Verdict::Gone;
    if shown && !quiet {
        output::to_stderr(&account::account(receipt, columns()));
    } else if leaked && !quiet {
        output::to_stderr(&format!("quell: {}\n", account::outlived(receipt.outlived() as u64)));
    }
    for warning in &receipt.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    if json {
        let end = if open_line::may_be_open() { "\n" } else { "" };
        let text = format!("{end}{}\n", quell_core::success("run", receipt));
        if let Some(code) = output::to_stdout(&text) {
            return code;
        }
    }
    if receipt.verdict != Verdict::Gone {
        return ExitCode::from(SURVIVORS);
    }
    if finished.unwritten {
        return ExitCode::from(FAILED);
    }
    if timed_out {
        return ExitCode::from(TIMED_OUT);
    }
    if finished.leaked && leak == Leak::Fail {
        return ExitCode::from(LEAKED);
    }
    // The root's own word is true, but the run was cut short by a loss of ours.
    if receipt.cause == Cause::KeeperLost
        && receipt.killed()
        && matches!(receipt.root.outcome, RootOutcome::Exited { .. })
    {
        return ExitCode::from(FAILED);
    }
    match receipt.root.outcome {
        RootOutcome::Exited { code } => ExitCode::from(code as u8),
        RootOutcome::Signaled { signal, .. } => {
            // A shell that waits for us goes on with its script unless it sees that its child died of Ctrl-C.
            if finished.interrupted && signal == Signal::INT {
                quell_sys::exit_by_signal(signal);
            }
            ExitCode::from(128 + signal.number() as u8)
        }
        // Stopped before its first instruction: as if the signal had met the program itself.
        RootOutcome::NotStarted { .. } => match receipt.actor {
            Actor::Sender { signal, .. } => ExitCode::from(128 + signal.number() as u8),
            Actor::Program | Actor::Client { .. } | Actor::Quell | Actor::Kernel | Actor::Unknown => {
                ExitCode::from(FAILED)
            }
        },
        RootOutcome::Unknown => ExitCode::from(FAILED),
    }
}

#[cfg(target_os = "linux")]
fn columns() -> Option<usize> {
    crate::render::columns_of(&std::io::stderr())
}

#[cfg(not(target_os = "linux"))]
fn columns() -> Option<usize> {
    None
}

fn body(code: &str, message: &str, hint: &str) -> ErrorBody {
    ErrorBody {
        code: code.into(),
        message: message.into(),
        hint: hint.into(),
        retryable: false,
        details: json!({}),
    }
}

pub fn body_of(error: &RunError) -> ErrorBody {
    ErrorBody { retryable: error.is_retryable(), ..body(error.code(), &error.to_string(), error.hint()) }
}
