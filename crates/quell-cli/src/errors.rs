//! What each error means on the command line: its exit code and what to do about it. The library knows neither.

use exit::{FAILED, NO, NOT_EXECUTABLE, PROGRAM_NOT_FOUND};
use quell::binary::ExecRemedy;
use quell::{ErrorBody, StartError};
use serde_json::json;

#[cfg(target_os = "linux")]
pub use linux::{body, body_of_send, exit_code, hint, of_setup};

/// The exit codes of quell's verbs. `run` passes on that of its command, so its own begin at 122.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "most verbs are not built there yet"))]
pub mod exit {
    /// The answer is no: a job in the wrong state, a failed test, a service that does not run.
    pub const NO: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_FOUND: u8 = 3;
    pub const REFUSED: u8 = 4;
    pub const NOT_PROVEN_DEAD: u8 = 5;
    pub const TIMED_OUT: u8 = 6;
    /// `run`: processes of the job are not proven dead.
    pub const RUN_NOT_PROVEN_DEAD: u8 = 122;
    /// `run --leak fail`: processes outlived the command.
    pub const RUN_LEAKED: u8 = 123;
    /// `run`, `test`: the time was up.
    pub const RUN_TIMED_OUT: u8 = 124;
    /// quell itself could not do its work.
    pub const FAILED: u8 = 125;
    pub const NOT_EXECUTABLE: u8 = 126;
    pub const PROGRAM_NOT_FOUND: u8 = 127;
}

const SYSTEM_LIMITS: &str = "look at the system's limits (processes, open files, memory) and try again";

/// An error that only the command line has.
pub fn said(code: &str, message: impl Into<String>, hint: impl Into<String>) -> ErrorBody {
    let (code, message, hint) = (code.into(), message.into(), hint.into());
    ErrorBody { code, message, hint, retryable: false, details: json!({}) }
}

/// The exit code and the error of a `run` that could not be started.
pub fn of_run(error: &StartError) -> (u8, ErrorBody) {
    let (exit_code, hint) = start_row(error);
    let body = said(error.code(), error.to_string(), hint);
    // This code is one of the command itself.
    let exit_code = if exit_code == NO { FAILED } else { exit_code };
    (exit_code, ErrorBody { retryable: error.is_retryable(), ..body })
}

fn start_row(error: &StartError) -> (u8, &'static str) {
    match error {
        StartError::NotFound(_) => {
            (PROGRAM_NOT_FOUND, "check the name and PATH, or give the path of the file")
        }
        StartError::NotExecutable { remedy, .. } => (NOT_EXECUTABLE, exec_hint(*remedy)),
        StartError::Directory(_) => (NOT_EXECUTABLE, "name a program in it"),
        StartError::NoInterpreter { .. } => {
            (NOT_EXECUTABLE, "install that interpreter, or name another one first")
        }
        StartError::MaskedName => (FAILED, "`start.mask` says which variables are masked"),
        StartError::Cwd { .. } => (FAILED, "give --cwd a directory that exists and that you may enter"),
        StartError::Nul(_) => (FAILED, "leave the NUL byte out"),
        StartError::Proc(_) => (FAILED, "mount a /proc of this PID namespace (unshare has --mount-proc)"),
        StartError::Containment(_) => {
            (FAILED, "`quell doctor` says what this host can do; `--contain auto` takes the best of it")
        }
        StartError::Limit(_) => (
            FAILED,
            "a limit needs a cgroup (no `--contain reaper` or `pidns`) and its controller: `quell doctor` shows what this host lacks",
        ),
        StartError::NameTaken { .. } => (NO, "choose another name, or stop that job first"),
        StartError::OwnerGone(_) => (FAILED, "give --owner a process that is alive"),
        StartError::Stdin { .. } => (FAILED, "give --stdin a file that exists and that you may read"),
        StartError::Record { .. } => (
            FAILED,
            "set QUELL_HOME to a directory that you may write and that has free space, or pass --no-record",
        ),
        StartError::Receipt { target, .. } if target.starts_with(quell::binary::DESCRIPTOR) => {
            (FAILED, "open that descriptor for quell, such as `99>FILE`, or use --receipt FILE")
        }
        StartError::Receipt { .. } => {
            (FAILED, "give a path whose directory exists and that you may write; a FIFO needs a reader first")
        }
        StartError::Start(_) | StartError::System { .. } => (FAILED, SYSTEM_LIMITS),
        StartError::Stopped(_) => {
            (FAILED, "start it again if it should run; if its time was up, give it more")
        }
        StartError::Unsupported(_) => (FAILED, "run it on Linux"),
    }
}

