//! The process behind a request: the caller of quell, not the short-lived quell that sends the request.

use quell_core::Mask;
use quell_sys::Stat;

/// How many characters of its command line are kept.
const LONGEST: usize = 200;
/// How many processes of quell may be in between.
const STEPS: usize = 4;

/// The process behind a request from `pid`, and its command line if that can be read.
///
/// This is only put on record. It decides nothing: processes choose their names and command lines freely.
pub fn caller_of(pid: u32, mask: &Mask) -> (u32, Option<String>) {
    let mut caller = pid;
    for _ in 0..STEPS {
        let Ok(stat) = quell_sys::stat(caller) else { break };
        // Outside a container process 1 is the parent of orphans.
        let orphan = stat.ppid == 0 || (stat.ppid == 1 && quell_sys::in_first_pid_namespace());
        if orphan || !is_quell(&stat) {
            break;
        }
        caller = stat.ppid;
    }
    (caller, command_of(caller, mask))
}

/// The command line of a process, if it can be read.
pub fn command_of(pid: u32, mask: &Mask) -> Option<String> {
    let command = mask.apply(&quell_sys::whole_cmdline(pid).join(" "));
    let cut = command.char_indices().nth(LONGEST).map_or(command.len(), |(at, _)| at);
    let end = if cut < command.len() { "…" } else { "" };
    Some(format!("{}{end}", &command[..cut])).filter(|command| !command.is_empty())
}

/// By its name, or by its executable if that can be read and has another name.
fn is_quell(stat: &Stat) -> bool {
    stat.comm == "quell" || quell_sys::same_executable_file(stat.pid, quell_sys::pid())
}
