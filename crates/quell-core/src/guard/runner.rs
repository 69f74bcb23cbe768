//! Which words of a runner are paths.

use super::command::wrapper_words;
use super::options::{CARGO, Dashes, GO, JEST, Options, PYTEST, PYTEST_FLAGS, PYTEST_PATH_LISTS, VITEST};
use super::path::check_target;
use super::{BUILT_IN, Decision, Runner, TestCommand};

/// Where a path has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is a target: below a scope.
    Target,
    /// Below a scope, and no scope itself, as it may be emptied.
    Inside,
    /// A directory that is below a scope, or above one; not above the working directory.
    Around,
    /// A file in such a directory.
    FileAround,
    /// Below the working directory or a scope.
    Here,
}

/// A word, or a part of one, that is a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathWord {
    /// In its plain form; empty for the working directory.
    pub path: String,
    /// Where it has to be.
    pub place: Place,
    /// Whether it has to be there.
    pub exists: bool,
}

type Found = Result<Vec<PathWord>, Box<Decision>>;

/// A refusal of a word that would be read in another way than it looks.
pub(super) fn misleads<T>(reason: String, hint: &str) -> Result<T, Box<Decision>> {
    Err(Box::new(Decision::refuse("PATH_OPTION", BUILT_IN, reason, hint)))
}

/// The paths among the words of a command. Of a command that is not known they are guessed only where there is a scope that
/// they have to be in: a word with a slash, and one that names something that `exists`.
pub fn path_words(
    command: &TestCommand,
    words: &[String],
    scoped: bool,
    exists: impl Fn(&str) -> bool,
) -> Found {
    let rest = words.get(command.call..).unwrap_or_default();
    let exists: &dyn Fn(&str) -> bool = &exists;
    let before = wrapper_words(command, words)?;
    let mut found = if scoped { guessed(&before, exists)? } else { Vec::new() };
    // Up to a word behind which the runner itself reads nothing.
    let own = |end: &str| -> Vec<&str> {
        rest.iter().map(String::as_str).take_while(|word| *word != end).collect()
    };
    let all: Vec<&str> = rest.iter().map(String::as_str).collect();
    found.extend(match command.runner {
        Runner::Pytest => scan(&all, &PYTEST, exists, &|option, value| pytest(option, value, exists), &node)?,
        // The words of cargo that are no options are patterns for the names of tests.
        Runner::Cargo | Runner::Nextest => {
            scan(&own("--"), &CARGO, exists, &|option, value| cargo(option, value, scoped), &|_| {
                Ok(Vec::new())
            })?
        }
        // What stands behind it is for the tests' own program.
        Runner::Go => scan(&own("-args"), &GO, exists, &go, &go_target)?,
        // Their words are patterns: without a scope they need not name anything.
        Runner::Jest => scan(&all, &JEST, exists, &nothing, &|word| pattern(word, scoped))?,
        Runner::Vitest => {
            let own = own("--");
            let verbs = ["run", "related", "watch", "dev", "bench", "list"];
            let skip = usize::from(own.first().is_some_and(|word| verbs.contains(word)));
            scan(&own[skip..], &VITEST, exists, &nothing, &|word| pattern(word, scoped))?
        }
        Runner::Other if scoped => guessed(&all, exists)?,
        Runner::Other => Vec::new(),
    });
    Ok(found)
}

fn target(word: &str) -> Found {
    Ok(vec![PathWord { path: check_target(word)?, place: Place::Target, exists: true }])
}

fn pattern(word: &str, exists: bool) -> Found {
    Ok(vec![PathWord { path: check_target(word)?, place: Place::Target, exists }])
}

/// The paths among words of which nothing is known.
fn guessed(words: &[&str], exists: &dyn Fn(&str) -> bool) -> Found {
    let mut found = Vec::new();
    for word in words {
        if let Some(option) = word.strip_prefix('-') {
            let value = match option.split_once('=') {
                Some((_, value)) => value,
                // Such as `-C../x`.
                None => option.get(1..).filter(|_| !option.starts_with('-')).unwrap_or_default(),
            };
            if looks_like_path(value, exists) {
                found.push(option_path(word, value, Place::Here, false)?);
            }
        } else if word.contains(['/', '\\']) || (!word.is_empty() && exists(word)) {
            found.extend(target(word)?);
        }
    }
    Ok(found)
}

