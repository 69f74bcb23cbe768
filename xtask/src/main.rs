//! `cargo xtask`: tools for maintainers; not a part of the product.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod bench;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod samples;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask bench [OPTIONS]   measure quell beside its peers; docs/benchmarks gets the results

  --rounds N      rounds of each row [30]
  --only ROW      this row only; may be given many times. What is known of the others is kept
  --quick         5 rounds, less output, fewer jobs and processes: for a look, not for a record
  --no-install    take the peers that are there already, install none
  --no-build      take the release that is there already
  --peers DIR     where peers are installed [target/bench-peers]
  --out DIR       where results go [docs/benchmarks]
  --rows          say which rows there are, and end
  --report        write the table and the plots again from results.json, and end

cargo xtask compare [--no-install] [--no-build] [--peers DIR]
                              stop misbehaving programs with quell and its peers, and count what is left alive;
                              README.md gets the table

cargo xtask cost [--bless]    count the instructions and system calls of some verbs, against xtask/cost.json
                              (needs valgrind and strace; QUELL_BIN is what is counted [target/quell, as ./build leaves it])

cargo xtask samples [--check] run the commands of each console block in README.md and docs/, and write what they print;
                              --check only compares (QUELL_BIN is what is run [target/quell])";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        #[cfg(target_os = "linux")]
        Some(task @ ("bench" | "compare" | "cost" | "samples")) => {
            let words: Vec<String> = words.collect();
            let done = match task {
                "bench" => bench::main(words),
                "compare" => compare::main(words),
                "samples" => samples::main(&words),
                _ => cost::main(&words),
            };
            done.unwrap_or_else(|why| {
                eprintln!("xtask: {why}");
                ExitCode::FAILURE
            })
        }
        #[cfg(not(target_os = "linux"))]
        Some("bench" | "compare" | "cost" | "samples") => {
            eprintln!("xtask: quell runs jobs on Linux only, so that there is nothing to measure here");
            ExitCode::FAILURE
        }
        Some("help" | "-h" | "--help") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
