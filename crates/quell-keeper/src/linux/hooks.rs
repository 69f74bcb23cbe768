//! Hooks: what the user wants to be done when something happens to a job. The helper runs them. A failed hook is an event in
//! the job's history and does not affect the job.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use quell_core::{EventKind, HookAction, HookEvent, JobEvent, JobId, ReadyCheck, Signal};
use quell_store::{Home, now};
use quell_sys::fault;
use serde::{Deserialize, Serialize};

use super::helper::{self, Command, Helper, HelperBrief, quell_run};

/// This many bytes fit into any pipe without a reader.
const PIPE_TAKES: usize = 4096;

/// Events of a job that has no keeper, for its hooks.
#[derive(Debug, Serialize, Deserialize)]
pub struct HookNotice {
    /// The home that has the job's record.
    #[serde(with = "quell_core::paths::whole")]
    pub home: PathBuf,
    /// The job.
    pub job: JobId,
    /// In the order in which they happened.
    pub events: Vec<JobEvent>,
}

/// The main function of a process that only starts a helper for the hooks of a lost job.
///
/// Before: this process was executed for nothing else, and has one thread. The guard admits the hooks.
pub fn notify_hooks(notice: HookNotice) -> ExitCode {
    let _ = quell_sys::redirect_to_null(true, true, true);
    let _ = quell_sys::leave_session();
    quell_sys::restore_default(Signal::CHLD);
    fault::work_for(&notice.job);
    let job = Home::at(notice.home).job(notice.job);
    let Ok(spec) = job.spec() else { return ExitCode::FAILURE };
    // The hooks in the specification may be masked.
    let hooks = match job.launch() {
        Ok(launch) => launch.request.hooks,
        Err(_) if spec.request.mask.is_empty() => spec.request.hooks.clone(),
        Err(_) => return ExitCode::FAILURE,
    };
    let brief = HelperBrief {
        job: Some(&job),
        command: spec.request.words(),
        cwd: None,
        environment: &[],
        hooks: &hooks,
        ready: &ReadyCheck::default(),
    };
    if let Ok(mut helper) = helper::start(&brief) {
        notice.events.into_iter().for_each(|event| helper.send_event(event));
    }
    ExitCode::SUCCESS
}

impl HelperBrief<'_> {
    /// The JSON object that a hook gets, as a line: the event, with the job's command and the cause if there is one.
    fn payload(&self, event: &JobEvent) -> io::Result<Vec<u8>> {
        let mut payload = serde_json::to_value(event)?;
        let more = [
            ("command", serde_json::to_value(&self.command)?),
            ("cause", serde_json::to_value(event.what.cause())?),
        ];
        if let Some(object) = payload.as_object_mut() {
            for (key, value) in more.into_iter().filter(|(_, value)| !value.is_null()) {
                object.entry(key).or_insert(value);
            }
        }
        let mut bytes = serde_json::to_vec(&payload)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl Helper<'_> {
    pub(super) fn run_hooks(&mut self, event: &JobEvent) {
        let Some(at) = event.what.hook_event() else { return };
        for hook in self.brief.hooks.iter().filter(|hook| hook.on.contains(&at)) {
            let done = match &hook.action {
                HookAction::Run(argv) => self.run_hook(argv, hook.timeout, event, at),
                HookAction::Append(file) => self.brief.payload(event).and_then(|line| append(file, &line)),
            };
            if let Err(error) = done {
                self.hook_failed(&describe(&hook.action), at, event.run, error.to_string());
            }
        }
    }

    fn run_hook(
        &mut self,
        argv: &[String],
        timeout: Duration,
        event: &JobEvent,
        at: HookEvent,
    ) -> io::Result<()> {
        let mut command = quell_run(timeout);
        command.args(argv).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.brief.payload(event)?;
            let bytes_fit = bytes.len() <= PIPE_TAKES;
            // A hook that does not read it has not failed.
            let mut write = move || drop(stdin.write_all(&bytes));
            if bytes_fit {
                write();
            } else {
                // The thread ends when the hook does, because that closes the pipe.
                quell_sys::thread().spawn(write)?;
            }
        }
        let name = argv.join(" ");
        self.running.push((child, Command::Hook { name, at, run: event.run }));
        Ok(())
    }

    pub(super) fn hook_failed(&self, hook: &str, at: HookEvent, run: u32, why: String) {
        let what = EventKind::HookFailed { hook: hook.to_owned(), at, why };
        // A failure to write this could not be reported anywhere else.
        if let Some((job, spec)) = self.brief.job.and_then(|job| Some((job, job.spec().ok()?))) {
            let _ = job.log_event(&JobEvent::new(&spec, now(), run, what));
        }
    }
}

/// Why a hook failed, by the exit code of its `quell run`.
pub fn failure_of(code: i32) -> String {
    match code {
        122 => "what it started is not proven dead".into(),
        124 => "it took too long".into(),
        126 => "it can't be executed".into(),
        127 => "it can't be found".into(),
        code => format!("exit code {code}"),
    }
}

fn describe(action: &HookAction) -> String {
    match action {
        HookAction::Run(argv) => argv.join(" "),
        HookAction::Append(file) => format!("append to {}", file.display()),
    }
}

/// Appends `line` to `file`. A fifo without a reader is an error and is not waited for.
fn append(file: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(quell_sys::OPEN_NONBLOCK);
    options.open(file)?.write_all(line)
}
