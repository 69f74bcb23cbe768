//! A unit as systemd shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quell_sys::PidFd;

use super::systemctl::Systemctl;
use crate::{Error, Result, ServiceName, ServiceVerb, UnitFacts};

/// How long `systemctl show` may take. The caller's time limit is for the command itself.
const LOOK: Duration = Duration::from_secs(10);

/// The property that differs after each start of a unit.
pub(super) const INVOCATION: &str = "InvocationID";

/// The properties of the unit.
const PROPERTIES: &str = "--property=Id,Names,LoadState,ActiveState,SubState,Result,MainPID,InvocationID,Type,\
    ExecMainStatus,ControlGroup,RequiredBy,RequisiteOf,BoundBy,ConsistsOf,PropagatesStopTo,Conflicts,ConflictedBy";

/// The units that are stopped when this one is.
const STOPPED_WITH_IT: [&str; 5] = ["RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"];

/// The units that are stopped when this one is started.
const STOPPED_FOR_IT: [&str; 2] = ["Conflicts", "ConflictedBy"];

/// The properties of the units that are stopped with it.
const FURTHER: &str = "--property=Id,ActiveState,RequiredBy,RequisiteOf,BoundBy,ConsistsOf,PropagatesStopTo";

/// Targets that all units need. The guard refuses what stops them, so the units behind them are not followed.
const ALL_NEED: [&str; 2] = ["basic.target", "sysinit.target"];

/// How many units one call asks about: its output must fit into what is kept.
const AT_ONCE: usize = 16;

/// How many units are followed. What would stop more is refused.
const MOST: usize = 1_000;

/// The properties of a unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit(BTreeMap<String, String>);

impl Unit {
    pub(super) fn look(systemctl: &Systemctl, name: &str) -> Result<Self> {
        let mut units = Self::show(systemctl, PROPERTIES, &[name])?;
        Ok(units.remove(0))
    }

    /// Asks systemd about several units. The answer has the same order.
    fn show(systemctl: &Systemctl, properties: &str, names: &[&str]) -> Result<Vec<Self>> {
        let shown = names.join(" ");
        let output = systemctl.run(&["show", properties], names, LOOK)?;
        if output.timed_out {
            return Err(Error::TimedOut(format!("systemd did not answer within {LOOK:?} about {shown}")));
        }
        let words = output.stderr.text().trim().to_owned();
        let units = Self::parse_all(&output.stdout.text());
        // systemctl's words if it can't reach a manager. In a chroot it exits with 0.
        let unreachable = ["not been booted with systemd", "Failed to connect to", "Running in chroot"];
        if unreachable.iter().any(|unreachable| words.contains(unreachable)) {
            return Err(Error::NoSystemd { message: one_line(&words), user: systemctl.user });
        }
        if output.stdout.cut > 0 {
            // A protected unit may be in the part that is missing.
            let message = format!("the answer of systemd about {shown} is too long");
            return Err(Error::Systemctl(message));
        }
        let is_whole = |unit: &Self| !unit.id().is_empty() && !unit.state().is_empty();
        if output.code != Some(0) || units.len() != names.len() || !units.iter().all(is_whole) {
            let how = output.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
            let why = if words.is_empty() { "it gave no reason".into() } else { one_line(&words) };
            return Err(Error::Systemctl(format!("`systemctl show {shown}` ended with {how}: {why}")));
        }
        Ok(units)
    }

    /// An empty line is between two units.
    fn parse_all(text: &str) -> Vec<Self> {
        text.split("\n\n").map(Self::parse).filter(|unit| !unit.0.is_empty()).collect()
    }

    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn get(&self, key: &str) -> &str {
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

    pub(super) fn result(&self) -> &str {
        self.get("Result")
    }

    pub(super) fn main_pid(&self) -> Option<u32> {
        self.get("MainPID").parse().ok().filter(|pid| *pid != 0)
    }

    /// Also while it is reloading, like `systemctl is-active`.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.state(), "active" | "reloading" | "refreshing")
    }

    fn is_over(&self) -> bool {
        matches!(self.state(), "inactive" | "failed")
    }

