//! The request for a job: one type for the library, the wire between `start` and the keeper, the record and `restart`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Contain, Environment, Hook, HookAction, JobId, LifecycleRules, Limits, Mask, OnOwnerExit, Owner, ProcId,
    ReadyCheck, RestartRules, StopPlan,
};

/// How many bytes of each stream are kept by default.
pub const MAX_LOG: u64 = 64 * 1024 * 1024;

/// The request for one job. [`JobRequest::foreground`] and [`JobRequest::background`] set the defaults; the fields can be
/// changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The command and its arguments.
    #[serde(with = "crate::paths::list")]
    pub command: Vec<OsString>,
    /// Its working directory; by default the caller's.
    #[serde(default, with = "crate::paths::optional", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Environment::is_default")]
    pub env: Environment,
    /// Its containment.
    #[serde(default)]
    pub contain: Contain,
    /// What it may use.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// How it is stopped.
    #[serde(default)]
    pub stop: StopPlan,
    /// How long a run may last.
    #[serde(default, with = "crate::seconds::optional", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What ends it.
    #[serde(default)]
    pub until: Until,
    /// What to do about processes that outlive the root, in addition to stopping them.
    #[serde(default)]
    pub leak: Leak,
    /// A name for people, unique among live jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session that it is part of: jobs that are stopped together. That of QUELL_SESSION if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Labels for queries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What to do at its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The variables whose values are never shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
    /// Whether its caller waits for it, with the options of that mode.
    pub mode: Mode,
}

/// Whether the caller of a job waits for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `quell run`: the caller waits for it.
    Foreground(Foreground),
    /// `quell start`: it runs on its own.
    Background(Box<Background>),
}

impl From<Foreground> for Mode {
    fn from(foreground: Foreground) -> Self {
        Self::Foreground(foreground)
    }
}

impl From<Background> for Mode {
    fn from(background: Background) -> Self {
        Self::Background(Box::new(background))
    }
}

/// The word for a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ModeKind {
    /// `quell run`: the caller waits for it.
    Run,
    /// `quell start`: it runs on its own.
    Start,
}

/// The options of a job in the foreground.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Foreground {
    /// Its id, if the caller has chosen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
    /// The file that the program reads; by default the caller's standard input. Opened before anything else.
    #[serde(default, with = "crate::paths::optional", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<PathBuf>,
    /// Another process that it lives for, in addition to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ProcId>,
    /// Where the receipt is written in addition to the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptTarget>,
    /// What happens to the caller's standard output while the program runs.
    #[serde(default)]
    pub stdout: StdoutUse,
    /// The rules for a server that its caller talks to over standard input and output (`quell wrap`); none for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerRules>,
}

/// The rules for a server that its client talks to over standard input and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRules {
    /// How long it may take to exit by itself after its client has closed its input.
    #[serde(with = "crate::seconds")]
    pub eof_grace: Duration,
    /// What it lives for: its client, which is the last one, and the processes through which the client has started it. The
    /// first one that exits ends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientProcess>,
}

/// The client of a server, or a process through which the client has started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientProcess {
    /// Its identity.
    pub id: ProcId,
    /// Its name, as the kernel has it.
    pub name: String,
}

/// What happens to the caller's standard output while the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdoutUse {
    /// quell closes its copy when the program starts, so that EOF on a pipe depends on the program alone.
    #[default]
    Release,
    /// quell keeps it, because the caller writes the result to it.
    KeepForResult,
}

/// Where a receipt is written in addition to the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptTarget {
    /// A file, which is made or emptied at the start and written at the end.
    File(#[serde(with = "crate::paths::whole")] PathBuf),
    /// A descriptor that the caller has opened.
    Fd(i32),
}

