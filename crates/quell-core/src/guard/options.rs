//! The options of test runners that have values, and those whose values are paths. An option that is not listed is a flag, or
//! is written with `=`: a word that stands behind it counts as a target.

use super::Place;

/// How options are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dashes {
    /// Short ones may stand together, with a value behind the last: `-xcFILE`.
    Short,
    /// The same, and `--root-dir` is `--rootDir`.
    Camel,
    /// One dash is as good as two.
    Go,
}

/// The options of a runner.
pub(super) struct Options {
    pub dashes: Dashes,
    /// The value is a path: where that has to be, and whether it has to be there.
    pub paths: &'static [(&'static str, Place, bool)],
    /// The value is anything else.
    pub values: &'static [&'static str],
    /// There is a value in some versions, or with a plugin. Elsewhere the word behind it is a target.
    pub plugins: &'static [&'static str],
    /// There may be a value. Only `=` tells it from a target.
    pub optional: &'static [&'static str],
    /// All words behind it are values, up to the next option.
    pub greedy: &'static [&'static str],
}

impl Options {
    pub fn path(&self, option: &str) -> Option<(Place, bool)> {
        let found = self.paths.iter().find(|path| path.0 == option);
        found.map(|(_, place, exists)| (*place, *exists))
    }

    /// Whether the next word is its value if there is none in its own.
    pub fn takes(&self, option: &str) -> bool {
        !self.optional.contains(&option)
            && (self.path(option).is_some() || self.values.contains(&option) || self.greedy.contains(&option))
    }

    pub fn knows(&self, option: &str) -> bool {
        self.takes(option) || self.optional.contains(&option) || self.plugins.contains(&option)
    }
}

/// Flags of pytest that have one letter.
pub(super) const PYTEST_FLAGS: &str = "hlqsvVx";

