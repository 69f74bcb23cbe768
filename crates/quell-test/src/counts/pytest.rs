//! pytest: the last line, the short summary, and the progress.

use super::{Names, Seen, Tally};

/// The words for the result of a test.
const RESULTS: [&str; 6] = ["PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"];

pub(super) fn read(seen: &mut Seen, line: &str) {
    // Without -q the output begins with a frame, and so does the summary. Other summaries are a test's own.
    let is_framed = line.starts_with("===");
    let title = line.trim_matches(['=', ' ']);
    if let Some(tally) = last_line(title) {
        if is_framed || !*seen.is_framed.get_or_insert(false) {
            seen.summary(tally);
        }
        return;
    }
    if is_framed && title == "test session starts" {
        seen.is_framed.get_or_insert(true);
    } else if is_framed {
        // What looks like progress or a summary before this line was printed by a test.
        seen.is_over = true;
        seen.no_summary();
        if title == "short test summary info" {
            seen.names = Names::default();
        }
    }
    if let Some(rest) = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))
        && (rest.contains("::") || rest.contains(".py"))
    {
        seen.names.add(node_name(rest));
        return seen.no_summary();
    }
    if let Some(why) = line.strip_prefix("ERROR: ") {
        seen.broke(why);
    }
    if !seen.is_over {
        progress(seen, line);
    }
}

/// `1 failed, 2 passed in 0.12s`
fn last_line(text: &str) -> Option<Tally> {
    let (counts, time) = text.rsplit_once(" in ")?;
    time.split_once('s')?.0.parse::<f64>().ok()?;
    let mut tally = Tally::default();
    let is_other = |item: &str| {
        let word = item.split_once(' ').filter(|(number, _)| number.parse::<u64>().is_ok());
        word.is_some_and(|(_, word)| {
            ["deselected", "warning", "warnings", "rerun", "subtests passed"].contains(&word)
        })
    };
    let known = counts.split(", ").all(|item| tally.add(item) || is_other(item));
    (known || counts == "no tests ran").then_some(tally)
}

/// The name before the reason: `a.py::test_x[1 - 2] - AssertionError`.
fn node_name(text: &str) -> &str {
    let plain = text.find(" - ").unwrap_or(text.len());
    match text.find('[') {
        Some(open) if open < plain => text.find("] - ").map_or(text, |close| &text[..=close]),
        Some(_) | None => &text[..plain],
    }
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
        seen.is_framed.get_or_insert(false);
        let count = |wanted: &str| letters.chars().filter(|c| wanted.contains(*c)).count() as u64;
        seen.tally.passed += count(".X");
        seen.tally.failed += count("F");
        seen.tally.skipped += count("sx");
        seen.tally.errors += count("E");
    }
}

fn result(seen: &mut Seen, word: &str, name: &str) {
    seen.running = None;
    seen.is_framed.get_or_insert(false);
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
