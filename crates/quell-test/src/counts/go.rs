//! Reads the output of `go test`, as text or with `-json`. Subtests are not counted, but failed ones are named.

use serde::Deserialize;

use super::ReaderState;

/// The limit for failed tests of one package whose name is not known yet.
const MAX_PENDING: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    test: Option<String>,
    failed_build: Option<String>,
}

pub(super) fn read(state: &mut ReaderState, line: &str) {
    if line.starts_with("{\"")
        && let Ok(event) = serde_json::from_str::<Event>(line)
    {
        state.is_json = true;
        return read_event(state, &event);
    }
    // With -json other lines were printed by tests.
    if !state.is_json {
        read_text(state, line);
    }
}

fn read_event(state: &mut ReaderState, event: &Event) {
    state.hides_passed = false;
    let Some(test) = &event.test else {
        if ["pass", "skip", "fail"].contains(&event.action.as_str()) {
            if event.failed_build.is_some() {
                build_failed(state, &event.package);
            }
            state.clear_summaries();
            state.summary(state.totals);
        }
        return;
    };
    let name = format!("{}.{test}", event.package);
    let top = u64::from(!test.contains('/'));
    match event.action.as_str() {
        "run" => {
            state.clear_summaries();
            return state.running = Some(name);
        }
        "pass" => state.totals.passed += top,
        "skip" => state.totals.skipped += top,
        "fail" => {
            state.totals.failed += top;
            state.names.add(&name);
        }
        _ => return,
    }
    state.test_ended(&name);
}

fn read_text(state: &mut ReaderState, line: &str) {
    let text = line.trim_start();
    if let Some(name) = text.strip_prefix("=== RUN ").map(str::trim) {
        (state.hides_passed, state.running) = (false, Some(name.to_owned()));
        state.begun.insert(name.to_owned());
        return state.clear_summaries();
    }
    if let Some((word, name)) = text.strip_prefix("--- ").and_then(|rest| rest.split_once(": ")) {
        let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
        let top = u64::from(!name.contains('/'));
        // With -v, a test that did not begin was printed by a test.
        if !state.hides_passed && !state.begun.remove(name) {
            return;
        }
        match word {
            "PASS" => state.totals.passed += top,
            "SKIP" => state.totals.skipped += top,
            "FAIL" if state.pending.len() < MAX_PENDING => state.pending.push(name.to_owned()),
            _ => return,
        }
        return state.test_ended(name);
    }
    let mut words = line.split('\t').map(str::trim);
    let (result, Some(package)) = (words.next(), words.next()) else { return };
    let name = package.split(' ').next().unwrap_or_default();
    let pending = std::mem::take(&mut state.pending);
    match result {
        // In a package that passed, a line about a failed test was printed by a test.
        Some("ok" | "?") => {}
        Some("FAIL") => {
            state.totals.failed += pending.iter().filter(|test| !test.contains('/')).count() as u64;
            pending.iter().for_each(|test| state.names.add(&format!("{name}.{test}")));
            if package.contains("[build failed]") || package.contains("[setup failed]") {
                build_failed(state, name);
            }
        }
        _ => return state.pending = pending,
    }
    state.running = None;
    state.clear_summaries();
    state.summary(state.totals);
}

fn build_failed(state: &mut ReaderState, package: &str) {
    state.totals.errors += 1;
    state.names.add(package);
    state.set_broken(&format!("{package} could not be built"));
}
