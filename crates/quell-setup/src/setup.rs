//! `quell setup`: plans to add and to remove, and what is set up.

use std::path::{Path, PathBuf};

use quell_store::Home;

use crate::Error;
use crate::agents::{Agent, AgentFacts, ConfigScope, SERVER};
use crate::answer::{SetupAction, SetupAnswer, SetupServer, SetupState, WrapState};
use crate::change::{
    self, ChangeError, Changed, Earlier, WantedChange, calls_quell, own_path, runs_under_quell,
};
use crate::edit::{ConfigText, KeyPath, shown};
use crate::file::AgentFile;
use crate::manifest::{Manifest, SetupRecord};
use crate::places::Places;
use crate::plan::{PlannedRecord, SetupPlan};
use crate::program::{NamedProgram, OwnProgram};

type Result<T> = std::result::Result<T, Error>;

/// The configurations of this user's agents.
#[derive(Clone, Debug)]
pub struct Setup {
    home: Home,
    places: Places,
    program: OwnProgram,
}

/// Whether the other servers of an agent are wrapped too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherServers {
    /// They run under `quell wrap`.
    Wrap,
    /// They stay as they are.
    Leave,
}

/// A file that setup has changed.
#[derive(Debug)]
pub struct Installation {
    pub agent: Agent,
    pub scope: ConfigScope,
    pub file: PathBuf,
    /// What it has now, or why it can't be read.
    pub state: Result<SetupState>,
}

impl Setup {
    /// Those that this process sees. `home` has the list of what setup has written.
    pub fn here(home: &Home) -> Result<Self> {
        Ok(Self { home: home.clone(), places: Places::here()?, program: OwnProgram::find()? })
    }

    #[cfg(test)]
    pub(crate) fn with(home: Home, places: Places, program: OwnProgram) -> Self {
        Self { home, places, program }
    }

    /// The text to paste into the agent's file.
    pub fn print(&self, agent: Agent, scope: ConfigScope) -> Result<SetupAnswer> {
        let file = self.file(agent, scope)?;
        let made = self.added("", agent, OtherServers::Leave).map_err(|error| at(error, &file))?;
        let state = self.state(&made.text, agent).map_err(|error| at(error, &file))?;
        let answer = SetupAnswer::without_change(agent, scope, file, SetupAction::Print, state);
        Ok(SetupAnswer { entry: Some(made.text), ..answer })
    }

    /// What the agent's file has.
    pub fn check(&self, agent: Agent, scope: ConfigScope, others: OtherServers) -> Result<SetupAnswer> {
        let file = AgentFile::read(&self.file(agent, scope)?)?;
        let mut state = self.state_of_file(&file, agent)?;
        let plain: Vec<&str> = state.names(WrapState::Plain);
        if others == OtherServers::Wrap && !plain.is_empty() {
            state.problems.push(format!("not wrapped: {}", plain.join(", ")));
            state.works = false;
        }
        let manifest = Manifest::read(&self.home)?;
        let backup = manifest.find(agent, &file.path).and_then(|record| record.backup.clone());
        let answer = SetupAnswer::without_change(agent, scope, file.path, SetupAction::Check, state);
        Ok(SetupAnswer { backup, ..answer })
    }

    /// Everything that setup has written and not removed, as it is now, for the user with this home.
    pub fn installed_in(home: &Home) -> Result<Vec<Installation>> {
        // Most users have nothing, and then nothing else is needed.
        if Manifest::read(home)?.files.is_empty() { Ok(Vec::new()) } else { Self::here(home)?.installed() }
    }

    pub(crate) fn installed(&self) -> Result<Vec<Installation>> {
        let describe = |record: SetupRecord| {
            let SetupRecord { agent, scope, file, .. } = record;
            let state = AgentFile::read(&file).and_then(|found| self.state_of_file(&found, agent));
            Installation { agent, scope, file, state }
        };
        Ok(Manifest::read(&self.home)?.files.into_iter().map(describe).collect())
    }

