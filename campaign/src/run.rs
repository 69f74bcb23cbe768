//! The command line, the kinds of campaigns, and their sum.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use quell_tests::{few_pids, host};

use crate::{
    metrics::{Holdings, Metrics},
    play,
    rng::Rng,
    scenario,
};

/// What is run, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The quell that users have, on this host.
    Plain,
    /// The same in a PID namespace with few numbers, where those of the dead are used again at once.
    Recycle,
    /// A quell with injection points, that dies exactly where it is told to.
    Points,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Recycle => "recycle",
            Kind::Points => "points",
        }
    }
}

/// The command line.
#[derive(Clone, Debug)]
struct Options {
    seconds: u64,
    seed: u64,
    only: Option<u64>,
    width: usize,
    kind: Option<Kind>,
}

/// The pids that there are where they are used again.
const RECYCLED: u32 = 1500;

const USAGE: &str =
    "usage: campaign [--seconds N] [--seed N] [--only N] [--width N] [--kind plain|recycle|points]

  --seconds N  how long new scenarios are begun (60)
  --seed N     the same scenarios as in the run that printed it
  --only N     only this scenario of the seed, 20 times
  --width N    how many scenarios at once (3)
  --kind K     one kind only: plain, recycle (a PID namespace with few numbers), points (injection points)
";

fn options() -> Result<Options, String> {
    let mut options = Options { seconds: 60, seed: seed_of_now(), only: None, width: 3, kind: None };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("invalid number {text:?}"));
        match word.as_str() {
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--only" => options.only = Some(number(value()?)?),
            "--width" => options.width = number(value()?)?.clamp(1, 64) as usize,
            "--kind" => {
                let text = value()?;
                let kinds = [Kind::Plain, Kind::Recycle, Kind::Points];
                let kind = kinds.into_iter().find(|kind| kind.as_str() == text);
                options.kind = Some(kind.ok_or(format!("unknown kind {text}"))?);
            }
            other => return Err(format!("{other}?")),
        }
    }
    Ok(options)
}

fn seed_of_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64) % 1_000_000_007
}

/// The whole program.
pub fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("campaign: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // It writes `pid_max`, which must not be the host's.
    if options.kind == Some(Kind::Recycle)
        && (few_pids::available().is_err() || !host::in_own_pid_namespace())
    {
        eprintln!(
            "campaign: --kind recycle runs in a PID namespace of its own: unshare -pf --mount-proc --kill-child bash -c 'CAMPAIGN & wait $!'"
        );
        return ExitCode::from(2);
    }
    let metrics = Metrics::default();
    match options.kind {
        Some(kind) => play(&options, kind, &metrics),
        None => all_kinds(&options, &metrics),
    }
    if metrics.violations.get() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One kind after the other, each in a process of its own, and the sum.
fn all_kinds(options: &Options, metrics: &Metrics) {
    println!(
        "seed {}, {} s, {} at once, quell {}",
        options.seed,
        options.seconds,
        options.width,
        host::quell().display()
    );
    let (before, began) = (Holdings::now(), Instant::now());
    for (kind, share) in [(Kind::Plain, 60), (Kind::Recycle, 20), (Kind::Points, 20)] {
        let mut command = Command::new(env::current_exe().expect("this program"));
        let mut wrapper = None;
        match kind {
            Kind::Plain => {}
            Kind::Recycle => {
                if let Err(reason) = few_pids::available() {
                    quell_tests::skip("campaign --kind recycle", &reason);
                    continue;
                }
                let mut unshare = Command::new("unshare");
                // The first one in there has to collect all orphans, which a shell does.
                unshare.args([
                    "-pf",
                    "--mount-proc",
                    "--kill-child",
                    "bash",
                    "-c",
                    r#""$@" & wait $!"#,
                    "init",
                ]);
                unshare.arg(command.get_program());
                wrapper = Some(unshare);
            }
            Kind::Points => match env::var_os("QUELL_FAULTS_BIN") {
                Some(program) => drop(command.env("QUELL_BIN", &program).env("QUELL_CLOCK_BIN", program)),
                None => {
                    quell_tests::skip(
                        "campaign --kind points",
                        "QUELL_FAULTS_BIN names no quell with the feature `faults`",
                    );
                    continue;
                }
            },
        }
        let mut command = wrapper.unwrap_or(command);
        let seconds = (options.seconds * share / 100).max(1).to_string();
        command.args(["--kind", kind.as_str(), "--seconds", &seconds, "--seed", &options.seed.to_string()]);
        command.args(["--width", &options.width.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this program");
        let output = child.stdout.take().expect("it is piped");
        let mut told = false;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match line.strip_prefix("metrics ").and_then(|text| serde_json::from_str(text).ok()) {
                Some(part) => {
                    metrics.add(&part);
                    told = true;
                }
                None => println!("{line}"),
            }
        }
        let status = child.wait();
        if !told {
            metrics.violations.add(1);
            println!("VIOLATION harness: the {} campaign ended without metrics: {status:?}", kind.as_str());
        }
    }
    println!("took               {:>8} s", began.elapsed().as_secs());
    metrics.print();
    println!("at the start       {before:?}\nat the end         {:?}", Holdings::now());
}

/// Scenarios of one kind until the time is up.
fn play(options: &Options, kind: Kind, metrics: &Metrics) {
    let tools = scenario::tools();
    let points = if kind == Kind::Points { points() } else { Vec::new() };
    let mut churn = (kind == Kind::Recycle).then(|| {
        std::fs::write("/proc/sys/kernel/pid_max", RECYCLED.to_string())
            .expect("a pid_max of this namespace's own");
        let mut churn = Command::new(host::actor());
        churn.args(["churn", "campaign", "20"]).stdout(Stdio::piped());
        churn.spawn().expect("the actors")
    });
    let next = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let whole = Rng::new(options.seed ^ (kind.as_str().len() as u64) << 32);
    thread::scope(|scope| {
        for _ in 0..options.width {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if options.only.map_or(Instant::now() >= until, |_| turn >= 20) {
                        return;
                    }
                    let number = options.only.unwrap_or(turn);
                    for violation in play::play(whole.part(number).next(), metrics, &points) {
                        metrics.violations.add(1);
                        println!("VIOLATION {violation}");
                        println!(
                            "  again: campaign --kind {} --seed {} --only {number}",
                            kind.as_str(),
                            options.seed
                        );
                    }
                }
            });
        }
    });
    if let Some(churn) = &mut churn {
        // Its children are the strangers whose numbers were used again; it says whether one was hit.
        let ended = quell_tests::oracle::Process::now(churn.id()).is_none_or(|churn| churn.signal("TERM"));
        let mut said = String::new();
        let read = churn.stdout.take().map(|mut out| std::io::Read::read_to_string(&mut out, &mut said));
        match churn.wait() {
            Ok(status) if status.success() && ended => println!("recycled numbers: {}", said.trim()),
            status => {
                metrics.violations.add(1);
                println!("VIOLATION P3: strangers were hit: {status:?} {read:?} {said}");
            }
        }
    }
    let _ = std::fs::remove_dir_all(tools);
    println!("metrics {}", metrics.to_json());
}

/// The injection points of the quell under test.
fn points() -> Vec<String> {
    let said = Command::new(host::quell()).arg("__points").output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
