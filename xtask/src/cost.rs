//! What quell's verbs cost in instructions and system calls, held against what they cost before. Neither depends on how busy
//! the machine is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};

/// A rise by more than this is a failure until the baseline is changed on purpose.
const TOLERATED: f64 = 1.05;
/// How often each is counted; the least counts, for who is interrupted does more.
const COUNTS: usize = 5;

/// A verb that is counted, and what is done before each time.
struct Row {
    name: &'static str,
    words: &'static [&'static str],
    /// Starts a job, whose id is the last word.
    needs_job: bool,
}

const ROWS: [Row; 4] = [
    Row { name: "run", words: &["run", "--contain", "reaper", "--", "/bin/true"], needs_job: false },
    Row { name: "start", words: &["start", "--contain", "reaper", "--", "/bin/true"], needs_job: false },
    Row { name: "stop", words: &["stop"], needs_job: true },
    Row { name: "list", words: &["list"], needs_job: false },
];

/// Where quell is measured: a home of its own, and an environment that is the same everywhere.
struct Place {
    dir: PathBuf,
    quell: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.command(&self.quell, &["stop", "--all"]).output();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.dir).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/bin:/bin").env("HOME", &self.dir).env("QUELL_HOME", self.dir.join("home"));
        command
    }

    /// Runs a counter around a verb; what it wrote to stderr, or to `trace`.
    fn counted(&self, counter: &[&str], row: &Row) -> Result<String, String> {
        let mut command = self.command(Path::new(counter[0]), &counter[1..]);
        command.arg(&self.quell).args(row.words);
        if row.needs_job {
            let start = ["start", "--contain", "reaper", "--", "/bin/sleep", "60"];
            let output = self.command(&self.quell, &start).output().map_err(|why| why.to_string())?;
            command.arg(String::from_utf8_lossy(&output.stdout).trim());
        }
        let output = command.output().map_err(|why| format!("{}: {why}", counter[0]))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{} {}: {said}", counter[0], row.name)) }
    }

    fn instructions(&self, row: &Row) -> Result<u64, String> {
        let said = self.counted(&["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"], row)?;
        let numbers =
            said.lines().filter_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
        Ok(numbers.sum())
    }

    fn calls(&self, row: &Row) -> Result<u64, String> {
        let trace = self.dir.join("trace");
        let path = trace.display().to_string();
        self.counted(&["strace", "-f", "-c", "-o", &path], row)?;
        let text = fs::read_to_string(&trace).map_err(|why| format!("{path}: {why}"))?;
        let total = text.lines().find(|line| line.ends_with(" total")).unwrap_or_default();
        let calls = total.split_whitespace().nth(3).and_then(|word| word.parse().ok());
        calls.ok_or_else(|| format!("no total in {text}"))
    }

    fn least(&self, count: impl Fn(&Self) -> Result<u64, String>) -> Result<u64, String> {
        let all = (0..COUNTS).map(|_| count(self)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().min().unwrap_or(0))
    }
}

/// `cargo xtask cost [--bless]`.
pub fn main(words: &[String]) -> Result<ExitCode, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let baseline = root.join("cost.json");
    let quell = std::env::var_os("QUELL_BIN").map_or(root.join("../target/release/quell"), PathBuf::from);
    let quell =
        quell.canonicalize().map_err(|why| format!("{}: {why}; build the release first", quell.display()))?;
    let dir = std::env::temp_dir().join(format!("quell-cost-{}", std::process::id()));
    fs::create_dir(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
    let place = Place { dir, quell };
    // The first one makes the home; the rest are what `list` shows.
    for _ in 0..20 {
        place
            .command(&place.quell, &["run", "--contain", "reaper", "--", "/bin/true"])
            .output()
            .map_err(|why| why.to_string())?;
    }
    let known: Value =
        fs::read(&baseline).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let (mut now, mut worse) = (json!({}), false);
    for row in &ROWS {
        let counted = [
            ("system_calls", place.least(|place| place.calls(row))?),
            ("instructions", place.least(|place| place.instructions(row))?),
        ];
        for (what, count) in counted {
            now[row.name][what] = count.into();
            let before = known[row.name][what].as_u64().unwrap_or(0);
            let ratio = count as f64 / before.max(1) as f64;
            let risen = before == 0 || ratio > TOLERATED;
            worse |= risen;
            let note = if risen { "  MORE" } else { "" };
            println!("{:6} {what:13} {count:>10}  before {before:>10}  × {ratio:.3}{note}", row.name);
        }
    }
    if words.iter().any(|word| word == "--bless") {
        let text = serde_json::to_string_pretty(&now).unwrap_or_default() + "\n";
        fs::write(&baseline, text).map_err(|why| format!("{}: {why}", baseline.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if worse {
        println!(
            "more than {:.0} % dearer: mend it, or say `cargo xtask cost --bless` on purpose",
            (TOLERATED - 1.0) * 100.0
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
