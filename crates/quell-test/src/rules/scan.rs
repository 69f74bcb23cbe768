//! Reads words as a runner would: options, their values, and targets.

use super::command::last;
use super::options::{Dashes, Options, PYTEST, REPORT_DIRS, is_among};
use super::path::{check_target, shown};
use super::report_name::is_report_name;
use super::runner::{Found, PathWord, Place, Rules, misleads};
use super::{BUILT_IN, Decision};

/// What a runner makes of an option and its value; none if that is nothing but what the tables say.
pub(super) type Special<'a> = dyn Fn(&str, Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> + 'a;

/// Whether the value of an unknown option may be a path. An address of something on the net is none.
pub(super) fn looks_like_path(value: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let address = value.split_once("://").is_some_and(|(scheme, _)| {
        scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') && !scheme.eq_ignore_ascii_case("file")
    });
    let way = value.contains(['/', '\\']) || value.starts_with('~') || matches!(value, "." | "..");
    !address && (way || (!value.is_empty() && exists(value)))
}

/// The value of an option as a path, and where that has to be.
pub(super) fn option_path(
    option: &str,
    value: &str,
    (place, exists): (Place, bool),
    rules: &Rules<'_>,
) -> Result<PathWord, Box<Decision>> {
    // pytest, for one, puts variables in.
    if value.contains('$') {
        let reason = format!("the value of {option} has a variable in it");
        return Err(Box::new(Decision::refuse(
            "PATH_VARIABLE",
            BUILT_IN,
            reason,
            "write what it stands for",
        )));
    }
    let path = check_target(value, rules.roots)?;
    if !rules.is_named(option) {
        check_output(option, &path, place)?;
    }
    Ok(PathWord { path, place, exists })
}

/// What an option writes has a name that says that it is a report. Any other file could be code, or settings.
fn check_output(option: &str, path: &str, place: Place) -> Result<(), Box<Decision>> {
    let name = last(path);
    let hint = match place {
        Place::Output(ends) => {
            if is_report_name(name, ends) {
                return Ok(());
            }
            format!("use a name that ends in .{}, and that is not one of settings", ends.replace(' ', ", ."))
        }
        Place::OutputDir if !is_among(REPORT_DIRS, name) => {
            format!("use a directory that is called {}", REPORT_DIRS.replace(' ', ", "))
        }
        _ => return Ok(()),
    };
    let reason = format!("`{option}` writes nothing but reports, and `{}` may be more", shown(path));
    Err(Box::new(Decision::refuse("PATH_PROTECTED", BUILT_IN, reason, hint)))
}

/// How the words of one runner are read.
pub(super) struct Scan<'a> {
    pub known: &'a Options,
    pub name: &'a str,
    pub rules: &'a Rules<'a>,
    pub exists: &'a dyn Fn(&str) -> bool,
    pub special: &'a Special<'a>,
    pub target: &'a dyn Fn(&str) -> Found,
}

