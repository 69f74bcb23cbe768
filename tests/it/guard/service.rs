//! Services of a real systemd: what is allowed works and is verified, and an alias does not lead around the guard.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use quell_tests::{
    eventually,
    run::{Finished, PATIENCE},
    skip,
    systemd_user::SystemdUser,
    test_env::TestEnv,
};
use serde_json::Value;

/// A user manager with these units, and an environment beside it.
struct ServiceEnv {
    env: TestEnv,
    units: PathBuf,
    policy: PathBuf,
    // Last: what is in the environment ends before its manager does.
    _manager: SystemdUser,
}

/// Units that don't drag in what a real session has.
const ALONE: &str = "[Unit]\nDefaultDependencies=no\n";

impl ServiceEnv {
    /// `units` are names and what comes behind the part `[Unit]`.
    fn new(allow: &str, units: &[(&str, &str)]) -> Result<ServiceEnv, String> {
        let manager = SystemdUser::start()?;
        let env = TestEnv::beside(&manager);
        let runtime = manager.session().variables.iter().find(|(name, _)| name == "XDG_RUNTIME_DIR");
        let runtime = runtime.map(|(_, value)| Path::new(value)).expect("the session has it");
        let dir = runtime.with_file_name("units");
        for (name, text) in units {
            fs::write(dir.join(name), format!("{ALONE}{text}")).expect("a unit");
        }
        let policy = env.write("policy.toml", &format!("[guard.service]\n{allow}\n"));
        Ok(ServiceEnv { env, units: dir, policy, _manager: manager })
    }

    fn alias(&self, name: &str, target: &str) {
        symlink(target, self.units.join(name)).expect("a link");
    }

    /// quell with `--json`.
    fn ask(&self, words: &[&str]) -> Finished {
        let quell = self.env.quell("service").env("QUELL_CONFIG", &self.policy);
        quell.args(["--user", "--json"]).args(words).finish()
    }

    /// What a second witness says: systemctl, asked by the test.
    fn systemctl(&self, words: &[&str]) -> String {
        let prefix = self.env.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["systemctl", "--user"]).args(words);
        let output = command.envs(self.env.session_variables().iter().cloned()).output().expect("systemctl");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.env.home().join("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line of the audit log")).collect()
    }
}

fn with_units(name: &str, allow: &str, units: &[(&str, &str)], test: impl FnOnce(&ServiceEnv)) {
    match ServiceEnv::new(allow, units) {
        Ok(services) => test(&services),
        Err(why) => skip(name, &why),
    }
}

/// The data of an answer, which came with this exit code.
fn data(done: &Finished, code: i32) -> Value {
    let envelope = done.envelope();
    assert_eq!((done.code(), &envelope["ok"]), (Some(code), &true.into()), "{envelope:#} {}", done.stderr);
    envelope["data"].clone()
}

#[track_caller]
fn refused(done: &Finished, code: &str) -> Value {
    let envelope = done.envelope();
    assert_eq!((done.code(), &envelope["error"]["code"]), (Some(4), &code.into()), "{envelope:#}");
    assert_eq!(envelope["error"]["details"]["decision"]["allowed"], false, "{envelope:#}");
    envelope["error"].clone()
}

#[test]
fn an_allowed_service_is_started_restarted_and_stopped_and_that_is_verified() {
    let name = "an_allowed_service_is_started_restarted_and_stopped_and_that_is_verified";
    let units = [
        ("web.service", "[Service]\nExecStart=sleep 300\n"),
        ("worker@.service", "[Service]\nExecStart=sleep %i\n"),
    ];
    with_units(name, "allow = [\"web\", \"worker@*\"]", &units, |services| {
        let before = data(&services.ask(&["status", "web"]), 1);
        assert_eq!((&before["active"], &before["success"]), (&false.into(), &false.into()), "{before:#}");

        let started = data(&services.ask(&["start", "web"]), 0);
        assert_eq!(started["service"], "web.service");
        assert_eq!((&started["command"], &started["returncode"]), (&"start".into(), &0.into()));
        assert_eq!((&started["active"], &started["success"]), (&true.into(), &true.into()), "{started:#}");
        assert_eq!((&started["was"], &started["state"]), (&"inactive".into(), &"active".into()));
        assert_eq!(started["decision"]["code"], "ALLOWED");
        assert_eq!(services.systemctl(&["is-active", "web"]), "active");
        let pid = started["main_pid"].as_u64().expect("it has a process");
        assert_eq!(services.systemctl(&["show", "--value", "-p", "MainPID", "web"]), pid.to_string());

        let again = data(&services.ask(&["start", "web.service"]), 0);
        assert_eq!((&again["main_pid"], &again["was"]), (&pid.into(), &"active".into()), "{again:#}");

        let restarted = data(&services.ask(&["restart", "web"]), 0);
        assert!(restarted["main_pid"].as_u64().is_some_and(|new| new != pid), "{restarted:#}");
        assert_eq!(data(&services.ask(&["status", "web"]), 0)["active"], true);

        let stopped = data(&services.ask(&["stop", "web"]), 0);
        assert_eq!((&stopped["active"], &stopped["success"]), (&false.into(), &true.into()), "{stopped:#}");
        assert_eq!((&stopped["state"], &stopped["main_pid"]), (&"inactive".into(), &Value::Null));
        assert_eq!(services.systemctl(&["is-active", "web"]), "inactive");

        let instance = data(&services.ask(&["start", "worker@299"]), 0);
        assert_eq!(instance["service"], "worker@299.service");
        assert_eq!(services.systemctl(&["is-active", "worker@299"]), "active");

        let acts: Vec<Value> = services.audit().into_iter().filter(|line| line["kind"] == "act").collect();
        let verbs: Vec<&str> = acts.iter().filter_map(|line| line["verb"].as_str()).collect();
        let expected = ["service start", "service start", "service restart", "service stop", "service start"];
        assert_eq!(verbs, expected);
        assert!(acts.iter().all(|line| line["result"]["success"] == true), "{acts:#?}");
    });
}

