//! Which files may set hooks.

use std::os::unix::fs::symlink;
use std::time::Duration;

use quell::{Hook, HookAction, HookEvent};

use crate::{ConfigDirs, shown};

const PROJECT: &str = "[stop]\ngrace = \"1s\"\n[gc]\nmax_count = 0\n[[hooks]]\non = [\"killed\"]\nrun = [\"./tell\", \"./x\"]\n";

#[test]
fn an_untrusted_projects_hooks_and_gc_are_ignored_with_a_warning() {
    let dirs = ConfigDirs::new();
    let file = dirs.project(PROJECT);
    let loaded = dirs.load(&[]).unwrap();
    assert_eq!(loaded.config.stop.grace, Duration::from_secs(1), "the rest counts");
    assert!(loaded.config.hooks.is_empty());
    assert_eq!(loaded.config.gc.max_count, None);
    assert_eq!(shown(&loaded, "gc.max_count"), ("none".into(), "default".into()));
    assert!(!loaded.files[0].trusted);
    let begins = |warning: &str, line: usize, what: &str| {
        warning.starts_with(&format!("{}:{line}: {what} is ignored", file.display()))
    };
    assert_eq!(loaded.warnings.len(), 2);
    assert!(begins(&loaded.warnings[0], 4, "gc.max_count"), "{:?}", loaded.warnings);
    assert!(begins(&loaded.warnings[1], 5, "a hook"), "{:?}", loaded.warnings);
    assert!(loaded.warnings[1].contains(&format!("add {:?} to [trust] projects", dirs.path("project"))));
}

#[test]
fn hooks_of_the_user_and_of_a_trusted_project_add_up() {
    let dirs = ConfigDirs::new();
    let project = dirs.project(PROJECT);
    let hook =
        "[[hooks]]\non = [\"lost\", \"ended\", \"lost\"]\nappend = \"~/all.ndjson\"\ntimeout = \"3s\"\n";
    let user = dirs.user(&format!("{hook}[trust]\nprojects = [\"{}\"]\n", dirs.path("project").display()));
    let loaded = dirs.load(&[]).unwrap();
    let program = dirs.path("project/tell").to_str().unwrap().to_owned();
    assert_eq!(
        loaded.config.hooks,
        [
            Hook {
                on: vec![HookEvent::Ended, HookEvent::Lost],
                action: HookAction::Append(dirs.path("all.ndjson")),
                timeout: Duration::from_secs(3),
            },
            Hook {
                on: vec![HookEvent::Killed],
                action: HookAction::Run(vec![program.clone(), "./x".into()]),
                timeout: Duration::from_secs(10),
            },
        ]
    );
    assert_eq!(loaded.config.gc.max_count, Some(0));
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert!(loaded.files[1].trusted);
    assert_eq!(shown(&loaded, "hooks[1]").1, format!("{}:1", user.display()));
    let second = (format!("killed: run {program} ./x"), format!("{}:5", project.display()));
    assert_eq!(shown(&loaded, "hooks[2]"), second);
    assert_eq!(shown(&loaded, "trust.projects").1, format!("{}:6", user.display()));
    assert_eq!(loaded.values.last().unwrap().key, "trust.projects");
}

#[test]
fn a_hooks_relative_paths_are_meant_from_its_files_directory() {
    let dirs = ConfigDirs::new();
    dirs.user(
        "[[hooks]]\non = [\"ended\"]\nappend = \"log/a\"\n[[hooks]]\non = [\"ended\"]\nrun = [\"tell\"]\n\
         [[hooks]]\non = [\"ended\"]\nrun = [\"~/bin/tell\"]\n[[hooks]]\non = [\"ended\"]\nappend = \"/abs\"\n",
    );
    let actions: Vec<HookAction> =
        dirs.load(&[]).unwrap().config.hooks.into_iter().map(|hook| hook.action).collect();
    let home = dirs.path("bin/tell").to_str().unwrap().to_owned();
    assert_eq!(
        actions,
        [
            HookAction::Append(dirs.path(".config/quell/log/a")),
            HookAction::Run(vec!["tell".into()]),
            HookAction::Run(vec![home]),
            HookAction::Append("/abs".into()),
        ]
    );
}

#[test]
fn trust_is_for_a_directory_and_neither_for_those_below_nor_beside() {
    let dirs = ConfigDirs::new();
    dirs.project(PROJECT);
    dirs.write("project/sub/quell.toml", PROJECT);
    symlink(dirs.path("project"), dirs.path("link")).unwrap();
    let hooks = |cwd: &str| dirs.load_in(&dirs.path(cwd), &[]).unwrap().config.hooks.len();
    for (projects, here, below) in [
        ("\"~/project\"", 1, 0),
        ("\"~/project/\"", 1, 0),
        ("\"~/link\"", 1, 0),
        ("\"~/project/sub\"", 0, 1),
        ("\"~\"", 0, 0),
        ("\"/\", \"/nowhere\"", 0, 0),
        ("", 0, 0),
    ] {
        dirs.user(&format!("[trust]\nprojects = [{projects}]\n"));
        assert_eq!((hooks("project"), hooks("project/sub")), (here, below), "{projects}");
    }
}

#[test]
fn a_project_can_not_trust_itself() {
    let dirs = ConfigDirs::new();
    let file = dirs.project("\n[trust]\nprojects = [\"/\"]\n");
    let error = dirs.load(&[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}:2: [trust] in a project: it can't trust itself", file.display())
    );
    assert!(error.suggestion().unwrap().contains("your own file"), "{error:?}");
}

#[test]
fn trust_is_written_as_absolute_paths() {
    let dirs = ConfigDirs::new();
    for (text, message) in [
        ("projects = [\"src/web\"]", "trust.projects: `src/web` is not an absolute path"),
        ("projects = \"/srv\"", "trust.projects: must be a list of strings, not string \"/srv\""),
        ("project = [\"/srv\"]", "unknown key `project` in [trust]"),
    ] {
        let file = dirs.user(&format!("[trust]\n{text}\n"));
        let error = dirs.load(&[]).unwrap_err();
        assert_eq!(error.to_string(), format!("{}:2: {message}", file.display()));
    }
}
