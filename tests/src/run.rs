//! The command line of quell as a builder, and the command while it runs and when it is done.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, PipeWriter, Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{oracle::Process, test_env::TestEnv};

/// Long enough for anything that a test waits for on a busy machine. Reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Long enough for the reader of a pipe to see that no process holds it any more. Not [`PATIENCE`]: a chain or a bomb that got
/// away ends by itself after 30 seconds, and that must not pass for quell's work.
pub const READER_PATIENCE: Duration = Duration::from_secs(10);

/// A quell command line in the making.
#[derive(Debug)]
pub struct Quell<'l> {
    test_env: &'l TestEnv,
    program: PathBuf,
    wrapper: Vec<OsString>,
    args: Vec<OsString>,
    command: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Option<File>,
    stdout: Option<File>,
    ready: bool,
}

impl<'l> Quell<'l> {
    pub(crate) fn new(env: &'l TestEnv, verb: &str) -> Quell<'l> {
        Quell {
            test_env: env,
            program: env.quell_path(),
            wrapper: Vec::new(),
            args: vec![verb.into()],
            command: Vec::new(),
            env: Vec::new(),
            stdin: None,
            stdout: None,
            ready: false,
        }
    }

    pub(crate) fn test_env(&self) -> &'l TestEnv {
        self.test_env
    }

    pub(crate) fn says_ready(&self) -> bool {
        self.ready
    }

    /// Another quell than the one under test.
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// More options of the verb.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// The program to run, after `--`.
    pub fn command<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// A shell script as the program.
    pub fn sh(self, script: &str) -> Self {
        self.command(["sh", "-c", script])
    }

    /// A bad actor as the program. It says when its shape is up: [`Running::wait_ready`].
    pub fn actor(mut self, kind: &str, arg: Option<&str>) -> Self {
        self.ready = true;
        let actor = self.test_env.actor_path().into_os_string();
        let words = [actor, kind.into(), self.test_env.oracle.token().into()];
        self.command(words.into_iter().chain(arg.map(OsString::from)))
    }

    /// A bash script as the program, that says when it is ready: `echo ready >$QUELL_TEST_READY`.
    /// `$N` is what to give `sleep` so that the oracle sees it, `$Q` quell, `$A` the actors, `$T` the
    /// token, `$INNER` a state directory for a quell inside.
    pub fn script(mut self, text: &str) -> Self {
        self.ready = true;
        let env = self.test_env;
        self.env("N", env.oracle.nap())
            .env("Q", env.quell_path())
            .env("A", env.actor_path())
            .env("T", env.oracle.token())
            .env("INNER", env.inner_home())
            .command(["bash", "-c", text])
    }

    /// A variable in quell's own environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// The program's stdin, instead of /dev/null.
    pub fn stdin(mut self, file: File) -> Self {
        self.stdin = Some(file);
        self
    }

    /// The program's stdout, instead of a pipe that the harness reads.
    pub fn stdout(mut self, file: File) -> Self {
        self.stdout = Some(file);
        self
    }

    /// Words that come before everything and end in an exec of the rest.
    pub fn wrapped<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// The whole command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = self.wrapper.clone();
        words.extend(self.test_env.prefix().into_iter().map(OsString::from));
        words.push(self.program.clone().into());
        words.extend(self.args.iter().cloned());
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command.iter().cloned());
        }
        words
    }

    /// The command with its environment, for a test that starts it in a way of its own.
    pub fn to_command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.test_env.dir());
        // Not the caller's PATH: it may hold directories that the user can't search.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("QUELL_HOME", self.test_env.home()).env("HOME", self.test_env.dir());
        command.envs(self.test_env.session_variables().iter().cloned());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it as a bare child with nothing to say or to read: for a test that counts microseconds.
    pub fn spawn(self) -> Child {
        let mut command = self.to_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Starts it. The process started is the front, for every wrapper ends in an exec.
    pub fn start(self) -> Running {
        let (send, events) = channel();
        let mut command = self.to_command();
        let fifo = self.ready.then(|| self.test_env.fifo());
        let ready = fifo.map(|path| {
            command.env("QUELL_TEST_READY", &path);
            listen(&path, send.clone())
        });
        command.stdin(self.stdin.map_or_else(Stdio::null, Stdio::from));
        let output = Arc::new(Mutex::new(Vec::new()));
        match self.stdout {
            Some(file) => command.stdout(file),
            None => command.stdout(collect(&output, send.clone())),
        };
        let stderr = self.test_env.fresh("stderr");
        command.stderr(File::create(&stderr).expect("a file for stderr"));
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // The pipe must not stay open here, or its end would never come.
        drop(command);
        let front = Process::now(child.id()).expect("a child stays until it is waited for");
        thread::spawn(move || {
            send.send(Event::Exited(child.wait().expect("wait for quell"), Instant::now()))
        });
        Running { front, events, started, ready, output, stderr, seen: ObservedEvents::default() }
    }

    /// Runs it to its end, which must come within [`PATIENCE`].
    pub fn finish(self) -> Finished {
        self.start().finish()
    }
}

#[derive(Debug)]
enum Event {
    Ready,
    Exited(ExitStatus, Instant),
    OutputClosed,
}

#[derive(Debug, Default)]
struct ObservedEvents {
    ready: bool,
    exited: Option<(ExitStatus, Instant)>,
    output_closed: bool,
}