impl Scan<'_> {
    /// Goes through the words as the runner would.
    pub fn read(&self, words: &[&str]) -> Found {
        let known = self.known;
        let (mut found, mut named) = (Vec::new(), false);
        let mut words = words.iter().copied().peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                // Everything behind it is a target, however it looks.
                for word in words.by_ref() {
                    found.extend((self.target)(word)?);
                }
                break;
            }
            if !word.starts_with('-') || word == "-" || is_no_option(word, known) {
                named = true;
                found.extend((self.target)(word)?);
                continue;
            }
            for (option, value) in options(word, known)? {
                let next_is_word = words.peek().is_some_and(|next| !next.starts_with('-'));
                let value = match value {
                    Some(value) => Some(value),
                    None if known.dashes == Dashes::Camel && known.takes(&option) && !next_is_word => {
                        let reason =
                            format!("`{option}` has no value, and what stands behind it is an option");
                        return misleads(reason, "write the value with `=`");
                    }
                    None if known.takes(&option) => {
                        let next = words.next();
                        if let Some(next) = next.filter(|next| is_read_twice(next, known)) {
                            let reason =
                                format!("`{}` behind `{option}` is read as more than its value", shown(next));
                            return misleads(reason, "write the value with `=`");
                        }
                        next.map(str::to_owned)
                    }
                    None if is_among(known.optional, &option) && next_is_word => {
                        let reason = format!("what stands behind `{option}` may be its value or a target");
                        return misleads(reason, "write a value with `=`, and targets first");
                    }
                    None if is_among(known.plugins, &option) && known.path(&option).is_some() => {
                        let reason = format!("what stands behind `{option}` is a target without its plugin");
                        return misleads(reason, "write the value with `=`");
                    }
                    // Without the plugin it is a target: what could be one has to be a good one.
                    None if is_among(known.plugins, &option) => {
                        let value = words.next_if(|next| !self.may_be_target(next));
                        let next_is_word = words.peek().is_some_and(|next| !next.starts_with('-'));
                        // pytest looks for its first settings beside the first words that are no options. If none of these is
                        // there, it takes the working directory.
                        if value.is_some() && self.rules.narrow && !named && !next_is_word {
                            let reason =
                                format!("the value of `{option}` is the first target without its plugin");
                            return misleads(
                                reason,
                                "write the value with `=`, or targets before the option",
                            );
                        }
                        value.map(str::to_owned)
                    }
                    None => None,
                };
                found.extend(self.option(&option, value.as_deref())?);
                let next_is_word = words.peek().is_some_and(|next| !next.starts_with('-'));
                if is_among(known.greedy, &option) && next_is_word {
                    let reason = format!("all words behind `{option}` are its values, up to the next option");
                    return misleads(reason, "write targets before it, and the option once for each value");
                }
            }
        }
        Ok(found)
    }

    /// Whether a word would name a target, or be an option, where the option before it is not known.
    fn may_be_target(&self, word: &str) -> bool {
        // As pytest cuts `tests/test_a.py::test_x[1]`.
        let file = word.split("::").next().unwrap_or_default();
        let short = file.split('[').next().unwrap_or_default();
        word.starts_with(['-', '@'])
            || [word, file, short].iter().any(|part| looks_like_path(part, self.exists))
    }

    /// The paths of one option.
    fn option(&self, option: &str, value: Option<&str>) -> Found {
        let known = self.known;
        if !known.is_harmless(option, value) && !self.rules.allows(option) {
            return Err(match (known.choices(option), value) {
                (Some(choices), Some(value)) => Rules::refuse_value(option, value, choices),
                _ => self.rules.refuse_option(option, self.name),
            });
        }
        if let Some(found) = (self.special)(option, value)? {
            return Ok(found);
        }
        if let Some(place) = known.path(option) {
            // An optional one that is not there is no path.
            if value.is_none() && !known.takes(option) {
                return Ok(Vec::new());
            }
            return Ok(vec![option_path(option, value.unwrap_or_default(), place, self.rules)?]);
        }
        match value.filter(|value| !known.knows(option) && looks_like_path(value, self.exists)) {
            Some(value) => Ok(vec![option_path(option, value, (Place::Here, false), self.rules)?]),
            None => Ok(Vec::new()),
        }
    }
}

/// Whether a word is more than the value of the option before it: pytest looks for `-p` among all words, and puts the words of a
/// file in the place of `@FILE`. No value of an option needs to be written so.
fn is_read_twice(word: &str, known: &Options) -> bool {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    known.dashes == Dashes::Short
        && (word.starts_with('@') || word.strip_prefix('-').is_some_and(|rest| !number(rest)))
}

/// Whether a word with a dash is a target all the same: Python's argparse takes numbers for such, and what has a space in it
/// and is no option that it knows.
fn is_no_option(word: &str, known: &Options) -> bool {
    if known.dashes == Dashes::Go {
        return false;
    }
    let is_known = |option: &str| is_among(known.flags, option) || known.knows(option);
    if let Some(long) = word.strip_prefix("--") {
        let option = long.split('=').next().unwrap_or_default();
        return word.contains(' ') && !is_known(&format!("--{option}"));
    }
    let first = word.chars().nth(1).unwrap_or(' ');
    !first.is_ascii_alphabetic() || (word.contains(' ') && !is_known(&format!("-{first}")))
}

