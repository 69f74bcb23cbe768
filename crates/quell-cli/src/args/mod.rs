//! The command line: the only place where raw words become checked arguments.

mod common;
mod complete;
mod completions;
mod config;
mod deferred;
mod doctor;
mod events;
mod gc;
mod guard;
mod kill;
mod list;
mod logs;
mod man;
mod mcp;
mod restart;
mod rm;
mod run;
mod send;
mod serve;
mod service;
mod setup;
mod signal;
mod start;
mod stats;
mod status;
mod stop;
mod sweep;
mod test;
mod top;
mod tree;
mod wait;
mod wrap;

use std::ffi::OsString;

use clap::builder::Styles;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use quell::ErrorBody;
use serde_json::json;

pub use common::{JobArgs, LeakArg, OwnerArg, UntilArg};
pub use complete::{CompleteArgs, CompleteWhat};
pub use completions::{CompletionsArgs, ShellArg};
pub use config::{ConfigArgs, ConfigVerb};
use deferred::Late;
pub use doctor::DoctorArgs;
pub use events::EventsArgs;
pub use gc::{GcArgs, RuleArg};
pub use guard::{CheckVerb, GuardArgs, GuardVerb};
pub use kill::KillArgs;
pub use list::ListArgs;
pub use logs::LogsArgs;
pub use man::ManArgs;
pub use mcp::{McpArgs, ScopeArg};
pub use restart::RestartArgs;
pub use rm::RmArgs;
pub use run::RunArgs;
pub use send::SendArgs;
pub use serve::{RoleArg, ServeArgs};
pub use service::ServiceArgs;
pub use setup::{AgentArg, SetupArgs};
pub use signal::SignalArgs;
pub use start::{OwnerExitArg, RestartArg, StartArgs};
pub use stats::{ByArg, StatsArgs};
pub use status::StatusArgs;
pub use stop::StopArgs;
pub use sweep::SweepArgs;
pub use test::TestArgs;
pub use top::TopArgs;
pub use tree::TreeArgs;
pub use wait::WaitArgs;
pub use wrap::WrapArgs;

/// The result of parsing the command line.
pub enum Parsed {
    /// A verb to carry out.
    Verb(Box<CliCommand>),
    /// Help or the version was asked for.
    Help(String),
    /// There are no words: the help for a person, and a failure for a script.
    NoVerb(String),
    /// The words are not valid.
    Usage { verb: String, json: bool, error: ErrorBody },
}

#[derive(Parser)]
#[command(name = "quell", version, about = "Start anything, stop everything", arg_required_else_help = true)]
#[command(
    after_help = "`quell COMMAND --help` has exit codes and examples. Documentation: README.md and docs/ in the source."
)]
struct Cli {
    #[command(subcommand)]
    verb: CliCommand,
}

/// The verbs.
#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "made once, and moved once")]
pub enum CliCommand {
    /// Run a command in the foreground and leave nothing behind
    Run(Late<RunArgs>),
    /// Start a command in the background and print the id of its job
    Start(Late<StartArgs>),
    /// Run tests within a scope and a time limit, and leave nothing behind
    Test(Late<TestArgs>),
    /// Run an MCP server that cannot outlive its client
    Wrap(Late<WrapArgs>),
    /// Stop jobs and everything they started
    Stop(Late<StopArgs>),
    /// Print the output of a job
    Logs(Late<LogsArgs>),
    /// Show what happened to jobs
    Events(Late<EventsArgs>),
    /// Wait for the end of jobs, readiness, a line of output, or a stall
    Wait(Late<WaitArgs>),
    /// Write to a job's standard input
    Send(Late<SendArgs>),
    /// Send a signal to a job
    Signal(Late<SignalArgs>),
    /// Stop jobs and start the same commands again
    Restart(Late<RestartArgs>),
    /// List live jobs and those that ended last
    #[command(visible_aliases = ["ls", "ps"])]
    List(Late<ListArgs>),
    /// Show all jobs live in the terminal, and stop them
    Top(Late<TopArgs>),
    /// Show everything that is known about a job
    Status(Late<StatusArgs>),
    /// Show the process tree of a job
    Tree(Late<TreeArgs>),
    /// Show statistics of the jobs that have ended
    Stats(Late<StatsArgs>),
    /// Remove ended jobs: records, logs and receipts
    Rm(Late<RmArgs>),
    /// Remove old jobs by age, number and size
    Gc(Late<GcArgs>),
    /// Finish the stop of jobs whose keeper was killed
    Sweep(Late<SweepArgs>),
    /// Stop a process that quell did not start, if the policy allows it
    Kill(Late<KillArgs>),
    /// Check what the policy would allow
    Guard(Late<GuardArgs>),
    /// Control a systemd service, if the policy allows it
    Service(Late<ServiceArgs>),
    /// Serve jobs as tools for an agent, over stdio (MCP)
    Mcp(Late<McpArgs>),
    /// Serve jobs over HTTP: a dashboard, an API and events
    Serve(Late<ServeArgs>),
    /// Add quell to the configuration of an agent, or remove it
    Setup(Late<SetupArgs>),
    /// Show how well this host can contain jobs, and why
    Doctor(Late<DoctorArgs>),
    /// Show the settings and where each of them comes from
    Config(Late<ConfigArgs>),
    /// Print a completion script for a shell
    Completions(Late<CompletionsArgs>),
    /// Write the manual pages
    #[command(hide = true)]
    Man(Late<ManArgs>),
    /// Print words for the completion scripts, which call this
    #[command(name = "__complete", hide = true)]
    Complete(Late<CompleteArgs>),
    #[command(flatten)]
    Role(OwnRole),
}

