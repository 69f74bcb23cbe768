//! The guard: policies, numbers, names of services, patterns.

use quell_core::Signal;
use quell_guard::{
    Policy, ProcessFacts, ProcessOwner, ServiceVerb, decide_kill, decide_service, decide_verb, matches,
    read_pid, read_service, read_verb,
};

/// The first line is a number, a service, a verb and a pattern; the second is a name; the rest is a policy.
pub fn guard(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (second, rest) = rest.split_once('\n').unwrap_or((rest, ""));
    if let Err(why) = quell::binary::config::fuzzing::read(&format!("[guard]\n{rest}")) {
        assert!(why.contains("/etc/quell.toml"), "{why}");
    }
    match read_pid(first) {
        Ok(pid) => {
            assert_eq!(pid.to_string(), first);
            assert!((2..=4 << 20).contains(&pid));
        }
        Err(refusal) => sound(&refusal, "PID_"),
    }
    match read_service(first) {
        Ok(name) => {
            let unit = name.unit();
            assert!(unit.len() <= 255 && unit.ends_with(".service") && unit.is_ascii(), "{unit}");
            assert!(
                !unit.contains(['/', '\\', ' ', '*', '$', ';', '\n']) && !unit.starts_with('-'),
                "{unit}"
            );
            assert_eq!(read_service(&unit).expect("its own name"), name);
            assert!(!decide_service(&Policy::default().service, &name, ServiceVerb::Status).allowed);
        }
        Err(refusal) => sound(&refusal, "SERVICE_"),
    }
    if let Ok(verb) = read_verb(first) {
        assert!(decide_verb(&Policy::default(), verb).allowed && verb.as_str() == first);
    }
    pattern(first, second);
    let mut policy = Policy::default().kill;
    let owners = vec![ProcessOwner { uid: 1000, name: Some(second.to_owned()) }];
    let facts = ProcessFacts {
        pid: 4711,
        names: vec![second.to_owned()],
        owners,
        caller_uid: 1000,
        ..Default::default()
    };
    let closed = decide_kill(&policy, &facts, Signal::TERM);
    assert!(!closed.allowed && !closed.reason.chars().any(char::is_control), "{closed:?}");
    assert!(!closed.hint.chars().any(char::is_control) && !closed.hint.contains("\"*\""), "{closed:?}");
    policy.allow = vec!["*".into()];
    policy.protect = vec![first.to_owned()];
    let decision = decide_kill(&policy, &facts, Signal::TERM);
    assert_eq!(decision.allowed, !matches(first, second), "{decision:?}");
}

fn sound(refusal: &quell_guard::Decision, family: &str) {
    assert!(!refusal.allowed && refusal.code.as_str().starts_with(family), "{refusal:?}");
    assert!(!refusal.hint.is_empty() && refusal.reason.len() < 2000, "{refusal:?}");
    assert!(!refusal.reason.chars().any(char::is_control), "{refusal:?}");
}

/// The same as a pattern means it, tried the slow way.
fn pattern(pattern: &str, name: &str) {
    let short = |text: &str| text.chars().take(40).collect::<Vec<char>>();
    let (short_pattern, short_name) = (short(pattern), short(name));
    // Row by row: whether what has been read of the pattern fits the first `at` characters.
    let mut fits = vec![false; short_name.len() + 1];
    fits[0] = true;
    for part in &short_pattern {
        let mut next = vec![false; fits.len()];
        for at in 0..fits.len() {
            next[at] = match part {
                '*' => fits[..=at].contains(&true),
                part => at > 0 && fits[at - 1] && short_name[at - 1] == *part,
            };
        }
        fits = next;
    }
    let (pattern, name): (String, String) = (short_pattern.iter().collect(), short_name.iter().collect());
    assert_eq!(matches(&pattern, &name), fits[short_name.len()], "{pattern:?} {name:?}");
}
