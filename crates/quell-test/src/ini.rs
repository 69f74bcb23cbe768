//! The words that pytest takes from files: `addopts`, and `testpaths` where no target is named. Every file that it may choose is
//! read, as which one it is depends on the version.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::rules::{BUILT_IN, Decision, split_words};
use toml::de::{DeTable, DeValue};

const FILES: [&str; 7] =
    ["pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"];

/// The tables that pytest's settings are in.
const TABLES: [&[&str]; 3] = [&["tool", "pytest", "ini_options"], &["tool", "pytest"], &["pytest"]];

/// How large such a file may be.
const LONGEST: u64 = 4 << 20;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<String>),
}

type Found<T> = Result<Vec<(PathBuf, T)>, Box<Decision>>;

/// The files beside the targets or above them that have the setting `key`, and its words.
pub(super) fn words(targets: &[PathBuf], key: &str) -> Found<Vec<String>> {
    parts(targets, key, split_words)
}

/// The same for a setting that has a line for each value.
pub(super) fn lines(targets: &[PathBuf], key: &str) -> Found<Vec<String>> {
    parts(targets, key, |text| text.lines().map(str::to_owned).collect())
}

fn parts(targets: &[PathBuf], key: &str, split: impl Fn(&str) -> Vec<String>) -> Found<Vec<String>> {
    let mut all = Vec::new();
    for file in dirs(targets).iter().flat_map(|dir| FILES.iter().map(|name| dir.join(name))) {
        let Some(text) = read(&file)? else { continue };
        let toml = file.extension().is_some_and(|end| end == "toml");
        let values = if toml {
            from_toml(&text, key).map_err(|error| unread(&file, &error))?
        } else {
            from_ini(&text, key)
        };
        let parted = values.into_iter().flat_map(|value| match value {
            Value::Text(text) => split(&text),
            Value::List(items) => items,
        });
        let parted: Vec<String> = parted.collect();
        if !parted.is_empty() {
            all.push((file, parted));
        }
    }
    Ok(all)
}

/// The directories that the targets are in, up to the root, with links and without.
pub(super) fn dirs(targets: &[PathBuf]) -> BTreeSet<PathBuf> {
    let real = targets.iter().filter_map(|target| target.canonicalize().ok());
    let all: Vec<PathBuf> = targets.iter().cloned().chain(real).collect();
    all.iter().flat_map(|target| target.ancestors()).map(Path::to_owned).collect()
}

/// What is in a file; none if there is no such file. One that can't be read is refused: the runner might be able to.
pub(super) fn read(file: &Path) -> Result<Option<String>, Box<Decision>> {
    let absent = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    let found = match fs::metadata(file) {
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) => found,
        Err(error) if absent.contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(unread(file, &error)),
    };
    if found.len() > LONGEST {
        return Err(unread(file, &format!("it is larger than {LONGEST} bytes")));
    }
    let bytes = fs::read(file).map_err(|error| unread(file, &error))?;
    String::from_utf8(bytes).map(Some).map_err(|_| unread(file, &"it is no UTF-8"))
}

/// A refusal because of a file of the runner's that can't be read.
pub(super) fn unread(file: &Path, why: &dyn Display) -> Box<Decision> {
    let why = why.to_string();
    let reason = format!(
        "can't read `{}`, which the runner goes by: {}",
        file.display(),
        why.lines().next().unwrap_or_default()
    );
    let hint = "mend that file, or take it away";
    Box::new(Decision::refuse("OPTION_NOT_ALLOWED", BUILT_IN, reason, hint))
}

