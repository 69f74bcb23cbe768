//! `run_command` and `start_job`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quell::binary::{JobInternals, LogQuery};
use quell::{
    Background, Condition, Cursor, Filter, Job, JobRequest, Leak, ReadyCheck, ReadyRules, RestartPolicy,
    RootOutcome, SendEof, Stdin, Until, WaitFor,
};
use rmcp::model::CallToolResult;
use serde::Deserialize;

use super::{Access, ToolCall, has_ended};
use crate::answer::{headline, leftovers, text};
use crate::arguments::limit;
use crate::budget::{self, Shape, show};
use crate::failure::ToolFailure;

/// How long a job without a sign of readiness is watched: most mistakes in a command end it at once.
const FIRST_LOOK: Duration = Duration::from_millis(400);

#[derive(Deserialize)]
struct RunCommand {
    command: String,
    cwd: Option<PathBuf>,
    timeout_s: Option<u64>,
    wait_s: Option<u64>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    max_bytes: Option<u64>,
}

pub fn run_command(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: RunCommand = call.read()?;
    let access = call.access(shell(), None)?;
    let (wait, note) = call.wait(args.wait_s, 50);
    let mut background = background(call, &access)?;
    if args.stdin.is_some() {
        background.stdin = Stdin::Pipe;
    }
    let mut request = request(call, &access, &args.command, background, args.cwd.clone(), args.env.clone());
    request.timeout = limit("timeout_s", args.timeout_s)?;
    // Whatever the settings say: this tool promises it.
    (request.until, request.leak) = (Until::Root, Leak::Stop);
    let starting = call.begin_start()?;
    let job = access.quell.start(&request)?;
    call.is_to_report(&job);
    drop(starting);
    call.watch(&job);
    let result = wait_for_end(call, &job, &args, wait, note);
    call.about(&job, result)
}

fn wait_for_end(
    call: &ToolCall,
    job: &Job,
    args: &RunCommand,
    wait: Duration,
    note: Option<String>,
) -> Result<CallToolResult, ToolFailure> {
    let unread = args.stdin.as_ref().and_then(|input| feed(call, job, input, wait));
    let left = wait.saturating_sub(call.began.elapsed());
    let waited = job.wait(&WaitFor::end().or_interrupted(&call.interrupt), Some(left))?;
    call.stop_if_unreported(job, waited.met);
    let (view, mut answer) = (job.view()?, headline(job)?);
    if waited.met != Condition::Exit && !has_ended(&view) {
        answer += &format!("; still running after {}s", wait.as_secs());
    }
    answer.push('\n');
    answer.extend(note);
    answer.extend(unread);
    answer.extend(job.receipt().ok().map(|receipt| leftovers(&receipt)));
    let shape = match view.outcome {
        Some(RootOutcome::Exited { code: 0 }) | None => Shape::BothEnds,
        Some(_) => Shape::MostlyEnd,
    };
    finish(job, answer, Cursor::default(), budget::size(args.max_bytes), shape)
}

/// Adds the output since `since`, and the next call if there may be more.
pub fn finish(
    job: &Job,
    mut answer: String,
    since: Cursor,
    bytes: usize,
    shape: Shape,
) -> Result<CallToolResult, ToolFailure> {
    // Looked at first: what it wrote before its end is on disk then.
    let ended = has_ended(&job.view()?);
    let query = LogQuery { since: Some(since), ..LogQuery::default() };
    let shown = show(job, query, bytes, shape)?;
    let empty = if since == Cursor::default() { "[no output]\n" } else { "[no new output]\n" };
    answer += if shown.text.is_empty() { empty } else { &shown.text };
    if !ended {
        answer += &format!("next: wait_for jobs=[{}] since={}\n", job.id(), shown.next);
    }
    Ok(text(answer))
}

/// Writes the input and closes it. The note says how much the program has not taken.
fn feed(call: &ToolCall, job: &Job, input: &str, patience: Duration) -> Option<String> {
    let patience = patience.clamp(Duration::from_secs(1), Duration::from_secs(10));
    if call.interrupt.is_raised() {
        return None;
    }
    match job.send(input.as_bytes(), SendEof::Yes, patience) {
        Ok(()) => None,
        Err(quell::Error::NotRead { sent, .. }) => {
            // Without an end of its input a program that reads on would wait for ever.
            let _ = job.send(b"", SendEof::Yes, patience);
            Some(format!(
                "[the program has read only {sent} of {} bytes of stdin; the rest was dropped]\n",
                input.len()
            ))
        }
        // It ended without reading everything, as `head` does.
        Err(quell::Error::State(_)) => None,
        Err(error) => Some(format!("[stdin could not be written: {error}]\n")),
    }
}

#[derive(Deserialize)]
struct StartJob {
    command: String,
    name: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    ready_port: Option<u64>,
    ready_log: Option<String>,
    ready_url: Option<String>,
    wait_s: Option<u64>,
    restart: Option<String>,
    #[serde(default)]
    interactive: bool,
    #[serde(default)]
    keep: bool,
    ttl_s: Option<u64>,
}

