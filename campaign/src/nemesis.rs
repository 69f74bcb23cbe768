//! The nemesis: at random instants it does to quell's processes and files, and to the host, what happens to such things.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use quell_tests::{
    host::{NOBODY, User, actor, am_root},
    jobs::Background,
    oracle::{Oracle, Process},
};
use serde_json::Value;

use crate::{
    ledger::Harm,
    metrics::Metrics,
    rng::Rng,
    scenario::{FaultClass, Scenario},
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(&'static str),
    KillBoth,
    KillHelper,
    KillRoot,
    Pause(&'static str),
    Damage,
    Close,
    DeleteSocket,
    HoldLock,
    Trace,
    Delete,
    Forge,
    FillDisk,
    Jump,
    StarveFiles,
    RemoveCgroup,
    Reboot,
}

const SIGNALS: [(usize, Fault); 7] = [
    (8, Fault::Kill("keeper")),
    (8, Fault::Kill("standby")),
    (8, Fault::KillBoth),
    (1, Fault::KillHelper),
    (3, Fault::KillRoot),
    (4, Fault::Pause("keeper")),
    (3, Fault::Pause("standby")),
];

/// The files of a job that are damaged.
const RECORDS: [&str; 8] = [
    "state.jsonl",
    "spec.json",
    "receipt.json",
    "events.jsonl",
    "launch.private.json",
    "stdout.idx",
    "stderr.idx",
    "stdout.log",
];

/// How long a lock is held that was waited for: longer than a stop waits to see whose it is.
const HELD: Duration = Duration::from_secs(3);

/// Does its worst until it is told that it is enough, and mends what can be mended.
#[derive(Debug)]
pub struct Nemesis<'w> {
    scenario: &'w Scenario,
    metrics: &'w Metrics,
    rng: Rng,
    paused: Vec<Process>,
    tracers: Vec<Child>,
    closed: Vec<PathBuf>,
    /// A process of the env's user that is older than most jobs, and no job's.
    stranger: Option<Stranger>,
    /// Empty cgroups to which records were pointed.
    empty: Vec<PathBuf>,
}

#[derive(Debug)]
struct Stranger {
    child: Child,
    oracle: Oracle,
}

impl Stranger {
    fn start(scenario: &Scenario) -> Option<Stranger> {
        let oracle = Oracle::new();
        let mut words = scenario.env.prefix();
        words.extend(["sleep".to_owned(), oracle.nap()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Stranger { child: command.spawn().ok()?, oracle })
    }

    fn process(&self) -> Option<Process> {
        self.oracle.survivors().into_iter().find(|found| found.command.starts_with("sleep"))
    }

    fn was_hit(&self) -> bool {
        self.process().is_none_or(|process| process.state() == Some('T'))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.oracle.end_survivors();
        let _ = self.child.wait();
    }
}

impl<'w> Nemesis<'w> {
    pub fn new(scenario: &'w Scenario, metrics: &'w Metrics, rng: Rng) -> Nemesis<'w> {
        let stranger = Some(FaultClass::Hostile).filter(|kind| *kind == scenario.fault_class);
        let stranger = stranger.and_then(|_| Stranger::start(scenario));
        let (paused, tracers, closed, empty) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Nemesis { scenario, metrics, rng, paused, tracers, closed, stranger, empty }
    }

    pub fn rage(mut self, enough: &AtomicBool) {
        while !enough.load(Ordering::Relaxed) {
            // Faults have no event to wait for: their instants are drawn.
            thread::sleep(Duration::from_micros(self.rng.below(60_000) as u64));
            let fault = self.draw();
            self.inject(fault);
        }
        self.mend();
    }

    fn draw(&mut self) -> Fault {
        let own: &[(usize, Fault)] = match self.scenario.fault_class {
            FaultClass::Signals => &[],
            FaultClass::Files => &[(16, Fault::Damage), (6, Fault::Close), (6, Fault::DeleteSocket)],
            FaultClass::Disk => &[(16, Fault::FillDisk)],
            FaultClass::Hostile => {
                &[(10, Fault::HoldLock), (8, Fault::Trace), (8, Fault::Delete), (10, Fault::Forge)]
            }
            FaultClass::Host => {
                &[(8, Fault::Jump), (5, Fault::StarveFiles), (6, Fault::RemoveCgroup), (6, Fault::Reboot)]
            }
        };
        let all: Vec<(usize, Fault)> = SIGNALS.iter().chain(own).copied().collect();
        self.rng.weighed(&all)
    }

    fn inject(&mut self, fault: Fault) {
        let env = &self.scenario.env;
        match fault {
            Fault::FillDisk => return self.fill_disk(),
            Fault::Jump => return self.jump(),
            Fault::Damage | Fault::Close => {
                // Any job's, also those that have ended, and what belongs to no job.
                let ids = env.ids("jobs");
                let Some(id) = self.rng.one(&ids).cloned() else { return };
                return if matches!(fault, Fault::Damage) { self.damage(&id) } else { self.close(&id) };
            }
            _ => {}
        }
        let live: Vec<String> = env.ids("live").into_iter().filter(|id| !id.starts_with('.')).collect();
        let Some(id) = self.rng.one(&live).cloned() else { return };
        let job = env.job(&id);
        match fault {
            Fault::Kill(role) => {
                let harm = if role == "keeper" { Harm::Keeper } else { Harm::Standby };
                self.signal(&job, role, "KILL", harm, &format!("{role} killed"));
            }
            Fault::KillBoth => self.kill_both(&job),
            Fault::KillHelper => {
                for helper in quells(&self.scenario.env, "quell-helper").into_iter().take(1) {
                    if helper.signal("KILL") {
                        self.metrics.fault("helper killed");
                    }
                }
            }
            // The record of a job that was taken to another boot, or that was forged, names a bystander.
            Fault::KillRoot if self.scenario.ledger.get(&id).suffered(&[Harm::Reboot, Harm::Forged]) => {}
            Fault::KillRoot => self.signal(&job, "root", "KILL", Harm::Root, "root killed"),
            // The front of a `run` that is stopped does not return, as after Ctrl-Z. That is not promised.
            Fault::Pause("standby") if is_run(&job) => {}
            Fault::Pause(role) => {
                if let Some(process) = job.process(role) {
                    self.signal(&job, role, "STOP", Harm::Stopped, &format!("{role} stopped"));
                    self.paused.push(process);
                }
                // Some are woken soon; the others must be by quell itself, or by the end of it all.
                if self.rng.percent(60) {
                    self.wake();
                }
            }
            Fault::DeleteSocket => {
                self.harm(&id, Harm::Socket);
                if fs::remove_file(job.dir().join("control.sock")).is_ok() {
                    self.metrics.fault("socket deleted");
                }
            }
            Fault::HoldLock => self.hold_lock(&id),
            // The front of a `run` that is traced does not return, as one that is stopped.
            Fault::Trace if is_run(&job) => {}
            Fault::Trace => {
                self.trace(&job);
                if self.rng.percent(60) {
                    self.wake();
                }
            }
            Fault::Delete => self.delete(&job),
            Fault::Forge => self.forge(&job),
            Fault::StarveFiles => self.starve(&job),
            Fault::RemoveCgroup => self.remove_cgroup(&job),
            Fault::Reboot => self.reboot(&job),
            Fault::Damage | Fault::Close | Fault::FillDisk | Fault::Jump => {}
        }
    }

    fn harm(&self, id: &str, harm: Harm) {
        self.scenario.ledger.harm(id, harm);
    }

    fn signal(&self, job: &Background<'_>, role: &str, signal: &str, harm: Harm, name: &str) {
        let Some(process) = job.process(role) else { return };
        self.harm(&job.id, harm);
        if process.signal(signal) {
            self.metrics.fault(name);
        }
    }

    fn kill_both(&self, job: &Background<'_>) {
        let supervisors: Vec<Process> =
            ["keeper", "standby"].iter().filter_map(|role| job.process(role)).collect();
        if supervisors.is_empty() {
            return;
        }
        self.harm(&job.id, Harm::Both);
        let stopped: Vec<bool> = supervisors.iter().map(|process| process.signal("STOP")).collect();
        signal_all("KILL", &supervisors);
        if stopped.contains(&true) {
            self.metrics.fault("both killed");
        }
    }

    /// Waits for the job's lock, and holds it for a while when its keepers are gone. That does no harm: it changes nothing.
    fn hold_lock(&self, id: &str) {
        let Ok(lock) = fs::File::open(self.scenario.env.home().join("live").join(id)) else { return };
        self.metrics.fault("lock held");
        thread::spawn(move || {
            let _ = lock.lock_shared();
            thread::sleep(HELD);
        });
    }

    /// Stops both keepers as a tracer, so that nothing but SIGKILL reaches them.
    fn trace(&mut self, job: &Background<'_>) {
        let (Some(keeper), Some(standby)) = (job.process("keeper"), job.process("standby")) else {
            return;
        };
        self.harm(&job.id, Harm::Stopped);
        self.harm(&job.id, Harm::Both);
        let pids = format!("{},{}", standby.pid, keeper.pid);
        let tracer = Command::new(actor()).args(["trace", "nemesis", &pids]).stderr(Stdio::null()).spawn();
        if let Ok(tracer) = tracer {
            self.tracers.push(tracer);
            quell_tests::eventually(Duration::from_secs(2), || keeper.state() != Some('S'));
            self.metrics.fault("both traced");
        }
    }

    /// Deletes files of a live job. Its keeper makes them again: as long as that one lives, the job is found.
    fn delete(&mut self, job: &Background<'_>) {
        let Some(keeper) = job.process("keeper").filter(|keeper| !is_held_up(keeper)) else { return };
        let live = self.scenario.env.home().join("live").join(&job.id);
        let files = [live, job.dir().join("state.jsonl"), job.dir()];
        let Some(path) = self.rng.one(&files) else { return };
        self.harm(&job.id, Harm::Deleted);
        let deleted = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if deleted.is_err() {
            return;
        }
        self.metrics.fault("files deleted");
        let Some(done) = self.scenario.ask("status", &[&job.id]) else { return };
        // One that was just ending has nothing to make again.
        let lives = || !quell_tests::eventually(Duration::from_secs(3), || !keeper.is_alive());
        if done.code() == Some(3) && lives() && !is_held_up(&keeper) {
            let said = format!("{}{}", done.stdout, done.stderr);
            self.scenario.violation("P6", format!("{} is kept and not found: {said}", job.id));
        }
    }

    /// Rewrites the record as a process of the job can do it, and kills both keepers.
    fn forge(&mut self, job: &Background<'_>) {
        if self.scenario.ledger.get(&job.id).suffered(&[Harm::Forged]) {
            return;
        }
        let (Some(keeper), Some(root)) = (job.process("keeper"), job.process("root")) else { return };
        let supervisors: Vec<Process> = job.process("standby").into_iter().chain([keeper]).collect();
        self.harm(&job.id, Harm::Both);
        self.harm(&job.id, Harm::Forged);
        signal_all("STOP", &supervisors);
        let stranger = self.stranger.as_ref().and_then(Stranger::process);
        let (spec, state) = (job.dir().join("spec.json"), job.dir().join("state.jsonl"));
        let name = match self.rng.below(5) {
            0 => {
                change(&spec, |spec| spec["boot_id"] = "00000000-0000-4000-8000-000000000000".into());
                "forged: another boot"
            }
            1 => {
                let empty = self.make_empty_cgroup(job);
                change(&state, |state| state["tree"]["cgroup"] = empty.display().to_string().into());
                "forged: an empty cgroup"
            }
            2 => {
                let id = self.scenario.some_bystander(&mut self.rng);
                let (pid, start) = id.map_or((1, 1), |id| (id.pid, id.start));
                change(&state, |state| {
                    let ending = serde_json::json!({ "cause": "own_exit", "actor": { "kind": "program" } });
                    state["state"] = "waiting".into();
                    state["last"] = serde_json::json!({
                        "outcome": { "kind": "unknown" }, "ending": ending, "verdict": { "kind": "gone" },
                    });
                    state["tree"]["root"] = serde_json::json!({ "pid": pid, "start": start });
                });
                "forged: waiting, another root"
            }
            // A process that is not older than the job can't be told from a member.
            3 if !self.scenario.ledger.get(&job.id).again => {
                if let Some(stranger) = stranger.filter(|stranger| stranger.start + 1 < root.start) {
                    let named = serde_json::json!([{ "pid": stranger.pid, "start": stranger.start }]);
                    change(&state, |state| state["tree"]["members"] = named);
                }
                "forged: a stranger as a member"
            }
            _ => {
                change(&state, |state| {
                    let ending =
                        serde_json::json!({ "cause": "keeper_lost", "actor": { "kind": "unknown" } });
                    state["state"] = "stopping".into();
                    state["ending"] = ending;
                    state.as_object_mut().map(|state| state.remove("tree"));
                });
                "forged: no root"
            }
        };
        signal_all("KILL", &supervisors);
        self.metrics.fault(name);
    }

    /// An empty cgroup that has the name of the job's own, where one can be made.
    fn make_empty_cgroup(&mut self, job: &Background<'_>) -> PathBuf {
        let record = job.record().unwrap_or_default();
        let cgroup = PathBuf::from(record["tree"]["cgroup"].as_str().unwrap_or("/sys/fs/cgroup/none"));
        let beside = cgroup.with_file_name(format!("beside-{}", job.id));
        let empty = beside.join(format!("quell-{}", job.id));
        if am_root()
            && cgroup.is_dir()
            && fs::create_dir(&beside).and_then(|()| fs::create_dir(&empty)).is_ok()
        {
            if self.scenario.env.user() == User::Ordinary {
                let _ =
                    chown(&beside, Some(NOBODY), Some(NOBODY)).and(chown(&empty, Some(NOBODY), Some(NOBODY)));
            }
            self.empty.push(beside);
        }
        empty
    }

    fn damage(&mut self, id: &str) {
        let mut files: Vec<PathBuf> =
            RECORDS.iter().map(|name| self.scenario.env.home().join("jobs").join(id).join(name)).collect();
        files.push(self.scenario.env.home().join("index.db"));
        files.push(self.scenario.env.home().join("live").join(id));
        let Some(file) = self.rng.one(&files).filter(|file| file.is_file()).cloned() else { return };
        self.harm(id, Harm::Damaged);
        let old = fs::read(&file).unwrap_or_default();
        let new: Vec<u8> = match self.rng.below(4) {
            0 => Vec::new(),
            1 => old[..old.len() / 2].to_vec(),
            2 => (0..64).map(|_| self.rng.next() as u8).collect(),
            _ => {
                let mut new = old.clone();
                for _ in 0..3.min(new.len()) {
                    let at = self.rng.below(new.len());
                    new[at] = self.rng.next() as u8;
                }
                new
            }
        };
        // In place, as a failing disk does it: a process that has it open sees the damage.
        if fs::OpenOptions::new().write(true).truncate(true).open(&file).is_ok_and(|mut file| {
            use std::io::Write;
            file.write_all(&new).is_ok()
        }) {
            self.metrics.fault("record damaged");
        }
    }

    /// Closes a file to its user. Root reads everything, so as root it is replaced by a directory.
    fn close(&mut self, id: &str) {
        let dir = self.scenario.env.home().join("jobs").join(id);
        let Some(file) = self.rng.one(&RECORDS).map(|name| dir.join(name)).filter(|file| file.is_file())
        else {
            return;
        };
        self.harm(id, Harm::Closed);
        if self.scenario.env.user() == User::Root {
            let aside = dir.join(".aside");
            if fs::rename(&file, &aside).is_ok() && fs::create_dir(&file).is_ok() {
                self.metrics.fault("record replaced by a directory");
                let _ = fs::remove_dir(&file);
                let _ = fs::rename(&aside, &file);
            }
        } else if fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).is_ok() {
            self.closed.push(file);
            self.metrics.fault("record closed");
        }
    }

    fn fill_disk(&mut self) {
        if !self.scenario.has_small_disk() {
            return;
        }
        let fill = self.scenario.env.home().join("fill");
        let filled = Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", "status=none"])
            .arg(format!("of={}", fill.display()))
            .stderr(Stdio::null())
            .status();
        if filled.is_ok() {
            self.metrics.fault("disk filled");
        }
        // As long as it takes for something to be hit by it.
        thread::sleep(Duration::from_millis(self.rng.below(80) as u64));
        let _ = fs::remove_file(fill);
    }

    fn jump(&mut self) {
        let by = *self.rng.one(&[-86_400, -3_600, -1, 1, 3_600, 86_400, 400_000_000]).unwrap_or(&0);
        if self.scenario.jump(by) {
            self.metrics.fault("clock jumped");
        }
    }

    fn starve(&mut self, job: &Background<'_>) {
        let role = if self.rng.percent(70) { "keeper" } else { "standby" };
        let Some(process) = job.process(role) else { return };
        // Root may have as many processes as there are.
        let (what, name) = if self.scenario.env.user() == User::Ordinary && self.rng.percent(50) {
            ("--nproc=1:1".to_owned(), "processes ran out")
        } else {
            let limit = 4 + self.rng.below(16);
            (format!("--nofile={limit}:{limit}"), "descriptors ran out")
        };
        self.harm(&job.id, Harm::Files);
        let done = Command::new("prlimit")
            .args(["--pid", &process.pid.to_string(), &what])
            .stderr(Stdio::null())
            .status();
        if done.is_ok_and(|status| status.success()) {
            self.metrics.fault(name);
        }
    }

    /// Moves the job's processes away and removes its cgroup.
    fn remove_cgroup(&self, job: &Background<'_>) {
        let record = job.record().unwrap_or_default();
        let Some(cgroup) = record["tree"]["cgroup"].as_str().map(PathBuf::from).filter(|_| am_root()) else {
            return;
        };
        let Some(above) = cgroup.parent() else { return };
        if !cgroup.is_dir() || !cgroup.to_string_lossy().contains(&job.id) {
            return;
        }
        self.harm(&job.id, Harm::Cgroup);
        for _ in 0..20 {
            let members = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            for pid in members.lines() {
                let _ = fs::write(above.join("cgroup.procs"), pid);
            }
            if fs::remove_dir(&cgroup).is_ok() {
                return self.metrics.fault("cgroup removed");
            }
        }
    }

    /// What a restart of the machine leaves of a job: the record of another boot, and no process. The PIDs in it may
    /// be reused by then: here a bystander has them.
    fn reboot(&mut self, job: &Background<'_>) {
        let id = job.id.clone();
        self.kill_both(job);
        // One that has got its go and is about to become the program does not show yet whose it is. After a restart the
        // record names a bystander.
        let root = job.process("root").filter(|_| !self.scenario.ledger.get(&id).suffered(&[Harm::Reboot]));
        self.harm(&id, Harm::Reboot);
        if let Some(root) = root.filter(|root| root.signal("KILL")) {
            quell_tests::eventually(Duration::from_secs(5), || !root.is_alive());
        }
        for _ in 0..50 {
            let members = self.scenario.members(&id);
            if members.is_empty() {
                break;
            }
            signal_all("KILL", &members);
        }
        let dir = job.dir();
        let stranger = self.scenario.some_bystander(&mut self.rng);
        // Under the job's lock: a process that finishes the job at this moment has read one file and not yet the other, and
        // no machine restarts in between.
        let lock = fs::File::open(self.scenario.env.home().join("live").join(&id));
        let Ok(lock) = lock.and_then(|lock| lock.try_lock().map(|()| lock).map_err(Into::into)) else {
            return;
        };
        change(&dir.join("spec.json"), |spec| {
            spec["boot_id"] = "00000000-0000-4000-8000-000000000000".into()
        });
        if let Some(stranger) = stranger {
            change(&dir.join("state.jsonl"), |state| {
                if state["state"] != "ended" && state["tree"].is_object() {
                    state["tree"]["root"]["pid"] = stranger.pid.into();
                    state["tree"]["root"]["start"] = stranger.start.into();
                }
            });
        }
        self.metrics.fault("reboot");
        drop(lock);
    }

    fn wake(&mut self) {
        signal_all("CONT", &self.paused);
        self.paused.clear();
        for mut tracer in self.tracers.drain(..) {
            let _ = tracer.kill().and_then(|()| tracer.wait());
        }
    }

    fn mend(&mut self) {
        self.wake();
        // Those that stopped themselves at a point.
        let stopped = |process: &Process| process.state() == Some('T');
        let mut all = self.scenario.env.oracle.survivors();
        all.retain(stopped);
        signal_all("CONT", &all);
        for file in self.closed.drain(..) {
            let _ = fs::set_permissions(file, fs::Permissions::from_mode(0o600));
        }
        self.scenario.jump(0);
        if let Some(stranger) = self.stranger.take().filter(Stranger::was_hit) {
            self.scenario.violation("P3", format!("a stranger is gone or stopped: {:?}", stranger.child));
        }
        for beside in self.empty.drain(..) {
            let named = fs::read_dir(&beside).into_iter().flatten().flatten();
            named.for_each(|entry| drop(fs::remove_dir(entry.path())));
            let _ = fs::remove_dir(beside);
        }
    }
}

