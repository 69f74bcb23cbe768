//! Where a row is run: a directory of its own, the programs that are measured, and the end of all that was started.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quell_core::Signal;
use quell_sys::{PidFd, Polled, poll_until};

use super::options::Options;
use super::peers::Peers;
use super::row::Outcome;

/// The variable with the environment's token, in the environment of everything that is started here.
const MARK: &str = "QUELL_BENCH";
/// How long a step may take that is not measured.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a command may take at all.
const LIMIT: Duration = Duration::from_secs(90);
/// How often to look at something that has no event. Never within the measured time of a contender.
const LOOK: Duration = Duration::from_micros(300);

/// One row's place.
pub struct BenchEnv<'a> {
    dir: PathBuf,
    token: String,
    quell: PathBuf,
    job: PathBuf,
    /// The tools that quell is measured beside.
    pub peers: &'a Peers,
    /// What was asked for.
    pub options: &'a Options,
    next: Cell<u64>,
    daemons: RefCell<Vec<Child>>,
}

/// Milliseconds since `start`.
pub fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// The monotonic clock, in nanoseconds, as the job program reads it.
pub fn monotonic() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

impl<'a> BenchEnv<'a> {
    pub fn new(quell: &Path, peers: &'a Peers, options: &'a Options) -> Result<Self, String> {
        let random = quell_sys::random_u128().map_err(|why| format!("chance: {why}"))?;
        let token = format!("{}-{random:032x}", std::process::id());
        let dir = std::env::temp_dir().join(format!("quell-bench-{}", &token[..token.len() - 20]));
        fs::create_dir(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
        let job = dir.join("job");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("job.c");
        let env = Self {
            dir,
            token,
            quell: quell.to_owned(),
            job,
            peers,
            options,
            next: Cell::new(0),
            daemons: RefCell::default(),
        };
        let cc = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&env.job).arg(source).status();
        match cc {
            Ok(status) if status.success() => Ok(env),
            Ok(status) => Err(format!("cc could not build the job: {status}")),
            Err(why) => Err(format!("cc: {why}")),
        }
    }

