//! Fuzzing of everything in quell that parses: a mutating fuzzer of our own, which needs nothing but the stable compiler.
//!
//! Each target (`targets/`) is a function of bytes that asserts more than "no panic". The same functions run over the kept
//! corpus and a bounded number of mutations as a test, and for as long as you like by `cargo run -p quell-fuzz`. See
//! `docs/reliability/fuzzing.md`.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod mutate;
pub mod targets;

use std::fs;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mutate::Mutator;
use targets::Target;

/// How long one input may take before that is a finding: none of the parsers has a reason to take a hundredth of it.
const TOO_LONG: Duration = Duration::from_secs(5);

/// An input that a target did not survive.
#[derive(Debug)]
pub struct Finding {
    /// Which target.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub why: String,
    /// By which seed it is made again; none if it is in the corpus.
    pub seed: Option<u64>,
}

/// Where the corpus of `target` is kept.
pub fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The kept inputs of `target`, in the order of their names.
pub fn corpus(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(corpus_dir(target))? {
        paths.push(entry?.path());
    }
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Ends the process if one input takes for ever, and says which it was: that is a finding that can't be returned.
struct Watchdog {
    tried: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Watchdog {
    fn start(target: &'static str, seed: u64) -> Self {
        let this = Self { tried: Arc::default(), over: Arc::default() };
        let (tried, over) = (Arc::clone(&this.tried), Arc::clone(&this.over));
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while !over.load(Ordering::Relaxed) {
                // Nothing is waited for here; it is looked whether something goes on.
                std::thread::sleep(Duration::from_millis(200));
                let now = tried.load(Ordering::Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > 4 * TOO_LONG {
                    eprintln!("{target}: the input of seed {} takes for ever", seed.wrapping_add(now));
                    std::process::exit(3);
                }
            }
        });
        this
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Gives one input to a target.
fn try_one(target: &Target, input: &[u8]) -> Result<(), String> {
    let began = Instant::now();
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if began.elapsed() > TOO_LONG {
        return Err(format!("it took {:?}", began.elapsed()));
    }
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
    })
}

/// Runs `target` over its corpus, then over mutations until `enough` says so of their number; how many inputs that were.
pub fn fuzz(target: &Target, seed: u64, enough: impl Fn(u64) -> bool) -> Result<u64, Box<Finding>> {
    let finding =
        |input: &[u8], why, seed| Box::new(Finding { target: target.name, input: input.to_vec(), why, seed });
    let corpus = corpus(target.name).map_err(|error| finding(b"", format!("no corpus: {error}"), None))?;
    for input in &corpus {
        try_one(target, input).map_err(|why| finding(input, why, None))?;
    }
    let mut tried = 0;
    let watchdog = Watchdog::start(target.name, seed);
    while !enough(tried) {
        // Each input has a seed of its own, so that it can be made again alone.
        let this = seed.wrapping_add(tried);
        let input = Mutator::new(this).make(&corpus, target.words);
        try_one(target, &input).map_err(|why| finding(&input, why, Some(this)))?;
        tried += 1;
        watchdog.tried.store(tried, Ordering::Relaxed);
    }
    Ok(corpus.len() as u64 + tried)
}
