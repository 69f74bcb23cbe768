//! `cargo xtask samples`: the sample output in README and docs is real output.
//!
//! Each block that begins with ```` ```console ```` is a session: lines with `$ ` are commands, the others are what they
//! print. All commands of a block run in one shell, with a home of their own. What differs from run to run (ids, PIDs,
//! times) is compared by its kind.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use regex_lite::Regex;

const FENCE: &str = "```console\n";

/// How often a document is tried before it counts as different: a process that another program starts in a PID namespace at
/// the same time can make the end of a job unproven.
const TRIES: usize = 3;

/// Marks the place of a command in the output. Its exit code is still that of the command before.
const MARK: &str = "exec 2>&1; mark() { local code=$?; printf '\\036'; return $code; }\n";

/// Writes the samples again, or with `--check` says which are not what is printed today.
pub fn main(words: &[String]) -> Result<ExitCode, String> {
    let check = match words {
        [] => false,
        [word] if word == "--check" => true,
        _ => return Err("samples takes --check and nothing else".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?;
    let quell = env::var_os("QUELL_BIN").map_or_else(|| root.join("target/quell"), PathBuf::from);
    let quell = fs::canonicalize(&quell).map_err(|error| format!("{}: {error}", quell.display()))?;
    let mut wrong = 0;
    for file in documents(root)? {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut made = String::new();
        for _ in 0..TRIES {
            made = rewritten(&text, |session| play(root, &quell, session))?;
            if same(&made, &text) {
                break;
            }
        }
        if same(&made, &text) {
            continue;
        }
        if check {
            wrong += 1;
            eprintln!(
                "{}: its samples are not what quell prints:\n{}",
                file.display(),
                differences(&text, &made)
            );
        } else {
            fs::write(&file, made).map_err(|error| format!("{}: {error}", file.display()))?;
            println!("{}", file.display());
        }
    }
    if wrong > 0 {
        return Err("run `cargo xtask samples` and look at what has changed".into());
    }
    Ok(ExitCode::SUCCESS)
}

fn documents(root: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(root.join("docs")).map_err(|error| format!("docs: {error}"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    files.push(root.join("README.md"));
    files.sort();
    Ok(files)
}

/// `text` with each session as `play` gives it.
fn rewritten(text: &str, play: impl Fn(&[&str]) -> Result<String, String>) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(FENCE) {
        let (session, behind) = after.split_once("```\n").ok_or("a block without an end")?;
        let commands: Vec<&str> = session.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        made += before;
        made += FENCE;
        made += &play(&commands)?;
        made += "```\n";
        rest = behind;
    }
    Ok(made + rest)
}

/// Runs the commands, and gives each with what it printed.
fn play(root: &Path, quell: &Path, commands: &[&str]) -> Result<String, String> {
    let dir = env::temp_dir().join(format!("quell-samples-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir.join("bin")).map_err(failed)?;
    std::os::unix::fs::symlink(quell, dir.join("bin/quell")).map_err(failed)?;
    let script: String = commands.iter().map(|command| format!("mark; {command}\n")).collect();
    let path = env::var("PATH").unwrap_or_default();
    let shell = |script: &str| {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", script]).current_dir(root).env_remove("COLUMNS");
        bash.env("PATH", format!("{}:{path}", dir.join("bin").display())).env("QUELL_HOME", dir.join("home"));
        bash.output()
    };
    let output = shell(&format!("{MARK}{script}"));
    // A sample may leave jobs behind, the next one must not meet them.
    let _ = shell("quell stop --all --now --quiet");
    let _ = fs::remove_dir_all(&dir);
    let output = output.map_err(|error| format!("bash: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = text.split('\x1e').skip(1);
    Ok(commands.iter().zip(printed).map(|(command, printed)| format!("$ {command}\n{printed}")).collect())
}

/// What of a text does not differ from run to run.
fn kinds(text: &str) -> String {
    let rules = [
        (r"\b01[0-9A-HJKMNP-TV-Z]{2,24}\b", "ID"),
        (r"\b\d+(\.\d+)?(ms|s)( ago)?\b", "TIME"),
        (r"\bnow\b", "TIME"),
        (r"\b\d{3,}\b", "NUMBER"),
        (r"\b(cgroup|scope|reaper)\b", "HELD"),
        (r" +", " "),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, kind)| match Regex::new(pattern) {
        Ok(pattern) => pattern.replace_all(&text, *kind).into_owned(),
        Err(_) => text,
    })
}

fn same(one: &str, other: &str) -> bool {
    kinds(one) == kinds(other)
}

/// The lines that are not alike.
fn differences(old: &str, new: &str) -> String {
    let pairs = old.lines().zip(new.lines()).filter(|(old, new)| !same(old, new));
    pairs.map(|(old, new)| format!("- {old}\n+ {new}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_replaced_and_all_else_stays() {
        let text = "a\n```console\n$ one\nold\n$ two\n```\nb\n```sh\n$ three\n```\n";
        let made =
            rewritten(text, |commands| Ok(commands.iter().map(|it| format!("$ {it}\nnew\n")).collect()));
        assert_eq!(made.unwrap(), "a\n```console\n$ one\nnew\n$ two\nnew\n```\nb\n```sh\n$ three\n```\n");
    }

    #[test]
    fn ids_pids_and_times_are_compared_by_their_kind() {
        assert!(same("01M7GXP8WZ  4097  1.00s", "01M7P4JZV  28033  980ms"));
        assert!(!same("stopped: 7 processes", "stopped: 8 processes"));
    }
}
