//! pytest and unittest. What pytest prints is only read for a run that has written no report: the last line, and the progress.

use super::{Seen, Tally};

/// The words for the result of a test.
const RESULTS: [&str; 6] = ["PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"];

pub(super) fn read(seen: &mut Seen, line: &str) {
    match last_line(line.trim_matches(['=', ' '])) {
        Some(tally) => seen.summary(tally),
        None => progress(seen, line),
    }
}

/// `Ran 2 tests in 0.001s`: it says so at the end of every run. How many passed is not read.
pub(super) fn read_unittest(seen: &mut Seen, line: &str) {
    if line.starts_with("Ran ") && line.contains(" test") && line.contains(" in ") {
        seen.summary(Tally::default());
    }
}

/// `1 failed, 2 passed in 0.12s`
fn last_line(text: &str) -> Option<Tally> {
    let (counts, time) = text.rsplit_once(" in ")?;
    time.split_once('s')?.0.parse::<f64>().ok()?;
    let tally = Tally::of(counts.split(", "));
    (tally.sum() > 0 || counts == "no tests ran").then_some(tally)
}

/// The test that a line begins with: `a.py::test_x[a b] and what it prints`.
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
fn progress(seen: &mut Seen, line: &str) {
    let percent = line.rfind('[').filter(|_| line.trim_end().ends_with("%]"));
    let text = line[..percent.unwrap_or(line.len())].trim();
    if line.starts_with("[gw") {
        let found = RESULTS.iter().find_map(|word| Some((word, line.split_once(&format!("] {word} "))?.1)));
        return found.map_or((), |(word, name)| result(seen, word, name));
    }
    let name = test_name(line).map(str::to_owned);
    if let Some(running) = name.clone().or(seen.running.clone()) {
        // `SKIPPED (reason)`. With -s there may be a test's output before the word.
        let text = text.find(" (").filter(|_| text.ends_with(')')).map_or(text, |at| &text[..at]);
        let found = RESULTS.iter().find(|word| text == **word || name.is_some() && text.ends_with(**word));
        return match found {
            Some(word) => result(seen, word, &running),
            None => seen.running = Some(running),
        };
    }
    let letters = match text.split_once(' ') {
        Some((file, letters)) if file.ends_with(".py") => letters.trim(),
        Some(_) => return,
        None => text,
    };
    if !letters.is_empty() && letters.chars().all(|c| ".FEsxXR".contains(c)) {
        let count = |wanted: &str| letters.chars().filter(|c| wanted.contains(*c)).count() as u64;
        seen.tally.passed += count(".X");
        seen.tally.failed += count("F");
        seen.tally.skipped += count("sx");
        seen.tally.errors += count("E");
    }
}

fn result(seen: &mut Seen, word: &str, name: &str) {
    seen.running = None;
    match word {
        "PASSED" | "XPASS" => seen.tally.passed += 1,
        "FAILED" => seen.failed(name),
        "ERROR" => {
            seen.tally.errors += 1;
            seen.names.add(name);
        }
        _ => seen.tally.skipped += 1,
    }
}
