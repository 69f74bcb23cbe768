//! Reads the arguments of a runner by its table. With a scope, an option that is not in the table is refused.

use quell_guard::{BUILT_IN, DecisionCode, GUIDE, matches};

use super::path::{Root, check_target, printable};
use super::reports::check_report_name;
use super::scope::{PathRole, PathWord, Scope};
use super::{Checked, refuse};

/// How a runner parses options.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionStyle {
    /// Short options can be combined, and the last one can have a value: `-xk NAME`, `-n4`.
    Unix,
    /// `--root-dir` is `--rootDir`. Short options can't be combined.
    Camel,
    /// One dash means the same as two.
    Go,
}

/// The options of a runner that are known to be harmless. Each list is separated by spaces. An option that is listed with a trailing `=`
/// takes a value only in the same word. If it is also listed without `=`, the value is optional.
pub(crate) struct Options {
    pub style: OptionStyle,
    /// Options without a value.
    pub flags: &'static str,
    /// Options that are harmless with any value. The value is not a path.
    pub values: &'static str,
    /// Options with the values that are harmless: see [`is_choice`].
    pub choices: &'static [(&'static str, &'static str)],
    /// Options whose value is a path.
    pub paths: &'static [(&'static str, PathRole)],
    /// Options that write a file or a directory whose name has a default, or `--option=value` if only that value does.
    pub writes: &'static [(&'static str, &'static str, PathRole)],
    /// Options that can choose tests outside a narrow scope. They are also in one of the other lists.
    pub wide: &'static str,
    /// Options of plugins with a value in the next word. If the plugin is not installed, that word is a target.
    pub plugins: &'static str,
}

/// A number, with or without a sign and a fraction.
pub(crate) const NUMBER: &str = "#";
/// Any value without a dot.
pub(crate) const NO_DOT: &str = "~";
/// No value is harmless: the option loads code, or changes which files are written.
pub(crate) const NEVER: &str = "";
/// A file for the results of coverage.
pub(crate) const COVERAGE: PathRole = PathRole::Output("cov info json lcov xml");
/// A file for a log.
pub(crate) const LOG: PathRole = PathRole::Output("log txt");

/// What a table says about an option.
enum Kind {
    Flag,
    Value,
    Choice(&'static str),
    Path(PathRole),
}

/// Whether a word is in a list.
pub(crate) fn is_among(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// Whether a value is one of the choices. `#` is any number, `~` any value without a dot, `*` any text.
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

/// Refuses a word that the runner may read in another way than quell does.
pub(crate) fn ambiguous<T>(reason: impl Into<String>, hint: &str) -> Checked<T> {
    refuse(DecisionCode::PathOption, BUILT_IN, reason, hint)
}

/// The scope and policy that the words of a command are checked by.
pub(crate) struct Rules<'a> {
    pub scope: &'a Scope,
    /// The directories that an absolute path may be in.
    pub roots: Vec<Root>,
    /// Options and variables that the policy allows: `guard.test.allow`.
    pub allow: &'a [String],
    /// The policy lists the program in `guard.test.commands`, so that any arguments are allowed.
    pub listed: bool,
}

impl Rules<'_> {
    /// Whether an option or a variable that is not known to be harmless is allowed: without a scope, or by the policy.
    pub fn allows(&self, name: &str) -> bool {
        !self.scope.is_set() || self.allows_by_name(name)
    }

    /// Whether `guard.test.allow` has this name.
    pub fn allows_by_name(&self, name: &str) -> bool {
        self.allow.iter().any(|pattern| matches(pattern, name))
    }

    pub fn exists(&self, word: &str) -> bool {
        !word.is_empty() && self.scope.cwd.join(word).symlink_metadata().is_ok()
    }

    pub fn path(&self, text: &str, role: PathRole, exists: bool) -> Checked<PathWord> {
        Ok(PathWord { path: check_target(text, &self.roots)?, role, exists })
    }

    /// The path in the value of an option.
    pub fn option_path(&self, option: &str, value: &str, role: PathRole) -> Checked<PathWord> {
        if value.contains('$') {
            let reason = format!("the value of {option} contains `$`, and the runner may expand variables");
            return refuse(DecisionCode::PathVariable, BUILT_IN, reason, "write the path without variables");
        }
        let word = self.path(value, role, role == PathRole::Target && self.scope.is_narrow())?;
        // The policy can allow any file name, but not any directory: runners may empty it.
        if role == PathRole::OutputDir || !self.allows_by_name(option) {
            check_report_name(option, &word)?;
        }
        Ok(word)
    }

