//! The environment of a program, and the texts that it is read from.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::Mask;

/// The program's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Whether it begins empty instead of with the caller's.
    #[serde(default)]
    pub clear: bool,
    /// What is set in it, later ones over earlier ones.
    #[serde(default, with = "crate::paths::pairs")]
    pub set: Vec<(OsString, OsString)>,
}

impl Environment {
    /// All variables of it, those of this process included unless it begins empty.
    pub fn variables(&self) -> BTreeMap<OsString, OsString> {
        let outer = (!self.clear).then(std::env::vars_os).into_iter().flatten();
        outer.chain(self.set.iter().cloned()).collect()
    }

    /// The values that `names` have in it, which are to be masked.
    pub fn mask(&self, names: &[String]) -> Mask {
        // Without names nothing is copied.
        let variables: Vec<_> =
            if names.is_empty() { Vec::new() } else { self.variables().into_iter().collect() };
        Mask::new(names, &variables)
    }

    pub(crate) fn is_default(&self) -> bool {
        !self.clear && self.set.is_empty()
    }
}

/// A `K=V` without its `=` or its key.
#[derive(Debug, thiserror::Error)]
#[error("invalid assignment `{0}`: expected KEY=VALUE")]
pub struct InvalidAssignment(String);

/// A line of an environment file that is not an assignment. The line is not quoted: it may be a part of a secret, such as a key.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is not an assignment: expected KEY=VALUE")]
pub struct InvalidEnvironment {
    /// Its number, from 1 on.
    line: usize,
}

/// Reads the text of an environment file: one `KEY=VALUE` a line, empty lines, and comments that begin with `#`.
pub fn parse_environment(text: &str) -> Result<Vec<(String, String)>, InvalidEnvironment> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start()));
    lines
        .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
        .map(|(line, text)| parse_assignment(text).map_err(|_| InvalidEnvironment { line }))
        .collect()
}

/// Reads `KEY=VALUE`. The value may be empty and may contain `=`. A key with a blank, as in `export KEY=VALUE`, is an error.
pub fn parse_assignment(text: &str) -> Result<(String, String), InvalidAssignment> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !key.contains([' ', '\t']) && !text.contains('\0') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        // What may be a secret is not shown.
        Some((key, _)) => Err(InvalidAssignment(format!("{key}=…"))),
        None => Err(InvalidAssignment(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_file_has_assignments_comments_and_empty_lines() {
        let pairs = parse_environment("# a comment\n\n  A=1\nB=\nC=x=y z\n").unwrap();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("A", "1"), ("B", ""), ("C", "x=y z")]);
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        for (text, line) in [
            ("A=1\ns3cret", 2),
            ("\n#\nexport A=s3cret", 3),
            ("a s3cret ==", 1),
            ("=s3cret", 1),
            ("A=s3cret\0", 1),
        ] {
            let error = parse_environment(text).unwrap_err().to_string();
            assert_eq!(error, format!("line {line} is not an assignment: expected KEY=VALUE"));
        }
    }

    #[test]
    fn the_variables_of_this_process_are_part_of_it_unless_it_begins_empty() {
        let set = vec![("TOKEN".into(), "first".into()), ("TOKEN".into(), "s3cret".into())];
        let (cleared, whole) =
            (Environment { clear: true, set: set.clone() }, Environment { clear: false, set });
        assert_eq!(cleared.variables(), BTreeMap::from([("TOKEN".into(), "s3cret".into())]));
        // Cargo sets variables for its tests.
        assert!(whole.variables().len() > 1);
        assert!(whole.mask(&["TOKEN".into()]).hides("s3cret") && !whole.mask(&[]).hides("s3cret"));
    }
}
