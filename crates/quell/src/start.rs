//! Starting a job in the background.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quell_core::{
    Background, Contain, Hook, JobId, Leak, Limits, Mask, OnOwnerExit, Owner, ProcId, ReadyRules,
    RestartRules, Stdin, StopPlan, Until,
};
use quell_keeper::{BackgroundRequest, Environment, RunError, RunRequest, StartReply, TestTerms};
use quell_store::{Home, Liveness};
use quell_sys::fault::{self, FaultPoint, fault_point};

use crate::{Error, Job, Quell, Result};

/// The verb by which a keeper is executed.
pub const KEEP_VERB: &str = "__keep";

/// How long a start may take: two talks with the user's systemd, on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The variables that name a job to its processes, and mark them.
const OWN_VARIABLES: [&str; 2] = ["QUELL_JOB", "QUELL_MARK"];
/// How often in a row a name may be found with a job that was lost just then.
const LOST_NAMESAKES: usize = 3;
/// The variable that names the session which jobs are part of.
const SESSION: &str = "QUELL_SESSION";

/// What a job reads on its standard input.
#[derive(Clone, Debug, Default)]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// A file.
    File(PathBuf),
    /// What this process reads on its own. The job gets the descriptor itself; nothing is read here.
    Inherit,
    /// What is sent with [`Job::send`].
    Pipe,
}

/// What to start, and how. [`Start::new`] has the defaults; the fields are there to be changed.
///
/// ```no_run
/// # fn main() -> quell::Result<()> {
/// use std::time::Duration;
/// let mut start = quell::Start::new(["npm", "run", "dev"]);
/// start.name = Some("web".into());
/// start.ready.port = Some(3000);
/// start.timeout = Some(Duration::from_secs(3600));
/// let job = quell::Quell::new()?.start(&start)?;
/// println!("{}", job.id());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Start {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Where it starts; the current directory if not given.
    pub cwd: Option<PathBuf>,
    /// Its environment.
    pub environment: Environment,
    /// How it is held.
    pub contain: Contain,
    /// What it may use.
    pub limits: Limits,
    /// How it is stopped.
    pub plan: StopPlan,
    /// When a run of it is stopped at the latest.
    pub timeout: Option<Duration>,
    /// What ends it.
    pub until: Until,
    /// What to do about what outlives the root; only noted, as stopping it is part of each.
    pub leak: Leak,
    /// A name, unique among live jobs.
    pub name: Option<String>,
    /// Labels for queries.
    pub tags: BTreeMap<String, String>,
    /// The session that it is part of; that of QUELL_SESSION if not given.
    pub session: Option<String>,
    /// What it reads.
    pub stdin: Input,
    /// Whether its standard streams are a terminal.
    pub pty: bool,
    /// How many bytes of each stream are kept.
    pub max_log: u64,
    /// What shows that it is ready.
    pub ready: ReadyRules,
    /// How often readiness is looked for where nothing tells of it.
    pub ready_interval: Duration,
    /// How long one such look may take.
    pub ready_timeout: Duration,
    /// When it is started again.
    pub restart: RestartRules,
    /// The process that it lives for; see [`owner_process`]. A job that is started inside a job lives for that one if
    /// nothing is given here.
    pub owner: Option<ProcId>,
    /// What becomes of it when its owner is gone.
    pub on_owner_exit: OnOwnerExit,
    /// How long it may live in all, restarts included.
    pub ttl: Option<Duration>,
    /// What is done at its events.
    pub hooks: Vec<Hook>,
    /// The variables whose values are shown nowhere.
    pub mask: Vec<String>,
}

/// How many bytes of each stream are kept by default.
pub const MAX_LOG: u64 = 64 * 1024 * 1024;

