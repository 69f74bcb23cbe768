//! Does a word name a path below the working directory, for every program and every eye that may read it? Decided by the text alone;
//! `scope.rs` looks where it leads on disk.

use quell_guard::BUILT_IN;

use super::Verdict;

/// The longest path that a kernel takes.
const LONGEST: usize = 4096;

/// How often percent signs are decoded before the path is refused.
const DECODINGS: usize = 6;

/// A directory that an absolute path may begin with.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// How the path begins.
    pub path: String,
    /// What stands there in the plain form: empty for the working directory.
    pub plain: String,
}

/// The part of a text that a refusal shows, without anything that a terminal would obey.
pub(crate) fn shown(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_graphic() || c == ' ' { c.to_string() } else { c.escape_unicode().to_string() }
    };
    let mut short: String = text.chars().take(60).map(plain).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

fn refuse<T>(code: &str, reason: String, hint: &str) -> Verdict<T> {
    super::refuse(code, BUILT_IN, reason, hint)
}

/// The path in its plain form (`./a//b/` is `a/b`, the working directory is empty), if it leads down from one of `roots` and can't
/// be read in any other way: on another system, after a decoding, or by a person.
pub(crate) fn check_target(text: &str, roots: &[Root]) -> Verdict<String> {
    let name = shown(text);
    if text.trim().is_empty() {
        return refuse(
            "PATH_EMPTY",
            "a path is empty, which would mean everything or nothing".into(),
            "name a file or a directory, such as tests",
        );
    }
    if text.len() > LONGEST {
        return refuse("PATH_TOO_LONG", format!("`{name}` is longer than any path"), "shorten it");
    }
    if text.chars().any(is_unseen) {
        let reason = format!("`{name}` has an invisible character, or one that changes how the rest looks");
        return refuse("PATH_CONTROL", reason, "use only visible characters in the path");
    }
    let (root, rest) = begin(text, roots);
    if !rest.is_empty() {
        refuse_beginnings(rest, &name)?;
        refuse_look_alikes(rest, &name)?;
        refuse_dots(rest, &name)?;
        refuse_encoded(rest, &name)?;
    }
    let parts = rest.split('/').filter(|part| !part.is_empty());
    let plain: Vec<&str> = root.into_iter().chain(parts).collect();
    Ok(plain.join("/"))
}

/// Splits a path into what it begins with, in its plain form, and the rest.
fn begin<'t>(text: &'t str, roots: &'t [Root]) -> (Option<&'t str>, &'t str) {
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

/// Refuses a beginning that leads elsewhere, or that makes an option of it.
fn refuse_beginnings(text: &str, name: &str) -> Verdict<()> {
    // A program that trims it would find another path.
    let folded: String = text.trim_start().chars().map(fold).collect();
    let mut first = folded.chars();
    match first.next() {
        Some('/' | '\\') => return absolute(name),
        Some('~') => {
            let hint = "use a path below the working directory, such as tests/test_a.py";
            return refuse("PATH_HOME", format!("`{name}` would be read as a home directory"), hint);
        }
        Some('-') => {
            let hint = "put options before the targets";
            return refuse("PATH_OPTION", format!("`{name}` would be read as an option"), hint);
        }
        Some('@') => {
            let reason = format!("`{name}` would be read as a file that has more words for the command");
            return refuse("PATH_OPTION", reason, "write the words themselves");
        }
        Some(letter) if letter.is_ascii_alphabetic() && first.next() == Some(':') => return absolute(name),
        Some(_) | None => {}
    }
    if folded.split_once("://").is_some_and(|(scheme, _)| !scheme.contains('/')) {
        return absolute(name);
    }
    Ok(())
}

fn absolute<T>(name: &str) -> Verdict<T> {
    let reason = format!("`{name}` is an absolute path outside the working directory and the scope");
    refuse("PATH_ABSOLUTE", reason, "use a path below the working directory, such as tests/test_a.py")
}

fn traversal<T>(name: &str, why: &str) -> Verdict<T> {
    let hint = "use a plain path below the working directory, such as tests/test_a.py";
    refuse("PATH_TRAVERSAL", format!("`{name}` {why}"), hint)
}

fn refuse_look_alikes(text: &str, name: &str) -> Verdict<()> {
    if text.chars().any(|c| !c.is_ascii() && matches!(fold(c), '/' | '\\')) {
        return traversal(name, "has a character that looks like a slash but is not one");
    }
    Ok(())
}

/// Refuses parts that are only dots, with slashes of either kind. Some systems ignore spaces and dots at the end.
fn refuse_dots(text: &str, name: &str) -> Verdict<()> {
    let folded = unfold(text);
    let dots = |part: &str| part.contains('.') && part.trim_matches([' ', '.']).is_empty();
    if let Some(part) = folded.split(['/', '\\']).find(|part| dots(part)) {
        return traversal(name, &format!("has the part `{part}`, which stands for another directory"));
    }
    Ok(())
}

/// Refuses what would become another path if it were decoded, once or often.
fn refuse_encoded(text: &str, name: &str) -> Verdict<()> {
    let slashes = |text: &str| text.bytes().filter(|byte| matches!(byte, b'/' | b'\\')).count();
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..DECODINGS {
        let Some(decoded) = decode(&bytes) else { return Ok(()) };
        // A lead byte that only an overlong form has: a dot or a slash in disguise.
        let Ok(now) = std::str::from_utf8(&decoded) else {
            return traversal(name, "is not text any more when it is decoded");
        };
        if now.chars().any(is_unseen) {
            return refuse(
                "PATH_CONTROL",
                format!("`{name}` has an encoded control character"),
                "use only visible characters in the path",
            );
        }
        if slashes(now) != slashes(text) {
            return traversal(name, "has an encoded slash");
        }
        refuse_look_alikes(now, name)?;
        refuse_dots(now, name)?;
        refuse_beginnings(now, name)?;
        bytes = decoded;
    }
    traversal(name, "is encoded too many times")
}

