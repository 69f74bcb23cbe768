//! Text that several verbs print.

use std::time::Duration;

use quell::binary::{AskedThrough, JobInternals, account, grouped, printable};
use quell::{
    Actor, Cause, Condition, Job, JobState, KillReason, ReadyRules, RootOutcome, Unwritten, Verdict, Waited,
};

/// How a root ended.
pub fn outcome(outcome: &RootOutcome) -> String {
    match outcome {
        RootOutcome::Exited { code } => format!("exited with {code}"),
        RootOutcome::Signaled { signal, core: true } => format!("died of {signal}, core dumped"),
        RootOutcome::Signaled { signal, core: false } => format!("died of {signal}"),
        RootOutcome::NotStarted { reason } => format!("not started: {reason}"),
        RootOutcome::Unknown => "outcome unknown".into(),
    }
}

/// Why a job ended.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::OwnExit => "by itself",
        Cause::StartFailed => "it could not be started",
        Cause::User => "a stop was requested",
        Cause::UserSignal => "a signal was sent",
        Cause::Timeout => "timed out",
        Cause::Limit => "at its limit",
        Cause::ExternalSignal => "by a signal from outside",
        Cause::FrontLost => "its front was killed",
        Cause::KeeperLost => "its keeper was lost",
        Cause::OwnerGone => "its owner is gone",
        Cause::InputClosed => "its client closed its input",
        Cause::HostReboot => "the host was restarted",
    }
}

/// Why a job ended, with the actor.
pub fn ending(why: Cause, by: &Actor) -> String {
    match (why, by) {
        (Cause::User, Actor::Kernel) => "its terminal hung up".into(),
        _ => cause(why).to_owned() + &actor(by).map(|actor| format!(" ({actor})")).unwrap_or_default(),
    }
}

/// Why a tree was killed.
pub fn kill(reason: KillReason) -> &'static str {
    match reason {
        KillReason::GraceOver => "still running after its grace",
        KillReason::Wanted => "the kill was requested",
        KillReason::KeeperLost => "its keeper was lost",
    }
}

/// The actor, in parentheses; empty if there is none to name.
pub fn actor(actor: &Actor) -> Option<String> {
    match actor {
        Actor::Sender { signal, pid, command, .. } => {
            Some(format!("{signal} from {}", process(*pid, command.as_ref())))
        }
        Actor::Client { pid, command, reason, through, .. } => {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let through = through.as_deref().map(self::through).unwrap_or_default();
            Some(format!("{}{through}{reason}", process(*pid, command.as_ref())))
        }
        Actor::Owner { pid, command } => Some(process(*pid, Some(command))),
        Actor::Kernel => Some("the kernel".into()),
        Actor::Program | Actor::Quell | Actor::Unknown => None,
    }
}

/// Through which interface a process was asked, and by what.
pub fn through(through: &AskedThrough) -> String {
    let client = through.client.as_ref().map(|client| format!(" from {client}"));
    let token = through.token.as_ref().map(|token| format!(" with the token {token}"));
    let peer = through.peer.as_ref().map(|peer| format!(" from {peer}"));
    let known: String = [client, token, peer].into_iter().flatten().collect();
    format!(", asked over {}{known}", through.surface)
}

/// A process with its command line.
pub fn process(pid: u32, command: Option<&String>) -> String {
    command.map_or_else(|| format!("pid {pid}"), |command| format!("pid {pid}, `{command}`"))
}

/// What was proven.
pub fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gone => "0 left".into(),
        Verdict::Survivors { count } => format!("{count} LEFT ALIVE"),
        Verdict::Unproven { why } => format!("not proven dead: {why}"),
    }
}

/// A job's id, with its name if it has one.
pub fn job(job: &Job) -> String {
    match job.dir().spec().ok().and_then(|spec| spec.request.name) {
        Some(name) => format!("{} ({name})", job.id()),
        None => job.id().to_string(),
    }
}

/// The result of the wait for readiness: the exit code and the message for stderr, with how and why the job ended.
pub fn readiness(job: &Job, waited: &Waited) -> (u8, String) {
    let view = &waited.job;
    let over = matches!(view.state, JobState::Ended | JobState::Waiting);
    let (code, what) = match waited.met {
        Condition::Nothing => {
            let rules = job
                .dir()
                .spec()
                .ok()
                .and_then(|spec| Some(spec.request.as_background()?.ready.rules.clone()));
            let wanted =
                rules.map(|rules| format!(": it waits for {}", ready_rules(&rules))).unwrap_or_default();
            return (6, format!("quell: {} is not ready yet{wanted}. The job goes on.\n", self::job(job)));
        }
        Condition::Exit => (1, "ended before it was ready"),
        Condition::Ready | Condition::Log | Condition::Stall if over => (0, "was ready, and has ended since"),
        Condition::Ready | Condition::Log | Condition::Stall => return (0, String::new()),
    };
    let (how, why) = (view.outcome.as_ref().map(outcome), view.cause.map(cause));
    let outlived = view.outlived.map(account::outlived);
    let limit = view.restart_limit_reached.then_some("its restart limit is reached");
    let end: Vec<&str> =
        how.as_deref().into_iter().chain(why).chain(limit).chain(outlived.as_deref()).collect();
    let mut text = format!("quell: {} {what}: {}", self::job(job), end.join(", "));
    let lines = job.last_lines(Some(waited.met));
    text += match waited.met {
        Condition::Exit if lines.is_empty() => "; it has written nothing\n",
        Condition::Exit => ". The last lines of its output:\n",
        _ => "\n",
    };
    text.extend(lines.iter().map(|line| format!("  {}\n", printable(line))));
    (code, text)
}

/// What shows that a job is ready.
pub fn ready_rules(rules: &ReadyRules) -> String {
    let ReadyRules { port, log, http, cmd } = rules;
    let wanted = [
        port.map(|port| format!("port {port}")),
        log.as_ref().map(|regex| format!("a line that matches `{}`", printable(regex))),
        http.as_ref().map(|url| printable(url)),
        cmd.as_ref().map(|command| format!("`{}`", printable(command))),
    ];
    wanted.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// A duration in seconds.
pub fn seconds(seconds: f64) -> String {
    quell::units::format_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// `stdout from byte 983,040 on: No space left on device (os error 28)`
pub fn unwritten(lost: &Unwritten) -> String {
    format!("{} from byte {} on: {}", lost.stream, grouped(lost.from), printable(&lost.why))
}

/// `1 line`, `1,234 lines`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// `12 bytes`, or `5.2 MiB, 5,452,595 bytes`.
pub fn bytes(bytes: u64) -> String {
    let exact = counted(bytes, "byte");
    let mut size = bytes as f64;
    for unit in ["", "KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 || unit == "TiB" {
            return if unit.is_empty() { exact } else { format!("{size:.1} {unit}, {exact}") };
        }
        size /= 1024.0;
    }
    exact
}

/// A size as an option takes it: `64M`.
pub fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A word as a shell takes it.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,:/@%+=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        for (given, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(given), text);
        }
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(5_452_595), "5.2 MiB, 5,452,595 bytes");
        for (given, text) in [(64 << 20, "64M"), (65_536, "64K"), (5000, "5000"), (3 << 30, "3G")] {
            assert_eq!(size(given), text);
        }
    }

    #[test]
    fn a_quoted_word_is_one_word() {
        assert_eq!(shell("a.b-c"), "a.b-c");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(shell(""), "''");
    }
}