    /// A path here.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The name of its directory, which no other environment has.
    pub fn name(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A path that was not given out before.
    pub fn fresh(&self, name: &str) -> PathBuf {
        self.next.set(self.next.get() + 1);
        self.dir.join(format!("{name}-{}", self.next.get()))
    }

    /// Quell's home.
    pub fn home(&self) -> PathBuf {
        self.dir.join("quell")
    }

    /// The program that is measured.
    pub fn job(&self) -> &Path {
        &self.job
    }

    /// The quell that is measured.
    pub fn program(&self) -> &Path {
        &self.quell
    }

    /// A command that knows nothing of the user's own homes and says nothing.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env(MARK, &self.token)
            .env("HOME", &self.dir)
            .env("XDG_RUNTIME_DIR", &self.dir)
            .env("QUELL_HOME", self.home())
            .env("AGENT_EXEC_ROOT", self.dir.join("agent-exec"))
            .env("PM2_HOME", self.dir.join("pm2"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// `quell VERB…`.
    pub fn quell(&self, words: &[&str]) -> Command {
        let mut command = self.command(&self.quell);
        command.args(words);
        command
    }

    /// `program tree N FILE`, at the end of a command line.
    pub fn tree(&self, count: usize, ready: &Path) -> Vec<String> {
        let word = |path: &Path| path.to_string_lossy().into_owned();
        vec![word(&self.job), "tree".into(), count.to_string(), word(ready)]
    }

    /// A program that goes on for the life of the environment.
    pub fn daemon(&self, mut command: Command) -> Result<(), String> {
        let name = name(&command);
        let child = command.spawn().map_err(|why| format!("{name}: {why}"))?;
        self.daemons.borrow_mut().push(child);
        Ok(())
    }

    /// The processes that carry the environment's token: pinned first, then read again.
    fn marked(&self) -> Vec<PidFd> {
        let is_marked = |pid: u32| quell_sys::variable_lists(pid, MARK, &self.token) == Some(true);
        let own = std::process::id();
        let pids = quell_sys::pids().unwrap_or_default();
        pids.into_iter()
            .filter(|&pid| pid != own && is_marked(pid))
            .filter_map(|pid| PidFd::open(pid).ok())
            .filter(|pin| is_marked(pin.pid()) && pin.is_alive())
            .collect()
    }

    /// Every living process that was started here.
    pub fn pids(&self) -> Vec<u32> {
        self.marked().iter().map(PidFd::pid).collect()
    }

    /// Ends everything that was started here, and says what had to be ended by force.
    pub fn close(self) -> Vec<String> {
        let mut words = Vec::new();
        // A job that has ended costs its keeper less than one that is stopped: thousands may be left.
        let runs_job =
            |pin: &PidFd| fs::read_link(format!("/proc/{}/exe", pin.pid())).is_ok_and(|exe| exe == self.job);
        self.marked().iter().filter(|pin| runs_job(pin)).for_each(|pin| {
            pin.signal(Signal::KILL);
        });
        if self.home().exists() {
            let _ = self.quell(&["stop", "--all", "--now"]).status();
        }
        for mut child in self.daemons.take() {
            // Our own unreaped children: their numbers can't be reused.
            let _ = PidFd::open(child.id()).map(|pin| pin.signal(Signal::TERM));
            let deadline = Instant::now() + Duration::from_secs(10);
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
                sleep(LOOK);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // An orphan may be on its way out.
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.marked().is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
        for pin in self.marked() {
            words.push(format!("was left and is killed: {}", quell_sys::cmdline(pin.pid()).join(" ")));
            pin.signal(Signal::KILL);
        }
        if let Err(why) = fs::remove_dir_all(&self.dir) {
            words.push(format!("{}: {why}", self.dir.display()));
        }
        words
    }
}

/// Runs it to its end, or kills it when it takes too long, so that it does not hold up the other contenders.
fn status(command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    // Our own child, not yet reaped: the number is its own.
    let over = PidFd::open(child.id())
        .and_then(|pin| poll_until(&[Polled::Read(pin.as_fd())], Some(Instant::now() + LIMIT)));
    if !over.is_ok_and(|ready| ready[0]) {
        child.kill()?;
        child.wait()?;
        return Err(std::io::Error::other(format!("not within {LIMIT:?}")));
    }
    child.wait()
}

/// Runs it to its end: how long that took.
pub fn time(mut command: Command) -> Outcome {
    let start = Instant::now();
    let status = status(&mut command);
    let elapsed = ms(start);
    check(&command, status).map(|()| elapsed)
}

/// Runs it to its end, unmeasured.
pub fn finish(mut command: Command) -> Result<(), String> {
    let status = status(&mut command);
    check(&command, status)
}

fn check(command: &Command, status: std::io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
            Err(format!("{} {}: {status}", name(command), words.join(" ")))
        }
        Err(why) => Err(format!("{}: {why}", name(command))),
    }
}

/// What a program is called, wherever it lies: what is said of it may be published.
fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Runs it to its end: what it printed, and how long it took.
pub fn output(mut command: Command) -> Result<(String, f64), String> {
    let start = Instant::now();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let elapsed = ms(start);
    let program = name(&command);
    match output {
        Ok(output) if output.status.success() => {
            Ok((String::from_utf8_lossy(&output.stdout).trim().to_owned(), elapsed))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program}: {}: {}", output.status, said.lines().next().unwrap_or_default()))
        }
        Err(why) => Err(format!("{program}: {why}")),
    }
}

/// Waits for a file that a job writes when it is up, and gives what it says. No part of any figure.
pub fn ready(file: &Path) -> Result<u32, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = fs::read_to_string(file) {
            let _ = fs::remove_file(file);
            return text.trim().parse().map_err(|why| format!("{}: {why}", file.display()));
        }
        if Instant::now() > deadline {
            return Err("the job did not get ready".into());
        }
        sleep(LOOK);
    }
}

/// Waits until something holds. No part of any figure.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("not within {PATIENCE:?}: {what}"));
        }
        sleep(LOOK);
    }
    Ok(())
}
