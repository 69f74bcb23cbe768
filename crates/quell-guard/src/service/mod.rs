//! Services under the guard. systemd starts, stops and restarts them. The result is the state afterwards, not the exit code
//! of systemctl.

mod systemctl;
mod unit;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use quell_sys::{PidFd, Polled};
use serde::Serialize;
use serde_json::json;

use crate::{Decision, Error, Guard, Result, ServiceName, ServiceVerb};
use crate::{decide_service, decide_unit, decide_verb, read_service};
use systemctl::{Systemctl, SystemctlOutput};
use unit::{INVOCATION, Unit, one_line};

/// A service counts as started when it has run this long: for systemd a simple service is active when it is forked, even if
/// its program does not exist.
const SETTLED: Duration = Duration::from_millis(300);

/// How systemd is asked.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Use the manager of this user instead of the system's.
    pub user: bool,
    /// How long systemd may take.
    pub timeout: Duration,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        // systemd's own default for a start or a stop.
        Self { user: false, timeout: Duration::from_secs(90) }
    }
}

/// The result of `quell service`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceAnswer {
    /// The unit that was named, with its suffix.
    pub service: String,
    /// The unit's own name, which differs if an alias was given.
    pub unit: String,
    /// The command.
    pub command: ServiceVerb,
    /// Whether it is active.
    pub active: bool,
    /// After `start` and `restart`, whether it is active. After `stop`, whether it is not active and has no main process. For
    /// `status`, whether it is active.
    pub success: bool,
    /// systemctl's exit code; null if the time was up first.
    pub returncode: Option<i32>,
    /// systemctl's output, up to 64 KiB.
    pub stdout: String,
    /// systemctl's errors, up to 64 KiB.
    pub stderr: String,
    /// How many bytes of `stdout` were left out.
    pub stdout_cut: u64,
    /// How many bytes of `stderr` were left out.
    pub stderr_cut: u64,
    /// Whether the time was up first. systemd goes on.
    pub timed_out: bool,
    /// The state before: `active`, `inactive`, `failed`, `activating`, `deactivating`, …
    pub was: String,
    /// The state now.
    pub state: String,
    /// The state in more detail: `running`, `exited`, `dead`, `auto-restart`, …
    pub sub_state: String,
    /// How it last ended: `success`, `exit-code`, `signal`, `timeout`, …
    pub result: String,
    /// Its main process.
    pub main_pid: Option<u32>,
    /// After `stop`: how many of its processes are left. systemd leaves some alone if the unit says so
    /// (`KillMode=process`, `mixed` or `none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// A remark for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The guard's decision.
    pub decision: Decision,
}

/// Carries out the verb if the guard allows it. For a refused name systemctl is not run.
pub fn act(guard: &Guard, verb: ServiceVerb, name: &str, options: &ServiceOptions) -> Result<ServiceAnswer> {
    let asked = read_service(name).map_err(|refusal| guard.refuse(verb.verb(), name, *refusal))?;
    let by_name = guard.decided(verb.verb(), name, decide_service(&guard.policy().service, &asked, verb))?;
    let systemctl = Systemctl::find(options.user)?;
    let before = Unit::look(&systemctl, &asked.unit())?;
    let facts = before.facts(&systemctl, verb)?;
    let decision = decide_unit(&guard.policy().service, &asked, &facts, verb);
    let permit = if !decision.allowed || before.is_alias(&asked) {
        guard.decided(verb.verb(), before.id(), decision)?
    } else {
        by_name.with(decision)
    };
    if before.is_unknown() {
        return Err(Error::NoSuchService(asked.unit()));
    }
    // By the unit's own name, which was decided about: an alias may change meanwhile.
    let words: &[&str] =
        if verb == ServiceVerb::Status { &["status", "--lines=10"] } else { &[verb.as_str()] };
    let output = systemctl.run(words, &[before.id()], options.timeout)?;
    let after = settled(&systemctl, verb, &output, before.id()).inspect_err(|error| {
        // It was done, but the result is not known.
        let result = json!({ "returncode": output.code, "error": error.to_string() });
        let _ = permit.record(before.id(), &result, None);
    })?;
    let mut answer = answer(verb, &asked, &before, &after, output, permit.decision().clone());
    if verb == ServiceVerb::Status {
        return Ok(answer);
    }
    let result = json!({
        "returncode": answer.returncode, "success": answer.success, "state": answer.state,
        "sub_state": answer.sub_state, "result": answer.result, "timed_out": answer.timed_out,
        "left": answer.left,
    });
    if let Err(error) = permit.record(before.id(), &result, None) {
        // The service has changed, also if the log can't be written.
        let trouble = format!("it is not in the audit log: {error}");
        answer.note = Some(answer.note.map_or(trouble.clone(), |note| format!("{note}; {trouble}")));
    }
    if !answer.success && is_denied(&answer.stderr) {
        let words = one_line(&answer.stderr);
        return Err(Error::NotPermitted(format!(
            "systemd does not allow you to {} {asked}: {words}",
            verb.as_str()
        )));
    }
    Ok(answer)
}

