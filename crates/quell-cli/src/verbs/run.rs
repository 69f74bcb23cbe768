//! `quell run`: a command in the foreground, and nothing of it left behind.

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use quell::binary::responses::RunLeft;
use quell::binary::{Finished, Left, Loaded, ReceiptTarget, Returned, StdoutUse, account, parse_environment};
use quell::{
    Actor, Cause, Error, ErrorBody, Foreground, JobId, JobRequest, Leak, Limits, Owner, ProcId, Receipt,
    RootOutcome, Signal, Until, Verdict,
};

use super::Admitted;
use crate::args::{JobArgs, OwnerArg, RunArgs, UntilArg};
use crate::errors::{self, exit};
use crate::open_line;
use crate::output;
use crate::render::{columns_of, format, printable};

/// Runs the command and returns the exit code. `id` is the id of the job, if it has one already.
pub fn run(admitted: Admitted, args: RunArgs, id: Option<JobId>) -> ExitCode {
    let (json, quiet) = (args.json, args.quiet);
    if json && quell::binary::closed_at_start()[1] {
        let message = "stdout is closed, so --json has nowhere to write";
        return output::fail(
            "run",
            false,
            exit::FAILED,
            &errors::said("stdout_closed", message, "open it, or use --receipt FILE"),
        );
    }
    let Some(permit) = admitted.permit else {
        return output::fail(
            "run",
            json,
            exit::FAILED,
            &errors::said("system", "the guard was not asked", "this is a bug"),
        );
    };
    let (request, home) = match request(admitted.settings, args, id) {
        Ok(request) => request,
        Err(error) => return output::fail("run", json, exit::FAILED, &error),
    };
    let (leak, owner) = (request.leak, request.owner());
    match quell::binary::run(request, home, &permit) {
        Ok(Returned::Finished(finished)) => report(&finished, leak, quiet, json),
        Ok(Returned::Left(left)) => report_left(&left, owner, quiet, json),
        Err(error) => {
            let (code, error) = errors::of_run(&error);
            output::fail("run", json, code, &error)
        }
    }
}

pub fn configure_run(request: &mut JobRequest, settings: Result<Loaded, Error>) -> Result<(), Error> {
    settings?.config.configure(request);
    if request.session.is_none() {
        request.session = quell::binary::own_session()?;
    }
    if quell::binary::is_inside_a_job() {
        // The helper would be one of that job's processes, and count as left behind when the job ends.
        request.hooks.clear();
    }
    Ok(())
}

/// Puts the common arguments of `run` and `start` into `request`, over the settings.
pub fn apply(args: JobArgs, request: &mut JobRequest) -> Result<(), ErrorBody> {
    for file in &args.env_file {
        request.env.set.extend(read_env_file(file)?);
    }
    request.env.set.extend(args.env.into_iter().map(|(key, value)| (key.into(), value.into())));
    request.env.clear = args.clear_env;
    output::hide(request.masked_values());
    request.cwd = args.cwd;
    request.contain = args.contain.map_or(request.contain, Into::into);
    request.limits = Limits { memory: args.limit_memory, procs: args.limit_procs, cpu: args.limit_cpu };
    let stop = &mut request.stop;
    stop.signal = args.signal.unwrap_or(stop.signal);
    stop.grace = args.grace.unwrap_or(stop.grace);
    stop.ask = args.ask.map_or(stop.ask, Into::into);
    request.timeout = args.timeout;
    request.until = match args.until {
        None => request.until,
        Some(UntilArg::Root) => Until::Root,
        Some(UntilArg::Tree) => Until::Tree,
    };
    request.leak = args.leak.into();
    request.name = args.name;
    request.tags = args.tag.into_iter().collect();
    Ok(())
}

/// The process that `--owner` names; none for a session.
pub fn owner(arg: &OwnerArg) -> Result<Option<ProcId>, Error> {
    let this = std::process::id();
    let pid = match arg {
        OwnerArg::Session(_) => return Ok(None),
        OwnerArg::Pid(pid) => *pid,
        OwnerArg::Caller => quell::parent_of(this)?,
        OwnerArg::CallersParent => quell::parent_of(this).and_then(quell::parent_of)?,
    };
    quell::owner_process(pid).map(Some)
}

