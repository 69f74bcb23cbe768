//! The command line: raw words become checked arguments here and nowhere else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use quell_core::{ErrorBody, Signal, parse_assignment, parse_cores, parse_duration, parse_size};
use serde_json::json;

/// What the words on the command line came to.
pub enum Parsed {
    /// A verb to carry out.
    Verb(Box<Verb>),
    /// Help or the version was asked for.
    Help(String),
    /// The words make no sense.
    Usage { verb: String, json: bool, error: ErrorBody },
}

#[derive(Parser)]
#[command(name = "quell", version, about = "Start anything, stop everything", arg_required_else_help = true)]
#[command(
    after_help = "Exit codes are listed in `quell run --help`. Documentation: README.md and docs/ in the source."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "made once, and moved once")]
pub enum Verb {
    /// Run a command in the foreground and leave nothing of it behind
    Run(RunArgs),
    /// Finish the stop of jobs whose keeper was killed, and put away what quell left
    Sweep(SweepArgs),
    /// Say what this host can do to hold a process tree, and what it can't
    Doctor(DoctorArgs),
    /// Say which settings hold here, and where each of them comes from
    Config(ConfigArgs),
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ContainArg {
    /// The strongest that doesn't change what the program sees
    Auto,
    /// A cgroup v2 of its own (own tree, or a scope of the systemd user manager)
    Cgroup,
    /// A PID namespace with its own /proc: the program sees other pids
    Pidns,
    /// Subreaper, session and group: works everywhere
    Reaper,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum LeakArg {
    /// Stop them
    Stop,
    /// Stop them and say so
    Report,
    /// Stop them and exit with 123
    Fail,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum UntilArg {
    /// The exit of the command itself
    Root,
    /// The exit of the last process that it started
    Tree,
}

const RUN_HELP: &str = "\
Exit codes:
  CMD's own   as it exited; 128+n if it died of signal n
  122         not proven dead: the receipt and stderr name the survivors
  123         something outlived the command, and --leak fail was given
  124         timed out
  125         quell itself failed or was called wrongly; or its keeper was killed when the command had exited already,
              and the rest of the tree with it
  126, 127    the command can't be executed, can't be found

A TERM, INT, HUP or QUIT to quell asks the whole tree to end, gives it --grace, then kills it; a second one kills it at
once. Keys of the terminal (Ctrl-C, Ctrl-Z) reach the command as they would without quell.

Examples:
  quell run --timeout 10m -- cargo test
  quell run --timeout 2s --grace 500ms --receipt r.json -- ./flaky-server
  quell run --leak fail -- make check
  quell run --contain pidns --json -- npm test";

#[derive(Args)]
#[command(after_help = RUN_HELP, override_usage = "quell run [OPTIONS] -- CMD…")]
pub struct RunArgs {
    /// Stop it after this long: 300ms, 1.5s, 2m, 1h
    #[arg(long, value_name = "DUR", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// How long the tree may take to end when asked, before it is killed
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = parse_duration)]
    pub grace: Duration,
    /// The signal that asks: TERM, SIGINT, 15, …
    #[arg(long, value_name = "SIG", default_value = "TERM")]
    pub signal: Signal,
    /// What holds the tree
    #[arg(long, value_enum, default_value = "auto")]
    pub contain: ContainArg,
    /// What to do about processes that outlive the command
    #[arg(long, value_enum, default_value = "stop")]
    pub leak: LeakArg,
    /// What ends the run
    #[arg(long, value_enum, default_value = "root")]
    pub until: UntilArg,
    /// Start in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set a variable; may be given many times
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub env: Vec<(String, String)>,
    /// Set the variables of a file, one K=V a line, # for comments; --env goes over it
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Begin with an empty environment
    #[arg(long)]
    pub clear_env: bool,
    /// Write the receipt (JSON) to this file
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Write the receipt (JSON) to this open descriptor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub receipt_fd: Option<i32>,
    /// Memory for the whole tree: 512M, 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub limit_memory: Option<u64>,
    /// Processes in the whole tree
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit_procs: Option<u64>,
    /// Cores for the whole tree: 0.5, 2
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub limit_cpu: Option<f64>,
    /// A name for people: letters, digits, dots, dashes and underscores
    #[arg(long, value_parser = name)]
    pub name: Option<String>,
    /// A label; may be given many times
    #[arg(long, value_name = "K=V", value_parser = parse_assignment)]
    pub tag: Vec<(String, String)>,
    /// Say nothing on stderr about what was stopped
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the receipt in an envelope as the last line of stdout; errors too
    #[arg(long)]
    pub json: bool,
    /// Keep no record of the run in QUELL_HOME
    #[arg(long)]
    pub no_record: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "\
Every job that is on record as alive and that nobody keeps any more is killed, counted and ended; every other command does
so with the jobs that it meets. What is kept is not touched.

Exit codes: 0 if all that was found is gone, 5 if something is not proven dead.

Examples:
  quell sweep --dry-run
  quell sweep
  quell sweep --json")]
pub struct SweepArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 if something stronger than the reaper can hold a job here, 1 if only the reaper can.

Examples:
  quell doctor
  quell doctor --json")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

/// What can be done with the settings.
#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Show every setting with its value and its origin
    Show(ConfigShowArgs),
}

#[derive(Args)]
#[command(after_help = "\
A flag goes over a QUELL_* variable, that over quell.toml (the nearest one upwards from here), that over your own file
($QUELL_CONFIG, else $XDG_CONFIG_HOME/quell/config.toml, else ~/.config/quell/config.toml), that over the default.
docs/config.md lists all settings.

Exit codes: 0; 2 if a file or a variable can't be used.

Examples:
  quell config show
  QUELL_STOP_GRACE=1s quell config show
  quell config show --json")]
pub struct ConfigShowArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("a timeout of 0 would end the command before it begins; leave it out for none".into())
        }
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) && !text.starts_with(['.', '-']) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is no name: use 1 to 64 letters, digits, `.`, `-` or `_`, and begin with none of `.` and `-`"
        ))
    }
}

/// Reads the words.
pub fn parse(words: Vec<OsString>) -> Parsed {
    // A usage error must know the verb and --json, which are not parsed then.
    let verb = words.get(1).map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    let known = ["run", "sweep", "doctor", "config"].contains(&verb.as_str());
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let verb = if known { verb } else { "quell".to_owned() };
    let parsed =
        Cli::command().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Parsed::Verb(Box::new(cli.verb)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Parsed::Help(error.to_string())
        }
        Err(error) => Parsed::Usage { error: usage_error(&verb, &error), verb, json },
    }
}

/// clap's error as one line and a hint.
fn usage_error(verb: &str, error: &clap::Error) -> ErrorBody {
    let see =
        if verb == "quell" { "see `quell --help`".to_owned() } else { format!("see `quell {verb} --help`") };
    let text = error.to_string();
    let first = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .trim_end_matches(':')
        .to_owned();
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no verb was given".to_owned(),
        ErrorKind::MissingRequiredArgument if verb == "run" => "no command was given".to_owned(),
        _ => first,
    };
    let suggestion =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .iter()
            .find_map(|kind| error.get(*kind))
            .map(|value| format!("did you mean `{value}`? "));
    ErrorBody {
        code: "usage".into(),
        message,
        hint: format!("{}{see}", suggestion.unwrap_or_default()),
        retryable: false,
        details: json!({}),
    }
}
