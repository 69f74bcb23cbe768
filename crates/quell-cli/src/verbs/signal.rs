//! `quell signal`: a signal to a job.

use std::process::ExitCode;

use quell::answers::SignalAnswer;

use super::{envelope, fail, phrases, quell};
use crate::args::SignalArgs;
use crate::output;

/// Sends it, and says to how many.
pub fn signal(args: &SignalArgs) -> ExitCode {
    let sent = quell().and_then(|quell| quell.job(&args.job)).and_then(|job| {
        let sent = job.signal(args.signal, args.tree)?;
        Ok((job, sent))
    });
    match sent {
        Ok((job, sent)) => {
            let text = if args.json {
                let data = SignalAnswer { id: job.id(), signal: args.signal, tree: args.tree, sent };
                envelope("signal", &data)
            } else {
                let to = if sent == 1 { "1 process".to_owned() } else { format!("{sent} processes") };
                format!("{}: {} sent to {to}\n", phrases::job(&job), args.signal)
            };
            output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("signal", args.json, &error),
    }
}
