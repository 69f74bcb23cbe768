//! A background job, described step by step.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use quell_core::{
    AskScope, Background, Contain, Hook, JobRequest, Limits, Mode, OnOwnerExit, Owner, ProcId, RestartRules,
    Signal, Stdin,
};

use crate::start::owner_process;
use crate::{Job, Quell, Result};

/// A command that becomes a background job. [`Quell::command`] begins one, [`CommandBuilder::start`] starts it. What is not set has
/// the default of `quell start`; settings files apply to the command line only.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is started"]
pub struct CommandBuilder<'q> {
    quell: &'q Quell,
    request: JobRequest,
    background: Background,
}

impl Quell {
    /// Describes a background job that runs `program`.
    ///
    /// ```no_run
    /// # fn main() -> quell::Result<()> {
    /// let quell = quell::Quell::open()?;
    /// let job = quell.command("make").arg("test").cwd("/src/app").name("tests").start()?;
    /// println!("{}", job.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn command(&self, program: impl Into<OsString>) -> CommandBuilder<'_> {
        let request = JobRequest::background([program]);
        CommandBuilder { quell: self, request, background: Background::default() }
    }
}

impl CommandBuilder<'_> {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.request.command.push(arg.into());
        self
    }

    /// Adds several arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.request.command.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.request.env.set.push((key.into(), value.into()));
        self
    }

    /// Starts from an empty environment. Variables set by [`Self::env`] are kept.
    pub fn env_clear(mut self) -> Self {
        self.request.env.clear = true;
        self
    }

    /// Sets the working directory.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.request.cwd = Some(dir.into());
        self
    }

    /// Sets a name, which is unique among live jobs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.request.name = Some(name.into());
        self
    }

    /// Adds a label for queries.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.tags.insert(key.into(), value.into());
        self
    }

    /// Replaces all labels.
    pub fn tags(mut self, tags: BTreeMap<String, String>) -> Self {
        self.request.tags = tags;
        self
    }

    /// Puts the job into a named group of jobs that are stopped together.
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.request.session = Some(session.into());
        self
    }

    /// Stops a run that takes longer than this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(timeout);
        self
    }

    /// Sets how long processes may take to exit after they were asked.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.request.stop.grace = grace;
        self
    }

    /// Sets the signal that asks processes to exit. The default is TERM.
    pub fn stop_signal(mut self, signal: Signal) -> Self {
        self.request.stop.signal = signal;
        self
    }

    /// Sets which processes are asked to exit. The default is all of them.
    pub fn ask(mut self, ask: AskScope) -> Self {
        self.request.stop.ask = ask;
        self
    }

    /// Sets how the tree is contained. The default is the strongest way that does not change what the program sees.
    pub fn contain(mut self, contain: Contain) -> Self {
        self.request.contain = contain;
        self
    }

    /// Limits what the whole tree may use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.request.limits = limits;
        self
    }

    /// The job is ready when one of its processes listens on this TCP port. If several readiness rules are set, all must hold.
    pub fn ready_port(mut self, port: u16) -> Self {
        self.background.ready.rules.port = Some(port);
        self
    }

    /// The job is ready when a line of its output matches this regular expression.
    pub fn ready_log(mut self, pattern: impl Into<String>) -> Self {
        self.background.ready.rules.log = Some(pattern.into());
        self
    }

    /// The job is ready when this URL answers with a status from 200 to 399.
    pub fn ready_http(mut self, url: impl Into<String>) -> Self {
        self.background.ready.rules.http = Some(url.into());
        self
    }

    /// The job is ready when this shell command exits with 0.
    pub fn ready_cmd(mut self, command: impl Into<String>) -> Self {
        self.background.ready.rules.cmd = Some(command.into());
        self
    }

    /// Sets when the program is started again after it has ended.
    pub fn restart(mut self, rules: RestartRules) -> Self {
        self.background.restart = rules;
        self
    }

    /// Adds something that is done at events of the job.
    pub fn hook(mut self, hook: Hook) -> Self {
        self.request.hooks.push(hook);
        self
    }

    /// Hides the value of an environment variable in everything that quell shows and writes down.
    pub fn mask(mut self, variable: impl Into<String>) -> Self {
        self.request.mask.push(variable.into());
        self
    }

    /// Gives the program a terminal for its standard streams.
    pub fn pty(mut self) -> Self {
        self.background.pty = true;
        self
    }

    /// Sets what the program reads. The default is nothing.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.background.stdin = stdin;
        self
    }

    /// Limits how many bytes of each output stream are kept.
    pub fn max_log(mut self, bytes: u64) -> Self {
        self.background.max_log = bytes;
        self
    }

    /// Stops the job when it is this old, restarts included.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.background.ttl = Some(ttl);
        self
    }

    /// Ties the job to a process or to another job. When the owner is gone, the job is stopped, or what [`Self::on_owner_exit`] says.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.background.owner = Some(owner);
        self
    }

    /// Ties the job to this process: it is stopped when this process exits, however that happens.
    pub fn owned_by_this_process(self) -> Self {
        let pid = std::process::id();
        // Without /proc no process has this identity, and the start fails.
        let id = owner_process(pid).unwrap_or(ProcId { pid, start: 0 });
        self.owner(Owner::Process { id })
    }

    /// Sets what happens when the owner is gone.
    pub fn on_owner_exit(mut self, action: OnOwnerExit) -> Self {
        self.background.on_owner_exit = action;
        self
    }

    /// The request that [`Self::start`] sends.
    pub fn into_request(mut self) -> JobRequest {
        self.request.mode = Mode::from(self.background);
        self.request
    }

    /// Starts the job. See [`Quell::start`].
    pub fn start(self) -> Result<Job> {
        let quell = self.quell;
        quell.start(&self.into_request())
    }
}
