//! A systemd user manager of the tests' own, made by `manager/systemd-user`: what an ordinary user has on
//! a desktop, also where systemd is not PID 1.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::host::NOBODY;

/// What makes a process part of the manager's session.
#[derive(Clone, Debug)]
pub struct Session {
    /// The cgroups to join, one in each hierarchy that the manager uses.
    pub cgroups: Vec<PathBuf>,
    /// The variables by which the manager is found.
    pub variables: Vec<(String, String)>,
}

/// The manager, for an unprivileged user. Ended, with all its units, when dropped; also if the tests
/// are killed, as it holds on to a pipe of theirs.
#[derive(Debug)]
pub struct SystemdUser {
    manager: Child,
    hold: Option<ChildStdin>,
    session: Session,
}

impl SystemdUser {
    /// Starts it, or says why this host can't.
    pub fn start() -> Result<SystemdUser, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("environments/systemd-user");
        let mut manager = Command::new(script)
            .args(["--uid", &NOBODY.to_string(), "--"])
            .args(["sh", "-c", "env; cat /proc/self/cgroup; echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the manager's script");
        let output = BufReader::new(manager.stdout.take().expect("piped"));
        let said: Vec<String> = output.lines().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
        if let Some(skipped) = said.iter().find_map(|line| line.strip_prefix("SKIPPED: ")) {
            let _ = manager.wait();
            return Err(skipped.to_owned());
        }
        let session = Session { cgroups: cgroups(&said), variables: variables(&said) };
        let manager = SystemdUser { hold: manager.stdin.take(), manager, session };
        assert!(!manager.session.cgroups.is_empty(), "the manager did not come up: {said:?}");
        Ok(manager)
    }

    /// How to be part of it.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the manager can hold a limit of this cgroup controller.
    pub fn has_controller(&self, name: &str) -> bool {
        self.session.cgroups.iter().any(|cgroup| {
            fs::read_to_string(cgroup.with_file_name("manager").join("cgroup.controllers"))
                .is_ok_and(|list| list.split_whitespace().any(|word| word == name))
        })
    }

    /// The scopes of quell's that the manager has now.
    pub fn scopes(&self) -> Vec<PathBuf> {
        fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if name.starts_with("quell-") && name.ends_with(".scope") {
                        found.push(entry.path());
                    }
                    walk(&entry.path(), found);
                }
            }
        }
        let mut found = Vec::new();
        for cgroup in &self.session.cgroups {
            walk(&cgroup.with_file_name("manager"), &mut found);
        }
        found
    }
}

impl Drop for SystemdUser {
    fn drop(&mut self) {
        drop(self.hold.take());
        let _ = self.manager.wait();
    }
}

fn variables(said: &[String]) -> Vec<(String, String)> {
    let wanted = ["DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"];
    said.iter()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| wanted.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The directories of the manager's lines of `/proc/self/cgroup`, such as `0::/quell-user.x/cmd`.
fn cgroups(said: &[String]) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount_of = |controller: &str| {
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find_map(|words| {
            let hit = match controller {
                "" => words.get(2) == Some(&"cgroup2"),
                named => words.get(2) == Some(&"cgroup") && words[3].split(',').any(|option| option == named),
            };
            hit.then(|| PathBuf::from(words[1]))
        })
    };
    said.iter()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controller, path) = (fields.next()?, fields.next()?);
            path.starts_with("/quell-user.").then(|| Some(mount_of(controller)?.join(&path[1..])))?
        })
        .collect()
}
