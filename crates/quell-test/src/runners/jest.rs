//! jest and vitest.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::RunnerTable;
use crate::check::{Checked, NUMBER, OptionStyle, Options, PathRole, PathWord, Rules, ambiguous, is_among};

pub(super) const JEST: RunnerTable = RunnerTable {
    name: "jest",
    options: Options {
        style: OptionStyle::Camel,
        flags: "\
            -b --bail -e --expand -f --onlyFailures -h --help -i --runInBand -o --onlyChanged -u --updateSnapshot \
            --version --cache --noCache --ci --clearMocks --color --noColor --coverage --noCoverage --debug \
            --detectLeaks --detectOpenHandles --errorOnDeprecated --forceExit --json --lastCommit --listTests \
            --logHeapUsage --noStackTrace --passWithNoTests --randomize --resetMocks --resetModules --restoreMocks \
            --runTestsByPath --showSeed --silent --useStderr --verbose --watch --watchAll --noWatchman",
        values: "-t --testNamePattern",
        choices: &[
            ("-w --maxWorkers", "# #%"),
            ("--maxConcurrency --openHandlesTimeout --seed --testTimeout", NUMBER),
            ("--shard", "#/#"),
            ("--coverageProvider", "babel v8"),
            ("--env --testEnvironment", "node jsdom"),
            // The defaults of jest.
            (
                "-c --config",
                "jest.config.js jest.config.ts jest.config.mjs jest.config.cjs jest.config.mts jest.config.cts \
                 jest.config.json package.json",
            ),
        ],
        paths: &[
            ("--rootDir --testPathPattern= --testPathPatterns=", PathRole::Target),
            ("--outputFile", PathRole::Output("json")),
            ("--coverageDirectory", PathRole::OutputDir),
        ],
        writes: &[("--coverage", "coverage", PathRole::OutputDir)],
        wide: "",
        plugins: "",
    },
    separator: "",
    program_options: None,
    verbs: "",
    parse_target: pattern,
};

pub(super) const VITEST: RunnerTable = RunnerTable {
    name: "vitest",
    options: Options {
        style: OptionStyle::Camel,
        flags: "\
            -h --help -v --version --run --watch --noWatch --coverage --noCoverage --coverage.enabled --coverage.all \
            --coverage.clean --passWithNoTests --allowOnly --globals --dom --isolate --noIsolate --fileParallelism \
            --noFileParallelism --logHeapUsage --hideSkippedTests --color --noColor --noClearScreen \
            --disableConsoleIntercept --printConsoleTrace --expandSnapshotDiff --typecheck --sequence.shuffle \
            --sequence.concurrent -u --update --silent",
        values: "-t --testNamePattern --exclude --project",
        choices: &[
            ("--bail --retry --maxWorkers --minWorkers --maxConcurrency --sequence.seed", NUMBER),
            ("--testTimeout --hookTimeout --teardownTimeout --slowTestThreshold", NUMBER),
            ("--shard", "#/#"),
            ("--environment", "node jsdom happy-dom edge-runtime"),
            ("--pool", "forks threads vmForks vmThreads"),
            ("-u= --silent= --update=", "true false passed-only all new none"),
            ("--coverage.provider", "v8 istanbul"),
            (
                "--coverage.reporter",
                "clover cobertura html json json-summary lcov lcovonly none text text-summary",
            ),
            (
                "--reporter",
                "basic default dot github-actions hanging-process json junit tap tap-flat tree verbose",
            ),
            // The defaults of vitest.
            (
                "-c --config",
                "vitest.config.js vitest.config.ts vitest.config.mjs vitest.config.cjs vitest.config.mts \
                 vitest.config.cts vite.config.js vite.config.ts vite.config.mjs vite.config.cjs vite.config.mts \
                 vite.config.cts",
            ),
        ],
        paths: &[
            ("-r --root --dir", PathRole::Target),
            ("--outputFile", PathRole::Output("json xml html txt tap")),
            ("--coverage.reportsDirectory", PathRole::OutputDir),
        ],
        writes: &[("--coverage --coverage.enabled", "coverage", PathRole::OutputDir)],
        wide: "",
        plugins: "",
    },
    separator: "--",
    program_options: None,
    verbs: "run watch dev bench list",
    parse_target: pattern,
};

/// Positional words are patterns. With a narrow scope they must name an existing file or directory.
fn pattern(word: &str, rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    Ok(vec![rules.path(word, PathRole::Target, rules.scope.is_narrow())?])
}

/// The characters that mean something in a regular expression.
const SPECIAL: &str = r"\^$.|?*+()[]{}";

/// The name and the value of an option, without the differences in spelling that jest ignores.
fn option(word: &str) -> Option<(String, Option<&str>)> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    Some((name.strip_prefix("--")?.replace('-', "").to_lowercase(), value))
}

/// Whether jest reads its positional words as paths.
pub(crate) fn reads_paths(own: &[String]) -> Checked<bool> {
    let mut options = own.iter().filter_map(|word| option(word));
    let Some((_, value)) = options.find(|(name, _)| name == "runtestsbypath") else { return Ok(false) };
    if value.is_some() || own.iter().any(|word| pattern_in_option(word).is_some()) {
        let reason = "with `--runTestsByPath` and these words a target may be a path or a pattern";
        return ambiguous(reason, "write `--runTestsByPath` without a value, and only files");
    }
    Ok(true)
}

/// The pattern in `--testPathPattern=PATTERN`, or `--testPathPatterns=PATTERN` since version 30.
pub(crate) fn pattern_in_option(word: &str) -> Option<&str> {
    let (name, value) = option(word)?;
    value.filter(|_| is_among("testpathpattern testpathpatterns", &name))
}

/// The pattern that matches a path, or what is below it if it is a directory, and nothing else. jest looks for its patterns anywhere in the
/// absolute paths of files. It must be a word without an option: an older jest ignores `--testPathPatterns`, and runs everything.
pub(crate) fn anchored(path: &str, rules: &Rules<'_>) -> Checked<String> {
    let word = rules.path(path, PathRole::Target, true)?;
    let path = rules.scope.cwd.join(&word.path);
    if let Some(twin) = twin(&path, &rules.scope.cwd).filter(|twin| !rules.scope.contains(twin)) {
        let reason = format!("jest ignores case, so that this target also matches `{}`", twin.display());
        return ambiguous(reason, "rename one of them, or name files with --runTestsByPath");
    }
    let mut pattern = String::new();
    for c in path.display().to_string().chars() {
        pattern.extend(SPECIAL.contains(c).then_some('\\'));
        pattern.push(c);
    }
    pattern.extend(path.is_dir().then_some('/'));
    Ok(pattern)
}

/// A path that differs only in case from this one, or from a directory between it and `cwd`: the one nearest to `cwd`.
fn twin(path: &Path, cwd: &Path) -> Option<PathBuf> {
    let fold = |name: &OsStr| name.to_string_lossy().to_uppercase();
    let twin = |path: &Path| {
        let (dir, name) = (path.parent()?, path.file_name()?);
        let mut entries = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name());
        entries.find(|other| other != name && fold(other) == fold(name)).map(|other| dir.join(other))
    };
    path.ancestors().take_while(|dir| *dir != cwd && dir.starts_with(cwd)).filter_map(twin).last()
}

/// The path in a pattern that `anchored` made; any other word as it is. The words of a test run are checked twice.
pub(crate) fn unanchored(word: &str) -> String {
    if !word.starts_with('/') {
        return word.to_owned();
    }
    let mut path = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = chars.next_if(|next| c == '\\' && SPECIAL.contains(*next));
        path.push(escaped.unwrap_or(c));
    }
    path
}
