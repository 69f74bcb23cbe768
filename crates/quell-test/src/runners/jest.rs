//! jest and vitest.

use super::RunnerTable;
use crate::check::{NUMBER, OptionStyle, Options, PathWord, Place, Rules, Verdict};

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
            // What jest does anyway.
            (
                "-c --config",
                "jest.config.js jest.config.ts jest.config.mjs jest.config.cjs jest.config.mts jest.config.cts \
                 jest.config.json package.json",
            ),
        ],
        paths: &[
            ("--rootDir --testPathPattern= --testPathPatterns=", Place::Target),
            ("--outputFile", Place::Output("json")),
            ("--coverageDirectory", Place::OutputDir),
        ],
        wide: "",
        plugins: "",
    },
    end: "",
    behind: None,
    verbs: "",
    target: pattern,
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
            // What vitest does anyway.
            (
                "-c --config",
                "vitest.config.js vitest.config.ts vitest.config.mjs vitest.config.cjs vitest.config.mts \
                 vitest.config.cts vite.config.js vite.config.ts vite.config.mjs vite.config.cjs vite.config.mts \
                 vite.config.cts",
            ),
        ],
        paths: &[
            ("-r --root --dir", Place::Target),
            ("--outputFile", Place::Output("json xml html txt tap")),
            ("--coverage.reportsDirectory", Place::OutputDir),
        ],
        wide: "",
        plugins: "",
    },
    end: "--",
    behind: None,
    verbs: "run watch dev bench list",
    target: pattern,
};

/// Their words are patterns. Only with a narrow scope they have to name something that exists.
fn pattern(word: &str, rules: &Rules<'_>) -> Verdict<Vec<PathWord>> {
    Ok(vec![rules.path(word, Place::Target, rules.scope.is_narrow())?])
}
