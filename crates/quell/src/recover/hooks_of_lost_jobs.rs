//! Hooks of a job that a command has recovered.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use quell_core::{JobEvent, JobSpec};
use quell_keeper::HookNotice;
use quell_store::JobDir;

/// The hidden verb of quell that runs hooks.
const HOOKS_VERB: &str = "__hooks";

/// Runs the hooks for these events in another process, and does not wait for them. If that fails, the history still has the
/// events.
pub(super) fn notify_hooks(job: &JobDir, spec: Option<&JobSpec>, events: Vec<JobEvent>) {
    let hooks = spec.map_or(&[][..], |spec| &spec.request.hooks);
    let has_hook = |event: &JobEvent| {
        event.what.hook_event().is_some_and(|at| hooks.iter().any(|hook| hook.on.contains(&at)))
    };
    if !events.iter().any(has_hook) {
        return;
    }
    let Some(program) = crate::own_program() else { return };
    let notice = HookNotice { home: job.home().dir().to_owned(), job: job.id(), events };
    let mut bytes = serde_json::to_vec(&notice).unwrap_or_default();
    bytes.push(b'\n');
    let mut command = Command::new(program);
    command.arg0("quell").arg(HOOKS_VERB).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(&bytes));
        // It starts a child that does the work, and exits at once.
        let _ = child.wait();
    }
}
