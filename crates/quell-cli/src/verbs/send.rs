//! `quell send`: writes to the standard input of a job.

use std::fs::File;
use std::io::{self, Cursor, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use quell::binary::responses::SendAnswer;
use quell::{Error, Job};

use super::{Admitted, envelope};
use crate::args::SendArgs;
use crate::errors;
use crate::output;

/// Sends it. For people, success prints nothing.
pub fn send(admitted: Admitted, args: &SendArgs) -> ExitCode {
    let sent = admitted.quell.and_then(|quell| quell.job(&args.job)).and_then(|job| {
        let bytes = deliver(&job, args)?;
        Ok((job, bytes))
    });
    match sent {
        Ok((job, bytes)) if args.json => {
            let text = envelope("send", &SendAnswer { id: job.id(), bytes, eof: args.eof });
            output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS)
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            output::fail("send", args.json, errors::exit_code(&error), &errors::body_of_send(&error))
        }
    }
}

fn deliver(job: &Job, args: &SendArgs) -> Result<u64, Error> {
    let own = || io::stdin().lock();
    let mut source: Box<dyn Read> = match (&args.file, args.text.as_slice()) {
        (Some(path), _) if path.as_os_str() == "-" => Box::new(own()),
        (Some(path), _) => {
            let unread = |error: io::Error| io::Error::new(error.kind(), format!("can't be read: {error}"));
            Box::new(open(path).map_err(unread).map_err(Error::io(path))?)
        }
        (None, []) if args.eof && io::stdin().is_terminal() => Box::new(io::empty()),
        (None, []) => Box::new(own()),
        (None, words) => {
            let end = if args.no_newline { "" } else { "\n" };
            Box::new(Cursor::new(format!("{}{end}", words.join(" ")).into_bytes()))
        }
    };
    job.send_from(&mut source, args.eof.into(), args.timeout)
}

/// A directory can be opened, but not read.
fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}
