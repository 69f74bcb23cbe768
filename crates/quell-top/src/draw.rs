//! What is on the screen.

use quell::binary::width;
use quell::{JobState, StateLook, StateWords};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use crate::app::App;
use crate::keys::{FLEET_KEYS, PAGE_KEYS};
use crate::row::JobRow;

mod page;

/// Runs, is ready, is proven gone.
const OK: Color = Color::Green;
/// quell is doing something.
const ACT: Color = Color::Magenta;
/// Needs a look.
const WARN: Color = Color::Yellow;
/// Killed, lost, left alive, not proven.
const BAD: Color = Color::Red;
/// Marked.
const ACCENT: Color = Color::Blue;

/// Whether colors are left out: <https://no-color.org>.
fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn color(color: Color) -> Style {
    if is_plain() { Style::new() } else { Style::new().fg(color) }
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Draws a frame. It notes in `app` how much fits.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(headline(app, usize::from(head.width)), head);
    if app.page.is_some() {
        page::draw(frame, app, body);
    } else {
        fleet(frame, app, body);
    }
    if app.is_help {
        help(frame, if app.page.is_some() { &PAGE_KEYS } else { &FLEET_KEYS }, body);
    }
    frame.render_widget(footline(app), foot);
}

fn headline(app: &App, columns: usize) -> Line<'static> {
    let (live, processes, needy) = app.counts();
    let plural =
        |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let mut spans = vec![
        Span::styled("quell top", bold()),
        Span::raw(format!("  {} live, {}", plural(live, "job", "jobs"), counted(&processes.to_string()))),
    ];
    if needy > 0 {
        spans.push(Span::raw(", "));
        spans.push(Span::styled(plural(needy, "needs", "need") + " attention", color(WARN)));
    }
    let clock = app.now.to_string();
    // Hours, minutes and seconds in UTC, as all times of quell.
    let clock = clock.get(11..19).map(|time| format!("{time}Z")).unwrap_or_default();
    let used: usize = spans.iter().map(Span::width).sum();
    if columns > used + clock.len() {
        spans.push(Span::raw(" ".repeat(columns - used - clock.len())));
        spans.push(Span::styled(clock, faint()));
    }
    Line::from(spans)
}

fn footline(app: &App) -> Line<'static> {
    if let Some(question) = &app.question {
        let keys = if question.default_is_yes() { "  [Y/n]" } else { "  [y/N]" };
        let style = if question.is_kill { color(BAD) } else { bold() };
        return Line::from(vec![Span::styled(question.text.clone(), style), Span::styled(keys, bold())]);
    }
    if app.is_filtering {
        return Line::from(format!("/{}_", app.filter));
    }
    if let Some(problem) = &app.problem {
        return Line::styled(quell::binary::printable(problem), color(BAD));
    }
    if let Some(note) = app.stops.notes.last() {
        return Line::from(note.clone());
    }
    let keys = if app.page.is_some() {
        "Esc back  j/k scroll  f follow  x stop  ? keys  q leave"
    } else {
        "Enter open  / filter  Space mark  x stop  ? keys  q leave"
    };
    Line::styled(keys, faint())
}

/// The columns that fit.
struct Columns {
    name: usize,
    state: usize,
    /// Processes, CPU, memory, age, age of the output.
    numbers: usize,
    note: usize,
}

/// The headings of the numbers and their widths.
const NUMBERS: [(&str, usize); 5] = [("PROCS", 5), ("AGE", 5), ("CPU", 5), ("MEM", 5), ("OUT", 4)];

impl Columns {
    fn of(columns: usize) -> Self {
        let (name, state) = if columns >= 60 { (16, 16) } else { (10, 14) };
        let mut left = columns.saturating_sub(2 + name + 1 + state);
        let mut numbers = 0;
        for (_, width) in NUMBERS {
            if left < width + 1 {
                break;
            }
            left -= width + 1;
            numbers += 1;
        }
        Self { name, state, numbers, note: left.saturating_sub(2) }
    }
}

