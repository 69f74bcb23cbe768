//! Services under the guard: started, stopped and looked at by systemd, and what systemd says afterwards is believed, not
//! that it was asked.

mod systemctl;
mod unit;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::{Decision, ServiceName, ServiceVerb, decide_service, decide_unit, decide_verb, read_service};
use quell_sys::{PidFd, Polled};
use serde::Serialize;
use serde_json::json;

use crate::Guard;
use crate::{Error, Result};
use systemctl::{Said, Systemctl};
use unit::{Unit, one_line};

/// For how long a service has to live after its start to count as started: a simple one is active for systemd as soon as it
/// is forked, also if its program isn't there.
const SETTLED: Duration = Duration::from_millis(300);

/// How it is to be done.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// With the manager of this user, instead of that of the system.
    pub user: bool,
    /// How long systemd may take.
    pub timeout: Duration,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        // What systemd itself gives a service to start or to stop by default.
        Self { user: false, timeout: Duration::from_secs(90) }
    }
}

/// `quell service`: what was done, and how the service is afterwards.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceAnswer {
    /// The unit that was asked for, with its suffix.
    pub service: String,
    /// The name that it has in truth, if that was an alias.
    pub unit: String,
    /// What was to be done.
    pub command: ServiceVerb,
    /// Whether it is active.
    pub active: bool,
    /// Whether it is now as it was asked to be: active after `start` and `restart`, not active and without a main process
    /// after `stop`. For `status`, whether it is active.
    pub success: bool,
    /// systemctl's exit code; null if it was not done in time.
    pub returncode: Option<i32>,
    /// What systemctl said, up to 64 KiB.
    pub stdout: String,
    /// What it said about what went wrong, up to 64 KiB.
    pub stderr: String,
    /// How many bytes of `stdout` were left out.
    pub stdout_cut: u64,
    /// How many bytes of `stderr` were left out.
    pub stderr_cut: u64,
    /// Whether systemd was not done in time. It goes on.
    pub timed_out: bool,
    /// systemd's word for how it was before: `active`, `inactive`, `failed`, `activating`, `deactivating`, …
    pub was: String,
    /// systemd's word for how it is.
    pub state: String,
    /// The same in more detail: `running`, `exited`, `dead`, `auto-restart`, …
    pub sub_state: String,
    /// How it last ended: `success`, `exit-code`, `signal`, `timeout`, …
    pub result: String,
    /// Its main process.
    pub main_pid: Option<u32>,
    /// After `stop`: how many processes of it are there nevertheless. systemd leaves some alone if the unit says so
    /// (`KillMode=process`, `mixed` or `none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// What is worth knowing besides, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the guard said.
    pub decision: Decision,
}

/// Does it, if the guard lets it pass. A name that is refused runs no program at all.
pub fn act(gate: &Guard, verb: ServiceVerb, name: &str, options: &ServiceOptions) -> Result<ServiceAnswer> {
    let asked = read_service(name).map_err(|refusal| gate.refuse(verb.verb(), name, *refusal))?;
    let by_name = gate.decided(verb.verb(), name, decide_service(&gate.policy().service, &asked, verb))?;
    let systemctl = Systemctl::find(options.user)?;
    let before = Unit::look(&systemctl, &asked.unit())?;
    let facts = before.facts(&systemctl, verb)?;
    let decision = decide_unit(&gate.policy().service, &asked, &facts, verb);
    let permit = if !decision.allowed || before.is_alias(&asked) {
        gate.decided(verb.verb(), before.id(), decision)?
    } else {
        by_name.with(decision)
    };
    if before.is_unknown() {
        return Err(Error::NoSuchService(asked.unit()));
    }
    // By its true name: that is what was decided about, whatever becomes of the alias meanwhile.
    let said = systemctl.run(words(verb), &[before.id()], options.timeout)?;
    let after = settled(&systemctl, verb, &said, before.id()).inspect_err(|error| {
        // Nobody knows what came of it, but it was done.
        let result = json!({ "returncode": said.code, "error": error.to_string() });
        let _ = permit.record(before.id(), &result, None);
    })?;
    let mut answer = answer(verb, &asked, &before, &after, said, permit.decision().clone());
    if verb == ServiceVerb::Status {
        return Ok(answer);
    }
    let result = json!({
        "returncode": answer.returncode, "success": answer.success, "state": answer.state,
        "sub_state": answer.sub_state, "result": answer.result, "timed_out": answer.timed_out,
        "left": answer.left,
    });
    if let Err(error) = permit.record(before.id(), &result, None) {
        // It has been done; that nobody wrote it down doesn't undo it.
        let trouble = format!("it is not in the audit log: {error}");
        answer.note = Some(answer.note.map_or(trouble.clone(), |note| format!("{note}; {trouble}")));
    }
    if !answer.success && is_denied(&answer.stderr) {
        let words = one_line(&answer.stderr);
        return Err(Error::NotPermitted(format!(
            "systemd does not let you {} {asked}: {words}",
            verb.word()
        )));
    }
    Ok(answer)
}