/// The request, options over settings; and the directory of its record.
fn request(
    settings: Result<Loaded, Error>,
    args: RunArgs,
    id: Option<JobId>,
) -> Result<(JobRequest, Option<PathBuf>), ErrorBody> {
    let owner = match &args.owner {
        Some(arg) => owner(arg),
        None if keeps_left(&args) => default_owner().map(Some),
        None => Ok(None),
    };
    let owner =
        owner.and_then(|owner| check_keep(&args).map(|()| owner)).map_err(|error| errors::body(&error))?;
    let file = args.receipt.map(ReceiptTarget::File);
    let foreground = Foreground {
        id,
        stdin: args.stdin.map(|path| if path.as_os_str() == "null" { "/dev/null".into() } else { path }),
        owner,
        receipts: file.into_iter().chain(args.receipt_fd.map(ReceiptTarget::Fd)).collect(),
        stdout: if args.json { StdoutUse::KeepForResult } else { StdoutUse::Release },
        server: None,
    };
    let mut request = JobRequest::new(args.command, foreground);
    request.session = args.session.or_else(|| args.owner.as_ref().and_then(OwnerArg::session));
    configure_run(&mut request, settings).map_err(|error| errors::body(&error))?;
    apply(args.job, &mut request)?;
    // For the jobs that the command starts.
    request.env.set.extend(request.session.iter().map(|session| ("QUELL_SESSION".into(), session.into())));
    Ok((request, if args.no_record { None } else { Some(home()?) }))
}

fn keeps_left(args: &RunArgs) -> bool {
    Leak::from(args.job.leak) == Leak::Keep
}

/// What `--leak keep` lives for by default: the process that has called this one, or the first one above it that does more than wait
/// for what it has started. A shell that runs one command for an agent exits too soon.
fn default_owner() -> Result<ProcId, Error> {
    let found = quell::binary::clients()?.last().map(|client| client.id);
    let none = "--leak keep has no process to live for, as this one was started by the system: name one with --owner PID";
    found.ok_or_else(|| Error::BadValue(none.into()))
}

/// Refuses options that contradict `--leak keep`.
fn check_keep(args: &RunArgs) -> Result<(), Error> {
    let why = match args {
        _ if !keeps_left(args) => return Ok(()),
        RunArgs { no_record: true, .. } => {
            "--leak keep needs a record, by which what is left is found and stopped: leave out --no-record"
        }
        RunArgs { receipt_fd: Some(_), .. } => {
            "--leak keep can't write to --receipt-fd, which quell would hold open after its return: use --receipt FILE"
        }
        RunArgs { job: JobArgs { until: Some(_), .. }, .. } => {
            "--leak keep returns at the exit of the command and keeps the rest: leave out --until"
        }
        _ => return Ok(()),
    };
    Err(Error::BadValue(why.into()))
}

pub fn home() -> Result<PathBuf, ErrorBody> {
    let home = quell::binary::Home::find().map(|home| home.dir().to_owned());
    home.ok_or_else(|| {
        errors::said("no_home", "there is no place for the record", "set QUELL_HOME, or pass --no-record")
    })
}

/// How large an environment file may be: more than the kernel lets a program have.
const ENV_FILE_CAP: u64 = 16 * 1024 * 1024;

fn read_env_file(file: &Path) -> Result<Vec<(OsString, OsString)>, ErrorBody> {
    let error = |why: String, hint: &str| {
        let message = format!("can't use the environment file {}: {why}", file.display());
        errors::said("bad_env_file", &message, hint)
    };
    let bad = |why| error(why, "write one KEY=VALUE a line; lines that begin with # are comments");
    // Up to the limit: a device has no end.
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(ENV_FILE_CAP).read_to_string(&mut text));
    let read = read.map_err(|failed| match failed.kind() {
        std::io::ErrorKind::InvalidData => bad("it is not UTF-8".into()),
        _ => error(failed.to_string(), "give a file that exists and that you may read"),
    })?;
    if read as u64 == ENV_FILE_CAP {
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
        // The tree was stopped together with its command.
        Leak::Keep => false,
    };
    let timed_out = receipt.cause == Cause::Timeout;
    let shown = timed_out || leak_shown || receipt.killed() || receipt.verdict != Verdict::Gone;
    if shown && !quiet {
        output::to_stderr(&account::account(receipt, columns_of(&std::io::stderr())));
    } else if leaked && !quiet {
        output::to_stderr(&format!("quell: {}\n", account::outlived(receipt.outlived() as u64)));
    } else if let Some(why) = why_stopped(receipt).filter(|_| !quiet) {
        output::to_stderr(&format!("quell: stopped {why}\n"));
    }
    for warning in &receipt.warnings {
        output::to_stderr(&format!("quell: {warning}\n"));
    }
    if json {
        let end = if open_line::may_be_open() { "\n" } else { "" };
        let text = format!("{end}{}\n", quell::binary::success("run", receipt));
        if let Some(code) = output::to_stdout(&text) {
            return code;
        }
    }
    if receipt.verdict != Verdict::Gone {
        return ExitCode::from(exit::RUN_NOT_PROVEN_DEAD);
    }
    if finished.unwritten {
        let how = format::outcome(&receipt.root.outcome);
        output::to_stderr(&format!(
            "quell: the command {how}; quell exits with {}, because its receipt is missing\n",
            exit::FAILED
        ));
        return ExitCode::from(exit::FAILED);
    }
    if timed_out {
        return ExitCode::from(exit::RUN_TIMED_OUT);
    }
    if finished.leaked && leak == Leak::Fail {
        return ExitCode::from(exit::RUN_LEAKED);
    }
    root_code(finished)
}

