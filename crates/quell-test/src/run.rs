//! Runs a checked plan: starts the job, follows it, and fills in the answer.

use std::path::{Path, PathBuf};
use std::time::Instant;

use quell::binary::{JobInternals, QuellInternals};
use quell::{Error, Job, Quell, Result};
use quell_core::{Cause, Fate, JobRequest, Leak, Mask, Member, Mode, Owner, Receipt, RootOutcome, Until};
use quell_guard::{BUILT_IN, Decision, DecisionCode, Permit};

use crate::TestPlan;
use crate::answer::{TestAnswer, TestError, TestProcess, TestStatus, TreeAtTimeout};
use crate::check::CheckedPlan;
use crate::counts::{Counter, ReportFile, TestCounts};
use crate::follow::{ObservedRun, follow};
use crate::output::{self, StreamText};
use crate::runners::Runner;
use crate::status::{FinishedRun, status};

/// A run that the guard has allowed, ready to start.
pub(crate) struct TestRun {
    request: JobRequest,
    runner: Runner,
    /// Whether the runner prints or writes its results at its end.
    reports: bool,
    /// Whether quell tells pytest to write a report into the job's directory.
    has_own_report: bool,
    junit: Option<ReportFile>,
    /// Whether the caller named the report, so that a run without it is an error.
    is_report_required: bool,
    max_output: u64,
}

impl TestRun {
    pub fn new(plan: &TestPlan, checked: CheckedPlan, cwd: &Path) -> Self {
        let junit: Option<PathBuf> = plan.junit.clone().or(checked.report.clone());
        let (runner, reports) = (checked.runner, checked.reports);
        let has_own_report = checked.own_report.is_some();
        let mut request = checked.request(plan, cwd);
        // Processes that outlive the command are stopped by `follow` after a delay, not by the keeper at once.
        request.until = Until::Tree;
        if runner == Runner::Pytest && std::env::var_os("PYTHONUNBUFFERED").is_none() {
            // Without it, the output of a killed pytest is lost.
            request.env.set.push(("PYTHONUNBUFFERED".into(), "1".into()));
        }
        let junit = junit.map(|file| ReportFile::before_run(cwd, file));
        let (is_report_required, max_output) = (plan.junit.is_some(), plan.max_output);
        Self { request, runner, reports, has_own_report, junit, is_report_required, max_output }
    }

