//! pytest: the last line, the short summary, and what it writes while it runs.

use super::{Found, Names, Parser, Summaries, Tally, number_and_word};

#[derive(Default)]
pub(super) struct Pytest {
    /// By lines such as `1 passed in 0.1s`, between `=` or, with `-q`, without.
    all: Summaries,
    /// By those between `=`.
    framed: Summaries,
    /// Whether the output began as without `-q`: then a line that is not between `=` is a test's own.
    has_header: Option<bool>,
    /// By lines such as `a.py::test_x PASSED`.
    verbose: Tally,
    /// By letters such as `..F`.
    letters: Tally,
    names: Names,
    running: Option<String>,
    /// The progress is over: letters are something else from here on.
    reporting: bool,
    broken: Option<String>,
}

impl Tally {
    fn count(&mut self, word: &str, number: u64) -> bool {
        let place = match word.strip_suffix(['s', 'S']).unwrap_or(word).to_ascii_lowercase().as_str() {
            "passed" | "xpassed" | "xpas" => &mut self.passed,
            "failed" => &mut self.failed,
            "skipped" | "xfailed" | "xfail" => &mut self.skipped,
            "error" => &mut self.errors,
            "deselected" | "warning" | "rerun" | "subtests passed" => return true,
            _ => return false,
        };
        *place = place.saturating_add(number);
        true
    }
}

/// `1 failed, 2 passed in 0.12s`, with or without `=` around it.
fn last_line(line: &str) -> Option<Tally> {
    let text = line.trim_matches(|c| c == '=' || c == ' ');
    let (counts, time) = text.rsplit_once(" in ")?;
    let seconds = time.split_once('s')?.0;
    seconds.parse::<f64>().ok()?;
    let mut tally = Tally::default();
    if counts == "no tests ran" {
        return Some(tally);
    }
    let known = |item: &str| number_and_word(item).is_some_and(|(number, word)| tally.count(word, number));
    counts.split(", ").all(known).then_some(tally)
}

/// The name before the reason: `a.py::test_x[1 - 2] - AssertionError`.
fn node_name(text: &str) -> &str {
    let plain = text.find(" - ").unwrap_or(text.len());
    match text.find('[') {
        Some(open) if open < plain => text.find("] - ").map_or(text, |close| &text[..=close]),
        Some(_) | None => &text[..plain],
    }
}

/// The words by which a test's end is told.
const ENDS: [&str; 6] = ["PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"];

/// The test that a line begins with, if it does: `a.py::test_x[a b] and what it prints`.
fn test_name(line: &str) -> Option<&str> {
    let (file, _) = line.split_once("::")?;
    let space = line.find(' ').unwrap_or(line.len());
    let end = match line.find('[') {
        Some(open) if open < space => line.find("] ").map_or(line.len(), |close| close + 1),
        Some(_) | None => space,
    };
    (file.ends_with(".py") && !file.contains(' ')).then(|| line[..end].trim_end())
}

impl Pytest {
    /// Its summary is the last that it writes: what was found before it reports failures is a test's own.
    fn drop_summaries(&mut self) {
        (self.all, self.framed) = (Summaries::default(), Summaries::default());
    }

    fn ended(&mut self, word: &str, name: &str) -> bool {
        self.running = None;
        self.has_header.get_or_insert(false);
        self.verbose.count(word, 1);
        if matches!(word, "FAILED" | "ERROR") {
            self.names.add(name);
        }
        true
    }

