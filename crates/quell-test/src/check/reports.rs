//! Checks the files that a test run may write: reports and evidence. Their names must not be those of code or settings, and they may
//! replace only earlier reports.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quell::binary::Config;
use quell_guard::{BUILT_IN, DecisionCode, matches};

use super::command::base_name;
use super::options::is_among;
use super::path::{check_target, printable};
use super::scope::{PathRole, PathWord, Resolved, Scope, check_location, resolve};
use super::{Checked, refuse, utf8};
use crate::evidence::EvidenceFile;

/// The file name extensions of reports.
const EXTENSIONS: &str = "cov html info json jsonl lcov log md out pprof prof profile tap trace txt xml";

/// The file name extensions of evidence.
const EVIDENCE_EXTENSIONS: &str = "json log txt";

/// Names of directories that reports may be written to. Some runners empty such a directory first.
const REPORT_DIRS: &str = "\
    cache .cache .pytest_cache cov coverage htmlcov out output report reports result results test-reports \
    test-results tmp";

/// Names with the extension of a report that programs read as settings.
const SETTINGS_FILES: &str = "\
    *-lock.json *.cfg.xml *.conf.json *.deps.json *.lock.json *.selections.json \
    *.workspace.json *compose.json *config.json *config.xml *constraints*.txt *manifest.json *manifest.xml *mcp.json \
    *rc.json *requirements*.txt *settings*.json .* agents.json angular.json app.json applicationcontext*.xml biome.json \
    bower.json build.xml bunfig.json cdk.json checkstyle.xml CMakeLists.txt CMakePresets.json CMakeUserPresets.json \
    compile_commands.json compile_flags.txt conanfile*.txt crush.json cypress*.json deno.json deno.jsonc \
    dependency_links.txt devbox.json devcontainer*.json dprint.json dub.json elm.json entry_points.txt extensions.* \
    firebase.json global.json hooks.json import-map.json import_map.json ivy.xml jasmine.json jest-preset.json \
    jsconfig*.json keybindings.json launch*.json lefthook.json lerna.json lint-staged.json log4j*.xml logback*.xml \
    marketplace.json meson_options.txt mocha.json namespace_packages.txt netlify.json nest-cli.json nightwatch.json \
    nodemon.json now.json npm-shrinkwrap.json nx.json openapitools.json opencode*.json package.json package.xml \
    packages.txt persistence.xml phpcs*.xml phpunit*.xml plugin.json plugin.xml plugins.json pom.xml project*.json \
    psalm.xml purs.json renovate*.json rome.json ruleset*.xml runtime.txt rust-project.json settings*.xml sfdx-project.json spring*.xml tasks.json \
    testng*.xml toolchains.xml top_level.txt tsconfig*.json tsdoc.json tslint.json turbo.json typedoc.json vcpkg*.json \
    vercel.json web.xml workspace.json workspaces.json wrangler.json";

/// How many bytes of a file are read to see whether it is a report.
const HEAD_BYTES: u64 = 4096;

/// How many files a directory for reports may have.
const MAX_FILES: usize = 50_000;

/// How reports begin, in lower case and without whitespace.
const REPORT_HEADS: &[&str] = &[
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
    // Written by go: coverage profiles, compressed profiles, traces, test programs.
    "mode:",
    "\u{1f}\u{fffd}",
    "go1.",
    "\u{7f}elf",
];

/// Whether a name has one of `extensions`, and is not one that programs read as settings.
fn is_report_name(name: &str, extensions: &str) -> bool {
    // Some file systems ignore case.
    let lower = name.to_lowercase();
    let is_settings =
        SETTINGS_FILES.split_whitespace().any(|pattern| matches(&pattern.to_lowercase(), &lower));
    let has_extension = |(stem, end): (&str, &str)| !stem.is_empty() && is_among(extensions, end);
    !is_settings && name.rsplit_once('.').is_some_and(has_extension)
}

/// Whether a name has the extension of any report. Such a file is not run as a script.
pub(super) fn is_any_report(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, end)| is_among(EXTENSIONS, &end.to_lowercase()))
}

/// Refuses the file of an option that writes reports, if its name is not that of a report: it could be code or settings.
pub(super) fn check_report_name(option: &str, word: &PathWord) -> Checked<()> {
    let name = base_name(&word.path);
    let hint = match word.role {
        PathRole::Output(extensions) if !is_report_name(name, extensions) => {
            format!(
                "use a name that ends in .{} and is not that of a settings file",
                extensions.replace(' ', ", .")
            )
        }
        PathRole::OutputDir if !is_among(REPORT_DIRS, name) => {
            format!("use a directory with one of these names: {}", REPORT_DIRS.replace(' ', ", "))
        }
        _ => return Ok(()),
    };
    let reason = format!(
        "`{option}` may only write reports, and `{}` is not the name of a report",
        printable(&word.path)
    );
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, hint)
}

