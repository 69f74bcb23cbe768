//! How a command is recognized.

use super::super::command::{check_commands, read_command};
use super::*;

#[test]
fn a_program_is_allowed_by_its_file_name() {
    let policy = |commands: &[&str]| TestPolicy {
        commands: commands.iter().map(ToString::to_string).collect(),
        ..TestPolicy::default()
    };
    for (commands, line, allowed) in [
        (&["pytest"][..], "pytest tests", true),
        (&["pytest"], ".venv/bin/pytest tests", true),
        (&["pytest"], "pytest-3 tests", true),
        (&["pytest"], "python3 -m pytest tests", true),
        (&["python"], "python3.11 -m pytest tests", true),
        (&["python3"], "python3 -m pytest tests", true),
        (&["pytest"], "python3 -m http.server", false),
        (&["pytest"], "python3 evil.py -m pytest", false),
        (&["pytest"], "python3 -c x -m pytest", false),
        (&["pytest"], "python3 -Ic '-1;import os' -m pytest tests", false),
        (&["pytest"], "python3 -- -m pytest tests", false),
        (&["pytest"], "python3 - -m pytest tests", false),
        (&["pytest"], "python3 -Xdev -m pytest tests", true),
        (&["pytest"], "python3 -X dev -m pytest tests", true),
        (&["pytest"], "python3 -X -c -m pytest tests", false),
        (&["pytest"], "python3 -X pycache_prefix=evil -m pytest tests", false),
        (&["pytest"], "python3 -W ignore::m.X -m pytest tests", false),
        (&["pytest"], "python3 -i -m pytest tests", false),
        (&["python"], "python3 -i -m pytest tests", true),
        (&["pytest"], "python3 -W error -OIm pytest tests", true),
        (&["pytest"], "python3 -mpytest tests", true),
        (&["pytest"], "python3 -mhttp.server -m pytest", false),
        (&["pytest"], "python3 -Z -m pytest tests", false),
        (&["pytest"], "python3 --check-hash-based-pycs -m pytest tests", false),
        (&["pytest"], "env pytest", false),
        (&["pytest"], "uv run pytest", false),
        (&["pytest"], "pytest_evil tests", false),
        (&["pytest"], "sh -c pytest", false),
        (&["cargo"], "cargo test", true),
        (&["cargo"], "cargo-evil test", false),
        (&["go", "cargo"], "/usr/bin/go test", true),
        (&["py*"], "pypy x", true),
        (&["/usr/bin/*"], "pytest tests", false),
        (&[], "anything at all", true),
    ] {
        let command = read_command(&shlex_split(line));
        assert_eq!(check_commands(&policy(commands), &command).is_ok(), allowed, "{commands:?} {line}");
    }
}

#[test]
fn runners_are_known_by_the_way_they_are_called() {
    for (line, runner) in [
        ("pytest", Runner::Pytest),
        ("python -m pytest", Runner::Pytest),
        ("python -m unittest", Runner::Unittest),
        ("python -m http.server", Runner::Other),
        ("cargo test", Runner::Cargo),
        ("cargo nextest run", Runner::Nextest),
        ("cargo build", Runner::Other),
        ("go test ./...", Runner::Go),
        ("go vet", Runner::Other),
        ("npx vitest", Runner::Vitest),
        ("node_modules/.bin/jest", Runner::Jest),
        ("", Runner::Other),
    ] {
        assert_eq!(read_command(&shlex_split(line)).runner, runner, "{line}");
    }
}
