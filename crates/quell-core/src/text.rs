//! Text from anywhere, made safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal could act on the character instead of showing it: control characters, characters that change the
/// direction of the text, and line separators.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// One line: each unsafe character is shown as an escape.
pub fn printable(text: &str) -> String {
    escaped(text, &[]).into_owned()
}

/// Several lines: line feeds and tabs stay, each other unsafe character is shown as an escape.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

fn escaped<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_shown = |c: char| is_unsafe(c) && !kept.contains(&c);
    // Most text is of nothing but this, and bytes are quicker to look at than characters.
    let is_plain = || text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain() || !text.contains(is_shown) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_shown(c) { push_escape(&mut safe, c) } else { safe.push(c) }
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

/// JSON without unsafe characters. They occur only inside strings, so that an escape of JSON means the same.
pub(crate) fn safe_json(json: String) -> String {
    if !json.contains(is_unsafe) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
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
        let json = safe_json(serde_json::to_string(text).unwrap());
        assert_eq!(json, "\"\\u009b\\u007f\\u202e\\u001bé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