/// Checks that evidence may be written there: below the working directory, with a name for evidence, replacing only earlier evidence.
pub(crate) fn check_evidence(file: &Path, cwd: &Path, home: &Path) -> Checked<()> {
    let scope = Scope { cwd: cwd.to_owned(), dirs: Vec::new(), rule: "--evidence".into() };
    let path = check_target(&utf8(file)?, &scope.roots())?;
    let word = PathWord { path, role: PathRole::Output(EVIDENCE_EXTENSIONS), exists: false };
    let found = resolve(cwd, &word.path);
    check_location(&scope, &word, &found)?;
    refuse_protected(&word, &found, cwd, home)?;
    // `EvidenceFile::prepare` has a better error for a directory.
    if !found.written.is_dir() && !is_report_name(base_name(&word.path), EVIDENCE_EXTENSIONS) {
        let reason = format!("`{}` is not an allowed name for evidence", printable(&word.path));
        let hint = "use a name that ends in .json, .log or .txt and is not that of a settings file, such as evidence.json";
        return refuse(DecisionCode::PathProtected, BUILT_IN, reason, hint);
    }
    if EvidenceFile::may_replace(&found.written) {
        return Ok(());
    }
    let reason = format!("`{}` exists and is not evidence that quell wrote", word.path);
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, "choose another name, or remove the file")
}

/// Checks a path that the runner may write to. Targets are not written.
pub(super) fn check_output(word: &PathWord, found: &Resolved, cwd: &Path, home: &Path) -> Checked<()> {
    if word.role == PathRole::Target {
        return Ok(());
    }
    refuse_protected(word, found, cwd, home)?;
    let is_behind_link = found.written.starts_with(cwd) && found.real != found.written;
    if word.role != PathRole::Any && is_behind_link {
        let reason = format!("the path `{}` contains a symbolic link", word.path);
        return refuse(DecisionCode::PathProtected, BUILT_IN, reason, "name the path without the link");
    }
    let Ok(there) = found.written.symlink_metadata() else { return Ok(()) };
    let (problem, hint) = match word.role {
        PathRole::OutputDir if !there.is_dir() => ("is not a directory", "choose another name"),
        PathRole::OutputDir if !may_be_emptied(&found.written) => {
            ("contains links, `.git` or `quell.toml`, or too many files", "remove it, or choose another name")
        }
        // Writing to a hard link changes another file.
        _ if there.is_file() && there.nlink() > 1 => ("is a hard link", "choose another name"),
        PathRole::Output(_) if !there.is_file() => ("is not a regular file", "choose another name"),
        PathRole::Output(_) if !is_earlier_report(&found.written) => {
            ("is not an earlier report", "choose another name, or remove the file")
        }
        _ => return Ok(()),
    };
    refuse(DecisionCode::PathProtected, BUILT_IN, format!("`{}` exists and {problem}", word.path), hint)
}

/// Whether a runner may empty a directory: it contains only directories and files with one name, so that no other file is changed,
/// and nothing of git's or of quell's settings.
fn may_be_emptied(dir: &Path) -> bool {
    let (mut pending, mut seen) = (vec![dir.to_owned()], 0);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            let Ok(there) = entry.metadata() else { return false };
            let is_protected = [".git", "quell.toml"].iter().any(|name| entry.file_name() == *name);
            let is_plain = there.is_dir() || there.is_file() && there.nlink() == 1;
            if seen > MAX_FILES || is_protected || !is_plain {
                return false;
            }
            pending.extend(Some(entry.path()).filter(|_| there.is_dir()));
        }
    }
    true
}

/// Refuses to write files of quell's or git's own, and reports in a directory such as .vscode, which has the settings of a tool.
fn refuse_protected(word: &PathWord, found: &Resolved, cwd: &Path, home: &Path) -> Checked<()> {
    // A request may name another home than the user's default one.
    let usual = quell_store::Home::find().map(|home| home.dir().to_owned());
    let is_in = |home: PathBuf| {
        let home = home.canonicalize().unwrap_or(home);
        found.real.starts_with(&home) || word.role == PathRole::OutputDir && home.starts_with(&found.real)
    };
    let below = found.real.strip_prefix(cwd).ok().and_then(Path::parent);
    let dirs = below.into_iter().flat_map(Path::components).map(|part| part.as_os_str().to_string_lossy());
    let is_settings = |name: &str| name.starts_with('.') && !is_among(REPORT_DIRS, name);
    let reader =
        if [home.to_owned()].into_iter().chain(usual).any(is_in) || Config::is_read_from(&found.real, cwd) {
            "quell itself"
        } else if found.real.components().any(|part| part.as_os_str() == ".git") {
            "git"
        } else if word.role != PathRole::Any && dirs.into_iter().any(|name| is_settings(&name)) {
            "a tool"
        } else {
            return Ok(());
        };
    let reason = format!("`{}` is a file that {reader} reads or writes", word.path);
    refuse(DecisionCode::PathProtected, BUILT_IN, reason, "choose another path for the output")
}