/// Whether the guard would allow it. systemd is asked about the unit only if the name is allowed.
pub fn check(guard: &Guard, verb: ServiceVerb, name: &str, options: &ServiceOptions) -> Result<Decision> {
    let asked = match read_service(name) {
        Ok(asked) => asked,
        Err(refusal) => return Ok(*refusal),
    };
    let policy = &guard.policy().service;
    let listed = decide_verb(guard.policy(), verb.verb());
    let decision = decide_service(policy, &asked, verb);
    if let Some(refusal) = [&listed, &decision].into_iter().find(|decision| !decision.allowed) {
        return Ok(refusal.clone());
    }
    let systemctl = Systemctl::find(options.user)?;
    let unit = Unit::look(&systemctl, &asked.unit())?;
    let decision = decide_unit(policy, &asked, &unit.facts(&systemctl, verb)?, verb);
    if decision.allowed && unit.is_unknown() { Err(Error::NoSuchService(asked.unit())) } else { Ok(decision) }
}

/// The state afterwards. A service that was started has had the time to fail.
fn settled(systemctl: &Systemctl, verb: ServiceVerb, output: &SystemctlOutput, unit: &str) -> Result<Unit> {
    let after = Unit::look(systemctl, unit)?;
    let started = matches!(verb, ServiceVerb::Start | ServiceVerb::Restart) && output.code == Some(0);
    let Some(pid) = after.main_pid().filter(|_| started && after.is_active()) else { return Ok(after) };
    // If another process has this PID by now, only the time is wasted.
    if let Ok(process) = PidFd::open(pid) {
        let deadline = Instant::now() + SETTLED;
        while process.is_alive() && Instant::now() < deadline {
            let waited = quell_sys::poll_until(&[Polled::Read(process.as_fd())], Some(deadline));
            waited.map_err(|error| Error::Systemctl(format!("can't wait for {pid}: {error}")))?;
        }
        if process.is_alive() {
            return Ok(after);
        }
    }
    Unit::look(systemctl, unit)
}

fn answer(
    verb: ServiceVerb,
    asked: &ServiceName,
    before: &Unit,
    after: &Unit,
    output: SystemctlOutput,
    decision: Decision,
) -> ServiceAnswer {
    let done = output.code == Some(0);
    // Each start of a unit has a new invocation id: without one, it was not restarted.
    let restarted = after.get(INVOCATION).is_empty() || after.get(INVOCATION) != before.get(INVOCATION);
    let success = match verb {
        ServiceVerb::Start => done && after.is_active(),
        ServiceVerb::Restart => done && after.is_active() && restarted,
        ServiceVerb::Stop => done && after.is_stopped(),
        ServiceVerb::Status => after.is_active(),
    };
    let left = (verb == ServiceVerb::Stop).then(|| after.processes());
    ServiceAnswer {
        service: asked.unit(),
        unit: before.id().to_owned(),
        command: verb,
        active: after.is_active(),
        success,
        returncode: output.code,
        stdout: output.stdout.text(),
        stderr: output.stderr.text(),
        stdout_cut: output.stdout.cut,
        stderr_cut: output.stderr.cut,
        timed_out: output.timed_out,
        was: before.state().to_owned(),
        state: after.state().to_owned(),
        sub_state: after.get("SubState").to_owned(),
        result: after.result().to_owned(),
        main_pid: after.main_pid(),
        left,
        note: note(verb, before, after, &output, success, left),
        decision,
    }
}

/// What the state alone does not say.
fn note(
    verb: ServiceVerb,
    before: &Unit,
    after: &Unit,
    output: &SystemctlOutput,
    success: bool,
    left: Option<usize>,
) -> Option<String> {
    let starts = matches!(verb, ServiceVerb::Start | ServiceVerb::Restart);
    let ended_well = after.state() == "inactive" && after.result() == "success";
    let note = if output.timed_out {
        "the time was up before systemd was done; systemd goes on".into()
    } else if starts && output.code == Some(0) && after.get("Type") == "oneshot" && ended_well {
        "it is a oneshot service that has finished without an error, so it is not active now".into()
    } else if starts && !success && ended_well && output.code == Some(0) {
        "its process was started and has exited without an error".into()
    } else if starts && !success && after.get("SubState") == "auto-restart" {
        "it exited at once, and systemd will start it again".into()
    } else if !success && verb != ServiceVerb::Status && !matches!(after.result(), "" | "success") {
        format!("it failed: {}, status {}", after.result(), after.get("ExecMainStatus"))
    } else if verb == ServiceVerb::Start && success && before.is_active() {
        "it was active already".into()
    } else if let Some(count) = left.filter(|count| *count > 0 && success) {
        let are =
            if count == 1 { "1 process of it is".into() } else { format!("{count} processes of it are") };
        format!("{are} left, which systemd does not stop (KillMode= of the unit)")
    } else if verb == ServiceVerb::Stop && success && before.is_stopped() {
        "it was not active before".into()
    } else if verb == ServiceVerb::Stop && success && after.state() == "failed" {
        format!("it is stopped, but failed: {}", after.result())
    } else {
        return None;
    };
    Some(note)
}

/// By systemctl's text, as its exit codes differ between versions.
fn is_denied(stderr: &str) -> bool {
    ["Access denied", "authentication required", "Permission denied"]
        .iter()
        .any(|words| stderr.contains(words))
}
