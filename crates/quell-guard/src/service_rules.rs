//! May a service be touched? The name alone decides first; what systemd says of the unit behind it decides again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BUILT_IN, Decision, GUIDE, ServicePolicy, Verb, WHERE, matches};

/// What can be done with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ServiceVerb {
    /// Starts it.
    Start,
    /// Stops it.
    Stop,
    /// Stops it and starts it again.
    Restart,
    /// Says how it is.
    Status,
}

impl ServiceVerb {
    /// The word for it, in a policy and for systemctl.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Status => "status",
        }
    }

    /// It as a verb of quell's.
    pub fn verb(self) -> Verb {
        match self {
            Self::Start => Verb::ServiceStart,
            Self::Stop => Verb::ServiceStop,
            Self::Restart => Verb::ServiceRestart,
            Self::Status => Verb::ServiceStatus,
        }
    }
}

/// The name of a service unit that is sound: nothing in it can mean an option, a path, a pattern or another kind of unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName(String);

impl ServiceName {
    /// Without `.service`, as policies have it.
    pub fn stem(&self) -> &str {
        &self.0
    }

    /// With `.service`, as systemd has it.
    pub fn unit(&self) -> String {
        format!("{}{SUFFIX}", self.0)
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SUFFIX}", self.0)
    }
}

const SUFFIX: &str = ".service";

/// The longest name that systemd takes, with its suffix.
const LONGEST: usize = 255;

/// The other kinds of units; the last two are of the past.
const OTHER_KINDS: [&str; 12] = [
    "automount",
    "device",
    "mount",
    "path",
    "scope",
    "slice",
    "socket",
    "swap",
    "target",
    "timer",
    "snapshot",
    "busname",
];

/// What a host can't be without, or what the one who asks may be reached through: no policy can allow it. Patterns in small
/// letters; each means also the instances of a template of that name.
const PROTECTED: &[&str] = &[
    // Init and its helpers.
    "init",
    "initrd-*",
    "systemd",
    "systemd-*",
    "rescue",
    "emergency",
    "debug-shell",
    "halt",
    "poweroff",
    "reboot",
    "shutdown",
    // Buses, devices, sessions and rights.
    "dbus",
    "dbus-*",
    "udev",
    "udevd",
    "eudev",
    "logind",
    "elogind",
    "polkit",
    "polkitd",
    "user@*",
    "user-runtime-dir",
    // Terminals.
    "getty",
    "*-getty",
    "autovt",
    // The network and names.
    "network",
    "networking",
    "networkd",
    "networkd-*",
    "networkmanager",
    "networkmanager-*",
    "netplan*",
    "ifup",
    "ifupdown*",
    "connman*",
    "dhcpcd",
    "dhclient",
    "iwd",
    "wpa_supplicant*",
    "resolved",
    "resolvconf*",
    "openresolv",
    "wicked*",
    "wg-quick",
    "wireguard",
    "openvpn*",
    "strongswan*",
    "ipsec",
    "tailscaled",
    // The way in.
    "ssh",
    "sshd",
    "sshd-*",
    "dropbear",
    "sssd",
    "sssd-*",
    "nslcd",
    "winbind",
    // Who stops one of these ends all that runs on its screen.
    "display-manager",
    "gdm",
    "gdm3",
    "greetd",
    "lightdm",
    "lxdm",
    "sddm",
    "xdm",
    // What keeps others out.
    "firewalld",
    "ufw",
    "nftables",
    "iptables",
    "ip6tables",
    "netfilter-persistent",
    // quell itself.
    "quell",
    "quell-*",
];

/// Targets that every service needs: who stops with one of them is everybody.
const ALL_NEED: [&str; 2] = ["basic", "sysinit"];

