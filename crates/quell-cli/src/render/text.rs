//! Command lines, and text in columns.

pub use quell::binary::width;
use quell::binary::{columns_of_char, printable, printable_lines};

use super::Style;

/// A command as one could type it into a shell, printable.
pub fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    printable(&words.join(" "))
}

/// Lines with quell's own styles in them. Any other escape sequence is shown, not obeyed.
pub fn painted(text: &str) -> String {
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\x1b') {
        safe += &printable_lines(&rest[..at]);
        let own = Style::sequence_at(&rest[at..]).unwrap_or_default();
        safe += if own.is_empty() { "\\x1b" } else { own };
        rest = &rest[at + own.len().max(1)..];
    }
    safe + &printable_lines(rest)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Cut at its end, with a mark.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = head(text, columns.saturating_sub(1)).to_owned();
    if columns > 0 {
        short.push('…');
    }
    short
}

/// As much of its beginning as fits.
fn head(text: &str, room: usize) -> &str {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += columns_of_char(c);
        if taken > room {
            return &text[..at];
        }
    }
    text
}

/// Broken into lines at spaces, or anywhere in a word that is too long for a line. Nothing is left out but those spaces.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let room = columns.max(2);
    let (mut lines, mut rest) = (Vec::new(), text);
    while width(rest) > room {
        let fits = head(rest, room);
        let at_space = if rest[fits.len()..].starts_with(' ') { Some(fits.len()) } else { fits.rfind(' ') };
        let (line, next) = match at_space.filter(|at| *at > 0) {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => rest.split_at(fits.len()),
        };
        lines.push(line.to_owned());
        rest = next;
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        let own = Style::Bad.paint("x", true);
        assert_eq!(painted(&format!("{own}\x1b[8m\x1b]0;t\x07\n")), format!("{own}\\x1b[8m\\x1b]0;t\\x07\n"));
        let line = command_line(&["sh".into(), "-c".into(), "echo \x1b]0;x\x07".into(), String::new()]);
        assert_eq!(line, "sh -c 'echo \\x1b]0;x\\x07' ''");
    }

    #[test]
    fn a_command_can_be_typed_again() {
        assert_eq!(command_line(&["a b".into(), "it's".into(), "x=1".into()]), "'a b' 'it'\\''s' x=1");
    }

    #[test]
    fn a_cut_is_marked_and_fits() {
        assert_eq!(
            (cut("abcdef", 4).as_str(), cut("abcd", 4).as_str(), cut("ab", 0).as_str()),
            ("abc…", "abcd", "")
        );
        assert_eq!(cut("日本語", 4), "日…");
    }

    #[test]
    fn wrapping_loses_nothing() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