fn fleet(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let columns = Columns::of(usize::from(area.width));
    app.room = usize::from(area.height.saturating_sub(1)).max(1);
    let rows: Vec<&JobRow> = app.visible().collect();
    if rows.is_empty() {
        let text = match (app.is_read, app.rows.is_empty()) {
            (false, _) => "reading the jobs",
            (true, true) => "no jobs yet; `quell start -- CMD` starts one",
            (true, false) => "no job matches the filter",
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let at = rows.iter().position(|row| Some(row.view.id) == app.selected).unwrap_or(0);
    // The selected row stays in view, in the middle if the list is longer than the screen.
    let first = at.saturating_sub(app.room / 2).min(rows.len().saturating_sub(app.room));
    let mut lines = vec![Line::styled(heading(&columns), bold())];
    for row in rows.iter().skip(first).take(app.room) {
        let mut line = row_line(app, row, &columns);
        if Some(row.view.id) == app.selected {
            line = line.patch_style(Style::new().add_modifier(Modifier::REVERSED));
        }
        lines.push(line);
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn heading(columns: &Columns) -> String {
    let mut text = format!("  {} {}", padded("NAME", columns.name), padded("STATE", columns.state));
    for (heading, width) in &NUMBERS[..columns.numbers] {
        text += &format!(" {heading:>width$}");
    }
    text + "  NOTE"
}

fn row_line(app: &App, row: &JobRow, columns: &Columns) -> Line<'static> {
    let is_marked = app.marked.contains(&row.view.id);
    let mark = match (is_marked, &row.attention) {
        (true, _) => Span::styled("* ", color(ACCENT)),
        (false, Some(_)) => Span::styled("! ", color(WARN)),
        (false, None) => Span::raw("  "),
    };
    let is_over = row.view.state == JobState::Ended && row.attention.is_none();
    let rest = if is_over { faint() } else { Style::new() };
    let mut numbers = String::new();
    let values = [row.processes(), row.age(app.now), row.cpu(), row.memory(), row.output_age()];
    for ((_, width), value) in NUMBERS.iter().zip(values).take(columns.numbers) {
        numbers += &format!(" {value:>width$}");
    }
    Line::from(vec![
        mark,
        Span::styled(padded(&row.name(), columns.name) + " ", rest),
        Span::styled(padded(&row.state(app.now), columns.state), state_style(row)),
        Span::styled(numbers, rest),
        Span::styled(
            format!("  {}", cut(&row.note(), columns.note)),
            if row.attention.is_some() { rest } else { faint() },
        ),
    ])
}

fn state_style(row: &JobRow) -> Style {
    match StateWords::of(&row.view).look {
        StateLook::Running | StateLook::Ready => color(OK),
        StateLook::Starting | StateLook::Stopping | StateLook::Waiting => color(ACT),
        StateLook::RootExited => color(WARN),
        StateLook::Succeeded | StateLook::Stopped => faint(),
        StateLook::Failed
        | StateLook::Killed
        | StateLook::Lost
        | StateLook::LeftAlive
        | StateLook::NotProven => color(BAD),
        _ => Style::new(),
    }
}

fn help(frame: &mut Frame<'_>, keys: &[(&str, &str)], area: Rect) {
    let lines: Vec<Line<'_>> = keys
        .iter()
        .map(|(key, what)| Line::from(vec![Span::styled(format!("  {key:<16}"), bold()), Span::raw(*what)]))
        .collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines), area);
}

/// A number of processes in words.
fn counted(processes: &str) -> String {
    format!("{processes} process{}", if processes == "1" { "" } else { "es" })
}

/// The text in exactly this many columns.
fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let room = columns.saturating_sub(width(&text));
    text + &" ".repeat(room)
}

/// The text in at most this many columns, with a mark where it is cut.
fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut short, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += quell::binary::columns_of_char(c);
        if used > columns {
            break;
        }
        short.push(c);
    }
    if columns > 0 {
        short.push('…');
    }
    short
}
