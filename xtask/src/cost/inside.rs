//! One count, in namespaces of its own, as their PID 1: the same pids, paths and processes every time, and whatever is left
//! goes with them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{WaitOptions, wait};

use super::trace;
use super::{Counter, Verb};

/// Everything is here, on a file system of its own.
const PLACE: &str = "/tmp";
const QUELL: &str = "/tmp/quell";
const TRUE: &str = "/bin/true";
const JOB: &str = "/tmp/job";
const READY: &str = "/tmp/ready";
const TRACES: &str = "/tmp/traces";
const CALLGRIND: &str = "/tmp/callgrind";

/// How many finished jobs `list` finds.
const FINISHED: usize = 20;
/// How many processes the larger job has.
const MANY: &str = "20";

/// Counts once; the count, and whether the verb came to its end.
pub fn count(verb: Verb, counter: Counter, quell: &Path, job: &Path) -> Result<(u64, bool), String> {
    prepare_place(quell, job)?;
    warm()?;
    let whole = match verb {
        Verb::Run => counted(counter, &["run", "--contain", "reaper", "--", TRUE])?,
        Verb::Start => counted(counter, &["start", "--contain", "reaper", "--", TRUE])?,
        Verb::List => counted(counter, &["list"])?,
        Verb::StopOver => counted(counter, &["stop", "it"])?,
        Verb::Stop => {
            finish(&mut quell_command(&long("1")))?;
            ready();
            counted(counter, &["stop", "it"])?
        }
        Verb::Kept | Verb::KeptMany => {
            let words = long(if verb == Verb::Kept { "1" } else { MANY });
            // strace stays until the last one that it follows is gone.
            let mut child = counter.around(&words).spawn().map_err(|why| format!("{counter:?}: {why}"))?;
            ready();
            finish(&mut quell_command(&["stop", "it"]))?;
            ended(&mut child)?
        }
    };
    all_gone();
    Ok((counter.result()?, whole))
}

/// The words for a job of so many processes that stays until it is stopped.
fn long(count: &str) -> [&str; 10] {
    ["start", "--contain", "reaper", "--name", "it", "--", JOB, "tree", count, READY]
}

/// An empty place, with the two programs in it.
fn prepare_place(quell: &Path, job: &Path) -> Result<(), String> {
    let failed = |path: &Path, why| format!("{}: {why}", path.display());
    // Read first: what is mounted may cover them.
    let programs =
        [(quell, QUELL), (job, JOB)].map(|(from, to)| (fs::read(from).map_err(|why| failed(from, why)), to));
    finish(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "tmpfs", PLACE]))?;
    for (bytes, to) in programs {
        let to = Path::new(to);
        fs::write(to, bytes?).map_err(|why| failed(to, why))?;
        fs::set_permissions(to, Permissions::from_mode(0o755)).map_err(|why| failed(to, why))?;
    }
    fs::create_dir(TRACES).map_err(|why| failed(Path::new(TRACES), why))
}

/// A home in which each verb has been used: its directories and its index are there.
fn warm() -> Result<(), String> {
    for _ in 1..FINISHED {
        finish(&mut quell_command(&["run", "--contain", "reaper", "--", TRUE]))?;
    }
    finish(&mut quell_command(&["start", "--contain", "reaper", "--name", "it", "--", TRUE]))?;
    finish(&mut quell_command(&["wait", "it"]))?;
    all_gone();
    finish(&mut quell_command(&["list"]))
}

/// The same environment everywhere.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(PLACE).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/tmp/user");
    command.env("QUELL_HOME", "/tmp/home");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn quell_command(words: &[&str]) -> Command {
    let mut command = clean(QUELL);
    command.args(words);
    command
}

fn finish(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(why) => Err(format!("{program}: {why}")),
    }
}

fn counted(counter: Counter, words: &[&str]) -> Result<bool, String> {
    let mut child = counter.around(words).spawn().map_err(|why| format!("{counter:?}: {why}"))?;
    ended(&mut child)
}

fn ended(child: &mut Child) -> Result<bool, String> {
    child.wait().map(|status| status.success()).map_err(|why| why.to_string())
}

/// Waits until the job is up. No event tells of that.
fn ready() {
    while !Path::new(READY).exists() {
        sleep(Duration::from_millis(1));
    }
}

/// Orphans are children of this process, which is PID 1: when it has none, all are gone.
fn all_gone() {
    while wait(WaitOptions::empty()).is_ok() {}
}

impl Counter {
    fn around(self, words: &[&str]) -> Command {
        let mut command = match self {
            Counter::SystemCalls => {
                let mut command = clean("strace");
                command.args(["-ff", "-qq", "-o"]).arg(Path::new(TRACES).join("of"));
                command
            }
            Counter::Instructions => {
                let mut command = clean("valgrind");
                command.args(["--tool=callgrind", "--vgdb=no", "--callgrind-out-file=/dev/null"]);
                command.arg(format!("--log-file={CALLGRIND}"));
                command
            }
        };
        command.arg(QUELL).args(words);
        command
    }

    fn result(self) -> Result<u64, String> {
        let read = |path: PathBuf| fs::read(&path).map_err(|why| format!("{}: {why}", path.display()));
        let count: u64 = match self {
            Counter::SystemCalls => {
                let files = fs::read_dir(TRACES).map_err(|why| format!("{TRACES}: {why}"))?.flatten();
                let texts = files.map(|file| read(file.path())).collect::<Result<Vec<_>, _>>()?;
                texts.iter().map(|text| trace::calls(&String::from_utf8_lossy(text), &[TRUE, JOB])).sum()
            }
            Counter::Instructions => {
                let text = read(CALLGRIND.into())?;
                let text = String::from_utf8_lossy(&text).into_owned();
                text.lines()
                    .filter_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok())
                    .sum()
            }
        };
        if count == 0 { Err(format!("{self:?}: nothing was counted")) } else { Ok(count) }
    }
}
