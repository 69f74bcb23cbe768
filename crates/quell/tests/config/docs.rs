//! `docs/config.md` agrees with the code.

use quell::HookAction;
use quell::binary::Config;
use quell::binary::config::SettingOrigin;

use crate::ConfigDirs;

const PAGE: &str = include_str!("../../../../docs/config.md");

/// The examples of the page.
fn examples() -> Vec<&'static str> {
    PAGE.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_example_has_every_setting_at_its_default() {
    let dirs = ConfigDirs::new();
    let defaults = dirs.load(&[]).unwrap();
    dirs.user(examples()[0]);
    let loaded = dirs.load(&[]).unwrap();
    assert_eq!(loaded.config, Config::default());
    for (shown, default) in loaded.values.iter().zip(&defaults.values) {
        assert_eq!((&shown.key, &shown.value), (&default.key, &default.value));
        let in_file = matches!(shown.source, SettingOrigin::User { .. });
        assert!(in_file || shown.key == "trust.projects", "{} is not in the example", shown.key);
    }
}

#[test]
fn the_example_of_hooks_loads() {
    let dirs = ConfigDirs::new();
    dirs.user(examples()[1]);
    let config = dirs.load(&[]).unwrap().config;
    assert_eq!(config.hooks[0].action, HookAction::Append(dirs.path("jobs.ndjson")));
    assert_eq!((config.hooks[0].timeout.as_secs(), config.hooks[1].timeout.as_secs()), (10, 3));
    assert_eq!(config.trusted, [std::path::PathBuf::from("/srv/web"), dirs.path("src/api")]);
}

#[test]
fn the_table_has_every_setting_with_its_variable_and_default() {
    let dirs = ConfigDirs::new();
    for sourced in dirs.load(&[]).unwrap().values.iter().filter(|sourced| sourced.key != "trust.projects") {
        let variable = format!("QUELL_{}", sourced.key.replace('.', "_").to_uppercase());
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` | `{variable}`", sourced.key)));
        let row = row.unwrap_or_else(|| panic!("no row for {}", sourced.key));
        let default =
            if sourced.value.is_empty() { "| none |".into() } else { format!("| `{}` |", sourced.value) };
        assert!(row.ends_with(&default), "{row}");
    }
}
