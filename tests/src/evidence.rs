//! What quell leaves on disk, read as plain JSON: receipts, records, cgroups.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{host, test_env::TestEnv};

/// One job's directory in quell's state directory.
#[derive(Debug)]
pub struct Record {
    /// The job's id: the directory's name.
    pub id: String,
    /// Where it is.
    pub dir: PathBuf,
    /// The word in state.jsonl, or what is wrong with that file.
    pub state: String,
}

impl TestEnv {
    /// Every record in the environment's state directory.
    pub fn records(&self) -> Vec<Record> {
        self.records_in(&self.home())
    }

    /// Every record in this state directory.
    pub fn records_in(&self, home: &Path) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(home.join("jobs")) else { return Vec::new() };
        entries
            .flatten()
            .map(|entry| Record {
                id: entry.file_name().to_string_lossy().into_owned(),
                dir: entry.path(),
                state: state_word(&entry.path().join("state.jsonl")),
            })
            .collect()
    }

    /// Everything that a finished job must not leave: processes, cgroups, records that are not ended.
    pub fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.oracle.survivors().iter().map(|p| format!("alive: {} {}", p.pid, p.command)).collect();
        for record in self.records() {
            if record.state != "ended" {
                left.push(format!("record {} says {}", record.id, record.state));
            }
            left.extend(cgroups_of(&record.id).iter().map(|dir| format!("cgroup {}", dir.display())));
        }
        left.extend(self.made_cgroups().iter().map(|dir| format!("cgroup {}", dir.display())));
        // A nested quell that was killed whole, with its job, can't clean up. But no process may
        // be alive in them.
        for record in self.records_in(&self.inner_home()) {
            let populated = |dir: &PathBuf| {
                fs::read_to_string(dir.join("cgroup.events"))
                    .is_ok_and(|events| events.contains("populated 1"))
            };
            let nested = cgroups_of(&record.id).into_iter().filter(populated);
            left.extend(nested.map(|dir| format!("a living nested cgroup {}", dir.display())));
        }
        left
    }

    /// Waits for nothing to be left; what still is when the time is up.
    pub fn leftovers_after(&self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        loop {
            let left = self.leftovers();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            // There is no single event for the end of the last orphan, cgroup and record.
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn state_word(path: &Path) -> String {
    match fs::read(path) {
        Err(error) => format!("nothing: {error}"),
        Ok(bytes) => match crate::last_json(&bytes) {
            Err(error) => format!("no JSON: {error}"),
            Ok(state) => state["state"].as_str().map_or_else(|| format!("{}", state["state"]), str::to_owned),
        },
    }
}

/// The cgroups whose name holds the job's id, anywhere below the mount.
pub fn cgroups_of(id: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, id: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().to_lowercase().contains(id) {
                    found.push(entry.path());
                }
                walk(&entry.path(), id, found);
            }
        }
    }
    let mut found = Vec::new();
    if let Some(mount) = host::cgroup_mount() {
        walk(&mount, &id.to_lowercase(), &mut found);
    }
    found
}

/// A receipt that must be there and be JSON.
pub fn receipt(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("no receipt: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("the receipt is no JSON: {error}: {text}"))
}

/// The receipt must say that all is gone.
pub fn says_gone(receipt: &Value) -> Result<(), String> {
    match verdict(receipt) {
        "gone" => Ok(()),
        _ => Err(format!("the receipt's verdict is {}", receipt["verdict"])),
    }
}

/// What a recovery may say: gone with 0, or unproven with 5. Beside other tests there are processes that can't be told from
/// the job's.
pub fn says_what_is_known(code: Option<i32>, receipt: &Value) -> Result<(), String> {
    match (code, verdict(receipt)) {
        (Some(0), "gone") | (Some(5), "unproven") => Ok(()),
        _ => Err(format!("exit code {code:?}, and the verdict is {}", receipt["verdict"])),
    }
}

/// Whether a process had to be killed.
pub fn was_killed(receipt: &Value) -> bool {
    receipt["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step["step"] == "kill"))
}

/// How many seconds of its grace a tree has used that was asked.
pub fn grace_used(receipt: &Value) -> Option<f64> {
    receipt["grace"]["used"].as_f64()
}

/// The word of the verdict.
pub fn verdict(receipt: &Value) -> &str {
    let verdict = &receipt["verdict"];
    verdict.as_str().or_else(|| verdict["kind"].as_str()).unwrap_or("")
}

/// The word of the cause.
pub fn cause(receipt: &Value) -> &str {
    let cause = &receipt["cause"];
    cause.as_str().or_else(|| cause["kind"].as_str()).unwrap_or("")
}
