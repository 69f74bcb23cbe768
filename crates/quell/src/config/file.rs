//! One file: from its text to checked settings, hooks and trusted directories, each with its line.

use std::ops::Range;
use std::path::{Path, PathBuf};

use quell_core::Hook;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::guard::{self, Said};
use super::hooks;
use super::keys::{Form, KEYS, Key, Problem, SECTIONS};
use super::source::Layer;
use super::{Config, find, suggest};
use crate::Error;

/// What a file says. Every text in it can be read.
#[derive(Default)]
pub(crate) struct Settings {
    pub values: Vec<Setting>,
    pub hooks: Vec<(Hook, usize)>,
    pub guard: Vec<Said>,
    /// The directories that the user trusts, and the line where that is said.
    pub trusted: Option<(Vec<PathBuf>, usize)>,
}

/// A setting as a file gives it.
pub(crate) struct Setting {
    pub key: &'static Key,
    pub text: String,
    pub line: usize,
}

/// A file in the midst of being read, with all that is wrong with it.
pub(crate) struct Reader<'f> {
    pub path: &'f Path,
    pub layer: Layer,
    /// What `~` is.
    pub home: Option<&'f Path>,
    /// Whether it is a file about nothing but the guard.
    guard_only: bool,
    text: &'f str,
    problems: Vec<(usize, Problem)>,
}

/// Reads the text of a file; of several problems the first is told, with the lines of the others.
pub(crate) fn parse(path: &Path, layer: Layer, home: Option<&Path>, text: &str) -> Result<Settings, Error> {
    let guard_only = path.file_name().is_some_and(|name| name == find::GUARD_FILE);
    let mut reader = Reader { path, layer, home, guard_only, text, problems: Vec::new() };
    let settings = match DeTable::parse(text) {
        Ok(document) => reader.document(document.get_ref()),
        Err(error) => {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            let problem = Problem::new(message, "see https://toml.io for how TOML is written");
            // Without a place it is the end that is missing something.
            reader.report(error.span().unwrap_or(text.len()..text.len()), problem);
            Settings::default()
        }
    };
    reader.verdict().map(|()| settings)
}