/// The name, if it can be one of a service unit.
pub fn read_service(text: &str) -> Result<ServiceName, Box<Decision>> {
    let shown: String = text.chars().take(60).flat_map(char::escape_default).collect();
    let refuse = |code: &str, why: &str, hint: &str| {
        Err(Box::new(Decision::refuse(code, BUILT_IN, format!("`{shown}` {why}"), hint)))
    };
    let stem = text.strip_suffix(SUFFIX).unwrap_or(text);
    if stem.is_empty() {
        let hint = "give the name of a service, such as nginx";
        return refuse("SERVICE_EMPTY", "is no name", hint);
    }
    if text.contains(char::is_whitespace) {
        return refuse("SERVICE_WHITESPACE", "has white space in it", "give one name, without spaces");
    }
    if text.contains(char::is_control) {
        return refuse("SERVICE_CONTROL", "has a control character in it", "write the name by hand");
    }
    if !text.is_ascii() {
        let why = "has a character in it that is none of ASCII, and may look like another one";
        return refuse("SERVICE_NOT_ASCII", why, "write the name by hand");
    }
    if text.contains(['/', '\\']) {
        let why = "has a slash or a backslash in it, and would be a path or an escape";
        return refuse("SERVICE_PATH", why, "give the unit's name, not its file");
    }
    if format!("{stem}{SUFFIX}").contains("..") {
        return refuse(
            "SERVICE_TRAVERSAL",
            "has two dots in a row, or one at its end",
            "give the unit's name, not its file",
        );
    }
    if text.starts_with('-') {
        return refuse("SERVICE_OPTION", "looks like an option", "the name of a service has to come first");
    }
    if text.contains(['*', '?', '[', ']']) {
        return refuse("SERVICE_GLOB", "is a pattern, and could mean many services", "name one service");
    }
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.@".contains(&byte);
    if text.starts_with('.') || !text.bytes().all(sound) {
        let why = "has a character in it that the name of a service can't have, or begins with a dot";
        return refuse("SERVICE_CHARACTER", why, "letters, digits and `:-_.@` are allowed");
    }
    if stem.len() + SUFFIX.len() > LONGEST {
        let why = "is longer than systemd lets a name be";
        return refuse("SERVICE_TOO_LONG", why, "255 bytes with `.service` are the most");
    }
    // In any case: `ssh.SERVICE` would be the unit `ssh.SERVICE.service`, which nobody means.
    let kind = stem.rsplit_once('.').map(|(_, kind)| kind.to_ascii_lowercase());
    if kind.is_some_and(|kind| kind == "service" || OTHER_KINDS.contains(&kind.as_str())) {
        let hint = "give it without a suffix, or with `.service`";
        return refuse("SERVICE_SUFFIX", "is a unit of another kind, or looks like one", hint);
    }
    if let Some((template, instance)) = stem.split_once('@')
        && (template.is_empty() || instance.is_empty())
    {
        let why = "is a template, of which only instances can be started";
        return refuse("SERVICE_TEMPLATE", why, "name an instance, such as worker@1");
    }
    Ok(ServiceName(stem.to_owned()))
}

/// Whether this may be done with the service of this name.
pub fn decide_service(policy: &ServicePolicy, name: &ServiceName, verb: ServiceVerb) -> Decision {
    if let Some(refusal) = protected(policy, name) {
        return refusal;
    }
    let word = verb.word();
    let Some(pattern) = fits(&policy.allow, name) else {
        let reason = format!("no pattern of the policy allows the service {}", name.stem());
        let hint = format!("add \"{}\" to guard.service.allow {WHERE}; {GUIDE}", name.stem());
        return Decision::refuse("SERVICE_NOT_ALLOWED", "guard.service.allow", reason, hint);
    };
    if !policy.verbs.is_empty() && !policy.verbs.iter().any(|allowed| allowed == word) {
        let reason =
            format!("`{word}` is not among what may be done with services ({})", policy.verbs.join(", "));
        let hint = format!("add \"{word}\" to guard.service.verbs if that is meant; {GUIDE}");
        return Decision::refuse("SERVICE_VERB_NOT_ALLOWED", "guard.service.verbs", reason, hint);
    }
    Decision::allow("guard.service.allow", format!("{} fits the pattern `{pattern}`", name.stem()))
}

