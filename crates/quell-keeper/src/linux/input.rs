//! The program's standard input, where clients may write to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use quell_sys::Polled;

/// What a terminal takes for the end of the input.
const END_OF_TRANSMISSION: u8 = 4;
/// What leaves no part of a line behind in a terminal: a line's ends, and the keys that discard it (^C, ^U, ^Z, ^\).
const LINE_OVER: [u8; 7] = [b'\n', b'\r', END_OF_TRANSMISSION, 0x03, 0x15, 0x1a, 0x1c];
/// How many requests may wait.
const QUEUE: usize = 64;

/// One request to write.
#[derive(Debug)]
struct Portion {
    client: u64,
    data: Vec<u8>,
    written: usize,
    /// How much of it is the client's own.
    own: usize,
    eof: bool,
    within: Duration,
    /// When the rest is given up, unless there is room for some of it before.
    until: Option<Instant>,
}

/// What became of a request.
#[derive(Debug)]
pub enum Written {
    /// It is done with: so many bytes are with the program.
    Taken { client: u64, bytes: usize, whole: bool },
    /// It can't be written any more.
    Refused(u64, String),
}

/// The writing end of the program's standard input.
#[derive(Debug, Default)]
pub struct Input {
    end: Option<OwnedFd>,
    terminal: bool,
    /// Whether the last byte so far left a line without its end.
    in_line: bool,
    queue: VecDeque<Portion>,
}

impl Input {
    /// Opens it for a run of the program. Nothing is written before somebody asks for it.
    pub fn open(end: OwnedFd, terminal: bool) -> io::Result<Self> {
        quell_sys::set_nonblocking(&end)?;
        Ok(Self { end: Some(end), terminal, ..Self::default() })
    }

    /// Takes a request; why not, if not.
    pub fn push(
        &mut self,
        client: u64,
        mut data: Vec<u8>,
        eof: bool,
        within: Duration,
    ) -> Result<(), String> {
        if self.end.is_none() || self.queue.back().is_some_and(|last| last.eof && !self.terminal) {
            return Err("its standard input is closed, or was never a pipe or a terminal".into());
        }
        if self.queue.len() >= QUEUE {
            return Err("too much is waiting to be read by the program".into());
        }
        let own = data.len();
        self.in_line = data.last().map_or(self.in_line, |last| !LINE_OVER.contains(last));
        if eof && self.terminal {
            // Within a line the first one only hands over what there is of it.
            data.extend([END_OF_TRANSMISSION].repeat(1 + usize::from(self.in_line)));
            self.in_line = false;
        }
        let until = Instant::now().checked_add(within);
        self.queue.push_back(Portion { client, data, written: 0, own, eof, within, until });
        Ok(())
    }

    /// What to poll: room, while something is to be written.
    pub fn polled(&self) -> Option<Polled<'_>> {
        self.end.as_ref().filter(|_| !self.queue.is_empty()).map(|end| Polled::Write(end.as_fd()))
    }

    /// Writes what there is room for.
    pub fn write(&mut self) -> Vec<Written> {
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
                let (client, own, eof) = (portion.client, portion.own, portion.eof);
                self.queue.pop_front();
                done.push(Written::Taken { client, bytes: own, whole: true });
                if eof && !self.terminal {
                    done.extend(self.close("its standard input was closed"));
                }
            }
        }
        done
    }

    /// When [`Self::expire`] has something to give up.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue.iter().filter_map(|portion| portion.until).min()
    }

    /// Gives up what there was no room for in time.
    pub fn expire(&mut self, now: Instant) -> Vec<Written> {
        let over = |portion: &Portion| portion.until.is_some_and(|until| until <= now);
        let (over, rest) = std::mem::take(&mut self.queue).into_iter().partition::<Vec<_>, _>(over);
        self.queue = rest.into();
        let taken = |portion: &Portion| {
            let (client, bytes) = (portion.client, portion.written.min(portion.own));
            Written::Taken { client, bytes, whole: false }
        };
        over.iter().map(taken).collect()
    }

    /// Gives up what is left of a client that is gone.
    pub fn forget(&mut self, client: u64) {
        self.queue.retain(|portion| portion.client != client);
    }

    /// Closes it: nobody reads any more, or nobody will write.
    pub fn close(&mut self, why: &str) -> Vec<Written> {
        self.end = None;
        self.queue.drain(..).map(|portion| Written::Refused(portion.client, why.to_owned())).collect()
    }
}