impl Start {
    /// A command with the defaults for everything else.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            cwd: None,
            environment: Environment::default(),
            contain: Contain::default(),
            limits: Limits::default(),
            plan: StopPlan::default(),
            timeout: None,
            until: Until::default(),
            leak: Leak::default(),
            name: None,
            tags: BTreeMap::new(),
            session: None,
            stdin: Input::default(),
            pty: false,
            max_log: MAX_LOG,
            ready: ReadyRules::default(),
            ready_interval: Duration::from_millis(250),
            ready_timeout: Duration::from_secs(5),
            restart: RestartRules::default(),
            owner: None,
            on_owner_exit: OnOwnerExit::default(),
            ttl: None,
            hooks: Vec::new(),
            mask: Vec::new(),
        }
    }

    fn check(&self) -> Result<()> {
        let bad = |why: String| Err(Error::BadValue(why));
        if let Some(name) = &self.name
            && !quell_store::is_name(name)
        {
            return bad(format!("`{name}` is no name: use 1 to 64 letters, digits, `.`, `-` or `_`"));
        }
        if let Some(session) = &self.session
            && !quell_store::is_name(session)
        {
            return bad(format!("`{session}` is no session: use 1 to 64 letters, digits, `.`, `-` or `_`"));
        }
        if let Some(text) = &self.ready.log
            && let Err(error) = regex_lite::Regex::new(text)
        {
            return bad(format!("`{text}` is no regular expression: {error}"));
        }
        if let Some(url) = &self.ready.http
            && url.contains(|letter: char| letter.is_whitespace() || letter.is_control())
        {
            let url = quell_core::printable(url);
            return bad(format!("`{url}` has a space or a control character: write %20 for a space"));
        }
        if let Some(url) = &self.ready.http
            && !can_be_asked(url)
        {
            return bad(format!("`{url}` can't be asked: write http://HOST:PORT/PATH"));
        }
        if self.max_log < quell_store::MIN_CAP {
            return bad(format!("a log of {} bytes is too small: give at least 4K", self.max_log));
        }
        if self.pty && !matches!(self.stdin, Input::Null | Input::Pipe) {
            return bad("a terminal is its own standard input: leave --stdin out".into());
        }
        Ok(())
    }

    /// What a keeper is asked, and what the job reads, opened.
    fn request(&self, home: &Home) -> Result<(RunRequest, OwnedFd)> {
        self.check()?;
        let (stdin, stdin_file, given) = self.open_stdin()?;
        let session = match &self.session {
            Some(session) => Some(session.clone()),
            None => own_session()?,
        };
        let environment = self.whole_environment(session.as_deref());
        let mask = Mask::new(&self.mask, &environment.set);
        for (what, text) in [("name", &self.name), ("session", &session)] {
            // Others find the job by it, and files are called so.
            if text.as_ref().is_some_and(|text| mask.hides(text)) {
                let why = format!("the {what} holds a value that is to be masked: choose another {what}");
                return Err(Error::BadValue(why));
            }
        }
        let outer = outer_job(home);
        let owner = match (self.owner, outer) {
            (Some(id), _) => Some(Owner::Process { id }),
            (None, Some(job)) => Some(Owner::Job { job }),
            (None, None) => None,
        };
        let rules = Background {
            stdin,
            pty: self.pty,
            max_log: self.max_log,
            ready: self.ready.clone(),
            restart: self.restart,
            owner,
            on_owner_exit: self.on_owner_exit,
            ttl: self.ttl,
            hooks: self.hooks.clone(),
            mask: self.mask.clone(),
            restarted_from: None,
        };
        let cwd = match &self.cwd {
            Some(dir) => std::path::absolute(dir).map_err(Error::io(dir))?,
            None => std::env::current_dir()
                .map_err(|error| RunError::Cwd { path: ".".into(), error: error.to_string() })?,
        };
        let request = RunRequest {
            id: None,
            command: self.command.clone(),
            cwd: Some(cwd),
            environment,
            contain: self.contain,
            limits: self.limits,
            plan: self.plan,
            timeout: self.timeout,
            until: self.until,
            leak: self.leak,
            name: self.name.clone(),
            tags: self.tags.clone(),
            receipts: Vec::new(),
            uses_stdout: false,
            home: Some(home.dir().to_owned()),
            stdin: None,
            owner: None,
            hooks: Vec::new(),
            mask: Vec::new(),
            background: Some(BackgroundRequest {
                rules,
                session,
                stdin_file,
                nested: is_inside_a_job(),
                ready_interval: self.ready_interval,
                ready_timeout: self.ready_timeout,
                test: None,
            }),
        };
        Ok((request, given))
    }

    /// The same for a test run.
    pub(crate) fn test_request(&self, home: &Home, terms: TestTerms) -> Result<(RunRequest, OwnedFd)> {
        let (mut request, stdin) = self.request(home)?;
        if let Some(background) = &mut request.background {
            background.test = Some(terms);
        }
        Ok((request, stdin))
    }

    fn open_stdin(&self) -> Result<(Stdin, Option<PathBuf>, OwnedFd)> {
        let null = || File::open("/dev/null").map(OwnedFd::from).map_err(Error::io("/dev/null"));
        Ok(match &self.stdin {
            Input::Null => (Stdin::Null, None, null()?),
            Input::Pipe => (Stdin::Pipe, None, null()?),
            Input::Inherit => {
                let own = std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::io("/dev/stdin"))?;
                (Stdin::Given, None, own)
            }
            Input::File(path) => {
                let absolute = std::path::absolute(path).map_err(Error::io(path))?;
                let file = open_input(&absolute)?;
                (Stdin::Given, Some(absolute), file)
            }
        })
    }

    /// All variables that the job gets, but those by which quell marks it.
    fn whole_environment(&self, session: Option<&str>) -> Environment {
        let mut all = self.environment.variables();
        let own = || OWN_VARIABLES.iter().chain(fault::VARIABLES);
        all.retain(|key, _| own().all(|own| key.as_os_str() != OsStr::new(own)));
        if let Some(session) = session {
            all.insert(SESSION.into(), session.into());
        }
        Environment { clear: true, set: all.into_iter().collect() }
    }
}