/// Reports that the command has exited, and that what it left goes on.
fn report_left(left: &Left, owner: Option<Owner>, quiet: bool, json: bool) -> ExitCode {
    let id = left.id;
    match left.count {
        _ if quiet => {}
        // They were exiting.
        0 => {}
        1 => {
            output::to_stderr(&format!("quell: 1 process goes on as job {id}; `quell stop {id}` stops it\n"))
        }
        count => output::to_stderr(&format!(
            "quell: {count} processes go on as job {id}; `quell stop {id}` stops them\n"
        )),
    }
    if json {
        let end = if open_line::may_be_open() { "\n" } else { "" };
        let text = format!("{end}{}\n", quell::binary::success("run", &RunLeft::new(left, owner)));
        if let Some(code) = output::to_stdout(&text) {
            return code;
        }
    }
    own_code(&left.outcome, left.interrupted).unwrap_or(ExitCode::from(exit::FAILED))
}

/// The exit code that stands for the outcome of a command that has run.
fn own_code(outcome: &RootOutcome, interrupted: bool) -> Option<ExitCode> {
    match outcome {
        RootOutcome::Exited { code } => Some(ExitCode::from(*code as u8)),
        RootOutcome::Signaled { signal, .. } => {
            // A shell that waits for us goes on with its script unless it sees that its child died of Ctrl-C.
            if interrupted && *signal == Signal::INT {
                quell::binary::exit_by_signal(*signal);
            }
            Some(ExitCode::from(128 + signal.number() as u8))
        }
        RootOutcome::NotStarted { .. } | RootOutcome::Unknown => None,
    }
}

/// The exit code for a command that is proven gone.
pub fn root_code(finished: &Finished) -> ExitCode {
    let receipt = &finished.receipt;
    // The root's exit code is true, but quell lost a process and cut the run short.
    if receipt.cause == Cause::KeeperLost
        && receipt.killed()
        && matches!(receipt.root.outcome, RootOutcome::Exited { .. })
    {
        return ExitCode::from(exit::FAILED);
    }
    if let Some(code) = own_code(&receipt.root.outcome, finished.interrupted) {
        return code;
    }
    match (&receipt.root.outcome, &receipt.actor) {
        // Stopped before its first instruction: as if the program itself had got the signal.
        (RootOutcome::NotStarted { .. }, Actor::Sender { signal, .. }) => {
            ExitCode::from(128 + signal.number() as u8)
        }
        (RootOutcome::NotStarted { .. }, Actor::Client { .. }) => {
            ExitCode::from(128 + Signal::TERM.number() as u8)
        }
        _ => ExitCode::from(exit::FAILED),
    }
}

/// Why another process ended the run, if one did.
fn why_stopped(receipt: &Receipt) -> Option<String> {
    match receipt.cause {
        Cause::User if receipt.actor == Actor::Kernel => Some("because its terminal hung up".to_owned()),
        Cause::User => format::actor(&receipt.actor).map(|actor| printable(&format!("by {actor}"))),
        Cause::OwnerGone => {
            let owner = format::actor(&receipt.actor).map(|actor| format!(" ({actor})")).unwrap_or_default();
            Some(printable(&format!("because its owner is gone{owner}")))
        }
        _ => None,
    }
}
