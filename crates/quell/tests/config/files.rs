//! Which files are read, and which owners are accepted.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use quell::Error;
use quell::binary::{Config, Loaded};

use crate::ConfigDirs;

const STRANGER: u32 = 65_533;

fn grace(loaded: Result<Loaded, Error>) -> u64 {
    loaded.unwrap().config.stop.grace.as_secs()
}

fn refusal(loaded: Result<Loaded, Error>) -> (String, String) {
    let error = loaded.unwrap_err();
    assert!(matches!(error, Error::Config { line: 0, .. }), "{error:?}");
    assert_eq!(error.code(), "bad_config");
    (error.to_string(), error.suggestion().unwrap().to_owned())
}

/// Only root can give files away.
fn am_root(dirs: &ConfigDirs) -> bool {
    let root = fs::metadata(&dirs.dir).unwrap().uid() == 0;
    if !root {
        eprintln!("SKIPPED: only root can make a file of another user's");
    }
    root
}

#[test]
fn the_nearest_project_file_upwards_is_the_one() {
    let dirs = ConfigDirs::new();
    let sub = dirs.path("project/sub/dir");
    dirs.project("[stop]\ngrace = \"1s\"\nsignal = \"INT\"\n");
    assert_eq!(grace(dirs.load_in(&sub, &[])), 1);
    dirs.write("project/sub/quell.toml", "[stop]\ngrace = \"2s\"\n");
    let loaded = dirs.load_in(&sub, &[]).unwrap();
    assert_eq!(loaded.config.stop.grace, Duration::from_secs(2));
    assert_eq!(loaded.config.stop.signal, Config::default().stop.signal, "the farther one counts too");
    assert_eq!(grace(dirs.load_in(&sub.join(".."), &[])), 2);
    assert_eq!(grace(dirs.load(&[])), 1);
}

#[test]
fn a_directory_that_is_gone_has_no_project() {
    let dirs = ConfigDirs::new();
    assert_eq!(dirs.load_in(&dirs.path("gone"), &[]).unwrap().config, Config::default());
    assert_eq!(dirs.load_in(Path::new(""), &[]).unwrap().config, Config::default());
}

#[test]
fn the_users_file_is_where_the_environment_says() {
    let dirs = ConfigDirs::new();
    dirs.user("[stop]\ngrace = \"1s\"\n");
    let xdg = dirs.write("xdg/quell/config.toml", "[stop]\ngrace = \"2s\"\n");
    let own = dirs.write("project/own.toml", "[stop]\ngrace = \"3s\"\n");
    let xdg = xdg.parent().and_then(Path::parent).unwrap().to_str().unwrap();
    assert_eq!(grace(dirs.load(&[])), 1);
    assert_eq!(grace(dirs.load(&[("XDG_CONFIG_HOME", xdg)])), 2);
    assert_eq!(grace(dirs.load(&[("XDG_CONFIG_HOME", "relative")])), 1);
    let named = ("QUELL_CONFIG", own.to_str().unwrap());
    assert_eq!(grace(dirs.load(&[("XDG_CONFIG_HOME", xdg), named])), 3);
    assert_eq!(grace(dirs.load(&[("QUELL_CONFIG", "own.toml")])), 3);
    assert_eq!(grace(dirs.load(&[("QUELL_CONFIG", "/dev/null")])), 5);
}

#[test]
fn a_named_file_must_be_there() {
    let dirs = ConfigDirs::new();
    let error = dirs.load(&[("QUELL_CONFIG", "nowhere.toml")]).unwrap_err();
    assert_eq!(error.code(), "bad_value");
    assert!(error.to_string().ends_with("nowhere.toml does not exist"), "{error}");
    assert!(error.suggestion().unwrap().contains("/dev/null"), "{error:?}");
}

#[test]
fn one_file_that_is_both_counts_once() {
    let dirs = ConfigDirs::new();
    let file = dirs.project("[[hooks]]\non = [\"ended\"]\nappend = \"x\"\n");
    let loaded = dirs.load(&[("QUELL_CONFIG", file.to_str().unwrap())]).unwrap();
    assert_eq!((loaded.config.hooks.len(), loaded.files.len(), loaded.warnings.len()), (1, 1, 0));
}

