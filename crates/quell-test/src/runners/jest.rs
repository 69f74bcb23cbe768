//! jest and vitest.

use super::RunnerTable;
use crate::check::{Checked, NUMBER, OptionStyle, Options, PathRole, PathWord, Rules};

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