    /// `a.py::test_x PASSED [ 50%]`, or what xdist makes of it: `[gw0] [ 50%] PASSED a.py::test_x`.
    fn verbose_line(&mut self, line: &str) -> bool {
        if line.starts_with("[gw") {
            let found = ENDS.iter().find_map(|end| Some((end, line.split_once(&format!("] {end} "))?.1)));
            return found.is_some_and(|(word, name)| self.ended(word, name.trim()));
        }
        // What a test itself has printed, with -s, stands between its name and its end.
        let text = match line.rfind('[') {
            Some(at) if line.trim_end().ends_with("%]") => line[..at].trim(),
            _ => line.trim(),
        };
        if !line.split_once("::").is_some_and(|(file, _)| file.ends_with(".py")) {
            let end = ENDS.iter().find(|end| text == **end);
            let name = self.running.clone().filter(|_| end.is_some());
            return name.is_some_and(|name| self.ended(text, &name));
        }
        let found = ENDS.iter().find_map(|end| {
            let at = line.rfind(&format!(" {end}"))?;
            let rest = line[at + 1 + end.len()..].trim_start();
            let sound = rest.is_empty() || rest.starts_with(['[', '(']);
            sound.then(|| (*end, line[..at].trim()))
        });
        let glued = || ENDS.iter().find(|end| text.ends_with(**end)).map(|end| (*end, line));
        let name = test_name(line);
        match found.or_else(glued) {
            Some((word, before)) => self.ended(word, name.unwrap_or(before)),
            // It has begun.
            None => {
                self.running = name.map(str::to_owned).or(self.running.take());
                true
            }
        }
    }

    /// `tests/a.py ..F [ 50%]`, or the letters alone.
    fn progress_line(&mut self, line: &str) {
        let (text, whole) = match line.rfind('[') {
            Some(at) if line.trim_end().ends_with("%]") => (&line[..at], true),
            _ => (line, false),
        };
        let letters = match text.trim().split_once(' ') {
            Some((file, letters)) if file.ends_with(".py") => letters.trim(),
            Some(_) => return,
            None => text.trim(),
        };
        if (letters.is_empty() && !whole) || !letters.chars().all(|c| ".FEsxXR".contains(c)) {
            return;
        }
        self.has_header.get_or_insert(false);
        for letter in letters.chars() {
            match letter {
                '.' | 'X' => self.letters.passed += 1,
                'F' => self.letters.failed += 1,
                'E' => self.letters.errors += 1,
                's' | 'x' => self.letters.skipped += 1,
                _ => {}
            }
        }
    }
}

impl Parser for Pytest {
    fn line(&mut self, line: &str) {
        if let Some(tally) = last_line(line) {
            self.has_header.get_or_insert(false);
            if line.starts_with('=') && line.ends_with('=') {
                self.framed.add(tally);
            }
            return self.all.add(tally);
        }
        let title = line.strip_prefix("===").map(|rest| rest.trim_matches(['=', ' ']));
        if title == Some("short test summary info") {
            // What stood before may be a test's own; those that failed are listed now.
            self.names = Names::default();
        }
        if matches!(title, Some("FAILURES" | "ERRORS" | "short test summary info")) {
            self.drop_summaries();
        }
        if title == Some("test session starts") {
            self.has_header.get_or_insert(true);
        } else if title.is_some() {
            self.reporting = true;
        }
        for word in ["FAILED ", "ERROR "] {
            if let Some(rest) = line.strip_prefix(word)
                && (rest.contains("::") || rest.contains(".py"))
            {
                self.names.add(node_name(rest));
                return self.drop_summaries();
            }
        }
        if line.starts_with("ERROR: ") && self.broken.is_none() {
            self.broken = Some(line["ERROR: ".len()..].trim().to_owned());
        }
        if !self.reporting && !self.verbose_line(line) {
            self.progress_line(line);
        }
    }

    fn finish(self: Box<Self>, code: Option<i32>) -> Option<Found> {
        // No tests were found, so that none has failed.
        let code = if code == Some(5) { Some(0) } else { code };
        let summaries = if self.has_header == Some(true) { &self.framed } else { &self.all };
        // With 1 it says that tests failed: what knows of none is a test's own.
        let fits = |tally: &Tally| code != Some(1) || !tally.is_clean();
        let total = summaries.choose(code).filter(fits);
        let seen = if self.verbose.sum() > 0 { self.verbose } else { self.letters };
        let tally = total.unwrap_or(seen);
        if !fits(&tally) {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        if total.is_none() && tally.sum() == 0 && self.names.is_empty() && self.running.is_none() {
            return self.broken.map(|broken| Found { broken: Some(broken), ..Found::default() });
        }
        Some(Found {
            passed: Some(tally.passed),
            failed: Some(tally.failed),
            skipped: Some(tally.skipped),
            errors: Some(tally.errors),
            complete: total.is_some(),
            names: self.names,
            running: if total.is_some() { None } else { self.running },
            broken: self.broken,
            missing: false,
        })
    }
}
