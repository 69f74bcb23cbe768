//! The helper of a job: a process beside the keeper that runs hooks and looks for readiness where that may take its time.
//! A job in the foreground has one only if hooks are configured. It is no relative of the tree, so what it starts can't be taken for the job's; each of its commands is a
//! `quell run` of its own, with its own time limit, and leaves nothing behind. Nothing that fails here harms the job.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use quell_core::{
    EventKind, Hook, HookAction, HookEvent, JobEvent, JobId, ReadyCheck, Signal, format_duration,
};
use quell_store::{Home, JobDir, now};
use quell_sys::fault::{self, FaultPoint, Role, fault_point};
use quell_sys::{Forked, PidFd, Polled, SignalFd, Sources};
use serde::{Deserialize, Serialize};

use super::ready::{Found, Probe};
use super::wire::JsonChannel;

/// The name of a helper.
const HELPER_NAME: &str = "quell-helper";

/// What any pipe takes without a reader.
const PIPE_TAKES: usize = 4096;

/// From the keeper to its helper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Something happened that hooks wait for.
    Event(Box<JobEvent>),
    /// A run of the program has begun: look for readiness.
    Probe,
    /// The answer over HTTP was a stranger's: ask again.
    AskAgain,
    /// The run is over: look no more.
    Rest,
}

/// From the helper to the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum HelperNote {
    /// A probe has succeeded.
    Found(Found),
}

/// What a helper knows of its job.
pub struct Brief<'a> {
    /// Where a failed hook is noted, if the job has a record.
    pub job: Option<&'a JobDir>,
    /// What may be shown of the job's command.
    pub command: Vec<String>,
    pub cwd: Option<&'a Path>,
    pub environment: &'a [(OsString, OsString)],
    pub hooks: &'a [Hook],
    pub ready: &'a ReadyCheck,
}

