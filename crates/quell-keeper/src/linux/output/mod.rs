//! The job's output, from the pipes (or the terminal) into its capture.
//!
//! The pipes are made before the keeper is forked, so that its standby has them too: what was written and not read
//! when a keeper is killed is still there, and what it was just taking out has gone to the disk, or to a relay that the
//! standby has as well (`flood.rs`), in one step. Nobody waits for their end, as the keeper holds both ends, and a process
//! that got away could hold one for ever: what counts is what has been written when the tree is gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quell_core::{Output, StreamTotals};
use quell_store::{CaptureWriter, Stream, Taken};
use quell_sys::{Polled, Sources};

mod burst;

use self::burst::Flood;
use super::control_server::KeeperSource;

/// How much is read of a terminal at a time.
const CHUNK: usize = 64 * 1024;
/// How much is taken in a row before others are looked after, and from a pipe at once: all that one holds.
const IN_A_ROW: usize = burst::WIDE;
/// How much a last read takes: far more than pipes hold. Who still writes then is no part of the tree.
const AT_LAST: usize = 16 * IN_A_ROW;

/// Both ends of the job's output.
#[derive(Debug)]
pub struct Ends {
    out: (OwnedFd, OwnedFd),
    /// A terminal has one stream.
    err: Option<(OwnedFd, OwnedFd)>,
    /// Where a flood of standard output goes first; a terminal has none. What is in there came before what is in the pipe.
    relay: Option<(OwnedFd, OwnedFd)>,
}

impl Ends {
    /// Two pipes, or a terminal.
    pub fn open(pty: bool) -> io::Result<Self> {
        let ends = if pty {
            Self { out: quell_sys::terminal()?, err: None, relay: None }
        } else {
            let relay = burst::relay()?;
            Self { out: quell_sys::pipe()?, err: Some(quell_sys::pipe()?), relay: Some(relay) }
        };
        for (read, _) in [Some(&ends.out), ends.err.as_ref(), ends.relay.as_ref()].into_iter().flatten() {
            quell_sys::set_nonblocking(read)?;
        }
        Ok(ends)
    }

    /// What the program gets as its output and its errors.
    pub fn for_program(&self) -> [i32; 2] {
        let err = self.err.as_ref().unwrap_or(&self.out);
        [self.out.1.as_raw_fd(), err.1.as_raw_fd()]
    }

    /// The terminal's own end, if it is one: what is written there, the program reads.
    pub fn terminal(&self) -> Option<&OwnedFd> {
        self.err.is_none().then_some(&self.out.0)
    }
}

/// What a look at the pipes has given.
struct Round {
    taken: usize,
    /// Whether to let more gather first.
    scant: bool,
}

/// The ends with their captures.
pub struct Taps {
    pub ends: Ends,
    out: CaptureWriter,
    err: CaptureWriter,
    floods: [Flood; 2],
    /// How much is in the relay.
    relayed: usize,
    began: Instant,
    began_ns: u64,
    last_ns: u64,
    warning: Option<String>,
}

impl Taps {
    /// Begins the captures in `dir`, or goes on with them.
    pub fn open(dir: &Path, ends: Ends, cap: u64, resume: bool) -> io::Result<Self> {
        let open = if resume { CaptureWriter::resume } else { CaptureWriter::create };
        let (out, err) = (open(dir, Stream::Stdout, cap)?, open(dir, Stream::Stderr, cap)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let last_ns = out.last_time().max(err.last_time());
        let relayed = match &ends.relay {
            // Whoever was killed may have left something there.
            Some((read, _)) if resume => quell_sys::waiting(read)?,
            Some(_) | None => 0,
        };
        Ok(Self {
            ends,
            out,
            err,
            floods: Default::default(),
            relayed,
            began: Instant::now(),
            began_ns: now.as_nanos() as u64,
            last_ns,
            warning: None,
        })
    }

    /// What to wait for.
    pub fn add_sources<'a>(&'a self, sources: &mut Sources<'a, KeeperSource>) {
        sources.add(KeeperSource::Output(Stream::Stdout), Polled::Read(self.ends.out.0.as_fd()));
        let err = self.ends.err.as_ref().map(|err| Polled::Read(err.0.as_fd()));
        sources.add_any(KeeperSource::Output(Stream::Stderr), err);
    }

    /// Takes what has come on these streams, and shows it to `see`.
    pub fn read(&mut self, streams: [bool; 2], mut see: impl FnMut(Stream, &[u8])) {
        // In bytes, not in rounds: where little is kept, a round is small. Nobody is woken by what is left in the relay.
        let mut total = 0;
        while total < IN_A_ROW || self.relayed > 0 {
            let round = self.take(streams, &mut see);
            if round.taken == 0 {
                break;
            }
            if round.scant && self.relayed == 0 {
                // Nothing tells of a pipe that has filled up, so this can only be waited for.
                std::thread::sleep(burst::PAUSE);
                break;
            }
            total += round.taken;
        }
    }

