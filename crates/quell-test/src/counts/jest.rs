//! Reads the output of jest and vitest: the summary, and the names of failed tests.

use super::{ReaderState, Totals};

pub(super) fn read_jest(state: &mut ReaderState, line: &str) {
    let text = line.trim();
    if let Some(counts) = line.strip_prefix("Tests:") {
        return summary(state, counts.split(','));
    }
    if text.starts_with("No tests found") {
        return state.set_broken(text);
    }
    if text.starts_with("●  process.exit called with") {
        // jest exits then without a summary.
        state.has_exited = true;
    }
    // jest prints headings in the same format, such as `● Console`. They are indented further, or are about a file that passed.
    if let Some(name) = line.strip_prefix("  ● ") {
        let is_heading =
            name == "Console" || name.contains("Warning") || name.starts_with("Cannot log after");
        match name {
            "Test suite failed to run" => state.totals.errors += 1,
            name if name.contains('›') || state.in_failed_file && !is_heading => state.names.add(name),
            _ => {}
        }
    } else if text.starts_with("FAIL ") || text.starts_with("PASS ") {
        state.in_failed_file = text.starts_with("FAIL ");
    }
    progress(state, text);
}

pub(super) fn read_vitest(state: &mut ReaderState, line: &str) {
    let text = line.trim();
    // The output of tests is not indented as far.
    if let Some(counts) = line.strip_prefix("      Tests  ") {
        let counts = counts.rsplit_once('(').map_or(counts, |(counts, _)| counts);
        return summary(state, counts.split('|'));
    }
    if text.starts_with("No test files found") {
        return state.set_broken(text);
    }
    if let Some(name) = text.strip_prefix("FAIL ").map(str::trim) {
        match name.split_once(" [ ") {
            // A file that could not be loaded: its name is repeated in brackets.
            Some((file, _)) if !name.contains(" > ") => {
                state.totals.errors += 1;
                state.names.add(file);
            }
            _ if name.contains(" > ") => state.names.add(name),
            _ => {}
        }
    }
    progress(state, text);
}

/// Adds the files that could not be loaded, which the summary does not count.
fn summary<'t>(state: &mut ReaderState, counts: impl Iterator<Item = &'t str>) {
    let errors = state.totals.errors;
    state.summary(Totals { errors, ..Totals::of(counts) });
}

fn progress(state: &mut ReaderState, text: &str) {
    match text.split_once(' ').map(|(mark, _)| mark) {
        Some("✓") => state.totals.passed += 1,
        Some("✕" | "×") => state.totals.failed += 1,
        Some("○" | "↓") => state.totals.skipped += 1,
        _ => {}
    }
}
