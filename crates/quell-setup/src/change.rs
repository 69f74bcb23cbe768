//! What setup does to the text of a configuration file, and how it is undone. No I/O: text in, text out.

use serde::{Deserialize, Serialize};

use crate::agents::{Agent, AgentFacts, CommandStyle, SERVER};
use crate::edit::{ConfigText, EditError, KeyPath, ServerEntry};

const BOM: char = '\u{feff}';

/// What a configuration is to have.
pub(crate) struct WantedChange<'a> {
    pub agent: Agent,
    /// quell's path, as it is written.
    pub quell: &'a str,
    /// Whether the other servers are to run under `quell wrap`.
    pub wrap: bool,
    /// Whether a word names this very quell.
    pub is_this_quell: &'a dyn Fn(&str) -> bool,
}

/// A text after a change, and what was changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changed {
    pub text: String,
    /// quell's own entry was added, or was removed.
    pub own: bool,
    /// The table for it was made, or was removed.
    pub table: bool,
    /// The path of quell was corrected in these, or was restored.
    pub corrected: Vec<CorrectedPath>,
    /// These servers were wrapped, or were unwrapped.
    pub servers: Vec<KeyPath>,
}

/// A server whose program setup replaced by the path of this quell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CorrectedPath {
    pub server: KeyPath,
    pub before: String,
    pub after: String,
}

/// Why a text was not changed.
#[derive(Debug, PartialEq)]
pub(crate) enum ChangeError {
    Edit(EditError),
    /// A server that is not quell's has the name of quell's entry.
    NameTaken(KeyPath),
}

impl From<EditError> for ChangeError {
    fn from(error: EditError) -> Self {
        Self::Edit(error)
    }
}

/// What setup did earlier to a configuration, as far as undoing needs it.
pub(crate) struct Earlier<'a> {
    pub own: bool,
    pub table: bool,
    pub servers: &'a [KeyPath],
    pub corrected: &'a [CorrectedPath],
}

/// The path of quell's own entry.
pub(crate) fn own_path(facts: &AgentFacts) -> KeyPath {
    let table = facts.tables.first().copied().unwrap_or_default();
    table.iter().copied().chain([SERVER]).map(str::to_owned).collect()
}

/// Whether these words call a verb of quell: this one, or one that is elsewhere.
pub(crate) fn calls_quell(words: &[String], verb: &str, is_this_quell: &dyn Fn(&str) -> bool) -> bool {
    let is_quell = |word: &str| word.rsplit('/').next() == Some("quell") || is_this_quell(word);
    matches!(words, [program, second, ..] if second == verb && is_quell(program))
}

/// Whether quell sees to the end of what these words start: nothing has to be wrapped.
pub(crate) fn runs_under_quell(words: &[String], is_this_quell: &dyn Fn(&str) -> bool) -> bool {
    ["wrap", "run", "mcp"].iter().any(|verb| calls_quell(words, verb, is_this_quell))
}

/// Adds quell's entry, and wraps the other servers if that is wanted. A text that has all of it already is returned as it is.
pub(crate) fn add(text: &str, wanted: &WantedChange) -> Result<Changed, ChangeError> {
    let facts = wanted.agent.facts();
    let (bom, body) = split_bom(text);
    let mut document = ConfigText::parse(facts.syntax, body)?;
    let mut changed = Changed::default();
    let own = own_path(facts);
    match document.server(facts, &own)?.map(|entry| entry.words) {
        None => {
            changed.table = !document.has_table(&own[..own.len() - 1])?;
            document.add(&own, facts.entry(wanted.quell))?;
            changed.own = true;
        }
        Some(Some(words)) if calls_quell(&words, "mcp", wanted.is_this_quell) => {
            correct(&mut document, facts.style, &own, &words[0], wanted, &mut changed)?;
        }
        Some(_) => return Err(ChangeError::NameTaken(own)),
    }
    if wanted.wrap {
        for ServerEntry { path, words } in document.servers(facts)? {
            let Some(words) = words.filter(|_| path != own) else { continue };
            if calls_quell(&words, "wrap", wanted.is_this_quell) {
                correct(&mut document, facts.style, &path, &words[0], wanted, &mut changed)?;
            } else if !runs_under_quell(&words, wanted.is_this_quell) {
                wrap(&mut document, facts.style, &path, &words[0], wanted.quell)?;
                changed.servers.push(path);
            }
        }
    }
    Ok(changed.with_text(text, bom, &document))
}