    /// Takes all that has come by now.
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
        // An idle keeper should be small: what is needed now is given back.
        let mut buffer = Vec::new();
        let mut round = Round { taken: 0, scant: false };
        for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let end = if at == 0 { Some(&self.ends.out) } else { self.ends.err.as_ref() };
            let Some((end, _)) = end.filter(|_| streams[at]) else { continue };
            let relay = self.ends.relay.as_ref().filter(|_| at == 0);
            if let Some((_, relay)) = relay.filter(|_| self.floods[at].is_relayed())
                // If not, there is nothing, or the relay is full.
                && let Ok(moved @ 1..) = quell_sys::splice(end, relay, IN_A_ROW)
            {
                self.relayed += moved;
            }
            let relayed = relay.filter(|_| self.relayed > 0);
            let from = relayed.map_or(end, |(read, _)| read);
            // Both streams share one clock that never stands still, so that their order can be told later.
            let elapsed = self.began.elapsed().as_nanos() as u64;
            self.last_ns = (self.began_ns + elapsed).max(self.last_ns + 1);
            let capture = if at == 0 { &mut self.out } else { &mut self.err };
            let mut see = |bytes: &[u8]| see(stream, bytes);
            // A terminal is no pipe, and what it says can only be read.
            let result = match self.ends.err {
                Some(_) => capture.take(from, IN_A_ROW, &mut buffer, self.last_ns, &mut see),
                None => Taken::Refused,
            };
            let (length, kept) = match result {
                Taken::Nothing => (0, Ok(())),
                Taken::Bytes { length, all, kept } => {
                    let relay = relay.map(|(read, _)| read);
                    round.scant |= self.floods[at].is_scant(end, relay, length, self.last_ns) && all;
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
                        // Nothing there is an error too, and as good as nothing.
                        Ok(0) | Err(_) => (0, Ok(())),
                    }
                }
            };
            if relayed.is_some() {
                // Who finds nothing there looks at the pipe again, whatever was said to be there.
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

    /// What it came to.
    pub fn totals(&self) -> Output {
        Output { stdout: self.out.totals(), stderr: self.err.totals() }
    }

    /// All bytes of both streams so far.
    pub fn bytes(&self) -> u64 {
        let StreamTotals { bytes, .. } = self.out.totals();
        bytes + self.err.totals().bytes
    }

    /// What went wrong, the first time that it did.
    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program has written by now.
    fn say(ends: &Ends, bytes: &[u8]) {
        assert_eq!(quell_sys::write(&ends.out.1, bytes).unwrap(), bytes.len());
    }

    fn kept(dir: &Path) -> Vec<u8> {
        std::fs::read(dir.join("stdout.log")).unwrap()
    }

    #[test]
    fn what_a_killed_keeper_had_moved_goes_before_what_it_had_not() {
        let dir = tempfile::tempdir().unwrap();
        let ends = Ends::open(false).unwrap();
        drop(Taps::open(dir.path(), Ends::open(false).unwrap(), 1 << 20, false).unwrap());
        say(&ends, b"one\n");
        let (_, relay) = ends.relay.as_ref().unwrap();
        quell_sys::splice(&ends.out.0, relay, IN_A_ROW).unwrap();
        say(&ends, b"two\n");
        let mut taps = Taps::open(dir.path(), ends, 1 << 20, true).unwrap();
        let mut seen = Vec::new();
        taps.read_last(|_, bytes| seen.extend_from_slice(bytes));
        assert_eq!((seen.as_slice(), kept(dir.path()).as_slice()), (&b"one\ntwo\n"[..], &b"one\ntwo\n"[..]));
        assert_eq!((taps.totals().stdout.lines, taps.relayed), (2, 0));
    }

    /// Nobody is woken by what is in the relay.
    #[test]
    fn a_flood_leaves_nothing_in_the_relay() {
        // In the second one each segment has room for a fraction of what comes at once.
        for cap in [1 << 30, 64 << 10] {
            let dir = tempfile::tempdir().unwrap();
            let mut taps = Taps::open(dir.path(), Ends::open(false).unwrap(), cap, false).unwrap();
            taps.floods[0] = Flood::lasting();
            let (mut said, mut seen) = (Vec::new(), Vec::new());
            for number in 0..50_u32 {
                let line = format!("{number:>50000}\n").into_bytes();
                say(&taps.ends, &line);
                said.extend(line);
                taps.read([true, false], |_, bytes| seen.extend_from_slice(bytes));
                assert!(taps.relayed == 0 && seen.len() == said.len(), "{number}");
            }
            assert!(seen == said);
            let totals = taps.totals().stdout;
            assert_eq!((totals.bytes, totals.lines), (said.len() as u64, 50));
            if totals.cut_bytes == 0 {
                assert!(kept(dir.path()) == said);
            }
        }
    }
}
