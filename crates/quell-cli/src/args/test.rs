//! The arguments of `test`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quell_core::{parse_assignment, parse_duration, parse_size};

use super::LeakArg;
use super::common::{AskArg, Bound, bound, name};

const TEST_HELP: &str = "\
Nothing runs before the guard has agreed: every target is below the working directory and the scope (--scope, and
guard.test.scope), the program is among guard.test.commands, and the run is approved where guard.test.approval asks for
it (--approve, or the policy's variable). docs/guard.md has examples.

pytest, cargo test, cargo nextest, go test, jest and vitest are known: their targets are checked, their tests are counted
and the failed ones named. Any other command counts by its exit code, and by --junit. INT, TERM, HUP and QUIT stop the
tests, and are told of; a second one kills them. If quell is killed, the tests are stopped.

Exit codes:
  0      pass
  1      fail: tests failed; leak: they passed and left processes behind, which --leak fail (the default) makes a failure
  2      quell was called wrongly
  4      refused, and nothing was run
  5      not proven dead: the receipt names the survivors
  124    timeout
  125    error: the tests could not be run, or not to their end (no tests found, a file that can't be collected, …)
  128+n  error: they were stopped because signal n came to quell

Examples:
  quell test -- pytest -q
  quell test --scope tests --timeout 5m -- pytest tests/test_api.py::test_login
  quell test --timeout 10m --evidence run.json --json -- cargo test
  quell test --scope pkg -- go test ./pkg/...
  quell test --junit report.xml -- make check";

#[derive(Args)]
#[command(after_help = TEST_HELP, override_usage = "quell test [OPTIONS] -- CMD…")]
pub struct TestArgs {
    /// A directory that targets must be in; may be given many times
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// Stop the tests after this long: 300ms, 1.5s, 2m, 1h, or none [default: test.timeout of the settings, 30m]
    #[arg(long, value_name = "DUR", value_parser = bound)]
    pub timeout: Option<Bound>,
    /// How long they may take to end when asked, before they are killed [default: stop.grace of the settings, 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Which processes are asked first [default: tree]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// What to do about processes that outlive the command; `fail` makes the status `leak`
    #[arg(long, value_enum, default_value = "fail")]
    pub leak: LeakArg,
    /// Write all that is known of the run to this file (JSON), also if it is refused
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<PathBuf>,
    /// How much of each output stream the answer has, half of it head and half tail
    #[arg(long, value_name = "SIZE", default_value = "50K", value_parser = parse_size)]
    pub max_output: u64,
    /// A report in JUnit's XML that the command writes; the counts are taken from it
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Say that somebody has approved this run
    #[arg(long)]
    pub approve: bool,
    /// Refuse a command that names no target
    #[arg(long)]
    pub require_target: bool,
    /// A name for people: letters, digits, dots, dashes and underscores
    #[arg(long, value_parser = name)]
    pub name: Option<String>,
    /// A label; may be given many times
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub tag: Vec<(String, String)>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