/// Whether `url` is http://HOST[:PORT][/PATH], with a port that there can be.
fn can_be_asked(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let place = rest.split('/').next().unwrap_or_default();
    // In brackets there are colons that are none of a port.
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (place, None),
    };
    !host.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Opens what a job is to read. A fifo that nobody writes to is waited for by the program, not here.
pub(crate) fn open_input(path: &Path) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| RunError::Stdin { path: path.to_owned(), error: error.to_string() };
    Ok(quell_sys::open_to_read(path).map_err(failed)?)
}

/// The session that the environment names.
fn own_session() -> Result<Option<String>> {
    let Some(session) = std::env::var_os(SESSION).filter(|name| !name.is_empty()) else { return Ok(None) };
    match session.into_string() {
        Ok(session) if quell_store::is_name(&session) => Ok(Some(session)),
        Ok(session) => Err(bad_session(&session)),
        Err(session) => Err(bad_session(&session.to_string_lossy())),
    }
}

fn bad_session(session: &str) -> Error {
    Error::Variable {
        name: SESSION.into(),
        // It may hold what a terminal would obey.
        message: format!("{session:?} is no session"),
        hint: "use 1 to 64 letters, digits, `.`, `-` or `_`, or unset it".into(),
    }
}

/// Whether this process is part of a job.
pub fn is_inside_a_job() -> bool {
    std::env::var_os("QUELL_MARK").is_some_and(|mark| !mark.is_empty())
}

/// The job that this process is part of, if it lives.
fn outer_job(home: &Home) -> Option<JobId> {
    let id: JobId = std::env::var("QUELL_JOB").ok()?.parse().ok()?;
    matches!(home.job(id).liveness(), Ok(Liveness::Supervised)).then_some(id)
}

/// Whether an owner is still there.
pub(crate) fn owner_lives(home: &Home, owner: &Owner) -> bool {
    let id = match owner {
        Owner::Process { id } => Some(*id),
        Owner::Job { job } => home.job(*job).record().ok().and_then(|record| record.keeper),
    };
    id.is_some_and(quell_contain::is_alive)
}