impl Reader<'_> {
    /// Notes that something is wrong there.
    pub(crate) fn report(&mut self, span: Range<usize>, problem: Problem) {
        let line = self.line(&span);
        self.problems.push((line, problem));
    }

    /// The line where that begins, from 1 on.
    pub(crate) fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn verdict(mut self) -> Result<(), Error> {
        self.problems.sort_by_key(|(line, _)| *line);
        let mut problems = self.problems.into_iter();
        let Some((line, Problem { mut message, hint })) = problems.next() else { return Ok(()) };
        let more: Vec<String> = problems.map(|(line, _)| line.to_string()).collect();
        if !more.is_empty() {
            message += &format!(" (more is wrong in line {})", more.join(", "));
        }
        let hint = if hint.is_empty() { "docs/config.md lists all settings".into() } else { hint };
        Err(Error::Config { file: self.path.to_owned(), line, message, hint })
    }

    fn document(&mut self, document: &DeTable<'_>) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in document {
            match name.get_ref().as_ref() {
                "hooks" => settings.hooks = hooks::read(self, value),
                "guard" => settings.guard = guard::read(self, value),
                _ if self.layer == Layer::Machine || self.guard_only => {
                    let hint = "what is not about the guard belongs into config.toml or quell.toml";
                    self.report(
                        name.span(),
                        Problem::new(format!("`{}` in a guard.toml", name.get_ref()), hint),
                    );
                }
                "trust" => settings.trusted = self.trust(name, value),
                section if SECTIONS.contains(&section) => self.section(section, value, &mut settings.values),
                unknown => {
                    let problem = unknown_table(unknown, value.get_ref());
                    self.report(name.span(), problem);
                }
            }
        }
        settings
    }

    /// The table that this is, or a report that it is none.
    pub(crate) fn table<'v, 'i>(
        &mut self,
        name: &str,
        value: &'v Spanned<DeValue<'i>>,
    ) -> Option<&'v DeTable<'i>> {
        if let DeValue::Table(table) = value.get_ref() {
            return Some(table);
        }
        let message = format!("`{name}` must be a table, not {}", kind(value.get_ref()));
        self.report(value.span(), Problem::new(message, format!("write [{name}] in a line of its own")));
        None
    }

    fn section(&mut self, section: &str, value: &Spanned<DeValue<'_>>, values: &mut Vec<Setting>) {
        let Some(table) = self.table(section, value) else { return };
        for (name, value) in table {
            let Some(key) = KEYS.iter().find(|key| key.section == section && key.name == name.get_ref())
            else {
                let problem = unknown_key(section, name.get_ref());
                self.report(name.span(), problem);
                continue;
            };
            let line = self.line(&name.span());
            match text(key, value.get_ref()).and_then(|text| check(key, &text).map(|()| text)) {
                Ok(text) => values.push(Setting { key, text, line }),
                Err(Problem { message, hint }) => {
                    let hint = if hint.is_empty() { format!("such as {}", key.example()) } else { hint };
                    let problem = Problem::new(format!("{}: {message}", key.full()), hint);
                    self.report(value.span(), problem);
                }
            }
        }
    }

    fn trust(
        &mut self,
        name: &Spanned<impl Sized>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(Vec<PathBuf>, usize)> {
        if self.layer == Layer::Project {
            let hint = "put it into your own file, and remove it from this one";
            self.report(name.span(), Problem::new("[trust] in a project: it can't trust itself", hint));
            return None;
        }
        let mut trusted = None;
        for (name, value) in self.table("trust", value)? {
            if name.get_ref() != "projects" {
                let message = format!("unknown key `{}` in [trust]", name.get_ref());
                let hint = suggest::hint(name.get_ref(), "keys", ["projects"]);
                self.report(name.span(), Problem::new(message, hint));
                continue;
            }
            let line = self.line(&name.span());
            trusted = Some((self.directories(value), line));
        }
        trusted
    }

    fn directories(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<PathBuf> {
        let example = "such as projects = [\"/home/me/web\", \"~/api\"]";
        let Some(entries) = strings(value.get_ref()) else {
            let message =
                format!("trust.projects: must be a list of directories, not {}", kind(value.get_ref()));
            self.report(value.span(), Problem::new(message, example));
            return Vec::new();
        };
        let mut directories = Vec::new();
        for entry in entries {
            match find::expand(entry, self.home) {
                Some(path) if path.is_absolute() => directories.push(path),
                Some(_) | None => {
                    let message = format!("trust.projects: `{entry}` is no absolute path");
                    self.report(value.span(), Problem::new(message, example));
                }
            }
        }
        directories
    }
}

/// Whether a text can be read as the value of this key.
pub(crate) fn check(key: &Key, text: &str) -> Result<(), Problem> {
    (key.set)(&mut Config::default(), text)
}

fn unknown_table(name: &str, value: &DeValue<'_>) -> Problem {
    let owner = KEYS.iter().find(|key| key.name == name);
    match (value, owner) {
        (DeValue::Table(_), _) | (_, None) => {
            let what = if matches!(value, DeValue::Table(_)) { "table" } else { "key" };
            let known = SECTIONS.into_iter().chain(["guard", "hooks", "trust"]);
            Problem::new(format!("unknown {what} `{name}`"), suggest::hint(name, "tables", known))
        }
        (_, Some(key)) => {
            Problem::new(format!("`{name}` is in no table"), format!("put it below [{}]", key.section))
        }
    }
}

fn unknown_key(section: &str, name: &str) -> Problem {
    let known = KEYS.iter().filter(|key| key.section == section).map(|key| key.name);
    let elsewhere = KEYS.iter().find(|key| key.name == name);
    let hint = match (suggest::nearest(name, known.clone()), elsewhere) {
        (None, Some(key)) => format!("it belongs into [{}]", key.section),
        (Some(_), _) | (None, None) => suggest::hint(name, "keys", known),
    };
    Problem::new(format!("unknown key `{name}` in [{section}]"), hint)
}

/// The value as text, if it has the type that its key wants.
fn text(key: &Key, value: &DeValue<'_>) -> Result<String, Problem> {
    let wrong = |wanted: &str| Problem::new(format!("must be {wanted}, not {}", kind(value)), "");
    match (key.form, value) {
        (Form::Text, DeValue::String(text)) => Ok(text.to_string()),
        (Form::Text, _) => Err(wrong("a string")),
        (Form::Flag, DeValue::Boolean(flag)) => Ok(flag.to_string()),
        (Form::Flag, _) => Err(wrong("true or false")),
        // A number in another base is no number of things.
        (Form::Count, DeValue::Integer(number)) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        (Form::Count, DeValue::String(word)) if word == "none" => Ok("none".to_owned()),
        (Form::Count, _) => Err(wrong("a whole number or \"none\"")),
        (Form::Words, _) => match strings(value) {
            Some(words) => match words.iter().find(|word| word.is_empty() || word.contains(',')) {
                Some(bad) => Err(Problem::new(format!("`{bad}` is no name"), "")),
                None => Ok(words.join(",")),
            },
            None => Err(wrong("a list of strings")),
        },
    }
}

/// A list of strings, if it is one.
pub(crate) fn strings<'v>(value: &'v DeValue<'_>) -> Option<Vec<&'v str>> {
    value.as_array()?.iter().map(|entry| entry.get_ref().as_str()).collect()
}

/// What a value is, in words.
pub(crate) fn kind(value: &DeValue<'_>) -> String {
    let word = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with decimals",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(list) => {
            // A list is always wanted with strings in it: what else there is is what is wrong with it.
            let other = list.iter().map(|entry| entry.get_ref()).find(|entry| entry.as_str().is_none());
            return other.map_or("a list".into(), |other| format!("a list with {} in it", kind(other)));
        }
        DeValue::Table(_) => "a table",
    };
    word.to_owned()
}
