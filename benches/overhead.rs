//! What `quell run -- true` costs beside `timeout 5 true`, in one run, interleaved, as a ratio of medians.
//!
//! `cargo build --release -p quell-cli && cargo bench -p quell-tests`. Rounds: QUELL_BENCH_ROUNDS (300).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let rounds = std::env::var("QUELL_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let quell = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/quell");
    let home = std::env::temp_dir().join(format!("quell-bench-{}", std::process::id()));
    let quell = quell.to_string_lossy().into_owned();
    let rivals: [(&str, Vec<&str>); 6] = [
        ("true", vec!["true"]),
        ("timeout 5 true", vec!["timeout", "5", "true"]),
        ("quell run -- true", vec![&quell, "run", "--", "true"]),
        ("  --contain reaper", vec![&quell, "run", "--contain", "reaper", "--", "true"]),
        (
            "  --contain reaper --no-record",
            vec![&quell, "run", "--contain", "reaper", "--no-record", "--", "true"],
        ),
        ("  --contain pidns", vec![&quell, "run", "--contain", "pidns", "--", "true"]),
    ];
    let mut times = vec![Vec::with_capacity(rounds); rivals.len()];
    // Interleaved, so that a busy moment of the machine falls on all of them.
    for _ in 0..rounds {
        for ((_, words), times) in rivals.iter().zip(&mut times) {
            times.push(time(words, &home));
        }
    }
    let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
    println!("{rounds} rounds, medians beside `timeout 5 true`:");
    for ((name, _), median) in rivals.iter().zip(&medians) {
        let ratio = median.as_secs_f64() / medians[1].as_secs_f64();
        println!("{name:32} {:7.2} ms  × {ratio:.2}", median.as_secs_f64() * 1e3);
    }
    let _ = std::fs::remove_dir_all(home);
}

fn time(words: &[&str], home: &Path) -> Duration {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("QUELL_HOME", home).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status();
    let elapsed = start.elapsed();
    match status {
        Ok(status) if status.success() => elapsed,
        // A host that can't give a containment has no time for it.
        Ok(_) | Err(_) => Duration::ZERO,
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
