//! `quell wrap` for people and programs: exit codes, records, names, the environment, the guard.

use std::{fs, os::unix::fs::MetadataExt};

use quell_tests::{
    all_hold,
    host::{Setting, User, am_root},
    run::PATIENCE,
    skip,
    systemd_user::SystemdUser,
    test_env::TestEnv,
};

use super::{Kind, cleaned, my_place, place, server, the_receipt, wrap};

#[test]
fn the_exit_code_is_the_servers() {
    for setting in Setting::all() {
        let env = place(setting);
        let actor = env.actor_path().display().to_string();
        let cases =
            [("exit-now", 0, 0), ("exit-now", 3, 3), ("exit-now", 122, 122), ("die-by-signal", 15, 143)];
        all_hold(2, &cases, |&(kind, given, wanted)| {
            let words = [&actor, kind, env.oracle.token(), &given.to_string()].map(str::to_owned);
            let done = wrap(&env, setting).command(words).finish();
            match (done.code(), &*done.stderr) {
                (Some(code), "") if code == wanted => Ok(()),
                other => Err(format!("{kind} {given} under {setting}: {other:?}")),
            }
        });
    }
    let env = my_place();
    let file = env.write("not-a-program", "text");
    for (program, wanted) in [("/no/such/server", 127), (file.to_str().expect("UTF-8"), 126)] {
        let done = env.quell("wrap").command([program]).finish();
        assert_eq!(done.code(), Some(wanted), "{}", done.stderr);
        assert!(done.stderr.starts_with("quell: "), "{}", done.stderr);
    }
    let done = env.quell("wrap").finish();
    assert_eq!(done.code(), Some(125), "{}", done.stderr);
    assert!(done.stderr.contains("no command was given"), "{}", done.stderr);
    assert_eq!(env.ids("jobs").len(), 0);
}

#[test]
fn a_server_is_on_record_with_its_client_and_its_session() {
    let env = my_place();
    let quell = env.quell("wrap").args(["--name", "files"]).env("QUELL_SESSION", "s1");
    let (running, client) = server(quell, Kind::Socket, 0);
    let listed = env.quell("list").args(["--json", "--tag", "kind=mcp", "--session", "s1"]).finish();
    let jobs = &listed.envelope()["data"]["jobs"];
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{}", listed.stdout);
    assert_eq!((&jobs[0]["name"], &jobs[0]["session"]), (&"files".into(), &"s1".into()), "{jobs}");
    // The client is this process.
    let own = fs::read_to_string("/proc/self/comm").expect("comm");
    assert_eq!(jobs[0]["tags"]["client"], own.trim(), "{jobs}");
    drop(client);
    assert_eq!(running.finish().code(), Some(0));
    assert_eq!(the_receipt(&env)["job"]["tags"]["client"], own.trim());
}

#[test]
fn several_servers_may_have_one_name() {
    let env = my_place();
    let begin = || server(env.quell("wrap").args(["--name", "files"]), Kind::Pipe, 0);
    let ((first, one), (second, two)) = (begin(), begin());
    let ids = || {
        let listed = env.quell("list").args(["--json", "--tag", "kind=mcp"]).finish();
        let jobs = listed.envelope()["data"]["jobs"].as_array().cloned().unwrap_or_default();
        jobs.iter().filter(|job| job["name"] == "files").map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids().len(), 2);
    // The name stands for the first one.
    assert_eq!(env.quell("stop").args(["files"]).finish().code(), Some(0));
    assert_eq!(first.finish().code(), Some(0));
    assert_eq!(env.ids("live").len(), 1);
    // A job of another kind does not get a name that is taken, and the next server does when it is free.
    let (third, three) = begin();
    let taken = env.run().args(["--name", "files"]).command(["true"]).finish();
    assert_eq!(taken.code(), Some(125), "{}", taken.stderr);
    drop((one, two, three));
    assert_eq!([second.finish().code(), third.finish().code()], [Some(0), Some(0)]);
    assert_eq!(env.leftovers_after(PATIENCE), Vec::<String>::new());
}

#[test]
fn a_server_without_a_record_leaves_none() {
    let env = my_place();
    let (running, client) =
        server(env.quell("wrap").args(["--no-record", "--eof-grace", "10ms"]), Kind::Pipe, 100);
    drop(client);
    assert_eq!((running.finish().code(), cleaned(&env)), (Some(0), true));
    assert!(!env.home().exists());
}

