//! The job's output, from its pipes (or its terminal) into the files of its record.
//!
//! The keeper does not wait for the end of the pipes. It holds both ends itself, and a process that left the tree could hold one
//! for ever. What counts is what has been written when the tree is gone.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quell_core::Output;
use quell_store::{CaptureWriter, Stream, Taken};
use quell_sys::{Polled, Ready, Sources};

use self::burst::BurstDetector;
pub use self::pipes::OutputPipes;
use super::engine::KeeperSource;

mod burst;
mod pipes;

/// How much is read from a terminal at a time.
const CHUNK: usize = 64 * 1024;
/// How much is taken before other sources get their turn, and from a pipe at once: all that a pipe holds.
const IN_A_ROW: usize = burst::WIDE;
/// How much a last read takes: far more than pipes hold. A process that still writes then is not a member.
const AT_LAST: usize = 16 * IN_A_ROW;

/// What one look at the pipes has found.
struct Round {
    taken: usize,
    /// Whether to wait a little, so that more can gather.
    should_batch: bool,
}

pub struct OutputCapture {
    pub pipes: OutputPipes,
    stdout: CaptureWriter,
    stderr: CaptureWriter,
    bursts: [BurstDetector; 2],
    /// How many bytes are in the relay.
    relayed: usize,
    began: Instant,
    began_ns: u64,
    last_ns: u64,
    warning: Option<String>,
}

impl OutputCapture {
    /// Begins the files in `dir`, or continues them.
    pub fn open(dir: &Path, pipes: OutputPipes, cap: u64, resume: bool) -> io::Result<Self> {
        let open = if resume { CaptureWriter::resume } else { CaptureWriter::create };
        let (stdout, stderr) = (open(dir, Stream::Stdout, cap)?, open(dir, Stream::Stderr, cap)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let last_ns = stdout.last_time().max(stderr.last_time());
        let relayed = match &pipes.relay {
            // A keeper that was killed may have left bytes there.
            Some((read, _)) if resume => quell_sys::unread_bytes(read)?,
            Some(_) | None => 0,
        };
        Ok(Self {
            pipes,
            stdout,
            stderr,
            bursts: Default::default(),
            relayed,
            began: Instant::now(),
            began_ns: now.as_nanos() as u64,
            last_ns,
            warning: None,
        })
    }

    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        sources.add(KeeperSource::Output(Stream::Stdout), Polled::Read(self.pipes.stdout.0.as_fd()));
        let stderr = self.pipes.stderr.as_ref().map(|stderr| Polled::Read(stderr.0.as_fd()));
        sources.add_any(KeeperSource::Output(Stream::Stderr), stderr);
    }

    /// Takes what has arrived, and shows it to `see`.
    pub fn read(&mut self, ready: &Ready<KeeperSource>, see: impl FnMut(Stream, &[u8])) {
        let streams = [Stream::Stdout, Stream::Stderr].map(|stream| ready.has(KeeperSource::Output(stream)));
        if streams.contains(&true) {
            self.read_streams(streams, see);
        }
    }

    fn read_streams(&mut self, streams: [bool; 2], mut see: impl FnMut(Stream, &[u8])) {
        // Counted in bytes, not in rounds: where little is kept, a round is small. The relay is emptied in any case, because
        // bytes that are left there wake nothing.
        let mut total = 0;
        while total < IN_A_ROW || self.relayed > 0 {
            let round = self.take(streams, &mut see);
            if round.taken == 0 {
                break;
            }
            if round.should_batch && self.relayed == 0 {
                // The kernel does not report that a pipe has filled up, so this waits for a fixed time.
                std::thread::sleep(burst::PAUSE);
                break;
            }
            total += round.taken;
        }
    }

    /// Takes everything that has arrived by now.
    pub fn read_last(&mut self, mut see: impl FnMut(Stream, &[u8])) {
        let mut total = 0;
        while total < AT_LAST {
            match self.take([true, true], &mut see).taken {
                0 => break,
                taken => total += taken,
            }
        }
    }