/// The options of a job in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// What it reads.
    #[serde(default)]
    pub stdin: Stdin,
    /// Whether its standard streams are a terminal.
    #[serde(default)]
    pub pty: bool,
    /// How many bytes of each stream are kept, with their index.
    pub max_log: u64,
    /// How to find out that it is ready.
    #[serde(default, skip_serializing_if = "ReadyCheck::is_default")]
    pub ready: ReadyCheck,
    /// When it is started again.
    #[serde(default)]
    pub restart: RestartRules,
    /// What it lives for; by default the job that it is started in, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// What happens to it when its owner is gone.
    #[serde(default)]
    pub on_owner_exit: OnOwnerExit,
    /// How long it may live, restarts included.
    #[serde(default, with = "crate::seconds::optional", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// The job that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_from: Option<JobId>,
    /// Whether the caller is part of a job: then this one must not leave the containment of that job.
    #[serde(default)]
    pub nested: bool,
    /// What the guard must know to decide about a test run; none for a start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestTerms>,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            stdin: Stdin::default(),
            pty: false,
            max_log: MAX_LOG,
            ready: ReadyCheck::default(),
            restart: RestartRules::default(),
            owner: None,
            on_owner_exit: OnOwnerExit::default(),
            ttl: None,
            restarted_from: None,
            nested: false,
            test: None,
        }
    }
}

/// The terms of a test run, by which the guard decides about its command, as `quell test` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestTerms {
    /// The directories that targets have to be in.
    #[serde(default, with = "crate::paths::list")]
    pub scope: Vec<PathBuf>,
    /// The report that the command writes.
    #[serde(default, with = "crate::paths::optional")]
    pub junit: Option<PathBuf>,
    /// Whether the run is approved.
    #[serde(default)]
    pub approved: bool,
    /// Whether it has to name a target.
    #[serde(default)]
    pub require_target: bool,
    /// How the command is told to write a report into the directory of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportWords>,
}

/// Words that are added to the command when the directory of the job is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportWords {
    /// Their place among the words of the command.
    pub at: usize,
    /// The path of the report is put behind the last one.
    pub words: Vec<String>,
}

impl JobRequest {
    /// A command whose caller waits for it, with defaults for all else.
    pub fn foreground(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self::new(command, Foreground::default())
    }

    /// A command that runs on its own, with defaults for all else.
    pub fn background(command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self::new(command, Background::default())
    }