fn exec_hint(remedy: ExecRemedy) -> &'static str {
    match remedy {
        ExecRemedy::Right => "make it executable (chmod +x), or name its interpreter first",
        ExecRemedy::ShorterArguments => {
            "pass long data in a file or standard input, or use fewer variables: arguments and environment share one limit"
        }
        ExecRemedy::ClosedFile => "a process has the file open for writing: close it there, and try again",
        ExecRemedy::FewerLinks => {
            "look where its symbolic links lead, or the interpreters of its `#!` line: they never end, or are too many"
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, ErrorKind};

    use quell::Error;
    use quell::ErrorBody;
    use quell::StartError;
    use quell_guard::{Error as Host, Verb};
    use quell_setup::Error as SetupError;

    use crate::output::SEE_HELP;

    use super::exit::{FAILED, NO, NOT_FOUND, NOT_PROVEN_DEAD, REFUSED, TIMED_OUT, USAGE};
    use super::start_row;

    /// The exit code of a verb that fails with it.
    pub fn exit_code(error: &Error) -> u8 {
        row(error).0
    }

    /// What to do about it.
    pub fn hint(error: &Error) -> String {
        row(error).1
    }

    /// The error as programs read it.
    pub fn body(error: &Error) -> ErrorBody {
        ErrorBody {
            code: error.code().into(),
            message: error.to_string(),
            hint: hint(error),
            retryable: error.is_retryable(),
            details: error.details(),
        }
    }

    /// The same for `send`: a job that takes no input was started without one.
    pub fn body_of_send(error: &Error) -> ErrorBody {
        let body = body(error);
        match error {
            Error::State(_) => {
                let hint =
                    "only a running job that was started with --stdin pipe or --pty takes input".into();
                ErrorBody { hint, ..body }
            }
            _ => body,
        }
    }

    fn row(error: &Error) -> (u8, String) {
        let (exit_code, hint) = match error {
            Error::Refused(decision) => (REFUSED, decision.hint.as_str()),
            Error::Host(error) => host_row(error),
            Error::NoSuchJob(job) if job.len() < quell::binary::SHORTEST_PREFIX => {
                (NOT_FOUND, "give at least 4 characters of an id; `quell list --all` shows all jobs")
            }
            Error::NoSuchJob(_) => (NOT_FOUND, "`quell list --all` shows all jobs"),
            Error::Ambiguous { ids, .. } => {
                return (USAGE, format!("give more of an id: {}", ids.join(", ")));
            }
            Error::InvalidJob(_) => (
                USAGE,
                "an id is 26 letters and digits, or the first of them; a name has letters, digits, `.`, `-`, `_`",
            ),
            Error::State(_) => (NO, "`quell status` shows its state"),
            Error::NoReadyCheck(_) => {
                (NO, "start it with --ready-port, --ready-log, --ready-http or --ready-cmd")
            }
            Error::KeptElsewhere { id, home, .. } => {
                return (NO, format!("stop it with `QUELL_HOME={} quell stop {id}`", home.display()));
            }
            Error::NotProvenDead(_) => {
                let refused = crate::verbs::hint_if_refused(Verb::Stop);
                return (NOT_PROVEN_DEAD, refused.unwrap_or_else(|| "`quell stop` tries again".into()));
            }
            Error::TimedOut(_) => (TIMED_OUT, "wait again, or longer"),
            Error::NotRead { .. } => {
                (TIMED_OUT, "send the rest when the program reads again, or wait longer")
            }
            Error::BadValue(_) => (USAGE, SEE_HELP),
            Error::Variable { hint, .. }
            | Error::UnknownVariable { hint, .. }
            | Error::Config { hint, .. } => (USAGE, hint.as_str()),
            // `--no-record` is an option of `quell run` alone.
            Error::Start(StartError::Record { .. }) => {
                (FAILED, "set QUELL_HOME to a directory that you may write and that has free space")
            }
            Error::Start(error) => start_row(error),
            Error::EndNotRecorded { .. } => (
                FAILED,
                "make it writable and check that there is space; then `quell sweep` puts the end on record",
            ),
            Error::Io { path, error }
                if error.kind() == ErrorKind::InvalidData && path.ends_with("spec.json") =>
            {
                (
                    FAILED,
                    "it is damaged, or another version of quell wrote it; `quell stop` and `quell rm` work",
                )
            }
            Error::Io { error, .. } => (FAILED, io_hint(error)),
            Error::Index(_) => (FAILED, "remove index.db in quell's home; it is made again from the records"),
            Error::Keeper(_) => (FAILED, "`quell sweep` finishes jobs whose keeper is lost"),
            Error::NoHome => (FAILED, "set QUELL_HOME to a directory of yours"),
            Error::NoProgram(_) => (FAILED, "put `quell` on the PATH, or set QUELL_BIN to its path"),
        };
        (exit_code, hint.to_owned())
    }

    fn host_row(error: &Host) -> (u8, &str) {
        match error {
            Host::Refused(decision) => (REFUSED, &decision.hint),
            Host::NoSuchProcess(_) => (NOT_FOUND, "it may have exited; PIDs are reused"),
            Host::NotPermitted(_) => (REFUSED, "it belongs to another user; try it as that user, or as root"),
            Host::NoSuchService(_) => (
                NOT_FOUND,
                "`systemctl list-units --all --type=service` shows them; those of a user need --user",
            ),
            Host::NoSystemd { user: true, .. } => {
                (FAILED, "log in as that user, or keep its manager running: `loginctl enable-linger`")
            }
            Host::NoSystemd { user: false, .. } => {
                (FAILED, "in a container or without systemd, run the program itself: `quell start`")
            }
            Host::Systemctl(_) => (FAILED, "try the same with systemctl itself"),
            Host::TimedOut(_) => (FAILED, "wait again, or longer"),
            Host::Io { error, .. } => (FAILED, io_hint(error)),
        }
    }

    /// The exit code and the error of a `setup` that could not be done.
    pub fn of_setup(error: &SetupError) -> (u8, ErrorBody) {
        let paste = "correct it, or add the entry by hand: `quell setup AGENT --print`";
        let (exit_code, hint) = match error {
            SetupError::NoProjectFile(_) => (USAGE, "leave --project out"),
            SetupError::NoUserHome => (FAILED, "set HOME to your home directory"),
            SetupError::NoOwnPath(_) => (FAILED, "install quell where its path stays, and call it there"),
            SetupError::Unparsable { .. }
            | SetupError::WrongType { .. }
            | SetupError::DuplicateKey { .. }
            | SetupError::UnsuitableFile { .. } => (USAGE, paste),
            SetupError::ServerNameTaken { .. } => (USAGE, "give that server another name first"),
            SetupError::ChangedMeanwhile(_) => {
                (FAILED, "try again; close the agent if it keeps writing the file")
            }
            SetupError::Manifest { .. } => {
                (FAILED, "move it away: then `quell setup AGENT --remove` goes by what the entries look like")
            }
            SetupError::Io { error, .. } => (FAILED, io_hint(error)),
            SetupError::Guard(error) => host_row(error),
            _ => (FAILED, SEE_HELP),
        };
        let body = super::said(error.code(), error.to_string(), hint);
        (exit_code, ErrorBody { retryable: error.is_retryable(), ..body })
    }

    fn io_hint(error: &io::Error) -> &'static str {
        match error.kind() {
            _ if quell::binary::is_out_of_descriptors(error) => {
                "raise the limit of open files (`ulimit -n`), or close some"
            }
            ErrorKind::NotFound => "check that it is there",
            ErrorKind::IsADirectory => "name a file in it",
            ErrorKind::NotADirectory => "a file is where a directory must be",
            ErrorKind::PermissionDenied => "check that it is yours and that you may use it",
            ErrorKind::AddrInUse => "another process listens there: choose another --port, or use --no-tcp",
            ErrorKind::ResourceBusy => "`quell serve --status` shows where it listens",
            ErrorKind::ReadOnlyFilesystem => {
                "mount its file system for writing, or set QUELL_HOME to a directory that you may write"
            }
            _ => "check that it is yours and that there is space",
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;

    use quell::Error;
    use quell::binary::{BUILT_IN, ExecRemedy};
    use quell::{Decision, JobId, StartError};
    use quell_guard::DecisionCode;
    use quell_guard::Error as HostError;
    use quell_setup::Error as SetupError;

    /// One of each, with the parts that are the caller's in capitals.
    fn all() -> Vec<Error> {
        let text = |text: &str| text.to_owned();
        let io = |errno| std::io::Error::from_raw_os_error(errno);
        let path = || PathBuf::from("/PATH");
        let not_executable =
            |remedy| StartError::NotExecutable { program: "PROGRAM".into(), why: "WHY".into(), remedy };
        let refused = Decision::refuse(DecisionCode::VerbDenied, BUILT_IN, "REASON", "HINT");
        let start = [
            StartError::NotFound(text("PROGRAM")),
            not_executable(ExecRemedy::Right),
            not_executable(ExecRemedy::ShorterArguments),
            not_executable(ExecRemedy::ClosedFile),
            not_executable(ExecRemedy::FewerLinks),
            StartError::Directory(text("PROGRAM")),
            StartError::NoInterpreter { program: text("PROGRAM"), why: text("WHY") },
            StartError::Cwd { path: path(), error: text("WHY") },
            StartError::Nul(text("WHAT")),
            StartError::MaskedName,
            StartError::Proc(text("WHY")),
            StartError::Containment(text("WHY")),
            StartError::Limit(text("WHY")),
            StartError::NameTaken { name: text("NAME"), by: JobId::new(0, 0) },
            StartError::OwnerGone(text("WHY")),
            StartError::Stdin { path: path(), error: text("WHY") },
            StartError::Record { path: path(), error: text("WHY") },
            StartError::Receipt { target: text("FILE"), error: text("WHY") },
            StartError::Receipt { target: text("descriptor 9"), error: text("WHY") },
            StartError::Start(text("WHY")),
            StartError::Stopped(text("WHY")),
            StartError::System { what: text("WHAT"), error: text("WHY") },
            StartError::Unsupported(text("WHY")),
        ];
        let others = [
            Error::Refused(Box::new(refused)),
            Error::Host(HostError::NoSuchProcess(4711)),
            Error::Host(HostError::NotPermitted(text("WHY"))),
            Error::Host(HostError::NoSuchService(text("NAME"))),
            Error::Host(HostError::NoSystemd { message: text("WHY"), user: true }),
            Error::Host(HostError::NoSystemd { message: text("WHY"), user: false }),
            Error::Host(HostError::Systemctl(text("WHY"))),
            Error::NoSuchJob(text("NOSUCH")),
            Error::NoSuchJob(text("01K")),
            Error::Ambiguous { prefix: text("01KA"), ids: vec![text("ID"), text("ID")], more: true },
            Error::InvalidJob(text("JOB")),
            Error::State(text("WHY")),
            Error::NoReadyCheck(JobId::new(0, 0)),
            Error::KeptElsewhere { id: JobId::new(0, 0), keeper: 4711, home: path() },
            Error::NotProvenDead(text("WHY")),
            Error::EndNotRecorded { id: JobId::new(0, 0), proven: true, path: path(), error: io(30) },
            Error::TimedOut(text("WHY")),
            Error::NotRead { job: text("JOB"), sent: 7 },
            Error::BadValue(text("WHY")),
            Error::Variable { name: text("QUELL_X"), message: text("WHY"), hint: text("HINT") },
            Error::UnknownVariable { name: text("QUELL_X"), hint: text("HINT") },
            Error::Config { file: path(), line: 3, message: text("WHY"), hint: text("HINT") },
            Error::Io { path: path(), error: io(2) },
            Error::Io { path: path(), error: io(13) },
            Error::Io { path: path(), error: io(24) },
            Error::Index(text("WHY")),
            Error::Keeper(text("WHY")),
            Error::NoHome,
            Error::NoProgram(text("WHY")),
        ];
        start.into_iter().map(Error::Start).chain(others).collect()
    }

    fn setup_errors() -> Vec<SetupError> {
        let (path, key) = (|| PathBuf::from("/PATH"), || "`KEY`".to_owned());
        let why = || "WHY".to_owned();
        vec![
            SetupError::NoProjectFile(quell_setup::Agent::Windsurf),
            SetupError::NoUserHome,
            SetupError::NoOwnPath(why()),
            SetupError::Unparsable { path: path(), why: why() },
            SetupError::WrongType { path: path(), key: key(), expected: "EXPECTED" },
            SetupError::DuplicateKey { path: path(), key: key() },
            SetupError::ServerNameTaken { path: path(), key: key() },
            SetupError::UnsuitableFile { path: path(), why: why() },
            SetupError::ChangedMeanwhile(path()),
            SetupError::Manifest { path: path(), why: why() },
            SetupError::Io { doing: "write", path: path(), error: std::io::Error::from_raw_os_error(13) },
        ]
    }

    #[test]
    fn every_error_has_a_text_a_hint_and_an_exit_code() {
        let line = |error: &Error| {
            let body = super::body(error);
            let again = if body.retryable { ", retryable" } else { "" };
            format!(
                "{} (exit {}{again})\n  {}\n  {}\n",
                body.code,
                super::exit_code(error),
                body.message,
                body.hint
            )
        };
        let mut text: String = all().iter().map(line).collect();
        for error in setup_errors() {
            let (exit_code, body) = super::of_setup(&error);
            let again = if body.retryable { ", retryable" } else { "" };
            text +=
                &format!("{} (exit {exit_code}{again})\n  {}\n  {}\n", body.code, body.message, body.hint);
        }
        insta::with_settings!({
            omit_expression => true,
            prepend_module_to_snapshot => false,
            snapshot_path => "../tests/snapshots",
        }, {
            insta::assert_snapshot!("errors", text);
        });
    }
}
