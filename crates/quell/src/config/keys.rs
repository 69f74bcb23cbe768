//! The table of all settings: name, default, how it is written and how it is read.

use std::time::Duration;

use quell_core::{AskScope, Contain, OnOwnerExit, RestartPolicy, Signal, Until, parse_duration, parse_size};

use super::Config;
use super::suggest;

/// How a setting is written in a file. In a variable everything is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number, or the string "none".
    Count,
    /// A list of strings; those of all layers add up. In a variable, and once read, with commas between them.
    Words,
}

/// What is wrong with a value, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub message: String,
    /// Empty where the message says it already.
    pub hint: String,
}

impl Problem {
    /// In one line each, whatever the user has written.
    pub(crate) fn new(message: impl ToString, hint: impl ToString) -> Self {
        Self { message: one_line(&message.to_string()), hint: one_line(&hint.to_string()) }
    }
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
    pub section: &'static str,
    pub name: &'static str,
    pub form: Form,
    /// What [`Config::default`] has, as text.
    pub default: &'static str,
    /// Reads a text into its field; if it can't, nothing is changed.
    pub set: fn(&mut Config, &str) -> Result<(), Problem>,
}

impl Key {
    /// Its name with its table: `stop.grace`.
    pub(crate) fn full(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The variable that sets it: `QUELL_STOP_GRACE`.
    pub(crate) fn variable(&self) -> String {
        format!("QUELL_{}_{}", self.section, self.name).to_uppercase()
    }

    /// Whether its value is a duration.
    pub(crate) fn is_duration(&self) -> bool {
        self.form == Form::Text && parse_duration(self.default).is_ok()
    }

    /// An example, as a file has it.
    pub(crate) fn example(&self) -> String {
        let name = self.name;
        match self.form {
            Form::Text => format!("{name} = \"{}\"", self.default),
            Form::Flag => format!("{name} = {}", self.default),
            Form::Count => format!("{name} = 10"),
            Form::Words => format!("{name} = [\"API_TOKEN\"]"),
        }
    }
}

/// The tables that hold settings.
pub(crate) const SECTIONS: [&str; 5] = ["stop", "start", "test", "gc", "ready"];

const fn key(
    section: &'static str,
    name: &'static str,
    form: Form,
    default: &'static str,
    set: fn(&mut Config, &str) -> Result<(), Problem>,
) -> Key {
    Key { section, name, form, default, set }
}

/// All settings, in the order in which they are shown.
pub(crate) const KEYS: &[Key] = &[
    key("stop", "grace", Form::Text, "5s", |c, t| put(&mut c.stop.grace, duration(t))),
    key("stop", "signal", Form::Text, "TERM", |c, t| put(&mut c.stop.signal, signal(t))),
    key("stop", "verify", Form::Text, "10s", |c, t| put(&mut c.stop.verify, nonzero(t))),
    key("stop", "ask", Form::Text, "tree", |c, t| put(&mut c.stop.ask, choice(t, &ASK))),
    key("start", "max_log", Form::Text, "64M", |c, t| put(&mut c.start.max_log, log_size(t))),
    key("start", "contain", Form::Text, "auto", |c, t| put(&mut c.start.contain, choice(t, &CONTAIN))),
    key("start", "until", Form::Text, "root", |c, t| put(&mut c.start.until, choice(t, &UNTIL))),
    key("start", "wait_ready", Form::Text, "30s", |c, t| put(&mut c.start.wait_ready, nonzero(t))),
    key("start", "restart", Form::Text, "no", |c, t| put(&mut c.start.restart.policy, choice(t, &RESTART))),
    key("start", "restart_limit", Form::Count, "10", |c, t| {
        put(&mut c.start.restart.limit, optional(t, count))
    }),
    key("start", "restart_delay", Form::Text, "500ms", |c, t| put(&mut c.start.restart.delay, duration(t))),
    key("start", "restart_max_delay", Form::Text, "60s", |c, t| {
        put(&mut c.start.restart.max_delay, duration(t))
    }),
    key("start", "on_owner_exit", Form::Text, "stop", |c, t| {
        put(&mut c.start.on_owner_exit, choice(t, &ON_OWNER_EXIT))
    }),
    key("start", "mask", Form::Words, "", |c, t| put(&mut c.start.mask, variables(t))),
    key("test", "timeout", Form::Text, "30m", |c, t| put(&mut c.test.timeout, optional(t, nonzero))),
    key("gc", "auto", Form::Flag, "true", |c, t| put(&mut c.gc.auto, flag(t))),
    key("gc", "max_age", Form::Text, "30d", |c, t| put(&mut c.gc.max_age, optional(t, duration))),
    key("gc", "max_count", Form::Count, "none", |c, t| put(&mut c.gc.max_count, optional(t, count))),
    key("gc", "max_size", Form::Text, "8G", |c, t| put(&mut c.gc.max_size, optional(t, size))),
    key("ready", "interval", Form::Text, "250ms", |c, t| put(&mut c.ready.interval, nonzero(t))),
    key("ready", "timeout", Form::Text, "5s", |c, t| put(&mut c.ready.timeout, nonzero(t))),
];

const CONTAIN: [(&str, Contain); 4] = [
    ("auto", Contain::Auto),
    ("cgroup", Contain::Cgroup),
    ("pidns", Contain::Pidns),
    ("reaper", Contain::Reaper),
];
const ASK: [(&str, AskScope); 2] = [("tree", AskScope::Tree), ("root", AskScope::Root)];
const UNTIL: [(&str, Until); 2] = [("root", Until::Root), ("tree", Until::Tree)];
const RESTART: [(&str, RestartPolicy); 3] =
    [("no", RestartPolicy::No), ("on-failure", RestartPolicy::OnFailure), ("always", RestartPolicy::Always)];
const ON_OWNER_EXIT: [(&str, OnOwnerExit); 2] = [("stop", OnOwnerExit::Stop), ("keep", OnOwnerExit::Keep)];
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

/// An error that says what to write already.
fn plain(error: impl ToString) -> Problem {
    Problem::new(error, "")
}

pub(crate) fn duration(text: &str) -> Result<Duration, Problem> {
    parse_duration(text).map_err(plain)
}

/// A duration that must not be zero, because nothing could happen in it.
pub(crate) fn nonzero(text: &str) -> Result<Duration, Problem> {
    match duration(text)? {
        Duration::ZERO => Err(plain(format!("`{text}` is too short: it must be longer than 0"))),
        longer => Ok(longer),
    }
}

fn size(text: &str) -> Result<u64, Problem> {
    parse_size(text).map_err(plain)
}

/// A size that a log can have.
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
    let bad = || plain(format!("`{text}` is no count: write a whole number from 0 on, or \"none\""));
    // `parse` would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().map_err(|_| bad()) } else { Err(bad()) }
}

