//! For which process jobs live, and to which session they belong.

use std::path::Path;

use quell::binary::{agent_session, own_session};
use quell::{Owner, ProcId, Result};

/// How many processes above this one are looked at.
const FOLLOWED: usize = 8;

/// Programs that run another program and only wait for it, where their arguments say so.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "busybox"];

/// The client: the process that jobs live for, and the session that they belong to.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The client process; none if it has exited already.
    client: Option<ProcId>,
    /// Its short name.
    pub client_name: String,
    /// The session.
    pub session: String,
}

impl Lease {
    /// Finds the client. `session` is what the command line says.
    pub fn take(session: Option<&str>) -> Result<Self> {
        let client = client_of(std::process::id());
        let stat = client.and_then(|pid| quell::binary::stat(pid).ok());
        let client_name = stat.as_ref().map_or_else(|| "unknown".to_owned(), |stat| stat.comm.clone());
        let id = client.and_then(|pid| quell::owner_process(pid).ok());
        let named = match session {
            Some(session) => Some(session.to_owned()),
            None => own_session()?,
        };
        let session = named.or_else(agent_session).unwrap_or_else(|| match id {
            Some(ProcId { pid, start }) => format!("mcp-{pid}-{start}"),
            None => format!("mcp-{}", std::process::id()),
        });
        Ok(Self { client: id, client_name, session })
    }

    /// The owner of a job; none if the job is to outlive the client. Without a client process it is this server.
    pub fn owner(&self) -> Result<Owner> {
        let id = match self.client {
            Some(id) => id,
            None => quell::owner_process(std::process::id())?,
        };
        Ok(Owner::Process { id })
    }
}

/// The first process above `pid` that does more than to wait for its child.
fn client_of(pid: u32) -> Option<u32> {
    let mut above = std::iter::successors(quell::parent_of(pid).ok(), |pid| quell::parent_of(*pid).ok());
    let parent = above.next()?;
    if !only_waits(parent) {
        return Some(parent);
    }
    above.take(FOLLOWED).find(|pid| !only_waits(*pid)).or(Some(parent))
}

/// Whether a process runs one other program and waits for it: a shell with `-c`, or a package runner.
fn only_waits(pid: u32) -> bool {
    let Ok(line) = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")) else {
        return false;
    };
    let words: Vec<String> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    only_waits_by(&words)
}

fn only_waits_by(words: &[String]) -> bool {
    let [program, arguments @ ..] = words else { return false };
    let name = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    let is_option = |word: &&String| word.starts_with('-') && !word.starts_with("--");
    let runs_text = || arguments.iter().take_while(is_option).any(|word| word.contains('c'));
    // npx sets its own title to the command line.
    let is_runner = ["npx", "npm", "uvx", "bunx"].contains(&name.split(' ').next().unwrap_or_default());
    is_runner || (SHELLS.contains(&name) && runs_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_with_a_command_and_package_runners_are_not_the_client() {
        for (line, waits) in [
            ("sh -c quell_mcp", true),
            ("/bin/bash -lc quell_mcp", true),
            ("bash -e -c x", true),
            ("-bash", false),
            ("bash", false),
            ("bash script.sh -c", false),
            ("npx quell", true),
            ("node server.js", false),
            ("claude", false),
            ("", false),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(only_waits_by(&words), waits, "{line}");
        }
        assert!(only_waits_by(&["npm exec quell mcp".into()]));
    }
}
