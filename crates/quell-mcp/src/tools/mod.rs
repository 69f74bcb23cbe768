//! The tools. Each asks the guard for its verb, and then the library.

mod host;
mod input;
mod jobs;
mod output;
mod restart;
mod shared;
mod start;
mod stop;
mod tests_run;
mod wait;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell::binary::{AccessRequest, AskedThrough, Config};
use quell::{Condition, Cursor, Decision, Error, Filter, Interrupt, Job, JobId, JobState, JobView, Quell};
use quell_guard::{BUILT_IN, DecisionCode, Guard, Policy, Verb, decide_verb};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde::de::DeserializeOwned;

use crate::approval::{Approval, Decided};
use crate::failure::ToolFailure;
use crate::{JobScope, arguments, clean};

pub use shared::Shared;
use shared::stop_cancelled;

/// The tools for jobs, in the order of the list.
const TOOLS: &str = include_str!("../tools.json");
/// Those that touch the host.
const HOST_TOOLS: &str = include_str!("../host_tools.json");

/// The longest text of a progress message.
const LONGEST_MESSAGE: usize = 120;

/// All tools. The schemas are written by hand, in the part of JSON Schema that every client takes.
static ALL: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let read = |text| serde_json::from_str::<Vec<Tool>>(text).unwrap_or_default();
    [read(TOOLS), read(HOST_TOOLS)].concat()
});

/// The tool with this name, also one that the policy refuses: calling it says so.
pub fn named(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name)
}

/// The tools that the policy allows. It is the same list for every client.
pub fn allowed() -> impl Iterator<Item = &'static Tool> {
    let policy = Config::load_here().map(|loaded| loaded.config.guard);
    ALL.iter().filter(move |tool| match &policy {
        Ok(policy) => is_listed(policy, &tool.name),
        // Without a policy jobs can only be looked at and stopped.
        Err(_) => {
            matches!(&*tool.name, "wait_for" | "read_output" | "list_jobs" | "job_status" | "stop_jobs")
        }
    })
}

fn is_listed(policy: &Policy, tool: &str) -> bool {
    let allows = |verb| decide_verb(policy, verb).allowed;
    match tool {
        "host_kill" => !policy.kill.allow.is_empty() && allows(Verb::Kill),
        "host_service" => !policy.service.allow.is_empty() && allows(Verb::ServiceStatus),
        tool => verb_of(tool).is_some_and(allows),
    }
}

/// The verb that the guard is asked for. A service's depends on the action.
fn verb_of(tool: &str) -> Option<Verb> {
    Some(match tool {
        "run_command" | "start_job" => Verb::Start,
        "wait_for" => Verb::Wait,
        "read_output" => Verb::Logs,
        "list_jobs" => Verb::List,
        "job_status" => Verb::Status,
        "stop_jobs" => Verb::Stop,
        "send_input" => Verb::Send,
        "restart_job" => Verb::Restart,
        "run_tests" => Verb::Test,
        "host_kill" => Verb::Kill,
        _ => return None,
    })
}

/// One call.
#[derive(Clone)]
pub struct ToolCall {
    /// Its id, as JSON.
    pub id: String,
    pub shared: Arc<Shared>,
    pub tool: &'static Tool,
    pub arguments: JsonObject,
    /// The client, for the audit log.
    pub through: AskedThrough,
    /// Raised when the client cancels the call, or the server is about to exit.
    pub interrupt: Interrupt,
    /// The job whose output shows how the call goes on.
    pub watched: Arc<Mutex<Option<Job>>>,
    /// What the user has decided, if the user was asked.
    pub approval: Option<Decided>,
    /// Held until the last thread of this call has ended.
    pub slot: Arc<()>,
    pub began: Instant,
}

/// The result of a call.
pub enum Outcome {
    Answer(CallToolResult),
    /// The user has to be asked this.
    Ask(String),
}

/// Carries out a call, and passes the outcome on as soon as it is known.
pub fn carry_out(call: ToolCall, answer: impl FnOnce(Result<Outcome, ToolFailure>)) {
    let done = |result: Result<CallToolResult, ToolFailure>| result.map(Outcome::Answer);
    let name: &'static str = &call.tool.name;
    let outcome = match name {
        "run_command" => done(start::run_command(&call)),
        "start_job" => done(start::start_job(&call)),
        "wait_for" => done(wait::wait_for(&call)),
        "read_output" => done(output::read_output(&call)),
        "list_jobs" => done(jobs::list_jobs(&call)),
        "job_status" => done(jobs::job_status(&call)),
        "stop_jobs" => done(stop::stop_jobs(&call)),
        "send_input" => done(input::send_input(&call)),
        "restart_job" => done(restart::restart_job(&call)),
        "run_tests" => tests_run::run_tests(&call),
        "host_kill" => host::kill(&call),
        "host_service" => host::service(&call),
        other => Err(ToolFailure::new("internal", format!("{other} has no code"), "")),
    };
    call.shared.is_reported(&call.id);
    let home = call.shared.options.home.clone();
    // Its slot is free before the client can make the next call.
    drop(call);
    answer(outcome);
    // After the answer: the caller does not wait for it. The job runs whether this fails or not.
    if matches!(name, "run_command" | "start_job" | "run_tests")
        && let Ok(loaded) = Config::load_here()
        && loaded.config.gc.auto
    {
        let quell = quell::binary::open(home, PROGRAM);
        let _ = quell.auto_gc(&loaded.config.gc.rules());
    }
}

