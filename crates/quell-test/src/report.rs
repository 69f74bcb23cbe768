//! What is already there where a runner is to write a report: an earlier report is replaced, anything else is not.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How much of a file tells what it is.
const LOOKED_AT: u64 = 4096;

/// How reports begin, by the ends of their names. Leading white space does not count, and neither do large letters.
const BEGINNINGS: &[(&str, &[&str])] = &[
    (
        "json",
        &[
            "{\"numfailedtestsuites\"",
            "{\"numtotaltestsuites\"",
            "{\"meta\"",
            "{\"created\"",
            "{\"machine_info\"",
            "{\"pytest_version\"",
            "{\"$report_type\"",
        ],
    ),
    ("jsonl", &["{\"pytest_version\"", "{\"$report_type\""]),
    ("info lcov", &["tn:", "sf:"]),
    ("md", &["| name"]),
    ("txt", &["versions pytest-", "tap version", "mode:"]),
    ("tap", &["tap version"]),
    ("csv", &["result,"]),
    // Profiles of go's: of coverage, compressed, and a trace. A test's program.
    ("cov out prof pprof profile trace test bin exe", &["mode:", "\u{1f}\u{fffd}", "go 1.", "\u{7f}elf"]),
];

/// Whether a report may take the place of what is there: nothing, an empty file, or an earlier report. A log is known by its name
/// alone.
pub(super) fn may_replace(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(path) else { return path.symlink_metadata().is_err() };
    if file.take(LOOKED_AT).read_to_end(&mut bytes).is_err() {
        return false;
    }
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase()).unwrap_or_default();
    bytes.is_empty() || is_report(&end, &String::from_utf8_lossy(&bytes).to_lowercase())
}

fn is_report(end: &str, text: &str) -> bool {
    match end {
        "log" => true,
        "xml" => text.contains("<testsuite") || text.contains("<coverage"),
        "html" => text.contains("<!doctype html") && text.contains("report"),
        _ => {
            // JSON may be written with blanks between its parts.
            let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let begins = |begin: &&str| {
                text.trim_start().starts_with(begin) || (begin.starts_with('{') && bare.starts_with(begin))
            };
            let listed = |ends: &str| ends.split(' ').any(|listed| listed == end);
            BEGINNINGS.iter().any(|(ends, begins_so)| listed(ends) && begins_so.iter().any(begins))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_report_is_known_and_nothing_else_is_taken_for_one() {
        for (end, text, expected) in [
            ("xml", "<?xml version=\"1.0\"?><testsuites><testsuite name=\"x\">", true),
            ("xml", "<coverage version=\"7\">", true),
            ("xml", "<project><dependencies/></project>", false),
            ("json", "{\"numFailedTestSuites\":0}", true),
            ("json", "{\n    \"machine_info\": {}}", true),
            ("json", "{\"users\": []}", false),
            ("log", "anything", true),
            ("txt", "versions pytest-8", true),
            ("txt", "fixture", false),
            ("info", "TN:\nSF:a.js\n", true),
            ("out", "mode: set\n", true),
            ("out", "expected output of a test", false),
            ("html", "<!DOCTYPE html><title>report.html</title>", true),
            ("md", "# README", false),
        ] {
            assert_eq!(is_report(end, &text.to_lowercase()), expected, "{end}: {text}");
        }
    }
}
