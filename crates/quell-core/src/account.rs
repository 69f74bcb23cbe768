//! The short account of a stop that a person reads on stderr: one line, then the tree as it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::{
    AskScope, Cause, Fate, Grace, KillReason, Member, Receipt, Step, StepKind, Verdict, format_duration,
    printable,
};

/// How many rows of the tree are drawn.
const ROWS: usize = 40;
/// How wide the column of commands may become.
const COMMAND_WIDTH: usize = 44;

/// The account of `receipt`: a headline and the tree, each line with its newline.
pub fn account(receipt: &Receipt) -> String {
    let mut text = format!("quell: {}\n", headline(receipt));
    text += &tree(receipt);
    text
}

/// `timed out after 2s: 4 processes, TERM at 2.00s, KILL at 3.50s (2 still running after 1.5s), 0 left`
pub fn headline(receipt: &Receipt) -> String {
    let mut line = match receipt.cause {
        Cause::Timeout => {
            let given = receipt.job.timeout.unwrap_or(receipt.ended.at);
            format!(
                "timed out after {}",
                format_duration(Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::MAX))
            )
        }
        Cause::OwnExit | Cause::ExternalSignal if receipt.outlived() > 0 => {
            outlived(receipt.outlived() as u64)
        }
        // They ended by themselves right after it.
        Cause::OwnExit | Cause::ExternalSignal if !receipt.left_at_root_exit.is_empty() => {
            format!("{} outlived the command", processes(receipt.left_at_root_exit.len()))
        }
        // It came to its end just before it was to be stopped.
        Cause::OwnExit => "had ended by itself".into(),
        Cause::ExternalSignal => "had died of a signal from outside".into(),
        Cause::User => "stopped".into(),
        Cause::Limit => "stopped at its limit".into(),
        Cause::FrontLost => "stopped, because quell's front was killed".into(),
        Cause::KeeperLost => "stopped, because quell's keeper was killed".into(),
        Cause::OwnerGone => "stopped, because its owner is gone".into(),
        Cause::StartFailed => "did not start".into(),
        Cause::HostReboot => "ended with its host".into(),
    };
    let seen = receipt.members.len() + receipt.members_omitted as usize;
    let _ = write!(line, ": {}", processes(seen));
    let mut asks = receipt.steps.iter().filter(|step| step.step == StepKind::Ask);
    if let (Some(first), Some(signal)) = (asks.next(), ask_signal(receipt)) {
        // A root that has exited is not asked: then all others are, at once.
        let to_root = receipt.ask == AskScope::Root
            && first.signals.iter().all(|sent| Some(sent.to) == receipt.root.id);
        let to = if to_root { " to the root" } else { "" };
        let _ = write!(line, ", {signal}{to} at {:.2}s", first.moment.at);
        if let Some(rest) = asks.next().filter(|_| to_root) {
            let _ = write!(line, ", {signal} to the rest at {:.2}s", rest.moment.at);
        }
    }
    if let Some(at) = receipt.time_of(StepKind::Kill) {
        let _ = write!(line, ", KILL at {at:.2}s");
        let late = receipt.members.iter().filter(|member| member.fate == Fate::KilledAfterGrace);
        let mut times: Vec<Duration> = late.map(|member| grace_given(receipt, member)).collect();
        times.sort_unstable();
        let count = times.len();
        match (times.first(), times.last()) {
            (Some(least), Some(most)) if least == most => {
                let _ = write!(line, " ({count} still running after {})", format_duration(*most));
            }
            (Some(least), Some(most)) => {
                let (least, most) = (format_duration(*least), format_duration(*most));
                let _ = write!(line, " ({count} still running after {least} to {most})");
            }
            _ => {}
        }
        if receipt.kill == Some(KillReason::KeeperLost) && receipt.cause != Cause::KeeperLost {
            let _ = write!(line, " because quell's keeper was killed");
        }
    }
    let _ = match &receipt.verdict {
        Verdict::Gone => write!(line, ", 0 left"),
        Verdict::Survivors { count } => write!(line, ", {count} LEFT ALIVE"),
        Verdict::Unproven { why } => write!(line, ", not proven dead: {why}"),
    };
    line
}

