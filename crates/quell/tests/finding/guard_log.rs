//! The audit log with many writers at once.

use std::fs;

use quell_guard::{AuditLine, Guard};
use quell_guard::{Decision, Policy, Verb};

use crate::fake::TestHome;

const WRITERS: usize = 50;
const LINES: usize = 100;

/// The size limit of the log.
const CAP: usize = 16 << 20;

#[test]
fn of_many_who_write_at_once_no_line_is_cut_and_none_is_lost_also_when_the_log_is_clear_place() {
    let place = TestHome::new();
    let guard = || Guard::new(&place.home, Policy::default());
    let refusal = || Decision::refuse(quell_core::DecisionCode::PidZero, "built-in", "x".repeat(300), "y");
    guard().refuse(Verb::Kill, "first", refusal());
    let path = place.path("audit.jsonl");
    let line = fs::read(&path).unwrap();
    // So that the limit is reached in the middle of the writes.
    let before = (CAP - WRITERS * LINES / 2 * line.len()) / line.len();
    fs::write(&path, line.repeat(before)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let guard = guard();
            scope.spawn(move || {
                for number in 0..LINES {
                    guard.refuse(Verb::Kill, &format!("{writer} {number}"), refusal());
                }
            });
        }
    });
    let old = fs::read(place.path("audit.1.jsonl")).unwrap();
    let new = fs::read(&path).unwrap();
    assert!(old.len() > CAP, "it was put aside once, and not before its time: {}", old.len());
    let whole = |bytes: &[u8]| -> Vec<AuditLine> {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    };
    let mut lines = whole(&old);
    lines.extend(whole(&new));
    assert_eq!(lines.len(), before + WRITERS * LINES);
}
