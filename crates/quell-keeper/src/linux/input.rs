//! The program's standard input, where clients may write to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use quell_sys::Polled;

/// What a terminal takes for the end of the input.
const END_OF_TRANSMISSION: u8 = 4;
/// How many requests may wait.
const QUEUE: usize = 64;

/// One request to write.
#[derive(Debug)]
struct Portion {
    client: u64,
    data: Vec<u8>,
    written: usize,
    eof: bool,
}

/// What became of a request.
#[derive(Debug)]
pub enum Written {
    /// All of it is with the program.
    All(u64),
    /// It can't be written any more.
    Refused(u64, String),
}

/// The writing end of the program's standard input.
#[derive(Debug, Default)]
pub struct Input {
    end: Option<OwnedFd>,
    terminal: bool,
    /// Whether a terminal has got a part of a line, which its reader sees only with the rest.
    begun: bool,
    queue: VecDeque<Portion>,
}

impl Input {
    /// Opens it for a run of the program. Nothing is written before somebody asks for it.
    pub fn open(end: OwnedFd, terminal: bool) -> io::Result<Self> {
        quell_sys::set_nonblocking(&end)?;
        Ok(Self { end: Some(end), terminal, begun: false, queue: VecDeque::new() })
    }

    /// Takes a request; why not, if not.
    pub fn push(&mut self, client: u64, mut data: Vec<u8>, eof: bool) -> Result<(), String> {
        if self.end.is_none() || self.queue.back().is_some_and(|last| last.eof && !self.terminal) {
            return Err("its standard input is closed, or was never open (start it with --stdin pipe)".into());
        }
        if self.queue.len() >= QUEUE {
            return Err("too much is waiting to be read by the program".into());
        }
        if let Some(last) = data.last() {
            self.begun = !last.is_ascii_control();
        }
        if eof && self.terminal {
            // Behind a part of a line the first one only hands that over.
            data.extend([END_OF_TRANSMISSION; 2].iter().take(1 + usize::from(self.begun)));
            self.begun = false;
        }
        self.queue.push_back(Portion { client, data, written: 0, eof });
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
                Ok(length) => portion.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    done.extend(self.close(&format!("the program does not read any more: {error}")));
                    break;
                }
            }
            if portion.written == portion.data.len() {
                let (client, eof) = (portion.client, portion.eof);
                self.queue.pop_front();
                done.push(Written::All(client));
                if eof && !self.terminal {
                    done.extend(self.close("its standard input was closed"));
                }
            }
        }
        done
    }

    /// Closes it: nobody reads any more, or nobody will write.
    pub fn close(&mut self, why: &str) -> Vec<Written> {
        self.end = None;
        self.queue.drain(..).map(|portion| Written::Refused(portion.client, why.to_owned())).collect()
    }
}
