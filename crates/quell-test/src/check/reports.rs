//! What a test run may write: reports and evidence, under names that no program reads as code or settings, and never over something
//! else.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell::binary::Config;
use quell_guard::{BUILT_IN, DecisionCode, matches};

use super::command::last;
use super::options::is_among;
use super::path::{check_target, shown};
use super::scope::{PathWord, Place, Resolved, Scope, check_place, resolve};
use super::{Verdict, refuse, text};
use crate::evidence::EvidenceFile;

/// How names of reports end.
const ENDS: &str = "cov html info json jsonl lcov log md out pprof prof profile tap trace txt xml";

/// How names of evidence end.
const EVIDENCE_ENDS: &str = "json log txt";

/// Directories that reports are written to. Some runners empty them first.
const DIRS: &str = "\
    cache .cache .pytest_cache cov coverage htmlcov out output report reports result results test-reports \
    test-results tmp";

/// Names that end like a report, and that programs read as settings.
const SETTINGS: &str = "\
    *.config.json *.config.xml *.eslintrc.json *.workspace.json *-lock.json *rc.json .* AndroidManifest.xml \
    CMakeLists.txt CMakePresets.json CMakeUserPresets.json angular.json app.json biome.json bower.json build.xml \
    bunfig.json cdk.json composer.json constraints*.txt deno.json deno.jsonc dependency_links.txt entry_points.txt \
    import_map.json ivy.xml jest-preset.json jsconfig*.json lerna.json manifest.json meson_options.txt \
    namespace_packages.txt nightwatch.json npm-shrinkwrap.json nx.json package.json phpunit*.xml pom.xml project.json \
    pyrightconfig.json requirements*.txt settings*.xml top_level.txt tsconfig*.json turbo.json vcpkg.json \
    workspace.json workspaces.json";

/// How much of a file tells what it is.
const LOOKED_AT: u64 = 4096;

/// How many files of a directory for reports are looked at.
const MOST_FILES: usize = 50_000;

/// How reports begin, without blanks and in small letters.
const BEGINNINGS: &[&str] = &[
    "{\"numfailedtestsuites\"",
    "{\"numtotaltestsuites\"",
    "{\"meta\"",
    "{\"created\"",
    "{\"machine_info\"",
    "{\"pytest_version\"",
    "{\"$report_type\"",
    "versionspytest-",
    "tapversion",
    "tn:",
    "sf:",
    // What go writes: profiles of coverage, compressed ones, traces, and programs.
    "mode:",
    "\u{1f}\u{fffd}",
    "go1.",
    "\u{7f}elf",
];

/// Whether a file of this name is nothing but a report: its name ends in one of `ends`, and no program reads it as settings.
fn is_report_name(name: &str, ends: &str) -> bool {
    // Some file systems ignore case.
    let lower = name.to_lowercase();
    let is_settings = SETTINGS.split_whitespace().any(|pattern| matches(&pattern.to_lowercase(), &lower));
    let has_end = |(stem, end): (&str, &str)| !stem.is_empty() && is_among(ends, end);
    !is_settings && name.rsplit_once('.').is_some_and(has_end)
}

/// Whether a file of this name is a report of any kind. Such a file is not run as a script.
pub(super) fn is_any_report(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| is_among(ENDS, &end.to_lowercase()))
}

/// Refuses a file that an option writes, if its name does not say that it is a report: it could be code or settings.
pub(super) fn check_report_name(option: &str, word: &PathWord) -> Verdict<()> {
    let name = last(&word.path);
    let hint = match word.place {
        Place::Output(ends) if !is_report_name(name, ends) => {
            format!("use a name that ends in .{}, and that is not one of settings", ends.replace(' ', ", ."))
        }
        Place::OutputDir if !is_among(DIRS, name) => {
            format!("use a directory that is called {}", DIRS.replace(' ', ", "))
        }
        _ => return Ok(()),
    };
    let reason =
        format!("`{option}` may only write reports, and `{}` is not a name for one", shown(&word.path));
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, hint)
}

/// Whether evidence may be written there: below the working directory, under a name for evidence, over nothing but earlier evidence.
pub(crate) fn check_evidence(file: &Path, cwd: &Path, home: &Path) -> Verdict<()> {
    let scope = Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "--evidence".into() };
    let path = check_target(&text(file)?, &scope.roots())?;
    let word = PathWord { path, place: Place::Output(EVIDENCE_ENDS), exists: false };
    let found = resolve(cwd, &word.path);
    check_place(&scope, &word, &found)?;
    protect(&word, &found, cwd, home)?;
    // A directory is an error of its own, which is found when the file is tried.
    if !found.written.is_dir() && !is_report_name(last(&word.path), EVIDENCE_ENDS) {
        let reason = format!("`{}` is not a name for evidence", shown(&word.path));
        let hint =
            "use a name that ends in .json, .log or .txt and is not one of settings, such as evidence.json";
        return refuse(DecisionCode::PathProtected, BUILT_IN, reason, hint);
    }
    if EvidenceFile::may_replace(&found.written) {
        return Ok(());
    }
    let reason = format!("`{}` exists, and is not evidence that quell has written", word.path);
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, "choose another name, or remove the file")
}