/// The words before quell that leave it these variables alone, as Codex does. The token shows the oracle what is the test's.
fn few_variables(env: &TestEnv) -> Vec<String> {
    let home = format!("HOME={}", env.dir().display());
    let token = format!("QT={}", env.oracle.token());
    let ready = "QUELL_TEST_READY";
    let keep = format!(r#"exec env -i PATH="$PATH" {ready}="${ready}" "$0" "$1" "${{@:2}}""#);
    ["bash", "-c", &keep, &home, &token].map(str::to_owned).into()
}

#[test]
fn with_few_variables_the_home_and_the_containment_are_those_of_a_shell() {
    for user in User::all() {
        let env = TestEnv::in_own_cgroup(user);
        let quell = env.quell("wrap").wrapped(few_variables(&env));
        let (running, client) = server(quell, Kind::Pipe, 0);
        // As in a shell, where QUELL_HOME is not set.
        let shell = |verb: &str| env.quell(verb).wrapped(["env", "-u", "QUELL_HOME"]);
        let listed = shell("list").args(["--json", "--tag", "kind=mcp"]).finish();
        let jobs = &listed.envelope()["data"]["jobs"];
        assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{user:?}: {}", listed.stdout);
        let plain = shell("run").args(["--json"]).command(["true"]).finish();
        let held = &plain.envelope()["data"]["held"]["containment"];
        assert_eq!(&jobs[0]["held"], held, "{user:?}: {jobs}");
        drop(client);
        assert_eq!(running.finish().code(), Some(0));
    }
}

#[test]
fn without_a_runtime_directory_the_users_systemd_manager_is_found() {
    let test = "without_a_runtime_directory_the_users_systemd_manager_is_found";
    if !am_root() {
        return skip(test, "only root can put a directory at /run/user");
    }
    let manager = match SystemdUser::start() {
        Ok(manager) => manager,
        Err(why) => return skip(test, &why),
    };
    let env = TestEnv::beside(&manager);
    let variables = env.session_variables();
    let runtime = variables.iter().find(|(name, _)| name == "XDG_RUNTIME_DIR").expect("a runtime directory");
    let uid = fs::metadata(&runtime.1).expect("it exists").uid();
    // In a mount namespace of its own the runtime directory is where systemd puts it.
    let there = format!("/run/user/{uid}");
    let mounts = format!(
        r#"mount -t tmpfs none /run && mkdir -p {there} && mount --bind "$0" {there} && exec env -u XDG_RUNTIME_DIR -u DBUS_SESSION_BUS_ADDRESS "$@""#
    );
    let words = ["unshare", "--mount", "sh", "-c", &mounts, &runtime.1];
    let (running, client) = server(env.quell("wrap").wrapped(words), Kind::Pipe, 0);
    drop(client);
    assert_eq!(running.finish().code(), Some(0));
    assert_eq!(the_receipt(&env)["held"]["containment"], "scope");
}

#[test]
fn the_guard_decides_about_a_wrap_and_a_wrap_is_also_a_run() {
    let env = my_place();
    let config = env.write("config.toml", "");
    let wrap = || env.quell("wrap").env("QUELL_CONFIG", &config).sh("touch ran");
    for denied in ["wrap", "run"] {
        fs::write(&config, format!("[guard]\ndeny = [\"{denied}\"]\n")).expect("a policy");
        for options in [&[][..], &["--no-record"]] {
            let done = wrap().args(options).finish();
            assert_eq!(done.code(), Some(125), "{denied}: {}", done.stderr);
            assert!(done.stderr.contains("guard.deny"), "{denied}: {}", done.stderr);
        }
    }
    assert!(!env.path("ran").exists());
    fs::write(&config, "").expect("a policy");
    assert_eq!(wrap().finish().code(), Some(0));
    let log = fs::read_to_string(env.home().join("audit.jsonl")).expect("an audit log");
    let id = env.ids("jobs").pop().expect("a record");
    let line = log.lines().last().expect("a line");
    assert!(line.contains(r#""verb":"wrap""#) && line.contains(&id), "{line}");
}
