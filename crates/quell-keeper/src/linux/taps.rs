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

/// How much is read at a time, and in a row before others are looked after.
const CHUNK: usize = 64 * 1024;
const IN_A_ROW: usize = 16 * CHUNK;
/// How much a last read takes: far more than pipes hold. Who still writes then is no part of the tree.
const AT_LAST: usize = 256 * CHUNK;

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

/// The ends with their captures.
pub struct Taps {
    pub ends: Ends,
    out: CaptureWriter,
    err: CaptureWriter,
    buffer: Vec<u8>,
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
            buffer: Vec::new(),
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
    pub fn read(&mut self, ready: &[bool], see: impl FnMut(Stream, &[u8])) {
        let streams = [ready.first() == Some(&true), ready.get(1) == Some(&true)];
        self.take(streams, IN_A_ROW, see);
    }

    /// Takes all that has come by now.
    pub fn read_last(&mut self, see: impl FnMut(Stream, &[u8])) {
        self.take([true, true], AT_LAST, see);
    }

    fn take(&mut self, streams: [bool; 2], most: usize, mut see: impl FnMut(Stream, &[u8])) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK, 0);
        // In bytes, not in rounds: where little is kept, a round is small.
        let mut total = 0;
        while total < most {
            let before = total;
            for (at, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
                let end = if at == 0 { Some(&self.ends.out) } else { self.ends.err.as_ref() };
                let Some((end, _)) = end.filter(|_| streams[at]) else { continue };
                // Both streams share one clock that never stands still, so that their order can be told later.
                let elapsed = self.began.elapsed().as_nanos() as u64;
                self.last_ns = (self.began_ns + elapsed).max(self.last_ns + 1);
                let capture = if at == 0 { &mut self.out } else { &mut self.err };
                // A terminal is no pipe, and what it says can only be read.
                let taken = match self.ends.err {
                    Some(_) => capture.take(end, &mut buffer, self.last_ns),
                    None => Taken::Refused,
                };
                let (length, kept) = match taken {
                    Taken::Nothing => continue,
                    Taken::Bytes(length, kept) => (length, kept),
                    Taken::Refused => {
                        // Nothing there is an error too, and as good as nothing.
                        let Ok(length @ 1..) = quell_sys::read(end, &mut buffer) else { continue };
                        (length, capture.write(&buffer[..length], self.last_ns))
                    }
                };
                total += length;
                if let Err(error) = kept {
                    let what = format!("some of {} could not be kept: {error}", stream.as_str());
                    self.trouble.get_or_insert(what);
                }
                see(stream, &buffer[..length]);
            }
            if total == before {
                break;
            }
        }
        // An idle keeper should be small: what was needed once is given back.
        self.buffer = Vec::new();
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
