//! jest and vitest: the summary, and the names of failed tests.

use super::{Seen, Tally};

pub(super) fn read_jest(seen: &mut Seen, line: &str) {
    let text = line.trim();
    if let Some(counts) = line.strip_prefix("Tests:") {
        return summary(seen, counts.split(','));
    }
    if text.starts_with("No tests found") {
        return seen.broke(text);
    }
    if text.starts_with("●  process.exit called with") {
        // It goes on to exit, and prints no summary.
        seen.has_exited = true;
    }
    // jest has headings of its own, such as `● Console`. They are further in, or are about a file that passed.
    if let Some(name) = line.strip_prefix("  ● ") {
        let is_heading =
            name == "Console" || name.contains("Warning") || name.starts_with("Cannot log after");
        match name {
            "Test suite failed to run" => seen.tally.errors += 1,
            name if name.contains('›') || seen.in_failed_file && !is_heading => seen.names.add(name),
            _ => {}
        }
    } else if text.starts_with("FAIL ") || text.starts_with("PASS ") {
        seen.in_failed_file = text.starts_with("FAIL ");
    }
    progress(seen, text);
}

pub(super) fn read_vitest(seen: &mut Seen, line: &str) {
    let text = line.trim();
    // What tests print is not so far in.
    if let Some(counts) = line.strip_prefix("      Tests  ") {
        let counts = counts.rsplit_once('(').map_or(counts, |(counts, _)| counts);
        return summary(seen, counts.split('|'));
    }
    if text.starts_with("No test files found") {
        return seen.broke(text);
    }
    if let Some(name) = text.strip_prefix("FAIL ").map(str::trim) {
        match name.split_once(" [ ") {
            // A file that could not be loaded has its own name in brackets.
            Some((file, _)) if !name.contains(" > ") => {
                seen.tally.errors += 1;
                seen.names.add(file);
            }
            _ if name.contains(" > ") => seen.names.add(name),
            _ => {}
        }
    }
    progress(seen, text);
}

/// The summary does not count files that could not be loaded.
fn summary<'t>(seen: &mut Seen, counts: impl Iterator<Item = &'t str>) {
    let errors = seen.tally.errors;
    seen.summary(Tally { errors, ..Tally::of(counts) });
}

fn progress(seen: &mut Seen, text: &str) {
    match text.split_once(' ').map(|(mark, _)| mark) {
        Some("✓") => seen.tally.passed += 1,
        Some("✕" | "×") => seen.tally.failed += 1,
        Some("○" | "↓") => seen.tally.skipped += 1,
        _ => {}
    }
}
