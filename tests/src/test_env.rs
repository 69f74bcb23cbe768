//! One test's private place: a directory, a state directory for quell, and where needed a cgroup.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    evidence::cgroups_of,
    host::{self, Contain, NOBODY, Setting, User},
    oracle::Oracle,
    run::Quell,
    systemd_user::{Session, SystemdUser},
};

/// Removed with all it holds when dropped; what still runs of the test is ended first.
#[derive(Debug)]
pub struct TestEnv {
    /// Finds the processes of this environment: all have its token in their environment.
    pub oracle: Oracle,
    user: User,
    dir: PathBuf,
    /// A cgroup that belongs to the user, where quell is started inside it.
    delegated: Option<PathBuf>,
    /// A session with a systemd user manager, where quell is started inside it.
    session: Option<Session>,
    serial: AtomicUsize,
}

impl TestEnv {
    /// An environment for quell as this user.
    pub fn new(user: User) -> TestEnv {
        let oracle = Oracle::new();
        let dir = std::env::temp_dir().join(format!("quell-{}", oracle.token()));
        fs::create_dir(&dir).expect("a directory for the test");
        let env = TestEnv { oracle, user, dir, delegated: None, session: None, serial: AtomicUsize::new(0) };
        env.give(&env.dir);
        env
    }

    /// An environment for quell as the user that runs the tests.
    pub fn as_me() -> TestEnv {
        TestEnv::new(if host::am_root() { User::Root } else { User::Ordinary })
    }

    /// An environment where the user has what the containment needs: an ordinary user needs a cgroup of its
    /// own, which root can give.
    pub fn for_containment(user: User, contain: Contain) -> TestEnv {
        let mut env = TestEnv::new(user);
        if contain == Contain::Cgroup && user == User::Ordinary && host::am_root() {
            env.delegate();
        }
        env
    }

    /// An environment for this setting where [`TestEnv::leftovers`] sees every cgroup that quell makes, on record or
    /// not: root, too, gets one to make them in.
    pub fn enclosed(setting: Setting) -> TestEnv {
        let mut env = TestEnv::new(setting.user);
        if setting.contain == Contain::Cgroup && host::am_root() {
            env.delegate();
        }
        env
    }

