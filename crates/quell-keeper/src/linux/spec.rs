//! A job as it is to be kept and written down, from what was asked for.

use std::path::PathBuf;
use std::time::Duration;

use quell_core::{Background, JobSpec, LifecycleRules, Mode, SCHEMA};
use quell_store::{Home, now};

use super::evidence::Outlet;
use super::front::Plan;
use super::supervise::Job;
use crate::RunRequest;
use quell_core::Mask;

pub fn job_of(request: &RunRequest, plan: &Plan, outlets: Vec<Outlet>, mask: &Mask) -> Job {
    let background = request.background.as_ref();
    Job {
        spec: spec_of(request, plan, mask),
        ready_interval: background.map_or(Duration::MAX, |background| background.ready_interval),
        rules: LifecycleRules { plan: request.plan, until: request.until, timeout: request.timeout },
        session: plan.session,
        store: request.home.as_ref().map(|home| Home::at(home).job(plan.id)),
        outlets,
    }
}

fn spec_of(request: &RunRequest, plan: &Plan, mask: &Mask) -> JobSpec {
    let background = request.background.as_ref();
    JobSpec {
        schema: SCHEMA.into(),
        id: plan.id,
        mode: if background.is_some() { Mode::Start } else { Mode::Run },
        session: background.and_then(|background| background.session.clone()),
        foreground_hooks: request.hooks.clone(),
        foreground_mask: request.mask.clone(),
        background: background.map(|background| shown(&background.rules, mask)),
        name: request.name.clone(),
        tags: request.tags.iter().map(|(key, value)| (mask.apply(key), mask.apply(value))).collect(),
        command: request.command.iter().map(|word| mask.apply(&word.to_string_lossy())).collect(),
        cwd: PathBuf::from(mask.apply(&plan.program.cwd.to_string_lossy())),
        contain: request.contain,
        until: request.until,
        leak: request.leak,
        plan: request.plan,
        timeout: request.timeout,
        limits: request.limits,
        marker: plan.marker.clone(),
        boot_id: quell_sys::boot_id(),
        pid_namespace: quell_sys::own_pid_namespace(),
        created: now(),
    }
}

/// The rules as they may be shown. The job itself goes by the true ones.
fn shown(rules: &Background, mask: &Mask) -> Background {
    let mut rules = rules.clone();
    let ready = &mut rules.ready;
    for text in [&mut ready.log, &mut ready.http, &mut ready.cmd].into_iter().flatten() {
        *text = mask.apply(text);
    }
    rules
}
