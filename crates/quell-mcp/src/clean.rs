//! Lines of output as text for a model: without escape sequences, and as a terminal would show them at the end.

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
    if text.len() <= longest {
        return text;
    }
    let half = longest / 2;
    let front = (0..=half).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let back = (text.len() - half..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("{}…[{} bytes of this line left out]…{}", &text[..front], back - front, &text[back..])
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