    /// Takes once from each of the `streams`.
    fn take(&mut self, streams: [bool; 2], see: &mut impl FnMut(Stream, &[u8])) -> Round {
        // Allocated for this call only: an idle keeper should be small.
        let mut buffer = Vec::new();
        let mut round = Round { taken: 0, should_batch: false };
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let end = if at == 0 { Some(&self.pipes.stdout) } else { self.pipes.stderr.as_ref() };
            let Some((end, _)) = end.filter(|_| streams[at]) else { continue };
            let relay = self.pipes.relay.as_ref().filter(|_| at == 0);
            if let Some((_, relay)) = relay.filter(|_| self.bursts[at].is_relayed())
                // Nothing is moved if the pipe is empty or the relay is full.
                && let Ok(moved @ 1..) = quell_sys::splice(end, relay, IN_A_ROW)
            {
                self.relayed += moved;
            }
            let relayed = relay.filter(|_| self.relayed > 0);
            let from = relayed.map_or(end, |(read, _)| read);
            // Both streams share one clock that always advances, so that readers can restore their order.
            let elapsed = self.began.elapsed().as_nanos() as u64;
            self.last_ns = (self.began_ns + elapsed).max(self.last_ns + 1);
            let capture = if at == 0 { &mut self.stdout } else { &mut self.stderr };
            let mut see = |bytes: &[u8]| see(stream, bytes);
            // A terminal is not a pipe: its bytes can only be read.
            let result = match self.pipes.stderr {
                Some(_) => capture.take(from, IN_A_ROW, &mut buffer, self.last_ns, &mut see),
                None => Taken::Refused,
            };
            let (length, kept) = match result {
                Taken::Nothing => (0, Ok(())),
                Taken::Bytes { length, all, kept } => {
                    let relay = relay.map(|(read, _)| read);
                    let few = self.bursts[at].should_batch(end, relay, length, self.last_ns);
                    round.should_batch |= few && all;
                    (length, kept)
                }
                Taken::Refused => {
                    buffer.resize(CHUNK, 0);
                    match quell_sys::read(from, &mut buffer) {
                        Ok(length @ 1..) => {
                            let kept = capture.write(&buffer[..length], self.last_ns);
                            see(&buffer[..length]);
                            (length, kept)
                        }
                        // An empty terminal is an error too.
                        Ok(0) | Err(_) => (0, Ok(())),
                    }
                }
            };
            if relayed.is_some() {
                // If the relay is empty, the next read is from the pipe, whatever the count says.
                self.relayed = if length == 0 { 0 } else { self.relayed.saturating_sub(length) };
            }
            round.taken += length;
            if let Err(error) = kept {
                let what = format!("some of {} could not be kept: {error}", stream.as_str());
                self.warning.get_or_insert(what);
            }
        }
        round
    }

    pub fn totals(&self) -> Output {
        Output { stdout: self.stdout.totals(), stderr: self.stderr.totals() }
    }

    /// All bytes of both streams so far.
    pub fn bytes(&self) -> u64 {
        self.stdout.totals().bytes + self.stderr.totals().bytes
    }

    /// The first failure to keep output.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as the program does.
    fn print(pipes: &OutputPipes, bytes: &[u8]) {
        assert_eq!(quell_sys::write(&pipes.stdout.1, bytes).unwrap(), bytes.len());
    }

    fn kept(dir: &Path) -> Vec<u8> {
        std::fs::read(dir.join("stdout.log")).unwrap()
    }

    #[test]
    fn output_that_a_killed_keeper_had_moved_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let pipes = OutputPipes::open(false).unwrap();
        drop(OutputCapture::open(dir.path(), OutputPipes::open(false).unwrap(), 1 << 20, false).unwrap());
        print(&pipes, b"one\n");
        let (_, relay) = pipes.relay.as_ref().unwrap();
        quell_sys::splice(&pipes.stdout.0, relay, IN_A_ROW).unwrap();
        print(&pipes, b"two\n");
        let mut capture = OutputCapture::open(dir.path(), pipes, 1 << 20, true).unwrap();
        let mut seen = Vec::new();
        capture.read_last(|_, bytes| seen.extend_from_slice(bytes));
        assert_eq!((seen.as_slice(), kept(dir.path()).as_slice()), (&b"one\ntwo\n"[..], &b"one\ntwo\n"[..]));
        assert_eq!((capture.totals().stdout.lines, capture.relayed), (2, 0));
    }

    /// Bytes in the relay wake nothing.
    #[test]
    fn a_burst_leaves_nothing_in_the_relay() {
        // In the second one each segment has room for a fraction of what arrives at once.
        for cap in [1 << 30, 64 << 10] {
            let dir = tempfile::tempdir().unwrap();
            let mut capture =
                OutputCapture::open(dir.path(), OutputPipes::open(false).unwrap(), cap, false).unwrap();
            capture.bursts[0] = BurstDetector::lasting();
            let (mut said, mut seen) = (Vec::new(), Vec::new());
            for number in 0..50_u32 {
                let line = format!("{number:>50000}\n").into_bytes();
                print(&capture.pipes, &line);
                said.extend(line);
                capture.read_streams([true, false], |_, bytes| seen.extend_from_slice(bytes));
                assert!(capture.relayed == 0 && seen.len() == said.len(), "{number}");
            }
            assert!(seen == said);
            let totals = capture.totals().stdout;
            assert_eq!((totals.bytes, totals.lines), (said.len() as u64, 50));
            if totals.cut_bytes == 0 {
                assert!(kept(dir.path()) == said);
            }
        }
    }
}