/// Whether the value of an option that nobody here knows may be a path. An address of something on the net is none.
fn looks_like_path(value: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let address = value.split_once("://").is_some_and(|(scheme, _)| {
        scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') && !scheme.eq_ignore_ascii_case("file")
    });
    let way = value.contains(['/', '\\']) || value.starts_with('~') || matches!(value, "." | "..");
    !address && (way || (!value.is_empty() && exists(value)))
}

/// The file of `tests/test_a.py::test_x[1]`. What stands behind is compared with names, and opens nothing. Some versions of
/// pytest cut at the first bracket, also before the colons, and some don't: it has to be good in both ways.
fn node(word: &str) -> Found {
    let (file, name) = word.split_once("::").unwrap_or((word, ""));
    if name.chars().any(char::is_control) {
        check_target(word)?;
    }
    let mut found = target(file)?;
    if let Some((short, _)) = file.split_once('[') {
        found.extend(target(short)?);
    }
    Ok(found)
}

/// go's way to write a directory: `.`, `./pkg`, `./pkg/...`.
fn go_target(word: &str) -> Found {
    let there = |path: String| vec![PathWord { path, place: Place::Target, exists: true }];
    if matches!(word, "." | "./" | "./...") {
        return Ok(there(String::new()));
    }
    let stem = word.strip_suffix("/...").unwrap_or(word);
    match stem.strip_prefix("./") {
        Some(rest) => Ok(there(check_target(rest)?)),
        None => {
            // An absolute one, one upwards or an empty one has its own code.
            let path = check_target(stem)?;
            Err(Box::new(Decision::refuse(
                "PATH_OUTSIDE_SCOPE",
                BUILT_IN,
                format!("`{path}` names a package wherever it is, also outside of the working directory"),
                format!("write ./{path}"),
            )))
        }
    }
}

/// What a runner makes of an option and its value; none if that is nothing but what the tables say.
type Special<'a> = dyn Fn(&str, Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> + 'a;

fn nothing(_: &str, _: Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    Ok(None)
}

