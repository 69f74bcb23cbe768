//! `quell wait`: waits for an event of jobs, for a limited time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use quell::binary::responses::WaitAnswer;
use quell::binary::{account, printable};
use quell::units::format_duration;
use quell::{Condition, Error, Job, WaitFor, WaitMode, Waited};

use super::{Admitted, envelope, fail};
use crate::args::WaitArgs;
use crate::errors::exit;
use crate::output;
use crate::progress::Progress;
use crate::render::format;

/// Waits, and prints the result for each job.
pub fn wait(admitted: Admitted, args: &WaitArgs) -> ExitCode {
    let deadline = Instant::now() + args.timeout;
    let (waited, wanted) = match carry_out(admitted, args, deadline) {
        Ok(waited) => waited,
        Err(error) => return fail("wait", args.json, &error),
    };
    let text = if args.json {
        envelope("wait", &WaitAnswer { jobs: waited.clone() })
    } else {
        waited.iter().map(describe).collect()
    };
    let code = verdict(&waited, &wanted, mode(args));
    if code == exit::TIMED_OUT && !args.json {
        let time = quell::units::format_duration(args.timeout);
        output::to_stderr(&format!("quell: the time ran out ({time}); the jobs go on\n"));
    }
    output::to_stdout(&text).unwrap_or(ExitCode::from(code))
}

fn carry_out(
    admitted: Admitted,
    args: &WaitArgs,
    deadline: Instant,
) -> Result<(Vec<Waited>, WaitFor), Error> {
    let quell = admitted.quell?;
    let mut jobs: Vec<Job> = Vec::new();
    for text in &args.jobs {
        let job = quell.job(text)?;
        if !jobs.iter().any(|known| known.id() == job.id()) {
            jobs.push(job);
        }
    }
    let mut wanted = WaitFor::end();
    if args.ready {
        wanted = wanted.ready();
    }
    if let Some(pattern) = &args.log {
        wanted = wanted.log(pattern)?;
    }
    if let Some(stall) = args.stall {
        wanted = wanted.stall(stall);
    }
    let (names, limit) = (args.jobs.join(", "), args.timeout);
    let _progress = Progress::show(!args.json, move |passed| {
        let [passed, limit] =
            [passed, limit].map(|time| format_duration(Duration::from_secs(time.as_secs())));
        format!("quell: waiting for {names} ({passed} of {limit})")
    });
    let waited = quell::wait(&jobs, &wanted, mode(args), Some(deadline))?;
    Ok((waited, wanted))
}

fn mode(args: &WaitArgs) -> WaitMode {
    if args.any { WaitMode::Any } else { WaitMode::All }
}

fn verdict(waited: &[Waited], wanted: &WaitFor, mode: WaitMode) -> u8 {
    let open = waited.iter().filter(|waited| waited.met == Condition::Nothing).count();
    let is_unproven = |waited: &Waited| waited.met == Condition::Exit && waited.job.is_not_proven_dead();
    let good = waited.iter().filter(|waited| waited.is_good(wanted) && !is_unproven(waited)).count();
    let (out_of_time, yes) = match mode {
        WaitMode::Any => (open == waited.len(), good > 0),
        WaitMode::All => (open > 0, good == waited.len()),
    };
    match (yes, out_of_time) {
        (true, _) => 0,
        (false, true) => exit::TIMED_OUT,
        (false, false) if waited.iter().any(is_unproven) => exit::NOT_PROVEN_DEAD,
        (false, false) => exit::NO,
    }
}

fn describe(waited: &Waited) -> String {
    let job = &waited.job;
    let name = job.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let what = match waited.met {
        Condition::Exit => {
            let outcome = job.outcome.as_ref().map_or_else(|| "ended".into(), format::outcome);
            let cause = job.cause.map(|cause| format!(", {}", format::cause(cause))).unwrap_or_default();
            let limit = if job.restart_limit_reached { "; its restart limit is reached" } else { "" };
            let outlived = job.outlived.map(|count| format!("; {}", account::outlived(count)));
            let unproven = if job.is_not_proven_dead() { "; not proven dead" } else { "" };
            format!("ended: {outcome}{cause}{limit}{}{unproven}", outlived.unwrap_or_default())
        }
        Condition::Ready => "ready".into(),
        Condition::Log => {
            let cut = if waited.line_cut { " (only the first 1 MiB of the line was matched)" } else { "" };
            format!("wrote: {}{cut}", printable(waited.line.as_deref().unwrap_or_default()))
        }
        Condition::Stall => "stalled: no output and no CPU time".into(),
        Condition::Nothing => format!("still {}", job.state),
    };
    format!("{}{name}: {what}\n", waited.id)
}
