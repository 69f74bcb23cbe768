//! Screens, drawn without a terminal.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quell::{AttentionRules, JobId, JobView, Timestamp, Vitals};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use crate::app::{App, HOLD, ScreenEffect, ScreenMessage, Work};
use crate::page::PageMessage;
use crate::row::JobRow;
use crate::stops::{StopMessage, StopWanted};
use crate::{Closed, draw};

fn time(seconds_ago: i64) -> Timestamp {
    quell::binary::now().before(Duration::from_secs(seconds_ago.unsigned_abs()))
}

/// A job by what is special about it.
fn job(number: u64, name: &str, more: serde_json::Value) -> JobRow {
    let id = format!("01K0000000000000000000000{number}");
    let mut view = json!({
        "id": id, "name": name, "mode": "start", "command": ["npm", "run", name], "cwd": "/work", "state": "running",
        "since": time(600), "created": time(600), "started": time(600), "run": 1,
    });
    let (to, from) = (view.as_object_mut().unwrap(), more.as_object().unwrap());
    to.extend(from.clone());
    let view: JobView = serde_json::from_value(view).unwrap();
    let short_id = view.id.to_string()[..8].to_owned();
    JobRow { view, short_id, vitals: None, facts: Default::default(), attention: None }
}

fn vitals(cpu: f64, processes: u64, line: &str) -> Vitals {
    Vitals {
        cpu: Some(cpu),
        memory: Some((processes * 12) << 20),
        processes: Some(processes),
        output_age: Some(3.0),
        last_line: Some(line.into()),
        quiet: Some(0.0),
    }
}

fn fleet() -> (App, Vec<JobId>) {
    let rows = vec![
        job(1, "web", json!({"state": "ready"})),
        job(2, "crawler", json!({"state": "lost"})),
        job(3, "build", json!({"outcome": {"kind": "exited", "code": 0}})),
        job(4, "e2e", json!({"state": "stopping"})),
        job(
            5,
            "lint",
            json!({"state": "ended", "ended": time(150), "cause": "own_exit", "verdict": {"kind": "gone"},
            "outcome": {"kind": "exited", "code": 1}}),
        ),
    ];
    let ids: Vec<JobId> = rows.iter().map(|row| row.view.id).collect();
    let mut app = App::new();
    app.update(ScreenMessage::Jobs(rows, AttentionRules::default()), Instant::now());
    let lines = ["GET \u{1b}[32m/index\u{1b}[0m 200", "fetching\u{1b}]0;x\u{7}", "left", "test 7", ""];
    let of = |at: usize| (ids[at], vitals(at as f64 / 4.0, at as u64 + 1, lines[at]));
    app.update(ScreenMessage::Vitals((0..4).map(of).collect::<BTreeMap<_, _>>()), Instant::now());
    app.selected = Some(ids[0]);
    (app, ids)
}

