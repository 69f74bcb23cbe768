//! Logins of browsers: a code that works once becomes a session token, in memory only. And wrong tokens, counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell::Result;

use crate::tokens::{is_same, secret};

/// How long a code works.
const CODE_LIFE: Duration = Duration::from_secs(60);
/// How long a session lasts.
const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);
/// How many codes and sessions there are at most. The oldest one goes.
const MOST: usize = 256;
/// How many wrong tokens or codes are looked at in a second.
const WRONG_A_SECOND: u32 = 10;

/// What a login hangs on: it is over when this token is, and at the end of the session that it was made in, if there is one.
#[derive(Clone)]
pub struct LoginOrigin {
    /// The token on disk.
    pub token: String,
    until: Option<Instant>,
}

impl LoginOrigin {
    /// A token on disk itself.
    pub fn token(token: String) -> Self {
        Self { token, until: None }
    }

    /// Whether its session has ended.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// How long a session lasts that begins now.
    pub fn left(&self) -> Duration {
        self.until.map_or(SESSION_LIFE, |until| until.saturating_duration_since(Instant::now()))
    }
}

impl std::fmt::Debug for LoginOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginOrigin").field("until", &self.until).finish_non_exhaustive()
    }
}

struct Entry {
    secret: String,
    until: Instant,
    name: String,
    origin: LoginOrigin,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("until", &self.until).finish_non_exhaustive()
    }
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
    /// A new code, by the caller that `origin` stands for.
    pub fn code(&self, origin: LoginOrigin) -> Result<String> {
        let code = secret()?;
        let until = Instant::now() + CODE_LIFE;
        push(&self.codes, Entry { secret: code.clone(), until, name: String::new(), origin });
        Ok(code)
    }

    /// The session token for a code, which works no more, and what it hangs on. None if it never did.
    pub fn exchange(&self, code: &str) -> Result<Option<(String, LoginOrigin)>> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = find(&codes, code) else { return Ok(None) };
        let made_with = codes.swap_remove(at).origin;
        drop(codes);
        let token = secret()?;
        let number = self.named.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let name = format!("browser-{number}");
        let until = Instant::now() + made_with.left();
        let origin = LoginOrigin { until: Some(until), ..made_with };
        push(&self.sessions, Entry { secret: token.clone(), until, name, origin: origin.clone() });
        Ok(Some((token, origin)))
    }

    /// The name of the session with this token, and what it hangs on.
    pub fn find(&self, token: &str) -> Option<(String, LoginOrigin)> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        find(&sessions, token).map(|at| (sessions[at].name.clone(), sessions[at].origin.clone()))
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

    fn admin() -> LoginOrigin {
        LoginOrigin::token("0".repeat(64))
    }

    #[test]
    fn a_code_works_once() {
        let sessions = Sessions::default();
        let code = sessions.code(admin()).unwrap();
        assert!(sessions.exchange("").unwrap().is_none());
        let (token, _) = sessions.exchange(&code).unwrap().unwrap();
        assert!(sessions.exchange(&code).unwrap().is_none());
        let (name, origin) = sessions.find(&token).unwrap();
        assert_eq!((name.as_str(), origin.token), ("browser-1", admin().token));
        assert!(sessions.find(&code).is_none());
    }

    #[test]
    fn a_session_that_another_one_has_made_ends_with_it() {
        let sessions = Sessions::default();
        let (_, first) = sessions.exchange(&sessions.code(admin()).unwrap()).unwrap().unwrap();
        let (_, second) = sessions.exchange(&sessions.code(first.clone()).unwrap()).unwrap().unwrap();
        assert!(second.left() <= first.left() && !second.is_over());
        let over = LoginOrigin { until: Some(Instant::now()), ..admin() };
        assert!(over.is_over() && over.left().is_zero());
    }

    #[test]
    fn no_secret_is_in_what_is_printed_for_debugging() {
        let sessions = Sessions::default();
        let code = sessions.code(admin()).unwrap();
        let (token, origin) = sessions.exchange(&code).unwrap().unwrap();
        let printed = format!("{sessions:?} {origin:?}");
        assert!([code, token, origin.token].iter().all(|secret| !printed.contains(secret)), "{printed}");
    }

    #[test]
    fn wrong_tokens_are_too_many_after_ten_in_a_second() {
        let sessions = Sessions::default();
        let too_many = (0..12).filter(|_| sessions.is_too_often_wrong()).count();
        assert_eq!(too_many, 2);
    }
}
