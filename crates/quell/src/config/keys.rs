//! The table of all settings: name, default, form and reader.

use std::ops::Range;
use std::time::Duration;

use quell_core::{RestartPolicy, Signal, parse_duration, parse_size};
use toml::Spanned;
use toml::de::DeValue;

use super::{Config, hooks, settings_file, suggest};

/// How a setting is written in a file. In a variable everything is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number, or the string "none".
    Count,
    /// A list of strings; the lists of all layers add up. In a variable the strings are separated by commas.
    Words,
}

impl Form {
    /// The value of a file as text. An error if it has another form.
    pub(crate) fn text(self, value: Spanned<DeValue<'_>>) -> Result<String, Problem> {
        match self {
            Self::Text => settings_file::read(value),
            Self::Flag => settings_file::read(value).map(|flag: bool| flag.to_string()),
            Self::Count => match value.get_ref() {
                // A number in another base is not a count.
                DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
                DeValue::String(word) if word == "none" => Ok("none".to_owned()),
                _ => Err(plain("must be a whole number or \"none\"")),
            },
            Self::Words => {
                let words: Vec<String> = settings_file::read(value)?;
                match words.iter().find(|word| word.is_empty() || word.contains(',')) {
                    Some(bad) => Err(plain(format!("`{bad}` is not a name"))),
                    None => Ok(words.join(",")),
                }
            }
        }
    }
}

/// A problem with a value: message and hint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    pub message: String,
    /// Empty if the message already says what to do.
    pub hint: String,
    /// The key. Empty for a variable, or if the message names the key.
    pub key: String,
    /// The position in the file, if the problem is a part of the value.
    pub span: Option<Range<usize>>,
}

impl Problem {
    /// Message and hint are each made one line, whatever the user wrote.
    pub(crate) fn new(message: impl ToString, hint: impl ToString) -> Self {
        let (message, hint) = (one_line(&message.to_string()), one_line(&hint.to_string()));
        Self { message, hint, ..Self::default() }
    }

    /// The same problem with the name of the table in front of the key.
    pub(crate) fn below(mut self, table: &str) -> Self {
        let dot = if table.is_empty() || self.key.is_empty() { "" } else { "." };
        self.key = format!("{table}{dot}{}", self.key);
        self
    }

    /// The message with its key, and the hint.
    pub(crate) fn shown(self) -> (String, String) {
        let Self { message, hint, key, .. } = self;
        let hint = if hint.is_empty() { example(&key) } else { hint };
        (if key.is_empty() { message } else { format!("{key}: {message}") }, hint)
    }
}

/// The expected form of the key with this full name.
fn example(key: &str) -> String {
    let setting = KEYS.iter().find(|known| known.full == key).map(Key::example);
    let hook =
        hooks::EXAMPLES.iter().find(|(known, _)| *known == key).map(|(_, example)| (*example).to_owned());
    setting.or(hook).unwrap_or_else(|| {
        match key {
            "trust.projects" => "such as projects = [\"/home/me/web\", \"~/api\"]",
            key if key.starts_with("guard") => "docs/guard.md has an example of each",
            _ => "docs/config.md lists all settings",
        }
        .into()
    })
}

pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// One setting.
pub(crate) struct Key {
    /// The full name: `stop.grace`.
    pub full: &'static str,
    pub form: Form,
    /// The default as text, which [`Config::default`] parses.
    pub default: &'static str,
    /// Parses a text into its field. An error changes nothing.
    pub set: Set,
}

