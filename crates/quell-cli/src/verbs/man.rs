//! `quell man`: the manual pages, from the same words as the help.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use quell::Error;

use super::fail;
use crate::args::{self, ManArgs};
use crate::output;

/// Writes quell.1 and one page for each verb.
pub fn man(args: &ManArgs) -> ExitCode {
    match write_all(&args.dir) {
        Ok(pages) => {
            let said: String = pages.into_iter().map(|page| page + "\n").collect();
            output::to_stdout(&said).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("man", false, &error),
    }
}

fn write_all(dir: &Path) -> Result<Vec<String>, Error> {
    fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    let mut names = vec![write(dir, &command, "quell")?];
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        names.push(write(dir, verb, &format!("quell-{}", verb.get_name()))?);
        for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            names.push(write(dir, inner, &format!("quell-{}-{}", verb.get_name(), inner.get_name()))?);
        }
    }
    Ok(names)
}

fn write(dir: &Path, command: &Command, name: &str) -> Result<String, Error> {
    let path = dir.join(format!("{name}.1"));
    page(command).and_then(|page| replace(&path, &page)).map_err(Error::io(&path))?;
    Ok(path.display().to_string())
}

/// Writes a new file. A link is replaced; its target is not changed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("1.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(bytes).and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone()).source(concat!("quell ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend(sections(&help).into_bytes());
    Ok(page)
}

/// The paragraphs below the options: exit codes and examples are sections of their own.
fn sections(help: &str) -> String {
    let [mut notes, mut codes, mut examples] = [const { String::new() }; 3];
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        if let Some(text) = paragraph.strip_prefix("Examples:") {
            examples += &format!(".nf\n{}\n.fi\n", escaped(text.trim_start_matches('\n')));
        } else if let Some(text) = paragraph.strip_prefix("Exit codes") {
            // The text before the colon is about all of them.
            let (title, table) = text.split_once(":\n").unwrap_or(("", text));
            let title = title.trim_start_matches([',', ' ']);
            if !title.is_empty() {
                codes += &format!("{}:\n", escaped(title));
            }
            codes += &format!(".nf\n{}\n.fi\n", escaped(table));
        } else {
            notes += &format!(".PP\n{}\n", escaped(paragraph));
        }
    }
    let section = |title: &str, text: &str| {
        if text.is_empty() { String::new() } else { format!(".SH {title}\n{text}") }
    };
    section("NOTES", &notes) + &section("\"EXIT STATUS\"", &codes) + &section("EXAMPLES", &examples)
}

/// Text in which roff finds no commands.
fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_exit_codes_are_sections() {
        let text = sections("Some words.\n\nExit codes, of all:\n  0  yes\n\nExamples:\n  quell x --y\n  .z");
        let wanted = ".SH NOTES\n.PP\nSome words.\n.SH \"EXIT STATUS\"\nof all:\n.nf\n  0  yes\n.fi\n.SH EXAMPLES\n.nf\n  quell x \\-\\-y\n  .z\n.fi\n";
        assert_eq!(text, wanted);
        assert_eq!(escaped(".a\\b"), "\\&.a\\eb");
    }
}