/// The program that keeps jobs: this one.
const PROGRAM: &str = "/proc/self/exe";

/// What a call works with once the guard has allowed it.
struct Access {
    quell: Quell,
    config: Config,
}

impl ToolCall {
    /// The arguments.
    fn read<T: DeserializeOwned>(&self) -> Result<T, ToolFailure> {
        arguments::read(self.tool, self.arguments.clone())
    }

    /// Asks the guard for the verb of this tool.
    fn access(&self, target: &str, reason: Option<String>) -> Result<Access, ToolFailure> {
        let verb = verb_of(&self.tool.name).unwrap_or(Verb::Mcp);
        let home = &self.shared.options.home;
        let through = Some(self.through.clone());
        let request = AccessRequest { verb, target: target.into(), reason, job: None, through };
        let (permit, settings) = quell::binary::permit(Config::load_here(), Some(home), request)?;
        let quell = quell::binary::open_through(home.clone(), PROGRAM, Some(permit), self.through.clone())?;
        // Verbs that work without a policy need no settings either.
        let config = settings.map(|loaded| loaded.config).unwrap_or_default();
        Ok(Access { quell, config })
    }

    /// The guard, for what asks it with more than a verb.
    fn guard(&self, config: &Config, reason: Option<String>) -> Guard {
        Guard::new(&self.shared.options.home, config.guard.clone())
            .because(reason)
            .masking(config.mask())
            .asked_through(Some(self.through.clone()))
    }

    /// How long this call may wait, and a note if that is less than what was asked for.
    fn wait(&self, asked: Option<u64>, default: u64) -> (Duration, Option<String>) {
        let most = self.shared.options.max_wait;
        let asked_for = Duration::from_secs(asked.unwrap_or(default));
        let note = || format!("[wait_s is at most {} here]\n", most.as_secs());
        (asked_for.min(most), (asked.is_some() && asked_for > most).then(note))
    }

    /// The job that `text` names: of this session if it is a name, else any.
    fn find(&self, quell: &Quell, text: &str) -> Result<Job, ToolFailure> {
        let session = Some(self.shared.lease.session.clone());
        let named =
            Filter { session: session.clone(), name: Some(text.into()), limit: Some(1), ..Filter::default() };
        if let Some(view) = quell.list(&named)?.jobs.first() {
            return Ok(quell.job_with(view.id));
        }
        quell.job(text).map_err(|error| match error {
            Error::NoSuchJob(_) => {
                let recent = Filter { session, limit: Some(5), ..Filter::default() };
                let jobs = quell.list(&recent).map(|listing| listing.jobs).unwrap_or_default();
                let known: Vec<String> = jobs
                    .iter()
                    .take(5)
                    .map(|view| view.name.clone().unwrap_or_else(|| view.id.to_string()))
                    .collect();
                let hint = match known.as_slice() {
                    [] => "this session has no jobs; list_jobs with everyone=true shows those of others"
                        .to_owned(),
                    known => {
                        format!("this session's latest jobs are {}; list_jobs shows all", known.join(", "))
                    }
                };
                ToolFailure::new(error.code(), error.to_string(), hint)
            }
            error => error.into(),
        })
    }

    /// The same for a job that is changed: it must be of this session, unless the server has the scope of all.
    fn find_own(&self, access: &Access, text: &str) -> Result<Job, ToolFailure> {
        let job = self.find(&access.quell, text)?;
        self.check_own(&access.config, &job.view()?)?;
        Ok(job)
    }

    fn check_own(&self, config: &Config, view: &JobView) -> Result<(), ToolFailure> {
        let own = &self.shared.lease.session;
        if self.shared.options.scope == JobScope::All || view.session.as_ref() == Some(own) {
            return Ok(());
        }
        let reason = match &view.session {
            Some(session) => format!("{} belongs to the session {session}, and this one is {own}", view.id),
            None => format!("{} belongs to no session, and this one is {own}", view.id),
        };
        let hint = "start the server with `quell mcp --scope all`, or use the command line";
        let decision = Decision::refuse(DecisionCode::OtherSession, BUILT_IN, reason, hint);
        let verb = verb_of(&self.tool.name).unwrap_or(Verb::Mcp);
        Err(self.guard(config, None).refuse(verb, &view.id.to_string(), decision).into())
    }

