//! Tokens on disk: the one with all rights, and those that the user has added.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quell::binary::{Home, random_u128};
use quell::{Error, Result};
use serde::Deserialize;

use crate::TokenRole;
use crate::files::{self, Files};

/// The name of the token in `serve/token`.
const DEFAULT: &str = "default";

/// A token.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name, for receipts and the audit log.
    pub name: String,
    /// What it may do.
    pub role: TokenRole,
    /// What a client sends.
    token: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    #[serde(default)]
    token: Vec<Token>,
}

/// When and what a file was last read.
type Stamp = Option<(u64, i64, i64, u64)>;

/// What was read, and from which files.
type ReadTokens = ([Stamp; 2], Vec<Token>);

/// The tokens, read again when their files change.
#[derive(Debug)]
pub struct Tokens {
    files: Files,
    read: Mutex<ReadTokens>,
}

impl Tokens {
    /// Reads the tokens, and makes the first one if there is none.
    pub fn open(files: &Files) -> Result<Self> {
        if files::read(&files.token())?.is_none() {
            files::write(&files.token(), &format!("{}\n", secret()?))?;
        }
        let stamps = stamps(files);
        Ok(Self { files: files.clone(), read: Mutex::new((stamps, read_all(files)?)) })
    }

    /// The text of the token in `serve/token`, if there is one.
    pub fn default_text(&self) -> Option<String> {
        let read = self.up_to_date();
        read.1.iter().find(|token| token.name == DEFAULT).map(|token| token.token.clone())
    }

    /// The token with this text. Files that can't be read any more keep their last tokens, except that a file that is gone has
    /// none.
    pub fn find(&self, text: &str) -> Option<Token> {
        let read = self.up_to_date();
        // Each is compared, so that the time does not depend on which one it is.
        let mut found = None;
        for token in &read.1 {
            if is_same(token.token.as_bytes(), text.as_bytes()) {
                found = Some(token);
            }
        }
        found.cloned()
    }

    fn up_to_date(&self) -> MutexGuard<'_, ReadTokens> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.files);
        if read.0 != now
            && let Ok(tokens) = read_all(&self.files)
        {
            *read = (now, tokens);
        }
        read
    }
}

/// Whether two texts are the same, in a time that depends on their length only.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}

/// 256 random bits.
pub fn secret() -> Result<String> {
    let random = || random_u128().map_err(Error::io("getrandom"));
    Ok(format!("{:032x}{:032x}", random()?, random()?))
}

fn stamps(files: &Files) -> [Stamp; 2] {
    [files.token(), files.tokens()].map(|path| {
        let found = fs::symlink_metadata(path).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    })
}

fn read_all(files: &Files) -> Result<Vec<Token>> {
    let mut tokens = read_added(&files.tokens())?.token;
    if let Some(token) = files::read(&files.token())?.map(|text| text.trim().to_owned()) {
        tokens.push(Token { name: DEFAULT.into(), role: TokenRole::Admin, token });
    }
    // A file that was emptied by hand must not let an empty token in.
    tokens.retain(|token| token.token.len() >= 32);
    Ok(tokens)
}

fn read_added(path: &Path) -> Result<Added> {
    let Some(text) = files::read(path)? else { return Ok(Added::default()) };
    toml::from_str(&text).map_err(|error| Error::Config {
        file: path.to_owned(),
        line: 0,
        message: error.message().to_owned(),
        hint: "correct it, or remove it and add the tokens again".into(),
    })
}

/// Adds a token with the rights of `role` and returns it. A server that runs knows it at once.
pub fn add_token(home: &Home, name: &str, role: TokenRole) -> Result<String> {
    let files = Files::open(home)?;
    let path = files.tokens();
    if name == DEFAULT || read_added(&path)?.token.iter().any(|token| token.name == name) {
        let why = format!(
            "there is a token `{name}` already: choose another name, or remove it from {}",
            path.display()
        );
        return Err(Error::BadValue(why));
    }
    let token = secret()?;
    let before = files::read(&path)?.unwrap_or_default();
    let gap = if before.is_empty() { "" } else { "\n" };
    // A name has no character that TOML would have to escape.
    let entry = format!("[[token]]\nname = \"{name}\"\nrole = \"{}\"\ntoken = \"{token}\"\n", role.as_str());
    files::write(&path, &format!("{before}{gap}{entry}"))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (tempfile::TempDir, Home, Tokens) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let tokens = Tokens::open(&Files::open(&home).unwrap()).unwrap();
        (dir, home, tokens)
    }

    #[test]
    fn an_added_token_is_known_at_once_and_a_removed_one_no_more() {
        let (_dir, home, tokens) = opened();
        let text = add_token(&home, "phone", TokenRole::Stop).unwrap();
        let found = tokens.find(&text).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("phone", TokenRole::Stop));
        assert!(add_token(&home, "phone", TokenRole::View).is_err(), "the name is taken");
        fs::remove_file(Files::open(&home).unwrap().tokens()).unwrap();
        assert!(tokens.find(&text).is_none());
    }

    #[test]
    fn the_default_token_has_all_rights_and_an_empty_text_none() {
        let (_dir, home, tokens) = opened();
        let path = Files::open(&home).unwrap().token();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 64);
        assert_eq!(tokens.find(text.trim()).unwrap().role, TokenRole::Admin);
        fs::write(&path, "\n").unwrap();
        assert!(tokens.find("").is_none());
        assert!(tokens.find(text.trim()).is_none());
    }

    #[test]
    fn only_equal_texts_are_the_same() {
        assert!(is_same(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!is_same(b"abc", other));
        }
    }
}