fn from_toml(text: &str, key: &str) -> Result<Vec<Value>, toml::de::Error> {
    let document = DeTable::parse(text)?;
    let mut values = Vec::new();
    for path in TABLES {
        let mut table = Some(document.get_ref());
        for name in path {
            table = table.and_then(|table| table.get(*name)).and_then(|value| value.get_ref().as_table());
        }
        match table.and_then(|table| table.get(key)).map(|value| value.get_ref()) {
            Some(DeValue::String(text)) => values.push(Value::Text(text.to_string())),
            Some(DeValue::Array(items)) => {
                let items = items.iter().filter_map(|item| item.get_ref().as_str());
                values.push(Value::List(items.map(str::to_owned).collect()));
            }
            _ => {}
        }
    }
    Ok(values)
}

/// The setting of any section: nothing else is called so. Read as Python's iniconfig does it: a line ends at any of Python's
/// ends of lines, and a value goes on in lines that begin with a blank, or with a bracket that is not closed.
fn from_ini(text: &str, key: &str) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    let mut inside = false;
    for line in text.split(is_end) {
        let line = line.trim_end_matches(is_blank);
        let bare = line.trim_start_matches(is_blank);
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        let section = line.split(['#', ';']).next().unwrap_or_default().trim_end_matches(is_blank);
        if line.starts_with('[') && section.ends_with(']') {
            inside = false;
        } else if line.starts_with(is_blank) || line.starts_with('[') {
            if let (true, Some(Value::Text(value))) = (inside, values.last_mut()) {
                *value = format!("{value}\n{bare}");
            }
        } else {
            let (name, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
            inside = name.trim_end_matches(is_blank) == key;
            if inside {
                values.push(Value::Text(value.trim_start_matches(is_blank).to_owned()));
            }
        }
    }
    values
}

/// What Python takes for the end of a line.
pub(super) fn is_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What Python takes for a blank.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_words_are_found_in_every_form() {
        for (name, text, expected) in [
            ("pytest.ini", "[pytest]\naddopts = -q src\n", &["-q", "src"][..]),
            (
                "pytest.ini",
                "[pytest]\naddopts=\n    -q\n\n# no\n    'a b'\ntestpaths = x\n  y\n",
                &["-q", "a b"],
            ),
            ("setup.cfg", "[tool:pytest]\naddopts: -p evil\n[flake8]\nselect = x\n", &["-p", "evil"]),
            ("tox.ini", "[pytest]\naddoptsx = src\n", &[]),
            ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q src'\n", &["-q", "src"]),
            ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = ['-m', 'a b']\n", &["-m", "a b"]),
            ("pyproject.toml", "[tool.pytest]\naddopts = ['src']\n", &["src"]),
            ("pytest.toml", "[pytest]\naddopts = ['src']\n", &["src"]),
            ("pyproject.toml", "[project]\naddopts = 'src'\n", &[]),
            ("pytest.ini", "[pytest]\raddopts = -p evil\n", &["-p", "evil"]),
            ("pytest.ini", "[pytest]\nx = a\u{b}addopts\u{1f}= -p evil\n", &["-p", "evil"]),
            ("pytest.ini", "[pytest]\naddopts = -q\n[ -p evil\n", &["-q", "[", "-p", "evil"]),
            ("pytest.ini", "[pytest]\naddopts = -q\n[x] # y\n  -p evil\n", &["-q"]),
            ("pytest.ini", "[pytest]\naddopts = \"a\n  b\" -p \"evil\"\n", &["a\nb", "-p", "evil"]),
        ] {
            let toml = name.ends_with("toml");
            let found =
                if toml { from_toml(text, "addopts").expect("TOML") } else { from_ini(text, "addopts") };
            let words = found.into_iter().flat_map(|value| match value {
                Value::Text(text) => split_words(&text),
                Value::List(items) => items,
            });
            assert_eq!(words.collect::<Vec<_>>(), expected, "{name}: {text}");
        }
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error() {
        let nested = format!("x = {}1{}\n[tool.pytest.ini_options]\n", "[".repeat(90), "]".repeat(90));
        for text in ["no toml", &nested] {
            assert!(from_toml(text, "addopts").is_err(), "{text}");
        }
    }
}