    /// Whether it is inactive and has no main process.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_over() && self.main_pid().is_none()
    }

    /// How many processes are in its cgroup. Not every unit stops all of them (`KillMode=`), and systemd counts tasks only with
    /// the pids controller.
    pub(super) fn processes(&self) -> usize {
        let group = self.get("ControlGroup");
        if group.trim_matches('/').is_empty() {
            return 0;
        }
        let is_in = |pid: &u32| is_below(&quell_sys::cgroups(*pid), group);
        // A zombie does not count.
        let lives = |pid: &u32| PidFd::open(*pid).is_ok_and(|process| process.is_alive());
        quell_sys::pids().unwrap_or_default().iter().filter(|pid| is_in(pid) && lives(pid)).count()
    }

    /// Whether the unit does not exist. A unit that runs without its file exists.
    pub(super) fn is_unknown(&self) -> bool {
        self.get("LoadState") == "not-found" && self.state() == "inactive"
    }

    /// The facts that a decision about it needs.
    pub(super) fn facts(&self, systemctl: &Systemctl, verb: ServiceVerb) -> Result<UnitFacts> {
        let mut taken_along = self.stopped_by(verb);
        let show = |names: &[&str]| Self::show(systemctl, FURTHER, names);
        taken_along.extend(self.further(&taken_along, show)?);
        Ok(UnitFacts { id: self.id().to_owned(), names: self.list(&["Names"]), taken_along })
    }

    /// The units that are stopped directly.
    fn stopped_by(&self, verb: ServiceVerb) -> Vec<String> {
        let (with_it, for_it) = (self.list(&STOPPED_WITH_IT), self.list(&STOPPED_FOR_IT));
        match verb {
            ServiceVerb::Start => for_it,
            ServiceVerb::Stop => with_it,
            ServiceVerb::Restart => [with_it, for_it].concat(),
            ServiceVerb::Status => Vec::new(),
        }
    }

    /// The running units that are stopped because one of `first` is, directly or not. systemd passes a stop on through units
    /// that don't run, but those don't count. Otherwise nothing could be started: every service conflicts with shutdown.target, which
    /// the units that stop the host require.
    fn further(&self, first: &[String], show: impl Fn(&[&str]) -> Result<Vec<Self>>) -> Result<Vec<String>> {
        let mut seen: BTreeSet<String> = first.iter().cloned().chain([self.id().to_owned()]).collect();
        let mut edge = first.to_vec();
        let mut found = Vec::new();
        while !edge.is_empty() {
            let (all_need, asked): (Vec<&str>, Vec<&str>) =
                edge.iter().map(String::as_str).partition(|name| ALL_NEED.contains(name));
            found.extend(all_need.into_iter().map(str::to_owned));
            let mut next = Vec::new();
            for names in asked.chunks(AT_ONCE) {
                for unit in show(names)? {
                    if !unit.is_over() {
                        found.push(unit.id().to_owned());
                    }
                    next.extend(
                        unit.list(&STOPPED_WITH_IT).into_iter().filter(|name| seen.insert(name.clone())),
                    );
                }
            }
            if seen.len() > MOST {
                let message = format!("more than {MOST} units would be stopped with {}", self.id());
                return Err(Error::Systemctl(message));
            }
            edge = next;
        }
        found.retain(|name| !first.contains(name));
        Ok(found)
    }

    /// Whether the name that was given is an alias.
    pub(super) fn is_alias(&self, asked: &ServiceName) -> bool {
        self.id() != asked.unit()
    }
}

/// Whether a process with this /proc/PID/cgroup is in that cgroup, or in one below it.
fn is_below(cgroups: &str, group: &str) -> bool {
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut rests = paths.filter_map(|path| path.strip_prefix(group));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The first line that is not empty.
pub(super) fn one_line(words: &str) -> String {
    words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_that_are_stopped_too_depend_on_the_verb() {
        let unit = Unit::parse(
            "Id=web.service\nNames=web.service www.service\nRequiredBy=a.service b.target\nBoundBy=\nConflicts=c.service\nMainPID=0\nnonsense\n",
        );
        let along = |verb| unit.stopped_by(verb);
        assert_eq!(along(ServiceVerb::Start), ["c.service"]);
        assert_eq!(along(ServiceVerb::Stop), ["a.service", "b.target"]);
        assert_eq!(along(ServiceVerb::Restart), ["a.service", "b.target", "c.service"]);
        assert!(along(ServiceVerb::Status).is_empty());
        assert_eq!(unit.list(&["Names"]), ["web.service", "www.service"]);
        assert_eq!(unit.main_pid(), None);
    }

    /// A manager that has these units: a name, its state, and the units that need it.
    fn manager<'u>(units: &'u [(&str, &str, &str)]) -> impl Fn(&[&str]) -> Result<Vec<Unit>> + 'u {
        |names| {
            let of = |name: &&str| {
                let (id, state, by) = units.iter().find(|(id, ..)| id == name).expect("it is known");
                format!("Id={id}\nActiveState={state}\nRequiredBy={by}\nBoundBy=\n")
            };
            Ok(Unit::parse_all(&names.iter().map(of).collect::<Vec<_>>().join("\n")))
        }
    }

    #[test]
    fn a_stop_is_followed_to_its_end_and_in_circles_once() {
        let base = Unit::parse("Id=base.service\nRequiredBy=b.service");
        let units = [
            ("b.service", "inactive", "c.service base.service"),
            ("c.service", "active", "d.service e.service b.service"),
            ("d.service", "failed", ""),
            ("e.service", "activating", "sysinit.target"),
        ];
        let first = base.stopped_by(ServiceVerb::Stop);
        let found = base.further(&first, manager(&units)).expect("units");
        assert_eq!(found, ["c.service", "e.service", "sysinit.target"]);
        let long: Vec<String> = (0..=MOST).map(|at| format!("u{at}.service")).collect();
        let chain: Vec<(&str, &str, &str)> =
            long.windows(2).map(|pair| (pair[0].as_str(), "active", pair[1].as_str())).collect();
        assert!(base.further(&long[..1], manager(&chain)).is_err(), "too many to follow");
    }

    #[test]
    fn a_cgroup_has_those_below_it_and_no_namesakes() {
        for (text, is_in) in [
            ("0::/app.slice/web.service\n", true),
            ("1:name=systemd:/app.slice/web.service/inner\n0::/\n", true),
            ("0::/app.slice/web.service2\n", false),
            ("0::/other/app.slice/web.service\n", false),
            ("", false),
        ] {
            assert_eq!(is_below(text, "/app.slice/web.service"), is_in, "{text}");
        }
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