/// What became of processes that were still running when the command had exited, and how to keep them.
pub fn outlived(count: u64) -> String {
    let were = if count == 1 { "was" } else { "were" };
    let them = if count == 1 { "it" } else { "them" };
    let count = processes(usize::try_from(count).unwrap_or(usize::MAX));
    format!("{count} outlived the command and {were} stopped (use --until tree to keep {them})")
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// The time between the request to `member` and the kill, at most the grace that was promised.
fn grace_given(receipt: &Receipt, member: &Member) -> Duration {
    let Grace { asked, used } = receipt.grace;
    // What a root that was asked alone has left is asked later.
    let was_asked =
        |step: &&Step| step.step == StepKind::Ask && step.signals.iter().any(|sent| sent.to == member.id);
    let own = receipt.steps.iter().find(was_asked).map(|step| step.moment.at);
    let used = own.and_then(|ask| Some(receipt.time_of(StepKind::Kill)? - ask)).or(used);
    let given = used.map_or(asked, |used| used.min(asked));
    // Rounded: the clock's last digits say nothing about the process.
    Duration::try_from_secs_f64((given.max(0.0) * 100.0).round() / 100.0).unwrap_or(Duration::MAX)
}

fn ask_signal(receipt: &Receipt) -> Option<String> {
    let ask = receipt.steps.iter().find(|step| step.step == StepKind::Ask)?;
    Some(ask.signals.first().map_or_else(|| "ask".into(), |sent| sent.signal.to_string()))
}

/// The tree, one member a line: its command, its pid and its fate.
pub fn tree(receipt: &Receipt) -> String {
    let by_pid: BTreeSet<u32> = receipt.members.iter().map(|member| member.id.pid).collect();
    let mut children: BTreeMap<u32, Vec<&Member>> = BTreeMap::new();
    let mut tops = Vec::new();
    for member in &receipt.members {
        if by_pid.contains(&member.ppid) && member.ppid != member.id.pid {
            children.entry(member.ppid).or_default().push(member);
        } else {
            tops.push(member);
        }
    }
    let root_sid = tops.first().map_or(0, |member| member.sid);
    let mut rows = Vec::new();
    let mut drawn = BTreeSet::new();
    for top in tops {
        draw(top, "", "", &children, &mut rows, &mut drawn);
    }
    let width = rows.iter().take(ROWS).map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let signal = ask_signal(receipt).unwrap_or_default();
    let mut text = String::new();
    for (label, member) in rows.iter().take(ROWS) {
        let fate = match member.fate {
            Fate::Exited => "exited".to_owned(),
            Fate::ExitedOnAsk => format!("exited on {signal}"),
            Fate::KilledAfterGrace => {
                format!("still running after {}, killed", format_duration(grace_given(receipt, member)))
            }
            Fate::Killed => "killed".to_owned(),
            Fate::Ended => "ended".to_owned(),
            Fate::Alive => "STILL ALIVE".to_owned(),
        };
        let own = if member.sid != root_sid { "   (own session)" } else { "" };
        let pad = " ".repeat(width - label.chars().count());
        let _ = writeln!(text, "{label}{pad}  {:>7}  {fate}{own}", member.id.pid);
    }
    let more = receipt.members.len() + receipt.members_omitted as usize - rows.len().min(ROWS);
    if more > 0 {
        let _ = writeln!(text, "… and {more} more");
    }
    text
}

fn draw<'a>(
    member: &'a Member,
    branch: &str,
    indent: &str,
    children: &BTreeMap<u32, Vec<&'a Member>>,
    rows: &mut Vec<(String, &'a Member)>,
    drawn: &mut BTreeSet<u32>,
) {
    // A pid can stand in a receipt twice, under different start times; its children are drawn once.
    rows.push((format!("{indent}{branch}{}", short(&member.command)), member));
    if !drawn.insert(member.id.pid) || indent.chars().count() > 60 {
        return;
    }
    let below = match branch {
        "" => indent.to_owned(),
        "└─ " => format!("{indent}   "),
        _ => format!("{indent}│  "),
    };
    let list = children.get(&member.id.pid).map_or(&[][..], Vec::as_slice);
    for (index, child) in list.iter().enumerate() {
        let branch = if index + 1 == list.len() { "└─ " } else { "├─ " };
        draw(child, branch, &below, children, rows, drawn);
    }
}

/// A command as one short line.
fn short(command: &str) -> String {
    let clean = printable(command);
    if clean.chars().count() <= COMMAND_WIDTH {
        return clean;
    }
    let mut short: String = clean.chars().take(COMMAND_WIDTH - 1).collect();
    short.push('…');
    short
}
