//! One file: from its text to checked settings, hooks and trusted directories, each with its line.
//!
//! The document is a tree of `toml::Spanned` keys and values: one walk finds the key of each entry, serde reads its value.

use std::ops::Range;
use std::path::{Path, PathBuf};

use quell_core::Hook;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error as TomlError, ValueDeserializer};

use super::keys::{KEYS, Key, Problem, SECTIONS};
use super::origin::Layer;
use super::{find, guard, hooks, suggest};
use crate::Error;

/// The checked contents of a file.
#[derive(Default)]
pub(crate) struct Settings {
    pub values: Vec<Setting>,
    pub hooks: Vec<(Hook, usize)>,
    pub guard: Vec<guard::Rule>,
    /// The directories in `[trust] projects`, and the line of that key.
    pub trusted: Option<(Vec<PathBuf>, usize)>,
}

/// A setting with its line.
pub(crate) struct Setting {
    pub key: &'static Key,
    pub text: String,
    pub line: usize,
}

/// A file that is being read, and the problems found so far.
struct Reader<'f> {
    path: &'f Path,
    layer: Layer,
    /// The directory that `~` stands for.
    home: Option<&'f Path>,
    text: &'f str,
    problems: Vec<(usize, Problem)>,
    settings: Settings,
}

/// Reads the text of a file. The error describes the first problem and lists the lines of the others.
pub(crate) fn parse(path: &Path, layer: Layer, home: Option<&Path>, text: &str) -> Result<Settings, Error> {
    let (problems, settings) = (Vec::new(), Settings::default());
    let mut reader = Reader { path, layer, home, text, problems, settings };
    match DeTable::parse(text) {
        Ok(document) => reader.table("", document.into_inner()),
        Err(error) => {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            // A syntax error without a position means that the file ends too early.
            let span = error.span().unwrap_or(text.len()..text.len());
            reader.report(&span, Problem::new(message, "see https://toml.io for how TOML is written"));
        }
    }
    reader.finish()
}

/// Reads a value with serde.
pub(crate) fn read<'d, T: Deserialize<'d>>(value: Spanned<DeValue<'d>>) -> Result<T, Problem> {
    T::deserialize(ValueDeserializer::from(value)).map_err(|error: TomlError| {
        let (message, hint) = reword(error.message());
        // serde does not know the text of the document here, so the last line of its message names the key below this value.
        let shown = error.to_string();
        let key = shown.trim_end().rsplit_once("\nin `").map_or("", |(_, key)| key.trim_end_matches('`'));
        Problem { span: error.span(), ..Problem::new(message, hint).below(key) }
    })
}

/// Reads one word of an enum.
pub(crate) fn variant<'d, T: Deserialize<'d>>(text: &'d str) -> Result<T, Problem> {
    let word = IntoDeserializer::<TomlError>::into_deserializer(text);
    T::deserialize(word)
        .map_err(|error| reword(error.message()))
        .map_err(|(message, hint)| Problem::new(message, hint))
}

/// Rewrites a message of serde, and adds a hint if the message is about an unknown word.
fn reword(message: &str) -> (String, String) {
    let mut words = message.split('`').skip(1).step_by(2);
    let word = words.next().unwrap_or_default();
    let known: Vec<&str> = words.collect();
    if message.starts_with("unknown field") {
        (format!("unknown key `{word}`"), suggest::hint(word, "keys", known))
    } else if message.starts_with("unknown variant") {
        (format!("`{word}` is none of {}", known.join(", ")), suggest::did_you_mean(word, known))
    } else if let Some((found, wanted)) = message.split_once(", expected ") {
        let found = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
        let wanted = match wanted {
            "a sequence" => "a list of strings",
            "a boolean" => "true or false",
            "u32" => "a whole number from 0 on",
            wanted => wanted,
        };
        (format!("must be {wanted}, not {}", found.replace("sequence", "a list")), String::new())
    } else {
        (message.to_owned(), String::new())
    }
}