    /// Plans to add quell to the agent's file. Servers that setup wrapped earlier stay wrapped.
    pub fn plan_add(&self, agent: Agent, scope: ConfigScope, others: OtherServers) -> Result<SetupPlan> {
        let file = AgentFile::read(&self.file(agent, scope)?)?;
        let manifest = Manifest::read(&self.home)?;
        let earlier = manifest.find(agent, &file.path);
        let others = if earlier.is_some_and(|earlier| earlier.wrap) { OtherServers::Wrap } else { others };
        let current = file.text.clone().unwrap_or_default();
        let fail = |error| at(error, &file.path);
        let original = earlier.and_then(|earlier| self.original(&file, earlier));
        let is_untouched = original.is_some();
        let base =
            original.flatten().unwrap_or_else(|| if is_untouched { String::new() } else { current.clone() });
        let changed = self.added(&base, agent, others).map_err(fail)?;
        let is_change = changed.text != current;
        let record = SetupRecord {
            agent,
            scope,
            file: file.path.clone(),
            at: quell_store::now(),
            quell: self.program.path.clone(),
            wrap: others == OtherServers::Wrap,
            own: changed.own,
            table: changed.table,
            servers: changed.servers.clone(),
            corrected: changed.corrected.clone(),
            backup: earlier.and_then(|earlier| earlier.backup.clone()),
            made: earlier.map(|earlier| earlier.made.clone()).unwrap_or_default(),
        };
        let record = match earlier {
            _ if !is_change => PlannedRecord::Keep,
            Some(_) if is_untouched => PlannedRecord::Update(record),
            Some(earlier) => {
                let backup =
                    change::remove(&current, agent, Some(&earlier.into()), &|word| self.is_own(word));
                let backup = backup.map_err(fail)?.text;
                PlannedRecord::Replace(record.joined_with(earlier), file.text.as_ref().map(|_| backup))
            }
            None => PlannedRecord::Replace(record, file.text.clone()),
        };
        let state = self.state(&changed.text, agent).map_err(fail)?;
        let (new, action) = (Some(changed.text.clone()), SetupAction::Add);
        Ok(SetupPlan { home: self.home.clone(), agent, scope, action, file, new, changed, record, state })
    }

    /// Plans to undo what setup did to the agent's file: to restore its bytes if nothing else has changed them since, else to remove
    /// only what setup wrote.
    pub fn plan_remove(&self, agent: Agent, scope: ConfigScope) -> Result<SetupPlan> {
        let file = AgentFile::read(&self.file(agent, scope)?)?;
        let manifest = Manifest::read(&self.home)?;
        let earlier = manifest.find(agent, &file.path);
        let fail = |error| at(error, &file.path);
        let current = file.text.clone().unwrap_or_default();
        let known = earlier.map(Earlier::from);
        let removed = change::remove(&current, agent, known.as_ref(), &|word| self.is_own(word));
        let removed = removed.map_err(fail)?;
        let new = match earlier.and_then(|earlier| self.original(&file, earlier)) {
            Some(original) => original,
            None => file.text.as_ref().map(|_| removed.text.clone()),
        };
        let record = if earlier.is_some() { PlannedRecord::Drop } else { PlannedRecord::Keep };
        let state = self.state(new.as_deref().unwrap_or_default(), agent).map_err(fail)?;
        let (changed, action) = (removed, SetupAction::Remove);
        Ok(SetupPlan { home: self.home.clone(), agent, scope, action, file, new, changed, record, state })
    }

    fn file(&self, agent: Agent, scope: ConfigScope) -> Result<PathBuf> {
        agent.facts().file(&self.places, scope).ok_or(Error::NoProjectFile(agent))
    }

    fn is_own(&self, word: &str) -> bool {
        self.program.is_named_by(word)
    }

    fn added(
        &self,
        text: &str,
        agent: Agent,
        others: OtherServers,
    ) -> std::result::Result<Changed, ChangeError> {
        self.added_by(text, agent, &self.program.path, others)
    }

    fn added_by(
        &self,
        text: &str,
        agent: Agent,
        quell: &str,
        others: OtherServers,
    ) -> std::result::Result<Changed, ChangeError> {
        let is_this_quell = &|word: &str| self.is_own(word);
        change::add(text, &WantedChange { agent, quell, wrap: others == OtherServers::Wrap, is_this_quell })
    }

