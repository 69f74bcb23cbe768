//! The second check, in the keeper that runs the tests. It is needed because any process can start a keeper.

use std::fs;

use quell::binary::{AdmittedTests, Config, Home};
use quell_core::{Background, JobRequest, Mode, Owner, TestTerms};
use quell_guard::{BUILT_IN, Decision, DecisionCode, Verb, decide_verb};

use crate::{TestPlan, check};

impl TestPlan {
    /// The part of the plan that the keeper needs for its own check.
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

/// Asks the guard about a request for a test run. `None` if the request is not for a test run.
pub fn check_request(
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
        let reason = "a test run can't have --ready-cmd, or hooks that are not in the settings";
        return refuse(DecisionCode::VerbDenied, reason, "start it with `quell test`");
    }
    // The settings of this directory were read. Another directory may have a stricter policy.
    let here = std::env::current_dir().and_then(fs::canonicalize);
    let asked = request.cwd.as_ref().map(fs::canonicalize);
    let cwd = match (here, asked) {
        (Ok(here), Some(Ok(asked))) if here == asked => here,
        _ => {
            let reason = "the working directory of the tests is not that of this process";
            return refuse(DecisionCode::PathOutsideScope, reason, "change to that directory first");
        }
    };
    let plan = TestPlan {
        scope: terms.scope.clone(),
        junit: terms.junit.clone(),
        approved: terms.approved,
        require_target: terms.require_target,
        ..TestPlan::new(restricted(request, background))
    };
    let checked = check::check(&config.guard.test, &plan, &cwd, home.dir())?;
    let decision = checked.decision.clone();
    Ok(AdmittedTests { decision, request: checked.request(&plan, &cwd) })
}

/// The request without what a test run can't have: standard input, a terminal, restarts, readiness checks.
fn restricted(request: &JobRequest, background: &Background) -> JobRequest {
    let background = Background {
        max_log: background.max_log,
        owner: match background.owner {
            Some(Owner::Process { id }) => Some(Owner::Process { id }),
            // `quell test` always makes its own process the owner.
            Some(Owner::Job { .. }) | None => None,
        },
        ttl: background.ttl,
        test: background.test.clone(),
        ..Background::default()
    };
    JobRequest { mode: Mode::Background(Box::new(background)), ..request.clone() }
}
