//! Starting a job, and starting it again: to be allowed to is to have a shell.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use quell::binary::responses::StartAnswer;
use quell::binary::{Config, JobInternals};
use quell::{
    Background, Contain, Environment, Error, Filter, JobRequest, Limits, OnOwnerExit, Owner, ReadyCheck,
    ReadyRules, RestartPolicy, Stdin, WaitFor,
};
use serde::{Deserialize, Serialize};

use crate::answer::{HttpFailure, success};
use crate::api::stop::StopBody;
use crate::call::{HttpCall, Reply};
use crate::pools;

/// The label that holds the key of a request, so that it is found again, also by another run of the server.
const KEY_TAG: &str = "idempotency-key";
/// The label that holds a hash of its body.
const HASH_TAG: &str = "idempotency-hash";
/// The longest key.
const LONGEST_KEY: usize = 64;
/// The longest time that can be given, in seconds.
const LONGEST: f64 = 86_400.0 * 366.0;

/// A job to start. Everything but `command` and `cwd` has a default; settings of the directory apply.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StartBody {
    /// The command and its arguments.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub command: Vec<String>,
    /// Its working directory, an absolute path.
    pub cwd: PathBuf,
    /// Variables, over those of the server. No variable that begins with `QUELL_` comes from the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Begin with an empty environment instead.
    #[serde(default)]
    pub clear_env: bool,
    /// A name, unique among live jobs.
    #[serde(default)]
    pub name: Option<String>,
    /// The session that it is part of.
    #[serde(default)]
    pub session: Option<String>,
    /// Labels.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// What it reads: nothing, or what is sent to it.
    #[serde(default)]
    pub stdin: StdinWord,
    /// Whether its standard streams are a terminal.
    #[serde(default)]
    pub pty: bool,
    /// Its containment.
    #[serde(default)]
    pub contain: Option<ContainWord>,
    /// What it may use.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// Seconds between the request to end and the kill.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 31_622_400.0)))]
    pub grace: Option<f64>,
    /// Seconds that a run may last.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 31_622_400.0)))]
    pub timeout: Option<f64>,
    /// Seconds that it may live in all, restarts included.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 31_622_400.0)))]
    pub ttl: Option<f64>,
    /// Bytes of each stream that are kept.
    #[serde(default)]
    pub max_log: Option<u64>,
    /// When it is started again.
    #[serde(default)]
    pub restart: Option<RestartPolicy>,
    /// It is ready when this port of 127.0.0.1 takes connections.
    #[serde(default)]
    pub ready_port: Option<u16>,
    /// It is ready when a line of its output matches this regular expression.
    #[serde(default)]
    pub ready_log: Option<String>,
    /// It is ready when this http:// address answers.
    #[serde(default)]
    pub ready_http: Option<String>,
    /// The PID of the process that it lives for; none if not given.
    #[serde(default)]
    pub owner: Option<u32>,
    /// What happens when that is gone.
    #[serde(default)]
    pub on_owner_exit: Option<OnOwnerExit>,
    /// Variables whose values are never shown.
    #[serde(default)]
    pub mask: Vec<String>,
}

/// What a job reads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StdinWord {
    /// Nothing.
    #[default]
    Null,
    /// What is sent to it.
    Pipe,
}

/// A containment.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainWord {
    /// The strongest that doesn't change what the program sees.
    Auto,
    /// A cgroup of its own.
    Cgroup,
    /// A PID namespace of its own.
    Pidns,
    /// Session, group and subreaper only.
    Reaper,
}

impl From<ContainWord> for Contain {
    fn from(word: ContainWord) -> Self {
        match word {
            ContainWord::Auto => Self::Auto,
            ContainWord::Cgroup => Self::Cgroup,
            ContainWord::Pidns => Self::Pidns,
            ContainWord::Reaper => Self::Reaper,
        }
    }
}

fn duration(name: &str, seconds: Option<f64>) -> Result<Option<Duration>, HttpFailure> {
    let Some(seconds) = seconds else { return Ok(None) };
    if (0.0..=LONGEST).contains(&seconds) {
        return Ok(Some(Duration::from_secs_f64(seconds)));
    }
    Err(HttpFailure::bad_value(format!("{name} must be from 0 to {LONGEST} seconds")))
}

fn positive(name: &str, seconds: Option<f64>) -> Result<Option<Duration>, HttpFailure> {
    match duration(name, seconds)? {
        Some(Duration::ZERO) => Err(HttpFailure::bad_value(format!("{name} must be greater than 0"))),
        other => Ok(other),
    }
}

/// The variables of the server that a job may have.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(b"QUELL_"))
}

