//! What systemd knows of a unit.

use std::collections::BTreeMap;
use std::time::Duration;

use quell_core::guard::{ServiceName, ServiceVerb, UnitFacts};

use super::systemctl::Systemctl;
use crate::{Error, Result};

/// How long a look may take. It is no act, and has a time of its own.
const LOOK: Duration = Duration::from_secs(10);

/// What is asked for.
const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,SubState,Result,MainPID,InvocationID,Type,\
    ExecMainStatus,RequiredBy,RequisiteOf,BoundBy,ConsistsOf,PropagatesStopTo,Conflicts,ConflictedBy";

/// The units that are stopped when this one is.
const STOPPED_WITH_IT: [&str; 5] = ["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"];

/// The units that are stopped when this one is started.
const STOPPED_FOR_IT: [&str; 2] = ["Conflicts", "ConflictedBy"];

/// A unit as it was when it was looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit(BTreeMap<String, String>);

impl Unit {
    /// Asks systemd.
    pub(super) fn look(systemctl: &Systemctl, name: &str, user: bool) -> Result<Self> {
        let said = systemctl.run(&["show", PROPERTIES], name, LOOK)?;
        if said.timed_out {
            return Err(Error::TimedOut(format!("systemd did not say within {LOOK:?} what {name} is")));
        }
        let words = said.stderr.text().trim().to_owned();
        let unit = Self::parse(&said.stdout.text());
        // Where it can't reach a manager it says so in these words; in a chroot it says nothing and calls it a success.
        let nobody = ["not been booted with systemd", "Failed to connect to", "Running in chroot"];
        if nobody.iter().any(|nobody| words.contains(nobody)) {
            return Err(Error::NoSystemd { message: one_line(&words), user });
        }
        if said.stdout.cut > 0 {
            // What is missing may be the very unit that is protected.
            let message = format!("systemd says more of {name} than can be looked through");
            return Err(Error::Systemctl(message));
        }
        if said.code != Some(0) || unit.id().is_empty() || unit.state().is_empty() {
            let how = said.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
            let why = if words.is_empty() { "it said nothing".into() } else { one_line(&words) };
            return Err(Error::Systemctl(format!("`systemctl show {name}` ended with {how}: {why}")));
        }
        Ok(unit)
    }

    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    fn list(&self, keys: &[&str]) -> Vec<String> {
        keys.iter().flat_map(|key| self.get(key).split_whitespace()).map(str::to_owned).collect()
    }

    pub(super) fn id(&self) -> &str {
        self.get("Id")
    }

    pub(super) fn state(&self) -> &str {
        self.get("ActiveState")
    }

    pub(super) fn sub_state(&self) -> &str {
        self.get("SubState")
    }

    pub(super) fn result(&self) -> &str {
        self.get("Result")
    }

    pub(super) fn invocation(&self) -> &str {
        self.get("InvocationID")
    }

    pub(super) fn exit_status(&self) -> &str {
        self.get("ExecMainStatus")
    }

    pub(super) fn main_pid(&self) -> Option<u32> {
        self.get("MainPID").parse().ok().filter(|pid| *pid != 0)
    }

    pub(super) fn is_oneshot(&self) -> bool {
        self.get("Type") == "oneshot"
    }

    /// Also while it is reloading, as `systemctl is-active` has it.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.state(), "active" | "reloading" | "refreshing")
    }

    /// Nothing of it runs that systemd knows of.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state(), "inactive" | "failed") && self.main_pid().is_none()
    }

    /// There is no such unit. One that runs while its file was removed is one.
    pub(super) fn is_unknown(&self) -> bool {
        self.get("LoadState") == "not-found" && self.state() == "inactive"
    }

    /// What can change a decision about doing this with it.
    pub(super) fn facts(&self, verb: ServiceVerb) -> UnitFacts {
        let (with_it, for_it) = (self.list(&STOPPED_WITH_IT), self.list(&STOPPED_FOR_IT));
        let taken_along = match verb {
            ServiceVerb::Start => for_it,
            ServiceVerb::Stop => with_it,
            ServiceVerb::Restart => [with_it, for_it].concat(),
            ServiceVerb::Status => Vec::new(),
        };
        UnitFacts { id: self.id().to_owned(), names: self.list(&["Names"]), taken_along }
    }

    /// Whether it goes by another name than the one that was asked for.
    pub(super) fn is_alias(&self, asked: &ServiceName) -> bool {
        self.id() != asked.unit()
    }
}

/// The first line that says something.
pub(super) fn one_line(words: &str) -> String {
    words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stopped_besides_depends_on_what_is_done() {
        let unit = Unit::parse(
            "Id=web.service\nNames=web.service www.service\nRequiredBy=a.service b.target\nBoundBy=\nConflicts=c.service\nMainPID=0\nnonsense\n",
        );
        let along = |verb| unit.facts(verb).taken_along;
        assert_eq!(along(ServiceVerb::Start), ["c.service"]);
        assert_eq!(along(ServiceVerb::Stop), ["a.service", "b.target"]);
        assert_eq!(along(ServiceVerb::Restart), ["a.service", "b.target", "c.service"]);
        assert!(along(ServiceVerb::Status).is_empty());
        assert_eq!(unit.facts(ServiceVerb::Stop).names, ["web.service", "www.service"]);
        assert_eq!(unit.main_pid(), None);
    }

    #[test]
    fn failed_counts_as_stopped_only_without_a_process() {
        for (text, stopped) in [
            ("ActiveState=inactive\nMainPID=0", true),
            ("ActiveState=failed\nMainPID=0", true),
            ("ActiveState=failed\nMainPID=7", false),
            ("ActiveState=deactivating\nMainPID=0", false),
            ("ActiveState=active\nMainPID=7", false),
            ("", false),
        ] {
            assert_eq!(Unit::parse(text).is_stopped(), stopped, "{text}");
        }
    }
}
