//! Test runs: nothing runs before the guard has agreed; what runs is a job like any other, held and bounded; what it
//! came to is one document.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod again;
mod answer;
mod cargo;
mod check;
mod counts;
mod evidence;
mod follow;
mod ini;
mod output;
mod report;
mod rules;
mod shadow;
mod status;
mod stdlib;
mod symlinks;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::rules::{Decision, Runner};
use quell_core::{Cause, Fate, JobRequest, Mask, Member, Mode, Owner, Receipt, RootOutcome, Until};

pub use again::judge_request;
pub use answer::{JunitReport, TestAnswer, TestError, TestProcess, TestStatus, TreeAtTimeout};
pub use counts::TestCounts;
pub use output::{OutputCut, StreamText};

use counts::{Counter, FoundTests};
use evidence::EvidenceFile;
use follow::Course;
use quell::binary::{JobInternals, QuellInternals};
use quell::{Error, Job, Quell, Result};
use quell_guard::{Guard, Permit, Verb, decide_verb};
use status::Facts;

/// How much of each stream an answer has, if nothing else is asked for.
pub const MAX_OUTPUT: u64 = 50 * 1024;

/// How large a report may be.
const MOST_JUNIT: u64 = 32 << 20;

/// The name of the published schema of [`TestAnswer`], and what makes it.
#[cfg(feature = "schema")]
pub const SCHEMA: (&str, fn() -> String) = ("test", quell_core::schema::written::<TestAnswer>);

/// What to run, and what has to hold for it.
#[derive(Clone, Debug)]
pub struct TestPlan {
    /// The command, and how it is run. Its owner is this process, and the exit of the command ends it, whatever is here.
    pub request: JobRequest,
    /// The directories that targets have to be in; none for what the policy says.
    pub scope: Vec<PathBuf>,
    /// The report that the command writes.
    pub junit: Option<PathBuf>,
    /// Where the answer is written, too.
    pub evidence: Option<PathBuf>,
    /// How many bytes of each stream are in the answer.
    pub max_output: u64,
    /// Whether somebody has approved it.
    pub approved: bool,
    /// Whether it has to name a target in any case.
    pub require_target: bool,
    /// What to do about an error, in the words of the interface that is used.
    pub hint: fn(&Error) -> String,
}

impl TestPlan {
    /// A command with the defaults for everything else.
    pub fn new(request: JobRequest) -> Self {
        let (scope, junit, evidence, max_output) = (Vec::new(), None, None, MAX_OUTPUT);
        let hint = |_: &Error| String::new();
        Self { request, scope, junit, evidence, max_output, approved: false, require_target: false, hint }
    }

