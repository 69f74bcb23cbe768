//! The arguments of `logs`.

use clap::Args;
use quell_core::parse_size;

const LOGS_HELP: &str = "\
Both streams are merged in the order in which the keeper saw them; what is
written to both within microseconds can't be told apart. Where one stream stops
within a line and the other goes on, a line end is added. One stream alone,
without options that choose lines, is given out byte by byte, exactly as it was
written, and so are both with --raw. What was not kept is stated where it is missing: in a line of
its own, or on stderr where the bytes must be exact.

On a terminal only text and colors pass. Sequences that set the title or the
clipboard, clear the screen or move the cursor are left out, and other control
characters are shown as escapes. --raw passes everything.

A cursor such as o1234e56 is a place in both streams. Reading takes nothing
away: --since with the cursor of one reading gives exactly what follows it.

Exit codes: 0; 1 the job has no output of its own (`quell run`); 2 usage; 3 no
such job; 125 quell failed. A reader that leaves early is no error.

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
    /// An id, the beginning of one, or a name
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Go on with what the job writes, until it has ended
    #[arg(short, long)]
    pub follow: bool,
    /// The first N lines; with --tail these and the last ones
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    pub head: Option<usize>,
    /// The last N lines
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<usize>,
    /// Only what comes after this cursor
    #[arg(long, value_name = "CURSOR")]
    pub since: Option<String>,
    /// Only what comes before this cursor
    #[arg(long, value_name = "CURSOR", conflicts_with = "follow")]
    pub until: Option<String>,
    /// At most so many bytes, head and tail, with the line that says what was left out and how to get it
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "follow")]
    pub budget: Option<u64>,
    /// Only lines that match; of one longer than 1 MiB the first 1 MiB is matched, and that is said
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<String>,
    /// Only standard output (and all of a terminal's)
    #[arg(long)]
    pub stdout: bool,
    /// Only standard error
    #[arg(long)]
    pub stderr: bool,
    /// Put the time before each line
    #[arg(short, long)]
    pub timestamps: bool,
    /// Print every byte as it came, both streams, on a terminal too
    #[arg(long, conflicts_with_all = ["head", "tail", "budget", "grep", "timestamps", "json"])]
    pub raw: bool,
    /// Say at the end, on stderr, from which cursor to go on
    #[arg(long)]
    pub cursor: bool,
    /// Print one JSON object; with --follow one a line
    #[arg(long)]
    pub json: bool,
}
