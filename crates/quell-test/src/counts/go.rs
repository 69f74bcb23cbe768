//! `go test`, as text or with `-json`. Only tests at the top are counted; their parts are named if they failed.

use serde::Deserialize;

use super::Seen;

/// How many tests of one package are kept.
const MOST_PENDING: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    action: String,
    #[serde(default)]
    package: String,
    test: Option<String>,
    failed_build: Option<String>,
}

pub(super) fn read(seen: &mut Seen, line: &str) {
    if line.starts_with("{\"")
        && let Ok(event) = serde_json::from_str::<Event>(line)
    {
        seen.is_json = true;
        return read_event(seen, &event);
    }
    // With -json other lines are not the runner's.
    if !seen.is_json {
        read_text(seen, line);
    }
}

fn read_event(seen: &mut Seen, event: &Event) {
    seen.hides_passed = false;
    let Some(test) = &event.test else {
        if ["pass", "skip", "fail"].contains(&event.action.as_str()) {
            if event.failed_build.is_some() {
                build_failed(seen, &event.package);
            }
            seen.no_summary();
            seen.summary(seen.tally);
        }
        return;
    };
    let name = format!("{}.{test}", event.package);
    let top = u64::from(!test.contains('/'));
    match event.action.as_str() {
        "run" => {
            seen.no_summary();
            return seen.running = Some(name);
        }
        "pass" => seen.tally.passed += top,
        "skip" => seen.tally.skipped += top,
        "fail" => {
            seen.tally.failed += top;
            seen.names.add(&name);
        }
        _ => return,
    }
    seen.end_of(&name);
}

fn read_text(seen: &mut Seen, line: &str) {
    let text = line.trim_start();
    if let Some(name) = text.strip_prefix("=== RUN ").map(str::trim) {
        (seen.hides_passed, seen.running) = (false, Some(name.to_owned()));
        seen.begun.insert(name.to_owned());
        return seen.no_summary();
    }
    if let Some((word, name)) = text.strip_prefix("--- ").and_then(|rest| rest.split_once(": ")) {
        let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
        let top = u64::from(!name.contains('/'));
        // With -v each test begins, and ends once.
        if !seen.hides_passed && !seen.begun.remove(name) {
            return;
        }
        match word {
            "PASS" => seen.tally.passed += top,
            "SKIP" => seen.tally.skipped += top,
            "FAIL" if seen.pending.len() < MOST_PENDING => seen.pending.push(name.to_owned()),
            _ => return,
        }
        return seen.end_of(name);
    }
    let mut words = line.split('\t').map(str::trim);
    let (result, Some(package)) = (words.next(), words.next()) else { return };
    let name = package.split(' ').next().unwrap_or_default();
    let pending = std::mem::take(&mut seen.pending);
    match result {
        // Where a package is well, what says that a test failed was printed by a test.
        Some("ok" | "?") => {}
        Some("FAIL") => {
            seen.tally.failed += pending.iter().filter(|test| !test.contains('/')).count() as u64;
            pending.iter().for_each(|test| seen.names.add(&format!("{name}.{test}")));
            if package.contains("[build failed]") || package.contains("[setup failed]") {
                build_failed(seen, name);
            }
        }
        _ => return seen.pending = pending,
    }
    seen.running = None;
    seen.no_summary();
    seen.summary(seen.tally);
}

fn build_failed(seen: &mut Seen, package: &str) {
    seen.tally.errors += 1;
    seen.names.add(package);
    seen.broke(&format!("{package} could not be built"));
}