/// The options that a word is, with the value that is in it.
fn options(word: &str, known: &Options) -> Result<Vec<(String, Option<String>)>, Box<Decision>> {
    if word.starts_with("--") || known.dashes == Dashes::Go {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word, None),
        };
        if known.dashes == Dashes::Camel && value.as_deref() == Some("") {
            return misleads(format!("`{option}=` has no value"), "write one, or leave the option out");
        }
        return Ok(vec![(plain_option(option, known.dashes), value)]);
    }
    if known.dashes == Dashes::Camel {
        return short_options(word, known);
    }
    let mut all = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let option = format!("-{letter}");
        let rest = &word[at + letter.len_utf8()..];
        if known.knows(&option) || rest.starts_with('=') {
            // pytest itself looks for `-p`, and takes `=` for a part of the plugin's name.
            let value = if letter == 'p' { rest } else { rest.strip_prefix('=').unwrap_or(rest) };
            all.push((option, (!rest.is_empty()).then(|| value.to_owned())));
            break;
        }
        all.push((option, None));
    }
    Ok(all)
}

/// The same for parsers that read `-tc=x` as `-t -c=x`: one option with a value behind `=`, or letters that have none.
fn short_options(word: &str, known: &Options) -> Result<Vec<(String, Option<String>)>, Box<Decision>> {
    let (letters, value) = match word[1..].split_once('=') {
        Some((letters, value)) => (letters, Some(value.to_owned())),
        None => (&word[1..], None),
    };
    let options: Vec<String> = letters.chars().map(|letter| format!("-{letter}")).collect();
    let alone = options.len() == 1 && value.as_deref() != Some("");
    if alone || (value.is_none() && options.iter().all(|option| is_among(known.flags, option))) {
        return Ok(options.into_iter().map(|option| (option, value.clone())).collect());
    }
    let reason = format!("`{}` can be read as several options, or as one with a value", shown(word));
    misleads(reason, "write each option alone, and a value with `=`")
}

/// An option in the one way in which the tables have it.
fn plain_option(option: &str, dashes: Dashes) -> String {
    match dashes {
        Dashes::Short => option.to_owned(),
        Dashes::Go => {
            let name = option.trim_start_matches('-');
            format!("-{}", name.strip_prefix("test.").unwrap_or(name))
        }
        Dashes::Camel => {
            let mut parts = option.trim_start_matches('-').split('-');
            let mut name = format!("--{}", parts.next().unwrap_or_default());
            for part in parts {
                let mut letters = part.chars();
                name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
                name.push_str(letters.as_str());
            }
            name
        }
    }
}

/// Refuses added words of pytest's that would change what the words behind them are. pytest reads all of them as one list: an
/// option at the end takes the first word of the command line for its value, and behind `--` every word is a target.
pub(super) fn check_end(words: &[String], rules: &Rules<'_>) -> Result<(), Box<Decision>> {
    if words.iter().any(|word| word == "--") {
        let reason = "`--` makes targets of all words behind it, also of the values of options".into();
        return misleads(reason, "leave it out");
    }
    let Some(last) = words.last().filter(|word| word.starts_with('-') && *word != "-") else { return Ok(()) };
    for (option, value) in options(last, &PYTEST)? {
        let is_flag = is_among(PYTEST.flags, &option) || (!rules.scoped && !PYTEST.knows(&option));
        if value.is_none() && !is_flag {
            let reason = format!("`{}` at the end may take the next word for its value", shown(&option));
            return misleads(reason, "write its value with `=`, or put a flag such as -q behind it");
        }
    }
    Ok(())
}

/// The words that a variable such as PYTEST_ADDOPTS adds, as Python's shlex parts them: at four characters and no others that
/// are blank, and with a backslash between double quotes that hides nothing but itself and the quote.
pub fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some('"'), '\\') => {
                let hidden = chars.next_if(|next| matches!(next, '"' | '\\'));
                word.get_or_insert_default().push(hidden.unwrap_or('\\'));
            }
            (None, ' ' | '\t' | '\r' | '\n') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
