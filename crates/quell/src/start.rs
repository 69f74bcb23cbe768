//! Starting a job in the background.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quell_core::{Background, Environment, JobId, JobRequest, Leak, Mode, Owner, ProcId, Stdin};
use quell_keeper::{StartError, StartMessage, StartReply};
use quell_store::{Home, Liveness};
use quell_sys::fault::{self, FaultPoint, fault_point};

use quell_guard::Verb;

use crate::admit::program;
use crate::logs::regex;
use crate::{Error, Job, Quell, Result, record_start};

/// The verb with which quell executes itself as a keeper.
const KEEP_VERB: &str = "__keep";

/// How long a start may take: two requests to the user's systemd, on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The variables that tell a job's processes which job they belong to.
const OWN_VARIABLES: [&str; 2] = ["QUELL_JOB", "QUELL_MARK"];
/// How many times in a row the name may belong to a job that is lost.
const LOST_NAMESAKES: usize = 3;
/// What a name may have.
const NAME_RULE: &str = "1 to 64 letters, digits, `.`, `-` or `_`";
/// The variable that names the session of new jobs.
const SESSION: &str = "QUELL_SESSION";

/// What a new job takes over from the process that starts it: its session, and the job that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// What the process has: it starts the job for itself.
    Caller,
    /// Nothing: it is a server, and starts the job for another program.
    Nothing,
}

/// Refuses a request that can't be carried out.
fn check(request: &JobRequest, background: &Background) -> Result<()> {
    let bad = |why: String| Err(Error::BadValue(why));
    for (what, text) in [("name", &request.name), ("session", &request.session)] {
        if let Some(text) = text.as_deref().filter(|text| !quell_store::is_name(text)) {
            return bad(format!("invalid {what} `{text}`: use {NAME_RULE}"));
        }
    }
    if let Some(name) = request.name.as_deref().filter(|name| JobId::may_begin_with(name)) {
        return bad(format!("`{name}` looks like the beginning of a job id: choose another name"));
    }
    if request.leak == Leak::Keep {
        return bad(
            "what the command leaves is kept with `until` set to the tree, and not with `leak`".into()
        );
    }
    let ready = &background.ready.rules;
    ready.log.as_deref().map(regex).transpose()?;
    if let Some(url) = &ready.http {
        if url.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            let url = quell_core::printable(url);
            return bad(format!("`{url}` has a space or a control character: write %20 for a space"));
        }
        if !is_http_url(url) {
            return bad(format!("invalid URL `{url}`: expected http://HOST:PORT/PATH"));
        }
    }
    if background.max_log < quell_store::MIN_CAP {
        return bad(format!("a log of {} bytes is too small: give at least 4K", background.max_log));
    }
    if background.pty && !matches!(background.stdin, Stdin::Null | Stdin::Pipe) {
        return bad("a terminal is its own standard input, so it can't have another one".into());
    }
    Ok(())
}

/// Fills in everything that depends on this process, as the keeper needs it, and opens the job's input.
pub(crate) fn resolve_request(
    home: &Home,
    request: &JobRequest,
    around: Around,
) -> Result<(JobRequest, OwnedFd)> {
    let mut request = request.clone();
    let Mode::Background(background) = &request.mode else {
        return Err(Error::BadValue("a job in the foreground can't be started: run it".into()));
    };
    check(&request, background)?;
    let mut background = background.clone();
    let given = open_stdin(&mut background.stdin)?;
    if request.session.is_none() && around == Around::Caller {
        request.session = own_session()?;
    }
    request.env = whole_environment(&request.env, request.session.as_deref());
    let outer = || outer_job(home).filter(|_| around == Around::Caller);
    background.owner = background.owner.or_else(|| outer().map(|job| Owner::Job { job }));
    background.nested = around == Around::Caller && is_inside_a_job();
    request.cwd = Some(match &request.cwd {
        Some(dir) => std::path::absolute(dir).map_err(Error::io(dir))?,
        None => std::env::current_dir()
            .map_err(|error| StartError::Cwd { path: ".".into(), error: error.to_string() })?,
    });
    request.mode = Mode::Background(background);
    let mask = request.masked_values();
    for (what, text) in [("name", request.name.as_deref()), ("session", request.session.as_deref())] {
        // It is shown as the name of a file, and jobs are found by it.
        if text.is_some_and(|text| mask.hides(text)) {
            let why = format!("the {what} holds a value that is to be masked: choose another {what}");
            return Err(Error::BadValue(why));
        }
    }
    Ok((request, given))
}