fn request(body: StartBody, config: &Config) -> Result<JobRequest, HttpFailure> {
    let bad = |why: &str| Err(HttpFailure::bad_value(why));
    let words = || body.command.iter().chain(body.env.keys()).chain(body.env.values());
    if body.command.first().is_none_or(String::is_empty) {
        return bad("command must begin with a program");
    }
    if words().any(|word| word.contains('\0'))
        || body.env.keys().any(|key| key.is_empty() || key.contains('='))
    {
        return bad("no word or variable may have a NUL, and no variable's name may be empty or have a `=`");
    }
    let mut background = Background {
        stdin: match body.stdin {
            StdinWord::Null => Stdin::Null,
            StdinWord::Pipe => Stdin::Pipe,
        },
        pty: body.pty,
        max_log: body.max_log.unwrap_or(config.start.max_log),
        ready: ReadyCheck {
            rules: ReadyRules {
                port: body.ready_port,
                log: body.ready_log,
                http: body.ready_http,
                cmd: None,
            },
            interval: config.ready.interval,
            timeout: config.ready.timeout,
        },
        restart: config.start.restart,
        on_owner_exit: body.on_owner_exit.unwrap_or(config.start.on_owner_exit),
        ttl: positive("ttl", body.ttl)?,
        owner: body.owner.map(quell::owner_process).transpose()?.map(|id| Owner::Process { id }),
        ..Background::default()
    };
    background.restart.policy = body.restart.unwrap_or(background.restart.policy);
    let mut request = JobRequest::new(body.command, background);
    config.configure(&mut request);
    let inherited = environment().filter(|_| !body.clear_env);
    let own = body.env.into_iter().map(|(key, value)| (key.into(), value.into()));
    request.env = Environment { clear: true, set: inherited.chain(own).collect() };
    request.cwd = Some(body.cwd);
    request.contain = body.contain.map_or(request.contain, Contain::from);
    request.limits = body.limits.unwrap_or_default();
    request.stop.grace = duration("grace", body.grace)?.unwrap_or(request.stop.grace);
    request.timeout = positive("timeout", body.timeout)?;
    request.name = body.name;
    request.session = body.session;
    request.tags = body.tags;
    request.mask.extend(body.mask);
    Ok(request)
}

pub async fn start(call: HttpCall) -> Reply {
    let body: StartBody = call.json()?;
    let key = call.header("idempotency-key").map(str::to_owned);
    if let Some(key) = &key
        && (key.is_empty() || key.len() > LONGEST_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        let why = format!("Idempotency-Key must have 1 to {LONGEST_KEY} visible ASCII characters");
        return Err(HttpFailure::bad_value(why));
    }
    if !body.cwd.is_absolute() {
        return Err(HttpFailure::bad_value("cwd must be an absolute path"));
    }
    let wait = call.query.wait("wait_ready");
    let (pool, kind, one_at_a_time) = (call.state.pools.changes.clone(), call.route.kind, call.state.clone());
    // Two requests with one key must not both find no job.
    let _turn = match &key {
        Some(_) => Some(one_at_a_time.keyed_starts.lock().await),
        None => None,
    };
    let (status, answer) = pools::run(&pool, move || carry_out(&call, body, key.as_deref(), wait)).await??;
    Ok(success(status, kind, &answer))
}

fn carry_out(
    call: &HttpCall,
    body: StartBody,
    key: Option<&str>,
    wait: Option<Duration>,
) -> Result<(u16, StartAnswer), HttpFailure> {
    // The settings and the policy of the project that it is started in.
    let settings = Config::load(&body.cwd, std::env::vars_os());
    let program = body.command.first().cloned().unwrap_or_default();
    let access = call.access_with(settings, &program, None)?;
    // FNV-1a: the same body gives the same number; it protects nothing.
    let text = quell::binary::json(&body);
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, add));
    if let Some(key) = key {
        let tags = vec![quell::TagFilter { key: KEY_TAG.into(), value: Some(key.into()) }];
        let known = access.quell.list(&Filter { tags, limit: Some(1), ..Filter::default() })?;
        if let Some(view) = known.jobs.first() {
            if view.tags.get(HASH_TAG) != Some(&hash) {
                let why = format!("the key belongs to {}, which was started by another request", view.id);
                let hint = "use a new key for a new request";
                return Err(HttpFailure::new(422, "key_reused", why, hint).with("id", view.id));
            }
            let job = access.quell.job_with(view.id);
            return Ok((200, StartAnswer::new(&job, None, None)));
        }
    }
    let mut request = request(body, &access.config)?;
    if let Some(key) = key {
        request.tags.extend([(KEY_TAG.into(), key.to_owned()), (HASH_TAG.into(), hash)]);
    }
    let has_sign = request.as_background().is_some_and(|background| !background.ready.rules.is_empty());
    if wait.is_some() && !has_sign {
        return Err(HttpFailure::bad_value("wait_ready needs ready_port, ready_log or ready_http"));
    }
    let job = access.quell.start(&request)?;
    let met = wait.and_then(|wait| job.wait_for_readiness(wait).ok()).map(|waited| waited.met);
    Ok((201, StartAnswer::new(&job, None, met)))
}

pub async fn restart(call: HttpCall) -> Reply {
    let body: StopBody = call.json()?;
    let (options, wait) = (body.options()?, call.query.wait("wait_ready"));
    let (pool, kind) = (call.state.pools.changes.clone(), call.route.kind);
    let restarted = pools::run(&pool, move || {
        let access = call.access(call.part("job"), body.reason.clone())?;
        let old = call.job(&access)?;
        if wait.is_some() {
            // Before anything is stopped.
            old.check_can_meet(&WaitFor::end().ready())?;
        }
        let new = old.restart(&options)?;
        let met = wait.and_then(|wait| new.wait_for_readiness(wait).ok()).map(|waited| waited.met);
        Ok::<_, Error>(StartAnswer::new(&new, Some(old.id()), met))
    });
    Ok(success(201, kind, &restarted.await??))
}