impl Brief<'_> {
    /// The JSON object that a hook gets, as a line: the event, and what it does not say itself of the job.
    fn payload(&self, event: &JobEvent) -> io::Result<Vec<u8>> {
        let mut payload = serde_json::to_value(event)?;
        let more = [
            ("command", serde_json::to_value(&self.command)?),
            ("cause", serde_json::to_value(event.what.cause())?),
        ];
        if let Some(object) = payload.as_object_mut() {
            for (key, value) in more.into_iter().filter(|(_, value)| !value.is_null()) {
                object.entry(key).or_insert(value);
            }
        }
        let mut bytes = serde_json::to_vec(&payload)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Tells the helper at the other end of `line` of an event, if one of `hooks` waits for it.
pub fn tell(line: &mut JsonChannel, hooks: &[Hook], event: &JobEvent) {
    let is_awaited = |at: HookEvent| hooks.iter().any(|hook| hook.on.contains(&at));
    if event.what.hook_event().is_some_and(is_awaited) {
        // A helper that is gone, or so far behind that its line is full, does no more.
        let _ = line.mention(&Task::Event(Box::new(event.clone())));
    }
}

/// Starts a helper and gives the line to it; none where there is nothing to do for one.
///
/// It is forked twice, before this process is a subreaper: its parent is whoever reaps orphans above us.
pub fn start(brief: &Brief<'_>) -> io::Result<Option<JsonChannel>> {
    if brief.hooks.is_empty() && brief.ready.rules.http.is_none() && brief.ready.rules.cmd.is_none() {
        return Ok(None);
    }
    let (line, helpers) = JsonChannel::pair()?;
    match quell_sys::fork()? {
        Forked::Parent(between) => {
            quell_sys::wait_exit(between.pid())?;
            quell_sys::reap(between.pid())?;
            Ok(Some(line))
        }
        Forked::Child => {
            drop(line);
            if let Ok(Forked::Child) = quell_sys::fork() {
                quell_sys::set_name(HELPER_NAME);
                fault::act_as(Role::Helper);
                fault_point(FaultPoint::HelperBegun);
                // The lock is the keeper's: a hook that takes its time must not look like one that lives. The caller's
                // pipes, terminal and directory must not be kept busy by hooks either.
                quell_sys::keep_open_only(helpers.as_fd());
                let _ = quell_sys::redirect_to_null(true, true, true);
                let _ = quell_sys::leave_session();
                let _ = std::env::set_current_dir("/");
                if let Ok(signals) = SignalFd::new(&[Signal::CHLD]) {
                    Helper {
                        brief,
                        line: helpers,
                        signals,
                        running: Vec::new(),
                        probing: Vec::new(),
                        asking: None,
                        next: None,
                    }
                    .serve();
                }
            }
            std::process::exit(0)
        }
    }
}

/// What became of a job whose keepers were lost, for its hooks.
#[derive(Debug, Serialize, Deserialize)]
pub struct News {
    /// Where its record is.
    #[serde(with = "quell_core::paths::whole")]
    pub home: PathBuf,
    /// Which job.
    pub job: JobId,
    /// What happened.
    pub events: Vec<JobEvent>,
}

/// The whole life of a process that has a helper tell the hooks of a lost job.
///
/// Before: this process was executed for nothing else, and has one thread. The guard admits the hooks.
pub fn tell_hooks(news: News) -> ExitCode {
    let _ = quell_sys::redirect_to_null(true, true, true);
    let _ = quell_sys::leave_session();
    quell_sys::restore_default(Signal::CHLD);
    fault::work_for(&news.job);
    let job = Home::at(news.home).job(news.job);
    let Ok(spec) = job.spec() else { return ExitCode::FAILURE };
    // What the specification has of them may be masked.
    let hooks = match job.launch() {
        Ok(launch) => launch.request.hooks,
        Err(_) if spec.request.mask.is_empty() => spec.request.hooks.clone(),
        Err(_) => return ExitCode::FAILURE,
    };
    let brief = Brief {
        job: Some(&job),
        command: spec.request.words(),
        cwd: None,
        environment: &[],
        hooks: &hooks,
        ready: &ReadyCheck::default(),
    };
    if let Ok(Some(mut line)) = start(&brief) {
        for event in news.events {
            // A helper that is gone does no more.
            let _ = line.say(&Task::Event(Box::new(event)));
        }
    }
    ExitCode::SUCCESS
}

/// A command of ours that runs.
struct Running {
    child: Child,
    what: What,
}

enum What {
    Hook {
        name: String,
        at: HookEvent,
        run: u32,
    },
    Probe,
    /// A probe of a run that is over.
    Abandoned,
}

struct Helper<'a> {
    brief: &'a Brief<'a>,
    line: JsonChannel,
    signals: SignalFd,
    running: Vec<Running>,
    probing: Vec<Probe>,
    /// The thread that waits for an answer by HTTP says here how it went.
    asking: Option<UnixStream>,
    next: Option<Instant>,
}

/// What a helper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelperSource {
    Signals,
    Probe,
    Channel,
}

