//! Which layer wins.

use std::time::Duration;

use quell::binary::Config;
use quell::binary::config::{Layer, SettingOrigin};
use quell::{Contain, RestartPolicy, Signal};

use crate::{ConfigDirs, shown};

#[test]
fn without_files_and_variables_everything_is_the_default() {
    let dirs = ConfigDirs::new();
    let loaded = dirs.load(&[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert!(loaded.values.iter().all(|sourced| sourced.source == SettingOrigin::Default));
    assert_eq!(loaded.values.len(), 27);
    assert!(loaded.files.is_empty() && loaded.warnings.is_empty());
    assert_eq!(shown(&loaded, "gc.max_age"), ("30d".into(), "default".into()));
}

#[test]
fn each_layer_goes_over_the_one_below() {
    let dirs = ConfigDirs::new();
    let grace = |loaded: &quell::binary::Loaded| loaded.config.stop.grace.as_secs();
    let user = dirs.user("# mine\n[stop]\ngrace = \"1s\"\nsignal = \"INT\"\n");
    let loaded = dirs.load(&[]).unwrap();
    assert_eq!((grace(&loaded), loaded.config.stop.signal), (1, Signal::INT));
    assert_eq!(shown(&loaded, "stop.grace"), ("1s".into(), format!("{}:3", user.display())));

    let project = dirs.project("[stop]\ngrace = \"2s\"\n");
    let loaded = dirs.load(&[]).unwrap();
    assert_eq!((grace(&loaded), loaded.config.stop.signal), (2, Signal::INT));
    assert_eq!(shown(&loaded, "stop.grace"), ("2s".into(), format!("{}:2", project.display())));
    let files: Vec<_> = loaded.files.iter().map(|file| (file.layer, file.path.clone())).collect();
    assert_eq!(files, [(Layer::User, user), (Layer::Project, project)]);

    let mut loaded = dirs.load(&[("QUELL_STOP_GRACE", "3s")]).unwrap();
    assert_eq!(grace(&loaded), 3);
    assert_eq!(shown(&loaded, "stop.grace"), ("3s".into(), "QUELL_STOP_GRACE".into()));

    loaded.set_flag("stop.grace", "4s").unwrap();
    assert_eq!(grace(&loaded), 4);
    assert_eq!(shown(&loaded, "stop.grace"), ("4s".into(), "flag".into()));
    assert!(loaded.set_flag("stop.grace", "soon").is_err() && loaded.set_flag("stop.x", "1").is_err());
    assert_eq!(grace(&loaded), 4);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let dirs = ConfigDirs::new();
    let empty = [
        ("QUELL_STOP_GRACE", ""),
        ("QUELL_STOP_NONSENSE", ""),
        ("QUELL_CONFIG", ""),
        ("XDG_CONFIG_HOME", ""),
    ];
    dirs.user("[stop]\ngrace = \"1s\"\n");
    assert_eq!(dirs.load(&empty).unwrap().config.stop.grace, Duration::from_secs(1));
}

#[test]
fn every_setting_has_a_variable_that_sets_it() {
    let dirs = ConfigDirs::new();
    let given = [
        ("stop.grace", "1s"),
        ("stop.signal", "INT"),
        ("stop.verify", "2s"),
        ("stop.ask", "root"),
        ("start.max_log", "1M"),
        ("start.contain", "reaper"),
        ("start.until", "tree"),
        ("start.wait_ready", "3s"),
        ("start.restart", "on-failure"),
        ("start.restart_limit", "none"),
        ("start.restart_delay", "4s"),
        ("start.restart_max_delay", "5s"),
        ("start.on_owner_exit", "keep"),
        ("start.mask", "A,B"),
        ("gc.auto", "no"),
        ("gc.max_age", "none"),
        ("gc.max_count", "6"),
        ("gc.max_size", "none"),
        ("ready.interval", "7ms"),
        ("ready.timeout", "8ms"),
    ];
    let names: Vec<String> =
        given.iter().map(|(key, _)| format!("QUELL_{}", key.replace('.', "_").to_uppercase())).collect();
    let variables: Vec<(&str, &str)> =
        names.iter().zip(given).map(|(name, (_, value))| (name.as_str(), value)).collect();
    let loaded = dirs.load(&variables).unwrap();
    for ((key, value), name) in given.iter().zip(&names) {
        assert_eq!(shown(&loaded, key), (value.to_string(), name.clone()));
    }
    let config = loaded.config;
    assert_eq!(
        (config.start.contain, config.start.restart.policy),
        (Contain::Reaper, RestartPolicy::OnFailure)
    );
    assert_eq!((config.start.restart.limit, config.start.max_log), (None, 1 << 20));
    assert_eq!(
        (config.gc.auto, config.gc.max_age, config.gc.max_count, config.gc.max_size),
        (false, None, Some(6), None)
    );
    assert_eq!(config.ready.timeout, Duration::from_millis(8));
    assert_ne!(config.start.until, Config::default().start.until);
    assert_ne!(config.start.on_owner_exit, Config::default().start.on_owner_exit);
}

#[test]
fn quells_other_variables_are_no_settings() {
    let dirs = ConfigDirs::new();
    let others =
        ["QUELL_HOME", "QUELL_JOB", "QUELL_MARK", "QUELL_SESSION", "QUELL_BIN", "QUELL_APPROVE_TESTS"];
    assert_eq!(dirs.load(&others.map(|name| (name, "x"))).unwrap().config, Config::default());
    // The page about the tests names theirs.
    let page = include_str!("../../../../tests/README.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `QUELL_")?.split('`').next());
    let names: Vec<String> = rows.map(|name| format!("QUELL_{name}")).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        assert_eq!(dirs.load(&[(name, "x")]).unwrap().config, Config::default(), "{name}");
    }
    dirs.user("[guard.test]\napproval_variable = \"QUELL_MAY_TEST\"\n");
    assert!(dirs.load(&[("QUELL_MAY_TEST", "1")]).is_ok());
    assert!(dirs.load(&[("QUELL_APPROVE_TESTS", "1")]).is_ok(), "it has no effect, and is not a mistake");
    assert!(dirs.load(&[("QUELL_APPROVE_TEST", "1")]).is_err());
}