pub(super) const PYTEST: Options = Options {
    dashes: Dashes::Short,
    paths: &[
        ("--rootdir", Place::Around, true),
        ("--confcutdir", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config-file", Place::FileAround, true),
        ("--basetemp", Place::Inside, false),
        ("--junitxml", Place::Here, false),
        ("--junit-xml", Place::Here, false),
        ("--log-file", Place::Here, false),
        ("--cov-config", Place::FileAround, false),
        ("--debug", Place::Here, false),
    ],
    values: &[
        "-k",
        "-m",
        "-o",
        "-p",
        "-r",
        "-W",
        "--assert",
        "--capture",
        "--code-highlight",
        "--color",
        "--deselect",
        "--doctest-glob",
        "--doctest-report",
        "--durations",
        "--durations-min",
        "--ignore",
        "--ignore-glob",
        "--import-mode",
        "--junit-prefix",
        "--junitprefix",
        "--last-failed-no-failures",
        "--lfnf",
        "--log-auto-indent",
        "--log-cli-date-format",
        "--log-cli-format",
        "--log-cli-level",
        "--log-date-format",
        "--log-file-date-format",
        "--log-file-format",
        "--log-file-level",
        "--log-format",
        "--log-level",
        "--maxfail",
        "--override-ini",
        "--pastebin",
        "--pdbcls",
        "--pythonwarnings",
        "--show-capture",
        "--tb",
        "--verbosity",
    ],
    plugins: &[
        "-n",
        "--asyncio-mode",
        "--cov-fail-under",
        "--cov-report",
        "--dist",
        "--log-disable",
        "--log-file-mode",
        "--maxprocesses",
        "--numprocesses",
        "--randomly-seed",
        "--reruns",
        "--reruns-delay",
        "--timeout",
        "--timeout-method",
    ],
    optional: &["--cache-show", "--cov", "--debug"],
    greedy: &[],
};

/// Settings of pytest that are lists of paths.
pub(super) const PYTEST_PATH_LISTS: &[&str] = &["testpaths", "pythonpath"];

/// Of cargo test and nextest, which have no targets that a value could be taken for.
pub(super) const CARGO: Options = Options {
    dashes: Dashes::Short,
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
    values: &["-p", "--package", "-j", "-F", "-Z", "-E", "-P", "-C"],
    plugins: &[],
    optional: &[],
    greedy: &[],
};

pub(super) const GO: Options = Options {
    dashes: Dashes::Go,
    paths: &[
        ("-o", Place::Here, false),
        ("-modfile", Place::Here, true),
        ("-overlay", Place::Here, true),
        ("-pgo", Place::Here, false),
        ("-pkgdir", Place::Here, false),
        ("-outputdir", Place::Here, false),
        ("-coverprofile", Place::Here, false),
        ("-cpuprofile", Place::Here, false),
        ("-memprofile", Place::Here, false),
        ("-blockprofile", Place::Here, false),
        ("-mutexprofile", Place::Here, false),
        ("-trace", Place::Here, false),
        // Those that go itself passes to a test's program, and takes from nobody else without `-test.` before them.
        ("-gocoverdir", Place::Here, false),
        ("-testlogfile", Place::Here, false),
        ("-fuzzcachedir", Place::Here, false),
    ],
    values: &[
        "-C",
        "-run",
        "-skip",
        "-bench",
        "-benchtime",
        "-count",
        "-covermode",
        "-coverpkg",
        "-cpu",
        "-list",
        "-parallel",
        "-timeout",
        "-vet",
        "-fuzz",
        "-fuzztime",
        "-fuzzminimizetime",
        "-shuffle",
        "-p",
        "-tags",
        "-mod",
        "-ldflags",
        "-gcflags",
        "-gccgoflags",
        "-asmflags",
        "-buildmode",
        "-compiler",
        "-exec",
        "-toolexec",
        "-installsuffix",
        "-memprofilerate",
        "-blockprofilerate",
        "-mutexprofilefraction",
    ],
    plugins: &[],
    optional: &[],
    greedy: &[],
};

pub(super) const JEST: Options = Options {
    dashes: Dashes::Camel,
    paths: &[
        ("--rootDir", Place::Around, true),
        ("--roots", Place::Around, true),
        ("--projects", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config", Place::FileAround, true),
        ("--filter", Place::Here, true),
        ("--globalSetup", Place::Here, true),
        ("--globalTeardown", Place::Here, true),
        ("--outputFile", Place::Here, false),
        ("--coverageDirectory", Place::Here, false),
        ("--cacheDirectory", Place::Here, false),
    ],
    values: &[
        "-t",
        "--testNamePattern",
        "-w",
        "--maxWorkers",
        "--changedSince",
        "--coverageProvider",
        "--maxConcurrency",
        "--notifyMode",
        "--openHandlesTimeout",
        "--seed",
        "--shard",
        "--testTimeout",
    ],
    plugins: &[],
    optional: &[],
    greedy: &[
        "--coveragePathIgnorePatterns",
        "--coverageReporters",
        "--ignoreProjects",
        "--moduleDirectories",
        "--moduleFileExtensions",
        "--modulePathIgnorePatterns",
        "--modulePaths",
        "--projects",
        "--reporters",
        "--roots",
        "--selectProjects",
        "--setupFiles",
        "--setupFilesAfterEnv",
        "--snapshotSerializers",
        "--testMatch",
        "--testPathIgnorePatterns",
        "--testPathPattern",
        "--testPathPatterns",
        "--testRegex",
        "--transformIgnorePatterns",
        "--unmockedModulePathPatterns",
        "--watchPathIgnorePatterns",
    ],
};

pub(super) const VITEST: Options = Options {
    dashes: Dashes::Camel,
    paths: &[
        ("-r", Place::Around, true),
        ("--root", Place::Around, true),
        ("--dir", Place::Around, true),
        ("-c", Place::FileAround, true),
        ("--config", Place::FileAround, true),
        ("--workspace", Place::FileAround, true),
        ("--outputFile", Place::Here, false),
        ("--coverage.reportsDirectory", Place::Here, false),
        ("--attachmentsDir", Place::Here, false),
        ("--mergeReports", Place::Here, false),
    ],
    values: &[
        "-t",
        "--testNamePattern",
        "--bail",
        "--coverage.provider",
        "--coverage.reporter",
        "--environment",
        "--exclude",
        "--hookTimeout",
        "--maxConcurrency",
        "--maxWorkers",
        "--minWorkers",
        "--mode",
        "--pool",
        "--project",
        "--reporter",
        "--reporters",
        "--retry",
        "--sequence.seed",
        "--shard",
        "--slowTestThreshold",
        "--teardownTimeout",
        "--testTimeout",
    ],
    plugins: &[],
    optional: &[
        "-u",
        "--api",
        "--browser",
        "--changed",
        "--inspect",
        "--inspectBrk",
        "--mergeReports",
        "--silent",
        "--update",
    ],
    greedy: &[],
};