impl Helper<'_> {
    fn serve(&mut self) {
        let mut closed = false;
        while !closed || !self.running.is_empty() {
            let mut sources = Sources::default();
            sources.add(HelperSource::Signals, Polled::Read(self.signals.as_fd()));
            let asking = self.asking.as_ref().map(|asking| Polled::Read(asking.as_fd()));
            sources.add_any(HelperSource::Probe, asking);
            sources.add_any(HelperSource::Channel, (!closed).then(|| Polled::Read(self.line.as_fd())));
            let Ok(ready) = sources.wait(self.next) else { return };
            while self.signals.next().is_some() {}
            self.collect();
            if ready.has(HelperSource::Probe) {
                self.hear_answer();
            }
            if ready.has(HelperSource::Channel) {
                let arrived = self.line.hear::<Task>();
                arrived.messages.into_iter().for_each(|task| self.take(task));
                closed = arrived.closed;
            }
            if closed {
                self.rest();
            }
            if self.next.is_some_and(|next| next <= Instant::now()) {
                self.probe();
            }
        }
    }

    fn take(&mut self, task: Task) {
        fault_point(FaultPoint::TaskHeard);
        match task {
            Task::Event(event) => self.on_event(&event),
            Task::Probe => {
                let ready = &self.brief.ready.rules;
                self.probing.clear();
                self.probing.extend(ready.http.as_ref().map(|_| Probe::Http));
                self.probing.extend(ready.cmd.as_ref().map(|_| Probe::Cmd));
                self.next = (!self.probing.is_empty()).then(Instant::now);
            }
            Task::AskAgain => {
                self.probing.push(Probe::Http);
                self.next.get_or_insert_with(|| Instant::now() + self.brief.ready.interval);
            }
            Task::Rest => self.rest(),
        }
    }

    fn rest(&mut self) {
        self.probing.clear();
        (self.next, self.asking) = (None, None);
        for running in self.running.iter_mut().filter(|running| matches!(running.what, What::Probe)) {
            running.what = What::Abandoned;
            // It is our child and not collected yet, so the number is its own. It stops what it has started.
            if let Ok(probe) = PidFd::open(running.child.id()) {
                probe.signal(Signal::TERM);
            }
        }
    }

    fn on_event(&mut self, event: &JobEvent) {
        let Some(at) = event.what.hook_event() else { return };
        for hook in self.brief.hooks.iter().filter(|hook| hook.on.contains(&at)) {
            let done = match &hook.action {
                HookAction::Run(argv) => self.run_hook(argv, hook.timeout, event, at),
                HookAction::Append(file) => self.brief.payload(event).and_then(|line| append(file, &line)),
            };
            if let Err(error) = done {
                self.failed(&describe(&hook.action), at, event.run, error.to_string());
            }
        }
    }

    fn run_hook(
        &mut self,
        argv: &[String],
        timeout: Duration,
        event: &JobEvent,
        at: HookEvent,
    ) -> io::Result<()> {
        let mut command = quell_run(timeout);
        command.args(argv).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.brief.payload(event)?;
            let bytes_fit = bytes.len() <= PIPE_TAKES;
            // A hook that doesn't read it has not failed.
            let mut write = move || drop(stdin.write_all(&bytes));
            if bytes_fit {
                write();
            } else {
                // The hook's end closes the pipe.
                quell_sys::thread().spawn(write)?;
            }
        }
        let name = describe(&HookAction::Run(argv.to_vec()));
        self.running.push(Running { child, what: What::Hook { name, at, run: event.run } });
        Ok(())
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].child.try_wait() {
                Ok(None) => at += 1,
                ended => {
                    let running = self.running.swap_remove(at);
                    let code = ended.ok().flatten().and_then(|status| status.code());
                    match running.what {
                        What::Hook { name, at, run } if code != Some(0) => {
                            let why = code.map_or("it was killed".into(), why_of);
                            self.failed(&name, at, run, why);
                        }
                        What::Hook { .. } => {}
                        What::Probe if code == Some(0) => self.found(Found::Success),
                        What::Probe | What::Abandoned => {}
                    }
                }
            }
        }
    }

    fn probe(&mut self) {
        if self.probing.contains(&Probe::Http)
            && self.asking.is_none()
            && let Some(url) = &self.brief.ready.rules.http
        {
            self.asking = ask(url, self.brief.ready.timeout).ok();
        }
        let runs = self.running.iter().any(|running| matches!(running.what, What::Probe));
        if self.probing.contains(&Probe::Cmd)
            && !runs
            && let Some(text) = &self.brief.ready.rules.cmd
        {
            self.try_command(text);
        }
        // Neither a server nor a command tells when it will be ready.
        self.next = (!self.probing.is_empty()).then(|| Instant::now() + self.brief.ready.interval);
    }

    fn hear_answer(&mut self) {
        let mut said = String::new();
        let heard = self.asking.take().is_some_and(|mut asking| asking.read_to_string(&mut said).is_ok());
        if let Some(address) = said.parse().ok().filter(|_| heard) {
            self.found(Found::Answer(address));
        }
    }

    fn try_command(&mut self, text: &str) {
        let mut command = quell_run(self.brief.ready.timeout);
        command.args(["/bin/sh", "-c", text]).env_clear().envs(self.brief.environment.iter().cloned());
        command.stdin(Stdio::null()).current_dir(self.brief.cwd.unwrap_or("/".as_ref()));
        if let Ok(child) = command.spawn() {
            self.running.push(Running { child, what: What::Probe });
        }
    }

    fn found(&mut self, found: Found) {
        if self.probing.contains(&found.probe()) {
            self.probing.retain(|other| *other != found.probe());
            let _ = self.line.mention(&HelperNote::Found(found));
        }
    }

    fn failed(&self, hook: &str, at: HookEvent, run: u32, why: String) {
        let what = EventKind::HookFailed { hook: hook.to_owned(), at, why };
        // Where not even this can be written, there is no one else to report it to.
        if let Some((job, spec)) = self.brief.job.and_then(|job| Some((job, job.spec().ok()?))) {
            let _ = job.log_event(&JobEvent::new(&spec, now(), run, what));
        }
    }
}