/// Opened for both directions, so that opening never waits for the other side; the same file lets
/// [`Running`] end the listener.
fn listen(path: &std::path::Path, send: Sender<Event>) -> File {
    let fifo = OpenOptions::new().read(true).write(true).open(path).expect("open the fifo");
    let reader = fifo.try_clone().expect("dup");
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(reader).read_line(&mut line);
        if line == "ready\n" {
            let _ = send.send(Event::Ready);
        }
    });
    fifo
}

/// A pipe that is read to its end. Its end is a second witness beside the oracle: it comes when the
/// last holder is gone, and a fork-and-die chain can't run away from it.
fn collect(output: &Arc<Mutex<Vec<u8>>>, send: Sender<Event>) -> PipeWriter {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut chunk = [0; 8192];
        while let Ok(n @ 1..) = reader.read(&mut chunk) {
            output.lock().expect("no reader panics").extend_from_slice(&chunk[..n]);
        }
        let _ = send.send(Event::OutputClosed);
    });
    writer
}

/// A quell that was started. Dropped, it is killed if it still runs.
#[derive(Debug)]
pub struct Running {
    /// The process that was started.
    pub front: Process,
    /// When it was started.
    pub started: Instant,
    events: Receiver<Event>,
    ready: Option<File>,
    output: Arc<Mutex<Vec<u8>>>,
    stderr: PathBuf,
    seen: ObservedEvents,
}

impl Running {
    /// Waits until the program says `ready`, or quell has ended.
    pub fn wait_ready(&mut self) -> Result<(), String> {
        if self.wait(PATIENCE, |seen| seen.ready || seen.exited.is_some()) {
            Ok(())
        } else {
            Err("the actor's shape did not come up".into())
        }
    }

    /// Waits until the program says `ready`, whatever has become of the quell that was started.
    pub(crate) fn wait_said_ready(&mut self, patience: Duration) -> bool {
        self.wait(patience, |seen| seen.ready)
    }

    /// What came through the pipe of stdout up to now.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no reader panics")).into_owned()
    }

    /// Waits for the front's end.
    pub fn wait_exit(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.wait(patience, |seen| seen.exited.is_some());
        self.seen.exited.map(|(status, _)| status)
    }

    /// Waits until no process holds the pipe of stdout any more.
    pub fn wait_output_closed(&mut self, patience: Duration) -> bool {
        self.wait(patience, |seen| seen.output_closed)
    }

    /// How long the front ran, if it has ended.
    pub fn ran_for(&self) -> Option<Duration> {
        self.seen.exited.map(|(_, when)| when - self.started)
    }

    /// The front's keeper: its child of that name.
    pub fn keeper(&self) -> Option<Process> {
        self.front.children().into_iter().find(|child| {
            std::fs::read_to_string(format!("/proc/{}/comm", child.pid))
                .is_ok_and(|comm| comm.trim() == "quell-keeper")
        })
    }

    /// Kills front and keeper, so that neither can finish the other's work. The front is stopped first.
    pub fn lose(&mut self) -> Result<(), String> {
        let keeper = self.keeper().ok_or("found no keeper below the front")?;
        let lost = self.front.signal("STOP") && keeper.signal("KILL") && self.front.signal("KILL");
        if !lost || self.wait_exit(PATIENCE).is_none() {
            return Err(format!("front and keeper can't be killed: {}", self.stderr()));
        }
        // The keeper is an orphan by now; its new parent may be slow to reap it, but it has to be dead.
        if crate::eventually(PATIENCE, || !keeper.is_alive()) {
            Ok(())
        } else {
            Err("the keeper is still alive".into())
        }
    }

    /// What was written to stderr up to now.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// Waits for the end, which must come within [`PATIENCE`].
    pub fn finish(mut self) -> Finished {
        let Some(status) = self.wait_exit(PATIENCE) else {
            panic!("quell did not return within {PATIENCE:?}; stderr: {}", self.stderr());
        };
        // What was written before the exit is in the pipe; its end shows that all of it was read.
        self.wait_output_closed(READER_PATIENCE);
        Finished {
            status,
            stdout: String::from_utf8_lossy(&self.output.lock().expect("no reader panics")).into_owned(),
            stderr: self.stderr(),
            took: self.ran_for().unwrap_or_default(),
        }
    }

    fn wait(&mut self, patience: Duration, enough: impl Fn(&ObservedEvents) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        while !enough(&self.seen) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Ready) => self.seen.ready = true,
                Ok(Event::Exited(status, when)) => self.seen.exited = Some((status, when)),
                Ok(Event::OutputClosed) => self.seen.output_closed = true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(fifo) = &mut self.ready {
            let _ = fifo.write_all(b"enough\n");
        }
        if self.seen.exited.is_none() {
            self.front.signal("KILL");
        }
    }
}

/// A quell that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How the front ended.
    pub status: ExitStatus,
    /// What came through the pipe of stdout.
    pub stdout: String,
    /// What came on stderr, quell's words and the program's.
    pub stderr: String,
    /// From the start to the exit of the front.
    pub took: Duration,
}

impl Finished {
    /// The exit code, if it was not a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The code as a shell shows it in `$?`: the front may end by the program's own signal, so that a
    /// calling shell sees that it was interrupted.
    pub fn shell_code(&self) -> i32 {
        self.code().unwrap_or_else(|| 128 + self.signal().unwrap_or_default())
    }

    /// The signal that ended the front.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The JSON envelope: the last line of stdout.
    pub fn envelope(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("no envelope ({error}) on stdout: {:?}", self.stdout))
    }
}
