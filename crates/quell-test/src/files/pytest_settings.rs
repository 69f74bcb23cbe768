//! pytest's settings. All files that pytest may choose are read, as the choice depends on its version.

use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::{parse, python_modules, read, refuse_setting, with_parents};
use crate::check::{Checked, Rules};
use crate::runners::shlex_split;

const FILES: [&str; 7] =
    ["pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"];

/// The tables that pytest's settings are in.
const TABLES: [&[&str]; 3] = [&["tool", "pytest", "ini_options"], &["tool", "pytest"], &["pytest"]];

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<String>),
}

impl Value {
    fn into_parts(self, split: fn(&str) -> Vec<String>) -> Vec<String> {
        match self {
            Self::Text(text) => split(&text),
            Self::List(items) => items,
        }
    }
}

/// The files beside the targets or above them that have the setting `key`, each with the words of its value.
pub(crate) fn pytest_setting(targets: &[PathBuf], key: &str) -> Checked<Vec<(PathBuf, Vec<String>)>> {
    parts(targets, key, shlex_split)
}

fn parts(
    targets: &[PathBuf],
    key: &str,
    split: fn(&str) -> Vec<String>,
) -> Checked<Vec<(PathBuf, Vec<String>)>> {
    let mut all = Vec::new();
    for file in with_parents(targets).iter().flat_map(|dir| FILES.iter().map(|name| dir.join(name))) {
        let Some(text) = read(&file)? else { continue };
        let values = values(&file, &text, key)?.into_iter();
        let parts: Vec<String> = values.flat_map(|value| value.into_parts(split)).collect();
        if !parts.is_empty() {
            all.push((file, parts));
        }
    }
    Ok(all)
}

/// Whether pytest may take a directory as its root, from which it derives the names of modules.
pub(super) fn may_be_root(dir: &Path) -> bool {
    let has_section = |name: &&str| {
        let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
        ["[pytest", "[tool.pytest", "[tool:pytest"].iter().any(|section| text.contains(section))
    };
    let exists = |name: &&str| dir.join(name).exists();
    ["pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "setup.py"].iter().any(exists)
        || FILES.iter().any(has_section)
}

/// Refuses a warning filter that makes Python load a module outside the scope: `error::package.Warning`.
pub(super) fn check_warnings(targets: &[PathBuf], rules: &Rules<'_>) -> Checked<()> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect();
    for (file, filters) in parts(targets, "filterwarnings", lines)? {
        let category = |filter: &String| {
            let category = filter.split(':').nth(2)?.trim_matches(is_blank).to_owned();
            category.split_once('.').map(|(module, _)| module.to_owned())
        };
        for module in filters.iter().filter_map(category) {
            let found = with_parents(targets).iter().find_map(|dir| {
                let package = Some(dir.join(&module)).filter(|package| package.is_dir());
                python_modules::find(dir, &module)
                    .or(package)
                    .filter(|found| !rules.scope.contains_file(found))
            });
            if let Some(found) = found {
                let why = format!("loads `{}`", found.display());
                refuse_setting(&file, "filterwarnings", &why, rules)?;
            }
        }
    }
    Ok(())
}

fn values(file: &Path, text: &str, key: &str) -> Checked<Vec<Value>> {
    if file.extension().is_some_and(|end| end == "toml") {
        return from_toml(file, text, key);
    }
    Ok(from_ini(text, key))
}

fn from_toml(file: &Path, text: &str, key: &str) -> Checked<Vec<Value>> {
    let document = parse(file, text)?;
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

/// The setting in any section, as any version of Python's iniconfig reads it: some split the lines like `splitlines`, others only at line
/// feeds and carriage returns.
fn from_ini(text: &str, key: &str) -> Vec<Value> {
    let mut values = from_ini_lines(text.split(is_line_end), key);
    if text.contains(|c| is_line_end(c) && !matches!(c, '\n' | '\r')) {
        values.extend(from_ini_lines(text.split(['\n', '\r']), key));
    }
    values
}

/// A value continues in lines that begin with whitespace or with an unclosed bracket.
fn from_ini_lines<'t>(lines: impl Iterator<Item = &'t str>, key: &str) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    let mut inside = false;
    for line in lines {
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

/// Whether Python's `splitlines` splits at a character.
pub(super) fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether Python's `strip` removes a character.
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
            ("pytest.ini", "[pytest]\naddopts\u{1c}= -p evil\n", &["-p", "evil"]),
            ("setup.cfg", "[tool:pytest]\naddopts\u{1e}: -p evil\n", &["-p", "evil"]),
            ("pytest.ini", "[pytest]\naddopts = -q\n\u{1c}-p evil\n", &["-q", "-q", "-p", "evil"]),
            ("pytest.ini", "[pytest]\naddopts = -q\n[ -p evil\n", &["-q", "[", "-p", "evil"]),
            ("pytest.ini", "[pytest]\naddopts = -q\n[x] # y\n  -p evil\n", &["-q"]),
            ("pytest.ini", "[pytest]\naddopts = \"a\n  b\" -p \"evil\"\n", &["a\nb", "-p", "evil"]),
        ] {
            let found = values(Path::new(name), text, "addopts").expect(name);
            let words = found.into_iter().flat_map(|value| value.into_parts(shlex_split));
            assert_eq!(words.collect::<Vec<_>>(), expected, "{name}: {text}");
        }
    }

    #[test]
    fn an_invalid_file_is_an_error() {
        let nested = format!("x = {}1{}\n[tool.pytest.ini_options]\n", "[".repeat(90), "]".repeat(90));
        for text in ["no toml", &nested] {
            assert!(values(Path::new("x.toml"), text, "addopts").is_err(), "{text}");
        }
    }
}