/// One decoding of `%2e` and `%u002e`; none if there is nothing to decode.
fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let hex = |at: usize, length: usize| {
        let digits = bytes.get(at..at + length)?;
        let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(text, 16).ok()
    };
    let (mut decoded, mut at, mut any) = (Vec::new(), 0, false);
    while at < bytes.len() {
        let long = matches!(bytes.get(at + 1), Some(b'u' | b'U')).then(|| hex(at + 2, 4)).flatten();
        match (bytes[at], hex(at + 1, 2), long) {
            (b'%', Some(byte), _) => {
                decoded.push(byte as u8);
                (at, any) = (at + 3, true);
            }
            (b'%', None, Some(code)) => {
                let c = char::from_u32(code).unwrap_or('\0');
                decoded.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                (at, any) = (at + 6, true);
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    any.then_some(decoded)
}

/// The ASCII character that a character looks like, or is normalised to.
fn fold(c: char) -> char {
    match c {
        // Fullwidth forms are the same as ASCII's, in order.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{2024}' | '\u{fe52}' | '\u{3002}' | '\u{ff61}' | '\u{00b7}' | '\u{2027}' => '.',
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{2571}' | '\u{1735}' | '\u{2afb}' => '/',
        '\u{2216}' | '\u{29f5}' | '\u{29f9}' | '\u{fe68}' | '\u{2572}' => '\\',
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
        '\u{02dc}' | '\u{223c}' | '\u{2053}' => '~',
        '\u{a789}' | '\u{2236}' | '\u{fe55}' => ':',
        other => other,
    }
}

/// The same for a text, also for characters that stand for several.
fn unfold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2025}' | '\u{fe30}' => folded.push_str(".."),
            '\u{2026}' | '\u{fe19}' => folded.push_str("..."),
            c if c.is_whitespace() => folded.push(' '),
            c => folded.push(fold(c)),
        }
    }
    folded
}

/// Control characters, and those that have no width, change the direction of writing, or end a line.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
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
            Err(decision) => decision.code.clone(),
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
        ("Ｃ：＼x", "PATH_ABSOLUTE"),
        ("c\u{a789}x", "PATH_ABSOLUTE"),
        ("file:///etc/passwd", "PATH_ABSOLUTE"),
        ("https://example.com/a.py", "PATH_ABSOLUTE"),
        ("\u{ff0f}etc", "PATH_ABSOLUTE"),
        ("\u{2215}etc", "PATH_ABSOLUTE"),
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
        ("\u{ff0e}/tests", "PATH_TRAVERSAL"),
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
        ("tests/..\u{a0}/x", "PATH_TRAVERSAL"),
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
        ("\u{ff0e}\u{ff0e}/x", "PATH_TRAVERSAL"),
        ("tests/\u{ff0e}\u{ff0e}/x", "PATH_TRAVERSAL"),
        ("tests/.\u{ff0e}/x", "PATH_TRAVERSAL"),
        ("\u{2025}/x", "PATH_TRAVERSAL"),
        ("tests/\u{2025}/x", "PATH_TRAVERSAL"),
        ("tests/\u{2024}\u{2024}/x", "PATH_TRAVERSAL"),
        ("tests/\u{2026}/x", "PATH_TRAVERSAL"),
        ("tests/\u{fe52}\u{fe52}/x", "PATH_TRAVERSAL"),
        ("tests\u{2044}x", "PATH_TRAVERSAL"),
        ("tests\u{2215}..\u{2215}x", "PATH_TRAVERSAL"),
        ("tests\u{ff0f}x", "PATH_TRAVERSAL"),
        ("tests\u{ff3c}x", "PATH_TRAVERSAL"),
        ("tests\u{29f8}x", "PATH_TRAVERSAL"),
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
        ("tests/%00", "PATH_CONTROL"),
        ("tests/%0a", "PATH_CONTROL"),
        ("tests/%2500", "PATH_CONTROL"),
        ("tests/%e2%80%ae", "PATH_CONTROL"),
        ("~", "PATH_HOME"),
        ("~/tests", "PATH_HOME"),
        ("~root/x", "PATH_HOME"),
        ("%7e/x", "PATH_HOME"),
        ("\u{ff5e}/x", "PATH_HOME"),
        ("-x", "PATH_OPTION"),
        ("--rootdir=/", "PATH_OPTION"),
        (" --x", "PATH_OPTION"),
        ("\u{2013}x", "PATH_OPTION"),
        ("\u{2212}\u{2212}x", "PATH_OPTION"),
        ("%2dx", "PATH_OPTION"),
        ("@args.txt", "PATH_OPTION"),
        // What may pass, and as what.
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
        ("tests/a%20b.py", "ok tests/a%20b.py"),
        ("tests/a%2eb.py", "ok tests/a%2eb.py"),
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
        for (text, expected) in TABLE {
            assert_eq!(code(text), *expected, "{text:?}");
        }
        assert_eq!(code(&"a/".repeat(2049)), "PATH_TOO_LONG");
    }

    #[test]
    fn a_reason_has_nothing_that_a_terminal_would_obey() {
        for (text, expected) in TABLE {
            if let Err(decision) = check_target(text, &roots()) {
                assert!(
                    !decision.reason.chars().any(is_unseen),
                    "{text:?} {expected}: {:?}",
                    decision.reason
                );
                assert!(!decision.hint.is_empty(), "{text:?}");
            }
        }
    }
}
