//! Small charts: a line of blocks for each measure.

use super::text::width;
use super::{Reader, Style};

/// From zero to the largest value. Zero has a block of its own, so that it differs from one.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The same for locales without Unicode.
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// The least columns that are for the blocks, before the numbers beside them are left out.
const LEAST: usize = 10;

/// What is drawn.
#[derive(Debug)]
pub struct Chart<'a> {
    /// A line for each: its label, its style where there is something to see, and its values.
    pub measures: Vec<(&'a str, Style, Vec<u64>)>,
    /// For each value the time at which it begins.
    pub times: Vec<&'a str>,
}

impl Chart<'_> {
    /// The lines, and how many values there are in a column: several, if there is no room for all.
    pub fn lines(&self, reader: Reader, utf8: bool) -> (String, usize) {
        let labels = self.measures.iter().map(|(label, _, _)| width(label)).max().unwrap_or(0);
        let count = self.times.len();
        let room = reader.columns.map_or(usize::MAX, |columns| columns.saturating_sub(labels + 4));
        // The sums in the columns depend on how many there are, and the numbers beside them on the sums; no sum is
        // larger than that of all.
        let most = self.measures.iter().map(|(_, _, values)| values.iter().sum()).max().unwrap_or(0);
        let beside = width(&range(most, most)) + 2;
        let numbers = room >= beside + LEAST.min(count);
        let cells = if numbers { room - beside } else { room }.max(1);
        let each = count.div_ceil(cells).max(1);
        let drawn = count.div_ceil(each);

        let mut text = String::new();
        for (label, style, values) in &self.measures {
            let sums: Vec<u64> = values.chunks(each).map(|chunk| chunk.iter().sum()).collect();
            let (least, most) = (sums.iter().min().copied(), sums.iter().max().copied().unwrap_or(0));
            let glyphs = if utf8 { BLOCKS } else { ASCII };
            let line: String = sums.iter().map(|sum| glyphs[level(*sum, most)]).collect();
            let style = if most == 0 { Style::Faint } else { *style };
            let line = style.paint(&line, reader.colours);
            let range = least.filter(|_| numbers).map(|least| format!("  {}", range(least, most)));
            text += &format!("  {label:labels$}  {line}{}\n", range.unwrap_or_default());
        }
        let first = self.times.first().copied().unwrap_or_default();
        let last = self.times.iter().step_by(each).next_back().copied().unwrap_or_default();
        text += &axis(first, last, drawn, labels + 4, reader);
        (text, each)
    }
}

fn range(least: u64, most: u64) -> String {
    format!("min {least}, max {most}")
}

/// Which block: the first one for nothing alone.
fn level(value: u64, most: u64) -> usize {
    match (value, most) {
        (0, _) | (_, 0) => 0,
        _ => (u128::from(value) * 7).div_ceil(u128::from(most)).clamp(1, 7) as usize,
    }
}

/// The times of the first and the last column, under them if there is room for both.
fn axis(first: &str, last: &str, drawn: usize, indent: usize, reader: Reader) -> String {
    let between = drawn.saturating_sub(width(first) + width(last));
    let line = match (drawn, between) {
        (..=1, _) => first.to_owned(),
        (_, 1..) => format!("{first}{}{last}", " ".repeat(between)),
        (_, 0) => format!("{first} to {last}"),
    };
    let fits = |indent: usize| reader.columns.is_none_or(|columns| indent + width(&line) <= columns);
    match indent {
        indent if fits(indent) => format!("{}{line}\n", " ".repeat(indent)),
        _ if fits(2) => format!("  {line}\n"),
        _ => format!("  {first}\n  {last}\n"),
    }
}

/// Whether the locale has more than ASCII.
pub fn speaks_utf8() -> bool {
    is_utf8(|name| std::env::var(name).ok())
}

/// The first of these variables that is set decides, as everywhere.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(columns: usize) -> Reader {
        Reader { columns: Some(columns), colours: false }
    }

    fn chart(values: &[u64]) -> Chart<'static> {
        let times = [
            "00:00", "01:00", "02:00", "03:00", "04:00", "05:00", "06:00", "07:00", "08:00", "09:00",
            "10:00", "11:00",
        ];
        Chart {
            measures: vec![("jobs", Style::Plain, values.to_vec()), ("x", Style::Bad, vec![0; values.len()])],
            times: times.into_iter().cycle().take(values.len()).collect(),
        }
    }

    #[test]
    fn nothing_and_one_look_different_and_the_most_is_full() {
        let (text, each) = chart(&[0, 1, 50, 100, 99, 2, 0, 0, 0, 0, 0, 100]).lines(plain(80), true);
        assert_eq!(
            text,
            "  jobs  ▁▂▅██▂▁▁▁▁▁█  min 0, max 100\n  x     ▁▁▁▁▁▁▁▁▁▁▁▁  min 0, max 0\n        00:00  11:00\n"
        );
        assert_eq!(each, 1);
    }

    #[test]
    fn there_is_one_in_ascii() {
        let (text, _) = chart(&[0, 1, 2, 3, 4, 5, 6, 7]).lines(plain(80), false);
        assert!(text.starts_with("  jobs  _.:-=+*#  min 0, max 7\n"), "{text}");
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn one_value_is_one_block_and_one_time() {
        assert_eq!(
            chart(&[3]).lines(plain(80), true).0,
            "  jobs  █  min 3, max 3\n  x     ▁  min 0, max 0\n        00:00\n"
        );
    }

    #[test]
    fn without_values_there_is_still_a_chart() {
        assert_eq!(chart(&[]).lines(plain(80), true).1, 1);
    }

    #[test]
    fn a_chart_is_as_wide_as_the_terminal_and_loses_nothing() {
        let values: Vec<u64> = (0..60).map(|value| u64::from(value == 59) * 7 + 1).collect();
        for columns in 18..120 {
            let (text, each) = chart(&values).lines(plain(columns), true);
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}: {text}");
            let line = text.lines().next().unwrap();
            let blocks = line.chars().filter(|c| BLOCKS.contains(c)).count();
            assert_eq!(blocks, 60_usize.div_ceil(each), "{columns}: {text}");
            let most = values.chunks(each).map(|chunk| chunk.iter().sum::<u64>()).max().unwrap();
            let numbers = line.ends_with(&format!("  min {each}, max {most}"));
            assert!(numbers || columns < 34, "{columns}: {text}");
            assert_eq!(each == 1, columns >= 84, "{columns}: {text}");
        }
        let all = Reader { columns: None, colours: false };
        assert_eq!(chart(&values).lines(all, true).1, 1);
    }

    #[test]
    fn colours_are_for_what_is_there() {
        let reader = Reader { columns: Some(80), colours: true };
        let mut chart = chart(&[1]);
        chart.measures[0].1 = Style::Bad;
        let (text, _) = chart.lines(reader, true);
        assert!(text.contains("\x1b[31m█\x1b[0m") && text.contains("\x1b[2m▁\x1b[0m"), "{text:?}");
    }

    #[test]
    fn the_locale_is_found_as_by_others() {
        let with = |pairs: &[(&str, &str)]| {
            is_utf8(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(!with(&[]) && !with(&[("LANG", "C")]) && with(&[("LANG", "C.UTF-8")]));
        assert!(with(&[("LC_CTYPE", "de_DE.utf8"), ("LANG", "C")]));
        assert!(!with(&[("LC_ALL", "POSIX"), ("LANG", "en_US.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "en_US.UTF-8")]));
    }
}
