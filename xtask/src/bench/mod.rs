//! quell beside its peers, in one run: every round runs each contender of a row once, in changing order, so that a busy
//! moment of the machine falls on all of them. Nothing here fails because something was slow.

pub mod bench_env;
pub mod daemons;
mod halt;
pub mod options;
pub mod peers;
mod report;
mod row;
mod rows;
mod svg;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use bench_env::BenchEnv;
use options::Options;
use peers::Peers;

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// What a program prints as its first line, or nothing.
fn first_line(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).current_dir(root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn file_line(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.trim_start_matches(key).trim_matches([' ', '\t', ':', '\n']).to_owned()
}

/// What the figures depend on.
fn host() -> Value {
    let root = rustix::process::geteuid().is_root();
    json!({
        "date": first_line("date", &["-u", "+%F"]),
        "commit": first_line("git", &["rev-parse", "--short", "HEAD"]),
        "kernel": quell_sys::kernel_release(),
        "cpu": file_line("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, |cores| cores.get()),
        "memory": file_line("/proc/meminfo", "MemTotal"),
        "user": if root { "root" } else { "an ordinary user" },
        "load_at_start": file_line("/proc/loadavg", "").split(' ').next().unwrap_or_default(),
    })
}

/// Builds what is measured and says where it is.
pub fn build(options: &Options) -> Result<PathBuf, String> {
    if options.build {
        let build = root().join("build");
        let status = Command::new(&build).status().map_err(|why| format!("{}: {why}", build.display()))?;
        if !status.success() {
            return Err(format!("{}: {status}", build.display()));
        }
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let quell = target.join("quell");
    if quell.exists() { Ok(quell) } else { Err(format!("{}: not built", quell.display())) }
}

/// `cargo xtask bench`.
pub fn main(words: Vec<String>) -> Result<ExitCode, String> {
    let options = Options::parse(words)?;
    if options.rows {
        rows::ALL.iter().for_each(|(id, _)| println!("{id}"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = options.only.iter().find(|only| !rows::ALL.iter().any(|(id, _)| id == *only)) {
        return Err(format!("{unknown}: no such row; --rows says which there are"));
    }
    let mut results = report::load(&options.out);
    if options.report {
        report::write(&options.out, &results)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !halt::is_worker() {
        return halt::lead();
    }
    let host = host();
    let quell = build(&options)?;
    let peers = Peers::gather(&options);
    results["host"] = host;
    results["peers"] = peers.json();
    let mut broken_off = false;
    for (id, make) in rows::ALL {
        let wanted = options.only.is_empty() || options.only.iter().any(|only| only == id);
        if !wanted || broken_off {
            continue;
        }
        // An environment for each row: what one leaves in its home does not slow down the next one.
        let env = BenchEnv::new(&quell, &peers, &options)?;
        match make(&env) {
            Ok(rows) => {
                for row in rows {
                    match row.run(&options) {
                        Some(row) => report::take(&mut results, row),
                        None => broken_off = true,
                    }
                }
            }
            Err(why) => eprintln!("{id}: left out: {why}"),
        }
        for left in env.close() {
            eprintln!("{id}: {left}");
        }
        report::write(&options.out, &results)?;
    }
    Ok(if broken_off { ExitCode::from(130) } else { ExitCode::SUCCESS })
}
