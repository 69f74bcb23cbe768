//! `quell test`: runs tests if the guard allows it, as a job with limits, and returns the result as one document.
//!
//! `check` decides by the command line, the policy and the disk. `runners` has one table per test runner. `files` checks the files that
//! runners read on their own. `run` starts the job and fills in the answer. `counts` reads what the runner wrote.
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

pub use admit::check_request;
pub use answer::{JunitReport, TestAnswer, TestError, TestProcess, TestStatus, TreeAtTimeout};
pub use counts::TestCounts;
pub use output::{OutputCut, StreamText};

use evidence::EvidenceFile;
use run::TestRun;

/// The default limit for each stream in an answer, in bytes.
pub const MAX_OUTPUT: u64 = 50 * 1024;

/// The name of the published schema of [`TestAnswer`], and the function that makes it.
#[cfg(feature = "schema")]
pub const SCHEMA: (&str, fn() -> String) = ("test", quell_core::schema::written::<TestAnswer>);

/// A test run as the caller asks for it.
#[derive(Clone, Debug)]
pub struct TestPlan {
    /// The command and its limits. This process becomes the owner of the job unless the request names another process. The job ends when the command exits.
    pub request: JobRequest,
    /// The directories that targets must be in. If empty, the scope of the policy applies.
    pub scope: Vec<PathBuf>,
    /// The JUnit report that the command writes.
    pub junit: Option<PathBuf>,
    /// A file that the answer is written to as well.
    pub evidence: Option<PathBuf>,
    /// The limit for each stream in the answer, in bytes.
    pub max_output: u64,
    /// Whether a person has approved the run.
    pub approved: bool,
    /// Whether the command must name a target even without a scope.
    pub require_target: bool,
    /// Returns the hint for an error. Hints differ between interfaces, as they name options.
    pub hint: fn(&Error) -> String,
}

impl TestPlan {
    /// A plan with the defaults for everything but the request.
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

    /// The value of PYTEST_ADDOPTS that the tests would get.
    fn pytest_addopts(&self) -> Option<OsString> {
        self.request.env.variables().remove(OsStr::new(check::PYTEST_ADDOPTS))
    }

    /// The decision with masked values removed from its texts.
    fn mask(&self, decision: Decision) -> Decision {
        let paths = self.scope.iter().chain(&self.junit).chain(&self.evidence).map(|path| path.as_os_str());
        let added = self.pytest_addopts();
        let words = self.request.command.iter().chain(&added).map(OsString::as_os_str).chain(paths);
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        decision.masked_about(&self.request.masked_values(), &words)
    }

    /// Checks what must hold before evidence can be written: the verb is allowed, and so is the path of the evidence.
    fn check_verb_and_evidence(&self, guard: &Guard, cwd: &Path) -> check::Checked<()> {
        decide_verb(guard.policy(), Verb::Test).ok()?;
        let file = self.evidence.as_deref();
        file.map_or(Ok(()), |file| check::check_evidence(file, cwd, guard.home().dir()))
    }

    fn check(&self, guard: &Guard, cwd: &Path) -> check::Checked<check::CheckedPlan> {
        check::check(&guard.policy().test, self, cwd, guard.home().dir())
    }
}

fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().and_then(fs::canonicalize).map_err(Error::io("."))
}

/// Asks the guard about a plan, without running anything.
pub fn check_tests(guard: &Guard, plan: &TestPlan) -> Result<Decision> {
    let cwd = current_dir()?;
    let checked = plan.check_verb_and_evidence(guard, &cwd).and_then(|()| plan.check(guard, &cwd));
    Ok(checked.map_or_else(|refusal| plan.mask(*refusal), |checked| checked.decision))
}

/// Runs the tests and returns the result. `on_start` gets the job as soon as it exists.
///
/// An error means that nothing was run: the guard refused, or evidence can't be written. If the guard allowed the tests but they could not
/// be run, that is an answer with the status `error`.
pub fn run_tests(
    quell: &Quell,
    guard: &Guard,
    plan: &TestPlan,
    on_start: impl FnOnce(&Job),
) -> Result<TestAnswer> {
    let cwd = current_dir()?;
    let mask = plan.request.masked_values();
    let command: Vec<String> =
        plan.request.command.iter().map(|word| mask.apply(&word.to_string_lossy())).collect();
    let added = plan.pytest_addopts().map(|added| mask.apply(&added.to_string_lossy()));
    let added = added.map(|added| format!("{}={added} ", check::PYTEST_ADDOPTS)).unwrap_or_default();
    let target = added + &command.join(" ");
    if let Err(refusal) = plan.check_verb_and_evidence(guard, &cwd) {
        return Err(guard.refuse(Verb::Test, &target, plan.mask(*refusal)).into());
    }
    let evidence = plan.evidence.as_deref().map(EvidenceFile::prepare).transpose()?;
    let mut answer = TestAnswer::new(plan, command, &cwd);

    let checked = plan.check(guard, &cwd);
    let decision = match &checked {
        Ok(checked) => checked.decision.clone(),
        Err(refusal) => (**refusal).clone(),
    };
    let decided = guard.decided(Verb::Test, &target, plan.mask(decision)).map_err(Error::from);
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
        let problem =
            format!("the scope keeps these variables from the tests: {names} (see guard.test.allow)");
        answer.problems.push(problem);
    }
    let run = TestRun::new(plan, checked, &cwd);
    if let Err(error) = run.execute(&mut answer, quell, &permit, on_start) {
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
    // The tests have run, so a failure to write the log is only reported.
    if let Err(error) = permit.record(&target, &result, receipt) {
        answer.problems.push(format!("the run is not in the audit log: {error}"));
    }
    if let Some(evidence) = evidence
        && let Err(error) = evidence.write(&answer)
    {
        answer.problems.push(format!("can't write the evidence: {error}"));
        answer.status = TestStatus::Error;
        answer.reason = "the evidence could not be written".into();
    }
    Ok(answer)
}
