//! Jobs in the background, as a test sees them: through their files and through `/proc`.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::Value;

use crate::{
    eventually,
    oracle::Process,
    run::{Finished, PATIENCE, Quell, READER_PATIENCE, Running},
    test_env::TestEnv,
};

/// A job that `quell start` has started. Stopped by the environment's end at the latest.
#[derive(Debug)]
pub struct Background<'l> {
    env: &'l TestEnv,
    /// Its id.
    pub id: String,
    starter: Option<Running>,
}

impl<'l> Quell<'l> {
    /// Starts it (the verb is `start`), which must succeed. If the program is an actor or a script that says when it is
    /// ready, waits for that.
    pub fn begin(self) -> Background<'l> {
        let (env, says_ready) = (self.test_env(), self.says_ready());
        let mut starter = self.start();
        let status = starter.wait_exit(PATIENCE).expect("`quell start` returns");
        assert!(status.success(), "quell start: {status}: {}", starter.stderr());
        if says_ready {
            assert!(starter.wait_said_ready(PATIENCE), "the program did not get ready");
        }
        starter.wait_output_closed(READER_PATIENCE);
        let id = starter.stdout().lines().last().unwrap_or_default().to_owned();
        assert_eq!(id.len(), 26, "`quell start` prints an id, not {id:?}");
        Background { env, id, starter: Some(starter) }
    }
}

impl TestEnv {
    /// Starts the command line of `quell start`.
    pub fn start(&self) -> Quell<'_> {
        self.quell("start")
    }

    /// The job with this id.
    pub fn job(&self, id: &str) -> Background<'_> {
        Background { env: self, id: id.to_owned(), starter: None }
    }

    /// The ids in a directory of quell's home: `jobs`, `live`, `done`.
    pub fn ids(&self, place: &str) -> Vec<String> {
        let entries = fs::read_dir(self.home().join(place)).into_iter().flatten().flatten();
        let mut ids: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        ids.sort();
        ids
    }
}

/// What the last line of a file of the record says.
pub fn last_json(bytes: &[u8]) -> serde_json::Result<Value> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    serde_json::from_slice(text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default())
}

impl Background<'_> {
    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        self.env.home().join("jobs").join(&self.id)
    }

    fn json(&self, name: &str) -> Option<Value> {
        last_json(&fs::read(self.dir().join(name)).ok()?).ok()
    }

    /// The last line of `state.jsonl`.
    pub fn record(&self) -> Option<Value> {
        self.json("state.jsonl")
    }

    /// Its state's word.
    pub fn state(&self) -> String {
        let record = self.record();
        record.and_then(|record| Some(record["state"].as_str()?.to_owned())).unwrap_or_default()
    }

    /// `receipt.json`.
    pub fn receipt(&self) -> Option<Value> {
        self.json("receipt.json")
    }

    /// One of its processes as its record names it: `root`, `keeper`, `standby`.
    pub fn process(&self, role: &str) -> Option<Process> {
        let record = self.record()?;
        let id = if role == "root" { &record["tree"]["root"] } else { &record[role] };
        let process = Process::now(id["pid"].as_u64()? as u32)?;
        (process.start == id["start"].as_u64()?).then_some(process)
    }

    /// The names of its events, in order.
    pub fn events(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir().join("events.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| Some(event["event"].as_str()?.to_owned())).collect()
    }

    /// What it wrote to a stream (`stdout`, `stderr`), if nothing was cut.
    pub fn output(&self, stream: &str) -> String {
        let bytes = fs::read(self.dir().join(format!("{stream}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether it counts as ended.
    pub fn is_over(&self) -> bool {
        !self.env.home().join("live").join(&self.id).exists()
    }

    /// Waits for its end.
    pub fn wait_over(&self, patience: Duration) -> bool {
        eventually(patience, || self.is_over())
    }

    /// `quell stop` with these options.
    pub fn stop(&self, options: &[&str]) -> Finished {
        self.env.quell("stop").args([self.id.as_str()]).args(options).finish()
    }

    /// Takes both keepers away at once, so that neither can finish what the other one left, nor start another. When
    /// this returns they are gone: a process that was killed holds its locks until it has exited.
    pub fn lose(&self) {
        self.lose_all(&["standby", "keeper"]);
    }

    /// The same with these of its processes.
    pub fn lose_all(&self, roles: &[&str]) {
        let lost: Vec<Process> = roles.iter().map(|role| self.process(role).expect("a kept job")).collect();
        for signal in ["STOP", "KILL"] {
            lost.iter().for_each(|process| assert!(process.signal(signal), "no {process:?}"));
        }
        let gone = || lost.iter().all(|process| !process.is_alive());
        assert!(eventually(PATIENCE, gone), "{lost:?} outlived SIGKILL");
    }

    /// Waits until its processes and quell's are gone.
    pub fn wait_quiet(&self, patience: Duration) -> Vec<Process> {
        self.env.oracle.survivors_after(patience)
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        // After a failure the environment ends what is left; a second panic would hide the first.
        if self.starter.is_some() && !std::thread::panicking() && !self.is_over() {
            let _ = self.stop(&["--now"]);
        }
    }
}