    /// The path in the value of an unknown option, if the value looks like a path or names a file.
    pub fn possible_path(&self, option: &str, value: &str) -> Checked<Option<PathWord>> {
        let is_scheme = |scheme: &str| {
            let is_name = scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
            is_name && !scheme.eq_ignore_ascii_case("file")
        };
        if value.starts_with('-') || value.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) {
            return Ok(None);
        }
        // In go, `./...` is everything below a directory. Paths can follow a prefix: `html:DIR`, `cache_dir=DIR`.
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
            found = Some(self.option_path(option, path, PathRole::Any)?);
        }
        Ok(found)
    }

    /// Refuses an option or a variable that is not known to be harmless.
    pub fn refuse_name<T>(&self, name: &str, kind: &str) -> Checked<T> {
        let name = printable(name);
        let reason = format!("`{name}` is not one of the {kind} that are allowed with a scope");
        let hint = format!("remove it, or allow it in the policy: guard.test.allow = [\"{name}\"]; {GUIDE}");
        refuse(DecisionCode::OptionNotAllowed, "guard.test.allow", reason, hint)
    }

    pub fn refuse_option<T>(&self, option: &str, program: &str) -> Checked<T> {
        self.refuse_name(option, &format!("options of {program}"))
    }
}

/// The arguments of a runner, parsed.
#[derive(Default)]
pub(crate) struct ParsedOptions {
    /// The paths in the values of options.
    pub paths: Vec<PathWord>,
    /// The indexes of the words that are neither options nor their values.
    pub positional: Vec<usize>,
}

/// Parses words as the runner would. Refuses options that are not allowed and words that are ambiguous.
pub(crate) fn read_options(
    table: &Options,
    program: &str,
    words: &[String],
    rules: &Rules<'_>,
) -> Checked<ParsedOptions> {
    let mut found = ParsedOptions::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if word == "--" {
            // All words after it are positional.
            found.positional.extend(at..words.len());
            break;
        }
        if !word.starts_with('-') || word == "-" {
            found.positional.push(at - 1);
            continue;
        }
        for (option, value) in table.split(word)? {
            let scan = OptionReader { table, program, rules, word, option: &option };
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
            (Some((_, role)), _) => Some(Kind::Path(*role)),
            (_, Some((_, choices))) => Some(Kind::Choice(choices)),
            _ if self.lists(self.values, option) => Some(Kind::Value),
            _ if self.lists(self.flags, option) => Some(Kind::Flag),
            _ => None,
        }
    }

    /// Whether the option takes the next word as its value, if its own word has none.
    fn takes_next(&self, option: &str) -> bool {
        matches!(self.kind(option), Some(Kind::Value | Kind::Choice(_) | Kind::Path(_)))
    }

    /// The options in a word, each with its value if that is in the same word.
    fn split<'w>(&self, word: &'w str) -> Checked<Vec<(String, Option<&'w str>)>> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let is_long = word.starts_with("--") || self.style != OptionStyle::Unix;
        if value == Some("") && is_long {
            return ambiguous(
                format!("`{}` has no value", printable(word)),
                "write one, or leave the option out",
            );
        }
        let options = match self.style {
            OptionStyle::Go => vec![(format!("-{}", name.trim_start_matches('-')), value)],
            _ if word.starts_with("--") => vec![(name.to_owned(), value)],
            OptionStyle::Camel if name.chars().count() > 2 => {
                let reason = format!("`{}` may be several options, or one with a value", printable(word));
                return ambiguous(reason, "write each option as its own word, and a value with `=`");
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
                // pytest looks for `-p` before argparse does, and reads `=` as part of the plugin's name.
                let value = if letter == 'p' { rest } else { rest.strip_prefix('=').unwrap_or(rest) };
                options.push((option, Some(value).filter(|_| !rest.is_empty())));
                break;
            }
            options.push((option, None));
        }
        options
    }
}

/// Reads one option of a runner.
struct OptionReader<'a> {
    table: &'a Options,
    program: &'a str,
    rules: &'a Rules<'a>,
    word: &'a str,
    option: &'a str,
}

