//! `cargo test`: the sum over all test programs.

use super::{Seen, Tally};

pub(super) fn read(seen: &mut Seen, line: &str) {
    if let Some(result) = line.strip_prefix("test result: ") {
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        let tally = Tally::of(counts.split(';'));
        // A result is the program's own if it is about as many tests as have begun.
        if seen.open == Some(tally.sum()) {
            seen.open = None;
            let before = seen.total;
            seen.total = Tally {
                passed: before.passed + tally.passed,
                failed: before.failed + tally.failed,
                skipped: before.skipped + tally.skipped,
                errors: 0,
            };
            seen.tally = seen.total;
            seen.summary(seen.total);
        }
        return;
    }
    let number =
        line.strip_prefix("running ").and_then(|rest| rest.split_once(" test")).map(|(number, _)| number);
    if let Some(number) = number.and_then(|number| number.parse().ok()) {
        if seen.open.is_none() {
            seen.open = Some(number);
            seen.no_summary();
        }
    } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
        seen.running = None;
        match end.split([' ', ',', '<']).next().unwrap_or_default() {
            "ok" => seen.tally.passed += 1,
            "FAILED" => seen.failed(name),
            "ignored" => seen.tally.skipped += 1,
            _ => seen.running = Some(name.to_owned()),
        }
    } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
        // With `-q` tests have no lines of their own.
        seen.names.add(name);
    } else if let Some(why) = line.strip_prefix("error: ") {
        // `test failed, to rerun pass …`, `2 targets failed:`. What says `error:` before that is a test's.
        if ["test failed", "doctest failed", "target failed", "targets failed"]
            .iter()
            .any(|sign| why.contains(sign))
        {
            (seen.has_failed_program, seen.broken) = (true, None);
        } else if !seen.has_failed_program {
            seen.broken = Some(why.to_owned());
        }
    }
}
