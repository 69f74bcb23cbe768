//! Text for people: numbers, and text from anywhere, made safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal could act on the character instead of showing it: control characters, characters that change the
/// direction of the text, and line separators.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One line: each unsafe character is shown as an escape.
pub fn printable(text: &str) -> String {
    escaped(text, is_unsafe, push_escape).into_owned()
}

/// Several lines: line feeds and tabs stay, each other unsafe character is shown as an escape.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unsafe(c) && !['\n', '\t'].contains(&c), push_escape)
}

fn escaped(text: &str, is_escaped: fn(char) -> bool, push: fn(&mut String, char)) -> Cow<'_, str> {
    // Most text is plain ASCII, and bytes are checked quicker than characters.
    let is_plain = || text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain() || !text.contains(is_escaped) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { push(&mut safe, c) } else { safe.push(c) }
    }
    safe.into()
}

/// Appends an unsafe character as it is shown: `\n`, `\x1b`, `\u{202e}`.
pub fn push_escape(text: &mut String, c: char) {
    match c {
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        c if c.is_ascii() => {
            let _ = write!(text, "\\x{:02x}", u32::from(c));
        }
        c => text.extend(c.escape_unicode()),
    }
}

/// JSON without unsafe characters. They occur only inside strings, where an escape means the same character.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    escaped(json, is_unsafe, |safe, c| {
        let _ = write!(safe, "\\u{:04x}", u32::from(c));
    })
}

/// In JSON the type is a string: written by `Display`, read by `FromStr`.
macro_rules! json_as_text {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}
pub(crate) use json_as_text;

/// How many columns of a terminal it takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns_of_char).sum()
}

/// The columns of one character, well enough for text in columns: those of East Asia and pictures are wide.
pub fn columns_of_char(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200d | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        let hostile = "a\x1b[31mb\x07\nc\u{9b}2J\u{202e}x\u{2066}\u{200f}\x7f";
        let shown = "a\\x1b[31mb\\x07\\nc\\u{9b}2J\\u{202e}x\\u{2066}\\u{200f}\\x7f";
        assert_eq!(printable(hostile), shown);
        assert_eq!(printable_lines("a\n\tb\r\n"), "a\n\tb\\r\n");
        assert_eq!(printable(shown), shown);
    }

    #[test]
    fn json_means_the_same_without_unsafe_characters() {
        let text = "\u{9b}\u{7f}\u{202e}\u{1b}é";
        let json = serde_json::to_string(text).unwrap();
        let json = safe_json(&json);
        assert_eq!(json, "\"\\u009b\\u007f\\u202e\\u001bé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