#[test]
fn people_are_told_in_a_line_or_two() {
    let units = [
        ("web.service", "[Service]\nExecStart=sleep 300\n"),
        ("bad.service", "[Service]\nType=exec\nExecStart=/nowhere/at/all\n"),
    ];
    with_units("people_are_told_in_a_line_or_two", "allow = [\"*\"]", &units, |services| {
        let ask = |words: &[&str]| {
            let quell = services.env.quell("service").env("QUELL_CONFIG", &services.policy);
            quell.args(words).args(["--user"]).finish()
        };
        let started = ask(&["start", "web"]);
        assert!(started.stdout.starts_with("web.service: started, active (running), pid "), "{started:?}");
        assert_eq!((started.stdout.lines().count(), started.stderr.as_str()), (1, ""));
        let stopped = ask(&["stop", "web"]);
        assert_eq!(stopped.stdout, "web.service: stopped, inactive (dead)\n");
        let bad = ask(&["start", "bad"]);
        assert_eq!((bad.code(), bad.stdout.lines().count()), (Some(1), 2), "{bad:?}");
        assert!(
            bad.stdout.starts_with("bad.service: NOT started, failed (failed)\n  it failed: "),
            "{bad:?}"
        );
        assert!(bad.stdout.contains("Job for bad.service failed"), "{bad:?}");
        let refused = ask(&["stop", "dbus"]);
        assert_eq!((refused.code(), refused.stdout.as_str()), (Some(4), ""));
        assert!(refused.stderr.contains("dbus") && refused.stderr.lines().count() == 1, "{refused:?}");
    });
}

#[test]
fn a_service_that_does_not_come_up_is_no_success() {
    let units = [
        ("missing.service", "[Service]\nExecStart=/nowhere/at/all\n"),
        ("exec.service", "[Service]\nType=exec\nExecStart=/nowhere/at/all\n"),
        ("soon.service", "[Service]\nExecStart=sh -c 'exit 3'\n"),
        ("silent.service", "[Service]\nType=notify\nExecStart=sh -c 'exit 4'\n"),
        ("again.service", "[Service]\nRestart=always\nRestartSec=60\nExecStart=sh -c 'exit 5'\n"),
        ("once.service", "[Service]\nType=oneshot\nExecStart=true\n"),
        ("wrong.service", "[Service]\nType=oneshot\nExecStart=sh -c 'exit 7'\n"),
        ("kept.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n"),
    ];
    let name = "a_service_that_does_not_come_up_is_no_success";
    with_units(name, "allow = [\"*\"]", &units, |services| {
        for (unit, state, result, words) in [
            ("missing", "failed", "exit-code", "it failed: exit-code, status 203"),
            ("exec", "failed", "exit-code", "it failed: exit-code, status 203"),
            ("soon", "failed", "exit-code", "it failed: exit-code, status 3"),
            ("silent", "failed", "exit-code", "it failed: exit-code, status 4"),
            ("again", "activating", "exit-code", "systemd will start it again"),
            ("once", "inactive", "success", "oneshot service that has finished"),
            ("wrong", "failed", "exit-code", "it failed: exit-code, status 7"),
        ] {
            let answer = data(&services.ask(&["start", unit]), 1);
            assert_eq!((&answer["success"], &answer["active"]), (&false.into(), &false.into()), "{answer:#}");
            assert_eq!((&answer["state"], &answer["result"]), (&state.into(), &result.into()), "{answer:#}");
            assert!(answer["note"].as_str().is_some_and(|note| note.contains(words)), "{answer:#}");
        }
        let exec = data(&services.ask(&["start", "exec"]), 1);
        assert!(exec["stderr"].as_str().is_some_and(|text| text.contains("exec.service")), "{exec:#}");
        let kept = data(&services.ask(&["start", "kept"]), 0);
        assert_eq!((&kept["active"], &kept["sub_state"]), (&true.into(), &"exited".into()), "{kept:#}");
        let stopped = data(&services.ask(&["stop", "again"]), 0);
        assert_eq!(stopped["active"], false, "{stopped:#}");
        let unknown = services.ask(&["start", "nobody-has-this"]);
        let error = &unknown.envelope()["error"];
        assert_eq!((unknown.code(), &error["code"]), (Some(3), &"no_such_service".into()), "{error:#}");
        let act = services.audit().into_iter().rfind(|line| line["kind"] == "act");
        assert_eq!(act.expect("acts")["target"], "again.service", "what is not there was not acted on");
    });
}

