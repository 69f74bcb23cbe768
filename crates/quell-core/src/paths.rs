//! Paths and words in JSON, for `#[serde(with = "…")]`: a string if it is UTF-8, else an array of its bytes, so that every
//! path can be written and comes back unchanged.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path or word to write.
struct Shown<'a>(&'a OsStr);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => bytes(self.0).serialize(serializer),
        }
    }
}

/// A path or word that was read.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of bytes")]
enum Read {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Read> for OsString {
    fn from(read: Read) -> Self {
        match read {
            Read::Text(text) => text.into(),
            Read::Bytes(bytes) => of_bytes(bytes),
        }
    }
}

#[cfg(unix)]
fn bytes(text: &OsStr) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(text)
}

#[cfg(unix)]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

// Paths are not bytes there, and jobs cannot run there yet.
#[cfg(not(unix))]
fn bytes(_text: &OsStr) -> &[u8] {
    &[]
}

#[cfg(not(unix))]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// A path.
pub mod whole {
    use super::{Deserialize, Deserializer, OsString, Path, PathBuf, Read, Serialize, Serializer, Shown};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Shown(path.as_os_str()).serialize(serializer)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Read::deserialize(deserializer).map(|read| OsString::from(read).into())
    }
}

/// A path, or none.
pub mod optional {
    use super::{Deserialize, Deserializer, OsString, PathBuf, Read, Serialize, Serializer, Shown};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| Shown(path.as_os_str())).serialize(serializer)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Read>::deserialize(deserializer)?.map(|read| OsString::from(read).into()))
    }
}

/// Several paths, or the words of a command.
pub mod list {
    use super::{Deserialize, Deserializer, OsStr, OsString, Read, Serializer, Shown};

    /// Writes them.
    pub fn serialize<S: Serializer>(items: &[impl AsRef<OsStr>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(items.iter().map(|item| Shown(item.as_ref())))
    }

    /// Reads them.
    pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(Vec::<Read>::deserialize(deserializer)?
            .into_iter()
            .map(|read| OsString::from(read).into())
            .collect())
    }
}

/// Pairs of a key and a value, such as those of an environment.
pub mod pairs {
    use super::{Deserialize, Deserializer, OsString, Read, Serializer, Shown};

    /// Writes them.
    pub fn serialize<S: Serializer>(
        pairs: &[(OsString, OsString)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pairs.iter().map(|(key, value)| (Shown(key), Shown(value))))
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(OsString, OsString)>, D::Error> {
        let pairs = Vec::<(Read, Read)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Texts {
        #[serde(with = "whole")]
        one: PathBuf,
        #[serde(default, with = "optional")]
        other: Option<PathBuf>,
        #[serde(with = "list")]
        words: Vec<OsString>,
        #[serde(with = "pairs")]
        pairs: Vec<(OsString, OsString)>,
    }

    #[test]
    fn every_path_and_word_comes_back_as_it_was() {
        for bytes in [&b"/a b"[..], b"", b"/d\xff", b"\xc3\xa4", b"\"\\\n"] {
            let text = || of_bytes(bytes.to_vec());
            let texts = Texts {
                one: text().into(),
                other: Some(text().into()),
                words: vec![text(), "-x".into()],
                pairs: vec![("K".into(), text())],
            };
            let json = serde_json::to_string(&texts).unwrap();
            assert_eq!(serde_json::from_str::<Texts>(&json).unwrap(), texts, "{json}");
        }
    }

    #[test]
    fn utf_8_is_written_as_a_string() {
        let texts = Texts { one: "/a".into(), other: None, words: vec!["ä".into()], pairs: Vec::new() };
        let json = r#"{"one":"/a","other":null,"words":["ä"],"pairs":[]}"#;
        assert_eq!(serde_json::to_string(&texts).unwrap(), json);
    }
}
