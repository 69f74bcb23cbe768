//! `quell test`: tests run only if the guard allows it, as a job with limits, and the result is one document.
//!
//! `check` decides by words, policy and disk; `runners` has one table per test runner; `files` looks at what runners read by themselves.
//! `run` starts the job and fills in the answer; `counts` reads what the runner wrote.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod admit;
mod answer;
mod check;
mod counts;
mod evidence;
mod files;
mod follow;
mod output;
mod run;
mod runners;
mod status;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use quell::{Error, Job, Quell, Result};
use quell_core::JobRequest;
use quell_guard::{Decision, Guard, Verb, decide_verb};

pub use admit::judge_request;
pub use answer::{JunitReport, TestAnswer, TestError, TestProcess, TestStatus, TreeAtTimeout};
pub use counts::TestCounts;
pub use output::{OutputCut, StreamText};

use evidence::EvidenceFile;
use run::TestRun;

/// How many bytes of each stream an answer has by default.
pub const MAX_OUTPUT: u64 = 50 * 1024;

/// The name of the published schema of [`TestAnswer`], and the function that makes it.
#[cfg(feature = "schema")]
pub const SCHEMA: (&str, fn() -> String) = ("test", quell_core::schema::written::<TestAnswer>);

/// What to run, and under which conditions.
#[derive(Clone, Debug)]
pub struct TestPlan {
    /// The command, and how it is run. This process becomes its owner, and the exit of the command ends it.
    pub request: JobRequest,
    /// The directories that targets have to be in; if empty, the policy's.
    pub scope: Vec<PathBuf>,
    /// The report that the command writes.
    pub junit: Option<PathBuf>,
    /// A file that the answer is written to as well.
    pub evidence: Option<PathBuf>,
    /// How many bytes of each stream are in the answer.
    pub max_output: u64,
    /// Whether a person has approved the run.
    pub approved: bool,
    /// Whether the command has to name a target, also without a scope.
    pub require_target: bool,
    /// What to do about an error, in the words of the interface that is used.
    pub hint: fn(&Error) -> String,
}

impl TestPlan {
    /// A command with the defaults for everything else.
    pub fn new(request: JobRequest) -> Self {
        Self {
            request,
            scope: Vec::new(),
            junit: None,
            evidence: None,
            max_output: MAX_OUTPUT,
            approved: false,
            require_target: false,
            hint: |_| String::new(),
        }
    }

    /// The words that pytest reads before those of the command.
    fn added_words(&self) -> Option<OsString> {
        self.request.env.variables().remove(OsStr::new(check::PYTEST_WORDS))
    }

    /// A decision about this plan without values that have to be masked.
    fn mask(&self, decision: Decision) -> Decision {
        let paths = self.scope.iter().chain(&self.junit).chain(&self.evidence).map(|path| path.as_os_str());
        let added = self.added_words();
        let words = self.request.command.iter().chain(&added).map(OsString::as_os_str).chain(paths);
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        decision.masked_about(&self.request.masked_values(), &words)
    }

    /// Whether tests may be run at all, and evidence may be written where it is wanted.
    fn check_first(&self, gate: &Guard, cwd: &Path) -> check::Verdict<()> {
        decide_verb(gate.policy(), Verb::Test).ok()?;
        let file = self.evidence.as_deref();
        file.map_or(Ok(()), |file| check::check_evidence(file, cwd, gate.home().dir()))
    }

    fn check(&self, gate: &Guard, cwd: &Path) -> check::Verdict<check::Checked> {
        check::check(&gate.policy().test, self, cwd, gate.home().dir())
    }
}

fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().and_then(fs::canonicalize).map_err(Error::io("."))
}

/// What the guard says about a plan, without running anything.
pub fn check_tests(gate: &Guard, plan: &TestPlan) -> Result<Decision> {
    let cwd = current_dir()?;
    let checked = plan.check_first(gate, &cwd).and_then(|()| plan.check(gate, &cwd));
    Ok(checked.map_or_else(|refusal| plan.mask(*refusal), |checked| checked.decision))
}

/// Runs the tests and returns the result; `meet` gets the job as soon as it exists. An error means that nothing was run: the guard
/// refused, or evidence can't be written. Tests that can't be run are an answer, too.
pub fn run_tests(
    quell: &Quell,
    gate: &Guard,
    plan: &TestPlan,
    meet: impl FnOnce(&Job),
) -> Result<TestAnswer> {
    let cwd = current_dir()?;
    let mask = plan.request.masked_values();
    let command: Vec<String> =
        plan.request.command.iter().map(|word| mask.apply(&word.to_string_lossy())).collect();
    let added = plan.added_words().map(|added| mask.apply(&added.to_string_lossy()));
    let added = added.map(|added| format!("{}={added} ", check::PYTEST_WORDS)).unwrap_or_default();
    let target = added + &command.join(" ");
    if let Err(refusal) = plan.check_first(gate, &cwd) {
        return Err(gate.refuse(Verb::Test, &target, plan.mask(*refusal)).into());
    }
    let evidence = plan.evidence.as_deref().map(EvidenceFile::at).transpose()?;
    let mut answer = TestAnswer::begun(plan, command, &cwd);

    let checked = plan.check(gate, &cwd);
    let decision = match &checked {
        Ok(checked) => checked.decision.clone(),
        Err(refusal) => (**refusal).clone(),
    };
    let decided = gate.decided(Verb::Test, &target, plan.mask(decision)).map_err(Error::from);
    let (permit, checked) = match (decided, checked) {
        (Ok(permit), Ok(checked)) => (permit, checked),
        (Ok(_), Err(refusal)) => return Err(Error::Refused(refusal)),
        (Err(error), _) => {
            if let (Error::Refused(decision), Some(evidence)) = (&error, &evidence) {
                answer.refuse(decision);
                answer.mask(&mask);
                evidence.write(&answer)?;
            }
            return Err(error);
        }
    };
    answer.decision = permit.decision().clone();
    answer.scope.clone_from(&checked.scope);
    if !checked.cleared.is_empty() {
        let names = checked.cleared.join(", ");
        let problem = format!("not passed on to the tests, as there is a scope: {names} (guard.test.allow)");
        answer.problems.push(problem);
    }
    let run = TestRun::new(plan, checked, &cwd);
    if let Err(error) = run.carry_out(&mut answer, quell, &permit, meet) {
        answer.fail(&error, (plan.hint)(&error));
    }
    answer.mask(&mask);
    let result = serde_json::json!({
        "status": answer.status,
        "exit_code": answer.exit_code,
        "duration": answer.duration,
        "counts": answer.counts,
    });
    let receipt = answer.job.map(|job| job.to_string());
    // The tests have run: that the log can't be written is reported, and is not an error.
    if let Err(error) = permit.record(&target, &result, receipt) {
        answer.problems.push(format!("the run is not in the audit log: {error}"));
    }
    if let Some(evidence) = evidence
        && let Err(error) = evidence.write(&answer)
    {
        answer.problems.push(format!("there is no evidence: {error}"));
        answer.status = TestStatus::Error;
        answer.reason = "the evidence could not be written".into();
    }
    Ok(answer)
}