/// Whether a file is empty or an earlier report.
fn is_earlier_report(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut bytes));
    let end = path.extension().map(|end| end.to_string_lossy().to_lowercase()).unwrap_or_default();
    read.is_ok() && (bytes.is_empty() || is_report(&end, &String::from_utf8_lossy(&bytes).to_lowercase()))
}

fn is_report(end: &str, text: &str) -> bool {
    let bare: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    match end {
        "log" | "txt" if is_log_of_pytest(text) => true,
        "xml" => text.contains("<testsuite") || text.contains("<coverage"),
        "html" => text.contains("<!doctype html") && text.contains("report"),
        _ => REPORT_HEADS.iter().any(|begin| bare.starts_with(begin)),
    }
}

/// Whether a text, in lower case, begins like a log of pytest: a level, the logger, the file and the line (`INFO     root:test_a.py:3 …`).
fn is_log_of_pytest(text: &str) -> bool {
    let mut words = text.lines().next().unwrap_or_default().split_whitespace();
    let has_level = words.next().is_some_and(|level| is_among("debug info warning error critical", level));
    let mut place = words.next().unwrap_or_default().rsplit(':');
    let has_line = place.next().is_some_and(|line| line.parse::<u32>().is_ok());
    has_level && has_line && place.next().is_some_and(|file| file.contains('.')) && place.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scripts_and_settings_are_not_names_of_reports() {
        for name in [
            "evidence.json",
            "a.b.txt",
            "pytest.log",
            "reports.json",
            "my-package.json",
            "requirement-7.txt",
            "mcp-run.log",
        ] {
            assert!(is_report_name(name, EVIDENCE_EXTENSIONS), "{name}");
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
            "opencode.json",
            "OpenCode.json",
            "mcp.json",
            "mcp_config.json",
            ".mcp.json",
            "test-requirements.txt",
            "dev-requirements.txt",
            "test_requirements.txt",
            "requirements_dev.txt",
            "build-constraints.txt",
            "conanfile.txt",
            "compile_flags.txt",
            "packages.txt",
            "cypress.json",
            "cypress.env.json",
            "vercel.json",
            "global.json",
            "devcontainer.json",
            "compile_commands.json",
            "rust-project.json",
            "config.json",
            "claude_desktop_config.json",
            "settings.local.json",
            "launchSettings.json",
            "appsettings.Test.json",
            "app.runtimeconfig.json",
            "app.deps.json",
            "nest-cli.json",
            "tslint.json",
            "firebase.json",
            "renovate.json",
            "wrangler.json",
            "tasks.json",
            "extensions.json",
            "hooks.json",
            "marketplace.json",
            "project.assets.json",
            "import-map.json",
            "x.xml",
            "",
        ] {
            assert!(!is_report_name(name, EVIDENCE_EXTENSIONS), "{name}");
        }
    }

    #[test]
    fn a_directory_with_settings_or_links_may_not_be_emptied() {
        let dir = tempfile::tempdir().expect("a directory");
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).expect("mkdir");
        fs::write(below.join("report.xml"), "").expect("a file");
        assert!(may_be_emptied(dir.path()));
        for name in [".git", "quell.toml"] {
            fs::write(below.join(name), "").expect("a file");
            assert!(!may_be_emptied(dir.path()), "{name}");
            fs::remove_file(below.join(name)).expect("removed");
        }
        fs::hard_link(below.join("report.xml"), below.join("other.xml")).expect("a link");
        assert!(!may_be_emptied(dir.path()), "a hard link");
    }

    #[test]
    fn an_earlier_report_is_recognized() {
        for (end, text, expected) in [
            ("xml", "<?xml version=\"1.0\"?><testsuites><testsuite name=\"x\">", true),
            ("xml", "<coverage version=\"7\">", true),
            ("xml", "<project><dependencies/></project>", false),
            ("json", "{\"numFailedTestSuites\":0}", true),
            ("json", "{\n    \"machine_info\": {}}", true),
            ("json", "{\"users\": []}", false),
            ("log", "INFO     root:test_a.py:3 a message\n", true),
            ("log", "WARNING  app.db:pool.py:120 slow\nmore", true),
            ("txt", "CRITICAL root:test_a.py:3 a message\n", true),
            ("log", "anything", false),
            ("log", "INFO started\n", false),
            ("log", "INFO     root:test_a.py:x a message\n", false),
            ("log", "INFO     2026-01-01 12:00:00 started\n", false),
            ("log", "versions pytest-8", true),
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
