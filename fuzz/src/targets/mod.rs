//! The targets: each is one kind of text or bytes that quell reads.

mod config;
mod guard;
mod line;
mod log;
mod proc;
mod records;
mod words;

/// Something to be fuzzed.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What the format is made of.
    pub words: &'static [&'static str],
    /// Reads the input, and asserts what holds whatever it is.
    pub run: fn(&[u8]),
    /// How many inputs of it take a second in a debug build, about: its share of a bounded run.
    pub share: u64,
}

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "false",
    "{}",
    "[]",
    "\"\"",
    "\\u0000",
    "\\ud800",
    "secs",
    "nanos",
    "\"state\":\"ended\"",
    "\"kind\":\"gone\"",
    "..",
    "/",
    "1e999",
    "{\"secs\":18446744073709551615,\"nanos\":0}",
];
const PROC: &[&str] =
    &[" (", ") ", " - ", "cgroup2", "0::", "/..", "/../", "\\040", "\\134", "0A", ":", "\n", "\0", "/a"];
const TOML: &[&str] = &[
    "[stop]",
    "[gc]",
    "[ready]",
    "[[hooks]]",
    "grace = \"5s\"",
    "=",
    "\"",
    "'''",
    "\"\"\"",
    "[",
    "]",
    "{",
    "}",
    "\n",
    "#",
    "1979-05-27",
    "inf",
    "nan",
    "0x",
    "_",
    "max_size",
    "~",
    "true",
    ".",
    "timeout",
];
const GUARD: &[&str] = &[
    "*",
    "**",
    "a*a",
    "-",
    "0",
    "4194304",
    "4194305",
    ".service",
    ".socket",
    "@",
    "..",
    "/",
    "\\",
    "ssh",
    "\n",
    "\u{1b}",
    "\u{202e}",
    "most = \"read\"\n",
    "deny = [\"stop\"]\n",
    "[guard.kill]\n",
    "allow = [\"*\"]\n",
    "min_pid = 2\n",
    "signals = []\n",
    "[guard.service]\n",
    "verbs = [\"stop\"]\n",
    "=",
    "[",
    "]",
    "\"",
];
const WORDS: &[&str] = &[
    "ms", "s", "m", "h", "d", "K", "MiB", "iB", ".", "SIG", "RTMIN+", "term", "/", "..", "\0", "=", "#",
    "\n", "\r\n", "o", "e", "%2f",
];

/// All of them.
pub const ALL: &[Target] = &[
    Target { name: "ids", words: WORDS, run: words::ids, share: 4000 },
    Target { name: "units", words: WORDS, run: words::units, share: 4000 },
    Target { name: "environment", words: WORDS, run: words::environment, share: 4000 },
    Target { name: "cursors", words: WORDS, run: words::cursors, share: 4000 },
    Target { name: "records", words: JSON, run: records::records, share: 1500 },
    Target { name: "control", words: JSON, run: line::control, share: 1500 },
    Target { name: "lines", words: JSON, run: line::lines, share: 1500 },
    Target { name: "config", words: TOML, run: config::config, share: 1500 },
    Target { name: "guard", words: GUARD, run: guard::guard, share: 1500 },
    Target { name: "log", words: &["\n"], run: log::log, share: 400 },
    Target { name: "proc", words: PROC, run: proc::proc, share: 4000 },
    Target { name: "bus", words: &["l", "\0", "u", "s", "o", "g"], run: proc::bus, share: 4000 },
];
