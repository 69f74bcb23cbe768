//! Whether a service may be asked about or changed. The name decides first, then what systemd says about the unit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{BUILT_IN, Decision, DecisionCode as Code, GUIDE, ServicePolicy, Verb, WHERE, matches};

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
    /// Shows its state.
    Status,
}

impl ServiceVerb {
    /// The word in a policy and for systemctl.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Status => "status",
        }
    }

    /// The verb of quell.
    pub fn verb(self) -> Verb {
        match self {
            Self::Start => Verb::ServiceStart,
            Self::Stop => Verb::ServiceStop,
            Self::Restart => Verb::ServiceRestart,
            Self::Status => Verb::ServiceStatus,
        }
    }
}

/// A valid name of a service unit: nothing in it can be an option, a path, a pattern or another kind of unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName(String);

impl ServiceName {
    /// The name without `.service`, as in policies.
    pub fn stem(&self) -> &str {
        &self.0
    }

    /// The name with `.service`, as in systemd.
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

/// The longest name that systemd accepts, with its suffix.
const LONGEST: usize = 255;

/// The other kinds of units. The last two are obsolete.
const OTHER_KINDS: &str = "automount device mount path scope slice socket swap target timer snapshot busname";

/// Services that a host, or the access to it, depends on: no policy can allow them. Patterns in lower case, separated by blanks;
/// each also matches the instances of a template of that name.
const PROTECTED: [&str; 8] = [
    // Init and its helpers.
    "init initrd-* systemd systemd-* rescue emergency debug-shell halt poweroff reboot shutdown",
    // Buses, devices, sessions and rights.
    "dbus dbus-* udev udevd eudev logind elogind polkit polkitd user@* user-runtime-dir",
    // Terminals.
    "getty *-getty autovt",
    // The network and names.
    "network networking networkd networkd-* networkmanager networkmanager-* netplan* ifup ifupdown* connman* dhcpcd \
     dhclient iwd wpa_supplicant* resolved resolvconf* openresolv wicked* wg-quick wireguard openvpn* strongswan* ipsec \
     tailscaled zerotier-one nebula cloudflared nscd",
    // Logins.
    "ssh sshd sshd-* dropbear sssd sssd-* nslcd winbind",
    // Stopping a display manager ends everything on its screen.
    "display-manager gdm gdm3 greetd lightdm lxdm sddm xdm",
    // Firewalls.
    "firewalld ufw nftables* iptables* ip6tables* ebtables* arptables* ferm netfilter-persistent shorewall*",
    // quell itself.
    "quell quell-*",
];

/// Targets that every service needs: all services stop with them.
const ALL_NEED: [&str; 2] = ["basic", "sysinit"];

/// The name, if it is a valid name of a service unit.
pub fn read_service(text: &str) -> Result<ServiceName, Box<Decision>> {
    let shown: String = text.chars().take(60).flat_map(char::escape_default).collect();
    let refuse = |code: Code, why: &str, hint: &str| {
        Err(Box::new(Decision::refuse(code, BUILT_IN, format!("`{shown}` {why}"), hint)))
    };
    let stem = text.strip_suffix(SUFFIX).unwrap_or(text);
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.@".contains(&byte);
    if stem.is_empty() {
        return refuse(Code::ServiceEmpty, "is not a name", "give the name of a service, such as nginx");
    } else if text.contains(char::is_whitespace) {
        return refuse(Code::ServiceWhitespace, "has white space", "give one name, without spaces");
    } else if text.contains(char::is_control) {
        return refuse(Code::ServiceControl, "has a control character", "type the name");
    } else if !text.is_ascii() {
        let why = "has a character that is not ASCII, and may look like another one";
        return refuse(Code::ServiceNotAscii, why, "type the name");
    } else if text.contains(['/', '\\']) {
        let why = "has a slash or a backslash, so it would be a path or an escape";
        return refuse(Code::ServicePath, why, "give the unit's name, not its file");
    } else if format!("{stem}{SUFFIX}").contains("..") {
        let why = "has two dots in a row, or one at its end";
        return refuse(Code::ServiceTraversal, why, "give the unit's name, not its file");
    } else if text.starts_with('-') {
        return refuse(
            Code::ServiceOption,
            "looks like an option",
            "the name of a service has to come first",
        );
    } else if text.contains(['*', '?', '[', ']']) {
        return refuse(Code::ServiceGlob, "is a pattern, and could mean many services", "name one service");
    } else if text.starts_with('.') || !text.bytes().all(sound) {
        let why = "has a character that a service name can't have, or begins with a dot";
        return refuse(Code::ServiceCharacter, why, "letters, digits and `:-_.@` are allowed");
    } else if stem.len() + SUFFIX.len() > LONGEST {
        let why = "is longer than systemd allows";
        return refuse(Code::ServiceTooLong, why, "the limit is 255 bytes with `.service`");
    }
    // Compared in lower case: `ssh.SERVICE` would be the unit `ssh.SERVICE.service`, which is a mistake.
    let kind = stem.rsplit_once('.').map(|(_, kind)| kind.to_ascii_lowercase());
    if kind.is_some_and(|kind| kind == "service" || OTHER_KINDS.split(' ').any(|other| other == kind)) {
        let hint = "give it without a suffix, or with `.service`";
        return refuse(Code::ServiceSuffix, "is a unit of another kind, or looks like one", hint);
    }
    if let Some((template, instance)) = stem.split_once('@')
        && (template.is_empty() || instance.is_empty())
    {
        let why = "is a template, and only its instances can be started";
        return refuse(Code::ServiceTemplate, why, "name an instance, such as worker@1");
    }
    Ok(ServiceName(stem.to_owned()))
}

/// Whether the policy allows this for the service with this name.
pub fn decide_service(policy: &ServicePolicy, name: &ServiceName, verb: ServiceVerb) -> Decision {
    if let Some(refusal) = protected(policy, name) {
        return refusal;
    }
    let word = verb.as_str();
    let Some(pattern) = fits(&policy.allow, name) else {
        let reason = format!("no pattern of the policy allows the service {}", name.stem());
        let hint = format!("add \"{}\" to guard.service.allow {WHERE}; {GUIDE}", name.stem());
        return Decision::refuse(Code::ServiceNotAllowed, "guard.service.allow", reason, hint);
    };
    if !policy.verbs.is_empty() && !policy.verbs.iter().any(|allowed| allowed == word) {
        let reason =
            format!("the policy does not allow `{word}` for services, only {}", policy.verbs.join(", "));
        let hint = format!("to allow it, add \"{word}\" to guard.service.verbs; {GUIDE}");
        return Decision::refuse(Code::ServiceVerbNotAllowed, "guard.service.verbs", reason, hint);
    }
    Decision::allow("guard.service.allow", format!("{} matches the pattern `{pattern}`", name.stem()))
}

/// What systemd says about a unit, as far as it matters for a decision. Names have their suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Its own name.
    pub id: String,
    /// All its names, aliases included.
    pub names: Vec<String>,
    /// The units that would be stopped with it.
    pub taken_along: Vec<String>,
}

