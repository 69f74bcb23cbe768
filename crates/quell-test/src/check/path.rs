//! Checks the text of a path: every program, and every person, must read it as the same path below the working directory or the scope.
//! `scope.rs` checks where it leads on disk.

use quell_guard::{BUILT_IN, DecisionCode};

use super::Checked;

/// PATH_MAX of Linux.
const MAX_LENGTH: usize = 4096;

/// The hint for a path that leads out of the working directory.
const BELOW: &str = "use a plain path below the working directory, such as tests/test_a.py";

/// A directory that an absolute path may begin with.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// How the path begins.
    pub path: String,
    /// What replaces it in the plain form: empty for the working directory.
    pub plain: String,
}

/// The first 60 characters of a text, without control characters and escape sequences.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_graphic() || c == ' ' { c.to_string() } else { c.escape_unicode().to_string() }
    };
    let mut short: String = text.chars().take(60).map(plain).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

fn refuse<T>(code: DecisionCode, reason: String, hint: &str) -> Checked<T> {
    super::refuse(code, BUILT_IN, reason, hint)
}

/// The path in its plain form (`./a//b/` is `a/b`, the working directory is empty), if it is below one of `roots`. Refuses a path that
/// means something else on another system or after decoding, or that a person could misread.
pub(crate) fn check_target(text: &str, roots: &[Root]) -> Checked<String> {
    let name = printable(text);
    if text.trim().is_empty() {
        let reason = "a path is empty".into();
        return refuse(DecisionCode::PathEmpty, reason, "name a file or a directory, such as tests");
    }
    if text.len() > MAX_LENGTH {
        let reason = format!("`{name}` is longer than {MAX_LENGTH} bytes");
        return refuse(DecisionCode::PathTooLong, reason, "shorten it");
    }
    let (root, rest) = split_root(text, roots);
    refuse_characters(rest, &name)?;
    refuse_prefixes(rest, &name)?;
    let is_dots = |part: &str| part.contains('.') && part.trim_matches([' ', '.']).is_empty();
    // Windows ignores spaces and dots at the end of a name.
    if let Some(part) = rest.split(['/', '\\']).find(|part| is_dots(part)) {
        let reason = format!("`{name}` has the part `{part}`, which stands for another directory");
        return refuse(DecisionCode::PathTraversal, reason, BELOW);
    }
    let parts = rest.split('/').filter(|part| !part.is_empty());
    let plain: Vec<&str> = root.into_iter().chain(parts).collect();
    Ok(plain.join("/"))
}

/// Splits a path into its root, in the plain form, and the rest.
fn split_root<'t>(text: &'t str, roots: &'t [Root]) -> (Option<&'t str>, &'t str) {
    for root in roots {
        let below = text.strip_prefix(root.path.trim_end_matches('/'));
        if let Some(rest) = below.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            let plain = (!root.plain.is_empty()).then(|| root.plain.trim_end_matches('/'));
            return (plain, rest.trim_start_matches('/'));
        }
    }
    let mut rest = text;
    while let Some(below) = rest.strip_prefix("./") {
        rest = below.trim_start_matches('/');
    }
    (None, if rest == "." { "" } else { rest })
}

/// Refuses invisible characters, characters that look like a slash or a dot, and encoded characters. Outside ASCII only letters and
/// digits are allowed.
fn refuse_characters(text: &str, name: &str) -> Checked<()> {
    // Unicode counts these as letters, but they are invisible.
    let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];
    let is_refused =
        |c: char| if c.is_ascii() { c.is_control() } else { !c.is_alphanumeric() || fillers.contains(&c) };
    if text.chars().any(is_refused) {
        let reason = format!("`{name}` has a character that is invisible or looks like another one");
        return refuse(DecisionCode::PathControl, reason, "use only letters, digits and ASCII characters");
    }
    let is_code = |rest: &str| {
        rest.starts_with(['u', 'U']) || rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2
    };
    if text.split('%').skip(1).any(is_code) {
        let reason = format!("`{name}` has an encoded character, which some programs would decode");
        return refuse(DecisionCode::PathTraversal, reason, "write the character itself");
    }
    Ok(())
}

