//! The options of test runners. Without a scope an option that is not listed counts as a flag, or is written with `=`: a word that
//! stands behind it counts as a target. With a scope only what is listed here as harmless is allowed.

use super::Place;

/// How options are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dashes {
    /// Short ones may stand together, with a value behind the last: `-xcFILE`.
    Short,
    /// `--root-dir` is `--rootDir`. Short ones that stand together have no values, and no value begins with a dash.
    Camel,
    /// One dash is as good as two.
    Go,
}

/// Whether a word is in a list, which is written with spaces between its words.
pub(super) fn is_among(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// The options of a runner. With a scope nothing else is allowed, unless a policy names it.
pub(super) struct Options {
    pub dashes: Dashes,
    /// There is no value.
    pub flags: &'static str,
    /// The value is a path: where that has to be, and whether it has to be there.
    pub paths: &'static [(&'static str, Place, bool)],
    /// The value is anything else.
    pub values: &'static str,
    /// There is a value in some versions, or with a plugin. Elsewhere the word behind it is a target.
    pub plugins: &'static str,
    /// There may be a value. Only `=` tells it from a target.
    pub optional: &'static str,
    /// All words behind it are values, up to the next option.
    pub greedy: &'static str,
    /// With a scope the value has to be one of these: others name code.
    pub choices: &'static [(&'static str, &'static str)],
    /// Values with which an option of `code` is harmless: what the runner would take without the option, too.
    pub usual: &'static [(&'static str, &'static str)],
    /// Can load code, or have tests chosen in another way: refused with a scope. Listed above, too, if there is a value.
    pub code: &'static str,
}

impl Options {
    pub fn path(&self, option: &str) -> Option<(Place, bool)> {
        let found = self.paths.iter().find(|path| path.0 == option);
        found.map(|(_, place, exists)| (*place, *exists))
    }

    /// Whether the next word is its value if there is none in its own.
    pub fn takes(&self, option: &str) -> bool {
        !is_among(self.optional, option)
            && !is_among(self.plugins, option)
            && (self.path(option).is_some() || is_among(self.values, option) || is_among(self.greedy, option))
    }

    /// Whether there may be a value.
    pub fn knows(&self, option: &str) -> bool {
        self.takes(option) || is_among(self.optional, option) || is_among(self.plugins, option)
    }

    /// The values that are harmless, if not all are.
    pub fn choices(&self, option: &str) -> Option<&'static str> {
        self.choices.iter().find(|choice| choice.0 == option).map(|choice| choice.1)
    }

    /// Whether nothing but what is asked for can come of it.
    pub fn is_harmless(&self, option: &str, value: Option<&str>) -> bool {
        let choices = self.choices(option);
        let usual = self.usual.iter().find(|usual| usual.0 == option).map_or("", |usual| usual.1);
        let is_usual = value.is_some_and(|value| is_among(usual, value.strip_prefix("./").unwrap_or(value)));
        (is_among(self.flags, option) || self.knows(option))
            && (is_usual || !is_among(self.code, option))
            && choices.is_none_or(|choices| value.is_none_or(|value| is_among(choices, value)))
    }
}