/// Whether the policy allows this for the unit that has the name. Its own name must be allowed too. None of its aliases and no
/// unit that would be stopped with it may be protected.
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
            // No policy can name an invalid name.
            Err(refusal) => *refusal,
        };
        if decision.allowed {
            last = decision;
            continue;
        }
        let (code, hint) = match decision.code {
            Code::ServiceNotAllowed => (Code::ServiceAliasNotAllowed, decision.hint),
            Code::ServiceVerbNotAllowed => return decision,
            _ => (Code::ServiceAliasProtected, decision.hint),
        };
        let reason = format!("{asked} is another name of {known}: {}", decision.reason);
        return Decision::refuse(code, decision.rule, reason, hint);
    }
    for unit in &facts.taken_along {
        // Without `read_service`: a name with an escape is protected like any other.
        let (stem, kind) = unit.rsplit_once('.').unwrap_or((unit, "service"));
        // Every service conflicts with targets such as shutdown.target. Only the targets that all services need are checked.
        if kind == "target" && !ALL_NEED.contains(&stem) {
            continue;
        }
        let name = ServiceName(stem.to_owned());
        let needed = kind == "target";
        if let Some(refusal) = protected(policy, &name).or_else(|| needed.then(|| refuse_protected(stem))) {
            let reason = format!("to {} {asked} would also stop {unit}: {}", verb.as_str(), refusal.reason);
            let hint = "`systemctl show` shows how the two depend on each other";
            return Decision::refuse(Code::ServiceTakesProtected, refusal.rule, reason, hint);
        }
    }
    last
}

/// The refusal of a protected service.
fn protected(policy: &ServicePolicy, name: &ServiceName) -> Option<Decision> {
    let stem = name.stem();
    let lower = stem.to_ascii_lowercase();
    let template = lower.split('@').next().unwrap_or(&lower);
    let mut patterns = PROTECTED.iter().flat_map(|patterns| patterns.split(' '));
    if patterns.any(|pattern| matches(pattern, &lower) || matches(pattern, template)) {
        return Some(refuse_protected(stem));
    }
    let pattern = fits(&policy.protect, name)?;
    let reason = format!("{stem} is protected by the pattern `{pattern}`");
    let hint = format!("to allow it, remove the pattern from guard.service.protect; {GUIDE}");
    Some(Decision::refuse(Code::ServiceProtectedByPolicy, "guard.service.protect", reason, hint))
}

fn refuse_protected(stem: &str) -> Decision {
    let reason = format!("{stem} is one of the services that the host, or the access to it, depends on");
    let hint = "no policy can allow it; if you must, use systemctl itself";
    Decision::refuse(Code::ServiceProtected, BUILT_IN, reason, hint)
}

/// The pattern that matches. It may be written with `.service`.
fn fits(patterns: &[String], name: &ServiceName) -> Option<String> {
    let bare = |pattern: &str| pattern.strip_suffix(SUFFIX).unwrap_or(pattern).to_owned();
    patterns.iter().find(|pattern| matches(&bare(pattern), name.stem())).cloned()
}

#[cfg(test)]
#[path = "service_rules_tests.rs"]
mod tests;