impl Key {
    pub(crate) fn section(&self) -> &'static str {
        self.full.split_once('.').map_or("", |(section, _)| section)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.full.split_once('.').map_or("", |(_, name)| name)
    }

    /// The variable: `QUELL_STOP_GRACE`.
    pub(crate) fn variable(&self) -> String {
        format!("QUELL_{}", self.full.replace('.', "_")).to_uppercase()
    }

    /// Durations are numbers of seconds in JSON.
    pub(crate) fn is_duration(&self) -> bool {
        self.form == Form::Text && parse_duration(self.default).is_ok()
    }

    /// Checks that a text is a valid value.
    pub(crate) fn check(&self, text: &str) -> Result<(), Problem> {
        (self.set)(&mut Config::unset(), text)
    }

    /// The expected form in a file.
    fn example(&self) -> String {
        let value = match self.form {
            Form::Text => format!("\"{}\"", self.default),
            Form::Flag => self.default.to_owned(),
            Form::Count => "10".to_owned(),
            Form::Words => "[\"API_TOKEN\"]".to_owned(),
        };
        format!("such as {} = {value}", self.name())
    }
}

/// The tables that hold settings.
pub(crate) const SECTIONS: [&str; 6] = ["stop", "start", "test", "gc", "ready", "attention"];

type Set = fn(&mut Config, &str) -> Result<(), Problem>;

const fn key(full: &'static str, form: Form, default: &'static str, set: Set) -> Key {
    Key { full, form, default, set }
}

/// All settings, in the order of `config show`.
pub(crate) const KEYS: &[Key] = &[
    key("stop.grace", Form::Text, "5s", |c, t| put(&mut c.stop.grace, duration(t))),
    key("stop.signal", Form::Text, "TERM", |c, t| put(&mut c.stop.signal, signal(t))),
    key("stop.verify", Form::Text, "10s", |c, t| put(&mut c.stop.verify, nonzero(t))),
    key("stop.ask", Form::Text, "tree", |c, t| put(&mut c.stop.ask, settings_file::variant(t))),
    key("start.max_log", Form::Text, "64M", |c, t| put(&mut c.start.max_log, log_size(t))),
    key("start.contain", Form::Text, "auto", |c, t| put(&mut c.start.contain, settings_file::variant(t))),
    key("start.until", Form::Text, "root", |c, t| put(&mut c.start.until, settings_file::variant(t))),
    key("start.wait_ready", Form::Text, "30s", |c, t| put(&mut c.start.wait_ready, nonzero(t))),
    key("start.restart", Form::Text, "no", |c, t| put(&mut c.start.restart.policy, choice(t, &RESTART))),
    key("start.restart_limit", Form::Count, "10", |c, t| put(&mut c.start.restart.limit, optional(t, count))),
    key("start.restart_delay", Form::Text, "500ms", |c, t| put(&mut c.start.restart.delay, duration(t))),
    key("start.restart_max_delay", Form::Text, "60s", |c, t| {
        put(&mut c.start.restart.max_delay, duration(t))
    }),
    key("start.on_owner_exit", Form::Text, "stop", |c, t| {
        put(&mut c.start.on_owner_exit, settings_file::variant(t))
    }),
    key("start.mask", Form::Words, "", |c, t| put(&mut c.start.mask, variables(t))),
    key("test.timeout", Form::Text, "30m", |c, t| put(&mut c.test.timeout, optional(t, nonzero))),
    key("gc.auto", Form::Flag, "true", |c, t| put(&mut c.gc.auto, choice(t, &FLAGS))),
    key("gc.max_age", Form::Text, "30d", |c, t| put(&mut c.gc.max_age, optional(t, duration))),
    key("gc.max_count", Form::Count, "none", |c, t| put(&mut c.gc.max_count, optional(t, count))),
    key("gc.max_size", Form::Text, "8G", |c, t| put(&mut c.gc.max_size, optional(t, size))),
    key("ready.interval", Form::Text, "250ms", |c, t| put(&mut c.ready.interval, nonzero(t))),
    key("ready.timeout", Form::Text, "5s", |c, t| put(&mut c.ready.timeout, nonzero(t))),
    key("attention.silent", Form::Text, "30m", |c, t| put(&mut c.attention.silent, optional(t, nonzero))),
    key("attention.stop_overdue", Form::Text, "5s", |c, t| put(&mut c.attention.stop_overdue, duration(t))),
    key("attention.restarts", Form::Count, "3", |c, t| put(&mut c.attention.restarts, optional(t, count))),
    key("attention.restart_within", Form::Text, "10m", |c, t| {
        put(&mut c.attention.restart_within, nonzero(t))
    }),
    key("attention.killed_for", Form::Text, "10m", |c, t| put(&mut c.attention.killed_for, duration(t))),
];

