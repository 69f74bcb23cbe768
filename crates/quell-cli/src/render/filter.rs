//! Filters a program's output for a terminal: text and colours pass, everything else that a terminal would obey
//! does not. Text that blinks or is hidden is shown as plain text.

use quell::binary::{is_unsafe, push_escape};

/// How long the parameters of a colour may be.
const LONGEST: usize = 64;

/// Takes the output piece by piece. Escape sequences other than colours are left out; other control characters are shown
/// as escapes. A sequence or a character may be divided between two pieces.
#[derive(Debug, Default)]
pub struct ControlFilter {
    state: State,
    /// The parameters of a control sequence, the beginning of a character, or the last byte of a text for the terminal.
    held: Vec<u8>,
    coloured: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// Inside a character of several bytes; this many are missing.
    Character(u8),
    /// After a carriage return, which means nothing before a line feed.
    Return,
    /// After ESC.
    Escape,
    /// After ESC [.
    Control,
    /// Inside a title, a clipboard, or another text for the terminal. Its end is ST or BEL. A line feed ends it too: an
    /// open sequence must not hide what follows.
    String,
}

impl ControlFilter {
    /// The part of the next bytes that may reach the terminal.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.step(*byte, &mut passed);
        }
        passed
    }

    /// Ends an open sequence or character. Returns what resets the colour, if it was changed.
    pub fn close(&mut self) -> &'static [u8] {
        self.state = State::Text;
        self.held.clear();
        if std::mem::take(&mut self.coloured) { b"\x1b[0m" } else { b"" }
    }

    fn step(&mut self, byte: u8, passed: &mut Vec<u8>) {
        match (self.state, byte) {
            (State::Character(missing), 0x80..=0xbf) => {
                self.held.push(byte);
                self.state = State::Character(missing - 1);
                if missing == 1 {
                    self.end_character(passed);
                }
            }
            (State::Character(_), _) => {
                self.end_character(passed);
                self.begin(byte, passed);
            }
            (State::Return, b'\n') => self.begin(byte, passed),
            (State::Return, _) => {
                show('\r', passed);
                self.begin(byte, passed);
            }
            (State::Escape, b'[') => self.state = State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.state = State::String,
            // An intermediate byte: the sequence goes on.
            (State::Escape, 0x20..=0x2f) => {}
            (State::Escape, 0x30..=0x7e) => self.state = State::Text,
            (State::Control, 0x20..=0x3f) => self.held.push(byte),
            (State::Control, 0x40..=0x7e) => {
                let plain = self.held.iter().all(|byte| byte.is_ascii_digit() || b";:".contains(byte));
                if byte == b'm'
                    && plain
                    && self.held.len() <= LONGEST
                    && let Some(kept) = without_blink_and_conceal(&self.held)
                {
                    passed.extend([b"\x1b[", kept.as_slice(), b"m"].concat());
                    self.coloured = true;
                }
                self.begin_text();
            }
            (State::String, 0x07) => self.begin_text(),
            // ST in one character (U+009C), or in one byte that no character has.
            (State::String, 0x9c) if self.held.last().is_none_or(|last| *last == 0xc2 || last.is_ascii()) => {
                self.begin_text();
            }
            (State::String, byte) if !matches!(byte, b'\n' | 0x18 | 0x1a | 0x1b) => self.held = vec![byte],
            (State::Text | State::Escape | State::Control | State::String, _) => self.begin(byte, passed),
        }
        // Longer than any colour: it is dropped.
        self.held.truncate(LONGEST + 1);
    }

    fn begin_text(&mut self) {
        self.state = State::Text;
        self.held.clear();
    }

    /// A byte that belongs to nothing before it.
    fn begin(&mut self, byte: u8, passed: &mut Vec<u8>) {
        self.begin_text();
        let missing = match byte {
            0x1b => return self.state = State::Escape,
            b'\r' => return self.state = State::Return,
            b'\n' | b'\t' => return passed.push(byte),
            0x00..=0x7f => return show(char::from(byte), passed),
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => return show(char::REPLACEMENT_CHARACTER, passed),
        };
        self.held.push(byte);
        self.state = State::Character(missing);
    }

    fn end_character(&mut self, passed: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        text.chars().for_each(|c| show(c, passed));
        self.held.clear();
        self.state = State::Text;
    }
}

