//! Fuzz targets for everything in quell that parses.
//!
//! Each target (`targets/`) is a function of bytes that asserts more than "no panic". `cargo test -p quell-fuzz` gives it the
//! kept corpus. `fuzz/run` gives it new inputs, made by libFuzzer and guided by coverage. See `docs/reliability/fuzzing.md`.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod targets;

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where the corpus of `target` is kept.
pub fn corpus_dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The kept inputs of `target` with their names, in the order of the names.
pub fn corpus(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(corpus_dir(target))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}
