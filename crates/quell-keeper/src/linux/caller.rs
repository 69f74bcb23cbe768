//! The process behind a request: the one that called quell, not the short-lived quell that carries the request.

use quell_core::Mask;
use quell_sys::Stat;

/// How much of its command line is kept.
const LONGEST: usize = 200;
/// How many quells may stand between.
const STEPS: usize = 4;

/// The process that is behind a request from `pid`, and its command line if that can be read.
///
/// What is said of it goes on record and decides nothing: names and command lines can be chosen freely.
pub fn caller_of(pid: u32, mask: &Mask) -> (u32, Option<String>) {
    let mut caller = pid;
    for _ in 0..STEPS {
        let Ok(stat) = quell_sys::stat(caller) else { break };
        // Outside of a container process 1 is the parent of those whose own has exited.
        let orphan = stat.ppid == 0 || (stat.ppid == 1 && quell_sys::in_first_pid_namespace());
        if orphan || !is_quell(&stat) {
            break;
        }
        caller = stat.ppid;
    }
    let command = mask.apply(&quell_sys::whole_cmdline(caller).join(" "));
    let cut = command.char_indices().nth(LONGEST).map_or(command.len(), |(at, _)| at);
    let end = if cut < command.len() { "…" } else { "" };
    (caller, Some(format!("{}{end}", &command[..cut])).filter(|command| !command.is_empty()))
}

/// By its name, or by its file if that may be read and is called otherwise.
fn is_quell(stat: &Stat) -> bool {
    stat.comm == "quell" || quell_sys::same_executable_file(stat.pid, quell_sys::pid())
}
