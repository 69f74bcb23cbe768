//! `go test`, as text or with `-json`. Tests are those at the top; their parts are named if they failed.

use std::collections::HashSet;

use serde::Deserialize;

use super::{Found, Names, Parser};

/// How many failed tests of one package are named.
const MOST_PENDING: usize = 10_000;

#[derive(Default)]
pub(super) struct Go {
    passed: u64,
    failed: u64,
    skipped: u64,
    errors: u64,
    /// Whether it says which tests pass: `-v` or `-json`.
    tells_passed: bool,
    packages: u64,
    /// Tests that have begun, as `-v` tells.
    begun: HashSet<String>,
    /// Events came: what is no event is not the runner's.
    json: bool,
    /// Failed tests whose package is not known yet.
    pending: Vec<String>,
    /// How many of them are at the top.
    pending_failed: u64,
    names: Names,
    running: Option<String>,
    broken: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Action")]
    action: String,
    #[serde(rename = "Package", default)]
    package: String,
    #[serde(rename = "Test")]
    test: Option<String>,
    #[serde(rename = "FailedBuild")]
    failed_build: Option<String>,
}

impl Go {
    fn event(&mut self, event: &Event) {
        (self.tells_passed, self.json) = (true, true);
        let Some(test) = &event.test else {
            match event.action.as_str() {
                "pass" | "skip" => self.packages += 1,
                "fail" => {
                    self.packages += 1;
                    if event.failed_build.is_some() {
                        self.build_failed(&event.package);
                    }
                }
                _ => {}
            }
            return;
        };
        let name = format!("{}.{test}", event.package);
        let top = u64::from(!test.contains('/'));
        match event.action.as_str() {
            "run" => return self.running = Some(name),
            "pass" => self.passed += top,
            "skip" => self.skipped += top,
            "fail" => {
                self.failed += top;
                self.names.add(&name);
            }
            _ => return,
        }
        if self.running.as_ref() == Some(&name) {
            self.running = None;
        }
    }

    fn build_failed(&mut self, package: &str) {
        self.errors += 1;
        self.names.add(package);
        self.broken.get_or_insert_with(|| format!("{package} could not be built"));
    }

    /// A package has ended; the failed tests before it are its own. If it is well, what said so was printed by a test.
    fn package(&mut self, name: &str, well: bool) {
        self.packages += 1;
        self.running = None;
        self.begun.clear();
        let failed = std::mem::take(&mut self.pending_failed);
        if well {
            return self.pending.clear();
        }
        self.failed += failed;
        for test in std::mem::take(&mut self.pending) {
            self.names.add(&if name.is_empty() { test } else { format!("{name}.{test}") });
        }
    }
}

impl Parser for Go {
    fn line(&mut self, line: &str) {
        if line.starts_with("{\"")
            && let Ok(event) = serde_json::from_str::<Event>(line)
        {
            return self.event(&event);
        }
        let text = line.trim_start();
        if let Some(name) = text.strip_prefix("=== RUN ").filter(|_| !self.json) {
            (self.tells_passed, self.running) = (true, Some(name.trim().to_owned()));
            if self.begun.len() < MOST_PENDING {
                self.begun.insert(name.trim().to_owned());
            }
            return;
        }
        if let Some(rest) = text.strip_prefix("--- ").filter(|_| !self.json)
            && let Some((word, name)) = rest.split_once(": ")
        {
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            let top = u64::from(!name.contains('/'));
            // With `-v` each begins, and ends once.
            if self.tells_passed && !self.begun.remove(name) && self.begun.len() < MOST_PENDING {
                return;
            }
            match word {
                "PASS" => (self.passed, self.tells_passed) = (self.passed + top, true),
                "SKIP" => self.skipped += top,
                "FAIL" => {
                    self.pending_failed += top;
                    if self.pending.len() < MOST_PENDING {
                        self.pending.push(name.to_owned());
                    }
                }
                _ => return,
            }
            if self.running.as_deref() == Some(name) {
                self.running = None;
            }
            return;
        }
        let mut words = line.split('\t').map(str::trim);
        match (words.next(), words.next()) {
            (Some("ok" | "?"), Some(name)) if !self.json => self.package(name, true),
            (Some("FAIL"), Some(rest)) => {
                let name = rest.split(' ').next().unwrap_or_default();
                if !self.json {
                    self.package(name, false);
                }
                if rest.contains("[build failed]") || rest.contains("[setup failed]") {
                    self.build_failed(name);
                }
            }
            _ => {}
        }
    }

    fn finish(mut self: Box<Self>, _: Option<i32>) -> Option<Found> {
        let unfinished = !self.pending.is_empty();
        self.failed += self.pending_failed;
        for test in std::mem::take(&mut self.pending) {
            self.names.add(&test);
        }
        if self.packages == 0 && !self.tells_passed && self.names.is_empty() {
            return None;
        }
        Some(Found {
            passed: self.tells_passed.then_some(self.passed),
            failed: Some(self.failed),
            skipped: self.tells_passed.then_some(self.skipped),
            errors: Some(self.errors),
            complete: self.packages > 0 && self.running.is_none() && !unfinished,
            names: self.names,
            running: self.running,
            // Where tests have failed, too, that is what is said.
            broken: self.broken.filter(|_| self.failed == 0),
            missing: false,
        })
    }
}