/// The identity of the process `pid`, to be given as [`Start::owner`].
pub fn owner_process(pid: u32) -> Result<ProcId> {
    let stat = quell_sys::stat(pid).map_err(|_| RunError::OwnerGone(format!("there is no process {pid}")))?;
    Ok(ProcId { pid, start: stat.start })
}

/// The parent of the process `pid`. In a container process 1 can be a parent like any other; elsewhere it is the parent of
/// those whose own has exited.
pub fn parent_of(pid: u32) -> Result<u32> {
    match quell_sys::stat(pid) {
        Ok(stat) if stat.ppid > 1 => Ok(stat.ppid),
        Ok(stat) if stat.ppid == 1 && !quell_sys::in_first_pid_namespace() => Ok(1),
        Ok(_) | Err(_) => {
            Err(RunError::OwnerGone(format!("process {pid} has no parent that could be one")).into())
        }
    }
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Start(RunError::System { what: what.into(), error: error.to_string() })
}

impl Quell {
    /// Starts a job: when this returns, the program runs, held and on record. With an error nothing runs, and nothing is
    /// left behind.
    ///
    /// The keeper is another process, made by exec: this one is not forked, however many threads and how much memory it
    /// has.
    pub fn start(&self, start: &Start) -> Result<Job> {
        let program =
            start.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let passed = self.admit("start", &program)?;
        let started =
            start.request(self.home()).and_then(|(request, stdin)| self.start_request(&request, stdin));
        passed.started(&program, &started);
        started
    }

    /// Starts a test run that the guard has admitted.
    pub fn start_tests(&self, start: &Start, terms: TestTerms) -> Result<Job> {
        let (request, stdin) = start.test_request(self.home(), terms)?;
        let id = self.start_request(&request, stdin)?.id();
        Ok(Self { started: Some(id), ..self.clone() }.job_with(id))
    }

    /// Starts it. If its name is that of a job that was lost, that one is finished first.
    pub(crate) fn start_request(&self, request: &RunRequest, stdin: OwnedFd) -> Result<Job> {
        for _ in 0..LOST_NAMESAKES {
            let stdin = stdin.try_clone().map_err(failed("keep its standard input"))?;
            match self.try_start(request, stdin) {
                Err(Error::Start(RunError::NameTaken { by, .. }))
                    if crate::settle_lost(&self.home().job(by))? => {}
                other => return other,
            }
        }
        self.try_start(request, stdin)
    }

    fn try_start(&self, request: &RunRequest, stdin: OwnedFd) -> Result<Job> {
        let mut bytes = serde_json::to_vec(request)
            .map_err(|error| Error::BadValue(format!("the request can't be passed on: {error}")))?;
        bytes.push(b'\n');
        let (ours, theirs) = UnixStream::pair().map_err(failed("make a socket pair"))?;
        let mut command = Command::new(self.program());
        command.arg0("quell").arg(KEEP_VERB).stdin(OwnedFd::from(theirs)).stdout(stdin).stderr(Stdio::null());
        let mut keeper = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => Error::NoProgram(error.to_string()),
            _ => failed("start the keeper")(error),
        })?;
        fault_point(FaultPoint::KeepExecuted);
        // Else the keeper's end would be open here as long as the command.
        drop(command);
        // What was executed forks and exits; it is the keeper's standby that goes on, as nobody's child.
        ours.set_read_timeout(Some(START_PATIENCE)).map_err(failed("set a timeout"))?;
        let mut line = String::new();
        let told = (&ours).write_all(&bytes).and_then(|()| {
            fault_point(FaultPoint::RequestSent);
            BufReader::new(&ours).read_line(&mut line)
        });
        let _ = keeper.wait();
        told.map_err(|error| Error::Keeper(format!("the keeper does not answer: {error}")))?;
        match serde_json::from_str(&line) {
            Ok(StartReply::Started { id }) => Ok(self.job_with(id)),
            Ok(StartReply::Failed(error)) => Err(error.into()),
            Ok(StartReply::Refused(decision)) => Err(Error::Refused(decision)),
            Err(_) => Err(Error::Keeper("the keeper was lost before the program ran".into())),
        }
    }
}
