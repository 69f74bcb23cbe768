//! Reads the output of `cargo test`: the sum over all test programs.

use super::{ReaderState, Totals};

pub(super) fn read(state: &mut ReaderState, line: &str) {
    if let Some(result) = line.strip_prefix("test result: ") {
        let counts = result.split_once(". ").map_or(result, |(_, counts)| counts);
        let totals = Totals::of(counts.split(';'));
        // A test can print such a line. The program's own has the number of tests that it announced.
        if state.open == Some(totals.sum()) {
            state.open = None;
            counts.split(';').for_each(|item| state.total.add(item));
            state.totals = state.total;
            state.summary(state.total);
        }
        return;
    }
    state.has_program |= line.starts_with("     Running ") || line.starts_with("   Doc-tests ");
    let number =
        line.strip_prefix("running ").and_then(|rest| rest.split_once(" test")).map(|(number, _)| number);
    if let Some(number) = number.and_then(|number| number.parse().ok()) {
        if state.open.is_none() {
            state.open = Some(number);
            state.clear_summaries();
        }
    } else if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
        state.running = None;
        match end.split([' ', ',', '<']).next().unwrap_or_default() {
            "ok" => state.totals.passed += 1,
            "FAILED" => state.failed(name),
            "ignored" => state.totals.skipped += 1,
            _ => state.running = Some(name.to_owned()),
        }
    } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
        // With `-q` there is no line per test.
        state.names.add(name);
    } else if let Some(why) = line.strip_prefix("error: ") {
        // `test failed, to rerun pass …`, `2 targets failed:`. An earlier `error:` was printed by a test.
        if ["test failed", "doctest failed", "target failed", "targets failed"]
            .iter()
            .any(|sign| why.contains(sign))
        {
            (state.has_failed_program, state.broken) = (true, None);
        } else if !state.has_failed_program {
            state.broken = Some(why.to_owned());
        }
    }
}
