//! `quell doctor`: what this host can do.

use std::fmt::Write;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
use quell::binary::Ability;
use quell::binary::Doctor;

use crate::args::DoctorArgs;
use crate::output;

/// Tests the host and prints the result; exit code 1 if only the weakest level is available.
pub fn doctor(args: &DoctorArgs) -> ExitCode {
    let found = found();
    let text =
        if args.json { format!("{}\n", quell::binary::success("doctor", &found)) } else { describe(&found) };
    // The reaper is the first of them, and always available.
    let strong = found.containments.len() > 1;
    let verdict = if strong { ExitCode::SUCCESS } else { ExitCode::from(1) };
    output::to_stdout(&text).unwrap_or(verdict)
}

/// What the host can do, and what `quell setup` has written.
fn found() -> Doctor {
    let found = quell::binary::doctor();
    #[cfg(target_os = "linux")]
    let found = {
        let mut found = found;
        let setups = super::setup::installed().into_iter();
        found.abilities.extend(setups.map(|(name, ok, detail)| Ability { name, ok, detail }));
        found
    };
    found
}

/// Text that is folded at the width of the terminal, with further lines below the first.
#[cfg(target_os = "linux")]
fn wrapped(text: &str, indent: usize) -> String {
    match crate::render::columns_of(&std::io::stdout()) {
        Some(columns) if columns > indent => {
            crate::render::wrap(text, columns - indent).join(&format!("\n{}", " ".repeat(indent)))
        }
        _ => text.to_owned(),
    }
}

#[cfg(not(target_os = "linux"))]
fn wrapped(text: &str, _indent: usize) -> String {
    text.to_owned()
}

fn describe(found: &Doctor) -> String {
    let mut text = format!("{}\n\n", found.system);
    let width = found.abilities.iter().map(|ability| ability.name.len()).max().unwrap_or(0);
    for ability in &found.abilities {
        let mark = if ability.ok { "yes" } else { "no " };
        let indent = 2 + 3 + 2 + width + 2;
        let detail = wrapped(&ability.detail, indent);
        let _ = writeln!(text, "  {mark}  {:width$}  {detail}", ability.name);
    }
    let list: Vec<&str> = found.containments.iter().map(|held| held.as_str()).collect();
    let _ = writeln!(text, "\nheld by: {}", if list.is_empty() { "nothing".into() } else { list.join(", ") });
    match &found.auto {
        Some(held) => {
            let _ = writeln!(text, "`--contain auto` takes: {}", held.as_str());
            let _ = writeln!(text, "what could defeat it:");
            for way in &found.defeated_by {
                let _ = writeln!(text, "  - {}", wrapped(way, 4));
            }
        }
        None => {
            let _ = writeln!(text, "no job can be run here");
        }
    }
    text
}