fn shown(app: &mut App, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw::draw(frame, app)).unwrap();
    let text = terminal.backend().to_string();
    // The clock is the only thing that differs between two runs.
    let lines = text.lines().map(|line| match line.find("Z\"") {
        Some(at) if at > 8 && line.contains("quell top") => {
            format!("{}HH:MM:SS{}", &line[..at - 8], &line[at..])
        }
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, keys: &[KeyCode]) -> Vec<ScreenEffect> {
    let press = |key: &KeyCode| {
        app.update(ScreenMessage::Input(Event::Key(KeyEvent::new(*key, KeyModifiers::NONE))), Instant::now())
    };
    keys.iter().flat_map(press).collect()
}

#[test]
fn the_table_has_what_needs_attention_first() {
    insta::assert_snapshot!("fleet_80x24", shown(&mut fleet().0, 80, 12));
    insta::assert_snapshot!("fleet_120", shown(&mut fleet().0, 120, 8));
    insta::assert_snapshot!("fleet_40", shown(&mut fleet().0, 40, 8));
}

#[test]
fn no_size_makes_it_panic() {
    let (mut app, ids) = fleet();
    for is_page in [false, true] {
        if is_page {
            press(&mut app, &[KeyCode::Enter]);
            app.update(
                ScreenMessage::Page(ids[0], PageMessage::Output(vec!["x".repeat(300); 5])),
                Instant::now(),
            );
        }
        for is_help in [false, true] {
            app.is_help = is_help;
            for (columns, rows) in [(1, 1), (2, 2), (5, 3), (20, 4), (33, 7), (80, 24), (300, 100)] {
                shown(&mut app, columns, rows);
            }
        }
    }
}

#[test]
fn an_empty_home_says_how_to_begin() {
    let mut app = App::new();
    assert!(shown(&mut app, 60, 4).contains("reading the jobs"));
    app.update(ScreenMessage::Jobs(Vec::new(), AttentionRules::default()), Instant::now());
    assert!(shown(&mut app, 60, 4).contains("no jobs yet; `quell start -- CMD` starts one"));
}

#[test]
fn the_order_is_held_after_a_key_and_the_selection_stays_on_its_job() {
    let (mut app, ids) = fleet();
    let order = |app: &App| app.rows.iter().map(|row| row.name()).collect::<Vec<_>>();
    let before = order(&app);
    let started = Instant::now();
    press(&mut app, &[KeyCode::Char('G')]);
    let selected = app.selected;
    let mut rows = app.rows.clone();
    rows.reverse();
    rows.push(job(6, "late", json!({"state": "lost", "created": time(1)})));
    app.update(ScreenMessage::Jobs(rows.clone(), AttentionRules::default()), started);
    assert_eq!(order(&app)[..5], before[..], "the new job is the last");
    assert_eq!((app.selected, order(&app)[5].as_str()), (selected, "late"));
    app.update(ScreenMessage::Jobs(rows, AttentionRules::default()), Instant::now() + HOLD);
    assert_eq!(order(&app)[0], "late", "it needs attention and is the newest");
    assert_eq!(app.selected, selected);
    assert!(ids.contains(&selected.unwrap()));
}

#[test]
fn a_filter_selects_only_what_it_shows() {
    let (mut app, ids) = fleet();
    press(
        &mut app,
        &[KeyCode::Char('/'), KeyCode::Char('C'), KeyCode::Char('r'), KeyCode::Char('a'), KeyCode::Enter],
    );
    assert_eq!((app.visible().count(), app.selected), (1, Some(ids[1])));
    press(&mut app, &[KeyCode::Esc]);
    assert_eq!(app.visible().count(), 5);
}

#[test]
fn enter_confirms_the_stop_of_one_job_and_never_of_several() {
    let (mut app, ids) = fleet();
    assert_eq!(press(&mut app, &[KeyCode::Char('x')]), []);
    insta::assert_snapshot!("question_one", shown(&mut app, 80, 8));
    let stop = |at: usize, wanted| ScreenEffect::Work(Work::Stop(ids[at], wanted));
    assert_eq!(press(&mut app, &[KeyCode::Enter]), [stop(0, StopWanted::Stop)]);
    app.marked = [ids[0], ids[2], ids[4]].into();
    press(&mut app, &[KeyCode::Char('x')]);
    insta::assert_snapshot!("question_several", shown(&mut app, 80, 8));
    assert_eq!(press(&mut app, &[KeyCode::Enter]), [], "the default is no");
    press(&mut app, &[KeyCode::Char('x')]);
    let both: Vec<ScreenEffect> = app
        .rows
        .iter()
        .filter(|row| [ids[0], ids[2]].contains(&row.view.id))
        .map(|row| ScreenEffect::Work(Work::Stop(row.view.id, StopWanted::Stop)))
        .collect();
    assert_eq!(press(&mut app, &[KeyCode::Char('y')]), both, "not the one that has ended");
}

#[test]
fn the_target_of_a_stop_is_fixed_when_the_question_opens() {
    let (mut app, ids) = fleet();
    press(&mut app, &[KeyCode::Char('x')]);
    app.selected = Some(ids[2]);
    app.update(
        ScreenMessage::Jobs(vec![job(3, "build", json!({}))], AttentionRules::default()),
        Instant::now(),
    );
    assert_eq!(
        press(&mut app, &[KeyCode::Char('y')]),
        [ScreenEffect::Work(Work::Stop(ids[0], StopWanted::Stop))]
    );
}

#[test]
fn a_second_x_asks_whether_to_kill_and_the_receipt_is_shown() {
    let (mut app, ids) = fleet();
    press(&mut app, &[KeyCode::Char('x'), KeyCode::Char('y'), KeyCode::Char('x')]);
    insta::assert_snapshot!("question_kill", shown(&mut app, 80, 8));
    assert_eq!(press(&mut app, &[KeyCode::Enter]), [], "a kill is never the default");
    let killed = press(&mut app, &[KeyCode::Char('x'), KeyCode::Char('y')]);
    assert_eq!(killed, [ScreenEffect::Work(Work::Stop(ids[0], StopWanted::Kill))]);
    let headline = "stopped: 1 process, \u{1b}[31m0 left".to_owned();
    app.update(ScreenMessage::Stop(ids[0], StopMessage::Ended(headline)), Instant::now());
    assert!(shown(&mut app, 80, 8).contains("web: stopped: 1 process, \\x1b[31m0 left"));
}

#[test]
fn the_page_of_a_job_follows_its_output() {
    let (mut app, ids) = fleet();
    assert_eq!(press(&mut app, &[KeyCode::Enter]), [ScreenEffect::Work(Work::OpenPage(ids[0]))]);
    let lines = (0..30).map(|line| format!("\u{1b}[3{}mline {line}\u{1b}[2J", line % 8)).collect();
    app.update(ScreenMessage::Page(ids[0], PageMessage::Output(lines)), Instant::now());
    insta::assert_snapshot!("page", shown(&mut app, 80, 14));
    press(&mut app, &[KeyCode::Char('k')]);
    app.update(ScreenMessage::Page(ids[0], PageMessage::Output(vec!["newest".into()])), Instant::now());
    assert!(!shown(&mut app, 80, 14).contains("newest"), "scrolling up ends the following");
    press(&mut app, &[KeyCode::Char('G')]);
    assert!(shown(&mut app, 80, 14).contains("newest"));
    assert_eq!(press(&mut app, &[KeyCode::Esc]), [ScreenEffect::Work(Work::ClosePage)]);
}

#[test]
fn help_has_the_keys_of_this_view() {
    let (mut app, _) = fleet();
    press(&mut app, &[KeyCode::Char('?')]);
    insta::assert_snapshot!("help_fleet", shown(&mut app, 80, 14));
    press(&mut app, &[KeyCode::Esc, KeyCode::Enter, KeyCode::Char('?')]);
    insta::assert_snapshot!("help_page", shown(&mut app, 80, 14));
}

#[test]
fn leaving_and_suspending_need_one_key() {
    let (mut app, _) = fleet();
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), [ScreenEffect::Leave(Closed::ByUser)]);
    for (key, effect) in [('c', ScreenEffect::Leave(Closed::ByUser)), ('z', ScreenEffect::Suspend)] {
        let event = Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
        assert_eq!(app.update(ScreenMessage::Input(event), Instant::now()), [effect]);
    }
}
