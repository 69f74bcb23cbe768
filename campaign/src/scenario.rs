//! The place of one scenario: a env with a home of its own (on a small disk, where it is to fill up), a clock that can jump,
//! and bystanders that no signal may hit.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use quell_tests::{
    host::{self, Setting},
    oracle::{self, Oracle, Process},
    run::{Finished, Quell},
    test_env::TestEnv,
};

use crate::{ledger::Ledger, rng::Rng, worker_journal::WorkerJournal};

/// No command may take longer, whatever the nemesis does.
pub const BOUND: Duration = Duration::from_secs(60);

/// The faults of a scenario, in addition to the kills that all scenarios have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultClass {
    /// Signals to quell's own processes, and nothing else: then no command has an excuse for failing.
    Signals,
    /// Records are damaged, closed, deleted.
    Files,
    /// The disk is small and fills up.
    Disk,
    /// What a job of the same user can do: its lock is held, its keepers are traced, its files are deleted
    /// or rewritten, and it leaves orphans in a PID namespace that is not its own.
    Hostile,
    /// The wall clock jumps, descriptors and processes run out, cgroups vanish, the machine restarts.
    Host,
}

/// One scenario's place.
#[derive(Debug)]
pub struct Scenario {
    pub env: TestEnv,
    pub setting: Setting,
    pub fault_class: FaultClass,
    pub ledger: Ledger,
    pub journals: PathBuf,
    clock: Option<PathBuf>,
    mounted: bool,
    bystanders: Vec<(Child, PathBuf)>,
    foreign: Option<Foreign>,
    violations: Mutex<Vec<String>>,
    serial: AtomicUsize,
}

impl Scenario {
    pub fn new(setting: Setting, fault_class: FaultClass, rng: &mut Rng) -> Scenario {
        let env = TestEnv::enclosed(setting);
        let journals = env.path("journals");
        fs::create_dir(&journals).expect("a directory for the journals");
        let open = Command::new("chmod").arg("777").arg(&journals).status();
        assert!(open.is_ok_and(|status| status.success()), "chmod");
        let mounted = fault_class == FaultClass::Disk && host::am_root() && mount(&env);
        let clock = (fault_class == FaultClass::Host && rng.percent(50)).then(|| env.write("clock", "0"));
        let ledger = Ledger::default();
        let mut scenario = Scenario {
            env,
            setting,
            fault_class,
            ledger,
            journals,
            clock,
            mounted,
            bystanders: Vec::new(),
            foreign: None,
            violations: Mutex::default(),
            serial: AtomicUsize::new(0),
        };
        for number in 0..3 {
            let bystander = scenario.bystander(number);
            scenario.bystanders.push(bystander);
        }
        if fault_class == FaultClass::Hostile && rng.percent(40) {
            scenario.foreign = Foreign::make(&scenario.env);
        }
        scenario
    }

    /// A shell script that leaves an orphan without an environment in the foreign PID namespace and then executes its
    /// arguments, and the command line of that orphan.
    pub fn enter_foreign(&self) -> Option<(String, String)> {
        let foreign = self.foreign.as_ref()?;
        let orphan = format!("sleep {}{}", foreign.oracle.nap(), self.serial.fetch_add(1, Ordering::Relaxed));
        let script = format!(
            "nsenter -t {} -U -p --preserve-credentials -- sh -c 'setsid env -i {orphan} <&- >&- 2>&- &' \
             2>/dev/null; exec \"$@\"",
            foreign.init.pid
        );
        Some((script, orphan))
    }

    /// The orphan with this command line, if it is alive.
    pub fn orphan(&self, command: &str) -> Option<Process> {
        let all = self.foreign.as_ref()?.oracle.survivors();
        all.into_iter().find(|process| process.command == command)
    }

    /// Ends the foreign namespace and whatever is in it. Its init is not a member of a job: it must be alive until now.
    pub fn end_foreign(&mut self) {
        if let Some(foreign) = self.foreign.take().filter(|foreign| !foreign.init.is_alive()) {
            self.violation("P3", format!("the init of a foreign namespace is gone: {:?}", foreign.init));
        }
    }

    /// Whether a command of quell's may fail because of what it finds, not only because it was killed.
    pub fn is_harsh(&self) -> bool {
        self.fault_class != FaultClass::Signals
    }

    pub fn has_small_disk(&self) -> bool {
        self.mounted
    }