/// Whether the runner may write there, if it may be that it does.
pub(super) fn check_output(word: &PathWord, found: &Resolved, cwd: &Path, home: &Path) -> Verdict<()> {
    if word.place == Place::Target {
        return Ok(());
    }
    protect(word, found, cwd, home)?;
    let is_behind_link = found.written.starts_with(cwd) && found.real != found.written;
    if word.place != Place::Here && is_behind_link {
        let reason = format!("`{}` leads through a link", word.path);
        return refuse(DecisionCode::PathProtected, BUILT_IN, reason, "name the path without the link");
    }
    let Ok(there) = found.written.symlink_metadata() else { return Ok(()) };
    let (problem, hint) = match word.place {
        Place::OutputDir if !there.is_dir() => ("is not a directory", "choose another name"),
        Place::OutputDir if !has_only_own_files(&found.written) => {
            ("has links, or files with a second name, in it", "remove it, or choose another name")
        }
        // A file under a second name may be anything.
        _ if there.is_file() && there.nlink() > 1 => ("has a second name", "choose another name"),
        Place::Output(_) if !there.is_file() => ("is not a plain file", "choose another name"),
        Place::Output(_) if !is_earlier_report(&found.written) => {
            ("is not an earlier report", "choose another name, or remove the file")
        }
        _ => return Ok(()),
    };
    refuse(DecisionCode::PathProtected, BUILT_IN, format!("`{}` exists and {problem}", word.path), hint)
}

/// Whether a runner that writes into the directory writes nowhere else.
fn has_only_own_files(dir: &Path) -> bool {
    let (mut ahead, mut seen) = (vec![dir.to_owned()], 0);
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            let Ok(there) = entry.metadata() else { return false };
            if seen > MOST_FILES || !(there.is_dir() || there.is_file() && there.nlink() == 1) {
                return false;
            }
            ahead.extend(Some(entry.path()).filter(|_| there.is_dir()));
        }
    }
    true
}

/// Refuses to write what quell or git goes by, or a report in a directory such as .vscode, where tools find their settings.
fn protect(word: &PathWord, found: &Resolved, cwd: &Path, home: &Path) -> Verdict<()> {
    // A request may name another home than the one that commands of this user find.
    let usual = quell_store::Home::find().map(|home| home.dir().to_owned());
    let is_in = |home: PathBuf| {
        let home = home.canonicalize().unwrap_or(home);
        found.real.starts_with(&home) || word.place == Place::OutputDir && home.starts_with(&found.real)
    };
    let below = found.real.strip_prefix(cwd).ok().and_then(Path::parent);
    let dirs = below.into_iter().flat_map(Path::components).map(|part| part.as_os_str().to_string_lossy());
    let is_settings = |name: &str| name.starts_with('.') && !is_among(DIRS, name);
    let whose =
        if [home.to_owned()].into_iter().chain(usual).any(is_in) || Config::is_read_from(&found.real, cwd) {
            "quell itself"
        } else if found.real.components().any(|part| part.as_os_str() == ".git") {
            "git"
        } else if word.place != Place::Here && dirs.into_iter().any(|name| is_settings(&name)) {
            "some tool"
        } else {
            return Ok(());
        };
    let reason = format!("`{}` is among the files that {whose} goes by", word.path);
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, "choose another name for what is written")
}

/// Whether a file is empty or an earlier report. A log is known by its name alone.
fn is_earlier_report(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes));
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase()).unwrap_or_default();
    read.is_ok() && (bytes.is_empty() || is_report(&end, &String::from_utf8_lossy(&bytes).to_lowercase()))
}

fn is_report(end: &str, text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    match end {
        "log" => true,
        "xml" => text.contains("<testsuite") || text.contains("<coverage"),
        "html" => text.contains("<!doctype html") && text.contains("report"),
        _ => BEGINNINGS.iter().any(|begin| bare.starts_with(begin)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_reports_name_and_not_one_of_a_script_or_of_settings() {
        for name in
            ["evidence.json", "a.b.txt", "pytest.log", "reports.json", "my-package.json", "config.json"]
        {
            assert!(is_report_name(name, EVIDENCE_ENDS), "{name}");
        }
        for name in [
            "run.sh",
            "run",
            "json",
            ".json",
            ".x.json",
            "x.py",
            "x.JSON",
            "x.json.sh",
            "x.toml",
            "x.ini",
            "x.cfg",
            "package.json",
            "Package.json",
            "package-lock.json",
            "tsconfig.json",
            "tsconfig.test.json",
            "jest.config.json",
            ".mocharc.json",
            ".babelrc.json",
            "requirements.txt",
            "requirements-dev.txt",
            "CMakeLists.txt",
            "entry_points.txt",
            "x.xml",
            "",
        ] {
            assert!(!is_report_name(name, EVIDENCE_ENDS), "{name}");
        }
    }

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
