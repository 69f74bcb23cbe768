//! What people write in one word, and environment files.

use std::path::{Component, Path};
use std::time::{Duration, Instant};

use quell_core::{
    JobId, Signal, format_duration, parse_cores, parse_duration, parse_environment, parse_size,
};
use quell_store::{Cursor, is_name};

/// Whether `text` names something right in the directory that it is joined to, and nowhere else.
fn stays_put(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == text)
        && !text.contains('\0')
}

/// Ids and names become names of files.
pub fn ids(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.to_string(), text);
        assert!(stays_put(&text) && text.len() == 26, "{text}");
        let json = serde_json::to_string(&id).expect("an id can be written");
        assert_eq!(serde_json::from_str::<JobId>(&json).expect("and read"), id);
        assert_eq!(JobId::new(id.unix_ms(), 0).unix_ms(), id.unix_ms());
    }
    if is_name(&text) {
        assert!(stays_put(&text) && text.len() <= 64, "{text}");
    }
}

/// Durations, sizes, cores and signals.
pub fn units(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(duration) = parse_duration(&text) {
        assert!(Instant::now().checked_add(duration * 4).is_some(), "{duration:?} is beyond the clock");
        let again = parse_duration(&format_duration(duration));
        // People read it to a hundredth of a second; more than an hour has several units, which are not read back.
        if duration < Duration::from_secs(60) {
            let again = again.expect("what quell prints it reads");
            assert!(again.abs_diff(duration) < Duration::from_millis(10), "{duration:?}, {again:?}");
        }
    }
    if let Ok(size) = parse_size(&text) {
        assert!(size > 0 && i64::try_from(size).is_ok(), "{size}");
        assert_eq!(parse_size(&size.to_string()).expect("a size") as f64, size as f64);
    }
    if let Ok(cores) = parse_cores(&text) {
        assert!(cores.is_finite() && cores > 0.0);
    }
    if let Ok(signal) = text.parse::<Signal>() {
        assert_eq!(signal.to_string().parse::<Signal>().expect("what quell prints it reads"), signal);
        let json = serde_json::to_string(&signal).expect("a signal can be written");
        assert_eq!(serde_json::from_str::<Signal>(&json).expect("and read"), signal);
    }
}

/// Environment files: nothing comes out that an exec would refuse or take for something else.
pub fn environment(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(set) = parse_environment(&text) else { return };
    assert!(set.len() <= text.lines().count());
    for (key, value) in &set {
        assert!(!key.is_empty() && !key.contains(['=', '\0', '\n']), "{key:?}");
        assert!(!value.contains(['\0', '\n']), "{value:?}");
    }
    if !text.contains('\r') {
        let printed: String = set.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        assert_eq!(parse_environment(&printed).expect("what was read can be read again"), set);
    }
}

/// Cursors.
pub fn cursors(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(cursor) = text.parse::<Cursor>() {
        assert_eq!(cursor.to_string().parse::<Cursor>().expect("a cursor"), cursor);
        assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'o' || byte == b'e'), "{text}");
    }
}