    /// The beginning of a command line in this scenario.
    pub fn quell(&self, verb: &str) -> Quell<'_> {
        let quell = self.env.quell(verb);
        match &self.clock {
            Some(clock) => {
                // A quell without libraries can't be given another clock.
                let quell = match env::var_os("QUELL_CLOCK_BIN") {
                    Some(program) => quell.program(self.env.clocked_path(Path::new(&program))),
                    None => quell,
                };
                quell.env("LD_PRELOAD", self.clock_library()).env("TEST_CLOCK", clock)
            }
            None => quell,
        }
    }

    /// Runs a command that the nemesis does not kill; it has to return.
    pub fn ask(&self, verb: &str, words: &[&str]) -> Option<Finished> {
        let mut running = self.quell(verb).args(words).start();
        if running.wait_exit(BOUND).is_none() {
            let state =
                |process: &Process| format!("{} {:?} {}", process.pid, process.state(), process.command);
            let alive: Vec<String> = self.env.oracle.survivors().iter().map(state).collect();
            self.violation(
                "P8",
                format!("`{verb} {words:?}` did not return in {BOUND:?}; alive: {alive:#?}"),
            );
            return None;
        }
        Some(running.finish())
    }

    /// Sets the wall clock of this scenario off by so many seconds; whether it has one.
    pub fn jump(&self, seconds: i64) -> bool {
        // In place: a reader must not find it missing.
        self.clock.as_ref().is_some_and(|clock| fs::write(clock, format!("{seconds:<12}")).is_ok())
    }

    fn clock_library(&self) -> PathBuf {
        tools().join("clock.so")
    }

    /// The program that the jobs run.
    pub fn worker(&self) -> PathBuf {
        tools().join("worker")
    }

    /// A name that nothing else in this scenario has.
    pub fn fresh(&self) -> String {
        format!("t{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    fn bystander(&self, number: usize) -> (Child, PathBuf) {
        let mut command = Command::new(self.worker());
        // Without the env's token in its words: it is none of those that have to be gone in the end.
        command.arg0("bystander").current_dir(&self.journals).args(["-", ".", &format!("bystander{number}")]);
        let job = format!("bystander{number}");
        command.env("QUELL_JOB", &job).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the worker can be executed");
        let journal = || {
            let entries = fs::read_dir(&self.journals).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.path())
                .find(|path| path.to_string_lossy().contains(&format!("w-{job}-")))
        };
        quell_tests::eventually(quell_tests::run::PATIENCE, || journal().is_some());
        (child, journal().expect("a bystander keeps a journal"))
    }

    /// The identity of one of them.
    pub fn some_bystander(&self, rng: &mut Rng) -> Option<Process> {
        rng.one(&self.bystanders).and_then(|(child, _)| Process::now(child.id()))
    }

    /// Writes down that a promise was broken.
    pub fn violation(&self, promise: &str, what: impl AsRef<str>) {
        let mut all = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(format!("{promise}: {}", what.as_ref()));
    }

    /// What was found, and in the end nothing more.
    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut self.violations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The living processes that were started as a part of this job, by their environment at their start.
    pub fn members(&self, id: &str) -> Vec<Process> {
        let mark = format!("QUELL_JOB={id}");
        let is_member = |process: &Process| {
            fs::read(format!("/proc/{}/environ", process.pid))
                .is_ok_and(|bytes| bytes.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
        };
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(Process::now)
            .filter(|process| is_member(process) && oracle::is_alive(process.pid))
            .collect()
    }

    /// Checks that no bystander was hit.
    pub fn check_bystanders(&mut self) {
        let mut hit = Vec::new();
        for (child, journal) in &mut self.bystanders {
            let ended = child.try_wait();
            if !matches!(ended, Ok(None)) {
                hit.push(format!("a bystander, pid {}, is gone: {ended:?}", child.id()));
            }
            match WorkerJournal::read(journal) {
                Some(journal) if journal.terms + journal.others == 0 => {}
                journal => hit.push(format!("a bystander, pid {}, got signals: {journal:?}", child.id())),
            }
        }
        hit.iter().for_each(|what| self.violation("P3", what));
    }
}

/// Whether a scenario of this campaign has made a foreign PID namespace. From then on the words of root's jobs in all
/// scenarios may name orphans in it: they can be any job's.
static FOREIGN: AtomicBool = AtomicBool::new(false);

/// Whether quell may say this of a verdict because of a foreign namespace.
pub fn is_foreign(said: &str) -> bool {
    FOREIGN.load(Ordering::Relaxed) && said.contains("in another PID namespace")
}

/// A PID namespace that does not belong to a job.
#[derive(Debug)]
struct Foreign {
    oracle: Oracle,
    init: Process,
    child: Child,
}

impl Foreign {
    fn make(env: &TestEnv) -> Option<Foreign> {
        let oracle = Oracle::new();
        let mut words = env.prefix();
        words.extend(["unshare", "-Urfp", "sleep", &oracle.nap()].map(String::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let find = || oracle.survivors().into_iter().find(|found| found.command.starts_with("sleep"));
        let mut exited = || !matches!(child.try_wait(), Ok(None));
        quell_tests::eventually(quell_tests::run::PATIENCE, || find().is_some() || exited());
        let init = find()?;
        FOREIGN.store(true, Ordering::Relaxed);
        Some(Foreign { init, oracle, child })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.oracle.end_survivors();
        let _ = self.child.wait();
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for (child, _) in &mut self.bystanders {
            let _ = child.kill().and_then(|()| child.wait());
        }
        self.env.oracle.end_survivors();
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(self.env.home()).status();
        }
    }
}

/// The campaign's own programs, where every user can reach them. Made once, before there are threads: a program that is open
/// for writing in a child that is about to be can't be executed.
pub fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let token = oracle::Oracle::new().token().to_owned();
        let dir = std::env::temp_dir().join(format!("quell-campaign-{token}"));
        fs::create_dir(&dir).expect("a directory for the programs");
        for file in [host::clock_library(), Path::new(env!("CAMPAIGN_WORKER"))] {
            fs::copy(file, dir.join(file.file_name().unwrap_or_default())).expect("a copy of a program");
        }
        let open = Command::new("chmod").args(["-R", "a+rX"]).arg(&dir).status();
        assert!(open.is_ok_and(|status| status.success()), "chmod");
        dir
    })
}

fn mount(env: &TestEnv) -> bool {
    let made = fs::create_dir(env.home()).is_ok();
    let options = if env.user() == host::User::Root { "" } else { ",uid=65534,gid=65534" };
    made && Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size=4m,mode=0700{options}"), "none"])
        .arg(env.home())
        .status()
        .is_ok_and(|status| status.success())
}
