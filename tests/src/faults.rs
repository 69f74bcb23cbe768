//! A quell that dies, or stands still, exactly where a test wants it to: built with the feature `faults`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::{run::Quell, test_env::TestEnv};

/// The quell with points: `QUELL_FAULTS_BIN`, else built now, in a place of its own; or why there is none.
pub fn binary() -> Result<&'static Path, String> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| match env::var_os("QUELL_FAULTS_BIN") {
        Some(given) => Ok(PathBuf::from(given)),
        None => build(),
    });
    found.as_deref().map_err(Clone::clone)
}

fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above the tests")?;
    let exe = env::current_exe().map_err(|error| format!("the tests themselves: {error}"))?;
    // This is TARGET/PROFILE/deps/it-HASH.
    let target = exe.ancestors().nth(3).ok_or("no target directory above the tests")?.join("faults");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "quell-cli", "--features", "faults", "--target-dir"]).arg(&target);
    let built = cargo.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let built = built.map_err(|error| format!("cargo can't be run: {error}; give QUELL_FAULTS_BIN"))?;
    if built.status.success() {
        Ok(target.join("debug/quell"))
    } else {
        Err(format!("quell can't be built with points: {}", String::from_utf8_lossy(&built.stderr)))
    }
}

/// Every point, as a fault is asked for: `keeper.go_given`.
pub fn points() -> Vec<String> {
    let Ok(binary) = binary() else { return Vec::new() };
    let said = Command::new(binary).arg("__points").output().expect("the quell with points");
    assert!(said.status.success(), "quell __points: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect()
}

/// A process that passed a point, or was hit there.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The process.
    pub pid: u32,
    /// Which point.
    pub point: String,
    /// What came of it: `pass`, `kill`, `stop`.
    pub what: String,
}

/// What is to happen: `keeper.go_given:kill`; several with commas. Nothing, if it is empty.
#[derive(Clone, Debug, Default)]
pub struct Fault(pub String);

impl TestEnv {
    /// Starts the command line of a quell with points, with this fault.
    pub fn faulty(&self, verb: &str, fault: &Fault) -> Quell<'_> {
        let log = self.path("points");
        if !log.exists() {
            self.write("points", "");
        }
        let program = binary().unwrap_or_else(|why| panic!("{why}"));
        let quell = self.quell(verb).program(self.faulty_path(program)).env("QUELL_FAULT_LOG", log);
        if fault.0.is_empty() { quell } else { quell.env("QUELL_FAULT", &fault.0) }
    }

    /// The points that were passed up to now, and by which process.
    pub fn passed(&self) -> Vec<Passed> {
        let text = fs::read_to_string(self.path("points")).unwrap_or_default();
        let of = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            Some(Passed { pid: words.next()?.parse().ok()?, point: words.next()?, what: words.next()? })
        };
        text.lines().filter_map(of).collect()
    }

    /// The process that this fault hit; the first of several.
    pub fn hit(&self, fault: &Fault) -> Option<Passed> {
        self.passed().into_iter().find(|passed| {
            let wanted = fault.0.split(['@', ',']).next().unwrap_or_default();
            format!("{}:{}", passed.point, passed.what) == wanted
        })
    }
}
