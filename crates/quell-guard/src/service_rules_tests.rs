use super::*;

fn policy(allow: &[&str]) -> ServicePolicy {
    ServicePolicy { allow: allow.iter().map(ToString::to_string).collect(), ..ServicePolicy::default() }
}

fn code(policy: &ServicePolicy, text: &str, verb: ServiceVerb) -> String {
    match read_service(text) {
        Ok(name) => decide_service(policy, &name, verb).code.to_string(),
        Err(refusal) => {
            assert!(!refusal.allowed && refusal.rule == BUILT_IN, "{refusal:?}");
            refusal.code.to_string()
        }
    }
}

/// Names that a policy which allows everything still doesn't let pass, and some that it does.
const NAMES: &[(&str, &str)] = &[
    // What is allowed.
    ("nginx", "ALLOWED"),
    ("nginx.service", "ALLOWED"),
    ("web-1.2_x:y", "ALLOWED"),
    ("worker@3", "ALLOWED"),
    ("worker@3.service", "ALLOWED"),
    ("worker@a@b", "ALLOWED"),
    ("postgresql@15-main", "ALLOWED"),
    ("_app", "ALLOWED"),
    ("4711", "ALLOWED"),
    ("user", "ALLOWED"),
    ("sshfs", "ALLOWED"),
    ("ssh-agent", "ALLOWED"),
    ("mydbus", "ALLOWED"),
    ("initial", "ALLOWED"),
    ("systemdx", "ALLOWED"),
    ("services", "ALLOWED"),
    ("a.socket.b", "ALLOWED"),
    // Nothing, and blanks.
    ("", "SERVICE_EMPTY"),
    (".service", "SERVICE_EMPTY"),
    (" ", "SERVICE_WHITESPACE"),
    ("   ", "SERVICE_WHITESPACE"),
    ("\t", "SERVICE_WHITESPACE"),
    ("nginx ", "SERVICE_WHITESPACE"),
    (" nginx", "SERVICE_WHITESPACE"),
    ("nginx ssh", "SERVICE_WHITESPACE"),
    ("nginx\n", "SERVICE_WHITESPACE"),
    ("nginx\r\nssh", "SERVICE_WHITESPACE"),
    ("nginx\u{a0}", "SERVICE_WHITESPACE"),
    ("nginx\u{2003}x", "SERVICE_WHITESPACE"),
    ("nginx .service", "SERVICE_WHITESPACE"),
    // What can't be seen.
    ("nginx\0", "SERVICE_CONTROL"),
    ("\u{1b}[31mnginx", "SERVICE_CONTROL"),
    ("nginx\u{7f}", "SERVICE_CONTROL"),
    ("\u{8}ssh", "SERVICE_CONTROL"),
    ("ng\u{9b}inx", "SERVICE_CONTROL"),
    // What looks like something else.
    ("s\u{455}h", "SERVICE_NOT_ASCII"),
    ("ѕѕһ", "SERVICE_NOT_ASCII"),
    ("nginx\u{200b}", "SERVICE_NOT_ASCII"),
    ("\u{202e}xnign", "SERVICE_NOT_ASCII"),
    ("ｓｓｈ", "SERVICE_NOT_ASCII"),
    ("nginx\u{2024}service", "SERVICE_NOT_ASCII"),
    ("nginx\u{ff0f}x", "SERVICE_NOT_ASCII"),
    ("dienst-größe", "SERVICE_NOT_ASCII"),
    // Paths.
    ("/etc/systemd/system/ssh.service", "SERVICE_PATH"),
    ("../ssh", "SERVICE_PATH"),
    ("a/b", "SERVICE_PATH"),
    ("/", "SERVICE_PATH"),
    ("./nginx", "SERVICE_PATH"),
    ("ssh\\x2ed", "SERVICE_PATH"),
    ("C:\\nginx", "SERVICE_PATH"),
    ("\\\\host\\nginx", "SERVICE_PATH"),
    ("worker@a\\x2db", "SERVICE_PATH"),
    ("..", "SERVICE_TRAVERSAL"),
    ("a..b", "SERVICE_TRAVERSAL"),
    ("nginx.", "SERVICE_TRAVERSAL"),
    ("nginx.service.", "SERVICE_TRAVERSAL"),
    (".", "SERVICE_TRAVERSAL"),
    ("nginx..service", "SERVICE_TRAVERSAL"),
    // Options.
    ("-", "SERVICE_OPTION"),
    ("--", "SERVICE_OPTION"),
    ("-H", "SERVICE_OPTION"),
    ("--force", "SERVICE_OPTION"),
    ("--root=x", "SERVICE_OPTION"),
    ("-nginx.service", "SERVICE_OPTION"),
    // Patterns.
    ("*", "SERVICE_GLOB"),
    ("nginx*", "SERVICE_GLOB"),
    ("ss?", "SERVICE_GLOB"),
    ("ss[h]", "SERVICE_GLOB"),
    ("[a-z]", "SERVICE_GLOB"),
    // A shell's, and all others.
    ("nginx;reboot", "SERVICE_CHARACTER"),
    ("nginx&", "SERVICE_CHARACTER"),
    ("nginx|cat", "SERVICE_CHARACTER"),
    ("$(reboot)", "SERVICE_CHARACTER"),
    ("${IFS}", "SERVICE_CHARACTER"),
    ("`reboot`", "SERVICE_CHARACTER"),
    ("nginx>x", "SERVICE_CHARACTER"),
    ("nginx<x", "SERVICE_CHARACTER"),
    ("'nginx'", "SERVICE_CHARACTER"),
    ("\"nginx\"", "SERVICE_CHARACTER"),
    ("~root", "SERVICE_CHARACTER"),
    ("!!", "SERVICE_CHARACTER"),
    ("#x", "SERVICE_CHARACTER"),
    ("a=b", "SERVICE_CHARACTER"),
    ("a,b", "SERVICE_CHARACTER"),
    ("a+b", "SERVICE_CHARACTER"),
    ("a%2fb", "SERVICE_CHARACTER"),
    ("nginx%00", "SERVICE_CHARACTER"),
    ("{a}", "SERVICE_CHARACTER"),
    ("a^b", "SERVICE_CHARACTER"),
    (".hidden", "SERVICE_CHARACTER"),
    // Other kinds.
    ("ssh.socket", "SERVICE_SUFFIX"),
    ("apt-daily.timer", "SERVICE_SUFFIX"),
    ("multi-user.target", "SERVICE_SUFFIX"),
    ("home.mount", "SERVICE_SUFFIX"),
    ("session-1.scope", "SERVICE_SUFFIX"),
    ("system.slice", "SERVICE_SUFFIX"),
    ("a.path", "SERVICE_SUFFIX"),
    ("dev-sda.device", "SERVICE_SUFFIX"),
    ("dev-sda.swap", "SERVICE_SUFFIX"),
    ("a.automount", "SERVICE_SUFFIX"),
    ("a.snapshot", "SERVICE_SUFFIX"),
    ("a.busname", "SERVICE_SUFFIX"),
    ("a.SOCKET", "SERVICE_SUFFIX"),
    ("nginx.Service", "SERVICE_SUFFIX"),
    ("ssh.service.service", "SERVICE_SUFFIX"),
    ("ssh.socket.service", "SERVICE_SUFFIX"),
    ("worker@3.socket", "SERVICE_SUFFIX"),
    // Templates.
    ("worker@", "SERVICE_TEMPLATE"),
    ("worker@.service", "SERVICE_TEMPLATE"),
    ("@3", "SERVICE_TEMPLATE"),
    ("@", "SERVICE_TEMPLATE"),
    // What no policy can allow.
    ("init", "SERVICE_PROTECTED"),
    ("systemd", "SERVICE_PROTECTED"),
    ("systemd-journald", "SERVICE_PROTECTED"),
    ("systemd-logind.service", "SERVICE_PROTECTED"),
    ("systemd-resolved", "SERVICE_PROTECTED"),
    ("systemd-networkd", "SERVICE_PROTECTED"),
    ("systemd-udevd", "SERVICE_PROTECTED"),
    ("systemd-fsck@dev-sda", "SERVICE_PROTECTED"),
    ("systemd-reboot", "SERVICE_PROTECTED"),
    ("SYSTEMD-logind", "SERVICE_PROTECTED"),
    ("dbus", "SERVICE_PROTECTED"),
    ("dbus.service", "SERVICE_PROTECTED"),
    ("DBus", "SERVICE_PROTECTED"),
    ("dbus-broker", "SERVICE_PROTECTED"),
    ("dbus-org.freedesktop.login1", "SERVICE_PROTECTED"),
    ("dbus-org.freedesktop.resolve1.service", "SERVICE_PROTECTED"),
    ("ssh", "SERVICE_PROTECTED"),
    ("ssh.service", "SERVICE_PROTECTED"),
    ("SSH", "SERVICE_PROTECTED"),
    ("sshd", "SERVICE_PROTECTED"),
    ("sshd.service", "SERVICE_PROTECTED"),
    ("ssh@10.0.0.1:22-10.0.0.2:999", "SERVICE_PROTECTED"),
    ("sshd@x", "SERVICE_PROTECTED"),
    ("sshd-keygen@rsa", "SERVICE_PROTECTED"),
    ("dropbear", "SERVICE_PROTECTED"),
    ("network", "SERVICE_PROTECTED"),
    ("networking", "SERVICE_PROTECTED"),
    ("NetworkManager", "SERVICE_PROTECTED"),
    ("networkmanager.service", "SERVICE_PROTECTED"),
    ("NetworkManager-dispatcher", "SERVICE_PROTECTED"),
    ("networkd", "SERVICE_PROTECTED"),
    ("networkd-dispatcher", "SERVICE_PROTECTED"),
    ("resolvconf", "SERVICE_PROTECTED"),
    ("resolved", "SERVICE_PROTECTED"),
    ("wpa_supplicant", "SERVICE_PROTECTED"),
    ("wpa_supplicant@wlan0", "SERVICE_PROTECTED"),
    ("wpa_supplicant-wired@eth0", "SERVICE_PROTECTED"),
    ("ifup@eth0", "SERVICE_PROTECTED"),
    ("connman", "SERVICE_PROTECTED"),
    ("dhcpcd@eth0", "SERVICE_PROTECTED"),
    ("iwd", "SERVICE_PROTECTED"),
    ("wicked", "SERVICE_PROTECTED"),
    ("wickedd-dhcp4", "SERVICE_PROTECTED"),
    ("wg-quick@wg0", "SERVICE_PROTECTED"),
    ("openvpn-client@office", "SERVICE_PROTECTED"),
    ("openvpn", "SERVICE_PROTECTED"),
    ("tailscaled", "SERVICE_PROTECTED"),
    ("zerotier-one", "SERVICE_PROTECTED"),
    ("nebula@office", "SERVICE_PROTECTED"),
    ("cloudflared", "SERVICE_PROTECTED"),
    ("shorewall6", "SERVICE_PROTECTED"),
    ("nscd", "SERVICE_PROTECTED"),
    ("sssd", "SERVICE_PROTECTED"),
    ("sssd-nss", "SERVICE_PROTECTED"),
    ("gdm", "SERVICE_PROTECTED"),
    ("gdm3", "SERVICE_PROTECTED"),
    ("sddm", "SERVICE_PROTECTED"),
    ("lightdm", "SERVICE_PROTECTED"),
    ("display-manager", "SERVICE_PROTECTED"),
    ("logind", "SERVICE_PROTECTED"),
    ("elogind", "SERVICE_PROTECTED"),
    ("udev", "SERVICE_PROTECTED"),
    ("eudev", "SERVICE_PROTECTED"),
    ("polkit", "SERVICE_PROTECTED"),
    ("polkitd", "SERVICE_PROTECTED"),
    ("getty@tty1", "SERVICE_PROTECTED"),
    ("serial-getty@ttyS0", "SERVICE_PROTECTED"),
    ("console-getty", "SERVICE_PROTECTED"),
    ("autovt@tty2", "SERVICE_PROTECTED"),
    ("user@1000", "SERVICE_PROTECTED"),
    ("user@1000.service", "SERVICE_PROTECTED"),
    ("user-runtime-dir@1000", "SERVICE_PROTECTED"),
    ("rescue", "SERVICE_PROTECTED"),
    ("emergency.service", "SERVICE_PROTECTED"),
    ("debug-shell", "SERVICE_PROTECTED"),
    ("ufw", "SERVICE_PROTECTED"),
    ("firewalld", "SERVICE_PROTECTED"),
    ("ebtables", "SERVICE_PROTECTED"),
    ("arptables.service", "SERVICE_PROTECTED"),
    ("iptables-restore", "SERVICE_PROTECTED"),
    ("nftables-restore", "SERVICE_PROTECTED"),
    ("ferm", "SERVICE_PROTECTED"),
    ("nftables", "SERVICE_PROTECTED"),
    ("iptables", "SERVICE_PROTECTED"),
    ("quell", "SERVICE_PROTECTED"),
    ("quell-api", "SERVICE_PROTECTED"),
];

