//! The job's output, from the pipes (or the terminal) into its capture.
//!
//! The pipes are made before the keeper is forked, so that its understudy has them too: what was written and not read
//! when a keeper is killed is still there, and what it was just taking out has gone to the disk in one step. Nobody waits
//! for their end, as the keeper holds both ends, and a process that got away could hold one for ever: what counts is what
//! has been written when the tree is gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quell_core::{Output, StreamTotals};
use quell_store::{CaptureWriter, Stream, Taken};
use quell_sys::Polled;

use super::flood::{self, Flood};

/// How much is read of a terminal at a time.
const CHUNK: usize = 64 * 1024;
/// How much is taken in a row before others are looked after, and from a pipe at once: all that one holds.
const IN_A_ROW: usize = flood::WIDE;
/// How much a last read takes: far more than pipes hold. Who still writes then is no part of the tree.
const AT_LAST: usize = 16 * IN_A_ROW;

/// Both ends of the job's output.
#[derive(Debug)]
pub struct Ends {
    out: (OwnedFd, OwnedFd),
    /// A terminal has one stream.
    err: Option<(OwnedFd, OwnedFd)>,
}

impl Ends {
    /// Two pipes, or a terminal.
    pub fn open(pty: bool) -> io::Result<Self> {
        let ends = if pty {
            Self { out: quell_sys::terminal()?, err: None }
        } else {
            Self { out: quell_sys::pipe()?, err: Some(quell_sys::pipe()?) }
        };
        for (read, _) in [Some(&ends.out), ends.err.as_ref()].into_iter().flatten() {
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
    began: Instant,
    began_ns: u64,
    last_ns: u64,
    trouble: Option<String>,
}

impl Taps {
    /// Begins the captures in `dir`, or goes on with them.
    pub fn open(dir: &Path, ends: Ends, cap: u64, resume: bool) -> io::Result<Self> {
        let open = if resume { CaptureWriter::resume } else { CaptureWriter::create };
        let (out, err) = (open(dir, Stream::Stdout, cap)?, open(dir, Stream::Stderr, cap)?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let last_ns = out.last_time().max(err.last_time());
        Ok(Self {
            ends,
            out,
            err,
            floods: Default::default(),
            began: Instant::now(),
            began_ns: now.as_nanos() as u64,
            last_ns,
            trouble: None,
        })
    }

    /// What to poll; as many as [`Taps::read`] takes.
    pub fn polled<'a>(&'a self, fds: &mut Vec<Polled<'a>>) -> usize {
        fds.push(Polled::Read(self.ends.out.0.as_fd()));
        fds.extend(self.ends.err.as_ref().map(|err| Polled::Read(err.0.as_fd())));
        1 + usize::from(self.ends.err.is_some())
    }

    /// Takes what has come, and shows it to `see`.
    pub fn read(&mut self, ready: &[bool], mut see: impl FnMut(Stream, &[u8])) {
        let streams = [ready.first() == Some(&true), ready.get(1) == Some(&true)];
        // In bytes, not in rounds: where little is kept, a round is small.
        let mut total = 0;
        while total < IN_A_ROW {
            let round = self.take(streams, &mut see);
            if round.scant {
                // Nothing tells of a pipe that has filled up, so this can only be waited for.
                std::thread::sleep(flood::PAUSE);
            }
            if round.scant || round.taken == 0 {
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
            // Both streams share one clock that never stands still, so that their order can be told later.
            let elapsed = self.began.elapsed().as_nanos() as u64;
            self.last_ns = (self.began_ns + elapsed).max(self.last_ns + 1);
            let capture = if at == 0 { &mut self.out } else { &mut self.err };
            let mut see = |bytes: &[u8]| see(stream, bytes);
            // A terminal is no pipe, and what it says can only be read.
            let result = match self.ends.err {
                Some(_) => capture.take(end, IN_A_ROW, &mut buffer, self.last_ns, &mut see),
                None => Taken::Refused,
            };
            let (length, kept) = match result {
                Taken::Nothing => continue,
                Taken::Bytes { length, all, kept } => {
                    round.scant |= self.floods[at].is_scant(end, length, self.last_ns) && all;
                    (length, kept)
                }
                Taken::Refused => {
                    buffer.resize(CHUNK, 0);
                    // Nothing there is an error too, and as good as nothing.
                    let Ok(length @ 1..) = quell_sys::read(end, &mut buffer) else { continue };
                    let kept = capture.write(&buffer[..length], self.last_ns);
                    see(&buffer[..length]);
                    (length, kept)
                }
            };
            round.taken += length;
            if let Err(error) = kept {
                let what = format!("some of {} could not be kept: {error}", stream.as_str());
                self.trouble.get_or_insert(what);
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
    pub fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }
}
