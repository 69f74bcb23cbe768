//! The short account of a stop that a person reads: one line, then the tree as it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use crate::text::{self, columns_of_char, width};
use crate::{
    AskScope, Cause, Fate, Grace, KillReason, Member, Receipt, RootOutcome, Step, StepKind, Verdict,
    format_duration, printable,
};

/// How many rows of the tree are drawn.
const ROWS: usize = 40;
/// How wide the lines are for a reader that is not a terminal.
const WIDTH: usize = 100;
/// How many columns a command has at least, even in a narrow terminal.
const NARROWEST: usize = 16;

/// The account of `receipt`: a headline and the tree, each line with its newline. `columns` is the width of the terminal.
pub fn account(receipt: &Receipt, columns: Option<usize>) -> String {
    account_as("quell", receipt, columns)
}

/// The same with another word before the headline.
pub fn account_as(label: &str, receipt: &Receipt, columns: Option<usize>) -> String {
    let headline = folded(&format!("{label}: {}", headline(receipt)), columns);
    // The members are those of a run that had ended before.
    if receipt.ended_waiting { headline } else { headline + &tree(receipt, columns) }
}

/// One line, or several if it is wider than the terminal: the others are indented.
pub fn folded(line: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return format!("{line}\n") };
    let (mut text, mut used) = (String::new(), 0);
    for word in line.split(' ') {
        let width = text::width(word);
        if used == 0 {
            used = width;
        } else if used + 1 + width > columns {
            text += "\n  ";
            used = 2 + width;
        } else {
            text.push(' ');
            used += 1 + width;
        }
        text += word;
    }
    text.push('\n');
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
        Cause::OwnExit | Cause::UserSignal | Cause::ExternalSignal if receipt.outlived() > 0 => {
            outlived(receipt.outlived() as u64)
        }
        // They ended by themselves right after it.
        Cause::OwnExit | Cause::UserSignal | Cause::ExternalSignal
            if !receipt.left_at_root_exit.is_empty() =>
        {
            format!("{} outlived the command", processes(receipt.left_at_root_exit.len()))
        }
        // It ended just before it was to be stopped.
        Cause::OwnExit => "ended by itself".into(),
        Cause::ExternalSignal => "died of a signal from outside".into(),
        Cause::User => "stopped".into(),
        Cause::UserSignal => "died of a signal that was sent by `quell signal`".into(),
        Cause::Limit => "stopped at its limit".into(),
        Cause::FrontLost => "stopped, because quell's front was killed".into(),
        Cause::KeeperLost => "stopped, because quell's keeper was lost".into(),
        Cause::OwnerGone => "stopped, because its owner is gone".into(),
        Cause::InputClosed => "stopped, because its client closed its input".into(),
        Cause::StartFailed => "did not start".into(),
        Cause::HostReboot => "ended with its host".into(),
    };
    if receipt.ended_waiting {
        return line + " while it waited for its next run: 0 processes";
    }
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
                let _ = write!(line, " ({count} still running after {})", grace_words(*most));
            }
            (Some(least), Some(most)) => {
                let (least, most) = (grace_words(*least), grace_words(*most));
                let _ = write!(line, " ({count} still running after {least} to {most})");
            }
            _ => {}
        }
        if receipt.kill == Some(KillReason::KeeperLost) && receipt.cause != Cause::KeeperLost {
            let _ = write!(line, " because quell's keeper was lost");
        }
    }
    let _ = match &receipt.verdict {
        Verdict::Gone => write!(line, ", 0 left"),
        Verdict::Survivors { count } => write!(line, ", {count} LEFT ALIVE"),
        Verdict::Unproven { why } => write!(line, ", not proven dead: {why}"),
    };
    line
}

