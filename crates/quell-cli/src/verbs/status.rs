//! `quell status`: everything that is known about a job.

use std::process::ExitCode;

use quell::binary::account;
use quell::binary::responses::StatusAnswer;
use quell::units::format_duration;
use quell::{
    Actor, Cause, Error, JobState, JobView, Owner, ProcId, Quell, ReadyRules, RestartPolicy, RestartRules,
    RootOutcome, StreamTotals, Timestamp, Verdict,
};

use super::{Admitted, envelope, fail, job_selection, list};
use crate::args::StatusArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::format;
use crate::render::{self, Cell, Reader, Style, fields, printable};

/// Prints it for each, and returns the highest exit code.
pub fn status(admitted: Admitted, args: &StatusArgs) -> ExitCode {
    let quell = match admitted.quell {
        Ok(quell) => quell,
        Err(error) => return fail("status", args.json, &error),
    };
    let mut worst = 0;
    for (number, text) in args.jobs.iter().enumerate() {
        let code = match one(&quell, text) {
            Ok(status) => {
                let gap = if number > 0 { "\n" } else { "" };
                let said = if args.json {
                    envelope("status", &status)
                } else {
                    format!("{gap}{}", describe(&status, Reader::of_stdout()))
                };
                let code = exit_code(&status.job);
                if output::painted_to_stdout(&said).is_some() { exit::FAILED } else { code }
            }
            Err(error) => {
                fail("status", args.json, &error);
                errors::exit_code(&error)
            }
        };
        worst = worst.max(code);
    }
    ExitCode::from(worst)
}

fn one(quell: &Quell, text: &str) -> Result<StatusAnswer, Error> {
    job_selection::look_at(quell, text)?.status()
}

fn exit_code(job: &JobView) -> u8 {
    if job.is_not_proven_dead() {
        return exit::NOT_PROVEN_DEAD;
    }
    match (job.state, &job.outcome) {
        (JobState::Lost, _) => exit::NOT_PROVEN_DEAD,
        (JobState::Ended, Some(RootOutcome::Exited { code: 0 })) => 0,
        (JobState::Ended, _) => 1,
        (
            JobState::Created
            | JobState::Starting
            | JobState::Running
            | JobState::Ready
            | JobState::Stopping
            | JobState::Waiting,
            _,
        ) => 0,
    }
}

fn describe(status: &StatusAnswer, reader: Reader) -> String {
    let job = &status.job;
    let head = Style::Bold.paint(&job.id.to_string(), reader.colours);
    let mut rows: Vec<(&str, Cell)> = vec![
        ("state", list::state(job)),
        ("since", time(job.since).into()),
        ("command", render::command_line(&job.command).into()),
        ("directory", printable(&job.cwd.display().to_string()).into()),
    ];
    let mut row = |label, value: Option<String>| rows.extend(value.map(|value| (label, Cell::from(value))));
    row("name", job.name.as_deref().map(printable));
    row("started", job.started.map(time));
    row("ended", job.ended.map(time));
    let is_over = job.state == JobState::Ended || job.is_left_behind();
    row("exit", job.outcome.as_ref().filter(|_| is_over).map(outcome));
    let left = "the command has exited; the processes that it left go on";
    row("left", job.is_left_behind().then(|| left.into()));
    row("cause", job.cause.map(|cause| because(cause, job)));
    row("proof", job.verdict.as_ref().map(proof));
    let pids = |ids: &[ProcId]| ids.iter().map(|id| id.pid.to_string()).collect::<Vec<_>>().join(", ");
    row(
        "survivors",
        Some(&job.survivors).filter(|ids| !ids.is_empty()).map(|ids| format!("pid {}", pids(ids))),
    );
    row("ready", ready(job, status.ready_rules.as_ref()));
    row("held by", job.held.map(|held| held.as_str().into()));
    let ways: Vec<String> = status.defeated_by.iter().map(|way| format!("- {way}")).collect();
    row("defeated by", Some(ways.join("\n")).filter(|text| !text.is_empty()));
    let alive = job.state != JobState::Ended;
    let pid = |id: Option<ProcId>| id.filter(|_| alive).map(|id| format!("pid {}", id.pid));
    let over = if job.root.is_some_and(|root| has_exited(root, job)) { " (has exited)" } else { "" };
    row("root", pid(job.root).map(|root| root + over));
    row("keeper", pid(job.keeper));
    row("standby", pid(job.standby));
    row("owner", job.owner.map(|owner| owner_of(owner, status)));
    row("session", job.session.as_deref().map(printable));
    let tags: Vec<String> =
        job.tags.iter().map(|(key, value)| printable(&format!("{key}={value}"))).collect();
    row("tags", Some(tags.join(" ")).filter(|text| !text.is_empty()));
    row("limits", limits(job));
    row("timeout", job.timeout.map(render::seconds));
    row("lives for", status.ttl.map(|ttl| format!("{} in all", render::seconds(ttl))));
    row("restarts", status.restart_rules.as_ref().and_then(|rules| restarts(job, rules)));
    row("replaces", job.restarted_from.map(|id| id.to_string()));
    row("stdout", job.output.map(|output| stream(&output.stdout)));
    row("stderr", job.output.filter(|_| !job.pty).map(|output| stream(&output.stderr)));
    for lost in &status.unwritten {
        row("not kept", Some(format!("some of {}", format::unwritten(lost))));
    }
    row("files", Some(printable(&status.dir.display().to_string())));
    row("receipt", status.receipt.as_ref().map(|path| printable(&path.display().to_string())));
    format!("{head}\n{}", fields(&rows, reader))
}

