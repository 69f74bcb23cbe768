//! quell: start anything, stop everything. Each verb has a file of its own; errors.rs has hints and exit codes.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "what is read is not carried out there yet")
)]

#[cfg(target_os = "linux")]
mod agent_shell;
mod args;
mod errors;
#[cfg(target_os = "linux")]
mod open_line;
mod output;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(target_os = "linux")]
mod render;
#[cfg_attr(target_os = "linux", path = "verbs/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "unsupported.rs")]
mod verbs;

use std::process::ExitCode;

use args::Parsed;

// musl's own allocator takes three times as many pages, and each page costs a page fault.
#[cfg(all(target_os = "linux", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The smallest stack, in bytes, on which every verb works. Code that is not optimized needs more.
const STACK: u64 = if cfg!(debug_assertions) { 1024 * 1024 } else { 256 * 1024 };

fn main() -> ExitCode {
    if let Some(limit) = quell::binary::stack_limit().filter(|limit| *limit < STACK) {
        // Before anything that needs more: an overflow is an abort.
        return too_small(limit);
    }
    begin()
}

fn too_small(limit: u64) -> ExitCode {
    let message = format!("the stack limit of {} KiB is too small", limit / 1024);
    let hint = format!("allow at least {} KiB: `ulimit -s {0}`", STACK / 1024);
    let error = errors::said("system", message, hint);
    let words: Vec<_> = std::env::args_os().collect();
    let verb = words.get(1).map_or_else(|| "quell".into(), |verb| verb.to_string_lossy());
    output::fail(&verb, args::wants_json(&words), errors::exit::FAILED, &error)
}

/// The words of the command line.
fn words() -> Vec<std::ffi::OsString> {
    #[cfg(target_os = "linux")]
    return agent_shell::words();
    #[cfg(not(target_os = "linux"))]
    return std::env::args_os().collect();
}

#[inline(never)]
fn begin() -> ExitCode {
    if let Some(how) = quell::binary::raised_rights() {
        // Before anything from the caller is read: it would be used with rights that the caller does not have.
        eprintln!(
            "quell: won't run with more rights than its caller ({how}): remove that from the program file"
        );
        return ExitCode::from(125);
    }
    quell::binary::remember_user();
    // A file at its size limit is an error to report; the signal would kill this process.
    #[cfg(target_os = "linux")]
    quell::binary::ignore(quell::Signal::XFSZ);
    match args::parse(words()) {
        Parsed::Verb(verb) => verbs::carry_out(*verb),
        Parsed::Help(text) => output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS),
        Parsed::NoVerb(help) => {
            output::to_stderr(&help);
            ExitCode::from(2)
        }
        Parsed::Usage { verb, json, error } => {
            #[cfg(target_os = "linux")]
            output::hide_by_settings();
            output::fail(&verb, json, if matches!(verb.as_str(), "run" | "wrap") { 125 } else { 2 }, &error)
        }
    }
}
