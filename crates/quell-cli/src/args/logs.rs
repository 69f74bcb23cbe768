//! The arguments of `logs`.

use clap::Args;
use quell::units::parse_size;

use super::common::number;

const LOGS_HELP: &str = "\
Both streams are merged in the order in which the keeper read them. Writes within microseconds of each other \
can't be ordered. Where one stream stops within a line and the other continues, a line end is added. One \
stream alone, without options that select lines, is printed byte for byte; with --raw both are. What was not \
kept is reported where it is missing, or on stderr where the bytes must be exact.

On a terminal only text and colors pass. Sequences that set the title or the clipboard, clear the screen or \
move the cursor are left out, and other control characters are shown as escapes. --raw passes everything.

A cursor such as o1234e56 is a position in both streams. --since with the cursor of an earlier call prints \
exactly what follows it.

--budget counts all that goes to stdout: the lines, their times, the note on what was left out, and the JSON \
around them. A note that does not fit goes to stderr. A JSON object is never cut: if it is larger than the \
budget, it has no lines.

Exit codes:
  0    success, also if the reader closes the pipe early
  1    the job has no output of its own (`quell run`)
  2    wrong usage
  3    no such job
  4    refused by the guard
  125  quell failed

Examples:
  quell logs web
  quell logs web -f --tail 20
  quell logs --stdout build > build.log
  quell logs test --grep 'FAIL|panic' --timestamps
  quell logs test --budget 8K
  quell logs web --since o1234e56 --cursor
  quell logs web -f --json";

#[derive(Args)]
#[command(after_help = LOGS_HELP)]
pub struct LogsArgs {
    /// Name, id, or start of an id (at least 4 characters)
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Follow new output until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// The first N lines; with --tail these and the last ones
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "follow")]
    pub head: Option<usize>,
    /// The last N lines
    #[arg(short = 'n', long, value_name = "N", value_parser = number)]
    pub tail: Option<usize>,
    /// Only output after this cursor
    #[arg(long, value_name = "CURSOR")]
    pub since: Option<String>,
    /// Only output before this cursor
    #[arg(long, value_name = "CURSOR", conflicts_with = "follow")]
    pub until: Option<String>,
    /// Print at most this many bytes, head and tail
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "follow")]
    pub budget: Option<u64>,
    /// Only lines that match (by their first 1 MiB)
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<String>,
    /// Only standard output (with --pty: everything)
    #[arg(long)]
    pub stdout: bool,
    /// Only standard error
    #[arg(long)]
    pub stderr: bool,
    /// Put the time before each line
    #[arg(short, long)]
    pub timestamps: bool,
    /// Print every byte of both streams as it came, also on a terminal
    #[arg(long, conflicts_with_all = ["head", "tail", "budget", "grep", "timestamps", "json"])]
    pub raw: bool,
    /// Print the cursor to continue from on stderr at the end
    #[arg(long)]
    pub cursor: bool,
    /// Print one JSON object; with --follow one per line
    #[arg(long)]
    pub json: bool,
}