    /// Adds the id of `job` to a failure.
    fn about<T>(&self, job: &Job, result: Result<T, ToolFailure>) -> Result<T, ToolFailure> {
        result.map_err(|failure| failure.about(job.id(), self.shared.options.hint))
    }

    /// What the user has decided about `question`; none if the user was asked something else, or nothing.
    fn decided(&self, question: &str) -> Option<Approval> {
        self.approval.as_ref().filter(|decided| decided.question == question).map(|decided| decided.approval)
    }

    /// Begins the start of a job that must not outlive this call if its id reaches nothing that could use it. The server does not
    /// exit while the result lives. Fails if the call has been cancelled.
    fn begin_start(&self) -> Result<Arc<()>, ToolFailure> {
        let starting = self.shared.begin_start();
        if self.interrupt.is_raised() {
            return Err(ToolFailure::new("cancelled", "the call was cancelled: nothing was started", ""));
        }
        Ok(starting)
    }

    /// Says that `job` is the one that was started.
    fn is_to_report(&self, job: &Job) {
        self.shared.is_to_report(&self.id, job);
    }

    /// Stops the job if the call was interrupted, so that nothing learns its id.
    fn stop_if_unreported(&self, job: &Job, met: Condition) {
        if met != Condition::Exit && self.interrupt.is_raised() {
            stop_cancelled(job);
        }
    }

    /// Shows the output of this job while the call goes on.
    fn watch(&self, job: &Job) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.clone());
    }

    /// The result of a test run that ended after its call had been answered.
    fn tested(&self, id: JobId) -> String {
        self.shared.tested().get(&id).cloned().unwrap_or_default()
    }
}

/// A cursor in an argument.
fn cursor(text: Option<&str>) -> Result<Option<Cursor>, ToolFailure> {
    text.map(str::parse::<Cursor>).transpose().map_err(|error| ToolFailure::argument(error.to_string()))
}

/// Whether the job has ended.
fn has_ended(view: &JobView) -> bool {
    view.state == JobState::Ended
}

/// The last line of a job's output, for progress messages.
pub fn last_line(job: &Job) -> Option<String> {
    let page = job.logs().last(1).max_bytes(4096).read().ok()?;
    let (text, _) = clean::clean(page.lines.last()?.text.as_bytes());
    Some(text.chars().take(LONGEST_MESSAGE).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quell_guard::Effect;
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_tool_has_a_schema_that_all_clients_take() {
        assert_eq!(ALL.len(), 12);
        for tool in ALL.iter() {
            let hints = tool.annotations.as_ref().unwrap();
            let all =
                [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint];
            assert!(all.iter().all(Option::is_some), "{}", tool.name);
            let schema = Value::Object((*tool.input_schema).clone());
            assert_eq!((&schema["type"], &schema["additionalProperties"]), (&"object".into(), &false.into()));
            assert!(schema.to_string().len() < 5000, "{}", tool.name);
            let properties = schema["properties"].as_object().unwrap();
            for (name, property) in properties {
                check_subset(&tool.name, name, property);
            }
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{}: {required}", tool.name);
            }
        }
    }

    /// A single type, and no keyword that a client is known to refuse.
    fn check_subset(tool: &str, name: &str, property: &Value) {
        let known = ["type", "description", "enum", "items", "additionalProperties"];
        for (key, value) in property.as_object().unwrap() {
            assert!(known.contains(&key.as_str()), "{tool}.{name}: {key}");
            if key == "items" || key == "additionalProperties" {
                check_subset(tool, name, value);
            }
        }
        assert!(property["type"].is_string(), "{tool}.{name}");
    }

    #[test]
    fn the_list_is_small_and_always_the_same() {
        let ten: Vec<&Tool> = ALL.iter().take(10).collect();
        let text = serde_json::to_string(&ten).unwrap();
        assert!(text.len() <= 7000, "{} bytes", text.len());
        assert_eq!(serde_json::to_string(&ten).unwrap(), text);
    }

    #[test]
    fn a_policy_that_allows_only_reading_lists_only_what_reads() {
        let listed = |policy: &Policy| -> BTreeSet<&str> {
            ALL.iter().map(|tool| &*tool.name).filter(|tool| is_listed(policy, tool)).collect()
        };
        let read = Policy { max_effect: Effect::Read, ..Policy::default() };
        assert_eq!(listed(&read), BTreeSet::from(["wait_for", "read_output", "list_jobs", "job_status"]));
        let mut host = Policy::default();
        assert_eq!(listed(&host).len(), 10);
        host.kill.allow.push("node".into());
        assert!(listed(&host).contains("host_kill") && !listed(&host).contains("host_service"));
        host.deny.push(Verb::Stop);
        assert!(!listed(&host).contains("stop_jobs") && !listed(&host).contains("restart_job"));
    }
}
