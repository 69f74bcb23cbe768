//! Aligned columns, and pairs of a label and a value.

use quell::binary::printable;

use super::Reader;
use super::text::{cut, width, wrap};

/// How a cell looks where there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As the terminal has it.
    #[default]
    Plain,
    /// For headings.
    Bold,
    /// For what has ended.
    Faint,
    /// All is well.
    Good,
    /// On its way.
    Busy,
    /// Not well.
    Bad,
}

impl Style {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Bold => Some("\x1b[1m"),
            Self::Faint => Some("\x1b[2m"),
            Self::Good => Some("\x1b[32m"),
            Self::Busy => Some("\x1b[33m"),
            Self::Bad => Some("\x1b[31m"),
        }
    }

    /// The text in this style.
    pub fn paint(self, text: &str, colours: bool) -> String {
        match self.code().filter(|_| colours && !text.is_empty()) {
            Some(code) => format!("{code}{text}{PLAIN}"),
            None => text.to_owned(),
        }
    }

    /// The sequence of a style that the text begins with.
    pub fn sequence_at(text: &str) -> Option<&'static str> {
        let styles = [Self::Bold, Self::Faint, Self::Good, Self::Busy, Self::Bad];
        styles.into_iter().filter_map(Self::code).chain([PLAIN]).find(|code| text.starts_with(code))
    }
}

/// Ends every style.
const PLAIN: &str = "\x1b[0m";

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// In this style.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Style::Plain)
    }
}

/// How much of a column that is not the last one is shown, if the whole would be too wide.
const NARROW: usize = 16;
/// How narrow a column is made at most.
const LEAST: usize = 4;

/// Rows of cells, the first of them the headings.
#[derive(Debug)]
pub struct Table<const N: usize> {
    rows: Vec<[Cell; N]>,
    /// The columns whose cells stand at the right.
    right: &'static [usize],
}

impl<const N: usize> Table<N> {
    /// With these headings; `right` says which columns stand at the right.
    pub fn new(headings: [&str; N], right: &'static [usize]) -> Self {
        Self { rows: vec![headings.map(|text| Cell::new(text, Style::Bold))], right }
    }

    /// One more row. What a terminal would obey is shown as escapes.
    pub fn row(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.map(|cell| Cell::new(printable(&cell.text), cell.style)));
    }

    /// The lines. If they would be wider than the reader's columns, the last column is cut, and the others after it.
    pub fn lines(&self, reader: Reader) -> String {
        let mut widths = [0; N];
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                widths[column] = widths[column].max(width(&cell.text));
            }
        }
        if let Some(columns) = reader.columns {
            let gaps = 2 * N.saturating_sub(1);
            let too_wide = |widths: &[usize; N]| widths.iter().sum::<usize>() + gaps > columns;
            let least = N.checked_sub(1).map_or(0, |last| width(&self.rows[0][last].text));
            let others = |widths: &[usize; N]| widths[..N.saturating_sub(1)].iter().sum::<usize>() + gaps;
            if too_wide(&widths) && others(&widths) + NARROW > columns {
                // The first column names the row, and is never cut.
                widths[1..].iter_mut().for_each(|column| *column = (*column).min(NARROW));
            }
            if let Some(last) = N.checked_sub(1).filter(|_| too_wide(&widths)) {
                widths[last] = columns.saturating_sub(others(&widths)).max(least);
            }
            // In a very narrow terminal all columns but the first are cut, the widest one first.
            while too_wide(&widths)
                && let Some(widest) = widths[1..].iter_mut().max().filter(|widest| **widest > LEAST)
            {
                *widest -= 1;
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let shown = cut(&cell.text, widths[column]);
                let gap = " ".repeat(widths[column] - width(&shown));
                let shown = cell.style.paint(&shown, reader.colours);
                let right = self.right.contains(&column);
                line += &if right { format!("{gap}{shown}  ") } else { format!("{shown}{gap}  ") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Labels with their values, each on lines of its own. A value that is wider than the reader's columns is wrapped.
pub fn fields(pairs: &[(&str, Cell)], reader: Reader) -> String {
    let labels = pairs.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    let mut text = String::new();
    for (label, cell) in pairs {
        let room = reader.columns.map_or(usize::MAX, |columns| columns.saturating_sub(labels + 4).max(20));
        let lines = cell.text.lines().flat_map(|line| wrap(&printable(line), room));
        for (number, line) in lines.enumerate() {
            let label = if number == 0 { label } else { "" };
            text += &format!("  {label:labels$}  {}\n", cell.style.paint(&line, reader.colours));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(command: &str) -> Table<3> {
        let mut table = Table::new(["ID", "NAME", "COMMAND"], &[]);
        table.row(["01KA3W6Z".into(), "web".into(), command.into()]);
        table
    }

    const PLAIN: Reader = Reader { columns: None, colours: false };

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        assert_eq!(table("x").lines(PLAIN), "ID        NAME  COMMAND\n01KA3W6Z  web   x\n");
    }

    #[test]
    fn the_command_is_cut_to_the_width_and_only_then() {
        let long = "y".repeat(200);
        assert!(table(&long).lines(PLAIN).contains(&long));
        let cut = table(&long).lines(Reader { columns: Some(80), ..PLAIN });
        assert_eq!(cut.lines().map(width).max(), Some(80));
        assert!(cut.ends_with("y…\n"), "{cut}");
    }

    #[test]
    fn long_names_leave_room_for_the_command() {
        let mut table = Table::new(["ID", "NAME", "COMMAND"], &[]);
        table.row(["01KA3W6Z".into(), "n".repeat(64).into(), "c".repeat(64).into()]);
        let lines = table.lines(Reader { columns: Some(40), ..PLAIN });
        assert!(lines.lines().all(|line| width(line) <= 40), "{lines}");
        assert!(lines.contains("nn…") && lines.contains("cc…"), "{lines}");
    }

    #[test]
    fn a_table_of_many_columns_fits_a_narrow_terminal() {
        let mut table = Table::new(["ID", "NAME", "STATE", "AGE", "HELD", "COMMAND"], &[3]);
        let cells = ["01KA3W6Z", "longer-name", "ended SIGTERM", "10m ago", "reaper", "sleep 100"];
        table.row(cells.map(|cell| cell.to_owned().into()));
        for columns in 40..80 {
            let lines = table.lines(Reader { columns: Some(columns), ..PLAIN });
            assert!(lines.lines().all(|line| width(line) <= columns), "{columns}:\n{lines}");
            assert!(lines.contains("01KA3W6Z"), "{lines}");
        }
    }

    #[test]
    fn colours_do_not_count_as_columns() {
        let mut table = Table::new(["A", "B"], &[]);
        table.row([Cell::new("xx", Style::Bad), "y".into()]);
        let reader = Reader { columns: None, colours: true };
        assert_eq!(table.lines(reader), "\x1b[1mA\x1b[0m   \x1b[1mB\x1b[0m\n\x1b[31mxx\x1b[0m  y\n");
    }

    #[test]
    fn a_long_value_is_wrapped_under_itself() {
        let reader = Reader { columns: Some(30), colours: false };
        let text = fields(&[("command", "aaaaaaaaaa bbbbbbbbbb cc".into())], reader);
        assert_eq!(text, "  command  aaaaaaaaaa\n           bbbbbbbbbb cc\n");
    }
}
