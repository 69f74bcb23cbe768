//! Output of a program as styled text: colors are kept, and everything else that a terminal would obey is dropped.

use quell::binary::{is_unsafe, push_escape};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The columns of a tab.
const TAB: usize = 8;

/// One line of output. A carriage return within it begins the line again, as on a terminal. A color ends with its line.
pub(crate) fn line(text: &str) -> Line<'static> {
    let text = text.trim_end_matches(['\r', '\n']);
    let text = text.rsplit('\r').next().unwrap_or_default();
    let (mut spans, mut shown, mut style) = (Vec::new(), String::new(), Style::new());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next_if(|c| !c.is_control()) {
                Some('[') => {
                    let (mut parameters, mut end) = (String::new(), None);
                    while let Some(c) = chars.next_if(|c| ('\u{20}'..='\u{7e}').contains(c)) {
                        if c >= '@' {
                            end = Some(c);
                            break;
                        }
                        parameters.push(c);
                    }
                    if end == Some('m') {
                        flush(&mut spans, &mut shown, style);
                        style = colored(style, &parameters);
                    }
                }
                // A text for the terminal, such as a title: it ends with BEL, ST, or the line.
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    while let Some(c) = chars.next() {
                        if matches!(c, '\u{7}' | '\u{9c}') {
                            break;
                        }
                        if c == '\u{1b}' {
                            chars.next_if_eq(&'\\');
                            break;
                        }
                    }
                }
                // An intermediate character is followed by the final one.
                Some(' '..='/') => drop(chars.next_if(|c| !c.is_control())),
                Some(_) | None => {}
            },
            '\t' => {
                let column: usize =
                    spans.iter().map(Span::width).sum::<usize>() + quell::binary::width(&shown);
                shown.extend(std::iter::repeat_n(' ', TAB - column % TAB));
            }
            c if is_unsafe(c) => push_escape(&mut shown, c),
            c => shown.push(c),
        }
    }
    flush(&mut spans, &mut shown, style);
    Line::from(spans)
}

/// The same without colors.
pub(crate) fn plain(text: &str) -> String {
    line(text).spans.iter().map(|span| span.content.as_ref()).collect()
}

fn flush(spans: &mut Vec<Span<'static>>, shown: &mut String, style: Style) {
    if !shown.is_empty() {
        spans.push(Span::styled(std::mem::take(shown), style));
    }
}

/// The style after the parameters of `CSI … m`. Blinking and hidden text is shown as it is.
fn colored(style: Style, parameters: &str) -> Style {
    let mut numbers = parameters.split([';', ':']).map(|word| word.parse::<u16>().unwrap_or(0));
    let mut style = style;
    while let Some(number) = numbers.next() {
        style = match number {
            0 => Style::new(),
            1 => style.add_modifier(Modifier::BOLD),
            2 => style.add_modifier(Modifier::DIM),
            3 => style.add_modifier(Modifier::ITALIC),
            4 => style.add_modifier(Modifier::UNDERLINED),
            7 => style.add_modifier(Modifier::REVERSED),
            22 => style.remove_modifier(Modifier::BOLD | Modifier::DIM),
            23 => style.remove_modifier(Modifier::ITALIC),
            24 => style.remove_modifier(Modifier::UNDERLINED),
            27 => style.remove_modifier(Modifier::REVERSED),
            30..=37 => style.fg(Color::Indexed((number - 30) as u8)),
            90..=97 => style.fg(Color::Indexed((number - 90 + 8) as u8)),
            40..=47 => style.bg(Color::Indexed((number - 40) as u8)),
            100..=107 => style.bg(Color::Indexed((number - 100 + 8) as u8)),
            38 => extended(&mut numbers).map_or(style, |color| style.fg(color)),
            48 => extended(&mut numbers).map_or(style, |color| style.bg(color)),
            39 => style.fg(Color::Reset),
            49 => style.bg(Color::Reset),
            _ => style,
        };
    }
    style
}

fn extended(numbers: &mut impl Iterator<Item = u16>) -> Option<Color> {
    let mut byte = || u8::try_from(numbers.next()?).ok();
    match byte()? {
        5 => byte().map(Color::Indexed),
        2 => Some(Color::Rgb(byte()?, byte()?, byte()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, shown) in [
            ("plain", "plain"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("a\u{1b}[2Jb\u{1b}[5;5Hc", "abc"),
            ("\u{1b}]0;title\u{7}a\u{1b}]52;c;eA==\u{1b}\\b", "ab"),
            ("\u{1b}Pq…\u{1b}\\x\u{1b}(Bx\u{1b}7x", "xxx"),
            ("\u{1b}]0;never closed", ""),
            ("\u{1b}[31", ""),
            ("a\u{8}b\u{7f}\u{9b}2J", "a\\x08b\\x7f\\u{9b}2J"),
            ("x\u{202e}y", "x\\u{202e}y"),
            ("10 %\r20 %\r\n", "20 %"),
            ("a\tb", "a       b"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn colors_become_styles_and_end_with_the_line() {
        let line = line("a\u{1b}[1;31mb\u{1b}[38;5;200mc\u{1b}[48;2;1;2;3md\u{1b}[me");
        let styles: Vec<_> = line.spans.iter().map(|span| (span.content.as_ref(), span.style)).collect();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        assert_eq!(styles[0], ("a", Style::new()));
        assert_eq!(styles[1], ("b", bold.fg(Color::Indexed(1))));
        assert_eq!(styles[2], ("c", bold.fg(Color::Indexed(200))));
        assert_eq!(styles[3], ("d", bold.fg(Color::Indexed(200)).bg(Color::Rgb(1, 2, 3))));
        assert_eq!(styles[4], ("e", Style::new()));
    }
}