    /// A command with the options of its mode, and defaults for all else.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>, mode: impl Into<Mode>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            cwd: None,
            env: Environment::default(),
            contain: Contain::default(),
            limits: Limits::default(),
            stop: StopPlan::default(),
            timeout: None,
            until: Until::default(),
            leak: Leak::default(),
            name: None,
            session: None,
            tags: BTreeMap::new(),
            hooks: Vec::new(),
            mask: Vec::new(),
            mode: mode.into(),
        }
    }

    /// The word for its mode.
    pub fn mode_kind(&self) -> ModeKind {
        match self.mode {
            Mode::Foreground(_) => ModeKind::Run,
            Mode::Background(_) => ModeKind::Start,
        }
    }

    /// Whether the caller waits for it.
    pub fn is_foreground(&self) -> bool {
        matches!(self.mode, Mode::Foreground(_))
    }

    /// Its options, if it is in the foreground.
    pub fn as_foreground(&self) -> Option<&Foreground> {
        match &self.mode {
            Mode::Foreground(foreground) => Some(foreground),
            Mode::Background(_) => None,
        }
    }

    /// Its options, if it is in the background.
    pub fn as_background(&self) -> Option<&Background> {
        match &self.mode {
            Mode::Foreground(_) => None,
            Mode::Background(background) => Some(background),
        }
    }

    /// What it lives for, in addition to the caller of a foreground job.
    pub fn owner(&self) -> Option<Owner> {
        match &self.mode {
            Mode::Foreground(foreground) => foreground.owner.map(|id| Owner::Process { id }),
            Mode::Background(background) => background.owner,
        }
    }

    /// Tells the command to write its report to `file`, if it is a test run that has such words.
    pub fn add_report_words(&mut self, file: &Path) {
        let Mode::Background(background) = &mut self.mode else { return };
        let Some(report) = background.test.as_mut().and_then(|test| test.report.take()) else { return };
        let mut words: Vec<OsString> = report.words.into_iter().map(OsString::from).collect();
        if let Some(last) = words.last_mut() {
            last.push(file);
        }
        // Never before the program: it would be another one than the one that was admitted.
        let at = report.at.max(1);
        if at <= self.command.len() {
            self.command.splice(at..at, words);
        }
    }

    /// The words of its command as text. What is not UTF-8 is replaced.
    pub fn words(&self) -> Vec<String> {
        self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The values that are never shown: those of the variables to mask.
    pub fn masked_values(&self) -> Mask {
        self.env.mask(&self.mask)
    }

    /// The rules of its lifecycle. What is kept after the root belongs to the job until the last process has exited.
    pub fn rules(&self) -> LifecycleRules {
        let until = if self.keeps_left() { Until::Tree } else { self.until };
        LifecycleRules { plan: self.stop, until, timeout: self.timeout }
    }

    /// Whether its caller waits for the root only, and what the root leaves behind runs on as a live job.
    pub fn keeps_left(&self) -> bool {
        self.leak == Leak::Keep && self.as_foreground().is_some_and(|foreground| foreground.server.is_none())
    }

    /// Whether its keeper has a control socket: a caller that waits for the whole job controls it by signals.
    pub fn has_control(&self) -> bool {
        self.as_background().is_some() || self.keeps_left()
    }

    /// The request as it may be shown and written to `spec.json`: without the environment, and with `***` for each value
    /// that `mask` has. A text that is not UTF-8 is written as UTF-8. The keeper uses the unmasked request.
    ///
    /// The name and the session are not masked: users find the job by them, and they are file names. A start with a value to
    /// mask in one of them is refused.
    #[must_use]
    pub fn masked(&self, mask: &Mask) -> Self {
        let text = |text: &String| mask.apply(text);
        let path = |path: &Path| PathBuf::from(mask.apply(&path.to_string_lossy()));
        let hook = |hook: &Hook| Hook {
            on: hook.on.clone(),
            action: match &hook.action {
                HookAction::Run(words) => HookAction::Run(words.iter().map(text).collect()),
                HookAction::Append(file) => HookAction::Append(path(file)),
            },
            timeout: hook.timeout,
        };
        Self {
            command: self.command.iter().map(|word| mask.apply(&word.to_string_lossy()).into()).collect(),
            cwd: self.cwd.as_deref().map(path),
            env: Environment::default(),
            contain: self.contain,
            limits: self.limits,
            stop: self.stop,
            timeout: self.timeout,
            until: self.until,
            leak: self.leak,
            name: self.name.clone(),
            session: self.session.clone(),
            tags: self.tags.iter().map(|(key, value)| (text(key), text(value))).collect(),
            hooks: self.hooks.iter().map(hook).collect(),
            mask: self.mask.clone(),
            mode: match &self.mode {
                Mode::Foreground(foreground) => Mode::Foreground(Foreground {
                    stdin: foreground.stdin.as_deref().map(path),
                    // Only the caller can use these.
                    receipts: Vec::new(),
                    server: foreground.server.as_ref().map(|server| server.masked(mask)),
                    ..foreground.clone()
                }),
                Mode::Background(background) => Mode::Background(Box::new(background.masked(mask))),
            },
        }
    }
}

impl ServerRules {
    fn masked(&self, mask: &Mask) -> Self {
        let mut shown = self.clone();
        shown.clients.iter_mut().for_each(|client| client.name = mask.apply(&client.name));
        shown
    }
}

impl Background {
    fn masked(&self, mask: &Mask) -> Self {
        let mut shown = self.clone();
        if let Stdin::File(file) = &mut shown.stdin {
            *file = PathBuf::from(mask.apply(&file.to_string_lossy()));
        }
        let rules = &mut shown.ready.rules;
        for text in [&mut rules.log, &mut rules.http, &mut rules.cmd].into_iter().flatten() {
            *text = mask.apply(text);
        }
        // Only the keeper needs the guard's terms.
        shown.test = None;
        shown
    }
}

/// When a job ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// When the root has exited; what it left is stopped.
    #[default]
    Root,
    /// When the last process has exited.
    Tree,
}