fn flag(text: &str) -> Result<bool, Problem> {
    choice(text, &FLAGS)
}

/// What may be `none`.
fn optional<T>(text: &str, read: impl Fn(&str) -> Result<T, Problem>) -> Result<Option<T>, Problem> {
    if text == "none" { Ok(None) } else { read(text).map(Some) }
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let hint = suggest::nearest(text, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    Err(Problem::new(format!("`{text}` is none of {}", known.join(", ")), hint.unwrap_or_default()))
}

/// Names of variables, with commas between them.
fn variables(text: &str) -> Result<Vec<String>, Problem> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        is_variable(name)?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn is_variable(name: &str) -> Result<(), Problem> {
    if name.contains(['=', '\0']) || name.contains(char::is_whitespace) {
        let hint = "give names only, such as API_TOKEN";
        return Err(Problem::new(format!("`{}` is no name of a variable", name), hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_texts_are_the_default_values() {
        for key in KEYS {
            let mut config = Config::default();
            (key.set)(&mut config, key.default).unwrap();
            assert_eq!(config, Config::default(), "{}", key.full());
        }
    }

    #[test]
    fn every_key_is_in_a_known_table_and_has_a_variable_of_its_own() {
        let mut names: Vec<String> = KEYS.iter().map(Key::variable).collect();
        assert!(KEYS.iter().all(|key| SECTIONS.contains(&key.section)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn a_value_that_can_not_be_read_changes_nothing() {
        for (name, text) in [
            ("stop.grace", "soon"),
            ("stop.signal", "NOPE"),
            ("stop.ask", "leaf"),
            ("stop.verify", "0s"),
            ("start.max_log", "lots"),
            ("start.max_log", "1K"),
            ("start.contain", "atuo"),
            ("start.restart_limit", "-1"),
            ("start.restart_limit", "+1"),
            ("start.restart_limit", "4294967296"),
            ("start.mask", "A=b"),
            ("gc.auto", "maybe"),
            ("gc.max_age", "None"),
            ("gc.max_count", ""),
            ("ready.interval", "0"),
        ] {
            let key = KEYS.iter().find(|key| key.full() == name).unwrap();
            let mut config = Config::default();
            assert!((key.set)(&mut config, text).is_err(), "{name} = {text}");
            assert_eq!(config, Config::default(), "{name} = {text}");
        }
    }
}
