//! A long run: `cargo run --release -p quell-fuzz -- [--seconds N] [--seed N] [TARGET...]`. A finding is written into the
//! corpus, and the run fails.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use quell_fuzz::{corpus_dir, fuzz, targets};

    let (mut seconds, mut seed, mut names) = (60, 1, Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = |value: Option<String>| value.and_then(|value| value.parse::<u64>().ok());
        match word.as_str() {
            "--seconds" | "--seed" => match number(words.next()) {
                Some(value) if word == "--seed" => seed = value,
                Some(value) => seconds = value,
                None => {
                    eprintln!("{word} needs a number");
                    return ExitCode::from(2);
                }
            },
            name => names.push(name.to_owned()),
        }
    }
    let chosen: Vec<_> = targets::ALL
        .iter()
        .filter(|target| names.is_empty() || names.iter().any(|name| name == target.name))
        .collect();
    if chosen.is_empty() {
        eprintln!(
            "no such target; there are {:?}",
            targets::ALL.iter().map(|target| target.name).collect::<Vec<_>>()
        );
        return ExitCode::from(2);
    }
    let share = Duration::from_secs(seconds) / chosen.len() as u32;
    let mut found = 0;
    for target in chosen {
        let began = Instant::now();
        match fuzz(target, seed, |_| began.elapsed() >= share) {
            Ok(tried) => {
                println!("{:12} {tried:>12} inputs in {:.1?}, seed {seed}", target.name, began.elapsed())
            }
            Err(finding) => {
                found += 1;
                println!("{:12} FOUND {} (seed {:?})", finding.target, finding.why, finding.seed);
                let path =
                    corpus_dir(finding.target).join(format!("found-{}", finding.seed.unwrap_or_default()));
                match std::fs::write(&path, &finding.input) {
                    Ok(()) => println!("{:12} kept as {}", "", path.display()),
                    Err(error) => println!("{:12} can't be kept: {error}", ""),
                }
            }
        }
    }
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