/// A wall clock, and how long ago that was.
fn time(wall: Timestamp) -> String {
    format!("{wall} ({})", render::ago(quell::binary::now(), wall))
}

fn outcome(outcome: &RootOutcome) -> String {
    match outcome {
        RootOutcome::Exited { code } => format!("code {code}"),
        RootOutcome::Signaled { signal, core } => {
            format!("SIG{signal}{}", if *core { ", a core was dumped" } else { "" })
        }
        RootOutcome::NotStarted { reason } => format!("it never ran: {}", printable(reason)),
        RootOutcome::Unknown => "unknown".into(),
    }
}

fn because(cause: Cause, job: &JobView) -> String {
    let why = match (cause, job.actor.as_ref()) {
        (Cause::User, Some(Actor::Kernel)) => "its terminal hung up".to_owned(),
        (cause, actor) => format!("{}{}", why(cause), by(actor)),
    };
    match (cause, job.outlived.map(account::outlived)) {
        (Cause::OwnExit, Some(outlived)) => outlived,
        (_, Some(outlived)) => format!("{why}; {outlived}"),
        (_, None) => why,
    }
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::OwnExit => "it came to its own end",
        Cause::StartFailed => "it could not be started",
        Cause::User => "a stop was requested",
        Cause::UserSignal => "a signal was sent",
        Cause::Timeout => "its time was up",
        Cause::Limit => "it reached a limit",
        Cause::ExternalSignal => "a signal from outside quell",
        Cause::FrontLost => "the quell that ran it was killed",
        Cause::KeeperLost => "its keeper was lost",
        Cause::OwnerGone => "its owner is gone",
        Cause::InputClosed => "its client closed its input",
        Cause::HostReboot => "the machine was restarted",
    }
}

fn by(actor: Option<&Actor>) -> String {
    match actor {
        Some(Actor::Sender { signal, pid, uid, command }) => {
            let process = printable(&format::process(*pid, command.as_ref()));
            format!(": SIG{signal} from {process} of user {uid}")
        }
        Some(Actor::Client { pid, uid, command, reason, through }) => {
            let reason = reason.as_ref().map(|reason| format!(": {}", printable(reason))).unwrap_or_default();
            let through = printable(&through.as_deref().map(format::through).unwrap_or_default());
            format!(
                " ({} of user {uid}{through}{reason})",
                printable(&format::process(*pid, command.as_ref()))
            )
        }
        Some(Actor::Owner { pid, command }) => {
            format!(" ({})", printable(&format::process(*pid, Some(command))))
        }
        Some(Actor::Kernel) => " (by the kernel)".into(),
        Some(Actor::Program | Actor::Quell | Actor::Unknown) | None => String::new(),
    }
}

fn proof(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gone => "counted: 0 left".into(),
        Verdict::Survivors { count } => format!("counted: {count} LEFT ALIVE"),
        Verdict::Unproven { why } => format!("not proven dead: {}", printable(why)),
    }
}

fn ready(job: &JobView, rules: Option<&ReadyRules>) -> Option<String> {
    if let Some(wall) = job.ready {
        let until = if job.state == JobState::Ended { "until its end, from" } else { "since" };
        return Some(format!("{until} {}", time(wall)));
    }
    let wanted = format::ready_rules(rules?);
    Some(format!("{}: {wanted}", if job.state == JobState::Ended { "never" } else { "not yet" }))
}

fn owner_of(owner: Owner, status: &StatusAnswer) -> String {
    let who = match owner {
        Owner::Process { id } => format!("pid {}", id.pid),
        Owner::Job { job } => format!("job {job}"),
    };
    match status.on_owner_exit {
        Some(quell::OnOwnerExit::Keep) => format!("{who}; it goes on without"),
        Some(quell::OnOwnerExit::Stop) | None => format!("{who}; it is stopped with it"),
    }
}

fn limits(job: &JobView) -> Option<String> {
    let parts = [
        job.limits.memory.map(|memory| format!("{} of memory", render::bytes(memory))),
        job.limits.procs.map(|procs| render::count(procs, "process", "processes")),
        job.limits.cpu.map(|cpu| format!("{cpu} cores")),
    ];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(text).filter(|text| !text.is_empty())
}

/// Whether the root of a live job has exited: by the record, or because it is a zombie.
fn has_exited(root: ProcId, job: &JobView) -> bool {
    // A process whose main thread has exited looks like a zombie, but has other threads.
    let is_dead = |stat: quell::binary::Stat| {
        stat.start == root.start && matches!(stat.state, b'Z' | b'X') && stat.threads <= 1
    };
    job.outcome.is_some()
        || job.state == JobState::Waiting
        || quell::binary::stat(root.pid).is_ok_and(is_dead)
}

fn restarts(job: &JobView, rules: &RestartRules) -> Option<String> {
    let when = match rules.policy {
        RestartPolicy::No => return None,
        RestartPolicy::OnFailure => "on failure",
        RestartPolicy::Always => "always",
    };
    let most = match rules.limit {
        None => "no limit".into(),
        Some(1) => "once at most".into(),
        Some(limit) => format!("{limit} times at most"),
    };
    let delay = format_duration(rules.delay);
    let used_up = if job.restart_limit_reached { "; the limit is reached" } else { "" };
    Some(format!("{when}, {most}, first after {delay}; this is run {}{used_up}", job.run))
}

fn stream(totals: &StreamTotals) -> String {
    let lines = render::count(totals.lines, "line", "lines");
    let cut = match totals.cut_bytes {
        0 => String::new(),
        bytes => format!(", {} of it not kept", render::bytes(bytes)),
    };
    format!("{}, {lines}{cut}", render::bytes(totals.bytes))
}
