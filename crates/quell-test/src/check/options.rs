//! Reads the words of a runner by its table. An option that is not in the table is refused where there is a scope.

use quell_guard::{BUILT_IN, DecisionCode, GUIDE, matches};

use super::path::{Root, check_target, shown};
use super::reports::check_report_name;
use super::scope::{PathWord, Place, Scope};
use super::{Verdict, refuse};

/// How a runner reads options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionStyle {
    /// Letters may stand together, with a value behind the last one: `-xk NAME`, `-n4`.
    Unix,
    /// `--root-dir` is `--rootDir`. Letters stand alone.
    Camel,
    /// One dash means the same as two.
    Go,
}

/// The options of a runner that are known to be harmless. Lists are words with spaces between them. An option that is listed with
/// `=` behind it takes a value only in the same word; if it is listed without `=`, too, the value can be left out.
pub(crate) struct Options {
    pub style: OptionStyle,
    /// Options without a value.
    pub flags: &'static str,
    /// Options with any value; the value is not a path.
    pub values: &'static str,
    /// Options, and the values with which they are harmless: see [`is_choice`].
    pub choices: &'static [(&'static str, &'static str)],
    /// Options whose value is a path.
    pub paths: &'static [(&'static str, Place)],
    /// Options that choose tests outside a narrow scope. They are in one of the other lists, too.
    pub wide: &'static str,
    /// Options of plugins that take the next word for their value. Without the plugin that word is a target.
    pub plugins: &'static str,
}

/// A number, with or without a sign and a fraction.
pub(crate) const NUMBER: &str = "#";
/// Anything without a dot in it.
pub(crate) const NO_DOT: &str = "~";
/// No value is harmless: it names code, or says how a file is written.
pub(crate) const NEVER: &str = "";
/// A file for a log.
pub(crate) const LOG: Place = Place::Output("log txt");

/// What a table says about an option.
enum Kind {
    Flag,
    Value,
    Choice(&'static str),
    Path(Place),
}

/// Whether a word is in a list.
pub(crate) fn is_among(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// Whether a value is among the choices: literally, as a number (`#`), as anything without a dot (`~`), or by a `*`.
fn is_choice(choices: &str, value: &str) -> bool {
    let is_number = |part: &str| part.parse::<f64>().is_ok_and(f64::is_finite);
    choices.split_whitespace().any(|choice| match choice {
        NUMBER => is_number(value),
        NO_DOT => !value.contains('.'),
        "#%" => value.strip_suffix('%').is_some_and(is_number),
        "#/#" => value.split('/').count() == 2 && value.split('/').all(is_number),
        _ => matches(choice, value),
    })
}

/// Refuses a word that the runner would read in another way than it looks.
pub(crate) fn misleads<T>(reason: impl Into<String>, hint: &str) -> Verdict<T> {
    refuse(DecisionCode::PathOption, BUILT_IN, reason, hint)
}

/// What holds for the words of a command.
pub(crate) struct Rules<'a> {
    pub scope: &'a Scope,
    /// What absolute paths may begin with.
    pub roots: Vec<Root>,
    /// Options and variables that the policy allows: `guard.test.allow`.
    pub allow: &'a [String],
    /// The policy lists the program in `guard.test.commands`, so that it may be told anything.
    pub listed: bool,
}

impl Rules<'_> {
    /// Whether an option or a variable is allowed that is not known to be harmless.
    pub fn allows(&self, name: &str) -> bool {
        !self.scope.is_set() || self.names(name)
    }

    /// Whether the policy allows it by name.
    pub fn names(&self, name: &str) -> bool {
        self.allow.iter().any(|pattern| matches(pattern, name))
    }

    pub fn exists(&self, word: &str) -> bool {
        !word.is_empty() && self.scope.cwd.join(word).symlink_metadata().is_ok()
    }

    pub fn path(&self, text: &str, place: Place, exists: bool) -> Verdict<PathWord> {
        Ok(PathWord { path: check_target(text, &self.roots)?, place, exists })
    }

    /// The path in the value of an option.
    pub fn option_path(&self, option: &str, value: &str, place: Place) -> Verdict<PathWord> {
        if value.contains('$') {
            let reason = format!("the value of {option} has a variable in it, which the runner may replace");
            return refuse(DecisionCode::PathVariable, BUILT_IN, reason, "write the value of the variable");
        }
        let word = self.path(value, place, place == Place::Target && self.scope.is_narrow())?;
        // A directory may be emptied, so that a policy can't free its name.
        if place == Place::OutputDir || !self.names(option) {
            check_report_name(option, &word)?;
        }
        Ok(word)
    }