    /// Runs the command to its end. On an error the job is stopped.
    pub fn execute(
        mut self,
        answer: &mut TestAnswer,
        quell: &Quell,
        permit: &Permit,
        on_start: impl FnOnce(&Job),
    ) -> Result<()> {
        if let Mode::Background(background) = &mut self.request.mode
            && background.owner.is_none()
        {
            background.owner = Some(Owner::Process { id: quell::owner_process(std::process::id())? });
        }
        let begun = Instant::now();
        answer.started = quell_store::now();
        let timeout = self.request.timeout;
        let job = match quell.start_tests(&self.request, permit) {
            Ok(job) => job,
            // The time limit was reached before the command could start.
            Err(error)
                if error.code() == "start_failed" && timeout.is_some_and(|time| begun.elapsed() >= time) =>
            {
                (answer.status, answer.reason) = (TestStatus::Timeout, error.to_string());
                answer.timeout_triggered = true;
                answer.duration = begun.elapsed().as_secs_f64();
                answer.ended = quell_store::now();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        answer.job = Some(job.id());
        on_start(&job);
        let followed = follow(&job, begun, timeout).inspect_err(|_| {
            // The owner of the job lives on, so nothing else would stop it. The record has the result of the stop.
            let _ = job.stop();
        })?;
        let receipt = job.receipt()?;
        let mut counter = Counter::new(self.runner, self.reports);
        let dir = job.dir().dir();
        let [stdout, stderr] = output::read(dir, self.max_output, &mut counter).map_err(Error::io(dir))?;
        (answer.stdout, answer.stderr) = (stdout, stderr);
        let code = match receipt.root.outcome {
            RootOutcome::Exited { code } if followed.exited_by_itself => Some(code),
            _ => None,
        };
        let mut found = counter.finish(code);
        if self.has_own_report {
            let (_, report) = ReportFile::of_job(job.dir()).read();
            found.use_report(report, "pytest");
        } else if let Some(junit) = self.junit {
            let (mut report, counted) = junit.read();
            report.used = found.use_report(counted, "junit");
            if let Some(problem) = &report.problem {
                answer.problems.push(format!("the report {} can't be used: {problem}", report.file));
            }
            answer.junit = Some(report);
        }
        let has_report = answer.junit.as_ref().is_none_or(|report| report.problem.is_none());
        answer.take_receipt(&receipt, &followed);
        (answer.status, answer.reason) = status(&FinishedRun {
            runner: self.runner,
            receipt: &receipt,
            exited_by_itself: followed.exited_by_itself,
            leaked: answer.leaked.len(),
            is_leak_failure: self.request.leak == Leak::Fail,
            lacks_report: self.is_report_required && !has_report,
            found: &found,
        });
        answer.receipt = Some(receipt);
        answer.counts = found.counts;
        answer.counts.complete &= !answer.timeout_triggered;
        answer.failed_tests = found.names.kept;
        answer.failed_tests_omitted = found.names.omitted;
        answer.running_test = found.running;
        Ok(())
    }
}

impl TestAnswer {
    pub(crate) fn new(plan: &TestPlan, command: Vec<String>, cwd: &Path) -> Self {
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
            counts: TestCounts::default(),
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
            decision: Decision::refuse(DecisionCode::Undecided, BUILT_IN, "", ""),
            job: None,
            receipt: None,
            error: None,
            problems: Vec::new(),
            started: now,
            ended: now,
        }
    }

    /// Masks the texts that the keeper has not masked. The output of the tests is not changed.
    pub(crate) fn mask(&mut self, mask: &Mask) {
        let texts = [&mut self.cwd, &mut self.reason];
        let error = self.error.iter_mut().flat_map(|error| [&mut error.message, &mut error.hint]);
        let junit = self.junit.iter_mut().map(|report| &mut report.file);
        for text in
            texts.into_iter().chain(error).chain(junit).chain(&mut self.scope).chain(&mut self.problems)
        {
            *text = mask.apply(text);
        }
        for name in self.failed_tests.iter_mut().chain(&mut self.running_test) {
            *name = mask.apply_to_cut(name);
        }
    }

    pub(crate) fn refuse(&mut self, decision: &Decision) {
        self.status = TestStatus::Refused;
        self.reason.clone_from(&decision.reason);
        self.decision = decision.clone();
        self.ended = quell_store::now();
    }

    pub(crate) fn fail(&mut self, error: &Error, hint: String) {
        self.status = TestStatus::Error;
        self.reason = error.to_string();
        self.ended = quell_store::now();
        self.error = Some(TestError { code: error.code().into(), message: error.to_string(), hint });
    }

    fn take_receipt(&mut self, receipt: &Receipt, followed: &ObservedRun) {
        self.duration = receipt.ended.at;
        self.ended = receipt.ended.wall;
        self.command.clone_from(&receipt.job.command);
        match receipt.root.outcome {
            RootOutcome::Exited { code } => self.exit_code = Some(code),
            RootOutcome::Signaled { signal, .. } => self.signal = Some(signal),
            RootOutcome::NotStarted { .. } | RootOutcome::Unknown => {}
        }
        self.timeout_triggered = receipt.cause == Cause::Timeout && !followed.exited_by_itself;
        if self.timeout_triggered {
            let seen = &followed.before_timeout;
            let (source, processes) = if seen.is_empty() {
                ("receipt", receipt.members.iter().map(TestProcess::from).collect())
            } else {
                ("live", seen.iter().map(TestProcess::from).collect())
            };
            self.tree_at_timeout = Some(TreeAtTimeout { source: source.into(), processes });
        } else if followed.exited_by_itself && (followed.had_leftovers || receipt.cause == Cause::Timeout) {
            // A process that exited on its own before the stop is not a leak.
            let others = receipt.members.iter().filter(|member| Some(member.id) != receipt.root.id);
            // A process that the tests killed themselves is not a leak either.
            let outlived = |member: &&Member| receipt.left_at_root_exit.contains(&member.id);
            let stayed = others.filter(|member| match member.fate {
                Fate::Exited => false,
                Fate::Killed | Fate::Ended => outlived(member),
                Fate::ExitedOnAsk | Fate::KilledAfterGrace | Fate::Alive => true,
            });
            // A process seen between fork and exec has the command line of its parent in the receipt.
            let late = |member: &Member| followed.before_stop.iter().find(|seen| seen.id == member.id);
            self.leaked = stayed
                .map(|member| late(member).map_or_else(|| TestProcess::from(member), TestProcess::from))
                .collect();
        }
        self.problems.extend(receipt.warnings.iter().cloned());
    }
}
