//! How things are shown to people: tables, colours, times and sizes. Nothing that is shown can control the terminal.

mod chart;
mod filter;
pub mod format;
mod table;
mod text;

use std::io::IsTerminal;
use std::time::Duration;

use quell::Timestamp;

pub use chart::{Chart, speaks_utf8};
pub use filter::ControlFilter;
pub use quell::binary::printable;
pub use table::{Cell, Style, Table, fields};
pub use text::{command_line, cut, painted, wrap};

/// The width of a terminal whose width is not known.
const COLUMNS: usize = 80;

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// What is wider is cut or wrapped; none for a program, which gets all of it.
    pub columns: Option<usize>,
    /// Whether there are colours.
    pub colours: bool,
}

/// Whether stdout is a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The width of the terminal that `stream` is, or that COLUMNS tells; none for a program.
pub fn columns_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    said.or_else(|| stream.is_terminal().then(|| quell::binary::columns(stream).unwrap_or(COLUMNS)))
}

impl Reader {
    /// The reader of stdout. COLUMNS overrides the terminal's width. Colours are for terminals, unless NO_COLOR is set.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let is_terminal = stdout.is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        Self { columns: columns_of(&stdout), colours: is_terminal && set("NO_COLOR").is_none() && !dumb }
    }
}

/// How long ago: `3m ago`; a time to come is `in 2s`.
pub fn ago(now: Timestamp, then: Timestamp) -> String {
    let apart = now.unix_ms().saturating_sub(then.unix_ms());
    let rough = || rough(Duration::from_millis(apart.unsigned_abs()));
    match apart {
        0..1000 => "now".into(),
        1000.. => format!("{} ago", rough()),
        ..0 => format!("in {}", rough()),
    }
}

/// A duration by its largest unit alone: `45s`, `3m`, `5h`, `12d`.
pub fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{}ms", duration.as_millis()),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Seconds for people: `1.5s`, `2m`.
pub fn seconds(seconds: f64) -> String {
    let duration = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    quell::units::format_duration(duration)
}

/// A number of bytes: `512 B`, `1.5 KiB`, `64 MiB`.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // What would be rounded up to 1024 is one of the next unit.
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {}", number.trim_end_matches(".0"), units[unit])
}

/// A count with its noun: `1 process`, `2 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative() {
        for (now, then, text) in [
            (500, 0, "now"),
            (5_999, 0, "5s ago"),
            (200_000, 20_000, "3m ago"),
            (3 * 3_600_000, 0, "3h ago"),
            (200 * 3_600_000, 0, "8d ago"),
            (0, 2_000, "in 2s"),
            (0, 200, "in 200ms"),
        ] {
            let at = Timestamp::from_unix_ms;
            assert_eq!(ago(at(now), at(then)), text);
        }
    }

    #[test]
    fn sizes_have_two_digits_that_matter() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            ((1 << 20) - 1, "1 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
