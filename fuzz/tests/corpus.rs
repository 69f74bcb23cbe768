//! Every target over its kept corpus and a bounded number of mutations; what a long run has found stays here as a file.
#![cfg(target_os = "linux")]

use quell_fuzz::{fuzz, targets};

/// How many times its share each target is tried: `QUELL_FUZZ_ROUNDS`.
fn rounds() -> u64 {
    std::env::var("QUELL_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn whatever_is_read_is_survived() {
    for target in targets::ALL {
        let enough = target.share * rounds();
        match fuzz(target, 1, |tried| tried >= enough) {
            Ok(tried) => {
                println!("{}: {tried} inputs", target.name);
                assert!(tried > enough, "{} has no corpus", target.name);
            }
            Err(finding) => panic!(
                "{}: {} (seed {:?}): {}",
                finding.target,
                finding.why,
                finding.seed,
                String::from_utf8_lossy(&finding.input)
            ),
        }
    }
}
