//! `quell service` where there is no systemd, where systemctl misbehaves, and where nothing may run at all.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use quell_tests::{
    host::{am_root, has_program},
    run::{Finished, Quell},
    skip,
    test_env::TestEnv,
};

/// What `systemctl show` says of a unit that runs.
const RUNS: &str = "Id=web.service\\nNames=web.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\nMainPID=0\\n";

/// The one that quell runs.
const SYSTEMCTL: &str = "/usr/bin/systemctl";

/// Words before quell that put `file` in the place of systemctl, for this quell alone: in a mount namespace of its own.
pub(crate) fn instead(file: &Path) -> Vec<String> {
    let unshare = if am_root() { "-m" } else { "-rm" };
    let mount = format!("mount --bind {} {SYSTEMCTL} && exec \"$@\"", file.display());
    ["unshare", unshare, "sh", "-c", &mount, "sh"].map(str::to_owned).to_vec()
}

/// Whether another systemctl can be put in its place; says so where it can't.
pub(crate) fn can_pretend(test: &str) -> bool {
    let words = instead(Path::new("/dev/null"));
    let done = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    let can = done.is_ok_and(|done| done.status.success());
    if !can {
        skip(test, &format!("nothing can be mounted over {SYSTEMCTL} here"));
    }
    can
}

/// A systemctl of the test's own, which does `show` for `show`, else `other`: the words that put it in its place.
pub(crate) fn pretend(env: &TestEnv, show: &str, other: &str) -> Vec<String> {
    let log = env.path("calls");
    let text = format!(
        "#!/bin/sh\necho \"$*\" >>{}\ncase \" $* \" in *' show '*) {show};; *) {other};; esac\n",
        log.display()
    );
    instead(&env.script("systemctl", &text))
}

/// What a systemctl says of a unit that runs.
pub(crate) fn runs() -> String {
    format!("printf '{RUNS}'")
}

fn policy(env: &TestEnv) -> PathBuf {
    env.write("policy.toml", "[guard.service]\nallow = [\"*\"]\n")
}

fn service<'l>(env: &'l TestEnv, wrapper: &[String], words: &[&str]) -> Quell<'l> {
    let quell = env.quell("service").env("QUELL_CONFIG", policy(env)).wrapped(wrapper);
    quell.args(["--json"]).args(words)
}

