//! Reads the output of pytest, which is used only if the run wrote no report: the last line, and the progress.

use super::{ReaderState, Totals};

/// The results that pytest prints for a test.
const RESULTS: [&str; 6] = ["PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"];

pub(super) fn read(state: &mut ReaderState, line: &str) {
    match last_line(line.trim_matches(['=', ' '])) {
        Some(totals) => state.summary(totals),
        None => progress(state, line),
    }
}

/// `1 failed, 2 passed in 0.12s`
fn last_line(text: &str) -> Option<Totals> {
    let (counts, time) = text.rsplit_once(" in ")?;
    time.split_once('s')?.0.parse::<f64>().ok()?;
    let totals = Totals::of(counts.split(", "));
    // `2 tests collected in 0.01s`
    let is_other = counts == "no tests ran" || counts.contains(" collected");
    (totals.sum() > 0 || is_other).then_some(totals)
}

/// The test that a line begins with: `a.py::test_x[a b] output of the test`.
fn test_name(line: &str) -> Option<&str> {
    let (file, _) = line.split_once("::")?;
    let space = line.find(' ').unwrap_or(line.len());
    let end = match line.find('[') {
        Some(open) if open < space => line.find("] ").map_or(line.len(), |close| close + 1),
        Some(_) | None => space,
    };
    (file.ends_with(".py") && !file.contains(' ')).then(|| line[..end].trim_end())
}

/// `a.py::test_x PASSED [ 50%]`, `[gw0] [ 50%] PASSED a.py::test_x`, or letters: `tests/a.py ..F [ 50%]`.
fn progress(state: &mut ReaderState, line: &str) {
    let percent = line.rfind('[').filter(|_| line.trim_end().ends_with("%]"));
    let text = line[..percent.unwrap_or(line.len())].trim();
    if line.starts_with("[gw") {
        let found = RESULTS.iter().find_map(|word| Some((word, line.split_once(&format!("] {word} "))?.1)));
        return found.map_or((), |(word, name)| result(state, word, name));
    }
    let name = test_name(line).map(str::to_owned);
    if let Some(running) = name.clone().or(state.running.clone()) {
        // `SKIPPED (reason)`. With -s, output of the test can precede the word.
        let text = text.find(" (").filter(|_| text.ends_with(')')).map_or(text, |at| &text[..at]);
        let found = RESULTS.iter().find(|word| text == **word || name.is_some() && text.ends_with(**word));
        return match found {
            Some(word) => result(state, word, &running),
            None => state.running = Some(running),
        };
    }
    let letters = match text.split_once(' ') {
        Some((file, letters)) if file.ends_with(".py") => letters.trim(),
        Some(_) => return,
        None => text,
    };
    if !letters.is_empty() && letters.chars().all(|c| ".FEsxXR".contains(c)) {
        let count = |wanted: &str| letters.chars().filter(|c| wanted.contains(*c)).count() as u64;
        state.totals.passed += count(".X");
        state.totals.failed += count("F");
        state.totals.skipped += count("sx");
        state.totals.errors += count("E");
    }
}

fn result(state: &mut ReaderState, word: &str, name: &str) {
    state.running = None;
    match word {
        "PASSED" | "XPASS" => state.totals.passed += 1,
        "FAILED" => state.failed(name),
        "ERROR" => {
            state.totals.errors += 1;
            state.names.add(name);
        }
        _ => state.totals.skipped += 1,
    }
}