pub(super) const PYTEST: Options = Options {
    dashes: Dashes::Short,
    flags: "\
        -h -l -q -s -v -V -x --version --help --exitfirst --verbose --quiet --showlocals --no-showlocals \
        --lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise --sw-skip --stepwise-skip \
        --sw-reset --stepwise-reset --co --collect-only --fixtures --funcargs --fixtures-per-test --markers \
        --setup-only --setup-plan --setup-show --strict --strict-config --strict-markers --runxfail \
        --disable-warnings --disable-pytest-warnings --no-header --no-summary --full-trace --fulltrace \
        --xfail-tb --force-short-summary --no-fold-skipped --cache-clear --noconftest --keep-duplicates \
        --collect-in-virtualenv --trace-config --continue-on-collection-errors --doctest-modules \
        --doctest-ignore-import-errors --doctest-continue-on-failure --cov-append --cov-branch --cov-reset \
        --no-cov --no-cov-on-fail --forked --timeout-disable-debugger-detection --random-order \
        --benchmark-only --benchmark-skip --benchmark-disable --hypothesis-show-statistics --snapshot-update \
        --reuse-db --create-db --nomigrations --no-migrations --pyargs",
    paths: &[
        ("--rootdir", Place::Around, true),
        ("--confcutdir", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config-file", Place::FileAround, true),
        ("--basetemp", Place::Inside, false),
        ("--junitxml", Place::Output("xml"), false),
        ("--junit-xml", Place::Output("xml"), false),
        ("--log-file", LOG, false),
        ("--cov-config", Place::FileAround, false),
        ("--benchmark-json", Place::Output("json"), false),
        ("--html", Place::Output("html"), false),
        ("--csv", Place::Output("csv"), false),
        ("--json-report-file", Place::Output("json"), false),
        ("--report-log", Place::Output("json jsonl log"), false),
        ("--result-log", LOG, false),
        ("--resultlog", LOG, false),
        ("--debug", LOG, false),
    ],
    values: "\
        -k -m -o -p -r -W --assert --capture --color --deselect --doctest-glob --doctest-report --durations \
        --ignore --ignore-glob --import-mode --junit-prefix --junitprefix --log-cli-date-format \
        --log-cli-format --log-cli-level --log-date-format --log-file-date-format --log-file-format \
        --log-file-level --log-format --log-level --maxfail --override-ini --pastebin --pdbcls \
        --pythonwarnings --show-capture --tb --verbosity",
    plugins: "\
        -n --asyncio-mode --benchmark-json --code-highlight --cov-config --cov-context --cov-fail-under \
        --cov-report --csv --dist --count --durations-min --html --hypothesis-profile --hypothesis-seed --json-report-file \
        --last-failed-no-failures --lfnf --log-auto-indent --log-disable \
        --log-file-mode --maxprocesses --numprocesses --only-rerun --random-order-seed --randomly-seed \
        --report-log --reruns --reruns-delay --result-log --resultlog --timeout --timeout-method",
    optional: "--cache-show --cov --debug",
    greedy: "",
    choices: &[("--assert", "plain rewrite"), ("--import-mode", "prepend importlib")],
    usual: &[
        ("-c", PYTEST_FILES),
        ("--config-file", PYTEST_FILES),
        ("--rootdir", "."),
        ("--confcutdir", "."),
        ("--cov-config", ".coveragerc setup.cfg tox.ini pyproject.toml"),
    ],
    // With a format of its own a log can become code.
    code: "\
        -c --config-file --rootdir --confcutdir --cov-config --log-date-format --log-file-date-format \
        --log-file-format --log-format --pastebin --pdbcls",
};

/// Parts of pytest that it can do without (`-p no:…`), and that define options in `values` or `paths`, or short ones. Without one
/// of them the word behind such an option is a target.
pub(super) const PYTEST_PARTS: &str = "\
    assertion capture debugging doctest fixtures helpconfig junitxml logging main mark pastebin python runner terminal";

/// Files that pytest reads its settings from, whether they are named or not.
const PYTEST_FILES: &str = "pytest.toml .pytest.toml pytest.ini .pytest.ini pyproject.toml tox.ini";

/// A file that a log is written to.
pub(super) const LOG: Place = Place::Output("log txt");

/// Directories that reports are written to. Some runners empty them first.
pub(super) const REPORT_DIRS: &str = "\
    cache .cache .pytest_cache cov coverage htmlcov out output report reports result results test-reports \
    test-results tmp";

/// Settings of pytest that are lists of paths.
pub(super) const PYTEST_PATH_LISTS: &str = "testpaths pythonpath";

/// Settings of pytest that load no code and choose no targets.
pub(super) const PYTEST_SETTINGS: &str = "\
    asyncio_default_fixture_loop_scope asyncio_mode cache_dir console_output_style faulthandler_timeout \
    junit_duration_report junit_family junit_log_passing_tests junit_logging junit_suite_name \
    log_auto_indent log_cli log_cli_date_format log_cli_format log_cli_level log_file log_file_level \
    log_level markers python_classes python_files python_functions timeout \
    timeout_method tmp_path_retention_count tmp_path_retention_policy truncation_limit_chars \
    truncation_limit_lines xfail_strict";

pub(super) const UNITTEST: Options = Options {
    dashes: Dashes::Short,
    flags: "-h --help -v --verbose -q --quiet --locals -f --failfast -c --catch -b --buffer",
    paths: &[
        ("-s", Place::Target, true),
        ("--start-directory", Place::Target, true),
        ("-t", Place::Around, true),
        ("--top-level-directory", Place::Around, true),
    ],
    values: "-k -p --pattern --durations",
    plugins: "",
    optional: "",
    greedy: "",
    choices: &[],
    usual: &[],
    code: "",
};

/// Of cargo test and nextest, which have no targets that a value could be taken for.
pub(super) const CARGO: Options = Options {
    dashes: Dashes::Short,
    flags: "\
        -q --quiet -v --verbose -r --release -h --help --lib --bins --examples --tests --benches \
        --all-targets --doc --no-run --no-fail-fast --fail-fast --nff --ff --keep-going --frozen --locked \
        --offline --ignore-rust-version --all-features --no-default-features --workspace --all \
        --future-incompat-report --timings --no-capture --nocapture --ignore-default-filter \
        --hide-progress-bar --no-output-indent --no-input-handler",
    paths: &[
        ("--manifest-path", Place::Target, true),
        ("--target-dir", Place::Here, false),
        ("--build-dir", Place::Here, false),
        ("--artifact-dir", Place::Here, false),
        ("--lockfile-path", Place::Here, false),
        ("--archive-file", Place::Target, true),
        ("--extract-to", Place::Here, false),
        ("--workspace-remap", Place::Here, true),
        ("--cargo-metadata", Place::Here, true),
        ("--binaries-metadata", Place::Here, true),
        ("--target-dir-remap", Place::Here, true),
        ("--config-file", Place::Here, true),
        ("--user-config-file", Place::Here, true),
    ],
    values: "\
        -p --package --exclude -j --jobs --build-jobs -F --features -E --filterset --filter-expr -P \
        --profile --cargo-profile --bin --example --test --bench --target --color --message-format \
        --cargo-message-format --retries --test-threads --run-ignored --max-fail --no-tests --partition \
        --status-level --final-status-level --failure-output --success-output --show-progress -Z -C --config \
        --tool-config-file",
    plugins: "",
    optional: "",
    greedy: "",
    choices: &[],
    usual: &[],
    code: "\
        -Z --config --config-file --user-config-file --tool-config-file --lockfile-path --target-dir --build-dir \
        --artifact-dir --archive-file --extract-to --workspace-remap --cargo-metadata --binaries-metadata \
        --target-dir-remap",
};

pub(super) const GO: Options = Options {
    dashes: Dashes::Go,
    flags: "\
        -v -race -short -failfast -json -cover -benchmem -msan -asan -x -n -a -c -i -trimpath -work \
        -fullpath -buildvcs -modcacherw -artifacts",
    paths: &[
        ("-o", Place::Output("test out bin exe"), false),
        ("-modfile", Place::Here, true),
        ("-overlay", Place::Here, true),
        ("-pgo", Place::Here, false),
        ("-pkgdir", Place::Here, false),
        ("-outputdir", Place::Here, false),
        ("-coverprofile", PROFILE, false),
        ("-cpuprofile", PROFILE, false),
        ("-memprofile", PROFILE, false),
        ("-blockprofile", PROFILE, false),
        ("-mutexprofile", PROFILE, false),
        ("-trace", PROFILE, false),
        // Those that go itself passes to a test's program, and takes from nobody else without `-test.` before them.
        ("-gocoverdir", Place::Here, false),
        ("-testlogfile", Place::Here, false),
        ("-fuzzcachedir", Place::Here, false),
    ],
    values: "\
        -C -run -skip -bench -benchtime -count -covermode -coverpkg -cpu -list -parallel -timeout -vet -fuzz \
        -fuzztime -fuzzminimizetime -shuffle -p -tags -mod -ldflags -gcflags -gccgoflags -asmflags \
        -buildmode -compiler -exec -toolexec -installsuffix -memprofilerate -blockprofilerate \
        -mutexprofilefraction -vettool",
    plugins: "",
    optional: "",
    greedy: "",
    choices: &[("-mod", "mod readonly vendor")],
    usual: &[],
    code: "\
        -modfile -overlay -pgo -pkgdir -ldflags -gcflags -gccgoflags -asmflags -buildmode -compiler -exec \
        -toolexec -installsuffix -vettool -gocoverdir -testlogfile -fuzzcachedir",
};

/// A file that go writes measurements to.
const PROFILE: Place = Place::Output("out cov prof pprof profile trace txt");

pub(super) const JEST: Options = Options {
    dashes: Dashes::Camel,
    flags: "\
        -b --bail -e --expand -f --onlyFailures -h --help -i --runInBand -o --onlyChanged -u \
        --updateSnapshot --version --automock --cache --noCache --ci --clearMocks --color --colors --noColor \
        --noColors --coverage --collectCoverage --noCoverage --debug --detectLeaks --detectOpenHandles \
        --errorOnDeprecated --forceExit --json --lastCommit --listTests --logHeapUsage --noStackTrace \
        --passWithNoTests --randomize --resetMocks --resetModules --restoreMocks --runTestsByPath \
        --showConfig --showSeed --silent --testLocationInResults --useStderr --verbose --watch --watchAll \
        --noWatch --noWatchAll --noWatchman --workerThreads --waitForUnhandledRejections",
    paths: &[
        ("--rootDir", Place::Around, true),
        ("--roots", Place::Around, true),
        ("--projects", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config", Place::FileAround, true),
        ("--filter", Place::Here, true),
        ("--globalSetup", Place::Here, true),
        ("--globalTeardown", Place::Here, true),
        ("--outputFile", Place::Output("json"), false),
        ("--coverageDirectory", Place::OutputDir, false),
        ("--cacheDirectory", Place::Here, false),
    ],
    values: "\
        -t --testNamePattern -w --maxWorkers --changedSince --coverageProvider --maxConcurrency --notifyMode \
        --openHandlesTimeout --seed --shard --testTimeout --workerIdleMemoryLimit --env --testEnvironment",
    plugins: "",
    optional: "",
    greedy: "\
        --collectCoverageFrom --coveragePathIgnorePatterns --coverageReporters --ignoreProjects \
        --moduleDirectories --moduleFileExtensions --modulePathIgnorePatterns --modulePaths --projects \
        --reporters --roots --selectProjects --setupFiles --setupFilesAfterEnv --snapshotSerializers \
        --testMatch --testPathIgnorePatterns --testPathPattern --testPathPatterns --testRegex \
        --transformIgnorePatterns --unmockedModulePathPatterns --watchPathIgnorePatterns",
    choices: &[
        ("--env", "node jsdom"),
        ("--testEnvironment", "node jsdom"),
        ("--coverageProvider", "babel v8"),
        ("--coverageReporters", COVERAGE_REPORTERS),
        ("--reporters", "default summary github-actions"),
    ],
    usual: &[("-c", JEST_FILES), ("--config", JEST_FILES)],
    code: "\
        -c --config --cacheDirectory --changedSince --filter --globalSetup --globalTeardown \
        --moduleDirectories --moduleFileExtensions --modulePaths --projects --setupFiles \
        --setupFilesAfterEnv --snapshotSerializers --testMatch --testRegex --transformIgnorePatterns",
};

/// Files that jest reads its settings from, whether they are named or not.
const JEST_FILES: &str = "\
    jest.config.js jest.config.ts jest.config.mjs jest.config.cjs jest.config.mts jest.config.cts \
    jest.config.json package.json";

/// Reports of coverage that jest and vitest bring with them.
const COVERAGE_REPORTERS: &str = "\
    clover cobertura html html-spa json json-summary lcov lcovonly none teamcity text text-lcov text-summary";

pub(super) const VITEST: Options = Options {
    dashes: Dashes::Camel,
    flags: "\
        -h --help -v --version --run --watch --noWatch --coverage --noCoverage --coverage.enabled \
        --coverage.all --coverage.clean --passWithNoTests --allowOnly --globals --dom --isolate --noIsolate \
        --fileParallelism --noFileParallelism --logHeapUsage --hideSkippedTests --color --noColor \
        --clearScreen --noClearScreen --disableConsoleIntercept --includeTaskLocation --printConsoleTrace \
        --expandSnapshotDiff --typecheck --sequence.shuffle --sequence.concurrent \
        --dangerouslyIgnoreUnhandledErrors",
    paths: &[
        ("-r", Place::Around, true),
        ("--root", Place::Around, true),
        ("--dir", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config", Place::FileAround, true),
        ("--workspace", Place::FileAround, true),
        ("--outputFile", Place::Output("json xml html txt tap"), false),
        ("--coverage.reportsDirectory", Place::OutputDir, false),
        ("--attachmentsDir", Place::OutputDir, false),
        ("--mergeReports", Place::Here, false),
    ],
    values: "\
        -t --testNamePattern --bail --coverage.provider --coverage.reporter --environment --exclude \
        --hookTimeout --maxConcurrency --maxWorkers --minWorkers --mode --pool --project --reporter \
        --reporters --retry --sequence.seed --shard --slowTestThreshold --teardownTimeout --testTimeout",
    plugins: "",
    optional: "-u --api --browser --changed --inspect --inspectBrk --mergeReports --silent --update",
    greedy: "",
    choices: &[
        ("--environment", "node jsdom happy-dom edge-runtime"),
        ("--pool", "forks threads vmForks vmThreads"),
        ("--coverage.provider", "v8 istanbul"),
        ("--coverage.reporter", COVERAGE_REPORTERS),
        ("--reporter", VITEST_REPORTERS),
        ("--reporters", VITEST_REPORTERS),
    ],
    usual: &[("-c", VITEST_FILES), ("--config", VITEST_FILES)],
    code: "-c --config --workspace --mode --api --browser --inspect --inspectBrk --mergeReports",
};

/// Reports that vitest brings with it.
const VITEST_REPORTERS: &str = "\
    agent basic default dot github-actions hanging-process json junit tap tap-flat tree verbose";

/// Files that vitest reads its settings from, whether they are named or not.
const VITEST_FILES: &str = "\
    vitest.config.js vitest.config.ts vitest.config.mjs vitest.config.cjs vitest.config.mts vitest.config.cts \
    vite.config.js vite.config.ts vite.config.mjs vite.config.cjs vite.config.mts vite.config.cts";