#[test]
fn stopped_is_said_when_it_is_and_not_when_it_was_asked_for() {
    let stubborn = "[Service]\nExecStart=sh -c \"trap '' TERM; while :; do sleep 0.1; done\"\n";
    let (short, long) = (
        format!("{stubborn}TimeoutStopSec=1s\n"),
        format!("{stubborn}TimeoutStopSec=12s\nSendSIGKILL=yes\n"),
    );
    let units = [("short.service", short.as_str()), ("long.service", long.as_str())];
    let name = "stopped_is_said_when_it_is_and_not_when_it_was_asked_for";
    with_units(name, "allow = [\"*\"]", &units, |services| {
        for unit in ["short", "long"] {
            data(&services.ask(&["start", unit]), 0);
        }
        let done = services.ask(&["stop", "short"]);
        let stopped = data(&done, 0);
        assert!(done.took >= Duration::from_millis(900), "it ignores TERM: {:?}", done.took);
        assert_eq!((&stopped["state"], &stopped["result"]), (&"failed".into(), &"timeout".into()));
        assert_eq!((&stopped["success"], &stopped["main_pid"]), (&true.into(), &Value::Null), "{stopped:#}");

        // Long enough for systemd to have heard of it, and not for it to be done.
        let done = services.ask(&["stop", "long", "--timeout", "3s"]);
        let late = data(&done, 6);
        assert_eq!((&late["success"], &late["timed_out"]), (&false.into(), &true.into()), "{late:#}");
        assert_eq!((&late["state"], &late["returncode"]), (&"deactivating".into(), &Value::Null), "{late:#}");
        let over = eventually(PATIENCE, || services.systemctl(&["is-active", "long"]) == "failed");
        assert!(over, "systemd goes on");
    });
}