    /// What a decision may quote, as it was given.
    fn raw_words(&self) -> Vec<String> {
        let added = self.request.env.variables().remove(OsStr::new(check::PYTEST_WORDS));
        let paths = self.scope.iter().chain(&self.junit).chain(&self.evidence).map(|path| path.as_os_str());
        let words = self.request.command.iter().chain(&added).map(OsString::as_os_str);
        words.chain(paths).map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// Whether they would be let run, without doing it.
pub fn check_tests(gate: &Guard, plan: &TestPlan) -> Result<Decision> {
    let cwd = std::env::current_dir().and_then(fs::canonicalize).map_err(Error::io("."))?;
    let listed = decide_verb(gate.policy(), Verb::Test);
    if !listed.allowed {
        return Ok(listed);
    }
    let home = gate.home().dir();
    let evidence = plan.evidence.as_deref().map_or(Ok(()), |file| check::check_evidence(file, &cwd, home));
    Ok(match evidence.and_then(|()| check::check(&gate.policy().test, plan, &cwd, Some(home))) {
        Ok(checked) => checked.decision,
        Err(refusal) => refusal.masked_about(&plan.request.masked_values(), &plan.raw_words()),
    })
}

/// Runs the tests and says what they came to; `meet` gets the job as soon as there is one. An error means that nothing was
/// run: refused by the guard, or evidence that can't be written. Tests that can't be run are an answer, too.
pub fn run_tests(
    quell: &Quell,
    gate: &Guard,
    plan: &TestPlan,
    meet: impl FnOnce(&Job),
) -> Result<TestAnswer> {
    let cwd = std::env::current_dir().and_then(fs::canonicalize).map_err(Error::io("."))?;
    let mask = plan.request.masked_values();
    let words: Vec<String> =
        plan.request.command.iter().map(|word| mask.apply(&word.to_string_lossy())).collect();
    // The words that pytest reads before these are part of what is run.
    let added = plan.request.env.variables().remove(OsStr::new(check::PYTEST_WORDS));
    let added =
        added.map(|added| format!("{}={} ", check::PYTEST_WORDS, mask.apply(&added.to_string_lossy())));
    let target = added.unwrap_or_default() + &words.join(" ");
    // Nothing is touched for who may not run tests at all, or wants evidence where none may be.
    let listed = decide_verb(gate.policy(), Verb::Test);
    if !listed.allowed {
        return Err(gate.refuse(Verb::Test, &target, listed).into());
    }
    if let Some(file) = &plan.evidence
        && let Err(refusal) = check::check_evidence(file, &cwd, gate.home().dir())
    {
        return Err(gate.refuse(Verb::Test, &target, refusal.masked_about(&mask, &plan.raw_words())).into());
    }
    let evidence = plan.evidence.as_deref().map(EvidenceFile::at).transpose()?;
    let mut answer = TestAnswer::begun(plan, words, &cwd);

    let checked = check::check(&gate.policy().test, plan, &cwd, Some(gate.home().dir()));
    let (decision, checked) = match checked {
        Ok(checked) => (checked.decision.clone(), Some(checked)),
        Err(decision) => (*decision, None),
    };
    let decision = decision.masked_about(&mask, &plan.raw_words());
    let decided = gate.decided(Verb::Test, &target, decision).map_err(Error::from);
    let (permit, checked) = match (decided, checked) {
        (Ok(permit), Some(checked)) => (permit, checked),
        (Err(error), _) => {
            if let (Error::Refused(decision), Some(evidence)) = (&error, &evidence) {
                answer.refuse(decision);
                answer.mask(&mask);
                evidence.write(&answer)?;
            }
            return Err(error);
        }
        // An allowance without anything that was checked: there is none.
        (Ok(permit), None) => return Err(Error::Refused(Box::new(permit.decision().clone()))),
    };
    answer.decision = permit.decision().clone();
    answer.scope.clone_from(&checked.scope);
    let mut plan = plan.clone();
    plan.request.command.clone_from(&checked.words);
    plan.junit = plan.junit.or(checked.report);
    plan.request.env = checked.environment;
    // They are judged as seen from there.
    plan.request.cwd = Some(cwd.clone());
    if !checked.cleared.is_empty() {
        let names = checked.cleared.join(", ");
        answer
            .problems
            .push(format!("not passed on to the tests, as there is a scope: {names} (guard.test.allow)"));
    }

    if let Err(error) = answer.carry_out(quell, &permit, &plan, checked.runner, &cwd, meet) {
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
    // What was done can't be undone because the log can't be written; but it is said.
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

/// What a file was before the run.
fn mark(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
}

impl TestAnswer {
    fn begun(plan: &TestPlan, command: Vec<String>, cwd: &Path) -> Self {
        let now = quell_store::now();
        Self {
            schema: quell_core::SCHEMA.into(),
            status: TestStatus::Error,
            reason: String::new(),
            exit_code: None,
            signal: None,
            duration: 0.0,
            command,
            cwd: cwd.display().to_string(),
            scope: plan.scope.iter().map(|dir| dir.display().to_string()).collect(),
            counts: TestCounts { source: "exit_code".into(), ..TestCounts::default() },
            failed_tests: Vec::new(),
            failed_tests_omitted: 0,
            running_test: None,
            timeout: plan.request.timeout.map(|timeout| timeout.as_secs_f64()),
            timeout_triggered: false,
            tree_at_timeout: None,
            leaked: Vec::new(),
            stdout: StreamText::default(),
            stderr: StreamText::default(),
            junit: None,
            decision: Decision::refuse("UNDECIDED", crate::rules::BUILT_IN, "", ""),
            job: None,
            receipt: None,
            error: None,
            problems: Vec::new(),
            started: now,
            ended: now,
        }
    }

    /// Masks what is not masked already: the command and the processes are by the keeper. What the tests wrote is theirs.
    fn mask(&mut self, mask: &Mask) {
        let texts = [&mut self.cwd, &mut self.reason];
        let error = self.error.iter_mut().flat_map(|error| [&mut error.message, &mut error.hint]);
        let junit = self.junit.iter_mut().map(|report| &mut report.file);
        for text in texts.into_iter().chain(error).chain(junit).chain(&mut self.scope) {
            *text = mask.apply(text);
        }
    }

    fn refuse(&mut self, decision: &Decision) {
        self.status = TestStatus::Refused;
        self.reason.clone_from(&decision.reason);
        self.decision = decision.clone();
        self.ended = quell_store::now();
    }

    fn fail(&mut self, error: &Error, hint: String) {
        self.status = TestStatus::Error;
        self.reason = error.to_string();
        self.ended = quell_store::now();
        self.error = Some(TestError { code: error.code().into(), message: error.to_string(), hint });
    }

    /// Runs the command to its end, and fills in what it came to.
    fn carry_out(
        &mut self,
        quell: &Quell,
        permit: &Permit,
        plan: &TestPlan,
        runner: Runner,
        cwd: &Path,
        meet: impl FnOnce(&Job),
    ) -> Result<()> {
        let junit = plan.junit.as_deref().map(|file| (file, mark(&cwd.join(file))));
        let mut request = plan.request.clone();
        // What outlives the command is not stopped by the keeper at once, but by us in a moment.
        request.until = Until::Tree;
        if let Mode::Background(background) = &mut request.mode {
            background.owner = Some(Owner::Process { id: quell::owner_process(std::process::id())? });
            background.test = Some(plan.terms());
        }
        if runner == Runner::Pytest && std::env::var_os("PYTHONUNBUFFERED").is_none() {
            // Else what it has said is lost with it when it is killed.
            request.env.set.push(("PYTHONUNBUFFERED".into(), "1".into()));
        }
        let begun = Instant::now();
        self.started = quell_store::now();
        let job = match quell.start_tests(&request, permit) {
            Ok(job) => job,
            // No instruction of it has run; that it could not be started is because nothing may be when the time is up.
            Err(error)
                if error.code() == "start_failed"
                    && request.timeout.is_some_and(|time| begun.elapsed() >= time) =>
            {
                (self.status, self.reason) = (TestStatus::Timeout, error.to_string());
                self.timeout_triggered = true;
                self.duration = begun.elapsed().as_secs_f64();
                self.ended = quell_store::now();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.job = Some(job.id());
        meet(&job);
        let course = Course::follow(&job, begun, request.timeout).inspect_err(|_| {
            // Nobody watches over it any more, and this process may live on for long. What comes of the stop is on record.
            let _ = job.stop();
        })?;
        let receipt = job.receipt()?;
        let mut counter = Counter::new(runner);
        let dir = job.dir().dir();
        let [stdout, stderr] = output::read(dir, plan.max_output, &mut counter).map_err(Error::io(dir))?;
        (self.stdout, self.stderr) = (stdout, stderr);
        let code = match receipt.root.outcome {
            RootOutcome::Exited { code } if course.own_end => Some(code),
            _ => None,
        };
        let mut counted = counter.finish(code);
        if let Some((file, before)) = junit {
            let (report, found) = read_report(cwd, file, before);
            self.junit = Some(report);
            // A report that is cut short may still know more than an output without any summary.
            let better =
                found.filter(|found| found.complete || counted.as_ref().is_none_or(|(_, own)| !own.complete));
            if let Some(mut found) = better {
                if let Some(report) = &mut self.junit {
                    report.used = true;
                }
                let own = counted.map(|(_, own)| own).unwrap_or_default();
                (found.running, found.broken) = (own.running, own.broken);
                counted = Some(("junit", found));
            }
        }
        self.take_receipt(receipt, &course);
        self.take_counts(runner, plan, &course, counted);
        Ok(())
    }

    fn take_receipt(&mut self, receipt: Receipt, course: &Course) {
        self.duration = receipt.ended.at;
        self.ended = receipt.ended.wall;
        self.command.clone_from(&receipt.job.command);
        match receipt.root.outcome {
            RootOutcome::Exited { code } => self.exit_code = Some(code),
            RootOutcome::Signaled { signal, .. } => self.signal = Some(signal),
            RootOutcome::NotStarted { .. } | RootOutcome::Unknown => {}
        }
        self.timeout_triggered = receipt.cause == Cause::Timeout && !course.own_end;
        if self.timeout_triggered {
            let seen = &course.before_timeout;
            let (source, processes) = if seen.is_empty() {
                ("receipt", receipt.members.iter().map(TestProcess::from).collect())
            } else {
                ("live", seen.iter().map(TestProcess::from).collect())
            };
            self.tree_at_timeout = Some(TreeAtTimeout { source: source.into(), processes });
        } else if course.own_end && (course.left || receipt.cause == Cause::Timeout) {
            // Those who ended by themselves in the moment that they were given have done nothing wrong.
            let others = receipt.members.iter().filter(|member| Some(member.id) != receipt.root.id);
            let stayed = others.filter(|member| member.fate != Fate::Exited);
            // Who was met between fork and exec has the name of somebody else in the receipt.
            let late = |member: &Member| course.before_stop.iter().find(|seen| seen.id == member.id);
            self.leaked = stayed
                .map(|member| late(member).map_or_else(|| TestProcess::from(member), TestProcess::from))
                .collect();
        }
        self.problems.extend(receipt.warnings.iter().cloned());
        self.receipt = Some(receipt);
    }

    fn take_counts(
        &mut self,
        runner: Runner,
        plan: &TestPlan,
        course: &Course,
        counted: Option<(&'static str, FoundTests)>,
    ) {
        if let Some(receipt) = &self.receipt {
            let found = counted.as_ref().map(|(_, found)| found);
            (self.status, self.reason) = status::judge(&Facts {
                runner,
                receipt,
                own_end: course.own_end,
                leaked: self.leaked.len(),
                leak: plan.request.leak,
                found,
            });
        }
        let Some((source, found)) = counted else { return };
        self.counts = TestCounts {
            passed: found.passed,
            failed: found.failed,
            skipped: found.skipped,
            errors: found.errors,
            complete: found.complete && !self.timeout_triggered,
            source: source.into(),
        };
        self.failed_tests = found.names.kept;
        self.failed_tests_omitted = found.names.omitted;
        self.running_test = found.running;
    }
}

/// Reads the report, if the run has written it.
fn read_report(
    cwd: &Path,
    file: &Path,
    before: Option<(u64, i64, i64, u64)>,
) -> (JunitReport, Option<FoundTests>) {
    let path = cwd.join(file);
    let report =
        |problem: Option<String>| JunitReport { file: file.display().to_string(), used: false, problem };
    let bad = |why: String| (report(Some(why)), None);
    match fs::symlink_metadata(&path) {
        Err(error) => return bad(format!("it can't be read: {error}")),
        Ok(found) if !found.is_file() => return bad("it is no plain file".into()),
        Ok(found) if found.len() > MOST_JUNIT => {
            return bad(format!("it is larger than {MOST_JUNIT} bytes"));
        }
        Ok(_) if mark(&path) == before => return bad("it is from before the run".into()),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&path).and_then(|file| file.take(MOST_JUNIT).read_to_end(&mut bytes));
    if let Err(error) = read {
        return bad(format!("it can't be read: {error}"));
    }
    let suite = counts::read_junit(&bytes);
    (report(suite.problem), suite.found)
}
