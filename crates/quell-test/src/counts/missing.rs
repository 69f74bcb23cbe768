//! What is printed where the runner itself is not installed.

/// Parts of such lines, each with what has to stand behind it.
const SIGNS: [(&str, &[&str]); 7] = [
    // python -m pytest, coverage run -m pytest, and a script of pytest's whose package is gone.
    ("No module named ", &["pytest", "'pytest'", "_pytest", "'_pytest'", "py.test"]),
    // poetry run
    ("Command not found: ", &["pytest"]),
    // uv run
    ("Failed to spawn: ", &["`pytest`", "pytest"]),
    // yarn, pnpm
    ("Command \"", &["jest\" not found", "vitest\" not found"]),
    // npx
    ("could not determine executable to run", &[""]),
    ("canceled due to missing packages", &[""]),
    // cargo nextest
    ("no such command: ", &["`nextest`"]),
];

/// Whether a line says that the runner is missing.
pub(super) fn says_so(line: &str) -> bool {
    SIGNS.iter().any(|(sign, behind)| {
        let rest = line.split_once(sign).map(|(_, rest)| rest);
        rest.is_some_and(|rest| behind.iter().any(|word| rest.starts_with(word)))
    })
}
