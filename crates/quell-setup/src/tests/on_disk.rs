//! Files on disk: what is written, restored and refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use quell_guard::{Guard, Permit, Policy, Verb};
use quell_store::Home;
use tempfile::TempDir;

use crate::manifest::Manifest;
use crate::program::OwnProgram;
use crate::{Agent, ConfigScope, Error, OtherServers, Places, Setup, SetupAnswer, SetupPlan, WrapState};

/// A user with a home, a project and a quell.
struct TestUser {
    dir: TempDir,
}

const SERVERS: &str = r#"{
  // my servers
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "files"], "env": {"KEY": "v"}}
  }
}
"#;

impl TestUser {
    fn new() -> Self {
        let user = Self { dir: tempfile::tempdir().expect("tempdir") };
        for dir in ["home", "project", "bin"] {
            fs::create_dir(user.path(dir)).expect("mkdir");
        }
        user.put_quell("bin/quell");
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("dir").join(name)
    }

    fn put_quell(&self, name: &str) {
        fs::write(self.path(name), name).expect("write");
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).expect("chmod");
    }

    fn home(&self) -> Home {
        Home::at(self.path("state"))
    }

    fn setup(&self) -> Setup {
        self.setup_by("bin/quell")
    }

    fn setup_by(&self, quell: &str) -> Setup {
        let program = OwnProgram::at(&self.path(quell), "".as_ref()).expect("program");
        Setup::with(self.home(), Places::new(&self.path("home"), &self.path("project")), program)
    }

    fn permit(&self, verb: Verb) -> Permit {
        Guard::new(&self.home(), Policy::default()).permit(verb, "test", None).expect("permit")
    }

    fn commit(&self, plan: Result<SetupPlan, Error>) -> Result<SetupAnswer, Error> {
        plan.and_then(|plan| plan.commit(&self.permit(Verb::Setup)))
    }

    fn add(&self, agent: Agent, others: OtherServers) -> Result<SetupAnswer, Error> {
        self.commit(self.setup().plan_add(agent, ConfigScope::User, others))
    }

    fn remove(&self, agent: Agent) -> Result<SetupAnswer, Error> {
        self.commit(self.setup().plan_remove(agent, ConfigScope::User))
    }

    /// Writes the user's file for Claude Code.
    fn claude(&self, text: &str) -> PathBuf {
        let path = self.path("home/.claude.json");
        fs::write(&path, text).expect("write");
        path
    }

    /// Everything below the user's home and project: names, modes and contents.
    fn files(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        fn walk(dir: &Path, into: &mut Vec<(PathBuf, u32, Vec<u8>)>) {
            for entry in fs::read_dir(dir).expect("dir") {
                let path = entry.expect("entry").path();
                let found = path.symlink_metadata().expect("metadata");
                if found.is_dir() {
                    walk(&path, into);
                }
                let bytes = if found.is_file() { fs::read(&path).expect("read") } else { Vec::new() };
                into.push((path, found.mode(), bytes));
            }
        }
        let mut all = Vec::new();
        for dir in ["home", "project"] {
            walk(&self.path(dir), &mut all);
        }
        all.sort();
        all
    }
}

#[test]
fn each_agents_file_is_made_checked_and_removed_again() {
    for agent in Agent::ALL {
        for scope in [ConfigScope::User, ConfigScope::Project] {
            let user = TestUser::new();
            let (setup, before) = (user.setup(), user.files());
            let plan = setup.plan_add(agent, scope, OtherServers::Leave);
            if (agent, scope) == (Agent::Windsurf, ConfigScope::Project) {
                assert!(matches!(plan, Err(Error::NoProjectFile(Agent::Windsurf))));
                continue;
            }
            let answer = user.commit(plan).expect("add");
            assert!(answer.changed && answer.state.works && answer.backup.is_none(), "{answer:?}");
            let inside = if scope == ConfigScope::User { "home" } else { "project" };
            assert!(answer.file.starts_with(user.path(inside)), "{answer:?}");
            let text = fs::read_to_string(&answer.file).expect("file");
            assert!(text.contains(user.path("bin/quell").to_str().expect("UTF-8")), "{text}");
            assert!(setup.check(agent, scope, OtherServers::Wrap).expect("check").state.works);
            assert_eq!(setup.installed().expect("installed").len(), 1);
            // The text to paste is the text of a new file.
            assert_eq!(setup.print(agent, scope).expect("print").entry, Some(text));
            let again = user.commit(setup.plan_add(agent, scope, OtherServers::Leave)).expect("again");
            assert!(!again.changed);
            let gone = user.commit(setup.plan_remove(agent, scope)).expect("remove");
            assert!(gone.changed && !gone.state.installed, "{gone:?}");
            // Not even a directory is left.
            assert_eq!(user.files(), before, "{agent}");
            assert!(setup.installed().expect("installed").is_empty());
            assert!(!setup.check(agent, scope, OtherServers::Leave).expect("check").state.installed);
        }
    }
}