/// `quell run` with the options that all our commands have; its output goes nowhere.
fn quell_run(timeout: Duration) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("quell").args(["run", "--quiet", "--no-record", "--grace", "1s"]);
    // What is less than can be written must not be none at all.
    let timeout = timeout.max(Duration::from_millis(1));
    command.args(["--timeout", &format_duration(timeout), "--"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // Its path may be meant from another directory than ours.
    command.env_remove(fault::LOG_VARIABLE);
    command
}

/// Whether this process was started by a hook, at whatever depth. What a hook runs has no hooks: else one that calls quell
/// would call itself without end.
pub fn is_below_a_helper() -> bool {
    let above = |pid: u32| quell_sys::stat(pid).and_then(|stat| quell_sys::stat(stat.ppid)).ok();
    std::iter::successors(above(quell_sys::pid()), |stat| above(stat.pid))
        .any(|stat| stat.comm == HELPER_NAME && quell_sys::same_executable_file(stat.pid, quell_sys::pid()))
}

fn why_of(code: i32) -> String {
    match code {
        122 => "what it started is not proven dead".into(),
        124 => "it took too long".into(),
        126 => "it can't be executed".into(),
        127 => "it can't be found".into(),
        code => format!("exit code {code}"),
    }
}

fn describe(action: &HookAction) -> String {
    match action {
        HookAction::Run(argv) => argv.join(" "),
        HookAction::Append(file) => format!("append to {}", file.display()),
    }
}

/// Appends `line` to `file`. A fifo that nobody reads is an error, and not waited for.
fn append(file: &Path, line: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(quell_sys::OPEN_NONBLOCK);
    options.open(file)?.write_all(line)
}

/// Asks in a thread, which says where a good answer came from: a name server and the server itself may be slow, and hooks must
/// not wait for them.
fn ask(url: &str, patience: Duration) -> io::Result<UnixStream> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let url = url.to_owned();
    quell_sys::thread().spawn(move || {
        if let Some(address) = answers(&url, patience) {
            let _ = write!(theirs, "{address}");
        }
    })?;
    Ok(ours)
}

/// Where `http://host[:port]/path` answers with a status from 200 to 399.
fn answers(url: &str, patience: Duration) -> Option<SocketAddr> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    // The first that answers at all counts.
    let status = |address| Some((address, status_at(&address, host, path, patience).ok()?));
    let (address, status) = address.to_socket_addrs().ok()?.find_map(status)?;
    (200..400).contains(&status).then_some(address)
}

fn status_at(address: &SocketAddr, host: &str, path: &str, patience: Duration) -> io::Result<u16> {
    let deadline = Instant::now() + patience;
    let mut stream = TcpStream::connect_timeout(address, patience)?;
    stream.set_write_timeout(Some(patience))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nUser-Agent: quell\r\n\r\n")?;
    // `HTTP/1.1 200` and what ends the number: all that is wanted.
    let mut head = [0u8; 13];
    let mut got = 0;
    while got < head.len() {
        // The time is for all of it: a server may send a byte now and then.
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut head[got..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length if left.is_zero() => return Err(io::Error::other(format!("only {length} bytes in time"))),
            length => got += length,
        }
    }
    status_in(&head).ok_or(io::ErrorKind::InvalidData.into())
}

/// The status in the beginning of an answer: three digits behind the version.
fn status_in(head: &[u8; 13]) -> Option<u16> {
    let text = std::str::from_utf8(head).ok()?;
    let (status, end) = text.strip_prefix("HTTP/1.")?.get(2..)?.split_at(3);
    let is_number = status.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && matches!(end, " " | "\r" | "\n") { status.parse().ok() } else { None }
}
