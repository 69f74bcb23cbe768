//! The words of the command line.

use std::path::PathBuf;

/// What is to be done.
pub struct Options {
    /// How often each contender runs.
    pub rounds: usize,
    /// The rows; none means all.
    pub only: Vec<String>,
    /// Less of everything, and nothing that takes minutes and gigabytes.
    pub quick: bool,
    /// Whether peers that are missing are installed.
    pub install: bool,
    /// Whether the release is built.
    pub build: bool,
    /// Where peers are.
    pub peers: PathBuf,
    /// Where results go.
    pub out: PathBuf,
    /// Only name the rows.
    pub rows: bool,
    /// Only write the report again.
    pub report: bool,
}

impl Options {
    pub fn parse(words: Vec<String>) -> Result<Self, String> {
        let root = super::root();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let mut options = Self {
            rounds: 0,
            only: Vec::new(),
            quick: false,
            install: true,
            build: true,
            peers: target.join("bench-peers"),
            out: root.join("docs/benchmarks"),
            rows: false,
            report: false,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => {
                    let text = value()?;
                    options.rounds = text.parse().map_err(|why| format!("--rounds {text}: {why}"))?;
                }
                "--only" => options.only.push(value()?),
                "--peers" => options.peers = absolute(value()?)?,
                "--out" => options.out = absolute(value()?)?,
                "--quick" => options.quick = true,
                "--no-install" => options.install = false,
                "--no-build" => options.build = false,
                "--rows" => options.rows = true,
                "--report" => options.report = true,
                _ => return Err(format!("{word}: unknown; `cargo xtask help` says what there is")),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 5 } else { 30 };
        }
        Ok(options)
    }
}

fn absolute(path: String) -> Result<PathBuf, String> {
    std::path::absolute(&path).map_err(|why| format!("{path}: {why}"))
}
