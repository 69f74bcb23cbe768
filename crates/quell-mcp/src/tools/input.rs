//! `send_input`.

use std::time::{Duration, Instant};

use quell::binary::{JobInternals, Watch};
use quell::{Cursor, Error, Job, SendEof};
use rmcp::model::CallToolResult;
use serde::Deserialize;
use std::os::fd::AsFd;

use super::start::finish;
use super::{ToolCall, has_ended};
use crate::answer::headline;
use crate::budget::{self, Shape};
use crate::failure::ToolFailure;

/// How long the program may take to make room for the input.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct InputArguments {
    job: String,
    text: Option<String>,
    newline: Option<bool>,
    key: Option<String>,
    #[serde(default)]
    eof: bool,
    quiet_ms: Option<u64>,
    wait_s: Option<u64>,
    max_bytes: Option<u64>,
}

pub fn send_input(call: &ToolCall) -> Result<CallToolResult, ToolFailure> {
    let args: InputArguments = call.read()?;
    if args.text.is_none() && args.key.is_none() && !args.eof {
        return Err(ToolFailure::argument("give `text`, `key` or eof=true"));
    }
    let access = call.access(&args.job, None)?;
    let (wait, note) = call.wait(args.wait_s, 10);
    let job = call.find_own(&access, &args.job)?;
    call.watch(&job);
    let mut data = args.text.clone().unwrap_or_default().into_bytes();
    if args.text.is_some() && args.newline.unwrap_or(true) {
        data.push(b'\n');
    }
    data.extend_from_slice(match args.key.as_deref() {
        Some("ctrl-c") => b"\x03",
        Some("ctrl-d") => b"\x04",
        Some("enter") => b"\r",
        Some("up") => b"\x1b[A",
        Some("down") => b"\x1b[B",
        Some("tab") => b"\t",
        _ => b"",
    });
    let before = end_of(&job)?;
    // Before the input is sent, so that no output is missed.
    let mut watch = Watch::new().map_err(Error::io("inotify"))?;
    watch.add(job.dir().dir()).map_err(Error::io(job.dir().dir()))?;
    job.send(&data, SendEof::from(args.eof), PATIENCE).map_err(|error| match error {
        Error::State(why) => ToolFailure::new(
            "wrong_state",
            why,
            "only a running job that was started with interactive=true takes input",
        ),
        error => error.into(),
    })?;
    let quiet = Duration::from_millis(args.quiet_ms.unwrap_or(500).clamp(50, 10_000));
    wait_until_quiet(call, &job, &mut watch, before, quiet, Instant::now() + wait)?;
    let mut answer = headline(&job)? + "\n";
    answer.extend(note);
    finish(&job, answer, before, budget::size(args.max_bytes), Shape::BothEnds)
}

/// Waits until the job has written something and then nothing for `quiet`, or has ended.
fn wait_until_quiet(
    call: &ToolCall,
    job: &Job,
    watch: &mut Watch,
    before: Cursor,
    quiet: Duration,
    deadline: Instant,
) -> Result<(), ToolFailure> {
    let mut seen = before;
    // A program that answers nothing is given the same time.
    let mut quiet_at = Instant::now() + quiet;
    loop {
        let until = quiet_at.min(deadline);
        watch.wait_or(Some(until), Some(call.interrupt.as_fd())).map_err(Error::io(job.dir().dir()))?;
        let now = end_of(job)?;
        if now != seen {
            (seen, quiet_at) = (now, Instant::now() + quiet);
        }
        let is_over = Instant::now() >= quiet_at.min(deadline);
        if is_over || call.interrupt.is_raised() || has_ended(&job.view()?) {
            return Ok(());
        }
    }
}

/// The end of the output so far.
fn end_of(job: &Job) -> Result<Cursor, ToolFailure> {
    Ok(job.logs().last(0).read()?.cursor)
}
