//! pytest.

use super::RunnerTable;
use crate::check::{
    COVERAGE, COVERAGE_DATA, Checked, LOG, NEVER, NO_DOT, NUMBER, OptionStyle, Options, PathRole, PathWord,
    Rules, check_target,
};

pub(super) const TABLE: RunnerTable = RunnerTable {
    name: "pytest",
    options: OPTIONS,
    separator: "",
    program_options: None,
    verbs: "",
    parse_target: node,
};

const OPTIONS: Options = Options {
    style: OptionStyle::Unix,
    flags: "\
        -h -l -q -s -v -V -x --help --version --exitfirst --verbose --quiet --showlocals --no-showlocals \
        --lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise --sw-skip --stepwise-skip \
        --co --collect-only --fixtures --markers --setup-show --setup-only --setup-plan --strict --strict-config \
        --strict-markers --runxfail --disable-warnings --no-header --no-summary --full-trace --cache-clear \
        --cache-show --noconftest --trace-config --debug --continue-on-collection-errors --doctest-modules \
        --cov --cov-append --cov-branch --no-cov --no-cov-on-fail --benchmark-only --benchmark-skip \
        --benchmark-disable --hypothesis-show-statistics --snapshot-update --reuse-db --create-db \
        --no-migrations",
    values: "\
        -k -m -r --deselect --ignore --ignore-glob --doctest-glob --junit-prefix --junitprefix --log-level \
        --log-cli-level --log-file-level --cov-context= --hypothesis-profile= --cache-show=",
    choices: &[
        ("-n --numprocesses", "auto logical #"),
        ("--dist", "each load loadfile loadgroup loadscope no worksteal"),
        ("--timeout --timeout-method", "signal thread #"),
        ("--maxfail --durations --durations-min --verbosity --reruns --reruns-delay --count", NUMBER),
        ("--cov-fail-under --randomly-seed --random-order-seed --hypothesis-seed", NUMBER),
        ("--tb", "auto long short line native no"),
        ("--capture --show-capture", "fd sys no tee-sys stdout stderr log all"),
        ("--color --code-highlight", "yes no auto"),
        ("--lfnf --last-failed-no-failures", "all none"),
        ("--asyncio-mode", "auto strict"),
        ("--import-mode", "prepend importlib"),
        ("--assert", "plain rewrite"),
        // With a dot in the category, Python imports a module.
        ("-W --pythonwarnings", NO_DOT),
        // To find a module with a dot in its name, coverage imports the package.
        ("--cov=", "~ ."),
        (
            "--cov-report",
            "term term-missing term:skip-covered term-missing:skip-covered html html:htmlcov html:coverage xml \
             xml:coverage.xml json json:coverage.json lcov lcov:lcov.info lcov:coverage.lcov",
        ),
        // Not every plugin: without one that defines an option with a value, that value would be a target.
        ("-p", "no:cacheprovider no:randomly no:random_order no:warnings no:xdist no:sugar no:cov"),
        // The defaults of pytest.
        ("-c --config-file", "pytest.toml .pytest.toml pytest.ini .pytest.ini pyproject.toml tox.ini"),
        ("--rootdir --confcutdir", "."),
        ("-o --override-ini", SETTINGS),
        ("--cov-config --pdbcls --pastebin --log-format --log-date-format --log-file-format", NEVER),
    ],
    paths: &[
        ("--junitxml --junit-xml", PathRole::Output("xml")),
        ("--log-file --debug=", LOG),
        ("--html=", PathRole::Output("html")),
        ("--benchmark-json= --json-report-file=", PathRole::Output("json")),
        ("--report-log=", PathRole::Output("json jsonl log")),
        ("--basetemp", PathRole::OutputDir),
    ],
    writes: &[
        ("--debug", "pytestdebug.log", LOG),
        ("--cov-report=xml", "coverage.xml", COVERAGE),
        ("--cov-report=json", "coverage.json", COVERAGE),
        ("--cov-report=lcov", "coverage.lcov", COVERAGE),
        ("--cov-report=html", "htmlcov", PathRole::OutputDir),
        ("--cov --cov-append", COVERAGE_DATA, PathRole::Any),
        ("--cache-clear", ".pytest_cache", PathRole::Any),
    ],
    wide: "",
    plugins: "\
        -n --numprocesses --dist --timeout --timeout-method --reruns --reruns-delay --count --cov-fail-under \
        --cov-report --randomly-seed --random-order-seed --hypothesis-seed --asyncio-mode",
};

/// Settings that don't load code, choose tests or write files.
const SETTINGS: &str = "\
    addopts= asyncio_default_fixture_loop_scope=* asyncio_mode=* console_output_style=* faulthandler_timeout=* \
    junit_family=* junit_logging=* junit_suite_name=* log_cli=* log_cli_level=* log_level=* log_file_level=* \
    markers=* timeout=* xfail_strict=*";

/// The file of `tests/test_a.py::test_x[1]`. Some versions of pytest cut at the first bracket even before the colons, so both readings are
/// checked.
fn node(word: &str, rules: &Rules<'_>) -> Checked<Vec<PathWord>> {
    let (file, name) = word.split_once("::").unwrap_or((word, ""));
    if name.chars().any(char::is_control) {
        check_target(word, &rules.roots)?;
    }
    let short = file.split_once('[').map(|(short, _)| short);
    [file].into_iter().chain(short).map(|file| rules.path(file, PathRole::Target, true)).collect()
}

/// Whether `-o addopts=` tells pytest to ignore the `addopts` of its files.
pub(crate) fn clears_addopts(words: &[String]) -> bool {
    // `-qo` is `-q -o`.
    let is_option = |word: &str| {
        let letters = word
            .strip_prefix('-')
            .unwrap_or_default()
            .trim_start_matches(['h', 'l', 'q', 's', 'v', 'V', 'x']);
        letters == "o" || word == "--override-ini"
    };
    let glued = |word: &String| {
        word.strip_suffix("addopts=")
            .is_some_and(|option| is_option(option.strip_suffix('=').unwrap_or(option)))
    };
    words.iter().any(glued) || words.windows(2).any(|pair| is_option(&pair[0]) && pair[1] == "addopts=")
}

/// Splits PYTEST_ADDOPTS or `addopts` as Python's shlex does: only four characters are whitespace, and inside double quotes a backslash
/// escapes only itself and the quote.
pub(crate) fn shlex_split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '\\') => {
                let escaped = chars.next_if(|next| matches!(next, '"' | '\\'));
                word.get_or_insert_default().push(escaped.unwrap_or('\\'));
            }
            (None, ' ' | '\t' | '\r' | '\n') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
