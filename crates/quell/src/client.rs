//! The client of a server: the process that has started it and talks to it.

use quell_core::ClientProcess;
use quell_keeper::StartError;
use quell_sys::Stat;

use crate::Result;
use crate::start::parent_of;

/// How many processes may be between a client and this one.
const STEPS: usize = 8;

/// Shells, by name. One that has a command or a script waits for it.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ash", "ksh", "fish", "busybox"];
/// Programs that start another program and wait for it.
const LAUNCHERS: [&str; 5] = ["npm", "npx", "uv", "uvx", "pnpm"];

/// The process that has started this one, or the first process above it that does more than wait for what it has started. What is in
/// between comes before it. Empty if this process has no parent that can be an owner.
///
/// Fails if the process that has started this one is gone already: nothing would tell the end of the client then.
pub fn clients() -> Result<Vec<ClientProcess>> {
    let gone = || StartError::OwnerGone("the process that started this one has exited".into());
    let own = quell_sys::stat(quell_sys::pid()).map_err(|_| gone())?;
    // A process of another PID namespace has started this one.
    if own.ppid == 0 {
        return Ok(Vec::new());
    }
    let parent = quell_sys::stat(own.ppid).map_err(|_| gone())?;
    if is_adopted(&own, &parent) {
        return Err(gone().into());
    }
    let mut found = Vec::new();
    // Elsewhere than in a container process 1 is not a client: it never exits.
    let mut next = (parent.pid > 1 || !quell_sys::in_first_pid_namespace()).then_some(parent);
    while let Some(process) = next.take() {
        if found.len() < STEPS && only_waits(&process.comm, &quell_sys::whole_cmdline(process.pid)) {
            next = parent_of(process.pid).ok().and_then(|above| quell_sys::stat(above).ok());
        }
        found.push(ClientProcess { id: process.id(), name: process.comm });
    }
    Ok(found)
}

/// Whether `parent` is certainly not the process that has started this one, `own`. A child is in the session and the process group
/// of its parent, with two exceptions: it leads one of its own, or a shell with a terminal has put it into the group of a pipeline.
/// Then this can't be told. An init that has made no session (a virtual machine, a container) shares it with what it adopts.
fn is_adopted(own: &Stat, parent: &Stat) -> bool {
    let moved_session = own.sid != own.pid && parent.sid != own.sid;
    let moved_group = own.pgid != own.pid && parent.pgid != own.pgid;
    moved_session || (moved_group && !parent.has_terminal)
}

/// Whether a process with this name and command line only waits for what it has started: `sh -c …`, a script, `npx …`.
fn only_waits(name: &str, words: &[String]) -> bool {
    let is_option = |word: &&String| word.starts_with(['-', '+']);
    // A script that is executed itself has its own name, and its shell is the first word.
    let first = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if [name, first].iter().any(|name| SHELLS.contains(&name.trim_start_matches('-'))) {
        let interactive = words.iter().any(|word| word == "-i");
        return !interactive && words.iter().skip(1).any(|word| !is_option(&word));
    }
    // npm and npx write what they do over their name: `npm exec some-server`.
    let own = name.split(' ').next().unwrap_or_default();
    // Before they have done so, they are a script of node.
    let script = words.iter().skip(1).find(|word| !is_option(word)).filter(|_| own == "node");
    let script = script.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    [own, script.trim_end_matches(".js").trim_end_matches("-cli")].iter().any(|word| LAUNCHERS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_with_a_command_and_npx_only_wait_and_other_programs_are_clients() {
        let waits = |name: &str, line: &str| {
            only_waits(name, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        for (name, line) in [
            ("sh", "sh -c quell"),
            ("dash", "/bin/sh /home/me/start-server"),
            ("start-server", "/bin/sh ./start-server"),
            ("bash", "bash --norc -c quell"),
            ("npm exec quell", "npm exec quell wrap"),
            ("node", "node /usr/bin/npx quell"),
            ("node", "node --no-warnings /usr/lib/node_modules/npm/bin/npx-cli.js quell"),
            ("uvx", "uvx quell"),
        ] {
            assert!(waits(name, line), "{line}");
        }
        for (name, line) in [
            ("bash", "-bash"),
            ("zsh", "zsh -i"),
            ("bash", "bash --rcfile x -i"),
            ("fish", "fish -l"),
            ("claude", "claude -p x"),
            ("node", "node /opt/agent/npx-agent.js"),
            ("node", "node"),
            ("python3", "python3 npx"),
        ] {
            assert!(!waits(name, line), "{line}");
        }
    }

    #[test]
    fn a_parent_of_another_session_or_group_has_adopted_this_process() {
        let process = |pid: u32, pgid: u32, sid: u32, terminal: u32| {
            Stat::parse(&format!("{pid} (x) S 1 {pgid} {sid} {terminal} -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0"))
                .unwrap()
        };
        let (client, moved) = (process(50, 40, 30, 0), process(60, 40, 30, 0));
        assert!(!is_adopted(&moved, &client));
        // An init in a session of its own, and one that shares the session of everything below it.
        assert!(is_adopted(&moved, &process(1, 1, 1, 0)));
        assert!(is_adopted(&moved, &process(1, 1, 30, 0)));
        assert!(is_adopted(&process(60, 40, 0, 0), &process(1, 0, 0, 0)));
        // The second program of a pipeline, below a shell with a terminal.
        assert!(!is_adopted(&moved, &process(35, 35, 30, 34816)));
        // It leads a group or a session: that may be the work of its parent.
        assert!(!is_adopted(&process(60, 60, 0, 0), &process(1, 0, 0, 0)));
        assert!(!is_adopted(&process(60, 60, 60, 0), &process(1, 1, 1, 0)));
    }

    #[test]
    fn the_parent_of_this_process_is_among_its_clients() {
        let found = clients().unwrap();
        let parent = parent_of(quell_sys::pid()).ok();
        assert_eq!(found.first().map(|client| client.id.pid), parent);
    }
}