#[track_caller]
fn fails(done: &Finished, exit: i32, code: &str) -> String {
    let envelope = done.envelope();
    assert_eq!((done.code(), &envelope["error"]["code"]), (Some(exit), &code.into()), "{envelope:#}");
    assert!(envelope["error"]["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{envelope:#}");
    envelope["error"]["message"].as_str().unwrap_or_default().to_owned()
}

fn calls(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.path("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Names that are refused, one of each kind, and by policy.
const REFUSED: &[(&str, &str)] = &[
    ("", "SERVICE_EMPTY"),
    ("  ", "SERVICE_WHITESPACE"),
    ("web ssh", "SERVICE_WHITESPACE"),
    ("web\n", "SERVICE_WHITESPACE"),
    ("web\u{1b}[0m", "SERVICE_CONTROL"),
    ("ѕѕһ", "SERVICE_NOT_ASCII"),
    ("/etc/systemd/system/web.service", "SERVICE_PATH"),
    ("..\\web", "SERVICE_PATH"),
    ("..", "SERVICE_TRAVERSAL"),
    ("--force", "SERVICE_OPTION"),
    ("w*", "SERVICE_GLOB"),
    ("$(reboot)", "SERVICE_CHARACTER"),
    ("web;reboot", "SERVICE_CHARACTER"),
    ("ssh.socket", "SERVICE_SUFFIX"),
    ("worker@", "SERVICE_TEMPLATE"),
    ("ssh", "SERVICE_PROTECTED"),
    ("SSHD.service", "SERVICE_PROTECTED"),
    ("systemd-logind", "SERVICE_PROTECTED"),
    ("dbus-org.freedesktop.login1", "SERVICE_PROTECTED"),
    ("getty@tty1", "SERVICE_PROTECTED"),
];

#[test]
fn a_refused_name_runs_nothing_and_sends_no_signal() {
    let name = "a_refused_name_runs_nothing_and_sends_no_signal";
    if !has_program("strace") {
        return skip(name, "there is no strace");
    }
    let env = TestEnv::as_me();
    if !can_pretend(name) {
        return;
    }
    let wrapper = pretend(&env, &runs(), "exit 0");
    let traced = |words: &[&str]| {
        let log = env.fresh("trace");
        let calls = "trace=execve,execveat,kill,tkill,tgkill,pidfd_send_signal";
        let strace = ["strace", "-f", "-qq", "-e", "signal=none", "-e", calls, "-o"];
        let log_word = log.display().to_string();
        let strace = strace.iter().copied().chain([log_word.as_str()]).map(str::to_owned);
        let wrapper: Vec<String> = wrapper.iter().cloned().chain(strace).collect();
        let done = service(&env, &wrapper, words).finish();
        let text = fs::read_to_string(&log).unwrap_or_default();
        (done, text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let (done, trace) = traced(&["status", "web"]);
    if done.code() != Some(0) && trace.is_empty() {
        return skip(name, &format!("strace can't trace here: {}", done.stderr));
    }
    assert!(trace.iter().any(|line| line.contains("/bin/systemctl\"")), "it is seen if it runs: {trace:#?}");
    let before = calls(&env);
    for (text, code) in REFUSED {
        for verb in ["start", "stop", "restart", "status"] {
            let (done, trace) = traced(&[verb, "--", text]);
            fails(&done, 4, code);
            assert_eq!(trace.len(), 1, "{verb} {text:?}: more than quell itself: {trace:#?}");
        }
    }
    assert_eq!(calls(&env), before);
    let audit = fs::read_to_string(env.home().join("audit.jsonl")).expect("the audit log");
    let refusals = audit.lines().filter(|line| line.contains("\"allowed\":false")).count();
    assert_eq!(refusals, REFUSED.len() * 4, "each is written down");
}

#[test]
fn without_a_policy_that_allows_it_nothing_is_run() {
    if !can_pretend("without_a_policy_that_allows_it_nothing_is_run") {
        return;
    }
    let env = TestEnv::as_me();
    let wrapper = pretend(&env, &runs(), "exit 0");
    for (text, code) in [
        ("", "SERVICE_NOT_ALLOWED"),
        ("[guard.service]\nallow = [\"db\"]\n", "SERVICE_NOT_ALLOWED"),
        ("[guard.service]\nallow = [\"w*\"]\nprotect = [\"web.service\"]\n", "SERVICE_PROTECTED_BY_POLICY"),
        ("[guard.service]\nallow = [\"web\"]\nverbs = [\"status\"]\n", "SERVICE_VERB_NOT_ALLOWED"),
        ("[guard]\ndeny = [\"service stop\"]\n[guard.service]\nallow = [\"web\"]\n", "VERB_DENIED"),
        ("[guard]\nmax_effect = \"write\"\n[guard.service]\nallow = [\"web\"]\n", "EFFECT_DENIED"),
    ] {
        let file = env.write("other.toml", text);
        let quell = env.quell("service").env("QUELL_CONFIG", file).wrapped(&wrapper);
        fails(&quell.args(["--json", "stop", "web"]).finish(), 4, code);
    }
    assert_eq!(calls(&env), Vec::<String>::new());
}

#[test]
fn without_systemd_that_is_what_is_said() {
    if !can_pretend("without_systemd_that_is_what_is_said") {
        return;
    }
    let env = TestEnv::as_me();
    let nowhere = instead(Path::new("/dev/null"));
    for words in [&["status", "web"][..], &["stop", "web", "--user"]] {
        let message = fails(&service(&env, &nowhere, words).finish(), 125, "no_systemd");
        assert!(message.contains("neither /usr/bin/systemctl nor"), "{message}");
    }
    for said in [
        "System has not been booted with systemd as init system (PID 1). Can't operate.",
        "Failed to connect to bus: Host is down",
        "Failed to connect to system scope bus via local transport: No such file or directory",
    ] {
        let wrapper = pretend(&env, &format!("echo \"{said}\" >&2; exit 1"), "exit 0");
        let message = fails(&service(&env, &wrapper, &["start", "web"]).finish(), 125, "no_systemd");
        assert!(message.contains(said), "{message}");
    }
    // In a chroot it does nothing and calls that a success.
    let wrapper = pretend(&env, "echo \"Running in chroot, ignoring command 'show'\" >&2; exit 0", "exit 0");
    fails(&service(&env, &wrapper, &["start", "web"]).finish(), 125, "no_systemd");
    let real = service(&env, &[], &["status", "web", "--user"]);
    let real = real.env("XDG_RUNTIME_DIR", env.path("nowhere")).env("DBUS_SESSION_BUS_ADDRESS", "");
    fails(&real.finish(), 125, "no_systemd");
}

#[test]
fn systemctl_gets_its_words_and_nothing_of_the_callers_settings() {
    if !can_pretend("systemctl_gets_its_words_and_nothing_of_the_callers_settings") {
        return;
    }
    let env = TestEnv::as_me();
    let wrapper = pretend(&env, &runs(), "/usr/bin/env >&2; exit 0");
    let quell = service(&env, &wrapper, &["restart", "web", "--user"]);
    let quell =
        quell.env("SYSTEMD_OFFLINE", "1").env("LD_DEBUG_OUTPUT", "x").env("XDG_RUNTIME_DIR", "/run/x");
    let done = quell.finish();
    let answer = done.envelope()["data"].clone();
    let stderr = answer["stderr"].as_str().expect("what it wrote");
    assert!(!stderr.contains("SYSTEMD_OFFLINE") && !stderr.contains("LD_DEBUG_OUTPUT"), "{stderr}");
    for kept in ["XDG_RUNTIME_DIR=/run/x", "LC_ALL=C", "SYSTEMD_COLORS=0"] {
        assert!(stderr.lines().any(|line| line == kept), "no {kept} in {stderr}");
    }
    let calls = calls(&env);
    assert_eq!(calls[1], "--user --no-ask-password --no-pager --full restart -- web.service", "{calls:#?}");
    assert!(calls.iter().all(|call| call.ends_with(" -- web.service")), "{calls:#?}");
}

#[test]
fn a_systemctl_that_floods_or_hangs_or_lies_is_borne() {
    if !can_pretend("a_systemctl_that_floods_or_hangs_or_lies_is_borne") {
        return;
    }
    let env = TestEnv::as_me();
    let flood = "/usr/bin/head -c 1000000 /dev/zero; /usr/bin/head -c 100 /dev/zero >&2; exit 0";
    let wrapper = pretend(&env, &runs(), flood);
    let answer = service(&env, &wrapper, &["start", "web"]).finish().envelope()["data"].clone();
    assert_eq!(answer["stdout"].as_str().map(str::len), Some(64 * 1024));
    assert_eq!((&answer["stdout_cut"], &answer["stderr_cut"]), (&(1_000_000 - 65_536).into(), &0.into()));

    // What it leaves behind holds its pipes, and is not waited for.
    let wrapper = pretend(&env, &runs(), &format!("/bin/sleep {} & echo said; exit 0", env.oracle.nap()));
    let done = service(&env, &wrapper, &["start", "web"]).finish();
    assert_eq!((done.code(), &done.envelope()["data"]["stdout"]), (Some(0), &"said\n".into()));

    let wrapper = pretend(&env, &runs(), "echo begun; exec /bin/sleep 60");
    let done = service(&env, &wrapper, &["start", "web", "--timeout", "3s"]).finish();
    let answer = done.envelope()["data"].clone();
    assert_eq!((done.code(), &answer["timed_out"]), (Some(6), &true.into()), "{answer:#}");
    assert_eq!((&answer["stdout"], &answer["returncode"]), (&"begun\n".into(), &serde_json::Value::Null));

    let wrapper = pretend(&env, &runs(), "exit 0");
    let answer = service(&env, &wrapper, &["stop", "web"]).finish();
    assert_eq!(answer.code(), Some(1), "it says that it stopped what is still active: {answer:?}");

    let wrapper = pretend(&env, "echo nonsense; exit 0", "exit 0");
    fails(&service(&env, &wrapper, &["stop", "web"]).finish(), 125, "systemctl");

    let denied = "echo 'Failed to stop web.service: Interactive authentication required.' >&2; exit 4";
    let wrapper = pretend(&env, &runs(), denied);
    let message = fails(&service(&env, &wrapper, &["stop", "web"]).finish(), 4, "not_permitted");
    assert!(message.contains("Interactive authentication required"), "{message}");
}

/// Neither the PATH nor the address of a bus can name a program that quell, or its systemctl, would run.
#[test]
fn no_variable_names_a_program_that_is_run_as_systemctl() {
    let env = TestEnv::as_me();
    fs::create_dir(env.path("bin")).expect("mkdir");
    let run = env.path("run");
    let script = format!("#!/bin/sh\necho run >>{}\n", run.display());
    env.script("bin/systemctl", &script);
    let bus = format!("unixexec:path={}", env.script("bus", &script).display());
    for words in [["status", "web"].as_slice(), &["status", "web", "--user"]] {
        let quell =
            service(&env, &[], words).env("PATH", format!("{}:/usr/bin:/bin", env.path("bin").display()));
        let quell = quell.env("DBUS_SESSION_BUS_ADDRESS", &bus).env("DBUS_SYSTEM_BUS_ADDRESS", &bus);
        let done = quell.env("XDG_RUNTIME_DIR", "").finish();
        assert_ne!(done.code(), Some(4), "{}", done.stdout);
        assert!(!run.exists(), "{words:?}: {}", fs::read_to_string(&run).unwrap_or_default());
    }
}