/// What systemd says of a unit, as far as it can change a decision. Names are with their suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// The name that it has in truth.
    pub id: String,
    /// All names that it answers to.
    pub names: Vec<String>,
    /// The units that would be stopped with it by what is to be done.
    pub taken_along: Vec<String>,
}

/// Whether this may still be done, now that it is known what is behind the name. Its true name has to be allowed like the
/// one that was given, and none of its other names may be protected; neither may be what would be stopped with it.
pub fn decide_unit(
    policy: &ServicePolicy,
    asked: &ServiceName,
    facts: &UnitFacts,
    verb: ServiceVerb,
) -> Decision {
    let mut last = decide_service(policy, asked, verb);
    if !last.allowed {
        return last;
    }
    for known in std::iter::once(&facts.id).chain(&facts.names) {
        let is_id = *known == facts.id;
        let decision = match read_service(known) {
            Ok(name) if is_id => decide_service(policy, &name, verb),
            Ok(name) => match protected(policy, &name) {
                Some(refusal) => refusal,
                None => continue,
            },
            // Nobody could have decided about a name that can't be read.
            Err(refusal) => *refusal,
        };
        if decision.allowed {
            last = decision;
            continue;
        }
        let (code, hint) = match decision.code.as_str() {
            "SERVICE_NOT_ALLOWED" => ("SERVICE_ALIAS_NOT_ALLOWED", decision.hint),
            "SERVICE_VERB_NOT_ALLOWED" => return decision,
            _ => ("SERVICE_ALIAS_PROTECTED", decision.hint),
        };
        let reason = format!("{asked} is another name of {known}: {}", decision.reason);
        return Decision::refuse(code, decision.rule, reason, hint);
    }
    for unit in &facts.taken_along {
        // Not read first: a name with an escape in it is as good as any other.
        let (stem, kind) = unit.rsplit_once('.').unwrap_or((unit, "service"));
        // Every service conflicts with targets such as shutdown.target; only those that all others need are like a service.
        if kind == "target" && !ALL_NEED.contains(&stem) {
            continue;
        }
        let name = ServiceName(stem.to_owned());
        let needed = kind == "target";
        if let Some(refusal) = protected(policy, &name).or_else(|| needed.then(|| refuse_protected(stem))) {
            let reason = format!("to {} {asked} would stop {unit}, too: {}", verb.word(), refusal.reason);
            let hint = "`systemctl show` says how the two depend on each other";
            return Decision::refuse("SERVICE_TAKES_PROTECTED", refusal.rule, reason, hint);
        }
    }
    last
}

/// Why nobody may touch it, if so.
fn protected(policy: &ServicePolicy, name: &ServiceName) -> Option<Decision> {
    let stem = name.stem();
    let lower = stem.to_ascii_lowercase();
    let template = lower.split('@').next().unwrap_or(&lower);
    if PROTECTED.iter().any(|pattern| matches(pattern, &lower) || matches(pattern, template)) {
        return Some(refuse_protected(stem));
    }
    let pattern = fits(&policy.protect, name)?;
    let reason = format!("{stem} is protected by the pattern `{pattern}`");
    let hint = format!("take it out of guard.service.protect if you mean it; {GUIDE}");
    Some(Decision::refuse("SERVICE_PROTECTED_BY_POLICY", "guard.service.protect", reason, hint))
}

fn refuse_protected(stem: &str) -> Decision {
    let reason = format!("{stem} is one of the services that the host, or the way to it, depends on");
    let hint = "no policy can allow it; if it has to be, do it by hand with systemctl";
    Decision::refuse("SERVICE_PROTECTED", BUILT_IN, reason, hint)
}

/// The pattern that fits, which may have been written with `.service`.
fn fits(patterns: &[String], name: &ServiceName) -> Option<String> {
    let bare = |pattern: &str| pattern.strip_suffix(SUFFIX).unwrap_or(pattern).to_owned();
    patterns.iter().find(|pattern| matches(&bare(pattern), name.stem())).cloned()
}

#[cfg(test)]
#[path = "service_rules_tests.rs"]
mod tests;
