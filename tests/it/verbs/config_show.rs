//! `quell config show`: every setting with its origin, and one clear line for what can't be used.

use std::{fs, os::unix::fs::chown};

use quell_tests::{
    host::{User, am_root},
    run::Quell,
    skip,
    test_env::TestEnv,
};

use crate::cli::bad_input::one_clear_line;

/// The verb in this environment, without what the tests' own environment may say about files.
fn show(env: &TestEnv) -> Quell<'_> {
    env.quell("config").args(["show"]).env("XDG_CONFIG_HOME", "").env("QUELL_CONFIG", "")
}

/// The words of a row of the table.
fn row<'t>(table: &'t str, key: &str) -> Vec<&'t str> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(key));
    row.unwrap_or_else(|| panic!("no {key} in {table}")).split_whitespace().collect()
}

fn user_file(env: &TestEnv, text: &str) {
    fs::create_dir_all(env.path(".config/quell")).expect("mkdir");
    env.write(".config/quell/config.toml", text);
}

#[test]
fn every_value_is_shown_with_its_origin() {
    for user in User::all() {
        let env = TestEnv::new(user);
        user_file(&env, "[stop]\ngrace = \"1s\"\nsignal = \"INT\"\n");
        env.write("quell.toml", "[stop]\nsignal = \"HUP\"\n");
        let done = show(&env).env("QUELL_GC_MAX_COUNT", "7").finish();
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        assert_eq!(row(&done.stdout, "stop.grace"), ["stop.grace", "1s", "~/.config/quell/config.toml:2"]);
        assert_eq!(row(&done.stdout, "stop.signal"), ["stop.signal", "HUP", "~/quell.toml:2"]);
        assert_eq!(row(&done.stdout, "gc.max_count"), ["gc.max_count", "7", "QUELL_GC_MAX_COUNT"]);
        assert_eq!(row(&done.stdout, "stop.verify"), ["stop.verify", "10s", "default"]);
        let project = format!("project file: {}", env.path("quell.toml").display());
        assert!(done.stdout.lines().any(|line| line == project), "{}", done.stdout);
    }
}

#[test]
fn the_table_fits_into_80_columns() {
    let env = TestEnv::as_me();
    let deep = format!("{}/{}", "d".repeat(60), "e".repeat(60));
    fs::create_dir_all(env.path(&deep)).expect("mkdir");
    let words = vec!["\"word\""; 40].join(", ");
    let text = format!("[stop]\ngrace = \"1s\"\n[[hooks]]\non = [\"ended\"]\nrun = [{words}]\n");
    let file = env.write(&format!("{deep}/own.toml"), &text);
    let done = show(&env).env("QUELL_CONFIG", &file).finish();
    let table: Vec<&str> = done.stdout.lines().take_while(|line| !line.is_empty()).collect();
    let widest = table.iter().map(|line| line.chars().count()).max();
    assert_eq!((table.len(), widest), (29, Some(80)), "{}", done.stdout);
    assert!(row(&done.stdout, "stop.grace")[2].ends_with("e/own.toml:2"), "{}", done.stdout);
    assert!(done.stdout.contains(&format!("user file: {}\n", file.display())), "{}", done.stdout);
}

#[test]
fn programs_get_values_files_and_warnings() {
    let env = TestEnv::as_me();
    let file =
        env.write("quell.toml", "[stop]\ngrace = \"2s\"\n[[hooks]]\non = [\"ended\"]\nappend = \"x\"\n");
    let envelope = show(&env).args(["--json"]).finish().envelope();
    assert_eq!((&envelope["ok"], &envelope["type"]), (&true.into(), &"config".into()), "{envelope}");
    let data = &envelope["data"];
    let source = serde_json::json!({ "kind": "project", "file": file, "line": 2 });
    let grace = serde_json::json!({ "key": "stop.grace", "value": 2.0, "source": source });
    assert_eq!(data["values"][0], grace);
    let files = serde_json::json!([{ "layer": "project", "path": file, "trusted": false }]);
    assert_eq!(data["files"], files);
    assert_eq!(data["warnings"].as_array().map(Vec::len), Some(1), "{envelope}");
}

#[test]
fn a_projects_hook_counts_only_where_the_user_trusts_it() {
    let env = TestEnv::as_me();
    env.write("quell.toml", "[[hooks]]\non = [\"ended\"]\nappend = \"x\"\n");
    let done = show(&env).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(!done.stdout.contains("hooks[1]"), "{}", done.stdout);
    let warning = format!("warning: {}:1: a hook is ignored", env.path("quell.toml").display());
    assert!(done.stdout.lines().any(|line| line.starts_with(&warning)), "{}", done.stdout);

    user_file(&env, "[trust]\nprojects = [\"~\"]\n");
    let done = show(&env).finish();
    assert_eq!(row(&done.stdout, "hooks[1]")[..3], ["hooks[1]", "ended:", "append"], "{}", done.stdout);
    assert!(!done.stdout.contains("warning"), "{}", done.stdout);
}

#[test]
fn what_can_not_be_used_is_one_clear_line() {
    let env = TestEnv::as_me();
    let file = env.write("quell.toml", "\n[stop]\ngrce = \"2s\"\n");
    let done = show(&env).finish();
    one_clear_line(&done, 2);
    let line = format!("quell: {}:3: unknown key `grce` in [stop] (did you mean `grace`?)\n", file.display());
    assert_eq!(done.stderr, line);
    let done = show(&env).args(["--json"]).finish();
    let error = &done.envelope()["error"];
    assert_eq!(
        (done.code(), &error["code"], &error["details"]["line"]),
        (Some(2), &"bad_config".into(), &3.into())
    );

    fs::remove_file(file).expect("rm");
    let done = show(&env).env("QUELL_STOP_GRACE", "soon").finish();
    one_clear_line(&done, 2);
    assert!(done.stderr.starts_with("quell: QUELL_STOP_GRACE: invalid duration `soon`"), "{}", done.stderr);
}

#[test]
fn a_duration_without_a_unit_is_in_seconds_and_shown_with_its_unit() {
    let env = TestEnv::as_me();
    env.write("quell.toml", "[stop]\nverify = \"20\"\n");
    let done = show(&env).env("QUELL_STOP_GRACE", "5").finish();
    for row in [["stop.grace", "5s"], ["stop.verify", "20s"], ["start.restart_limit", "10"]] {
        let shown = done.stdout.lines().any(|line| line.split_whitespace().take(2).eq(row));
        assert!(shown, "{row:?}: {}", done.stdout);
    }
}

#[test]
fn no_file_of_another_user_is_used() {
    if !am_root() {
        return skip("no_file_of_another_user_is_used", "only root can make such a file");
    }
    for user in User::all() {
        let env = TestEnv::new(user);
        let file = env.write("quell.toml", "[stop]\ngrace = \"2s\"\n");
        chown(&file, Some(65_533), None).expect("chown");
        let done = show(&env).finish();
        one_clear_line(&done, 2);
        assert!(done.stderr.contains("belongs to another user (uid 65533)"), "{}", done.stderr);
        chown(&file, Some(0), None).expect("chown");
        assert_eq!(row(&show(&env).finish().stdout, "stop.grace")[1], "2s", "root's counts for all users");
    }
}

#[test]
fn a_directory_that_is_gone_is_no_error() {
    let env = TestEnv::as_me();
    let leave = r#"mkdir gone && cd gone && rmdir ../gone && exec "$@""#;
    let done = show(&env).wrapped(["sh", "-c", leave, "sh"]).finish();
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.ends_with("no configuration file\n"), "{}", done.stdout);
}