fn pytest(
    option: &str,
    value: Option<&str>,
    exists: &dyn Fn(&str) -> bool,
) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    match option {
        "--pyargs" => {
            let reason = "--pyargs makes names of modules of the targets, wherever these are".into();
            misleads(reason, "name files or directories")
        }
        "-o" | "--override-ini" => {
            let (key, value) = value.unwrap_or_default().split_once('=').unwrap_or_default();
            if key.trim() == "addopts" {
                return misleads("`-o addopts` has more options in it".into(), "write them as options");
            }
            let list = PYTEST_PATH_LISTS.contains(&key.trim());
            let words = if list { split_words(value) } else { vec![value.trim().to_owned()] };
            let paths = words.iter().filter(|word| list || looks_like_path(word, exists));
            paths.map(|word| option_path(option, word, Place::Here, false)).collect::<Found>().map(Some)
        }
        // `html:DIR`: what kind of report, and where.
        "--cov-report" => match value.and_then(|value| value.split_once(':')) {
            Some((_, path)) => Ok(Some(vec![option_path(option, path, Place::Here, false)?])),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

fn cargo(option: &str, value: Option<&str>, scoped: bool) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    match option {
        "-C" => elsewhere(option),
        "-p" | "--package" | "--workspace" | "--all" if scoped => {
            let reason = format!("`{option}` takes packages of the workspace, wherever these are");
            misleads(reason, "name the package alone, with --manifest-path DIR/Cargo.toml")
        }
        // `TOOL:FILE`.
        "--tool-config-file" => {
            let file = value.and_then(|value| value.split_once(':')).map_or("", |(_, file)| file);
            Ok(Some(vec![option_path(option, file, Place::Here, true)?]))
        }
        _ => Ok(None),
    }
}

fn go(option: &str, _: Option<&str>) -> Result<Option<Vec<PathWord>>, Box<Decision>> {
    if option == "-C" { elsewhere(option) } else { Ok(None) }
}

fn elsewhere<T>(option: &str) -> Result<T, Box<Decision>> {
    let reason = format!("`{option}` changes the directory that targets are seen from");
    misleads(reason, "go into that directory, and call quell there")
}

/// The value of an option as a path. The working directory may be written as such.
fn option_path(option: &str, value: &str, place: Place, exists: bool) -> Result<PathWord, Box<Decision>> {
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
    let path = if value == "." { String::new() } else { check_target(value)? };
    Ok(PathWord { path, place, exists })
}

/// Goes through the words as the runner would.
fn scan(
    words: &[&str],
    known: &Options,
    exists: &dyn Fn(&str) -> bool,
    special: &Special<'_>,
    target: &dyn Fn(&str) -> Found,
) -> Found {
    let mut found = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            // Everything behind it is a target, however it looks.
            for word in words.by_ref() {
                found.extend(target(word)?);
            }
            break;
        }
        if !word.starts_with('-') || word == "-" || is_no_option(word, known) {
            found.extend(target(word)?);
            continue;
        }
        for (option, value) in options(word, known) {
            let next_is_word = words.peek().is_some_and(|next| !next.starts_with('-'));
            let value = match value {
                Some(value) => Some(value),
                None if known.takes(&option) => words.next().map(str::to_owned),
                None if known.optional.contains(&option.as_str()) && next_is_word => {
                    let reason = format!("what stands behind `{option}` may be its value or a target");
                    return misleads(reason, "write a value with `=`, and targets first");
                }
                // Without the plugin it is a target: what could be one has to be a good one.
                None if known.plugins.contains(&option.as_str()) => {
                    let plain = |next: &&str| !next.starts_with('-') && !looks_like_path(next, exists);
                    words.next_if(plain).map(str::to_owned)
                }
                None => None,
            };
            if known.greedy.contains(&option.as_str())
                && words.peek().is_some_and(|next| !next.starts_with('-'))
            {
                let reason = format!("all words behind `{option}` are its values, up to the next option");
                return misleads(reason, "write targets before it, and the option once for each value");
            }
            if let Some(more) = special(&option, value.as_deref())? {
                found.extend(more);
            } else if let Some((place, exists)) = known.path(&option) {
                // An optional one that is not there is no path.
                if value.is_some() || known.takes(&option) {
                    found.push(option_path(&option, value.as_deref().unwrap_or_default(), place, exists)?);
                }
            } else if let Some(value) =
                value.filter(|value| !known.knows(&option) && looks_like_path(value, exists))
            {
                let value = value.strip_prefix("./").unwrap_or(&value);
                found.push(option_path(&option, value, Place::Here, false)?);
            }
        }
    }
    Ok(found)
}

/// Whether a word with a dash is a target all the same: Python's argparse takes numbers for such, and what has a space in it
/// and is no option that it knows.
fn is_no_option(word: &str, known: &Options) -> bool {
    if known.dashes == Dashes::Go {
        return false;
    }
    if let Some(long) = word.strip_prefix("--") {
        let option = long.split('=').next().unwrap_or_default();
        return word.contains(' ') && !known.knows(&format!("--{option}"));
    }
    let first = word.chars().nth(1).unwrap_or(' ');
    let letter = PYTEST_FLAGS.contains(first) || known.knows(&format!("-{first}"));
    !first.is_ascii_alphabetic() || (word.contains(' ') && !letter)
}

/// The options that a word is, with the value that is in it.
fn options(word: &str, known: &Options) -> Vec<(String, Option<String>)> {
    if word.starts_with("--") || known.dashes == Dashes::Go {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word, None),
        };
        return vec![(plain_option(option, known.dashes), value)];
    }
    let mut all = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let option = format!("-{letter}");
        let rest = &word[at + letter.len_utf8()..];
        if known.knows(&option) || rest.starts_with('=') {
            let value = rest.strip_prefix('=').unwrap_or(rest);
            all.push((option, (!rest.is_empty()).then(|| value.to_owned())));
            break;
        }
        all.push((option, None));
    }
    all
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