    /// The path in a value of which it is not known whether it is one.
    pub fn possible_path(&self, option: &str, value: &str) -> Verdict<Option<PathWord>> {
        let is_scheme = |scheme: &str| {
            let is_name = scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
            is_name && !scheme.eq_ignore_ascii_case("file")
        };
        if value.starts_with('-') || value.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) {
            return Ok(None);
        }
        // go writes `./...` for all below a directory. `html:DIR`, `cache_dir=DIR`.
        let value = value.trim_end_matches("/...");
        let last = value.rsplit(['=', ':']).next().unwrap_or_default();
        let is_path = |path: &str| {
            path.contains(['/', '\\', '$'])
                || path.starts_with('~')
                || path.starts_with("..")
                || self.exists(path)
        };
        let mut found = None;
        for path in [value, last].into_iter().filter(|path| is_path(path)) {
            found = Some(self.option_path(option, path, Place::Here)?);
        }
        Ok(found)
    }

    /// Refuses an option or a variable that is not known to be harmless.
    pub fn refuse_name<T>(&self, name: &str, of: &str) -> Verdict<T> {
        let name = shown(name);
        let reason = format!("`{name}` is not among the {of} that are known to be harmless with a scope");
        let hint =
            format!("leave it out, or have the policy allow it: guard.test.allow = [\"{name}\"]; {GUIDE}");
        refuse(DecisionCode::OptionNotAllowed, "guard.test.allow", reason, hint)
    }

    pub fn refuse_option<T>(&self, option: &str, program: &str) -> Verdict<T> {
        self.refuse_name(option, &format!("options of {program}"))
    }
}

/// What the words of a runner are.
#[derive(Default)]
pub(crate) struct OptionWords {
    /// The paths in the values of options.
    pub paths: Vec<PathWord>,
    /// The places of the words that are not options or their values.
    pub plain: Vec<usize>,
}

/// Reads words as the runner would.
pub(crate) fn read_options(
    table: &Options,
    program: &str,
    words: &[String],
    rules: &Rules<'_>,
) -> Verdict<OptionWords> {
    let mut found = OptionWords::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if word == "--" {
            // The words behind it are targets, however they look.
            found.plain.extend(at..words.len());
            break;
        }
        if !word.starts_with('-') || word == "-" {
            found.plain.push(at - 1);
            continue;
        }
        for (option, value) in table.split(word)? {
            let scan = Scan { table, program, rules, word, option: &option };
            let (path, taken) = scan.read(value, words.get(at).map(String::as_str))?;
            found.paths.extend(path);
            at += usize::from(taken);
        }
    }
    Ok(found)
}

impl Options {
    fn lists(&self, list: &str, option: &str) -> bool {
        let plain = |option: &str| option.to_lowercase().replace('-', "");
        let is_long = self.style == OptionStyle::Camel && option.starts_with("--");
        is_among(list, option)
            || is_long
                && list.split_whitespace().any(|name| name.starts_with("--") && plain(name) == plain(option))
    }

    fn kind(&self, option: &str) -> Option<Kind> {
        let path = self.paths.iter().find(|(names, _)| self.lists(names, option));
        let choice = self.choices.iter().find(|(names, _)| self.lists(names, option));
        match (path, choice) {
            (Some((_, place)), _) => Some(Kind::Path(*place)),
            (_, Some((_, choices))) => Some(Kind::Choice(choices)),
            _ if self.lists(self.values, option) => Some(Kind::Value),
            _ if self.lists(self.flags, option) => Some(Kind::Flag),
            _ => None,
        }
    }

    /// Whether the next word is its value if there is none in its own.
    fn takes_next(&self, option: &str) -> bool {
        matches!(self.kind(option), Some(Kind::Value | Kind::Choice(_) | Kind::Path(_)))
    }

    /// The options in a word, and the value that is in the same word.
    fn split<'w>(&self, word: &'w str) -> Verdict<Vec<(String, Option<&'w str>)>> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let is_long = word.starts_with("--") || self.style != OptionStyle::Unix;
        if value == Some("") && is_long {
            return misleads(format!("`{}` has no value", shown(word)), "write one, or leave the option out");
        }
        let options = match self.style {
            OptionStyle::Go => vec![(format!("-{}", name.trim_start_matches('-')), value)],
            _ if word.starts_with("--") => vec![(name.to_owned(), value)],
            OptionStyle::Camel if name.chars().count() > 2 => {
                let reason = format!("`{}` can be several options, or one with a value", shown(word));
                return misleads(reason, "write each option alone, and a value with `=`");
            }
            OptionStyle::Camel => vec![(name.to_owned(), value)],
            OptionStyle::Unix => self.letters(word),
        };
        Ok(options)
    }

    fn letters<'w>(&self, word: &'w str) -> Vec<(String, Option<&'w str>)> {
        let mut options = Vec::new();
        for (at, letter) in word.char_indices().skip(1) {
            let option = format!("-{letter}");
            let rest = &word[at + letter.len_utf8()..];
            if self.takes_next(&option) || rest.starts_with('=') {
                // pytest itself looks for `-p`, and takes `=` for a part of the plugin's name.
                let value = if letter == 'p' { rest } else { rest.strip_prefix('=').unwrap_or(rest) };
                options.push((option, Some(value).filter(|_| !rest.is_empty())));
                break;
            }
            options.push((option, None));
        }
        options
    }
}

