//! The page of a job.

use quell::binary::{account::account, printable};
use quell::{JobState, LiveMember};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{WARN, bold, color, counted, cut, faint, state_style};
use crate::app::App;
use crate::row::{JobRow, bytes};

/// How many processes of the tree are shown, and how many lines of a receipt.
const TREE: usize = 10;
const RECEIPT: usize = 14;

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let columns = usize::from(area.width);
    let Some(page) = &app.page else { return };
    let mut top = match app.row(page.id) {
        Some(row) => facts(app, row, columns),
        None => vec![Line::raw("this job was removed")],
    };
    match &page.receipt {
        Some(receipt) => {
            let text = account(receipt, Some(columns));
            top.extend(text.lines().take(RECEIPT).map(|line| Line::raw(printable(line))));
        }
        None => top.extend(tree(&page.members, columns)),
    }
    // Half of the screen is for the output.
    let most = usize::from(area.height / 2).max(1);
    let height = u16::try_from(top.len().min(most)).unwrap_or(area.height);
    let [upper, title, lower] =
        Layout::vertical([Constraint::Length(height), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(top), upper);
    let (is_following, count, why) = (page.is_following, page.output.len(), page.no_output.clone());
    let state = if is_following { "following" } else { "f follows" };
    let text = why.unwrap_or_else(|| format!("output, last {count} lines, {state}"));
    let dashes = "─".repeat(columns.saturating_sub(text.chars().count() + 4));
    frame.render_widget(Line::styled(format!("── {text} {dashes}"), faint()), title);
    app.room = usize::from(lower.height).max(1);
    if let Some(page) = &mut app.page {
        page.room = usize::from(lower.height).max(1);
        let lines: Vec<Line<'_>> =
            page.output.iter().skip(page.first()).take(usize::from(lower.height)).cloned().collect();
        frame.render_widget(Paragraph::new(lines), lower);
    }
}

fn facts(app: &App, row: &JobRow, columns: usize) -> Vec<Line<'static>> {
    let view = &row.view;
    let mut first = vec![
        Span::styled(row.name(), bold()),
        Span::raw("  "),
        Span::styled(row.state(app.now), state_style(row)),
        Span::raw(format!("  {}", counted(&row.processes()))),
    ];
    if view.state != JobState::Ended {
        first.push(Span::raw(format!(
            "  cpu {}  memory {}  age {}",
            row.cpu(),
            row.memory(),
            row.age(app.now)
        )));
    }
    let mut lines = vec![Line::from(first)];
    if let Some(attention) = &row.attention {
        lines.push(Line::styled(cut(&format!("! {}", printable(&attention.reason)), columns), color(WARN)));
    }
    let mut ids = format!("id {}", view.id);
    if let Some(held) = view.held {
        ids += &format!("  held by {}", held.as_str());
    }
    if let Some(session) = &view.session {
        ids += &format!("  session {}", printable(session));
    }
    if view.run > 1 {
        ids += &format!("  run {}", view.run);
    }
    lines.push(Line::raw(cut(&ids, columns)));
    lines.push(Line::styled(cut(&row.command(), columns), faint()));
    lines
}

/// The processes, parents first, each below its parent.
fn tree(members: &[LiveMember], columns: usize) -> Vec<Line<'static>> {
    let depth = |member: &LiveMember| {
        let (mut depth, mut at) = (0, member);
        while let Some(parent) = members.iter().find(|other| other.id.pid == at.ppid)
            && depth < TREE
        {
            (depth, at) = (depth + 1, parent);
        }
        depth
    };
    let line = |member: &LiveMember| {
        let indent = "  ".repeat(depth(member));
        let stopped = if member.state == 'T' { " (stopped)" } else { "" };
        let text = format!(
            "{:>8} {:>5}  {indent}{}{stopped}",
            member.id.pid,
            bytes(member.memory),
            printable(&member.command)
        );
        Line::raw(cut(&text, columns))
    };
    let mut lines: Vec<Line<'static>> = members.iter().take(TREE).map(line).collect();
    if members.len() > TREE {
        lines.push(Line::styled(format!("         and {} more", members.len() - TREE), faint()));
    }
    lines
}
