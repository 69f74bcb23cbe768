//! The result of a test run as JSON: the answer of `quell test`, and its evidence.

use quell_core::{JobId, Member, ProcId, Receipt, Signal, Timestamp};
use quell_guard::Decision;
use quell_keeper::control_protocol::LiveMember;
use serde::Serialize;

use super::counts::TestCounts;
use super::output::StreamText;

/// The status of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    /// The tests passed, and left no process behind.
    Pass,
    /// Tests failed.
    Fail,
    /// The time limit was reached.
    Timeout,
    /// The tests could not be run, or did not run to their end.
    Error,
    /// The tests passed, but left processes behind.
    Leak,
    /// The guard refused. Only evidence has this status: `quell test` itself returns an error.
    Refused,
}

impl TestStatus {
    /// The word in JSON and in text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Leak => "leak",
            Self::Refused => "refused",
        }
    }
}

/// `quell test`, and the document that `--evidence` writes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestAnswer {
    /// `quell/1`.
    pub schema: String,
    /// The result.
    pub status: TestStatus,
    /// The reason, in a sentence.
    pub reason: String,
    /// The exit code of the command, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that killed the command, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub signal: Option<Signal>,
    /// Seconds from the start until no process was left.
    pub duration: f64,
    /// The command.
    pub command: Vec<String>,
    /// The working directory.
    pub cwd: String,
    /// The directories that targets had to be in, as they were written; empty for everything below the working directory.
    pub scope: Vec<String>,
    /// How many tests had which result.
    pub counts: TestCounts,
    /// The names of failed tests.
    pub failed_tests: Vec<String>,
    /// How many failed tests are not named.
    pub failed_tests_omitted: u64,
    /// The test that began last and had not ended, if the runner names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_test: Option<String>,
    /// The time limit in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Whether it was stopped at the time limit.
    pub timeout_triggered: bool,
    /// The processes that were alive then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_at_timeout: Option<TreeAtTimeout>,
    /// The processes that outlived the command and had to be stopped.
    pub leaked: Vec<TestProcess>,
    /// Its standard output.
    pub stdout: StreamText,
    /// Its standard error.
    pub stderr: StreamText,
    /// The report that was named with `--junit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub junit: Option<JunitReport>,
    /// The decision of the guard.
    pub decision: Decision,
    /// The job; `quell logs` shows its whole output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub job: Option<JobId>,
    /// What happened to its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Why the tests could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TestError>,
    /// Other problems.
    pub problems: Vec<String>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
}

/// The processes of a run at its time limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeAtTimeout {
    /// `live` if they were listed right before the stop; `receipt` if that came too late: then it is every process that was
    /// seen.
    pub source: String,
    /// The processes, parents first.
    pub processes: Vec<TestProcess>,
}

/// One process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestProcess {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// The PID of its parent.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session.
    pub sid: u32,
    /// Its command line, or its short name in brackets.
    pub command: String,
}

impl From<&LiveMember> for TestProcess {
    fn from(member: &LiveMember) -> Self {
        let LiveMember { id, ppid, pgid, sid, command, .. } = member;
        Self { id: *id, ppid: *ppid, pgid: *pgid, sid: *sid, command: command.clone() }
    }
}

impl From<&Member> for TestProcess {
    fn from(member: &Member) -> Self {
        let Member { id, ppid, pgid, sid, command, .. } = member;
        Self { id: *id, ppid: *ppid, pgid: *pgid, sid: *sid, command: command.clone() }
    }
}

/// A report, and whether it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JunitReport {
    /// The path as it was given.
    pub file: String,
    /// Whether the counts are from it.
    pub used: bool,
    /// What is wrong with it: it does not exist, is from an earlier run, or is cut short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Why tests could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestError {
    /// The stable word for programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}
