//! `cargo test` and `cargo nextest run`.

use super::{Runner, RunnerTable};
use crate::check::{Checked, NEVER, NUMBER, OptionStyle, Options, PathRole, PathWord, Rules, is_among};

pub(super) const TEST: RunnerTable = table("cargo test");
pub(super) const NEXTEST: RunnerTable = table("cargo nextest");

const fn table(name: &'static str) -> RunnerTable {
    RunnerTable {
        name,
        options: OPTIONS,
        separator: "--",
        program_options: Some(&LIBTEST),
        verbs: "",
        parse_target: no_target,
    }
}

const OPTIONS: Options = Options {
    style: OptionStyle::Unix,
    flags: "\
        -q --quiet -v --verbose -r --release -h --help --lib --bins --examples --tests --benches --all-targets \
        --doc --no-run --no-fail-fast --fail-fast --keep-going --frozen --locked --offline --ignore-rust-version \
        --all-features --no-default-features --workspace --all --timings --no-capture --nocapture",
    values: "\
        -p --package --exclude -F --features -E --filterset --filter-expr -P --profile --cargo-profile --bin \
        --example --test --bench --message-format --partition --run-ignored --no-tests --status-level \
        --final-status-level --failure-output --success-output",
    choices: &[
        ("-j --jobs --build-jobs --retries --test-threads --max-fail", NUMBER),
        ("--color", "auto always never"),
        // A target file, which has a dot in its name, can name a linker.
        ("--target", "~"),
        (
            "-Z --config --target-dir --config-file --tool-config-file --user-config-file --archive-file",
            NEVER,
        ),
    ],
    paths: &[("--manifest-path", PathRole::Target)],
    writes: &[],
    wide: "-p --package --workspace --all",
    plugins: "",
};

/// Options of the test program that rustc builds.
const LIBTEST: Options = Options {
    style: OptionStyle::Unix,
    flags: "\
        -q --quiet --nocapture --no-capture --show-output --ignored --include-ignored --exact --list --bench --test \
        --force-run-in-process --exclude-should-panic --shuffle --report-time -h --help",
    values: "--skip --format -Z",
    choices: &[("--test-threads --shuffle-seed", NUMBER), ("--color", "auto always never")],
    paths: &[],
    writes: &[],
    wide: "",
    plugins: "",
};

/// Positional words of cargo are patterns for the names of tests, not paths.
fn no_target(_: &str, _: &Rules<'_>) -> Checked<Vec<PathWord>> {
    Ok(Vec::new())
}

/// The runner that a cargo subcommand calls. Skips a toolchain and cargo's own options.
pub(crate) fn cargo_verb(words: &[String]) -> Option<Runner> {
    let mut words = words.iter().map(String::as_str);
    loop {
        match words.next()? {
            "test" | "t" => return Some(Runner::Cargo),
            "nextest" => return Some(Runner::Nextest),
            "-C" | "-Z" | "--config" | "--color" => drop(words.next()),
            option if option.starts_with(['-', '+']) => {}
            _ => return None,
        }
    }
}

/// Whether a toolchain has an official name: a channel, a channel with a date, or a version. `rustup toolchain link` can give any other
/// name to any directory.
pub(crate) fn is_official_toolchain(name: &str) -> bool {
    let (channel, date) = name.split_once('-').unwrap_or((name, "2000-01-01"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = date.split('-').map(str::len).eq([4, 2, 2]) && date.split('-').all(is_number);
    let is_version = name.contains('.') && name.split('.').all(is_number);
    is_version || is_date && is_among("stable beta nightly", channel)
}