impl Reader<'_> {
    fn report(&mut self, span: &Range<usize>, problem: Problem) {
        let line = self.line(problem.span.as_ref().unwrap_or(span));
        self.problems.push((line, problem));
    }

    /// The line of a position, starting at 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn finish(mut self) -> Result<Settings, Error> {
        self.problems.sort_by_key(|(line, _)| *line);
        let mut problems = self.problems.into_iter();
        let Some((line, problem)) = problems.next() else { return Ok(self.settings) };
        let (mut message, hint) = problem.shown();
        let more: Vec<String> = problems.map(|(line, _)| line.to_string()).collect();
        if !more.is_empty() {
            message += &format!(" (more is wrong in line {})", more.join(", "));
        }
        Err(Error::Config { file: self.path.to_owned(), line, message, hint })
    }

    fn table(&mut self, above: &str, table: DeTable<'_>) {
        for (name, value) in table {
            let (place, span) = (name.span(), value.span());
            let name = name.into_inner();
            let key = if above.is_empty() { name.into_owned() } else { format!("{above}.{name}") };
            let line = self.line(&place);
            if let Some(problem) = self.misplaced(&key, value.get_ref()) {
                self.report(&place, problem);
            } else if let Err(problem) = self.entry(&key, line, value) {
                self.report(&span, problem.below(&key));
            }
        }
    }

    /// Checks that an entry with this full name is allowed in this file.
    fn misplaced(&self, key: &str, value: &DeValue<'_>) -> Option<Problem> {
        let about_guard = ["guard", "hooks"].contains(&key) || key.contains('.');
        let guard_only = self.path.file_name().is_some_and(|name| name == find::GUARD_FILE);
        if (guard_only || self.layer == Layer::Machine) && !about_guard {
            let hint = "what is not about the guard belongs into config.toml or quell.toml";
            return Some(Problem::new(format!("`{key}` in a guard.toml"), hint));
        }
        if key == "trust" && self.layer == Layer::Project {
            let hint = "put it into your own file, and remove it from this one";
            return Some(Problem::new("[trust] in a project: it can't trust itself", hint));
        }
        let is_table = matches!(value, DeValue::Table(_));
        match key {
            "hooks" if !matches!(value, DeValue::Array(_)) => {
                Some(Problem::new("`hooks` must be a list of tables", "write [[hooks]], with two brackets"))
            }
            _ if tables().any(|table| table == key) && !is_table => Some(Problem::new(
                format!("`{key}` must be a table"),
                format!("write [{key}] in a line of its own"),
            )),
            _ if known().chain(tables()).any(|known| known == key) => None,
            _ => Some(unknown(key, is_table)),
        }
    }

    /// Reads an entry with a known name.
    fn entry(&mut self, key: &str, line: usize, value: Spanned<DeValue<'_>>) -> Result<(), Problem> {
        if let Some(key) = KEYS.iter().find(|known| known.full == key) {
            let text = key.form.text(value)?;
            key.check(&text)?;
            self.settings.values.push(Setting { key, text, line });
        } else if let Some((key, form)) = guard::KEYS.iter().find(|(known, _)| *known == key) {
            self.settings.guard.push(guard::Rule { key, value: form.read(value)?, line });
        } else if key == "trust.projects" {
            let words: Vec<String> = read(value)?;
            let directory = |word: String| match find::expand(&word, self.home) {
                Some(path) if path.is_absolute() => Ok(path),
                Some(_) | None => Err(Problem::new(format!("`{word}` is not an absolute path"), "")),
            };
            let directories = words.into_iter().map(directory).collect::<Result<_, _>>()?;
            self.settings.trusted = Some((directories, line));
        } else {
            match value.into_inner() {
                DeValue::Table(table) => self.table(key, table),
                DeValue::Array(hooks) => hooks.into_iter().for_each(|hook| self.hook(hook)),
                _ => {}
            }
        }
        Ok(())
    }

    fn hook(&mut self, hook: Spanned<DeValue<'_>>) {
        let (span, line) = (hook.span(), self.line(&hook.span()));
        match hooks::read(hook, self.path, self.home) {
            Ok(hook) => self.settings.hooks.push((hook, line)),
            Err(problem) => self.report(&span, problem),
        }
    }
}

/// All tables with known keys.
fn tables() -> impl Iterator<Item = &'static str> + Clone {
    SECTIONS.into_iter().chain(["guard", "guard.kill", "guard.service", "guard.test", "trust"])
}

/// All keys with their tables.
fn known() -> impl Iterator<Item = &'static str> + Clone {
    let settings = KEYS.iter().map(|key| key.full);
    settings.chain(guard::KEYS.iter().map(|(key, _)| *key)).chain(["hooks", "trust.projects"])
}

fn unknown(key: &str, is_table: bool) -> Problem {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let owner = KEYS.iter().find(|known| known.name() == name).map(Key::section);
    if table.is_empty() {
        let what = if is_table { "table" } else { "key" };
        return match owner.filter(|_| !is_table) {
            Some(owner) => {
                Problem::new(format!("`{name}` is in no table"), format!("put it below [{owner}]"))
            }
            None => {
                let tables = SECTIONS.into_iter().chain(["guard", "hooks", "trust"]);
                Problem::new(format!("unknown {what} `{name}`"), suggest::hint(name, "tables", tables))
            }
        };
    }
    let here = known().chain(tables()).filter_map(|known| known.strip_prefix(table)?.strip_prefix('.'));
    let here: Vec<&str> = here.filter(|name| !name.contains('.')).collect();
    let hint = match (suggest::nearest(name, here.iter().copied()), owner) {
        (None, Some(owner)) => format!("it belongs into [{owner}]"),
        (Some(_), _) | (None, None) => suggest::hint(name, "keys", here),
    };
    Problem::new(format!("unknown key `{name}` in [{table}]"), hint)
}
