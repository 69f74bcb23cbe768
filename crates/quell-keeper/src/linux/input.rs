//! The program's standard input, where clients may write to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use quell_sys::{FifoHold, Polled};

use crate::control_protocol::{Answer, SEND_AT_ONCE};

/// The byte that a terminal takes as the end of the input.
const END_OF_TRANSMISSION: u8 = 4;
/// Bytes after which a terminal holds no part of a line: line ends, and the keys that discard a line (^C, ^U, ^Z, ^\).
const LINE_OVER: [u8; 7] = [b'\n', b'\r', END_OF_TRANSMISSION, 0x03, 0x15, 0x1a, 0x1c];
/// How many requests may wait.
const QUEUE: usize = 64;

/// One request to write.
#[derive(Debug)]
struct Portion {
    client: u64,
    data: Vec<u8>,
    written: usize,
    /// How much of `data` the client has sent.
    own: usize,
    eof: bool,
    within: Duration,
    /// When the rest is dropped, unless some of it can be written before.
    until: Option<Instant>,
}

/// The answers to requests that are done.
pub type Answers = Vec<(u64, Answer)>;

/// The writing end of the program's standard input.
#[derive(Debug, Default)]
pub struct ProgramInput {
    end: Option<OwnedFd>,
    terminal: bool,
    /// Whether the last byte so far was inside a line.
    in_line: bool,
    queue: VecDeque<Portion>,
    /// The fifo that the program reads, until a writer has come and gone.
    fifo: Option<FifoHold>,
}

impl ProgramInput {
    /// The input of one run of the program. Nothing is written before a client asks for it.
    pub fn open(end: OwnedFd, terminal: bool) -> io::Result<Self> {
        quell_sys::set_nonblocking(&end)?;
        Ok(Self { end: Some(end), terminal, ..Self::default() })
    }

    /// The input of a program that reads `file`, which may be a fifo. Clients can't write to it.
    pub fn from_file(file: &OwnedFd) -> io::Result<Self> {
        Ok(Self { fifo: FifoHold::open(file)?, ..Self::default() })
    }

    /// Accepts a request, or says why not.
    pub fn push(
        &mut self,
        client: u64,
        mut data: Vec<u8>,
        eof: bool,
        within: Duration,
    ) -> Result<(), String> {
        if data.len() > SEND_AT_ONCE {
            return Err(format!("more than {SEND_AT_ONCE} bytes at once"));
        }
        if self.end.is_none() || self.queue.back().is_some_and(|last| last.eof && !self.terminal) {
            return Err("its standard input is closed, or was never a pipe or a terminal".into());
        }
        if self.queue.len() >= QUEUE {
            return Err("too much is waiting to be read by the program".into());
        }
        let own = data.len();
        self.in_line = data.last().map_or(self.in_line, |last| !LINE_OVER.contains(last));
        if eof && self.terminal {
            // Inside a line, the first EOF byte only submits that part of the line.
            data.extend([END_OF_TRANSMISSION].repeat(1 + usize::from(self.in_line)));
            self.in_line = false;
        }
        let until = Instant::now().checked_add(within);
        self.queue.push_back(Portion { client, data, written: 0, own, eof, within, until });
        Ok(())
    }

    /// The descriptor to poll for room, while there is something to write.
    pub fn polled(&self) -> Option<Polled<'_>> {
        self.end.as_ref().filter(|_| !self.queue.is_empty()).map(|end| Polled::Write(end.as_fd()))
    }

    /// The descriptor that shows that a writer of the fifo has come and gone.
    pub fn fifo(&self) -> Option<Polled<'_>> {
        self.fifo.as_ref().map(|fifo| Polled::Read(fifo.as_fd()))
    }

    /// Lets the program see the end of its fifo.
    pub fn release_fifo(&mut self) {
        self.fifo = None;
    }

    /// Writes as much as there is room for.
    pub fn write(&mut self) -> Answers {
        let mut done = Vec::new();
        while let (Some(end), Some(portion)) = (&self.end, self.queue.front_mut()) {
            let rest = &portion.data[portion.written..];
            match if rest.is_empty() { Ok(0) } else { quell_sys::write(end, rest) } {
                Ok(length) => {
                    portion.written += length;
                    portion.until = Instant::now().checked_add(portion.within);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    done.extend(self.close(&format!("the program does not read any more: {error}")));
                    break;
                }
            }
            if portion.written == portion.data.len() {
                let (client, bytes, eof) = (portion.client, portion.own, portion.eof);
                self.queue.pop_front();
                done.push((client, Answer::Written { bytes, whole: true }));
                if eof && !self.terminal {
                    done.extend(self.close("its standard input was closed"));
                }
            }
        }
        done
    }

    /// When [`Self::expire`] has something to drop.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue.iter().filter_map(|portion| portion.until).min()
    }

    /// Drops what could not be written in time.
    pub fn expire(&mut self, now: Instant) -> Answers {
        let over = |portion: &Portion| portion.until.is_some_and(|until| until <= now);
        let (over, rest) = std::mem::take(&mut self.queue).into_iter().partition::<Vec<_>, _>(over);
        self.queue = rest.into();
        let taken = |portion: Portion| {
            let bytes = portion.written.min(portion.own);
            (portion.client, Answer::Written { bytes, whole: false })
        };
        over.into_iter().map(taken).collect()
    }

    /// Drops the requests of clients that are gone.
    pub fn retain(&mut self, is_connected: impl Fn(u64) -> bool) {
        self.queue.retain(|portion| is_connected(portion.client));
    }

    /// Closes it: the program has ended or does not read, or nothing more will be written.
    pub fn close(&mut self, why: &str) -> Answers {
        (self.end, self.fifo) = (None, None);
        self.queue.drain(..).map(|portion| (portion.client, Answer::refused("stdin_closed", why))).collect()
    }
}