    /// What the file was before setup, if nothing else has changed it since: then the same change of the backup gives the file. The
    /// inner one is none if there was no file.
    fn original(&self, file: &AgentFile, earlier: &SetupRecord) -> Option<Option<String>> {
        let current = file.text.as_ref()?;
        let backup = match &earlier.backup {
            Some(path) => Some(AgentFile::read(path).ok()?.text?),
            None => None,
        };
        let others = if earlier.wrap { OtherServers::Wrap } else { OtherServers::Leave };
        let text = backup.as_deref().unwrap_or_default();
        let again = self.added_by(text, earlier.agent, &earlier.quell, others).ok()?;
        (again.text == *current).then_some(backup)
    }

    fn state_of_file(&self, file: &AgentFile, agent: Agent) -> Result<SetupState> {
        let text = file.text.as_deref().unwrap_or_default();
        self.state(text, agent).map_err(|error| at(error, &file.path))
    }

    fn state(&self, text: &str, agent: Agent) -> std::result::Result<SetupState, ChangeError> {
        let facts: &AgentFacts = agent.facts();
        let document = ConfigText::parse(facts.syntax, text.trim_start_matches('\u{feff}'))?;
        let is_own = |word: &str| self.is_own(word);
        let own = own_path(facts);
        let mut state = SetupState::default();
        let entry = document.server(facts, &own)?.and_then(|entry| entry.words);
        let entry = entry.filter(|words| calls_quell(words, "mcp", &is_own));
        state.problems.extend(entry.as_ref().and_then(|words| self.problem(SERVER, &words[0])));
        (state.installed, state.command) = (entry.is_some(), entry);
        // Those that are not right are the agent's affair.
        for entry in document.servers(facts).unwrap_or_default() {
            let name = entry.path.last().cloned().unwrap_or_default();
            if entry.path == own {
                continue;
            }
            let wrap = match &entry.words {
                None => WrapState::Remote,
                Some(words) if runs_under_quell(words, &is_own) => {
                    let problem = self.problem(&name, &words[0]);
                    let wrap = if problem.is_none() { WrapState::Wrapped } else { WrapState::Stale };
                    state.problems.extend(problem);
                    wrap
                }
                Some(_) => WrapState::Plain,
            };
            state.servers.push(SetupServer { name, keys: entry.path, wrap });
        }
        state.works = state.installed && state.problems.is_empty();
        Ok(state)
    }

    /// What is wrong with the program that a server starts as quell.
    fn problem(&self, server: &str, word: &str) -> Option<String> {
        match self.program.named_by(word) {
            NamedProgram::ThisQuell => None,
            NamedProgram::Other(path) => Some(format!("{server} starts another quell: {}", path.display())),
            NamedProgram::Missing => Some(format!("{server} starts {word}, which is not there")),
        }
    }
}

impl SetupState {
    /// The servers in this state.
    pub fn names(&self, wrap: WrapState) -> Vec<&str> {
        let servers = self.servers.iter().filter(|server| server.wrap == wrap);
        servers.map(|server| server.name.as_str()).collect()
    }
}

impl SetupRecord {
    /// The same, with what an earlier setup did to the file as well.
    fn joined_with(mut self, earlier: &Self) -> Self {
        self.own |= earlier.own;
        self.table |= earlier.table;
        let old: Vec<KeyPath> =
            earlier.servers.iter().filter(|path| !self.servers.contains(path)).cloned().collect();
        self.servers.extend(old);
        for old in &earlier.corrected {
            // The user's own word is the one before the first correction.
            match self.corrected.iter_mut().find(|new| new.server == old.server && new.before == old.after) {
                Some(new) => new.before.clone_from(&old.before),
                None => self.corrected.push(old.clone()),
            }
        }
        self
    }
}

impl<'a> From<&'a SetupRecord> for Earlier<'a> {
    fn from(record: &'a SetupRecord) -> Self {
        Self { own: record.own, table: record.table, servers: &record.servers, corrected: &record.corrected }
    }
}

fn at(error: ChangeError, path: &Path) -> Error {
    match error {
        ChangeError::Edit(error) => error.at(path),
        ChangeError::NameTaken(keys) => Error::ServerNameTaken { path: path.to_owned(), key: shown(&keys) },
    }
}