const RESTART: [(&str, RestartPolicy); 3] =
    [("no", RestartPolicy::No), ("on-failure", RestartPolicy::OnFailure), ("always", RestartPolicy::Always)];
const FLAGS: [(&str, bool); 8] = [
    ("true", true),
    ("false", false),
    ("yes", true),
    ("no", false),
    ("on", true),
    ("off", false),
    ("1", true),
    ("0", false),
];

fn put<T>(field: &mut T, value: Result<T, Problem>) -> Result<(), Problem> {
    *field = value?;
    Ok(())
}

/// An error whose message already says what to write.
fn plain(error: impl ToString) -> Problem {
    Problem::new(error, "")
}

pub(crate) fn duration(text: &str) -> Result<Duration, Problem> {
    parse_duration(text).map_err(plain)
}

/// A duration greater than zero.
pub(crate) fn nonzero(text: &str) -> Result<Duration, Problem> {
    match duration(text)? {
        Duration::ZERO => Err(plain(format!("`{text}` is too short: it must be longer than 0"))),
        longer => Ok(longer),
    }
}

fn size(text: &str) -> Result<u64, Problem> {
    parse_size(text).map_err(plain)
}

/// A valid size of a log.
fn log_size(text: &str) -> Result<u64, Problem> {
    match size(text)? {
        small if small < quell_store::MIN_CAP => {
            Err(plain(format!("`{text}` is too small for a log: write at least 4K")))
        }
        size => Ok(size),
    }
}

fn signal(text: &str) -> Result<Signal, Problem> {
    text.parse().map_err(|error| match Signal::nearest(text) {
        Some(near) => Problem::new(error, format!("did you mean `{near}`?")),
        None => plain(error),
    })
}

fn count<T: std::str::FromStr>(text: &str) -> Result<T, Problem> {
    let bad = || plain(format!("`{text}` is not a count: write a whole number from 0 on, or \"none\""));
    // `parse` would accept a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().map_err(|_| bad()) } else { Err(bad()) }
}

/// A value or `none`.
fn optional<T>(text: &str, read: impl Fn(&str) -> Result<T, Problem>) -> Result<Option<T>, Problem> {
    if text == "none" { Ok(None) } else { read(text).map(Some) }
}

/// A word of an enum.
pub(crate) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(Problem::new(format!("`{text}` is none of {}", known.join(", ")), suggest::did_you_mean(text, known)))
}

/// Names of variables, separated by commas.
fn variables(text: &str) -> Result<Vec<String>, Problem> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
            let hint = "give names only, such as API_TOKEN";
            return Err(Problem::new(format!("`{name}` is not a name of a variable"), hint));
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_those_of_a_request() {
        for key in KEYS {
            assert_eq!(key.check(key.default), Ok(()), "{}", key.full);
        }
        let (config, ready) = (Config::default(), quell_core::ReadyCheck::default());
        assert_eq!(config.stop, quell_core::StopPlan::default());
        assert_eq!(config.start.restart, quell_core::RestartRules::default());
        assert_eq!(config.start.max_log, quell_core::MAX_LOG);
        assert_eq!(config.attention, crate::AttentionRules::default());
        assert_eq!((config.ready.interval, config.ready.timeout), (ready.interval, ready.timeout));
    }

    #[test]
    fn every_key_is_in_a_known_table_and_has_a_variable_of_its_own() {
        let mut names: Vec<String> = KEYS.iter().map(Key::variable).collect();
        assert!(KEYS.iter().all(|key| SECTIONS.contains(&key.section())));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }
}
