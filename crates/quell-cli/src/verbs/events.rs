//! `quell events`: what has happened to jobs.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

use quell::binary::{JobInternals, account, printable};
use quell::{AskScope, Error, EventKind, EventWatch, Filter, Job, JobEvent, Quell, Timestamp, parse_since};

use super::{Admitted, envelope, fail, job_selection};
use crate::args::EventsArgs;
use crate::errors;
use crate::output;
use crate::render::format;

/// Shows the history, and with `--follow` what happens next.
pub fn events(admitted: Admitted, args: &EventsArgs) -> ExitCode {
    match show(admitted, args) {
        Ok(code) => code,
        Err(error) => fail("events", args.json, &error),
    }
}

fn show(admitted: Admitted, args: &EventsArgs) -> Result<ExitCode, Error> {
    let since = args.since.as_deref().map(parse_since).transpose()?;
    let quell = admitted.quell?;
    let jobs = named(&quell, args)?;
    let mut printer = Printer { args, since, width: 0 };
    if args.follow {
        let mut watch = match &jobs {
            Some(jobs) => EventWatch::of(jobs)?,
            None => EventWatch::of_all(&quell)?,
        };
        while let Some(events) = watch.next()? {
            if let ControlFlow::Break(code) = printer.print(&events) {
                return Ok(code);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = match jobs {
        Some(jobs) => jobs,
        None => {
            let listing = quell.list(&Filter::default())?;
            listing.jobs.iter().map(|view| quell.job_with(view.id)).collect()
        }
    };
    let (mut events, mut end) = (Vec::new(), ExitCode::SUCCESS);
    for job in &jobs {
        match job.recover_if_orphaned() {
            // The events so far are shown all the same.
            Err(error @ Error::NotProvenDead(_)) => {
                job_selection::report_not_recovered(&error);
                end = ExitCode::from(errors::exit_code(&error));
            }
            settled => drop(settled?),
        }
        events.extend(job.events()?);
    }
    events.sort_by_key(|event| event.time);
    match printer.print(&events) {
        ControlFlow::Break(code) => Ok(code),
        ControlFlow::Continue(()) => Ok(end),
    }
}

fn named(quell: &Quell, args: &EventsArgs) -> Result<Option<Vec<Job>>, Error> {
    let mut jobs = args.jobs.iter().map(|text| quell.job(text)).collect::<Result<Vec<Job>, _>>()?;
    jobs.sort_by_key(Job::id);
    jobs.dedup_by_key(|job| job.id());
    Ok((!jobs.is_empty()).then_some(jobs))
}

struct Printer<'a> {
    args: &'a EventsArgs,
    since: Option<Timestamp>,
    /// Of the column of jobs.
    width: usize,
}

impl Printer<'_> {
    fn print(&mut self, events: &[JobEvent]) -> ControlFlow<ExitCode> {
        let wanted = |event: &&JobEvent| self.since.is_none_or(|since| event.time >= since);
        let events: Vec<&JobEvent> = events.iter().filter(wanted).collect();
        // With one job, its id is not repeated in each line.
        let with_job = self.args.jobs.len() != 1;
        let label = |event: &JobEvent| event.name.clone().unwrap_or_else(|| event.job.to_string());
        self.width = events.iter().map(|event| label(event).len()).fold(self.width, usize::max);
        let mut text = String::new();
        for event in events {
            if self.args.json {
                text += &envelope("events", event);
                continue;
            }
            let (word, details) = describe(&event.what);
            let job = if with_job {
                format!("{:width$}  ", label(event), width = self.width)
            } else {
                String::new()
            };
            let run = if event.run > 1 { format!("run {}; ", event.run) } else { String::new() };
            let line = format!("{}  {job}{word:15} {run}{details}", event.time);
            let _ = writeln!(text, "{}", printable(line.trim_end().trim_end_matches(';')));
        }
        match output::to_reader(&text) {
            Some(code) => ControlFlow::Break(code),
            None => ControlFlow::Continue(()),
        }
    }
}

/// What happened: a word, and details.
fn describe(what: &EventKind) -> (&'static str, String) {
    let processes = |count: usize| if count == 1 { "1 process".into() } else { format!("{count} processes") };
    let by = |actor| format::actor(actor).map(|who| format!(" ({who})")).unwrap_or_default();
    match what {
        EventKind::Created => ("created", String::new()),
        EventKind::Started { root } => {
            ("started", root.map(|root| format!("pid {}", root.pid)).unwrap_or_default())
        }
        EventKind::Ready { after } => ("ready", format!("after {}", format::seconds(*after))),
        EventKind::StopAsked { cause, actor } => ("stop asked", format::ending(*cause, actor)),
        EventKind::Signaled { signal, actor, members } => {
            ("signal sent", format!("{signal} to {}{}", processes(*members), by(actor)))
        }
        EventKind::Asked { signal, grace, members, to } => {
            let grace = account::grace_words(*grace);
            let whom = if *to == AskScope::Root { "the root".into() } else { processes(*members) };
            ("asked", format!("{signal} to {whom}, {grace} of grace"))
        }
        EventKind::Killed { reason, .. } => ("killed", reason.map(format::kill).unwrap_or_default().into()),
        EventKind::TimedOut => ("timed out", String::new()),
        EventKind::Leaked { members } => ("leaked", format!("{} outlived the root", processes(*members))),
        EventKind::RootExited { outcome } => ("root exited", format::outcome(outcome)),
        EventKind::OwnerGone { kept } => {
            ("owner gone", if *kept { "the job goes on" } else { "the job is stopped" }.into())
        }
        EventKind::Ended { outcome, cause, actor, verdict, .. } => {
            let (outcome, verdict) = (format::outcome(outcome), format::verdict(verdict));
            ("ended", format!("{outcome}, {}, {verdict}", format::ending(*cause, actor)))
        }
        EventKind::Restarting { delay } => {
            ("restarting", format!("in {}", quell::units::format_duration(*delay)))
        }
        EventKind::NotRestarted { cause, actor } => ("not restarted", format::ending(*cause, actor)),
        EventKind::RestartLimitReached { restarts } => {
            let times = if *restarts == 1 { "once".into() } else { format!("{restarts} times") };
            ("restart limit", format!("it was started again {times} and will not be any more"))
        }
        EventKind::StandbyLost => ("standby lost", "the keeper goes on alone".into()),
        EventKind::Lost { finished_by } => ("keeper lost", format!("finished by {finished_by}")),
        EventKind::HookFailed { hook, why, .. } => ("hook failed", format!("{hook}: {why}")),
    }
}