#[test]
fn an_alias_does_not_lead_around_the_guard() {
    let sleeps = "[Service]\nExecStart=sleep 300\n";
    let conflict = "Conflicts=sshd.service\n[Service]\nExecStart=sleep 300\n";
    let along = "PropagatesStopTo=pay.service\n[Service]\nExecStart=sleep 300\n";
    let units = [
        ("web.service", sleeps),
        ("hidden.service", sleeps),
        ("sshd.service", sleeps),
        ("ours.service", sleeps),
        ("pay.service", sleeps),
        ("against.service", conflict),
        ("along.service", along),
    ];
    let allow =
        "allow = [\"w*\", \"front\", \"harmless\", \"ours\", \"money\", \"a*\"]\nprotect = [\"pay.service\"]";
    with_units("an_alias_does_not_lead_around_the_guard", allow, &units, |services| {
        services.alias("www.service", "web.service");
        services.alias("front.service", "hidden.service");
        services.alias("harmless.service", "sshd.service");
        services.alias("dbus-org.freedesktop.login1.service", "ours.service");
        services.alias("money.service", "pay.service");
        services.systemctl(&["daemon-reload"]);
        services.systemctl(&["start", "sshd", "pay", "hidden", "ours"]);

        let good = data(&services.ask(&["start", "www"]), 0);
        assert_eq!((&good["service"], &good["unit"]), (&"www.service".into(), &"web.service".into()));
        assert_eq!(services.systemctl(&["is-active", "web"]), "active");

        let verbs = ["stop", "restart", "start", "status"];
        for verb in verbs {
            let error = refused(&services.ask(&[verb, "harmless"]), "SERVICE_ALIAS_PROTECTED");
            assert_eq!(error["details"]["decision"]["rule"], "built-in", "{error:#}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("sshd.service")), "{error:#}");
            refused(&services.ask(&[verb, "ours"]), "SERVICE_ALIAS_PROTECTED");
            refused(&services.ask(&[verb, "front"]), "SERVICE_ALIAS_NOT_ALLOWED");
            refused(&services.ask(&[verb, "money"]), "SERVICE_ALIAS_PROTECTED");
        }
        refused(&services.ask(&["start", "against"]), "SERVICE_TAKES_PROTECTED");
        assert_eq!(data(&services.ask(&["status", "against"]), 1)["active"], false);
        data(&services.ask(&["start", "along"]), 0);
        refused(&services.ask(&["stop", "along"]), "SERVICE_TAKES_PROTECTED");
        refused(&services.ask(&["restart", "along"]), "SERVICE_TAKES_PROTECTED");

        for unit in ["sshd", "pay", "hidden", "ours", "along"] {
            assert_eq!(services.systemctl(&["is-active", unit]), "active", "{unit} was touched");
        }
        let acts: Vec<Value> = services.audit().into_iter().filter(|line| line["kind"] == "act").collect();
        let targets: Vec<&Value> = acts.iter().map(|line| &line["target"]).collect();
        assert_eq!(targets, ["web.service", "along.service"], "{acts:#?}");
    });
}

#[test]
fn a_protected_service_is_safe_however_many_steps_away_it_is() {
    let sleeps = "[Service]\nExecStart=sleep 300\n";
    let needs = |name: &str| format!("Requires={name}.service\n{sleeps}");
    let (midb, pay, mids, mida, far) =
        (needs("base"), needs("midb"), needs("bottom"), needs("mids"), needs("free"));
    // One that has run to its end passes a stop on, too.
    let once = "Requires=under.service\n[Service]\nType=oneshot\nExecStart=true\n";
    let bank = needs("once");
    let conflict = format!("Conflicts=base.service\n{sleeps}");
    let units = [
        ("base.service", sleeps),
        ("midb.service", &midb),
        ("pay.service", &pay),
        ("bottom.service", sleeps),
        ("mids.service", &mids),
        ("sshd.service", &mida),
        ("under.service", sleeps),
        ("once.service", once),
        ("bank.service", &bank),
        ("free.service", sleeps),
        ("far.service", &far),
        ("against.service", &conflict),
    ];
    let allow = "allow = [\"*\"]\nprotect = [\"pay\", \"bank\"]";
    let name = "a_protected_service_is_safe_however_many_steps_away_it_is";
    with_units(name, allow, &units, |services| {
        services.systemctl(&["start", "pay", "sshd", "bank", "far"]);
        for (verb, unit, kept) in [
            ("stop", "base", "pay"),
            ("restart", "base", "pay"),
            ("start", "against", "pay"),
            ("stop", "bottom", "sshd"),
            ("stop", "under", "bank"),
        ] {
            let error = refused(&services.ask(&[verb, unit]), "SERVICE_TAKES_PROTECTED");
            assert!(error["message"].as_str().is_some_and(|text| text.contains(kept)), "{error:#}");
            assert_eq!(services.systemctl(&["is-active", kept]), "active", "{kept} was touched");
        }
        data(&services.ask(&["stop", "free"]), 0);
        assert_eq!(services.systemctl(&["is-active", "far"]), "inactive");
        // A unit that is not running is not stopped.
        services.systemctl(&["stop", "pay"]);
        data(&services.ask(&["stop", "base"]), 0);
    });
}

#[test]
fn what_is_left_of_a_stopped_service_is_told() {
    let leaves = "[Service]\nKillMode=process\nExecStart=sh -c 'sleep 300 & exec sleep 300'\n";
    let units = [("leaves.service", leaves)];
    with_units("what_is_left_of_a_stopped_service_is_told", "allow = [\"*\"]", &units, |services| {
        data(&services.ask(&["start", "leaves"]), 0);
        let stopped = data(&services.ask(&["stop", "leaves"]), 0);
        let note = stopped["note"].as_str().unwrap_or_default();
        assert!(note.contains("1 process of it is left"), "{stopped:#}");
        assert_eq!(stopped["left"], 1, "{stopped:#}");
        services.systemctl(&["kill", "-s", "KILL", "leaves"]);
        data(&services.ask(&["start", "leaves"]), 0);
        services.systemctl(&["kill", "-s", "KILL", "leaves"]);
        let stopped = data(&services.ask(&["stop", "leaves"]), 0);
        assert_eq!(stopped["left"], 0, "{stopped:#}");
    });
}