/// What to do about processes that outlive the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leak {
    /// Stop them.
    #[default]
    Stop,
    /// Stop them and say so.
    Report,
    /// Stop them and fail.
    Fail,
    /// Keep them running, as a live job. Only for a job in the foreground: its caller waits for the root alone.
    Keep,
}

/// What a background job reads on its standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// What `quell send` sends.
    Pipe,
    /// The standard input of its starter. The job gets the descriptor itself; quell reads nothing.
    Inherited,
    /// A file.
    File(
        #[serde(with = "crate::paths::whole")]
        #[cfg_attr(feature = "schema", schemars(with = "PathBuf"))]
        PathBuf,
    ),
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::{HookEvent, ReadyRules};

    /// A value that no other text holds by chance, and that is not part of another one.
    fn secret(number: usize) -> String {
        format!("s3cret-{number}-")
    }

    /// Texts that may hold some of three secrets.
    fn text() -> impl Strategy<Value = String> {
        let part = prop_oneof!["[a-z /.:=]{0,6}", (0..3usize).prop_map(secret)];
        vec(part, 0..4).prop_map(|parts| parts.concat())
    }

    /// A text as a program may get it: not always UTF-8.
    fn any_word() -> impl Strategy<Value = OsString> {
        (text(), any::<bool>(), text()).prop_map(|(before, broken, after)| {
            #[cfg(unix)]
            let middle: OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff; usize::from(broken)]);
            #[cfg(not(unix))]
            let middle = OsString::from(if broken { "?" } else { "" });
            let mut word = OsString::from(before);
            word.push(middle);
            word.push(after);
            word
        })
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        any_word().prop_map(PathBuf::from)
    }

    fn mode() -> impl Strategy<Value = Mode> {
        let foreground = proptest::option::of(path())
            .prop_map(|stdin| Mode::from(Foreground { stdin, ..Foreground::default() }));
        let server = text().prop_map(|name| {
            let clients = vec![ClientProcess { id: ProcId { pid: 7, start: 8 }, name }];
            let server = Some(ServerRules { eof_grace: Duration::from_millis(1500), clients });
            Mode::from(Foreground { server, ..Foreground::default() })
        });
        let background = (path(), proptest::option::of(text()), text(), text(), path(), any::<bool>())
            .prop_map(|(file, log, http, cmd, scope, is_file)| {
                let rules = ReadyRules { port: None, log, http: Some(http), cmd: Some(cmd) };
                let background = Background {
                    stdin: if is_file { Stdin::File(file) } else { Stdin::Pipe },
                    ready: ReadyCheck { rules, ..ReadyCheck::default() },
                    test: Some(TestTerms { scope: vec![scope], ..TestTerms::default() }),
                    ..Background::default()
                };
                Mode::from(background)
            });
        prop_oneof![foreground, server, background]
    }

    fn request() -> impl Strategy<Value = JobRequest> {
        let hook = (vec(text(), 1..3), path(), any::<bool>()).prop_map(|(words, file, runs)| Hook {
            on: vec![HookEvent::Ended],
            action: if runs { HookAction::Run(words) } else { HookAction::Append(file) },
            timeout: Duration::from_secs(1),
        });
        let tags = proptest::collection::btree_map(text(), text(), 0..3);
        (vec(any_word(), 0..4), path(), tags, vec(hook, 0..2), mode()).prop_map(
            |(command, cwd, tags, hooks, mode)| {
                let env = (0..4).map(|number| ("TOKEN".into(), secret(number).into())).collect();
                JobRequest {
                    cwd: Some(cwd),
                    env: Environment { clear: true, set: env },
                    tags,
                    hooks,
                    ..JobRequest::new(command, mode)
                }
            },
        )
    }

    proptest! {
        #[test]
        fn no_value_of_the_environment_and_no_masked_value_is_in_what_may_be_shown(request in request()) {
            let mask = Mask::new(&["TOKEN".to_owned()], &request.env.set);
            let shown = serde_json::to_string(&request.masked(&mask)).unwrap();
            prop_assert!(!shown.contains("s3cret"), "{shown}");
            // The values of an environment that nothing is masked of are not shown either.
            let plain = JobRequest { env: request.env.clone(), ..JobRequest::background(["true"]) };
            let shown = serde_json::to_string(&plain.masked(&Mask::default())).unwrap();
            prop_assert!(!shown.contains("s3cret") && !shown.contains("TOKEN"), "{shown}");
        }

        #[test]
        fn a_request_comes_back_from_json_as_it_was(request in request()) {
            let json = serde_json::to_string(&request).unwrap();
            prop_assert_eq!(serde_json::from_str::<JobRequest>(&json).unwrap(), request);
        }
    }

    #[test]
    fn a_request_has_the_options_of_its_mode_only() {
        let (run, start) = (JobRequest::foreground(["true"]), JobRequest::background(["true"]));
        assert_eq!((run.mode_kind(), start.mode_kind()), (ModeKind::Run, ModeKind::Start));
        assert_eq!((run.is_foreground(), start.is_foreground()), (true, false));
        assert_eq!((run.as_foreground(), run.as_background()), (Some(&Foreground::default()), None));
        assert_eq!((start.as_foreground(), start.as_background()), (None, Some(&Background::default())));
    }

    #[test]
    fn report_words_come_after_the_program_and_never_before_it() {
        let words_at = |at| {
            let report = Some(ReportWords { at, words: vec!["-x".into(), "--junit=".into()] });
            let test = Some(TestTerms { report, ..TestTerms::default() });
            let background = Background { test, ..Background::default() };
            let mut request = JobRequest::new(["pytest", "tests"], background);
            request.add_report_words(Path::new("/f"));
            request.words().join(" ")
        };
        assert_eq!(words_at(0), "pytest -x --junit=/f tests");
        assert_eq!(words_at(2), "pytest tests -x --junit=/f");
        assert_eq!(words_at(3), "pytest tests");
    }

    #[test]
    fn what_only_the_caller_or_the_keeper_can_use_is_not_shown() {
        let foreground = Foreground { receipts: vec![ReceiptTarget::Fd(3)], ..Foreground::default() };
        let request = JobRequest::new(["true"], foreground);
        assert_eq!(request.masked(&Mask::default()), JobRequest::foreground(["true"]));
        let shown = Background { max_log: 5, ..Background::default() };
        let background = Background { test: Some(TestTerms::default()), ..shown.clone() };
        assert_eq!(background.masked(&Mask::default()), shown);
        let set = vec![("TOKEN".into(), "s3cret".into())];
        let env = Environment { clear: true, set };
        let request = JobRequest { env, mask: vec!["TOKEN".into()], ..request };
        assert!(request.masked_values().hides("s3cret"));
    }

    #[test]
    fn what_is_left_at_its_default_is_not_written() {
        let json = serde_json::to_value(JobRequest::background(["true"])).unwrap();
        assert!(json.get("env").is_none() && json.get("limits").is_none());
        assert!(json["mode"]["background"].get("ready").is_none());
        let ready = ReadyCheck { timeout: Duration::from_secs(9), ..ReadyCheck::default() };
        let background = Background { ready, ..Background::default() };
        let limits = Limits { procs: Some(9), ..Limits::default() };
        let clear = Environment { clear: true, ..Environment::default() };
        let request = JobRequest { limits, env: clear, ..JobRequest::new(["true"], background) };
        let json = serde_json::to_value(&request).unwrap();
        assert!(json["mode"]["background"]["ready"].get("rules").is_none());
        assert_eq!(serde_json::from_value::<JobRequest>(json).unwrap(), request);
    }

    #[test]
    fn little_has_to_be_said() {
        let json = r#"{"command":["true"],"mode":{"background":{"max_log":67108864}}}"#;
        assert_eq!(serde_json::from_str::<JobRequest>(json).unwrap(), JobRequest::background(["true"]));
        let json = r#"{"command":["true"],"mode":{"foreground":{}}}"#;
        assert_eq!(serde_json::from_str::<JobRequest>(json).unwrap(), JobRequest::foreground(["true"]));
    }
}