pub fn start_job(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: StartJob = call.read()?;
    let access = call.access(shell(), None)?;
    let (wait, note) = call.wait(args.wait_s, 30);
    let (job, is_new) = match running_already(call, &access, &args)? {
        Some(job) => (job, false),
        None => (start_new(call, &access, &args)?, true),
    };
    call.watch(&job);
    let result = wait_until_ready(call, &job, wait);
    let (met, has_sign) = call.about(&job, result)?;
    let result = describe_start(&job, &args, met, has_sign, is_new, note);
    call.about(&job, result)
}

/// How the wait for readiness ended, and whether the job has a sign of it.
fn wait_until_ready(call: &ToolCall, job: &Job, wait: Duration) -> Result<(Condition, bool), ToolFailure> {
    let has_sign = job.status()?.ready_rules.is_some();
    let met = if has_sign {
        let wanted = WaitFor::end().ready().or_interrupted(&call.interrupt);
        job.wait(&wanted, Some(wait))?.met
    } else {
        let wanted = WaitFor::end().or_interrupted(&call.interrupt);
        job.wait(&wanted, Some(wait.min(FIRST_LOOK)))?.met
    };
    Ok((met, has_sign))
}

fn describe_start(
    job: &Job,
    args: &StartJob,
    met: Condition,
    has_sign: bool,
    is_new: bool,
    note: Option<String>,
) -> Result<CallToolResult, ToolFailure> {
    let mut answer = headline(job)?;
    answer += match (met, has_sign) {
        (Condition::Nothing, true) => "; NOT READY yet",
        (Condition::Exit, true) => "; it ended before it was ready",
        _ => "",
    };
    answer.push('\n');
    if !is_new {
        answer += "[it was running already: nothing was started]\n";
    }
    if args.keep {
        answer += "[it outlives this client: stop_jobs ends it]\n";
    }
    answer.extend(note);
    let shape = if met == Condition::Exit { Shape::MostlyEnd } else { Shape::BothEnds };
    finish(job, answer, Cursor::default(), budget::DEFAULT / 2, shape)
}

/// The live job of this session that has the same name and command.
fn running_already(call: &ToolCall, access: &Access, args: &StartJob) -> Result<Option<Job>, ToolFailure> {
    let Some(name) = &args.name else { return Ok(None) };
    let session = Some(call.shared.lease.session.clone());
    let named = Filter { session, name: Some(name.clone()), limit: Some(0), ..Filter::default() };
    let listing = access.quell.list(&named)?;
    let Some(view) = listing.jobs.first().filter(|view| !has_ended(view)) else { return Ok(None) };
    let job = access.quell.job_with(view.id);
    let same = job.command().is_ok_and(|command| command == shell_command(&args.command));
    Ok(same.then_some(job))
}

fn start_new(call: &ToolCall, access: &Access, args: &StartJob) -> Result<Job, ToolFailure> {
    let mut background = background(call, access)?;
    let port = args.ready_port.map(|port| match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(port),
        Ok(_) | Err(_) => {
            Err(ToolFailure::argument(format!("ready_port must be from 1 to 65535, not {port}")))
        }
    });
    background.ready = ReadyCheck {
        rules: ReadyRules {
            port: port.transpose()?,
            log: args.ready_log.clone(),
            http: args.ready_url.clone(),
            cmd: None,
        },
        interval: access.config.ready.interval,
        timeout: access.config.ready.timeout,
    };
    background.restart = access.config.start.restart;
    match args.restart.as_deref() {
        Some("on-failure") => background.restart.policy = RestartPolicy::OnFailure,
        Some(_) => background.restart.policy = RestartPolicy::No,
        None => {}
    }
    background.pty = args.interactive;
    background.ttl = limit("ttl_s", args.ttl_s)?;
    if args.keep {
        background.owner = None;
    }
    let mut request = request(call, access, &args.command, background, args.cwd.clone(), args.env.clone());
    request.name.clone_from(&args.name);
    Ok(access.quell.start(&request)?)
}

/// A background job that lives as long as the client.
pub fn background(call: &ToolCall, access: &Access) -> Result<Background, ToolFailure> {
    Ok(Background {
        max_log: access.config.start.max_log,
        owner: Some(call.shared.lease.owner()?),
        ..Background::default()
    })
}

fn request(
    call: &ToolCall,
    access: &Access,
    command: &str,
    background: Background,
    cwd: Option<PathBuf>,
    env: BTreeMap<String, String>,
) -> JobRequest {
    let mut request = JobRequest::new(shell_command(command), background);
    access.config.configure(&mut request);
    request.cwd = cwd;
    request.env.set.extend(env.into_iter().map(|(key, value)| (key.into(), value.into())));
    belongs_here(call, &mut request);
    request
}

/// Puts a job into the session, with the name of the client.
pub fn belongs_here(call: &ToolCall, request: &mut JobRequest) {
    let lease = &call.shared.lease;
    request.session = Some(lease.session.clone());
    request.tags.insert("client".into(), lease.client_name.clone());
}

fn shell_command(command: &str) -> Vec<OsString> {
    [shell(), "-c", command].map(OsString::from).to_vec()
}

/// The shell that models write for, if the host has it.
fn shell() -> &'static str {
    let has_bash =
        ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"].iter().any(|path| Path::new(path).exists());
    if has_bash { "bash" } else { "sh" }
}