    fn delegate(&mut self) {
        self.delegated = self.make_cgroup("own").inspect(|cgroup| {
            self.give(cgroup);
            for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                self.give(&cgroup.join(file));
            }
        });
    }

    /// An environment for this setting.
    pub fn with(setting: Setting) -> TestEnv {
        TestEnv::for_containment(setting.user, setting.contain)
    }

    /// An environment in a cgroup of its own where one can be made: other tests don't see what happens in it.
    pub fn in_own_cgroup(user: User) -> TestEnv {
        TestEnv::enclosed(Setting { user, contain: Contain::Cgroup })
    }

    /// An environment for an ordinary user with a systemd user manager.
    pub fn beside(manager: &SystemdUser) -> TestEnv {
        let mut env = TestEnv::new(User::Ordinary);
        env.session = Some(manager.session().clone());
        env
    }

    /// The user that quell runs as here.
    pub fn user(&self) -> User {
        self.user
    }

    /// The environment's directory; the user may write in it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file of this name in the environment.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A name that no other call gets.
    pub fn fresh(&self, stem: &str) -> PathBuf {
        self.path(&format!("{stem}-{}", self.serial.fetch_add(1, Ordering::Relaxed)))
    }

    /// quell's state directory in this environment.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The state directory for a quell that runs inside a job of this environment.
    pub fn inner_home(&self) -> PathBuf {
        self.path("inner-home")
    }

    /// A file with this text, that the user owns.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file in the test environment");
        self.give(&path);
        path
    }

    /// A script that the user can execute. Not written by our own hands: see [`copy_program`].
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        let mut sh = Command::new("sh");
        sh.args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#]).arg(&path).arg(text);
        assert!(sh.status().is_ok_and(|status| status.success()), "a script at {}", path.display());
        self.give(&path);
        path
    }

    /// A fifo that every user may write to.
    pub fn fifo(&self) -> PathBuf {
        let path = self.fresh("fifo");
        let made = Command::new("mkfifo").args(["-m", "666"]).arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo {}", path.display());
        path
    }

    /// Starts the command line of `quell run`.
    pub fn run(&self) -> Quell<'_> {
        Quell::new(self, "run")
    }

    /// Starts the command line of another verb.
    pub fn quell(&self, verb: &str) -> Quell<'_> {
        Quell::new(self, verb)
    }

    /// The binary under test, at a path that the user can reach.
    pub fn quell_path(&self) -> PathBuf {
        static REACHABLE: OnceLock<bool> = OnceLock::new();
        self.reachable(host::quell(), "quell", &REACHABLE)
    }

    /// The quell with points, at a path that the user can reach.
    pub fn faulty_path(&self, program: &Path) -> PathBuf {
        static REACHABLE: OnceLock<bool> = OnceLock::new();
        self.reachable(program, "quell-with-points", &REACHABLE)
    }

    /// A quell that can be given another clock, at a path that the user can reach.
    pub fn clocked_path(&self, program: &Path) -> PathBuf {
        static REACHABLE: OnceLock<bool> = OnceLock::new();
        self.reachable(program, "quell-with-a-clock", &REACHABLE)
    }

    /// The actors, at a path that the user can reach.
    pub fn actor_path(&self) -> PathBuf {
        static REACHABLE: OnceLock<bool> = OnceLock::new();
        self.reachable(host::actor(), "actor", &REACHABLE)
    }

    /// The words that come before quell's own: join the cgroup, become the user.
    pub fn prefix(&self) -> Vec<String> {
        let mut words = Vec::new();
        let session = self.session.iter().flat_map(|session| &session.cgroups);
        for cgroup in self.delegated.iter().chain(session) {
            let join = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
            words.extend(["sh", "-c", join].map(String::from));
            words.push(cgroup.display().to_string());
        }
        words.extend(self.user.prefix());
        words
    }

    /// The variables of the session that quell is started in.
    pub fn session_variables(&self) -> &[(String, String)] {
        self.session.as_ref().map_or(&[], |session| &session.variables)
    }

    /// The cgroups in the one that was given to the user: whatever quell makes is here, on record or not.
    pub fn made_cgroups(&self) -> Vec<PathBuf> {
        let entries = self.delegated.iter().filter_map(|cgroup| fs::read_dir(cgroup).ok()).flatten();
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// A new cgroup directly below the mount of cgroup v2, for root only.
    pub fn make_cgroup(&self, name: &str) -> Option<PathBuf> {
        let path = host::cgroup_mount()?.join(format!("{}-{name}", self.oracle.token()));
        fs::create_dir(&path).ok()?;
        Some(path)
    }

    fn give(&self, path: &Path) {
        if self.user == User::Ordinary && host::am_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("chown in the test environment");
        }
    }

    /// A build directory below /root is closed to other users: then the environment gets a copy.
    fn reachable(&self, program: &Path, name: &str, known: &OnceLock<bool>) -> PathBuf {
        if self.user == User::Root || !host::am_root() {
            return program.to_owned();
        }
        let may_execute = || {
            let prefix = User::Ordinary.prefix();
            let test = Command::new(&prefix[0]).args(&prefix[1..]).args(["test", "-x"]).arg(program).status();
            test.is_ok_and(|status| status.success())
        };
        if *known.get_or_init(may_execute) {
            return program.to_owned();
        }
        let copy = self.path(name);
        if !copy.exists() {
            copy_program(program, &copy);
        }
        copy
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        let jobs = [self.home(), self.inner_home()].map(|home| self.records_in(&home));
        // The directory first, for a chain that got away goes on until its fifo is gone; then the
        // processes, which hold the cgroups and could still write into the directory.
        let _ = fs::remove_dir_all(&self.dir);
        self.oracle.end_survivors();
        jobs.iter().flatten().flat_map(|job| cgroups_of(&job.id)).for_each(|cgroup| remove_cgroup(&cgroup));
        if let Some(mount) = host::cgroup_mount().filter(|_| host::am_root()) {
            for entry in fs::read_dir(mount).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(self.oracle.token()) {
                    remove_cgroup(&entry.path());
                }
            }
        }
        // What a test has closed to its own user has to be opened first.
        if self.dir.exists() {
            let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.dir).status();
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Copies a program. Not by our own hands: while a file is open for writing here, a child that another test forks holds it
/// open too for an instant, and then it can't be executed.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp {} {}", from.display(), to.display());
}

/// A cgroup's directory goes by rmdir from the leaves up; its files are not removed.
fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    // One of quell's own that has said its last word may still be on its way out.
    crate::eventually(std::time::Duration::from_secs(2), || fs::remove_dir(path).is_ok() || !path.exists());
}