impl<'a> OptionReader<'a> {
    /// The path in its value, and whether the next word is its value.
    fn read(&self, value: Option<&'a str>, next: Option<&'a str>) -> Checked<(Option<PathWord>, bool)> {
        let (table, rules, option) = (self.table, self.rules, self.option);
        let next_is_word = next.is_some_and(|next| !next.starts_with('-'));
        if table.lists(table.wide, option) && rules.scope.is_narrow() {
            let reason = format!("`{option}` can choose packages outside the scope");
            return ambiguous(reason, "name one package with --manifest-path DIR/Cargo.toml");
        }
        let joined = table.kind(&format!("{option}="));
        if joined.is_some() && value.is_none() && next_is_word {
            let reason = format!("the word after `{option}` may be its value or a target");
            return ambiguous(reason, "write a value with `=`, and put targets before the option");
        }
        let kind = joined.filter(|_| value.is_some()).or_else(|| table.kind(option));
        // `--watchAll=false`
        let is_plain = value.is_none_or(|value| value.chars().all(char::is_alphanumeric));
        let taken = value.is_none();
        let path = match kind {
            Some(Kind::Flag) if is_plain => return Ok((self.written(""), false)),
            Some(Kind::Flag) | None => {
                let path = self.unknown(value)?;
                if table.style == OptionStyle::Camel && next_is_word && rules.scope.is_set() {
                    let reason = format!("`{option}` may take all words after it as its values");
                    return ambiguous(reason, "put targets before the option");
                }
                return Ok((path, false));
            }
            Some(Kind::Path(role)) => Some(rules.option_path(option, self.value(value, next)?, role)?),
            Some(Kind::Choice(choices)) => {
                let value = self.value(value, next)?;
                self.choice(choices, value, taken)?.or_else(|| self.written(value))
            }
            Some(Kind::Value) => self.value(value, next).map(|_| None)?,
        };
        Ok((path, taken))
    }

    /// What the option writes: `xml:NAME`, or a default name for `xml`.
    fn written(&self, value: &str) -> Option<PathWord> {
        let (kind, name) = value.split_once(':').map_or((value, None), |(kind, name)| (kind, Some(name)));
        let both = format!("{}={kind}", self.option);
        let is_this = |listed: &str| self.table.lists(listed, self.option) || is_among(listed, &both);
        let (_, path, role) = self.table.writes.iter().find(|(listed, ..)| is_this(listed))?;
        Some(PathWord { path: name.unwrap_or(path).to_owned(), role: *role, exists: false })
    }

    /// Its value. The next word counts only if no runner reads it differently: pytest also looks for `-p` among the values and
    /// replaces `@FILE` by the words in that file; jest and vitest don't read a word with a dash as a value.
    fn value(&self, value: Option<&'a str>, next: Option<&'a str>) -> Checked<&'a str> {
        let is_value = |next: &&str| !next.starts_with(['-', '@']) || is_choice(NUMBER, next);
        match value.or(next.filter(is_value)) {
            Some(value) => Ok(value),
            None => ambiguous(format!("`{}` has no value", self.option), "write the value with `=`"),
        }
    }

    /// Checks a value that is harmless only if it is one of `choices`. Returns the path in it.
    fn choice(&self, choices: &str, value: &str, taken: bool) -> Checked<Option<PathWord>> {
        let (rules, both) = (self.rules, format!("{} {value}", self.option));
        let is_harmless = is_choice(choices, value);
        // If the plugin that the option belongs to is not installed, the value is a target.
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
            return ambiguous(format!("`{}` may be a target", printable(value)), "write the value with `=`");
        }
        Ok(path)
    }

    fn unknown(&self, value: Option<&str>) -> Checked<Option<PathWord>> {
        // Python's argparse reads negative numbers and words with a space as positional.
        let is_name = self.option.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_name || self.word.contains(' ') {
            return ambiguous(format!("`{}` may be a target", printable(self.word)), "write a plain option");
        }
        if self.option == "-C" {
            return ambiguous("`-C` changes the directory that targets are relative to", CHANGE_DIRECTORY);
        }
        if !self.rules.allows(self.option) {
            return self.rules.refuse_option(self.option, self.program);
        }
        value.map_or(Ok(None), |value| self.rules.possible_path(self.option, value))
    }
}

/// The hint for an option that changes the directory.
pub(super) const CHANGE_DIRECTORY: &str = "change to that directory, and call quell there";
