//! Lines of output as text for a model: without escape sequences, and as a terminal would show them at the end.

use std::ops::Range;

use quell::binary::printable;

use crate::answer::count;

/// The text of a line, and whether bytes were replaced because they are not UTF-8.
pub fn clean(bytes: &[u8]) -> (String, bool) {
    let lossy = str::from_utf8(bytes).is_err();
    let text = String::from_utf8_lossy(bytes);
    let plain = without_escapes(&text);
    (overwritten(&plain), lossy)
}

/// The text without terminal escape sequences: colours, cursor movements, titles.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            // A control sequence ends with a letter or one of `@[\]^_`{|}~`.
            Some('[') => {
                while letters.next().is_some_and(|letter| !('\u{40}'..='\u{7e}').contains(&letter)) {}
            }
            // A string ends with BEL, or ESC and a backslash.
            Some(']' | 'P' | 'X' | '^' | '_') => {
                while let Some(letter) = letters.next() {
                    if letter == '\u{7}' || (letter == '\u{1b}' && letters.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            // A character set: one more letter.
            Some('(' | ')' | '#' | '%') => {
                letters.next();
            }
            Some(_) | None => {}
        }
    }
    plain
}

/// What is left on the line after carriage returns and backspaces. Other control characters are replaced.
fn overwritten(line: &str) -> String {
    let last = line.split('\r').rev().find(|part| !part.is_empty()).unwrap_or_default();
    let mut shown = String::with_capacity(last.len());
    for letter in last.chars() {
        match letter {
            '\u{8}' => {
                shown.pop();
            }
            '\t' => shown.push('\t'),
            letter if letter.is_control() => shown.push('\u{fffd}'),
            letter => shown.push(letter),
        }
    }
    shown
}

/// `text` in at most about `longest` bytes: its beginning and its end, with the number of bytes in between.
pub fn shorten(text: String, longest: usize) -> String {
    cut(text, longest, None, |_| String::new())
}

/// The same with the part `keep`, if that would be left out; of a long one, the beginning. `fetch` says how to get what follows the
/// text that it is given.
pub fn cut(
    text: String,
    longest: usize,
    keep: Option<Range<usize>>,
    fetch: impl Fn(&str) -> String,
) -> String {
    if text.len() <= longest {
        return text;
    }
    let down = |at: usize| (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let up = |at: usize| (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let (half, quarter) = (longest / 2, longest / 4);
    let shown = match keep {
        Some(keep) if keep.end > half && keep.start < text.len() - half => {
            // With some of the text before it.
            let from = keep.start.saturating_sub(quarter / 2).max(quarter);
            let to = (from + half).min(text.len() - quarter);
            vec![0..down(quarter), down(from)..up(to), up(text.len() - quarter)..text.len()]
        }
        _ => vec![0..down(half), up(text.len() - half)..text.len()],
    };
    let mut short = String::new();
    let mut end = 0;
    for part in shown {
        if part.start > end {
            let left = count((part.start - end) as u64, "byte", "bytes");
            short += &format!("…[{left} of this line left out{}]…", fetch(&text[..end]));
        }
        // Two parts may meet.
        short += &text[part.start.max(end)..part.end.max(end)];
        end = part.end.max(end);
    }
    short
}

/// Text from elsewhere in a question to the user: one line in quotes, at most about `longest` bytes of it.
pub fn quoted(text: &str, longest: usize) -> String {
    let text = shorten(text.to_owned(), longest);
    format!("\"{}\"", printable(&text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_can_neither_end_its_quotes_nor_its_line() {
        assert_eq!(quoted("it hangs", 50), r#""it hangs""#);
        assert_eq!(quoted("x\"\nApproved\u{202e}\\\u{1b}[2J", 50), r#""x\"\nApproved\u{202e}\\\x1b[2J""#);
        assert_eq!(quoted(&"a".repeat(20), 4), "\"aa…[16 bytes of this line left out]…aa\"");
    }

    #[test]
    fn escape_sequences_and_overwritten_text_are_removed() {
        for (raw, shown) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}x\u{1b}]8;;u\u{1b}\\y", "xy"),
            (" 10%\r 50%\r100%", "100%"),
            ("windows\r", "windows"),
            ("ab\u{8}c", "ac"),
            ("\u{1b}(Bx\u{1b}", "x"),
            ("bell\u{7}", "bell\u{fffd}"),
            ("tab\tstays", "tab\tstays"),
            ("\r\r", ""),
        ] {
            assert_eq!(clean(raw.as_bytes()), (shown.to_owned(), false), "{raw:?}");
        }
        assert_eq!(clean(b"a\xffb"), ("a\u{fffd}b".to_owned(), true));
    }

    #[test]
    fn a_long_line_keeps_both_ends_and_says_how_much_is_missing() {
        assert_eq!(shorten("abc".into(), 3), "abc");
        assert_eq!(shorten("a".repeat(10) + &"b".repeat(10), 4), "aa…[16 bytes of this line left out]…bb");
        // Never in the middle of a letter.
        assert_eq!(shorten("äöüß".into(), 5), "ä…[4 bytes of this line left out]…ß");
    }

    #[test]
    fn a_long_line_keeps_what_was_looked_for_and_says_how_to_get_the_rest() {
        let line = format!("{}NEEDLE{}", "a".repeat(5000), "b".repeat(5000));
        let fetch = |before: &str| format!(": from {}", before.len());
        let shown = cut(line.clone(), 400, Some(5000..5006), fetch);
        assert!(shown.contains("aaNEEDLEbb") && shown.len() < 520, "{shown}");
        assert!(shown.contains("[4,850 bytes of this line left out: from 100]"), "{shown}");
        assert!(shown.contains("[4,756 bytes of this line left out: from 5150]"), "{shown}");
        // It is shown once where it is near an end, and its beginning where it is long.
        for near in [0..9, 90..110, 150..260, 195..205, 9700..9750, 9890..9910, 9990..10_006, 10..10_000] {
            let shown = cut(line.clone(), 400, Some(near.clone()), fetch);
            let (front, back) = (shown.split('…').next().unwrap(), shown.rsplit('…').next().unwrap());
            assert!(
                shown.len() < 520 && line.starts_with(front) && line.ends_with(back),
                "{near:?}: {shown}"
            );
        }
        assert!(cut(line.clone(), 400, Some(4990..9000), fetch).contains("aaNEEDLEbb"));
        assert_eq!(cut("x".into(), 400, Some(0..1), fetch), "x");
    }
}
