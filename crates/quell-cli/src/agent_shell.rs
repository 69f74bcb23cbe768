//! `quell-sh`: quell as the shell prefix of Claude Code (`CLAUDE_CODE_SHELL_PREFIX`), by a link of that name to the program.
//!
//! Claude Code calls the prefix with one argument, the command line, instead of giving that line to a shell. A command, a hook and the
//! status line run as `quell run --leak keep`; a server runs as `quell wrap`. Both ask the guard, and write their line into the audit log.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the link.
const NAME: &str = "quell-sh";

/// Claude Code sets this for commands, hooks and the status line, and removes it for servers.
const IS_COMMAND: &str = "CLAUDE_CODE_CHILD_SESSION";

/// The time that a command has to exit, and what it has left. Agents kill within a few seconds after they have asked.
const GRACE: &str = "2s";

/// Shells that read what Claude Code writes.
const SHELLS: [&str; 2] = ["bash", "zsh"];
/// Where they are, if SHELL does not say.
const PLACES: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/bin/zsh", "/bin/sh"];

/// The words of the command line, as `quell VERB …`. Those of `quell-sh` are put into that form.
///
/// Before: this process has one thread and has opened nothing. Does not return if the line calls this quell as a server: `quell mcp`
/// and `quell wrap` own what they start, and must not be wrapped once more.
pub fn words() -> Vec<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if !is_called(&words) {
        return words;
    }
    let [_, line] = words.as_slice() else {
        // `quell run` without a command is a usage error, with the exit code of `run`.
        return ["quell", "run"].map(OsString::from).to_vec();
    };
    let is_command = std::env::var_os(IS_COMMAND).is_some_and(|value| !value.is_empty());
    if !is_command && let Some(own) = line.to_str().and_then(plain_words).filter(|words| is_own_server(words))
    {
        // If it can't be executed, the shell says why.
        let _ = Command::new(&own[0]).args(&own[1..]).exec();
    }
    translated(line, is_command, &shell(), session().as_deref())
}

/// Whether this program was called by the name of the link.
fn is_called(words: &[OsString]) -> bool {
    words.first().and_then(|word| Path::new(word).file_name()).is_some_and(|name| name == NAME)
}

/// The call of quell for a command line.
fn translated(line: &OsStr, is_command: bool, shell: &Path, session: Option<&str>) -> Vec<OsString> {
    let mut words: Vec<&OsStr> = vec!["quell".as_ref()];
    let run = ["run", "--quiet", "--leak", "keep", "--grace", GRACE, "--tag", "kind=command"];
    if is_command {
        words.extend(run.map(OsStr::new));
        words.extend(session.into_iter().flat_map(|session| ["--session", session]).map(OsStr::new));
    } else {
        words.push("wrap".as_ref());
    }
    words.extend([OsStr::new("--"), shell.as_os_str(), OsStr::new("-c"), line]);
    words.into_iter().map(OsStr::to_owned).collect()
}

/// The session that the environment names: that of quell, or that of the agent. A name that is not one is left to `quell run`, which
/// refuses it.
fn session() -> Option<String> {
    if std::env::var_os("QUELL_SESSION").is_some_and(|value| !value.is_empty()) {
        return None;
    }
    quell::binary::agent_session()
}

/// The shell that Claude Code has chosen, which SHELL names, or another one that reads the same syntax.
fn shell() -> PathBuf {
    let named = std::env::var_os("SHELL").map(PathBuf::from);
    let reads = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        path.is_absolute() && SHELLS.iter().any(|shell| name == *shell) && is_program(path)
    };
    let found =
        named.filter(reads).or_else(|| PLACES.iter().map(PathBuf::from).find(|path| is_program(path)));
    found.unwrap_or_else(|| "/bin/sh".into())
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The words of a line that any shell takes for one command with these words: without quotes, or in single quotes. None for any other
/// line.
fn plain_words(line: &str) -> Option<Vec<String>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    line.split_ascii_whitespace().next()?;
    let mut words = Vec::new();
    let mut rest = line.trim_matches(' ');
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'')?,
            None => rest.split_at(rest.find(|c| !is_plain(c)).unwrap_or(rest.len())),
        };
        if word.is_empty() || !(after.is_empty() || after.starts_with(' ')) {
            return None;
        }
        words.push(word.to_owned());
        rest = after.trim_start_matches(' ');
    }
    Some(words)
}

/// Whether these words start a server of this very program.
fn is_own_server(words: &[String]) -> bool {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let place = |program: &str| match program.contains('/') {
        true => Some(PathBuf::from(program)),
        false => {
            let search = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search).map(|dir| dir.join(program)).find(|path| is_program(path))
        }
    };
    let is_server = words.get(1).is_some_and(|verb| matches!(verb.as_str(), "mcp" | "wrap"));
    is_server
        && place(&words[0])
            .is_some_and(|path| file(&path).is_some() && file(&path) == file("/proc/self/exe".as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn a_command_is_a_run_and_a_server_is_wrapped() {
        let line = OsStr::new("a && b 'c'");
        let run = "quell|run|--quiet|--leak|keep|--grace|2s|--tag|kind=command|--session|claude-x|--|/bin/zsh|-c|a && b 'c'";
        assert_eq!(text(&translated(line, true, "/bin/zsh".as_ref(), Some("claude-x"))), run);
        let wrap = "quell|wrap|--|/bin/bash|-c|a && b 'c'";
        assert_eq!(text(&translated(line, false, "/bin/bash".as_ref(), Some("claude-x"))), wrap);
    }

    #[test]
    fn only_the_link_is_a_prefix() {
        let is = |name: &str| is_called(&[name.into(), "x".into()]);
        assert!(
            is("quell-sh")
                && is("/a/b/quell-sh")
                && !is("quell")
                && !is("/quell-sh/quell")
                && !is_called(&[])
        );
    }

    #[test]
    fn a_line_that_a_shell_reads_otherwise_is_not_plain() {
        let words = |line: &str| plain_words(line).map(|words| words.join("|"));
        assert_eq!(words("/a/quell mcp --max-wait 25m"), Some("/a/quell|mcp|--max-wait|25m".into()));
        assert_eq!(words("'/a b/quell'  'mcp'"), Some("/a b/quell|mcp".into()));
        for line in [
            "",
            " ",
            "quell mcp; x",
            "quell mcp && x",
            "quell $X",
            "quell mcp\nx",
            "quell \"mcp\"",
            "'quell",
            "''",
            "quell'x' mcp",
            "'a''b'",
            "a=b quell mcp",
            "quell mcp #",
            "~/quell mcp",
            "quell *",
            "quell\tmcp",
        ] {
            assert_eq!(words(line), None, "{line:?}");
        }
    }
}
