//! What quell's verbs cost in system calls and instructions, held against what they cost before. Neither depends on how busy
//! the machine is, so that a rise is the code's doing.

mod baseline;
mod inside;
mod trace;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use baseline::{Compared, Counts, Standing, TOLERATED, compare, difference};

/// How often system calls are counted; the least counts, because an interrupted call is made again.
const CALLS_ROUNDS: usize = 5;
/// The same for instructions, which differ by less and take longer.
const INSTRUCTIONS_ROUNDS: usize = 2;
/// One count takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);
/// What stands behind the name of what did not come to its end.
const BEGINNING: &str = ", its beginning";
/// Says that this is the one inside.
const INSIDE: &str = "--inside";

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counter {
    SystemCalls,
    Instructions,
}

/// Whose calls or instructions. All under `--contain reaper`, which every host has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verb {
    /// Front and keeper; instructions are counted to the same end, or until valgrind can't follow.
    Run,
    /// A job that ends by itself: client, standby and keeper to their end. Instructions: the client's.
    Start,
    /// The client's side. No instructions: those of a wait depend on how busy the machine is.
    Stop,
    /// Of a job that is over: what it takes to find it and to say so.
    StopOver,
    /// The other side of a stop: a job from its start to its end, client, standby and keeper.
    Kept,
    /// The same with more processes.
    KeptMany,
    /// With some finished jobs.
    List,
}

const VERBS: [(Verb, &str); 7] = [
    (Verb::Run, "run"),
    (Verb::Start, "start"),
    (Verb::Stop, "stop"),
    (Verb::StopOver, "stop, over already"),
    (Verb::Kept, "start, stopped"),
    (Verb::KeptMany, "start, 20 stopped"),
    (Verb::List, "list"),
];