/// One option of a runner.
struct Scan<'a> {
    table: &'a Options,
    program: &'a str,
    rules: &'a Rules<'a>,
    word: &'a str,
    option: &'a str,
}

impl<'a> Scan<'a> {
    /// Its path, and whether the next word is its value.
    fn read(&self, value: Option<&'a str>, next: Option<&'a str>) -> Verdict<(Option<PathWord>, bool)> {
        let (table, rules, option) = (self.table, self.rules, self.option);
        let next_is_word = next.is_some_and(|next| !next.starts_with('-'));
        if table.lists(table.wide, option) && rules.scope.is_narrow() {
            let reason = format!("`{option}` takes packages of the workspace, wherever they are");
            return misleads(reason, "name one package, with --manifest-path DIR/Cargo.toml");
        }
        let joined = table.kind(&format!("{option}="));
        if joined.is_some() && value.is_none() && next_is_word {
            let reason = format!("the word behind `{option}` may be its value or a target");
            return misleads(reason, "write a value with `=`, and targets first");
        }
        let kind = joined.filter(|_| value.is_some()).or_else(|| table.kind(option));
        // `--watchAll=false`
        let is_plain = value.is_none_or(|value| value.chars().all(char::is_alphanumeric));
        let taken = value.is_none();
        let path = match kind {
            Some(Kind::Flag) if is_plain => return Ok((None, false)),
            Some(Kind::Flag) | None => {
                let path = self.unknown(value)?;
                if table.style == OptionStyle::Camel && next_is_word && rules.scope.is_set() {
                    let reason = format!("`{option}` may take all words behind it for its values");
                    return misleads(reason, "write targets before it");
                }
                return Ok((path, false));
            }
            Some(Kind::Path(place)) => Some(rules.option_path(option, self.value(value, next)?, place)?),
            Some(Kind::Choice(choices)) => self.choice(choices, self.value(value, next)?, taken)?,
            Some(Kind::Value) => self.value(value, next).map(|_| None)?,
        };
        Ok((path, taken))
    }

    /// Its value: the next word, if that can be nothing else. pytest also looks for `-p` among the values, and puts the words of a
    /// file in the place of `@FILE`; jest and vitest give no value to an option before another one.
    fn value(&self, value: Option<&'a str>, next: Option<&'a str>) -> Verdict<&'a str> {
        let is_value = |next: &&str| !next.starts_with(['-', '@']) || is_choice(NUMBER, next);
        match value.or(next.filter(is_value)) {
            Some(value) => Ok(value),
            None => misleads(format!("`{}` has no value", self.option), "write the value with `=`"),
        }
    }

    /// The path in a value that is harmless only if it is one of these.
    fn choice(&self, choices: &str, value: &str, taken: bool) -> Verdict<Option<PathWord>> {
        let (rules, both) = (self.rules, format!("{} {value}", self.option));
        let is_harmless = is_choice(choices, value);
        // Without the plugin that the option belongs to, it is a target.
        let may_be_target = taken
            && rules.scope.is_set()
            && (!is_harmless || self.table.lists(self.table.plugins, self.option))
            && (value.contains('/') || rules.exists(value.split(['[', ':']).next().unwrap_or_default()));
        if is_harmless && !may_be_target {
            return Ok(None);
        }
        if !is_harmless && !rules.allows(self.option) && !rules.allows(&both) {
            return rules.refuse_option(&both, self.program);
        }
        let path = rules.possible_path(self.option, value)?;
        if may_be_target {
            return misleads(format!("`{}` may be a target", shown(value)), "write the value with `=`");
        }
        Ok(path)
    }

    fn unknown(&self, value: Option<&str>) -> Verdict<Option<PathWord>> {
        // Python's argparse takes numbers, and words with a space, for targets.
        let is_name = self.option.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_name || self.word.contains(' ') {
            return misleads(format!("`{}` may be a target", shown(self.word)), "write a plain option");
        }
        if self.option == "-C" {
            return misleads("`-C` changes the directory that targets are seen from", ELSEWHERE);
        }
        if !self.rules.allows(self.option) {
            return self.rules.refuse_option(self.option, self.program);
        }
        value.map_or(Ok(None), |value| self.rules.possible_path(self.option, value))
    }
}

/// What to do instead of changing the directory.
pub(super) const ELSEWHERE: &str = "change to that directory, and call quell there";