#[test]
fn what_was_there_is_restored_to_the_byte_with_its_mode() {
    // A lone object in one line, which an added entry spreads over several.
    let texts = [
        SERVERS,
        "",
        "{}",
        "{\"mcpServers\":{\"a\":{\"command\":\"b\",\"args\":[]}}}",
        "\u{feff}{\r\n}\r\n",
        "\n\n",
    ];
    for text in texts {
        for mode in [0o600, 0o644, 0o664] {
            let user = TestUser::new();
            let file = user.claude(text);
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("chmod");
            let before = user.files();
            let answer = user.add(Agent::Claude, OtherServers::Leave).expect("add");
            let backup = answer.backup.expect("backup");
            assert_eq!(fs::read_to_string(&backup).expect("backup"), text);
            for path in [&file, &backup] {
                assert_eq!(fs::metadata(path).expect("metadata").mode() & 0o7777, mode, "{}", path.display());
            }
            // Servers are wrapped later; the backup stays the original.
            assert!(user.add(Agent::Claude, OtherServers::Wrap).expect("wrap").state.works);
            assert_eq!(fs::read_to_string(&backup).expect("backup"), text);
            let wrapped = user.files();
            assert!(
                !user.add(Agent::Claude, OtherServers::Leave).expect("again").changed,
                "what is wrapped stays so"
            );
            assert_eq!(user.files(), wrapped);
            assert!(user.remove(Agent::Claude).expect("remove").changed);
            assert_eq!(user.files(), before, "{text:?}");
            assert!(!user.remove(Agent::Claude).expect("again").changed);
        }
    }
}

