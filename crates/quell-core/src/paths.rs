//! Paths in JSON. One that is UTF-8 is a text, any other an array of its bytes: no path is refused, and none is changed.
//! For `#[serde(with = "…")]`; what is only shown is put into words before.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Text(PathBuf),
    Bytes(Vec<u8>),
}

#[cfg(unix)]
fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

#[cfg(unix)]
fn of_bytes(bytes: Vec<u8>) -> PathBuf {
    <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes).into()
}

// Jobs can't be run there yet, and its paths are no bytes.
#[cfg(not(unix))]
fn bytes(_path: &Path) -> &[u8] {
    &[]
}

#[cfg(not(unix))]
fn of_bytes(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

fn shown(path: &Path) -> Shown<'_> {
    path.to_str().map_or_else(|| Shown::Bytes(bytes(path)), Shown::Text)
}

fn path_of(read: Read) -> PathBuf {
    match read {
        Read::Text(path) => path,
        Read::Bytes(bytes) => of_bytes(bytes),
    }
}

/// A path.
pub mod whole {
    use super::{Deserialize, Deserializer, Path, PathBuf, Read, Serialize, Serializer, path_of, shown};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        shown(path).serialize(serializer)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Read::deserialize(deserializer).map(path_of)
    }
}

/// A path, or none.
pub mod optional {
    use super::{Deserialize, Deserializer, PathBuf, Read, Serialize, Serializer, path_of, shown};

    /// Writes it.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_deref().map(shown).serialize(serializer)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Read>::deserialize(deserializer)?.map(path_of))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "whole")]
        one: PathBuf,
        #[serde(default, with = "optional")]
        other: Option<PathBuf>,
    }

    #[test]
    fn every_path_comes_back_as_it_was() {
        for bytes in [&b"/a b"[..], b"", b"/d\xff", b"\xc3\xa4"] {
            let paths = Paths { one: of_bytes(bytes.to_vec()), other: Some(of_bytes(bytes.to_vec())) };
            let text = serde_json::to_string(&paths).unwrap();
            assert_eq!(serde_json::from_str::<Paths>(&text).unwrap(), paths, "{text}");
        }
        // As older records have it.
        let old: Paths = serde_json::from_str(r#"{"one":"/a","other":null}"#).unwrap();
        assert_eq!(old, Paths { one: "/a".into(), other: None });
    }
}
