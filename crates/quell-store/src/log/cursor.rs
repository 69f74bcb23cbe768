//! A position in both streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Stream;

/// How far a reader has come. A reader that starts here gets exactly what comes after it. As text it is one word, `o1234e56`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// How many bytes of standard output are before it.
    pub out: u64,
    /// How many bytes of standard error are before it.
    pub err: u64,
}

impl Cursor {
    /// How many bytes of `stream` are before it.
    pub fn of(self, stream: Stream) -> u64 {
        match stream {
            Stream::Stdout => self.out,
            Stream::Stderr => self.err,
        }
    }

    pub(super) fn of_mut(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Stdout => &mut self.out,
            Stream::Stderr => &mut self.err,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}e{}", self.out, self.err)
    }
}

/// A text that is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a cursor: a cursor looks like `o1234e56`, and comes from an earlier reading of the log"
)]
pub struct InvalidCursor(String);

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        // `parse` alone would accept a sign.
        let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok());
        let parts = text.strip_prefix('o').and_then(|rest| rest.split_once('e'));
        parts
            .and_then(|(out, err)| Some(Self { out: number(out)??, err: number(err)?? }))
            .ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_word_and_comes_back_from_it() {
        for cursor in [Cursor::default(), Cursor { out: 1234, err: 56 }, Cursor { out: u64::MAX, err: 0 }] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
            let json = serde_json::to_string(&cursor).unwrap();
            assert_eq!(json, format!("\"{cursor}\""));
            assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
        }
        assert_eq!(Cursor { out: 1234, err: 56 }.to_string(), "o1234e56");
    }

    #[test]
    fn a_bad_cursor_is_shown_with_what_it_should_look_like() {
        for text in
            ["", "o", "oe", "o1", "o1e", "oe1", "1e2", "o+1e2", "o1e-2", "o1e2 ", "o99999999999999999999e0"]
        {
            let error = text.parse::<Cursor>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("o1234e56"), "{error}");
        }
    }
}