/// Opens the input of a job, and makes its path absolute.
fn open_stdin(stdin: &mut Stdin) -> Result<OwnedFd> {
    match stdin {
        Stdin::Null | Stdin::Pipe => {
            File::open("/dev/null").map(OwnedFd::from).map_err(Error::io("/dev/null"))
        }
        Stdin::Inherited => std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::io("/dev/stdin")),
        Stdin::File(path) => {
            *path = std::path::absolute(&*path).map_err(Error::io(&*path))?;
            open_input(path)
        }
    }
}

/// All variables that the job gets, except those that quell sets itself.
fn whole_environment(asked: &Environment, session: Option<&str>) -> Environment {
    let mut all = asked.variables();
    let own = || OWN_VARIABLES.iter().chain(fault::VARIABLES);
    all.retain(|key, _| own().all(|own| key.as_os_str() != OsStr::new(own)));
    if let Some(session) = session {
        all.insert(SESSION.into(), session.into());
    }
    Environment { clear: true, set: all.into_iter().collect() }
}

/// Whether `url` is http://HOST[:PORT][/PATH], with a valid port.
fn is_http_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    // The colons of an IPv6 address, which is in brackets, don't begin a port.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    !host.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Opens the input of a job. It does not wait for the writer of a fifo; the program does.
pub(crate) fn open_input(path: &Path) -> Result<OwnedFd> {
    let failed =
        |error: std::io::Error| StartError::Stdin { path: path.to_owned(), error: error.to_string() };
    Ok(quell_sys::open_to_read(path).map_err(failed)?)
}

/// The session that the environment names.
pub fn own_session() -> Result<Option<String>> {
    let Some(session) = std::env::var_os(SESSION).filter(|name| !name.is_empty()) else { return Ok(None) };
    let session = session.to_string_lossy().into_owned();
    if quell_store::is_name(&session) {
        return Ok(Some(session));
    }
    Err(Error::Variable {
        name: SESSION.into(),
        // Escaped: it may contain control characters.
        message: format!("{session:?} is not a session name"),
        hint: format!("use {NAME_RULE}, or unset it"),
    })
}

/// The session that the environment of an agent names: `claude-ID` or `codex-ID`.
#[cfg(feature = "binary")]
pub fn agent_session() -> Option<String> {
    let named = |prefix: &str, variable: &str| {
        let value = std::env::var(variable).ok()?;
        let session = format!("{prefix}-{value}");
        (!value.is_empty() && quell_store::is_name(&session)).then_some(session)
    };
    named("claude", "CLAUDE_CODE_SESSION_ID").or_else(|| named("codex", "CODEX_THREAD_ID"))
}

/// Whether this process belongs to a job.
pub fn is_inside_a_job() -> bool {
    std::env::var_os("QUELL_MARK").is_some_and(|mark| !mark.is_empty())
}

/// The job that this process belongs to, if it is alive.
fn outer_job(home: &Home) -> Option<JobId> {
    let id: JobId = std::env::var("QUELL_JOB").ok()?.parse().ok()?;
    matches!(home.job(id).liveness(), Ok(Liveness::Supervised)).then_some(id)
}

/// Whether an owner is alive.
pub(crate) fn owner_lives(home: &Home, owner: &Owner) -> bool {
    let id = match owner {
        Owner::Process { id } => Some(*id),
        Owner::Job { job } => home.job(*job).record().ok().and_then(|record| record.keeper),
    };
    id.is_some_and(quell_contain::is_alive)
}

/// The identity of the process `pid`, for [`Owner::Process`].
pub fn owner_process(pid: u32) -> Result<ProcId> {
    let stat =
        quell_sys::stat(pid).map_err(|_| StartError::OwnerGone(format!("there is no process {pid}")))?;
    Ok(stat.id())
}