#[test]
fn an_edit_by_another_program_stays_when_quell_is_removed() {
    let user = TestUser::new();
    let file = user.claude(SERVERS);
    user.add(Agent::Claude, OtherServers::Wrap).expect("add");
    let edited = fs::read_to_string(&file).expect("read").replace("// my servers", "// mine, edited");
    fs::write(&file, &edited).expect("write");
    // The second setup is based on the edited file, and so is its backup.
    user.put_quell("bin/newer");
    let newer = user.setup_by("bin/newer");
    let answer =
        user.commit(newer.plan_add(Agent::Claude, ConfigScope::User, OtherServers::Leave)).expect("add");
    assert!(answer.changed && answer.state.works, "{answer:?}");
    let expected = SERVERS.replace("// my servers", "// mine, edited");
    let backup = fs::read_to_string(answer.backup.expect("backup")).expect("backup");
    assert!(!backup.contains("quell") && backup.contains("// mine, edited"), "{backup}");
    // Again edited, with a server that the user wrapped.
    let edited = fs::read_to_string(&file).expect("read");
    let mine = r#""mine": {"command": "quell", "args": ["wrap", "--", "x"]}, "files": {"#;
    fs::write(&file, edited.replace(r#""files": {"#, mine)).expect("write");
    let answer = user.commit(newer.plan_remove(Agent::Claude, ConfigScope::User)).expect("remove");
    assert!(answer.changed && !answer.state.installed);
    let after = fs::read_to_string(&file).expect("read");
    assert_eq!(after, expected.replace(r#""files": {"#, mine));
    let names: Vec<PathBuf> = user.files().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(names, [file], "no backup is left");
}

#[test]
fn links_are_followed_and_stay_links() {
    let user = TestUser::new();
    fs::create_dir(user.path("home/dotfiles")).expect("mkdir");
    let real = user.path("home/dotfiles/claude.json");
    fs::write(&real, SERVERS).expect("write");
    symlink("dotfiles/claude.json", user.path("home/.claude.json")).expect("link");
    let before = user.files();
    let answer = user.add(Agent::Claude, OtherServers::Wrap).expect("add");
    assert_eq!(answer.file, real);
    assert_eq!(answer.backup, Some(user.path("home/dotfiles/claude.json.quell-backup")));
    assert!(user.path("home/.claude.json").is_symlink());
    user.remove(Agent::Claude).expect("remove");
    assert_eq!(user.files(), before);
    // A directory that is a link, with no file in it yet.
    fs::create_dir(user.path("home/dotfiles/codex")).expect("mkdir");
    symlink("dotfiles/codex", user.path("home/.codex")).expect("link");
    let before = user.files();
    assert_eq!(
        user.add(Agent::Codex, OtherServers::Leave).expect("add").file,
        user.path("home/dotfiles/codex/config.toml")
    );
    user.remove(Agent::Codex).expect("remove");
    assert_eq!(user.files(), before);
}

#[test]
fn what_is_not_a_usable_file_is_refused_and_stays() {
    let user = TestUser::new();
    let path = user.path("home/.claude.json");
    let lay: [(&str, &dyn Fn()); 7] = [
        ("unparsable", &|| fs::write(&path, "{ not json").expect("write")),
        ("unparsable", &|| fs::write(&path, b"{\"a\": \"\xff\"}").expect("write")),
        ("wrong_type", &|| fs::write(&path, "{\"mcpServers\": 1}").expect("write")),
        ("unsuitable_file", &|| fs::create_dir(&path).expect("mkdir")),
        ("unsuitable_file", &|| symlink("nowhere", &path).expect("link")),
        ("unsuitable_file", &|| {
            assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        }),
        ("unsuitable_file", &|| {
            fs::write(&path, SERVERS).expect("write");
            fs::hard_link(&path, user.path("home/second")).expect("link");
        }),
    ];
    for (code, lay) in lay {
        lay();
        let before = user.files();
        let error = user.add(Agent::Claude, OtherServers::Wrap).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
        assert_eq!(user.files(), before, "{error}");
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).expect("remove");
    }
    assert!(user.setup().installed().expect("installed").is_empty());
}

#[test]
fn a_file_that_changes_after_the_plan_is_not_overwritten() {
    let user = TestUser::new();
    let file = user.claude(SERVERS);
    let setup = user.setup();
    let plan = |agent| setup.plan_add(agent, ConfigScope::User, OtherServers::Leave).expect("plan");
    let (change, make) = (plan(Agent::Claude), plan(Agent::Cursor));
    fs::write(&file, "{\"theirs\": true}").expect("write");
    fs::create_dir(user.path("home/.cursor")).expect("mkdir");
    fs::write(user.path("home/.cursor/mcp.json"), "{}").expect("write");
    let before = user.files();
    for plan in [change, make] {
        let error = plan.commit(&user.permit(Verb::Setup)).unwrap_err();
        assert!(matches!(error, Error::ChangedMeanwhile(_)) && error.is_retryable(), "{error}");
    }
    assert_eq!(user.files(), before);
    assert!(setup.installed().expect("installed").is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_and_nothing_changes() {
    let user = TestUser::new();
    if quell_sys::uid() == 0 {
        // Root may write everywhere but here.
        let places = Places::new(Path::new("/proc"), Path::new("/proc"));
        let program = OwnProgram::at(&user.path("bin/quell"), "".as_ref()).expect("program");
        let setup = Setup::with(user.home(), places, program);
        let plan = setup.plan_add(Agent::Cursor, ConfigScope::User, OtherServers::Leave);
        assert_eq!(user.commit(plan).unwrap_err().code(), "io");
    } else {
        user.claude(SERVERS);
        let before = user.files();
        fs::set_permissions(user.path("home"), Permissions::from_mode(0o500)).expect("chmod");
        let error = user.add(Agent::Claude, OtherServers::Leave).unwrap_err();
        let new = user.add(Agent::Cursor, OtherServers::Leave).unwrap_err();
        fs::set_permissions(user.path("home"), Permissions::from_mode(0o700)).expect("chmod");
        assert_eq!((error.code(), new.code()), ("io", "io"), "{error}");
        assert_eq!(user.files(), before);
    }
    assert!(user.setup().installed().expect("installed").is_empty());
}

#[test]
fn a_file_of_another_user_is_refused() {
    if quell_sys::uid() != 0 {
        println!("SKIPPED a_file_of_another_user_is_refused: needs root to make such a file");
        return;
    }
    let user = TestUser::new();
    let file = user.claude(SERVERS);
    std::os::unix::fs::chown(&file, Some(65534), Some(65534)).expect("chown");
    std::os::unix::fs::chown(user.path("home"), Some(65534), Some(65534)).expect("chown");
    for agent in [Agent::Claude, Agent::Cursor] {
        let error = user.add(agent, OtherServers::Leave).unwrap_err();
        assert!(error.to_string().contains("belongs to another user"), "{error}");
    }
    assert_eq!(user.files().len(), 1);
}

#[test]
fn a_quell_that_moved_is_noticed_and_corrected() {
    let user = TestUser::new();
    user.claude(SERVERS);
    user.add(Agent::Claude, OtherServers::Wrap).expect("add");
    user.put_quell("bin/newer");
    fs::remove_file(user.path("bin/quell")).expect("remove");
    let newer = user.setup_by("bin/newer");
    let state = newer.check(Agent::Claude, ConfigScope::User, OtherServers::Leave).expect("check").state;
    assert!(state.installed && !state.works && state.problems.len() == 2, "{state:?}");
    assert_eq!(state.names(WrapState::Stale), ["files"]);
    let answer =
        user.commit(newer.plan_add(Agent::Claude, ConfigScope::User, OtherServers::Leave)).expect("add");
    assert!(answer.state.works, "{answer:?}");
    assert_eq!(answer.state.names(WrapState::Wrapped), ["files"]);
    user.commit(newer.plan_remove(Agent::Claude, ConfigScope::User)).expect("remove");
    assert_eq!(fs::read_to_string(user.path("home/.claude.json")).expect("read"), SERVERS);
}

#[test]
fn a_corrected_path_is_restored_after_an_edit_by_another_program() {
    let user = TestUser::new();
    // The search path of these agents has no quell.
    let own = r#""quell": {"command": "quell", "args": ["mcp"]}"#;
    let text = SERVERS.replace(
        r#""files": {"#,
        &format!(r#"{own}, "mine": {{"command": "/gone/quell", "args": ["wrap", "--", "x"]}}, "files": {{"#),
    );
    let file = user.claude(&text);
    let edit = |text: &str| text.replace("// my servers", "// mine, edited");
    for others in [OtherServers::Leave, OtherServers::Wrap] {
        assert!(user.add(Agent::Claude, others).expect("add").changed);
        let corrected = fs::read_to_string(&file).expect("read");
        assert!(!corrected.contains(r#""command": "quell""#), "{corrected}");
        fs::write(&file, edit(&corrected)).expect("write");
        // A setup of an edited file joins its record with the earlier one, and its backup has the user's own words.
        let answer = user.add(Agent::Claude, OtherServers::Wrap).expect("again");
        if let Some(backup) = answer.backup {
            assert_eq!(fs::read_to_string(backup).expect("backup"), edit(&text));
        }
        let now = fs::read_to_string(&file).expect("read");
        fs::write(&file, now.replace("// mine, edited", "// mine, edited again")).expect("write");
        assert!(user.remove(Agent::Claude).expect("remove").changed);
        assert_eq!(
            fs::read_to_string(&file).expect("read"),
            text.replace("// my servers", "// mine, edited again")
        );
        assert_eq!(user.files().len(), 1, "no backup is left");
        fs::write(&file, &text).expect("write");
    }
    // A path that the user has changed since stays.
    user.add(Agent::Claude, OtherServers::Leave).expect("add");
    let corrected = fs::read_to_string(&file).expect("read");
    let quell = user.path("bin/quell").display().to_string();
    fs::write(&file, corrected.replace(&quell, "/elsewhere/quell")).expect("write");
    user.remove(Agent::Claude).expect("remove");
    let expected = text.replace(r#""command": "quell""#, r#""command": "/elsewhere/quell""#);
    assert_eq!(fs::read_to_string(&file).expect("read"), expected);
}

#[test]
fn the_path_is_the_one_that_the_search_path_leads_to() {
    let user = TestUser::new();
    fs::create_dir(user.path("links")).expect("mkdir");
    symlink(user.path("bin/quell"), user.path("links/quell")).expect("link");
    let search = std::env::join_paths([user.path("home"), user.path("links")]).expect("PATH");
    let program = OwnProgram::at(&user.path("bin/quell"), &search).expect("program");
    assert_eq!(Path::new(&program.path), user.path("links/quell"));
    for word in ["quell", &program.path, user.path("bin/quell").to_str().expect("UTF-8")] {
        assert!(program.is_named_by(word), "{word}");
    }
    for word in ["./quell", "npx", "/nowhere/quell", ""] {
        assert!(!program.is_named_by(word), "{word}");
    }
    assert!(matches!(OwnProgram::at(&user.path("gone"), "".as_ref()), Err(Error::NoOwnPath(_))));
}

#[test]
fn a_permit_for_another_verb_is_not_enough() {
    let user = TestUser::new();
    let plan = user.setup().plan_add(Agent::Claude, ConfigScope::User, OtherServers::Leave).expect("plan");
    assert!(plan.commit(&user.permit(Verb::Start)).is_err());
    assert!(user.files().is_empty());
}

#[test]
fn the_manifest_is_private_and_a_damaged_one_is_an_error() {
    let user = TestUser::new();
    user.add(Agent::Claude, OtherServers::Leave).expect("add");
    let path = Manifest::path(&user.home());
    assert_eq!(fs::metadata(&path).expect("manifest").mode() & 0o777, 0o600);
    fs::write(&path, "{").expect("write");
    let before = user.files();
    assert_eq!(user.remove(Agent::Claude).unwrap_err().code(), "manifest");
    assert_eq!(user.files(), before);
    // Without it, what setup writes is known by its form.
    fs::remove_file(&path).expect("remove");
    assert!(user.remove(Agent::Claude).expect("remove").changed);
    assert_eq!(
        fs::read_to_string(user.path("home/.claude.json")).expect("read").trim(),
        "{\n  \"mcpServers\": {\n  }\n}"
    );
}

#[test]
fn another_server_that_is_not_right_is_left_alone_unless_servers_are_wrapped() {
    let user = TestUser::new();
    let file = user.claude("{\"mcpServers\": {\"odd\": {\"command\": 1}}}");
    let before = user.files();
    assert_eq!(user.add(Agent::Claude, OtherServers::Wrap).unwrap_err().code(), "wrong_type");
    assert!(user.add(Agent::Claude, OtherServers::Leave).expect("add").state.works);
    fs::write(&file, fs::read_to_string(&file).expect("read") + "\n").expect("write");
    assert!(!user.remove(Agent::Claude).expect("remove").state.installed);
    assert!(fs::read_to_string(&file).expect("read").contains("\"odd\": {\"command\": 1}"));
    assert_eq!(user.files().len(), before.len());
}

#[test]
fn a_diff_has_only_the_lines_that_change() {
    let user = TestUser::new();
    user.claude("{\n  \"secret\": \"s3cret\",\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\"\n    }\n  }\n}\n");
    let plan = user.setup().plan_add(Agent::Claude, ConfigScope::User, OtherServers::Wrap).expect("plan");
    let diff = plan.diff();
    assert!(
        diff.contains("-       \"command\": \"npx\"\n")
            && diff.contains("+       \"args\": [\"wrap\", \"--\", \"npx\"]"),
        "{diff}"
    );
    assert!(!diff.contains("s3cret"), "{diff}");
    assert_eq!(plan.servers(), ["a"]);
    assert!(plan.dry_run().dry_run && user.files().len() == 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn removing_restores_any_file_that_setup_could_change(text in super::generated::file(), wrap: bool) {
        let user = TestUser::new();
        let file = user.claude(&text);
        let others = if wrap { OtherServers::Wrap } else { OtherServers::Leave };
        user.add(Agent::Claude, others).expect("add");
        prop_assert_ne!(&fs::read_to_string(&file).expect("read"), &text);
        user.remove(Agent::Claude).expect("remove");
        prop_assert_eq!(fs::read_to_string(&file).expect("read"), text);
        prop_assert_eq!(user.files().len(), 1);
    }
}
