//! The arguments of `test`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quell::binary::parse_assignment;
use quell::units::{parse_duration, parse_size};

use super::LeakArg;
use super::common::{AskArg, Bound, bound, job_name};

const TEST_HELP: &str = "\
The guard decides before anything runs: every target is below the working directory and the scope (--scope \
and guard.test.scope), the program is in guard.test.commands, and the run is approved where \
guard.test.approval asks for that (--approve, or the variable that the policy names). docs/guard.md has \
examples.

quell knows pytest, unittest, cargo test, cargo nextest, go test, jest and vitest: it checks their targets, counts \
their tests and names the failed ones. Other commands are judged by their exit code and by --junit. INT, \
TERM, HUP and QUIT stop the tests, and a second signal kills them. If quell is killed, the tests are \
stopped.

Exit codes:
  0      pass
  1      fail: tests failed, or left processes behind (--leak fail)
  2      wrong usage
  4      refused by the guard; nothing was run
  5      not proven dead; the receipt names the survivors
  124    timed out
  125    error: the tests could not be run, or not to their end
  128+n  error: signal n was sent to quell, and the tests were stopped

Examples:
  quell test -- pytest -q
  quell test --scope tests --timeout 5m -- pytest tests/test_api.py
  quell test --timeout 10m --evidence run.json --json -- cargo test
  quell test --scope pkg -- go test ./pkg/...
  quell test --junit report.xml -- make check";

#[derive(Args)]
#[command(after_help = TEST_HELP, override_usage = "quell test [OPTIONS] -- CMD…")]
pub struct TestArgs {
    /// Directory that targets must be in (repeatable)
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// Stop the tests after this time: 1.5s, 2m, none [default: test.timeout, 30m]
    #[arg(long, value_name = "DUR", value_parser = bound)]
    pub timeout: Option<Bound>,
    /// Time between the request to exit and the kill [default: stop.grace, 5s]
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Processes that are asked first [default: tree]
    #[arg(long, value_enum)]
    pub ask: Option<AskArg>,
    /// What to do with processes that outlive the command
    #[arg(long, value_enum, default_value = "fail")]
    pub leak: LeakArg,
    /// Write everything about the run to this file (JSON), also if it is refused
    #[arg(long, value_name = "FILE")]
    pub evidence: Option<PathBuf>,
    /// Output per stream in the answer, half head and half tail
    #[arg(long, value_name = "SIZE", default_value = "50K", value_parser = parse_size)]
    pub max_output: u64,
    /// Report in JUnit XML that the command writes; the counts are taken from it
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// State that this run is approved
    #[arg(long)]
    pub approve: bool,
    /// Refuse a command without a target
    #[arg(long)]
    pub require_target: bool,
    /// Name of the job: letters, digits, `.`, `-` and `_`
    #[arg(long, value_parser = job_name)]
    pub name: Option<String>,
    /// Label (repeatable)
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub tag: Vec<(String, String)>,
    /// Reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