#[test]
fn what_approves_tests_is_said_by_the_file_that_requires_it_or_a_stronger_one() {
    let dirs = ConfigDirs::new();
    let trust = format!("[trust]\nprojects = [\"{}\"]\n", dirs.path("project").display());
    let variable = |user: &str, project: &str| {
        dirs.user(&format!("{trust}[guard.test]\n{user}\n"));
        dirs.project(&format!("[guard.test]\n{project}\n"));
        let loaded = dirs.load(&[]).unwrap();
        (loaded.config.guard.test.approval_variable, loaded.warnings.len())
    };
    let (required, mine) = ("approval = true", "approval_variable = \"MINE\"");
    assert_eq!(variable(required, mine), ("QUELL_APPROVE_TESTS".into(), 1));
    assert_eq!(variable(required, &format!("{required}\n{mine}")), ("QUELL_APPROVE_TESTS".into(), 1));
    assert_eq!(variable(&format!("{mine}\n{required}"), ""), ("MINE".into(), 0));
    assert_eq!(variable("", &format!("{required}\n{mine}")), ("MINE".into(), 0));
    assert_eq!(variable("approval = false", &format!("{required}\n{mine}")), ("MINE".into(), 0));
    assert_eq!(variable(mine, required), ("MINE".into(), 0));
}

#[test]
fn masks_of_all_layers_add_up() {
    let dirs = ConfigDirs::new();
    dirs.user("[start]\nmask = [\"TOKEN\", \"KEY\"]\n");
    dirs.project("[start]\nmask = []\n");
    assert_eq!(dirs.load(&[]).unwrap().config.start.mask, ["TOKEN", "KEY"]);
    let loaded = dirs.load(&[("QUELL_START_MASK", "KEY, MORE")]).unwrap();
    assert_eq!(loaded.config.start.mask, ["TOKEN", "KEY", "MORE"]);
    assert_eq!(shown(&loaded, "start.mask"), ("TOKEN,KEY,MORE".into(), "QUELL_START_MASK".into()));
}

#[test]
fn a_file_may_be_written_in_any_way_that_toml_has() {
    let dirs = ConfigDirs::new();
    dirs.user("\u{feff}stop.grace = '1s'\r\nready = { interval = \"9ms\" }\r\n[gc]\r\nmax_count = 1_000\r\n");
    let config = dirs.load(&[]).unwrap().config;
    assert_eq!(config.stop.grace, Duration::from_secs(1));
    assert_eq!((config.ready.interval, config.gc.max_count), (Duration::from_millis(9), Some(1000)));
}

#[test]
fn a_source_is_data_for_programs() {
    let dirs = ConfigDirs::new();
    let user = dirs.user("[stop]\ngrace = \"1s\"\n");
    let loaded = dirs.load(&[("QUELL_STOP_VERIFY", "1s")]).unwrap();
    let values = serde_json::to_value(&loaded.values).unwrap();
    let source = serde_json::json!({ "kind": "user", "file": user, "line": 2 });
    assert_eq!(values[0], serde_json::json!({ "key": "stop.grace", "value": 1.0, "source": source }));
    assert_eq!(values[1]["source"], serde_json::json!({ "kind": "default" }));
    assert_eq!(values[2]["source"], serde_json::json!({ "kind": "env", "name": "QUELL_STOP_VERIFY" }));
}
