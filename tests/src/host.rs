//! What this machine lets the tests do.

use std::{
    collections::HashMap,
    env, fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
};

use serde_json::Value;

use crate::test_env::TestEnv;

/// The uid and gid that stand for an ordinary user when the tests run as root.
pub const NOBODY: u32 = 65534;

/// The user that quell runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum User {
    /// uid 0, only where the tests have it.
    Root,
    /// An unprivileged user: `nobody` where the tests are root, else the user that runs the tests.
    Ordinary,
}

impl User {
    /// The users that the tests can be here.
    pub fn all() -> Vec<User> {
        if am_root() { vec![User::Root, User::Ordinary] } else { vec![User::Ordinary] }
    }

    /// The start of a command line that becomes this user and then the rest.
    pub fn prefix(self) -> Vec<String> {
        let words: &[&str] = match self {
            User::Ordinary if am_root() => {
                &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
            }
            User::Ordinary | User::Root => &[],
        };
        words.iter().map(|word| word.to_string()).collect()
    }
}

/// How quell is asked to hold the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contain {
    /// Session, group and subreaper only.
    Reaper,
    /// A cgroup of the job's own.
    Cgroup,
    /// A PID namespace of the job's own.
    Pidns,
}

impl Contain {
    /// Every containment that quell has on Linux.
    pub const ALL: [Contain; 3] = [Contain::Reaper, Contain::Cgroup, Contain::Pidns];

    /// The word for `--contain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Contain::Reaper => "reaper",
            Contain::Cgroup => "cgroup",
            Contain::Pidns => "pidns",
        }
    }

    /// Whether quell can hold a job so for this user here; if not, what it says about it.
    pub fn available(self, user: User) -> Result<(), String> {
        type Known = HashMap<(Contain, User), Result<(), String>>;
        static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
        let known = KNOWN.get_or_init(Mutex::default).lock();
        known
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .entry((self, user))
            .or_insert_with(|| self.try_it(user))
            .clone()
    }

    /// Whether a receipt says that this held the tree.
    pub fn is_held_in(self, receipt: &Value) -> bool {
        let by = receipt["held"]["containment"].as_str().unwrap_or_default();
        // A scope is a cgroup that systemd has made.
        by == self.as_str() || (self == Contain::Cgroup && by == "scope")
    }

    /// Only quell's own word that the host can't give it counts as "not available"; whatever else goes wrong is a
    /// failure, and so is any refusal of the reaper.
    fn try_it(self, user: User) -> Result<(), String> {
        let env = TestEnv::for_containment(user, self);
        let done = env.run().args(["--json", "--contain", self.as_str()]).command(["true"]).finish();
        if done.code() == Some(0) {
            // Else everything that is tested with it would be tested with something weaker.
            assert!(
                self.is_held_in(&done.envelope()["data"]),
                "{} was not given: {}",
                self.as_str(),
                done.stdout
            );
            return Ok(());
        }
        let refused = done.stdout.contains(r#""code":"containment_unavailable""#) && self != Contain::Reaper;
        let why = format!("{}: {}{}", done.status, done.stdout.trim(), done.stderr.trim());
        assert!(refused, "`quell run --contain {} -- true` fails as {user:?}: {why}", self.as_str());
        assert!(!required(self), "QUELL_TEST_REQUIRE names {}, and it is refused: {why}", self.as_str());
        Err(why)
    }
}

/// Whether `QUELL_TEST_REQUIRE`, a list such as `cgroup,pidns`, says that this containment must not be skipped.
fn required(contain: Contain) -> bool {
    env::var("QUELL_TEST_REQUIRE").is_ok_and(|list| list.split(',').any(|word| word == contain.as_str()))
}

/// One way to run a job: the containment and the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How it is held.
    pub contain: Contain,
    /// The user that quell runs as.
    pub user: User,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {:?}", self.contain.as_str(), self.user)
    }
}

impl Setting {
    /// Every setting that this host has; the others are named as skipped, once per run.
    pub fn all() -> Vec<Setting> {
        static ALL: OnceLock<Vec<Setting>> = OnceLock::new();
        ALL.get_or_init(|| {
            if !am_root() {
                crate::skip("everything as root", "the tests do not run as root");
            }
            let mut settings = Vec::new();
            for user in User::all() {
                for contain in Contain::ALL {
                    let setting = Setting { contain, user };
                    match contain.available(user) {
                        Ok(()) => settings.push(setting),
                        Err(why) => crate::skip(&format!("everything with {setting}"), &why),
                    }
                }
            }
            settings
        })
        .clone()
    }
}

/// Whether the tests run as root.
pub fn am_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Whether this process is in a PID namespace that is not the first one of the host.
pub fn in_own_pid_namespace() -> bool {
    // The kernel gives the first one this number (PROC_PID_INIT_INO).
    fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() != 0xEFFF_FFFC)
}

/// Where cgroup v2 is mounted.
pub fn cgroup_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
    })
}

/// Whether a program can be found in PATH.
pub fn has_program(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// The bad actors: `QUELL_ACTOR`, else as built by build.rs.
pub fn actor() -> &'static Path {
    static ACTOR: OnceLock<PathBuf> = OnceLock::new();
    ACTOR.get_or_init(|| env::var_os("QUELL_ACTOR").unwrap_or(env!("QUELL_ACTOR").into()).into())
}

/// A library that gives the processes it is preloaded into the wall clock that the file named by `TEST_CLOCK` says.
pub fn clock_library() -> &'static Path {
    Path::new(env!("QUELL_CLOCK_LIBRARY"))
}

/// The quell under test: `QUELL_BIN`, else one already built beside the tests, else built now.
pub fn quell() -> &'static Path {
    static QUELL: OnceLock<PathBuf> = OnceLock::new();
    QUELL.get_or_init(|| {
        if let Some(given) = env::var_os("QUELL_BIN") {
            return PathBuf::from(given);
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
        // This is target/PROFILE/deps/it-HASH: cargo puts the binaries two levels up.
        let beside = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("quell")));
        build(root);
        beside
            .into_iter()
            .chain(["release", "debug"].map(|profile| root.join("target").join(profile).join("quell")))
            .find(|path| path.is_file())
            .expect("cargo build -p quell-cli leaves a binary named quell")
    })
}

/// Brings the binary beside the tests up to date: `cargo test -p quell-tests` alone would not build
/// it, and an old one would be tested in silence.
fn build(root: &Path) {
    let release =
        env::current_exe().is_ok_and(|exe| exe.components().any(|part| part.as_os_str() == "release"));
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "quell-cli"]).args(release.then_some("--release"));
    let built = cargo.current_dir(root).stdout(Stdio::null()).status();
    assert!(built.is_ok_and(|status| status.success()), "cargo build -p quell-cli failed");
}
