//! Signals by name and number.

use std::fmt;
use std::str::FromStr;

use crate::text::json_as_text;

/// A signal of this platform. Written and read as `TERM`, `SIGTERM`, `term` or `15`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal(i32);

/// A text that is not a signal.
#[derive(Debug, thiserror::Error)]
#[error("invalid signal `{0}`: expected a name such as TERM, INT or SIGKILL, or a number from 1 to {MAX}")]
pub struct InvalidSignal(String);

/// The highest signal number (SIGRTMAX on Linux).
const MAX: i32 = if cfg!(target_os = "linux") { 64 } else { 31 };

/// Name, number on Linux, number on macOS and the BSDs (0: does not exist).
const NAMES: &[(&str, i32, i32)] = &[
    ("HUP", 1, 1),
    ("INT", 2, 2),
    ("QUIT", 3, 3),
    ("ILL", 4, 4),
    ("TRAP", 5, 5),
    ("ABRT", 6, 6),
    ("BUS", 7, 10),
    ("FPE", 8, 8),
    ("KILL", 9, 9),
    ("USR1", 10, 30),
    ("SEGV", 11, 11),
    ("USR2", 12, 31),
    ("PIPE", 13, 13),
    ("ALRM", 14, 14),
    ("TERM", 15, 15),
    ("STKFLT", 16, 0),
    ("CHLD", 17, 20),
    ("CONT", 18, 19),
    ("STOP", 19, 17),
    ("TSTP", 20, 18),
    ("TTIN", 21, 21),
    ("TTOU", 22, 22),
    ("URG", 23, 16),
    ("XCPU", 24, 24),
    ("XFSZ", 25, 25),
    ("VTALRM", 26, 26),
    ("PROF", 27, 27),
    ("WINCH", 28, 28),
    ("IO", 29, 23),
    ("PWR", 30, 0),
    ("SYS", 31, 12),
];

fn number_here(&(_, linux, bsd): &(&str, i32, i32)) -> i32 {
    if cfg!(target_os = "linux") { linux } else { bsd }
}

impl Signal {
    /// The polite request to end.
    pub const TERM: Self = Self(15);
    /// The end that can't be refused.
    pub const KILL: Self = Self(9);
    /// A file is larger than its limit.
    pub const XFSZ: Self = Self(25);
    /// Terminal interrupt.
    pub const INT: Self = Self(2);
    /// Terminal quit.
    pub const QUIT: Self = Self(3);
    /// Hang-up.
    pub const HUP: Self = Self(1);
    /// A child has changed its state.
    pub const CHLD: Self = Self(if cfg!(target_os = "linux") { 17 } else { 20 });
    /// Urgent data on a socket; ignored by default.
    pub const URG: Self = Self(if cfg!(target_os = "linux") { 23 } else { 16 });
    /// Stop, by the key of a terminal.
    pub const TSTP: Self = Self(if cfg!(target_os = "linux") { 20 } else { 18 });
    /// Go on after a stop.
    pub const CONT: Self = Self(if cfg!(target_os = "linux") { 18 } else { 19 });
    /// `quell stop` sends it to the front of a foreground job. A real-time signal: it carries a value, and the kernel queues
    /// it, so that no request replaces another.
    pub const ASK_FRONT: Self = Self(60);
    /// Stop, not refusable.
    pub const STOP: Self = Self(if cfg!(target_os = "linux") { 19 } else { 17 });

    /// The signal with this number, if there is one.
    pub fn new(number: i32) -> Option<Self> {
        (1..=MAX).contains(&number).then_some(Self(number))
    }

    /// The signal whose name differs from a misspelled one by one typing error: a letter too many, too few, wrong, or two
    /// exchanged.
    pub fn nearest(text: &str) -> Option<Self> {
        let upper = text.to_ascii_uppercase();
        let word = upper.strip_prefix("SIG").unwrap_or(&upper);
        let found = NAMES.iter().find(|(name, ..)| strsim::osa_distance(word, name) == 1);
        found.and_then(|row| Self::new(number_here(row)))
    }

    /// Its number on this platform.
    pub fn number(self) -> i32 {
        self.0
    }

    /// Whether a program causes this signal itself (a crash).
    pub fn is_crash(self) -> bool {
        ["ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "PIPE", "SYS", "XCPU", "XFSZ"]
            .contains(&self.to_string().as_str())
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|row| number_here(row) == self.0) {
            Some((name, ..)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Signal {
    type Err = InvalidSignal;

    fn from_str(text: &str) -> Result<Self, InvalidSignal> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let by_number = text.parse().ok().and_then(Self::new);
        let by_name =
            NAMES.iter().find(|(known, ..)| *known == name).and_then(|row| Self::new(number_here(row)));
        by_number.or(by_name).ok_or_else(|| InvalidSignal(text.to_owned()))
    }
}

json_as_text!(Signal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_in_all_four_spellings() {
        for text in ["TERM", "SIGTERM", "term", "sigterm", "15"] {
            assert_eq!(text.parse::<Signal>().unwrap(), Signal::TERM, "{text}");
        }
    }

    #[test]
    fn an_unknown_signal_is_an_error_and_never_a_kill() {
        for text in ["", "0", "-9", "65", "TERMX", "SIG", "9x", "KILL "] {
            assert!(text.parse::<Signal>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        for (text, name) in [("TREM", "TERM"), ("sigkil", "KILL"), ("HUPP", "HUP"), ("usr3", "USR1")] {
            assert_eq!(Signal::nearest(text).unwrap().to_string(), name, "{text}");
        }
        for text in ["", "SIG", "99", "KILLALL", "-9"] {
            assert_eq!(Signal::nearest(text), None, "{text}");
        }
    }

    #[test]
    fn a_crash_is_a_signal_that_the_program_causes_itself() {
        for (name, is_crash) in [("SEGV", true), ("ABRT", true), ("TERM", false), ("KILL", false)] {
            assert_eq!(name.parse::<Signal>().unwrap().is_crash(), is_crash, "{name}");
        }
    }

    #[test]
    fn every_name_is_read_back() {
        for number in 1..=MAX {
            let signal = Signal::new(number).unwrap();
            assert_eq!(signal.number(), number);
            assert_eq!(signal.to_string().parse::<Signal>().unwrap(), signal);
        }
    }
}
