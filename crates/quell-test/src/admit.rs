//! The keeper, which runs the tests, asks the guard the same question once more: any process can start a keeper.

use std::fs;

use quell::binary::{AdmittedTests, Config, Home};
use quell_core::{Background, JobRequest, Mode, Owner, TestTerms};
use quell_guard::{BUILT_IN, Decision, DecisionCode, Verb, decide_verb};

use crate::{TestPlan, check};

impl TestPlan {
    /// What the keeper has to know to ask the guard again.
    pub(super) fn terms(&self) -> TestTerms {
        TestTerms {
            scope: self.scope.clone(),
            junit: self.junit.clone(),
            approved: self.approved,
            require_target: self.require_target,
            report: None,
        }
    }
}

/// What the guard says about a request as a test run; none if it is not one.
pub fn judge_request(
    config: &Config,
    home: &Home,
    request: &JobRequest,
) -> Option<Result<AdmittedTests, Box<Decision>>> {
    let background = request.as_background()?;
    let terms = background.test.as_ref()?;
    Some(admit(config, home, request, background, terms))
}

fn admit(
    config: &Config,
    home: &Home,
    request: &JobRequest,
    background: &Background,
    terms: &TestTerms,
) -> Result<AdmittedTests, Box<Decision>> {
    decide_verb(&config.guard, Verb::Test).ok()?;
    let refuse = |code, reason: &str, hint| Err(Box::new(Decision::refuse(code, BUILT_IN, reason, hint)));
    // Each of these runs a command that is not checked here.
    let known = request.hooks.iter().all(|hook| config.hooks.contains(hook));
    if background.ready.rules.cmd.is_some() || !known {
        let reason = "a test run has no --ready-cmd, and no hooks but those of the settings";
        return refuse(DecisionCode::VerbDenied, reason, "start it with `quell test`");
    }
    // The settings of this directory were read; those of another one may have a stricter policy.
    let here = std::env::current_dir().and_then(fs::canonicalize);
    let asked = request.cwd.as_ref().map(fs::canonicalize);
    let cwd = match (here, asked) {
        (Ok(here), Some(Ok(asked))) if here == asked => here,
        _ => {
            let reason = "the working directory of the tests is not the one that this process is in";
            return refuse(DecisionCode::PathOutsideScope, reason, "change to that directory first");
        }
    };
    let plan = TestPlan {
        scope: terms.scope.clone(),
        junit: terms.junit.clone(),
        approved: terms.approved,
        require_target: terms.require_target,
        ..TestPlan::new(harmless(request, background))
    };
    let checked = check::check(&config.guard.test, &plan, &cwd, home.dir())?;
    let decision = checked.decision.clone();
    Ok(AdmittedTests { decision, request: checked.request(&plan, &cwd) })
}

/// The request with only what a test run may have: no standard input, no terminal, no restarts, no probes.
fn harmless(request: &JobRequest, background: &Background) -> JobRequest {
    let background = Background {
        max_log: background.max_log,
        owner: match background.owner {
            Some(Owner::Process { id }) => Some(Owner::Process { id }),
            // Only the job that this process is part of can be such an owner.
            Some(Owner::Job { .. }) | None => None,
        },
        ttl: background.ttl,
        test: background.test.clone(),
        ..Background::default()
    };
    JobRequest { mode: Mode::Background(Box::new(background)), ..request.clone() }
}
