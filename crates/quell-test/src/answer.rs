//! What a test run came to, as programs read it: the answer of `quell test`, and its evidence.

use quell_core::{JobId, Member, ProcId, Receipt, Signal, Timestamp};
use quell_guard::Decision;
use quell_keeper::control_protocol::LiveMember;
use serde::Serialize;

use super::counts::TestCounts;
use super::output::StreamText;

/// What a test run came to, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    /// The tests ran and passed, and left nothing behind.
    Pass,
    /// Tests failed.
    Fail,
    /// Their time was up.
    Timeout,
    /// The tests could not be run, or not to their end.
    Error,
    /// The tests passed, but left processes behind.
    Leak,
    /// The guard did not let them be run. Only evidence says so: the verb's answer is the error then.
    Refused,
}

impl TestStatus {
    /// The word for it.
    pub fn word(self) -> &'static str {
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
    /// What it came to.
    pub status: TestStatus,
    /// Why, in a sentence.
    pub reason: String,
    /// The exit code of the command, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that it died of, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub signal: Option<Signal>,
    /// Seconds from its start until nothing of it was left.
    pub duration: f64,
    /// The command.
    pub command: Vec<String>,
    /// Where it ran.
    pub cwd: String,
    /// The directories that targets had to be in, as they were written; none for all below the working directory.
    pub scope: Vec<String>,
    /// How many tests came to what.
    pub counts: TestCounts,
    /// The tests that failed, by name.
    pub failed_tests: Vec<String>,
    /// How many more failed than are named.
    pub failed_tests_omitted: u64,
    /// The test that had begun last and not ended, where the runner says which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_test: Option<String>,
    /// The time that it was given, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Whether it was stopped because that was up.
    pub timeout_triggered: bool,
    /// Who was alive then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_at_timeout: Option<TreeAtTimeout>,
    /// Who was alive when the command itself had exited.
    pub leaked: Vec<TestProcess>,
    /// What it wrote to its standard output.
    pub stdout: StreamText,
    /// What it wrote to its standard error.
    pub stderr: StreamText,
    /// The report that was named with `--junit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub junit: Option<JunitReport>,
    /// What the guard said.
    pub decision: Decision,
    /// The job that it was: `quell logs` has all that it wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub job: Option<JobId>,
    /// What happened to its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Why it could not be run, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TestError>,
    /// What went wrong beside that.
    pub problems: Vec<String>,
    /// When it began.
    pub started: Timestamp,
    /// When it was over.
    pub ended: Timestamp,
}

/// The processes of a run when its time was up.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TreeAtTimeout {
    /// `live` if they were looked at right before the stop; `receipt` if that came too late, so that these are all that
    /// were seen until then.
    pub source: String,
    /// They, parents first.
    pub processes: Vec<TestProcess>,
}

/// One process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestProcess {
    /// Its identity.
    #[serde(flatten)]
    pub id: ProcId,
    /// Its parent.
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

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JunitReport {
    /// Which.
    pub file: String,
    /// Whether the counts are from it.
    pub used: bool,
    /// What is wrong with it: it is not there, is an old one, ends in the middle.
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