/// What quell calls itself for.
#[derive(Subcommand)]
pub enum OwnRole {
    /// Keep a job; quell calls this itself
    #[command(name = "__keep", hide = true)]
    Keep,
    /// Run the hooks of a lost job; quell calls this itself
    #[command(name = "__hooks", hide = true)]
    NotifyHooks,
    /// Print the points at which a fault can be asked for
    #[cfg(feature = "faults")]
    #[command(name = "__points", hide = true)]
    Points,
}

/// The whole command line, for completions and manual pages.
pub fn command() -> clap::Command {
    deferred::AT_ONCE.store(true, std::sync::atomic::Ordering::Relaxed);
    Cli::command()
}

/// Whether the answer must be JSON, also if the words can't be parsed.
pub fn wants_json(words: &[OsString]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Reads the words.
pub fn parse(words: Vec<OsString>) -> Parsed {
    // quell's own call of itself, at each start of a job.
    if words.len() == 2 && words[1] == "__keep" {
        return Parsed::Verb(Box::new(CliCommand::Role(OwnRole::Keep)));
    }
    // A usage error must know the verb and --json, which are not parsed then.
    let said: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let first = said.first().cloned().unwrap_or_default();
    let json = wants_json(&words);
    let mut command = Cli::command();
    let parsed = command.try_get_matches_from_mut(words).and_then(|matches| Cli::from_arg_matches(&matches));
    let called = |verb: &&clap::Command| {
        verb.get_name() == first || verb.get_all_aliases().any(|alias| alias == first)
    };
    let known = || command.get_subcommands().find(called).map(|verb| verb.get_name().to_owned());
    match parsed {
        Ok(cli) => Parsed::Verb(Box::new(cli.verb)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Parsed::Help(error.to_string())
        }
        Err(error)
            if first.is_empty() && error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            Parsed::NoVerb(error.to_string())
        }
        Err(error) => {
            let verb = known().unwrap_or_else(|| "quell".to_owned());
            // Once more without styles, so that `usage_error` can read clap's text as it is.
            let again = ["quell"].into_iter().chain(said.iter().map(String::as_str));
            let plain = Cli::command().styles(Styles::plain()).try_get_matches_from(again).err();
            let error = plain.unwrap_or(error);
            Parsed::Usage { error: usage_error(&verb, &help_of(&command, &said), &error), verb, json }
        }
    }
}

/// The call that prints the help of the verb that `words` name, such as `quell guard check kill --help`.
fn help_of(command: &clap::Command, words: &[String]) -> String {
    let (mut at, mut call) = (command, "quell ".to_owned());
    for verb in words {
        let Some(found) = at.find_subcommand(verb) else { break };
        (at, call) = (found, format!("{call}{} ", found.get_name()));
    }
    call + "--help"
}

/// Whether the word that was not expected is a number below 0, or its beginning: clap takes `-1s` for the option `-1`.
fn is_negative(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    word.is_some_and(|word| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// clap's error as one line and a hint.
fn usage_error(verb: &str, help: &str, error: &clap::Error) -> ErrorBody {
    // What is wrong, with the words that are missing or would be right; after an empty line come tips and the usage.
    // Not `to_string`, which leaves out the control characters of the words that it quotes.
    let text = error.render().ansi().to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest = lines.collect::<Vec<_>>().join(", ");
    let whole =
        if rest.is_empty() { first.trim_end_matches(':').to_owned() } else { format!("{first} {rest}") };
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no verb was given".to_owned(),
        ErrorKind::MissingRequiredArgument if matches!(verb, "run" | "start" | "test" | "wrap") => {
            "no command was given".to_owned()
        }
        ErrorKind::UnknownArgument if is_negative(error) => {
            format!("{whole}: no option takes a negative number")
        }
        _ => whole,
    };
    let suggestion =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .iter()
            .find_map(|kind| error.get(*kind))
            .map(|value| format!("did you mean `{value}`? "));
    ErrorBody {
        code: "usage".into(),
        message,
        hint: format!("{}see `{help}`", suggestion.unwrap_or_default()),
        retryable: false,
        details: json!({}),
    }
}