/// What became of processes that were still running when the command had exited, and how to change that.
pub fn outlived(count: u64) -> String {
    let (were, them) = if count == 1 { ("was", "it") } else { ("were", "them") };
    let count = processes(usize::try_from(count).unwrap_or(usize::MAX));
    format!(
        "{count} outlived the command and {were} stopped (--until tree waits for {them}, --leak keep lets {them} run)"
    )
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// The time between the request to `member` and the kill, at most the grace that was promised.
fn grace_given(receipt: &Receipt, member: &Member) -> Duration {
    let Grace { asked, used } = receipt.grace;
    // Where only the root was asked first, the others are asked later.
    let was_asked =
        |step: &&Step| step.step == StepKind::Ask && step.signals.iter().any(|sent| sent.to == member.id);
    let own = receipt.steps.iter().find(was_asked).map(|step| step.moment.at);
    let used = own.and_then(|ask| Some(receipt.time_of(StepKind::Kill)? - ask)).or(used);
    let given = used.map_or(asked, |used| used.min(asked));
    // Rounded: the clock's last digits say nothing about the process. Under 10 ms they are most of the grace.
    let step = if given < 0.01 { 1e4 } else { 100.0 };
    Duration::try_from_secs_f64((given.max(0.0) * step).round() / step).unwrap_or(Duration::MAX)
}

/// A grace in words: `5s`, `2ms`, `0.5ms`.
pub fn grace_words(grace: Duration) -> String {
    // A receipt has seconds, which are not exact in nanoseconds.
    let grace = Duration::from_micros(u64::try_from((grace.as_nanos() + 500) / 1000).unwrap_or(u64::MAX));
    if grace.subsec_micros().is_multiple_of(1000) || grace >= Duration::from_millis(10) {
        return format_duration(grace);
    }
    format!("{}ms", grace.as_micros() as f64 / 1000.0)
}

fn ask_signal(receipt: &Receipt) -> Option<String> {
    let ask = receipt.steps.iter().find(|step| step.step == StepKind::Ask)?;
    Some(ask.signals.first().map_or_else(|| "ask".into(), |sent| sent.signal.to_string()))
}

/// The tree, one member a line: its command, its pid and its fate. Commands are cut so that lines fit into `columns`.
pub fn tree(receipt: &Receipt, columns: Option<usize>) -> String {
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
    // A member that had exited before it could be seen has no known session.
    let root_sid = tops.iter().map(|member| member.sid).find(|sid| *sid != 0).unwrap_or(0);
    let mut rows = Vec::new();
    let mut drawn = BTreeSet::new();
    for top in tops {
        draw(top, "", "", &children, &mut rows, &mut drawn);
    }
    let signal = ask_signal(receipt).unwrap_or_default();
    let fates: Vec<String> =
        rows.iter().take(ROWS).map(|(_, member)| fate(receipt, member, &signal, root_sid)).collect();
    let beside = 2 + 7 + 2 + fates.iter().map(|fate| width(fate)).max().unwrap_or(0);
    let room = columns.unwrap_or(WIDTH).saturating_sub(beside).max(NARROWEST);
    let rows: Vec<(String, &Member)> = rows
        .into_iter()
        .map(|(branch, member)| {
            let room = room.saturating_sub(width(&branch)).max(NARROWEST / 2);
            (format!("{branch}{}", shorten(&member.command, room)), member)
        })
        .collect();
    let widest = rows.iter().take(ROWS).map(|(label, _)| width(label)).max().unwrap_or(0);
    let mut text = String::new();
    for ((label, member), fate) in rows.iter().zip(&fates) {
        let pad = " ".repeat(widest - width(label));
        let _ = writeln!(text, "{label}{pad}  {:>7}  {fate}", member.id.pid);
    }
    let more = receipt.members.len() + receipt.members_omitted as usize - rows.len().min(ROWS);
    if more > 0 {
        let _ = writeln!(text, "… and {more} more");
    }
    text
}

/// What became of a member, and whether it had left the session of the root.
fn fate(receipt: &Receipt, member: &Member, signal: &str, root_sid: u32) -> String {
    let fate = match member.fate {
        Fate::Exited => match &receipt.root.outcome {
            RootOutcome::Signaled { signal, .. } if receipt.root.id == Some(member.id) => {
                format!("died of SIG{signal}")
            }
            _ => "exited".to_owned(),
        },
        Fate::ExitedOnAsk => format!("exited on {signal}"),
        Fate::KilledAfterGrace => {
            format!("still running after {}, killed", grace_words(grace_given(receipt, member)))
        }
        Fate::Killed => "killed".to_owned(),
        Fate::Ended => "ended".to_owned(),
        Fate::Alive => "STILL ALIVE".to_owned(),
    };
    let own = if member.sid != root_sid && member.sid != 0 { "   (own session)" } else { "" };
    format!("{fate}{own}")
}

fn draw<'a>(
    member: &'a Member,
    branch: &str,
    indent: &str,
    children: &BTreeMap<u32, Vec<&'a Member>>,
    rows: &mut Vec<(String, &'a Member)>,
    drawn: &mut BTreeSet<u32>,
) {
    // A receipt can list a PID twice, with different start times; its children are drawn once.
    rows.push((format!("{indent}{branch}"), member));
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

/// A command as one line of at most `room` columns. First the directory of the program is dropped, then the middle:
/// people recognize a command by both of its ends.
fn shorten(command: &str, room: usize) -> String {
    let clean = printable(command);
    if width(&clean) <= room {
        return clean;
    }
    let (program, rest) = clean.split_once(' ').unwrap_or((&clean, ""));
    let name = program.rsplit('/').find(|part| !part.is_empty()).unwrap_or(program);
    let line = if rest.is_empty() { name.to_owned() } else { format!("{name} {rest}") };
    if width(&line) <= room {
        return line;
    }
    let tail = (room - 1) / 2;
    let head = fitting(line.chars(), room - 1 - tail);
    let tail = fitting(line.chars().rev(), tail);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}

/// The first characters that fit into `room` columns.
fn fitting(line: impl Iterator<Item = char>, room: usize) -> Vec<char> {
    let mut used = 0;
    line.take_while(|c| {
        used += columns_of_char(*c);
        used <= room
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_keeps_both_ends_and_loses_its_directory_first() {
        assert_eq!(shorten("/usr/lib/node/bin/node server.js", 16), "node server.js");
        assert_eq!(shorten("/usr/bin/python3 -m pytest tests/test_api.py", 24), "python3 -m p…test_api.py");
        assert_eq!(shorten("sleep 50", 16), "sleep 50");
        assert_eq!(shorten("/a/b/c/", 3), "c");
        for room in 8..60 {
            let line = shorten(
                "/opt/é/日本語/node --max-old-space-size=4096 ./node_modules/.bin/vite --port 3000",
                room,
            );
            assert!(width(&line) <= room && line.starts_with("node"), "{line}");
        }
        let wide = shorten(&format!("sh -c {}", "日本語".repeat(20)), 40);
        assert!((37..=40).contains(&width(&wide)) && wide.contains('…'), "{wide}");
    }

    #[test]
    fn a_short_grace_is_shown_as_what_it_was() {
        let words = |seconds: f64| grace_words(Duration::from_secs_f64(seconds));
        let shown = [0.0005, 0.0015, 0.002, 0.01, 0.3, 1.5, 5.0].map(words);
        assert_eq!(shown, ["0.5ms", "1.5ms", "2ms", "10ms", "300ms", "1.5s", "5s"]);
        assert_eq!(grace_words(Duration::from_nanos(1_999_999)), "2ms");
    }

    #[test]
    fn a_headline_is_folded_between_words() {
        let line = "quell: stopped: 3 processes, TERM at 1.00s, 0 left";
        assert_eq!(folded(line, None), format!("{line}\n"));
        assert_eq!(folded(line, Some(30)), "quell: stopped: 3 processes,\n  TERM at 1.00s, 0 left\n");
        assert_eq!(folded("a b c d e", Some(5)), "a b c\n  d e\n");
        assert_eq!(folded("ab cd", Some(4)), "ab\n  cd\n");
        assert_eq!(folded("abcd e f", Some(4)), "abcd\n  e\n  f\n");
    }
}
