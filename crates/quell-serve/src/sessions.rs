//! Logins of browsers: a code that works once becomes a session token, in memory only. And wrong tokens, counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell::Result;

use crate::TokenRole;
use crate::tokens::{is_same, secret};

/// How long a code works.
const CODE_LIFE: Duration = Duration::from_secs(60);
/// How long a session lasts.
pub const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How many codes and sessions there are at most. The oldest one goes.
const MOST: usize = 256;
/// How many wrong tokens or codes are looked at in a second.
const WRONG_A_SECOND: u32 = 10;

#[derive(Debug)]
struct Entry {
    secret: String,
    until: Instant,
    name: String,
}

/// The codes and sessions of one server.
#[derive(Debug, Default)]
pub struct Sessions {
    codes: Mutex<Vec<Entry>>,
    sessions: Mutex<Vec<Entry>>,
    wrong: Mutex<Option<(Instant, u32)>>,
    named: std::sync::atomic::AtomicU64,
}

impl Sessions {
    /// A new code.
    pub fn code(&self) -> Result<String> {
        let code = secret()?;
        push(
            &self.codes,
            Entry { secret: code.clone(), until: Instant::now() + CODE_LIFE, name: String::new() },
        );
        Ok(code)
    }

    /// The session token for a code, which works no more. None if it never did.
    pub fn exchange(&self, code: &str) -> Result<Option<String>> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = find(&codes, code) else { return Ok(None) };
        codes.swap_remove(at);
        drop(codes);
        let token = secret()?;
        let number = self.named.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let name = format!("browser-{number}");
        push(&self.sessions, Entry { secret: token.clone(), until: Instant::now() + SESSION_LIFE, name });
        Ok(Some(token))
    }

    /// The name and role of the session with this token.
    pub fn find(&self, token: &str) -> Option<(String, TokenRole)> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        find(&sessions, token).map(|at| (sessions[at].name.clone(), TokenRole::Admin))
    }

    /// Notes a wrong token or code. Returns whether there were too many in this second: then the answer says only that. A right one
    /// is not affected.
    pub fn is_too_often_wrong(&self) -> bool {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (since, count) = match *wrong {
            Some((since, count)) if now.duration_since(since) < Duration::from_secs(1) => (since, count + 1),
            _ => (now, 1),
        };
        *wrong = Some((since, count));
        count > WRONG_A_SECOND
    }
}

fn push(entries: &Mutex<Vec<Entry>>, entry: Entry) {
    let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    entries.retain(|entry| entry.until > now);
    if entries.len() >= MOST {
        entries.remove(0);
    }
    entries.push(entry);
}

/// Each is compared, so that the time does not depend on which one it is.
fn find(entries: &[Entry], secret: &str) -> Option<usize> {
    let now = Instant::now();
    let mut found = None;
    for (at, entry) in entries.iter().enumerate() {
        if is_same(entry.secret.as_bytes(), secret.as_bytes()) && entry.until > now {
            found = Some(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once() {
        let sessions = Sessions::default();
        let code = sessions.code().unwrap();
        assert_eq!(sessions.exchange("").unwrap(), None);
        let token = sessions.exchange(&code).unwrap().unwrap();
        assert_eq!(sessions.exchange(&code).unwrap(), None);
        assert_eq!(sessions.find(&token), Some(("browser-1".into(), TokenRole::Admin)));
        assert_eq!(sessions.find(&code), None);
    }

    #[test]
    fn wrong_tokens_are_too_many_after_ten_in_a_second() {
        let sessions = Sessions::default();
        let too_many = (0..12).filter(|_| sessions.is_too_often_wrong()).count();
        assert_eq!(too_many, 2);
    }
}