/// The parent of the process `pid`. Process 1 counts as a parent only in a container: elsewhere it adopts processes whose parent has
/// exited.
pub fn parent_of(pid: u32) -> Result<u32> {
    match quell_sys::stat(pid) {
        Ok(stat) if stat.ppid > 1 => Ok(stat.ppid),
        Ok(stat) if stat.ppid == 1 && !quell_sys::in_first_pid_namespace() => Ok(1),
        Ok(_) | Err(_) => {
            Err(StartError::OwnerGone(format!("process {pid} has no parent that can be an owner")).into())
        }
    }
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Start(StartError::System { what: what.into(), error: error.to_string() })
}

impl Quell {
    /// Starts a background job from a request. [`Quell::command`] builds one step by step. After: the program runs, contained and on
    /// record; or an error is returned, nothing runs, and nothing is left behind.
    ///
    /// The keeper is a new program: this process is not forked, however many threads and how much memory it has.
    ///
    /// ```no_run
    /// # fn main() -> quell::Result<()> {
    /// let mut request = quell::JobRequest::background(["npm", "run", "dev"]);
    /// request.name = Some("web".into());
    /// let job = quell::Quell::open()?.start(&request)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(&self, request: &JobRequest) -> Result<Job> {
        let program = program(request);
        let permit = self.permit(Verb::Start, &program)?;
        let started = resolve_request(self.home(), request, self.around)
            .and_then(|(request, stdin)| self.start_request(&request, stdin));
        if let Some(permit) = permit {
            record_start(&permit, &program, &started);
        }
        started
    }

    /// Starts the job. If its name belongs to a lost job, that one is finished first.
    pub(crate) fn start_request(&self, request: &JobRequest, stdin: OwnedFd) -> Result<Job> {
        let message = StartMessage {
            home: self.home().dir().to_owned(),
            request: request.clone(),
            through: self.through.clone(),
        };
        let mut bytes = serde_json::to_vec(&message)
            .map_err(|error| Error::BadValue(format!("the request can't be passed on: {error}")))?;
        bytes.push(b'\n');
        for _ in 0..LOST_NAMESAKES {
            let stdin = quell_sys::duplicate(&stdin).map_err(failed("keep its standard input"))?;
            match self.try_start(&bytes, stdin) {
                Err(Error::Start(StartError::NameTaken { by, .. }))
                    if crate::recover_if_orphaned(&self.home().job(by))? => {}
                other => return other,
            }
        }
        self.try_start(&bytes, stdin)
    }

    fn try_start(&self, message: &[u8], stdin: OwnedFd) -> Result<Job> {
        let (ours, theirs) = UnixStream::pair().map_err(failed("make a socket pair"))?;
        let null = quell_sys::null().map_err(failed("open /dev/null"))?;
        let mut command = Command::new(self.program());
        command.arg0("quell").arg(KEEP_VERB).stdin(OwnedFd::from(theirs)).stdout(stdin).stderr(null);
        if self.around == Around::Nothing {
            for name in OWN_VARIABLES.iter().chain([&SESSION]) {
                command.env_remove(name);
            }
        }
        let mut keeper = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => Error::NoProgram(error.to_string()),
            _ => failed("start the keeper")(error),
        })?;
        fault_point(FaultPoint::KeepExecuted);
        // The command holds the keeper's end of the socket pair.
        drop(command);
        if self.around == Around::Nothing {
            // It reads its limits after the request, which is not sent yet.
            quell_sys::restore_open_files(keeper.id());
        }
        // The executed process forks, and exits when the job is on record. Its child goes on as the standby.
        ours.set_read_timeout(Some(START_PATIENCE)).map_err(failed("set a timeout"))?;
        let mut line = String::new();
        let told = (&ours).write_all(message).and_then(|()| {
            fault_point(FaultPoint::RequestSent);
            BufReader::new(&ours).read_line(&mut line)
        });
        if told.is_err() {
            let _ = keeper.kill();
        }
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
