//! The targets: each is one kind of text or bytes that quell reads.

mod config;
mod guard;
mod line;
mod log;
mod proc;
mod records;
mod setup;
mod words;

/// Something to be fuzzed.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// The file in `dictionaries/` with the words of its format.
    pub dictionary: &'static str,
    /// Reads the input, and asserts what holds whatever it is.
    pub run: fn(&[u8]),
}

/// All of them.
pub const ALL: &[Target] = &[
    Target { name: "ids", dictionary: "words", run: words::ids },
    Target { name: "units", dictionary: "words", run: words::units },
    Target { name: "environment", dictionary: "words", run: words::environment },
    Target { name: "cursors", dictionary: "words", run: words::cursors },
    Target { name: "records", dictionary: "json", run: records::records },
    Target { name: "control", dictionary: "json", run: line::control },
    Target { name: "lines", dictionary: "json", run: line::lines },
    Target { name: "config", dictionary: "toml", run: config::config },
    Target { name: "guard", dictionary: "guard", run: guard::guard },
    Target { name: "log", dictionary: "words", run: log::log },
    Target { name: "proc", dictionary: "proc", run: proc::proc },
    Target { name: "setup", dictionary: "json", run: setup::setup },
    Target { name: "bus", dictionary: "words", run: proc::bus },
];
