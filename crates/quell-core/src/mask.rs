//! Secrets that are never shown.

use std::ffi::OsString;

use serde_json::Value;

use crate::printable;

/// The values of the variables to mask.
#[derive(Clone, Debug, Default)]
pub struct Mask {
    values: Vec<String>,
}

/// A value with fewer characters is not a secret.
const SHORTEST: usize = 3;

/// A value, and the ways in which messages and documents write it: escaped, and as a path without needless slashes.
fn forms(value: &str) -> Vec<String> {
    let parts: Vec<&str> = value.split('/').filter(|part| !part.is_empty()).collect();
    let path = if value.contains("//") { parts.join("/") } else { value.to_owned() };
    let json = Value::from(value).to_string();
    let json = json.get(1..json.len() - 1).unwrap_or_default().to_owned();
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    let unicode =
        value.chars().map(|c| if plain(c) { c.to_string() } else { c.escape_unicode().to_string() });
    let escaped = [value.escape_debug().to_string(), value.escape_default().to_string(), unicode.collect()];
    let mut forms = vec![value.to_owned()];
    for form in escaped.into_iter().chain([printable(value), json, path]) {
        if form.len() >= SHORTEST && !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

impl Mask {
    /// The values that `names` have in `environment`, without those that are too short to be a secret.
    pub fn new(names: &[String], environment: &[(OsString, OsString)]) -> Self {
        let mut values: Vec<String> = environment
            .iter()
            .filter(|(key, _)| names.iter().any(|name| key.as_os_str() == name.as_str()))
            .map(|(_, value)| value.to_string_lossy().into_owned())
            // The end of a command line and other texts are shown without the white space around them.
            .flat_map(|value| [value.trim().to_owned(), value])
            .filter(|value| value.len() >= SHORTEST)
            .flat_map(|value| forms(&value))
            .collect();
        // A value that contains another one goes first.
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Self { values }
    }

    /// Whether `text` contains one of the values.
    pub fn hides(&self, text: &str) -> bool {
        self.values.iter().any(|value| text.contains(value.as_str()))
    }

    /// `text` with `***` in place of each value.
    pub fn apply(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), "***"))
    }

    /// Masks the texts in a JSON value.
    pub fn apply_to_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.apply(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.apply_to_json(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.apply_to_json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The same for a text of which parts may have been cut, as `…` shows: before it may be a part of a value.
    pub fn apply_to_cut(&self, text: &str) -> String {
        self.apply(text).split_inclusive('…').map(|part| self.apply_to_part(part)).collect()
    }

    fn apply_to_part(&self, text: &str) -> String {
        let Some(kept) = text.strip_suffix('…') else { return text.to_owned() };
        let parts =
            |value: &str| value.char_indices().map(|(at, _)| at).filter(|at| *at >= SHORTEST).collect();
        let ending = self.values.iter().filter_map(|value| {
            let parts: Vec<usize> = parts(value);
            parts.into_iter().rev().find(|&end| kept.ends_with(&value[..end]))
        });
        match ending.max() {
            Some(length) => format!("{}***…", &kept[..kept.len() - length]),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_value_at_a_cut_is_masked_too() {
        let mask = Mask::new(&["TOKEN".into()], &[("TOKEN".into(), "s3crét-of-mine".into())]);
        assert_eq!(mask.apply_to_cut("curl s3crét-of-mine s3cré…"), "curl *** ***…");
        assert_eq!(mask.apply_to_cut("curl s3cré"), "curl s3cré");
        assert_eq!(mask.apply_to_cut("curl s3…"), "curl s3…");
        assert_eq!(mask.apply_to_cut("1 (x-s3crét-of…), 2 (s3crét…), …"), "1 (x-***…), 2 (***…), …");
    }

    #[test]
    fn a_value_is_masked_however_it_is_written() {
        let mask = |value: &str| Mask::new(&["TOKEN".into()], &[("TOKEN".into(), value.into())]);
        for (value, written) in [
            ("two\nlines", "two\\nlines"),
            ("a \"quote\"", "a \\\"quote\\\""),
            ("a\u{1b}b", "a\\x1bb"),
            ("a\u{1b}b", "a\\u001bb"),
            ("it's a\nkey", "it's a\\u{a}key"),
            ("dé jà", "d\\u{e9} j\\u{e0}"),
            ("/srv//key/", "srv/key"),
            (" s3cret \t", "s3cret"),
            ("two\nlines ", "two\\nlines"),
        ] {
            assert!(mask(value).hides(written), "{written}");
            assert_eq!(mask(value).apply(&format!("<{written}>")), "<***>", "{written}");
        }
        assert!(!mask("s3cret").hides("another"));
        // The path of this value is too short to be a secret.
        assert!(!mask("a//").hides("a"));
    }

    #[test]
    fn only_the_values_of_named_variables_are_masked() {
        let environment = [("TOKEN", "s3cret"), ("LONGER", "s3cret-and-more"), ("HOME", "/root"), ("N", "1")];
        let environment = environment.map(|(key, value)| (OsString::from(key), OsString::from(value)));
        let mask = Mask::new(&["TOKEN".into(), "LONGER".into(), "N".into()], &environment);
        assert_eq!(mask.apply("curl -H s3cret -x s3cret-and-more /root 1"), "curl -H *** -x *** /root 1");
    }
}