/// Whether it would be let pass, without doing it. systemd is asked what is behind the name, if the name may be asked about.
pub fn check(gate: &Guard, verb: ServiceVerb, name: &str, options: &ServiceOptions) -> Result<Decision> {
    let asked = match read_service(name) {
        Ok(asked) => asked,
        Err(refusal) => return Ok(*refusal),
    };
    let policy = &gate.policy().service;
    let listed = decide_verb(gate.policy(), verb.verb());
    let decision = decide_service(policy, &asked, verb);
    if let Some(refusal) = [&listed, &decision].into_iter().find(|decision| !decision.allowed) {
        return Ok(refusal.clone());
    }
    let systemctl = Systemctl::find(options.user)?;
    let unit = Unit::look(&systemctl, &asked.unit())?;
    let decision = decide_unit(policy, &asked, &unit.facts(&systemctl, verb)?, verb);
    if decision.allowed && unit.is_unknown() { Err(Error::NoSuchService(asked.unit())) } else { Ok(decision) }
}

fn words(verb: ServiceVerb) -> &'static [&'static str] {
    match verb {
        ServiceVerb::Start => &["start"],
        ServiceVerb::Stop => &["stop"],
        ServiceVerb::Restart => &["restart"],
        ServiceVerb::Status => &["status", "--lines=10"],
    }
}

/// How it is when it was done; one that was started has had the time to fail.
fn settled(systemctl: &Systemctl, verb: ServiceVerb, said: &Said, unit: &str) -> Result<Unit> {
    let after = Unit::look(systemctl, unit)?;
    let started = matches!(verb, ServiceVerb::Start | ServiceVerb::Restart) && said.code == Some(0);
    let Some(pid) = after.main_pid().filter(|_| started && after.is_active()) else { return Ok(after) };
    // If the number is another's by now, all that it costs is the time.
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
    said: Said,
    decision: Decision,
) -> ServiceAnswer {
    let done = said.code == Some(0);
    // Each start of a unit has an id of its own, so that a restart that was none is seen.
    let anew = after.invocation().is_empty() || after.invocation() != before.invocation();
    let success = match verb {
        ServiceVerb::Start => done && after.is_active(),
        ServiceVerb::Restart => done && after.is_active() && anew,
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
        returncode: said.code,
        stdout: said.stdout.text(),
        stderr: said.stderr.text(),
        stdout_cut: said.stdout.cut,
        stderr_cut: said.stderr.cut,
        timed_out: said.timed_out,
        was: before.state().to_owned(),
        state: after.state().to_owned(),
        sub_state: after.sub_state().to_owned(),
        result: after.result().to_owned(),
        main_pid: after.main_pid(),
        left,
        note: note(verb, before, after, &said, success, left),
        decision,
    }
}

/// What the bare state doesn't tell.
fn note(
    verb: ServiceVerb,
    before: &Unit,
    after: &Unit,
    said: &Said,
    success: bool,
    left: Option<usize>,
) -> Option<String> {
    let starts = matches!(verb, ServiceVerb::Start | ServiceVerb::Restart);
    let ended_well = after.state() == "inactive" && after.result() == "success";
    if said.timed_out {
        return Some("the time was over before systemd was done; it goes on".into());
    }
    if starts && said.code == Some(0) && after.is_oneshot() && ended_well {
        return Some(
            "it is a oneshot that ran to its end without an error, so that it is not active now".into(),
        );
    }
    if starts && !success && ended_well && said.code == Some(0) {
        return Some("its process was started and ended by itself, without an error".into());
    }
    if starts && !success && after.sub_state() == "auto-restart" {
        return Some("it ended at once, and systemd is going to start it again".into());
    }
    if !success && verb != ServiceVerb::Status && !matches!(after.result(), "" | "success") {
        let (how, status) = (after.result(), after.exit_status());
        return Some(format!("it failed: {how}, status {status}"));
    }
    if verb == ServiceVerb::Start && success && before.is_active() {
        return Some("it was active already".into());
    }
    if let Some(count) = left.filter(|count| *count > 0 && success) {
        let who =
            if count == 1 { "1 process of it is".into() } else { format!("{count} processes of it are") };
        return Some(format!("{who} left, which systemd does not end (KillMode= of the unit)"));
    }
    if verb == ServiceVerb::Stop && success && before.is_stopped() {
        return Some("it was not active before".into());
    }
    if verb == ServiceVerb::Stop && success && after.state() == "failed" {
        return Some(format!("it is stopped, but did not end well: {}", after.result()));
    }
    None
}

/// systemctl's words for it; the codes differ between its versions.
fn is_denied(stderr: &str) -> bool {
    ["Access denied", "authentication required", "Permission denied"]
        .iter()
        .any(|words| stderr.contains(words))
}
