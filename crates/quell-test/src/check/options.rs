//! Reads the words of a runner by its table. An option that is not in the table is refused where there is a scope.

use quell_guard::{BUILT_IN, GUIDE, matches};

use super::path::{Root, check_target, shown};
use super::reports::check_report_name;
use super::scope::{PathWord, Place, Scope};
use super::{Verdict, refuse};

/// How a runner reads options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Letters may stand together, with a value behind the last one: `-xk NAME`, `-n4`.
    Unix,
    /// `--root-dir` is `--rootDir`. Letters that stand together have no values.
    Camel,
    /// One dash means the same as two.
    Go,
}

/// The options of a runner that are known to be harmless. Lists are words with spaces between them. An option that is listed with
/// `=` behind it takes a value only in the same word; if it is listed without `=`, too, the value can be left out.
pub(crate) struct Options {
    pub style: Style,
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
}

/// A number, with or without a sign and a fraction.
pub(crate) const NUMBER: &str = "#";
/// Anything without a dot in it.
pub(crate) const NO_DOT: &str = "~";
/// A file for a log.
pub(crate) const LOG: Place = Place::Output("log txt");

/// What a table says about an option.
enum Kind {
    Flag,
    Value,
    Choice(&'static str),
    Path(Place),
    Unknown,
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
    refuse("PATH_OPTION", BUILT_IN, reason, hint)
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
            return refuse("PATH_VARIABLE", BUILT_IN, reason, "write the value of the variable");
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
        let is_address = value.split_once("://").is_some_and(|(scheme, _)| {
            scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
                && !scheme.eq_ignore_ascii_case("file")
        });
        // `html:DIR`, `cache_dir=DIR`. go writes `./...` for all below a directory.
        let path = value.rsplit(['=', ':']).next().unwrap_or_default().trim_end_matches("/...");
        let is_path = path.contains(['/', '\\', '$']) || path.starts_with('~') || matches!(path, "." | "..");
        if is_address || !(is_path || self.exists(path)) {
            return Ok(None);
        }
        self.option_path(option, path, Place::Here).map(Some)
    }

    /// Refuses an option, or a value of one, that is not known to be harmless.
    pub fn refuse_option<T>(&self, option: &str, program: &str) -> Verdict<T> {
        let option = shown(option);
        let reason = format!(
            "`{option}` is not among the options of {program} that are known to be harmless with a scope"
        );
        self.refuse_name(&option, reason, "leave it out")
    }

    pub fn refuse_variable<T>(&self, name: &str) -> Verdict<T> {
        let name = shown(name);
        let reason = format!("the variable `{name}` can load code from outside the scope");
        self.refuse_name(&name, reason, "leave it out")
    }

    fn refuse_name<T>(&self, name: &str, reason: String, instead: &str) -> Verdict<T> {
        let hint =
            format!("{instead}, or have the policy allow it: guard.test.allow = [\"{name}\"]; {GUIDE}");
        refuse("OPTION_NOT_ALLOWED", "guard.test.allow", reason, hint)
    }
}

/// What the words of a runner are.
#[derive(Default)]
pub(crate) struct Found {
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
) -> Verdict<Found> {
    let mut found = Found::default();
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
        let is_long = self.style == Style::Camel && option.starts_with("--");
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
        if value == Some("") {
            return misleads(format!("`{}` has no value", shown(word)), "write one, or leave the option out");
        }
        let options = match self.style {
            Style::Go => vec![(format!("-{}", name.trim_start_matches('-')), value)],
            _ if word.starts_with("--") => vec![(name.to_owned(), value)],
            Style::Camel => {
                let letters: Vec<_> =
                    name.chars().skip(1).map(|letter| (format!("-{letter}"), value)).collect();
                let is_flag = |(option, _): &(String, _)| self.lists(self.flags, option);
                if letters.len() > 1 && (value.is_some() || !letters.iter().all(is_flag)) {
                    let reason = format!("`{}` can be several options, or one with a value", shown(word));
                    return misleads(reason, "write each option alone, and a value with `=`");
                }
                letters
            }
            Style::Unix => self.letters(word),
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
        let joined = table.kind(&format!("{option}="));
        if table.lists(table.wide, option) && rules.scope.is_narrow() {
            let reason = format!("`{option}` takes packages of the workspace, wherever they are");
            return misleads(reason, "name one package, with --manifest-path DIR/Cargo.toml");
        }
        let kind = match (value, joined) {
            (Some(_), Some(kind)) => kind,
            (None, Some(_)) if next.is_some_and(|next| !next.starts_with('-')) => {
                let reason = format!("the word behind `{option}` may be its value or a target");
                return misleads(reason, "write a value with `=`, and targets first");
            }
            _ => table.kind(option).unwrap_or(Kind::Unknown),
        };
        let kind = match kind {
            // Such as --watchAll=false.
            Kind::Flag if value.is_some_and(|value| !value.chars().all(char::is_alphanumeric)) => {
                Kind::Unknown
            }
            kind => kind,
        };
        if let Kind::Flag = kind {
            return Ok((None, false));
        }
        if let Kind::Unknown = kind {
            let path = self.unknown(value)?;
            let next_is_word = next.is_some_and(|next| !next.starts_with('-'));
            if table.style == Style::Camel && next_is_word && rules.scope.is_set() {
                let reason = format!("`{option}` may take all words behind it for its values");
                return misleads(reason, "write targets before it");
            }
            return Ok((path, false));
        }
        let taken = value.is_none();
        let value = match value {
            Some(value) => value,
            None => self.next_value(next)?,
        };
        let path = match kind {
            Kind::Path(place) => Some(rules.option_path(option, value, place)?),
            Kind::Choice(choices) if !is_choice(choices, value) => {
                let both = format!("{option} {value}");
                if !rules.allows(option) && !rules.allows(&both) {
                    return rules.refuse_option(&both, self.program);
                }
                let path = rules.possible_path(option, value)?;
                let target = value.split(['[', ':']).next().unwrap_or_default();
                if taken && rules.scope.is_set() && (value.contains('/') || rules.exists(target)) {
                    // Without the plugin that the option belongs to it is a target.
                    return misleads(
                        format!("`{}` may be a target", shown(value)),
                        "write the value with `=`",
                    );
                }
                path
            }
            _ => None,
        };
        Ok((path, taken))
    }

    /// The next word, if that can be nothing but the value. pytest also looks for `-p` among the values, and puts the words of a
    /// file in the place of `@FILE`; jest and vitest give no value to an option before another one.
    fn next_value(&self, next: Option<&'a str>) -> Verdict<&'a str> {
        let is_value = |next: &&str| !next.starts_with(['-', '@']) || is_choice(NUMBER, next);
        match next.filter(is_value) {
            Some(next) => Ok(next),
            None => {
                misleads(format!("`{}` has no value of its own", self.option), "write the value with `=`")
            }
        }
    }

    fn unknown(&self, value: Option<&str>) -> Verdict<Option<PathWord>> {
        // Python's argparse takes numbers, and words with a space, for targets.
        let is_name = self.option.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_name || self.word.contains(' ') {
            return misleads(
                format!("`{}` can be read as a target", shown(self.word)),
                "write a plain option",
            );
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