#[test]
fn a_file_that_everybody_can_write_is_refused() {
    let dirs = ConfigDirs::new();
    for file in [dirs.user(""), dirs.project("")] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        let (message, hint) = refusal(dirs.load(&[]));
        assert_eq!(message, format!("{}: every user can write it", file.display()));
        assert_eq!(hint, format!("chmod o-w {}", file.display()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        dirs.load(&[]).unwrap();
    }
}

#[test]
fn a_strangers_file_is_refused() {
    let dirs = ConfigDirs::new();
    if !am_root(&dirs) {
        return;
    }
    let file = dirs.project("[stop]\ngrace = \"1s\"\n");
    chown(&file, Some(STRANGER), None).unwrap();
    let (message, hint) = refusal(dirs.load_in(&dirs.path("project/sub"), &[]));
    assert!(message.contains("belongs to another user (uid 65533)"), "{message}");
    assert!(hint.starts_with(&format!("chown 0 {}; or add ", file.display())), "{hint}");

    // The remedies that the hint names.
    dirs.write("project/sub/quell.toml", "");
    assert_eq!(grace(dirs.load_in(&dirs.path("project/sub"), &[])), 5);
    dirs.user("[trust]\nprojects = [\"~/project\"]\n");
    assert_eq!(grace(dirs.load(&[])), 1);

    let user = dirs.user("");
    chown(&user, Some(STRANGER), None).unwrap();
    let (_, hint) = refusal(dirs.load(&[]));
    assert_eq!(hint, format!("chown 0 {}", user.display()));
}

#[test]
fn a_strangers_link_to_our_file_is_refused() {
    let dirs = ConfigDirs::new();
    if !am_root(&dirs) {
        return;
    }
    let ours = dirs.write("ours.toml", "[stop]\ngrace = \"1s\"\n");
    let link = dirs.path("project/quell.toml");
    symlink(ours, &link).unwrap();
    assert_eq!(grace(dirs.load(&[])), 1);
    std::os::unix::fs::lchown(&link, Some(STRANGER), None).unwrap();
    assert!(refusal(dirs.load(&[])).0.contains("belongs to another user"));
}

#[test]
fn the_search_ends_at_a_strangers_directory() {
    let dirs = ConfigDirs::new();
    if !am_root(&dirs) {
        return;
    }
    dirs.project("[stop]\ngrace = \"1s\"\n");
    let (sub, dir) = (dirs.path("project/sub"), dirs.path("project/sub/dir"));
    assert_eq!(grace(dirs.load_in(&dir, &[])), 1);
    chown(&sub, Some(STRANGER), None).unwrap();
    assert_eq!(grace(dirs.load_in(&dir, &[])), 5);
    dirs.user("[trust]\nprojects = [\"~/project\"]\n");
    assert_eq!(grace(dirs.load_in(&dir, &[])), 1);
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let dirs = ConfigDirs::new();
    let path = dirs.path("project/quell.toml");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert!(refusal(dirs.load(&[])).0.ends_with("is not a regular file"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(refusal(dirs.load(&[])).0.ends_with("is not a regular file"));
    fs::remove_dir(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    assert!(refusal(dirs.load(&[])).0.contains("can't be read: "));
}

#[test]
fn a_huge_file_is_refused() {
    let dirs = ConfigDirs::new();
    dirs.project(&"#".repeat((1 << 20) + 1));
    assert!(refusal(dirs.load(&[])).0.ends_with("is larger than 1 MiB"));
    dirs.project(&"#".repeat(1 << 20));
    dirs.load(&[]).unwrap();
}

#[test]
fn a_path_that_is_no_utf8_is_told_all_the_same() {
    let dirs = ConfigDirs::new();
    let dir = dirs.dir.join(std::ffi::OsString::from_vec(b"caf\xe9".to_vec()));
    fs::create_dir(&dir).unwrap();
    fs::rename(dirs.write("made.toml", "[stop]\ngrace = \"1s\"\n"), dir.join("quell.toml")).unwrap();
    let loaded = dirs.load_in(&dir, &[]).unwrap();
    assert!(serde_json::to_string(&loaded.values).unwrap().contains("caf\u{fffd}/quell.toml"));
    assert!(serde_json::to_string(&loaded.files).unwrap().contains("caf\u{fffd}/quell.toml"));
    fs::write(dir.join("quell.toml"), "nonsense").unwrap();
    let details = dirs.load_in(&dir, &[]).unwrap_err().details();
    assert!(details["file"].as_str().unwrap().contains("caf\u{fffd}"), "{details:?}");
}
