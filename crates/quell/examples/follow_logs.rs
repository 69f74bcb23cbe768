//! Follows what a job writes, as it writes it, until it has ended.
//!
//! `cargo run -p quell --example follow_logs`; the `quell` program is to be on the PATH, or in QUELL_BIN.

use quell::core::Verdict;
use quell::{Error, JobRequest, JobState, LineOrCut, Lines, LogReader, Quell, Watch};

fn main() -> quell::Result<()> {
    let quell = Quell::new()?;
    let job = quell.start(&JobRequest::background([
        "sh",
        "-c",
        "for i in 1 2 3; do echo line $i; sleep 0.1; done",
    ]))?;

    let dir = job.dir().dir().to_owned();
    let at_dir = || Error::io(dir.clone());
    let mut lines = Lines::new(LogReader::open(&dir).map_err(at_dir())?);
    let mut watch = Watch::new().map_err(at_dir())?;
    // First the watch, then the look: nothing that happens in between is missed.
    watch.add(&dir).map_err(at_dir())?;
    loop {
        let over = job.view()?.state == JobState::Ended;
        while let Some(next) = lines.next_line().map_err(at_dir())? {
            match next {
                LineOrCut::Line(line) => {
                    println!("{}: {}", line.stream, String::from_utf8_lossy(&line.bytes))
                }
                LineOrCut::Cut(cut) => println!("({} bytes of {} are not kept)", cut.bytes, cut.stream),
            }
        }
        if over {
            break;
        }
        watch.wait(None).map_err(at_dir())?;
    }
    let receipt = job.receipt()?;
    println!("{}", if receipt.verdict == Verdict::Gone { "all gone" } else { "not proven gone" });
    job.remove(false)
}
