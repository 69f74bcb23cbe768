//! A change of a configuration file: shown first, then made and put on record.

use std::fs;
use std::path::{Path, PathBuf};

use quell_guard::{Permit, Verb};
use quell_store::Home;
use similar::{ChangeTag, TextDiff};

use crate::Error;
use crate::agents::{Agent, ConfigScope};
use crate::answer::{SetupAction, SetupAnswer, SetupState};
use crate::change::Changed;
use crate::file::AgentFile;
use crate::manifest::{Manifest, SetupRecord};

type Result<T> = std::result::Result<T, Error>;

/// A change of one file that has not been made yet.
#[must_use]
#[derive(Clone, Debug)]
pub struct SetupPlan {
    pub(crate) home: Home,
    pub(crate) agent: Agent,
    pub(crate) scope: ConfigScope,
    pub(crate) action: SetupAction,
    pub(crate) file: AgentFile,
    /// The text that the file gets; none if it is deleted.
    pub(crate) new: Option<String>,
    pub(crate) changed: Changed,
    pub(crate) record: PlannedRecord,
    pub(crate) state: SetupState,
}

/// What happens to the record of a file.
#[derive(Clone, Debug)]
pub(crate) enum PlannedRecord {
    /// As it is.
    Keep,
    /// A new one with the backup of the old one.
    Update(SetupRecord),
    /// A new one, and a new backup with this text.
    Replace(SetupRecord, Option<String>),
    /// Removed, with its backup.
    Drop,
}

impl SetupPlan {
    /// The file that would be changed.
    pub fn file(&self) -> &Path {
        &self.file.path
    }

    /// Whether the file would be changed.
    pub fn is_change(&self) -> bool {
        self.new != self.file.text
    }

    /// The names of the servers that would be wrapped, or unwrapped.
    pub fn servers(&self) -> Vec<&str> {
        self.changed.servers.iter().filter_map(|path| path.last()).map(String::as_str).collect()
    }

    /// The lines that would change, without those around them: they may have secrets in them.
    pub fn diff(&self) -> String {
        let [old, new] = [&self.file.text, &self.new].map(|text| text.as_deref().unwrap_or_default());
        let diff = TextDiff::from_lines(old, new);
        let mut text = String::new();
        for group in diff.grouped_ops(0) {
            let line = group.first().map_or(0, |op| op.new_range().start) + 1;
            text.push_str(&format!("line {line}:\n"));
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let mark = match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => continue,
                };
                text.push_str(&format!("{mark} {}\n", change.value().trim_end_matches(['\r', '\n'])));
            }
        }
        text
    }

    /// The result if nothing is written.
    pub fn dry_run(&self) -> SetupAnswer {
        SetupAnswer {
            agent: self.agent,
            scope: self.scope,
            file: self.file.path.clone(),
            action: self.action,
            changed: self.is_change(),
            dry_run: true,
            backup: None,
            entry: None,
            state: self.state.clone(),
        }
    }

    /// Makes the change and puts it on record. Before: the user has agreed, and `permit` is one for `setup`. After an error the file
    /// is as it was, unless the error is the guard's: then only the audit log lacks a line.
    pub fn commit(self, permit: &Permit) -> Result<SetupAnswer> {
        if permit.verb() != Verb::Setup {
            let why = format!("setup needs a permit for `setup`, not for `{}`", permit.verb());
            return Err(Error::UnsuitableFile { path: self.file.path, why });
        }
        let mut answer = SetupAnswer { dry_run: false, ..self.dry_run() };
        if !self.is_change() && !matches!(self.record, PlannedRecord::Drop) {
            return Ok(answer);
        }
        let lock = Manifest::lock(&self.home)?;
        let mut manifest = Manifest::read(&self.home)?;
        answer.backup = self.write(&mut manifest)?;
        drop(lock);
        permit.record(&answer.file.display().to_string(), &answer, None)?;
        Ok(answer)
    }

    /// Backup, record, file, in this order: a crash in between leaves a record of something that is not there, which is harmless,
    /// and never a change without a record. For a removal it is the other way round. Returns the backup.
    fn write(&self, manifest: &mut Manifest) -> Result<Option<PathBuf>> {
        let home = &self.home;
        let before = manifest.clone();
        let old = manifest.find(self.agent, &self.file.path).cloned();
        let old_backup = old.as_ref().and_then(|old| old.backup.clone());
        let new_record = match &self.record {
            PlannedRecord::Keep => None,
            PlannedRecord::Update(record) => Some((record.clone(), None)),
            PlannedRecord::Replace(record, text) => Some((record.clone(), Some(text))),
            PlannedRecord::Drop => None,
        };
        let Some((mut record, backup)) = new_record else {
            self.put_text(old.as_ref())?;
            manifest.set(self.agent, &self.file.path, None);
            manifest.write(home)?;
            remove_backup(old_backup.as_deref());
            return Ok(None);
        };
        if let Some(text) = backup {
            let text = text.as_deref();
            record.backup = text.map(|text| self.file.write_backup(text, self.scope)).transpose()?;
        }
        let backup = record.backup.clone();
        let is_new = backup != old_backup;
        let undo = |error| {
            // Neither can be done about it if this fails too: the next setup finds a record that does not fit, and goes by the file.
            let _ = before.write(home);
            if is_new {
                remove_backup(backup.as_deref());
            }
            error
        };
        manifest.set(self.agent, &self.file.path, Some(record.clone()));
        manifest.write(home).map_err(undo)?;
        let made = self.put_text(old.as_ref()).map_err(undo)?;
        if !made.is_empty() {
            record.made = made;
            manifest.set(self.agent, &self.file.path, Some(record));
            manifest.write(home)?;
        }
        if is_new {
            remove_backup(old_backup.as_deref());
        }
        Ok(backup)
    }

    /// Returns the directories that were made.
    fn put_text(&self, old: Option<&SetupRecord>) -> Result<Vec<PathBuf>> {
        match &self.new {
            _ if !self.is_change() => Ok(Vec::new()),
            Some(text) => self.file.write(text, self.scope),
            None => {
                let made = old.map(|old| old.made.as_slice()).unwrap_or_default();
                self.file.delete(made).map(|()| Vec::new())
            }
        }
    }
}

fn remove_backup(path: Option<&Path>) {
    if let Some(path) = path {
        // It may have been removed already.
        let _ = fs::remove_file(path);
    }
}