/// The parameters of a colour without those for blinking (5, 6) and hidden text (8). None if nothing else was there: an empty
/// list would be a reset.
fn without_blink_and_conceal(parameters: &[u8]) -> Option<Vec<u8>> {
    let all: Vec<&[u8]> = parameters.split(|byte| *byte == b';').collect();
    let (mut left, mut kept) = (all.as_slice(), Vec::new());
    while let Some((&parameter, rest)) = left.split_first() {
        // `38;5;N` and `38;2;R;G;B` are one colour each. With colons, a colour is one parameter.
        let arguments = match (parameter, rest) {
            (b"38" | b"48" | b"58", [b"5", _, ..]) => 2,
            (b"38" | b"48" | b"58", [b"2", _, _, _, ..]) => 4,
            _ => 0,
        };
        let (colour, others) = rest.split_at(arguments);
        match number(parameter) {
            5 | 6 | 8 => {}
            // Without its arguments: a terminal might take the next parameter for itself.
            38 | 48 | 58 if colour.is_empty() && !parameter.contains(&b':') => {}
            _ => kept.extend([&[parameter], colour].concat()),
        }
        left = others;
    }
    (!kept.is_empty()).then(|| kept.join(&b';'))
}

/// The number at the beginning of a parameter, before its subparameters. An empty one is 0.
fn number(parameter: &[u8]) -> u32 {
    let digits = parameter.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
}

fn show(c: char, passed: &mut Vec<u8>) {
    let mut text = String::new();
    if is_unsafe(c) {
        push_escape(&mut text, c)
    } else {
        text.push(c)
    }
    passed.extend(text.into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece and byte by byte, with the same result.
    fn passed(bytes: &[u8]) -> String {
        let whole = ControlFilter::default().pass(bytes);
        let mut filter = ControlFilter::default();
        let parts: Vec<u8> = bytes.iter().flat_map(|byte| filter.pass(&[*byte])).collect();
        assert_eq!(whole, parts);
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn text_and_colours_pass() {
        for text in ["plain\ttext\n", "\x1b[1;38:2:1:2:3mé日🦀\x1b[m\n", ""] {
            assert_eq!(passed(text.as_bytes()), text);
        }
        assert_eq!(passed(b"a\r\nb\n"), "a\nb\n");
    }

    #[test]
    fn text_can_not_blink_or_be_hidden() {
        for (given, parameters) in [
            ("8", None),
            ("5", None),
            ("6;5;08", None),
            ("8:1", None),
            ("1;8;31", Some("1;31")),
            ("0;5", Some("0")),
            (";8", Some("")),
            ("31;8:2;1", Some("31;1")),
            ("38;5;8", Some("38;5;8")),
            ("48;5;5;8;1", Some("48;5;5;1")),
            ("38;2;8;5;6;8;4", Some("38;2;8;5;6;4")),
            ("58;5;6", Some("58;5;6")),
            ("38:5:8", Some("38:5:8")),
            ("38:2::5:6:8;8", Some("38:2::5:6:8")),
            ("48;8", None),
            ("38;5", None),
            ("38;1;5:8;8", Some("1")),
            ("28;25", Some("28;25")),
            ("4:3", Some("4:3")),
            ("", Some("")),
        ] {
            let shown = parameters.map(|kept| format!("\x1b[{kept}m")).unwrap_or_default();
            assert_eq!(passed(format!("a\x1b[{given}mb").as_bytes()), format!("a{shown}b"), "{given:?}");
        }
    }

    #[test]
    fn what_steers_the_terminal_does_not() {
        for (given, text) in [
            ("a\x1b]0;title\x07b", "ab"),
            ("a\x1b]0;title \u{dc}\u{9c}b", "ab"),
            ("a\x1b]0;\u{dc}title\nb", "a\nb"),
            ("a\x1b]52;c;cm0=\x1b\\b", "ab"),
            ("a\x1bP1$r\x1b\\\x1b_x\x1b\\b", "ab"),
            ("a\x1b[2J\x1b[H\x1b[?1049h\x1b[1A\x1bc\x1b(0\x1b7b", "ab"),
            ("a\x1b[>4;1mb\x1b[?5mc", "abc"),
            ("10%\r20%\x08\x07", "10%\\r20%\\x08\\x07"),
            ("a\u{9b}2J\u{202e}b\x7f", "a\\u{9b}2J\\u{202e}b\\x7f"),
            ("a\x1b]0;open\nb", "a\nb"),
            ("a\x1b[12\nb", "a\nb"),
            ("a\x1b\x1b[31mb", "a\x1b[31mb"),
        ] {
            assert_eq!(passed(given.as_bytes()), text, "{given:?}");
        }
        assert_eq!(passed(b"a\x9b2J\xffb\xe6\x97\n"), "a\u{fffd}2J\u{fffd}b\u{fffd}\n");
        let long = format!("a\x1b[{}mb", "1;".repeat(100_000));
        assert_eq!(passed(long.as_bytes()), "ab");
    }

    #[test]
    fn a_colour_is_ended() {
        let mut filter = ControlFilter::default();
        filter.pass(b"\x1b[31mred\x1b[3");
        assert_eq!((filter.close(), filter.close()), (&b"\x1b[0m"[..], &b""[..]));
        assert_eq!(filter.pass(b"1m"), b"1m");
    }
}