#[test]
fn every_name_gets_its_own_code_even_where_everything_is_allowed() {
    let all = policy(&["*"]);
    let verbs = [ServiceVerb::Start, ServiceVerb::Stop, ServiceVerb::Restart, ServiceVerb::Status];
    for (name, expected) in NAMES {
        for verb in verbs {
            assert_eq!(code(&all, name, verb), *expected, "{name:?} {verb:?}");
        }
    }
    assert!(NAMES.iter().filter(|(_, code)| *code != "ALLOWED").count() >= 150);
}

#[test]
fn a_refusal_says_why_and_what_to_do_without_the_strange_characters() {
    for (name, expected) in NAMES.iter().filter(|(_, code)| *code != "ALLOWED") {
        let refusal = match read_service(name) {
            Ok(sound) => decide_service(&policy(&["*"]), &sound, ServiceVerb::Stop),
            Err(refusal) => *refusal,
        };
        assert!(!refusal.reason.is_empty() && !refusal.hint.is_empty(), "{name:?} {expected}");
        assert!(refusal.reason.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{:?}", refusal.reason);
        assert_eq!(refusal.rule, BUILT_IN);
    }
}

#[test]
fn a_name_may_be_as_long_as_systemd_lets_it_and_no_longer() {
    let (longest, longer) = ("a".repeat(247), "a".repeat(248));
    assert_eq!(read_service(&longest).unwrap().unit().len(), 255);
    assert!(read_service(&format!("{longest}.service")).is_ok());
    for text in [longer.clone(), format!("{longer}.service"), "x".repeat(1 << 20)] {
        let refusal = read_service(&text).unwrap_err();
        assert_eq!(refusal.code.as_str(), "SERVICE_TOO_LONG");
        assert!(refusal.reason.len() < 200, "{}", refusal.reason.len());
    }
}

#[test]
fn without_a_policy_no_service_may_be_touched() {
    for name in ["nginx", "worker@3", "nginx.service"] {
        assert_eq!(code(&ServicePolicy::default(), name, ServiceVerb::Status), "SERVICE_NOT_ALLOWED");
    }
}

#[test]
fn a_policy_allows_protects_and_narrows_with_or_without_the_suffix() {
    let policy = ServicePolicy {
        allow: ["web*", "worker@*", "db.service", "*-api.service"].map(String::from).to_vec(),
        protect: ["web-pay", "ledger-api.service"].map(String::from).to_vec(),
        verbs: ["start", "status"].map(String::from).to_vec(),
    };
    for (name, verb, expected) in [
        ("web", ServiceVerb::Start, "ALLOWED"),
        ("web.service", ServiceVerb::Status, "ALLOWED"),
        ("db", ServiceVerb::Start, "ALLOWED"),
        ("db.service", ServiceVerb::Start, "ALLOWED"),
        ("users-api", ServiceVerb::Start, "ALLOWED"),
        ("worker@7", ServiceVerb::Start, "ALLOWED"),
        ("worker", ServiceVerb::Start, "SERVICE_NOT_ALLOWED"),
        ("Web", ServiceVerb::Start, "SERVICE_NOT_ALLOWED"),
        ("my-web", ServiceVerb::Start, "SERVICE_NOT_ALLOWED"),
        ("web-pay", ServiceVerb::Start, "SERVICE_PROTECTED_BY_POLICY"),
        ("web-pay.service", ServiceVerb::Status, "SERVICE_PROTECTED_BY_POLICY"),
        ("ledger-api", ServiceVerb::Start, "SERVICE_PROTECTED_BY_POLICY"),
        ("web", ServiceVerb::Stop, "SERVICE_VERB_NOT_ALLOWED"),
        ("web", ServiceVerb::Restart, "SERVICE_VERB_NOT_ALLOWED"),
    ] {
        assert_eq!(code(&policy, name, verb), expected, "{name} {verb:?}");
    }
}

#[test]
fn what_is_behind_a_name_has_to_be_allowed_too() {
    let asked = read_service("web").unwrap();
    let policy = ServicePolicy {
        allow: ["web", "nginx", "ssh*"].map(String::from).to_vec(),
        protect: vec!["pay".into()],
        ..ServicePolicy::default()
    };
    let decide = |id: &str, names: &[&str], along: &[&str]| {
        let strings = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let facts = UnitFacts { id: id.into(), names: strings(names), taken_along: strings(along) };
        decide_unit(&policy, &asked, &facts, ServiceVerb::Stop)
    };
    for (id, names, along, expected) in [
        ("web.service", &["web.service"][..], &[][..], "ALLOWED"),
        ("web.service", &["web.service", "www.service"], &[], "ALLOWED"),
        ("nginx.service", &["web.service", "nginx.service"], &[], "ALLOWED"),
        ("apache.service", &["web.service", "apache.service"], &[], "SERVICE_ALIAS_NOT_ALLOWED"),
        ("ssh.service", &["web.service", "ssh.service"], &[], "SERVICE_ALIAS_PROTECTED"),
        ("web.service", &["web.service", "sshd.service"], &[], "SERVICE_ALIAS_PROTECTED"),
        (
            "web.service",
            &["web.service", "dbus-org.freedesktop.login1.service"],
            &[],
            "SERVICE_ALIAS_PROTECTED",
        ),
        ("web.service", &["web.service", "pay.service"], &[], "SERVICE_ALIAS_PROTECTED"),
        ("web.socket", &["web.socket"], &[], "SERVICE_ALIAS_PROTECTED"),
        ("a\\x2db.service", &["web.service"], &[], "SERVICE_ALIAS_PROTECTED"),
        ("", &[], &[], "SERVICE_ALIAS_PROTECTED"),
        ("web.service", &["web.service"], &["worker.service", "multi-user.target"], "ALLOWED"),
        ("web.service", &["web.service"], &["ssh.service"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["x.service", "pay.service"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["shutdown.target", "rescue.target"], "ALLOWED"),
        ("web.service", &["web.service"], &["ssh.socket"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["dbus.socket"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["pay.socket"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["user@1000.slice"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["basic.target"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["sysinit.target"], "SERVICE_TAKES_PROTECTED"),
        ("web.service", &["web.service"], &["systemd-fsck@a\\x2db.service"], "SERVICE_TAKES_PROTECTED"),
    ] {
        let decision = decide(id, names, along);
        assert_eq!(decision.code.as_str(), expected, "{id} {names:?} {along:?}: {decision:?}");
        assert_eq!(decision.allowed, expected == "ALLOWED");
    }
}