/// Whether it was stopped, by a signal or by a tracer.
fn is_held_up(process: &Process) -> bool {
    matches!(process.state(), Some('T' | 't'))
}

/// Some of them may be gone; that is the point.
fn signal_all(signal: &str, processes: &[Process]) {
    for process in processes {
        process.signal(signal);
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let Some(mut value) = fs::read(path).ok().and_then(|bytes| quell_tests::last_json(&bytes).ok()) else {
        return;
    };
    change(&mut value);
    let (aside, meta) = (path.with_extension("forged"), fs::metadata(path));
    let written = fs::write(&aside, value.to_string());
    if let Ok(meta) = meta {
        use std::os::unix::fs::MetadataExt;
        let _ = std::os::unix::fs::chown(&aside, Some(meta.uid()), Some(meta.gid()));
        let _ = fs::set_permissions(&aside, meta.permissions());
    }
    if written.and_then(|()| fs::rename(&aside, path)).is_err() {
        let _ = fs::remove_file(&aside);
    }
}

fn is_run(job: &Background<'_>) -> bool {
    let spec = fs::read(job.dir().join("spec.json")).unwrap_or_default();
    serde_json::from_slice::<Value>(&spec).is_ok_and(|spec| spec["request"]["mode"]["foreground"].is_object())
}

/// quell's own processes of this name in the env.
fn quells(env: &quell_tests::test_env::TestEnv, name: &str) -> Vec<Process> {
    let named = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/comm", process.pid)).is_ok_and(|comm| comm.trim() == name)
    };
    env.oracle.survivors().into_iter().filter(named).collect()
}