/// `cargo xtask cost [--bless]`.
pub fn main(words: &[String]) -> Result<ExitCode, String> {
    if let [first, verb, counter, quell, job] = words
        && first == INSIDE
    {
        let verb = VERBS.iter().find(|(_, name)| name == verb).ok_or("no such verb")?.0;
        let counter = if counter == "calls" { Counter::SystemCalls } else { Counter::Instructions };
        let (count, whole) = inside::count(verb, counter, Path::new(quell), Path::new(job))?;
        println!("{count} {whole}");
        return Ok(ExitCode::SUCCESS);
    }
    if words.iter().any(|word| word != "--bless") {
        return Err("only --bless may follow; `cargo xtask help` says more".into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let baseline = root.join("cost.json");
    let known: Value =
        fs::read(&baseline).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let outside = match Outside::new(root)? {
        Ok(outside) => outside,
        Err(why) => {
            println!("SKIPPED: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let mut now = json!({});
    let mut failed = false;
    for (counter, key, tool, rounds) in [
        (Counter::SystemCalls, "system_calls", "strace", CALLS_ROUNDS),
        (Counter::Instructions, "instructions", "valgrind", INSTRUCTIONS_ROUNDS),
    ] {
        println!("{key}, the least of {rounds}:");
        let Some(version) = version(tool) else {
            println!("  SKIPPED: {tool} is not on the PATH");
            now[key] = known[key].clone();
            continue;
        };
        let (counts, spread) = outside.counts(counter, rounds)?;
        // What valgrind can follow, and what it makes of an instruction, differs between its versions.
        let other = known[key]["counted_with"].as_str().filter(|known| *known != version);
        let before = match other.filter(|_| counter == Counter::Instructions) {
            Some(other) => {
                println!("  SKIPPED: the baseline was counted with {other}, and this is {version}");
                Counts::new()
            }
            None => from_json(&known[key]["counts"]),
        };
        let compared = compare(&before, &counts);
        compared.iter().for_each(|row| show(row, &spread));
        if counts.keys().any(|name| name.ends_with(BEGINNING)) {
            println!("  ({version} can't follow to the end where only the beginning is counted)");
        }
        let bad = |row: &Compared| matches!(row.standing, Standing::Risen | Standing::Missing);
        failed |= compared.iter().any(bad);
        now[key] = json!({"counted_with": version, "counts": counts});
    }
    if words.iter().any(|word| word == "--bless") {
        let text = serde_json::to_string_pretty(&now).unwrap_or_default() + "\n";
        fs::write(&baseline, text).map_err(|why| format!("{}: {why}", baseline.display()))?;
        println!("{} is written", baseline.display());
        return Ok(ExitCode::SUCCESS);
    }
    if failed {
        println!(
            "more than {TOLERATED} % dearer, or not counted any more: mend it, or say `cargo xtask cost --bless` on purpose"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn show(row: &Compared, spread: &Counts) {
    let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let part = row.before.zip(row.now).map(|(before, now)| difference(before, now) * 100.0);
    let part = part.map(|part| format!("{part:+.1} %")).unwrap_or_default();
    let note = match row.standing {
        Standing::Same => "",
        Standing::Risen => "RISEN",
        Standing::Fallen => "fallen: worth a new baseline",
        Standing::New => "not in the baseline",
        Standing::Missing => "MISSING",
    };
    let spread =
        spread.get(&row.name).map(|spread| format!("(samples differ by {spread})")).unwrap_or_default();
    let line = format!(
        "  {:22} before {:>9}  now {:>9}  {part:>9}  {spread}  {note}",
        row.name,
        number(row.before),
        number(row.now)
    );
    println!("{}", line.trim_end());
}

fn from_json(counts: &Value) -> Counts {
    let rows = counts.as_object().into_iter().flatten();
    rows.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
}

/// The first line of what a program says of its version; nothing if there is no such program.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// The process that starts the counts.
struct Outside {
    /// `unshare` with what is needed here.
    unshare: Vec<&'static str>,
    this: PathBuf,
    quell: PathBuf,
    job: PathBuf,
}

impl Outside {
    /// The inner error says why nothing can be counted here.
    fn new(root: &Path) -> Result<Result<Self, String>, String> {
        let this = std::env::current_exe().map_err(|why| format!("where this program is: {why}"))?;
        let quell = std::env::var_os("QUELL_BIN").map_or_else(|| root.join("../target/quell"), PathBuf::from);
        let quell = quell
            .canonicalize()
            .map_err(|why| format!("{}: {why}; build the release first", quell.display()))?;
        let mut unshare = vec!["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        if !rustix::process::geteuid().is_root() {
            unshare.extend(["--user", "--map-root-user"]);
        }
        let probe = Command::new(unshare[0])
            .args(&unshare[1..])
            .args(["mount", "-t", "tmpfs", "tmpfs", "/tmp"])
            .output();
        match probe {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                return Ok(Err(format!(
                    "no namespaces here: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                )));
            }
            Err(why) => return Ok(Err(format!("unshare: {why}"))),
        }
        // Beside this program, so that nothing is left elsewhere.
        let job = this.with_file_name("cost-job");
        let cc = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&job).arg(root.join("job.c")).status();
        match cc {
            Ok(status) if status.success() => Ok(Ok(Self { unshare, this, quell, job })),
            Ok(status) => Err(format!("cc could not build the job: {status}")),
            Err(why) => Ok(Err(format!("cc: {why}"))),
        }
    }

    /// The least count of each, and how much more the most was.
    fn counts(&self, counter: Counter, rounds: usize) -> Result<(Counts, Counts), String> {
        let (mut counts, mut spread) = (Counts::new(), Counts::new());
        for (verb, name) in VERBS {
            // The keeper is executed, and not every valgrind can follow that.
            if matches!(verb, Verb::Stop | Verb::Kept | Verb::KeptMany) && counter == Counter::Instructions {
                continue;
            }
            let all = (0..rounds).map(|_| self.once(name, counter)).collect::<Result<Vec<_>, _>>()?;
            let whole = all.iter().all(|(_, whole)| *whole);
            let name = if whole { name.to_owned() } else { format!("{name}{BEGINNING}") };
            let (least, most) = all
                .iter()
                .fold((u64::MAX, 0), |(least, most), (count, _)| (least.min(*count), most.max(*count)));
            counts.insert(name.clone(), least);
            spread.insert(name, most - least);
        }
        Ok((counts, spread))
    }

    /// One count, and whether the verb came to its end.
    fn once(&self, verb: &str, counter: Counter) -> Result<(u64, bool), String> {
        let word = if counter == Counter::SystemCalls { "calls" } else { "instructions" };
        let failed = |why: String| format!("{verb}, {word}: {why}");
        let mut child = Command::new(self.unshare[0])
            .args(&self.unshare[1..])
            .arg(&self.this)
            .args(["cost", INSIDE, verb, word])
            .args([&self.quell, &self.job])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| failed(why.to_string()))?;
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().map_err(|why| failed(why.to_string()))?.is_none() {
            if Instant::now() > deadline {
                // Its namespace goes with it.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("not within {PATIENCE:?}")));
            }
            sleep(Duration::from_millis(10));
        }
        let mut text = String::new();
        let read = child.stdout.take().map(|mut output| output.read_to_string(&mut text));
        let (count, whole) = text.trim().split_once(' ').ok_or_else(|| failed("no count".into()))?;
        read.transpose().map_err(|why| failed(why.to_string()))?;
        Ok((count.parse().map_err(|why| failed(format!("{count}: {why}")))?, whole == "true"))
    }
}