/// Undoes what setup did earlier. If that is not known, quell's entry is removed and every server that runs under `quell wrap
/// --` is unwrapped: these are what setup writes.
pub(crate) fn remove(
    text: &str,
    agent: Agent,
    earlier: Option<&Earlier>,
    is_this_quell: &dyn Fn(&str) -> bool,
) -> Result<Changed, ChangeError> {
    let facts = agent.facts();
    let (bom, body) = split_bom(text);
    let mut document = ConfigText::parse(facts.syntax, body)?;
    let mut changed = Changed::default();
    // What setup did not wrap is not looked at: it need not be right.
    let candidates = match earlier {
        Some(earlier) => {
            let found = earlier.servers.iter().map(|path| document.server(facts, path));
            found.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?
        }
        None => document.servers(facts)?,
    };
    for ServerEntry { path, words } in candidates {
        let Some(words) = words.filter(|words| calls_quell(words, "wrap", is_this_quell)) else { continue };
        let is_ours = earlier.is_some() || words.get(2).is_some_and(|word| word == "--");
        let end = words.iter().position(|word| word == "--").filter(|end| end + 1 < words.len());
        if let Some(end) = end.filter(|_| is_ours) {
            unwrap(&mut document, facts.style, &path, &words, end)?;
            changed.servers.push(path);
        }
    }
    let own = own_path(facts);
    let words = document.server(facts, &own)?.and_then(|entry| entry.words);
    let is_own = words.is_some_and(|words| calls_quell(&words, "mcp", is_this_quell));
    if is_own && earlier.is_none_or(|earlier| earlier.own) {
        document.remove(&own)?;
        changed.own = true;
        let table = &own[..own.len() - 1];
        if earlier.is_some_and(|earlier| earlier.table) {
            document.remove_if_empty(table)?;
            changed.table = !document.has_table(table)?;
        }
    }
    for corrected in earlier.map_or(&[][..], |earlier| earlier.corrected) {
        // Setup wrote this path. A user that has changed it since keeps that, and an entry that was removed or unwrapped is done.
        let words = document.server(facts, &corrected.server)?.and_then(|entry| entry.words);
        if words.is_some_and(|words| words[0] == corrected.after) {
            document.set_program(facts.style, &corrected.server, &corrected.before)?;
            changed.corrected.push(corrected.clone());
        }
    }
    Ok(changed.with_text(text, bom, &document))
}

impl Changed {
    pub fn is_change(&self) -> bool {
        self.own || self.table || !self.corrected.is_empty() || !self.servers.is_empty()
    }

    fn with_text(self, old: &str, bom: &str, document: &ConfigText) -> Self {
        let text = if self.is_change() { format!("{bom}{}", document.text()) } else { old.to_owned() };
        Self { text, ..self }
    }
}

fn split_bom(text: &str) -> (&str, &str) {
    let body = text.strip_prefix(BOM).unwrap_or(text);
    text.split_at(text.len() - body.len())
}

/// Replaces the program of a server that calls quell, unless it is this quell.
fn correct(
    document: &mut ConfigText,
    style: CommandStyle,
    path: &[String],
    program: &str,
    wanted: &WantedChange,
    changed: &mut Changed,
) -> Result<(), EditError> {
    if !(wanted.is_this_quell)(program) {
        document.set_program(style, path, wanted.quell)?;
        let (before, after) = (program.to_owned(), wanted.quell.to_owned());
        changed.corrected.push(CorrectedPath { server: path.to_vec(), before, after });
    }
    Ok(())
}

fn wrap(
    document: &mut ConfigText,
    style: CommandStyle,
    path: &[String],
    program: &str,
    quell: &str,
) -> Result<(), EditError> {
    let [quell, wrap, end, program] = [quell, "wrap", "--", program].map(str::to_owned);
    match style {
        CommandStyle::CommandAndArgs => {
            document.splice(style, path, 0, &[wrap, end, program])?;
            document.set_program(style, path, &quell)
        }
        CommandStyle::OneList => document.splice(style, path, 0, &[quell, wrap, end]),
    }
}

/// `end` is the place of `--` in `words`.
fn unwrap(
    document: &mut ConfigText,
    style: CommandStyle,
    path: &[String],
    words: &[String],
    end: usize,
) -> Result<(), EditError> {
    match style {
        CommandStyle::CommandAndArgs => {
            document.set_program(style, path, &words[end + 1])?;
            document.splice(style, path, end + 1, &[])
        }
        CommandStyle::OneList => document.splice(style, path, end + 1, &[]),
    }
}