/// Refuses a path that begins like an absolute path, a URL, a home directory or an option.
fn refuse_prefixes(text: &str, name: &str) -> Checked<()> {
    // Some programs trim spaces.
    let text = text.trim_start();
    let has_drive = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text[1..].starts_with(':');
    let is_address = text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains('/'));
    let first = text.chars().next();
    if has_drive || is_address || matches!(first, Some('/' | '\\')) {
        let reason = format!("`{name}` is an absolute path outside the working directory and the scope");
        return refuse(DecisionCode::PathAbsolute, reason, BELOW);
    }
    match first {
        Some('~') => {
            refuse(DecisionCode::PathHome, format!("`{name}` would be read as a home directory"), BELOW)
        }
        Some('-') => {
            let reason = format!("`{name}` would be read as an option");
            refuse(DecisionCode::PathOption, reason, "put options before the targets")
        }
        Some('@') => {
            let reason = format!("`{name}` would be read as a file with more arguments");
            refuse(DecisionCode::PathOption, reason, "write the arguments themselves")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> [Root; 3] {
        let root = |path: &str, plain: &str| Root { path: path.into(), plain: plain.into() };
        [root("/srv/app", ""), root("/home/me/link", ""), root("/data/tests/", "/data/tests/")]
    }

    fn code(text: &str) -> String {
        match check_target(text, &roots()) {
            Ok(path) => format!("ok {path}"),
            Err(decision) => decision.code.to_string(),
        }
    }

    const TABLE: &[(&str, &str)] = &[
        ("", "PATH_EMPTY"),
        (" ", "PATH_EMPTY"),
        ("\t \t", "PATH_EMPTY"),
        ("\n", "PATH_EMPTY"),
        ("\u{3000}", "PATH_EMPTY"),
        ("/", "PATH_ABSOLUTE"),
        ("/etc/passwd", "PATH_ABSOLUTE"),
        (" /etc/passwd", "PATH_ABSOLUTE"),
        ("//host/share", "PATH_ABSOLUTE"),
        ("/./tests", "PATH_ABSOLUTE"),
        ("\\", "PATH_ABSOLUTE"),
        ("\\\\host\\share", "PATH_ABSOLUTE"),
        ("\\\\?\\C:\\x", "PATH_ABSOLUTE"),
        ("\\tests", "PATH_ABSOLUTE"),
        ("C:\\x", "PATH_ABSOLUTE"),
        ("C:/x", "PATH_ABSOLUTE"),
        ("C:x", "PATH_ABSOLUTE"),
        ("c:", "PATH_ABSOLUTE"),
        ("Ｃ：＼x", "PATH_CONTROL"),
        ("c\u{a789}x", "PATH_CONTROL"),
        ("file:///etc/passwd", "PATH_ABSOLUTE"),
        ("https://example.com/a.py", "PATH_ABSOLUTE"),
        ("\u{ff0f}etc", "PATH_CONTROL"),
        ("\u{2215}etc", "PATH_CONTROL"),
        ("/srv", "PATH_ABSOLUTE"),
        ("/srv/apple", "PATH_ABSOLUTE"),
        ("/srv/./app/tests", "PATH_ABSOLUTE"),
        ("//srv/app/tests", "PATH_ABSOLUTE"),
        (" /srv/app/tests", "PATH_ABSOLUTE"),
        ("/data/tests2/a.py", "PATH_ABSOLUTE"),
        ("/srv/app/../x", "PATH_TRAVERSAL"),
        ("/srv/app/tests/%2e%2e/x", "PATH_TRAVERSAL"),
        ("/srv/app/..\\x", "PATH_TRAVERSAL"),
        ("/data/tests/../x", "PATH_TRAVERSAL"),
        ("..", "PATH_TRAVERSAL"),
        ("./..", "PATH_TRAVERSAL"),
        ("./../x", "PATH_TRAVERSAL"),
        ("./.\\../x", "PATH_TRAVERSAL"),
        (" ./tests", "PATH_TRAVERSAL"),
        ("\u{ff0e}/tests", "PATH_CONTROL"),
        ("./\\\\host\\share", "PATH_ABSOLUTE"),
        ("../tests", "PATH_TRAVERSAL"),
        ("tests/.", "PATH_TRAVERSAL"),
        ("tests/..", "PATH_TRAVERSAL"),
        ("tests/../../etc/passwd", "PATH_TRAVERSAL"),
        ("tests/./a.py", "PATH_TRAVERSAL"),
        ("tests//..//x", "PATH_TRAVERSAL"),
        ("tests\\..\\x", "PATH_TRAVERSAL"),
        ("..\\x", "PATH_TRAVERSAL"),
        ("tests\\.\\x", "PATH_TRAVERSAL"),
        ("tests/...", "PATH_TRAVERSAL"),
        ("tests/.. /x", "PATH_TRAVERSAL"),
        ("tests/ ../x", "PATH_TRAVERSAL"),
        ("tests/. ./x", "PATH_TRAVERSAL"),
        ("tests/..\u{a0}/x", "PATH_CONTROL"),
        ("%2e%2e/x", "PATH_TRAVERSAL"),
        ("tests/%2e%2e/x", "PATH_TRAVERSAL"),
        ("tests/%2E%2E/x", "PATH_TRAVERSAL"),
        ("tests/.%2e/x", "PATH_TRAVERSAL"),
        ("tests/%2e./x", "PATH_TRAVERSAL"),
        ("tests/%2e/x", "PATH_TRAVERSAL"),
        ("tests%2f..%2fx", "PATH_TRAVERSAL"),
        ("tests%2fx", "PATH_TRAVERSAL"),
        ("tests%5cx", "PATH_TRAVERSAL"),
        ("tests/%252e%252e/x", "PATH_TRAVERSAL"),
        ("tests%252fx", "PATH_TRAVERSAL"),
        ("tests/%25252e%25252e/x", "PATH_TRAVERSAL"),
        ("%25252525252525252e", "PATH_TRAVERSAL"),
        ("tests/%u002e%u002e/x", "PATH_TRAVERSAL"),
        ("tests%u2215x", "PATH_TRAVERSAL"),
        ("tests/%c0%ae%c0%ae/x", "PATH_TRAVERSAL"),
        ("tests/%ef%bc%8e%ef%bc%8e/x", "PATH_TRAVERSAL"),
        ("tests%e2%81%84x", "PATH_TRAVERSAL"),
        ("tests/a%20b.py", "PATH_TRAVERSAL"),
        ("\u{ff0e}\u{ff0e}/x", "PATH_CONTROL"),
        ("tests/\u{ff0e}\u{ff0e}/x", "PATH_CONTROL"),
        ("tests/.\u{ff0e}/x", "PATH_CONTROL"),
        ("\u{2025}/x", "PATH_CONTROL"),
        ("tests/\u{2025}/x", "PATH_CONTROL"),
        ("tests/\u{2024}\u{2024}/x", "PATH_CONTROL"),
        ("tests/\u{2026}/x", "PATH_CONTROL"),
        ("tests/\u{fe52}\u{fe52}/x", "PATH_CONTROL"),
        ("tests\u{2044}x", "PATH_CONTROL"),
        ("tests\u{2215}..\u{2215}x", "PATH_CONTROL"),
        ("tests\u{ff0f}x", "PATH_CONTROL"),
        ("tests\u{ff3c}x", "PATH_CONTROL"),
        ("tests\u{29f8}x", "PATH_CONTROL"),
        ("tests\0", "PATH_CONTROL"),
        ("tests/a.py\0.txt", "PATH_CONTROL"),
        ("tests/a.py\n/etc/passwd", "PATH_CONTROL"),
        ("tests\r", "PATH_CONTROL"),
        ("tests\u{1b}[31m", "PATH_CONTROL"),
        ("tests\u{7f}", "PATH_CONTROL"),
        ("tests\u{85}", "PATH_CONTROL"),
        ("tests\u{202e}yp.a", "PATH_CONTROL"),
        ("tests\u{2066}x", "PATH_CONTROL"),
        ("te\u{200b}sts", "PATH_CONTROL"),
        ("te\u{ad}sts", "PATH_CONTROL"),
        ("\u{feff}tests", "PATH_CONTROL"),
        ("tests\u{2028}x", "PATH_CONTROL"),
        (".\u{200b}./x", "PATH_CONTROL"),
        ("tests\u{e002e}", "PATH_CONTROL"),
        ("tests/%00", "PATH_TRAVERSAL"),
        ("tests/%0a", "PATH_TRAVERSAL"),
        ("tests/%2500", "PATH_TRAVERSAL"),
        ("tests/%e2%80%ae", "PATH_TRAVERSAL"),
        ("~", "PATH_HOME"),
        ("~/tests", "PATH_HOME"),
        ("~root/x", "PATH_HOME"),
        ("%7e/x", "PATH_TRAVERSAL"),
        ("\u{ff5e}/x", "PATH_CONTROL"),
        ("-x", "PATH_OPTION"),
        ("--rootdir=/", "PATH_OPTION"),
        (" --x", "PATH_OPTION"),
        ("\u{2013}x", "PATH_CONTROL"),
        ("\u{2212}\u{2212}x", "PATH_CONTROL"),
        ("%2dx", "PATH_TRAVERSAL"),
        ("@args.txt", "PATH_OPTION"),
        // Allowed, with the plain form.
        ("tests", "ok tests"),
        (".", "ok "),
        ("./", "ok "),
        ("./.", "ok "),
        ("./tests", "ok tests"),
        ("././/tests/a.py", "ok tests/a.py"),
        (".//etc/passwd", "ok etc/passwd"),
        ("/srv/app", "ok "),
        ("/srv/app/", "ok "),
        ("/srv/app//tests/a.py", "ok tests/a.py"),
        ("/home/me/link/tests/a.py", "ok tests/a.py"),
        ("/data/tests", "ok /data/tests"),
        ("/data/tests/a.py", "ok /data/tests/a.py"),
        ("tests/", "ok tests"),
        ("tests//a.py", "ok tests/a.py"),
        ("tests/test_a.py", "ok tests/test_a.py"),
        ("tests_evil", "ok tests_evil"),
        ("tests/.hidden/a.py", "ok tests/.hidden/a.py"),
        ("tests/..a/b..", "ok tests/..a/b.."),
        ("a..b/c", "ok a..b/c"),
        ("tests/a b.py", "ok tests/a b.py"),
        ("tests/100%.py", "ok tests/100%.py"),
        ("tests/größe.py", "ok tests/größe.py"),
        ("tests/日本語.py", "ok tests/日本語.py"),
        ("tests/a~1.py", "ok tests/a~1.py"),
        ("tests/a-b.py", "ok tests/a-b.py"),
        ("tests/$id.test.tsx", "ok tests/$id.test.tsx"),
        ("tests/[slug].test.ts", "ok tests/[slug].test.ts"),
        ("tests/a:b.py", "ok tests/a:b.py"),
        ("node_modules/@scope/x", "ok node_modules/@scope/x"),
    ];

    #[test]
    fn hostile_paths_are_refused_with_their_codes_and_others_pass() {
        assert!(TABLE.iter().filter(|(_, code)| !code.starts_with("ok ")).count() >= 70);
        let wrong: Vec<_> = TABLE.iter().filter(|(text, expected)| code(text) != *expected).collect();
        let wrong: Vec<_> = wrong.iter().map(|(text, expected)| (text, expected, code(text))).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(code(&"a/".repeat(2049)), "PATH_TOO_LONG");
    }

    #[test]
    fn a_reason_has_no_control_characters() {
        for (text, expected) in TABLE {
            if let Err(decision) = check_target(text, &roots()) {
                assert!(
                    !decision.reason.chars().any(|c| c.is_control() || !c.is_ascii() && c != '…'),
                    "{text:?} {expected}: {:?}",
                    decision.reason
                );
                assert!(!decision.hint.is_empty(), "{text:?}");
            }
        }
    }
}
