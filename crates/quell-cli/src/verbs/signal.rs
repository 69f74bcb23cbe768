//! `quell signal`: a signal to a job.

use std::process::ExitCode;

use quell::binary::responses::SignalAnswer;
use quell::{ErrorBody, Job, SignalTo};
use serde_json::json;

use super::{Admitted, envelope, fail};
use crate::args::SignalArgs;
use crate::errors::exit;
use crate::output;
use crate::render::format;

/// Sends it, and prints how many processes got it.
pub fn signal(admitted: Admitted, args: &SignalArgs) -> ExitCode {
    let sent = admitted.quell.and_then(|quell| quell.job(&args.job)).and_then(|job| {
        let sent = job.signal(args.signal, if args.tree { SignalTo::Tree } else { SignalTo::Root })?;
        Ok((job, sent))
    });
    match sent {
        Ok((job, 0)) => output::fail("signal", args.json, exit::NO, &reached_none(args, &job)),
        Ok((job, sent)) => {
            let text = if args.json {
                let data = SignalAnswer { id: job.id(), signal: args.signal, tree: args.tree, sent };
                envelope("signal", &data)
            } else {
                let to = if sent == 1 { "1 process".to_owned() } else { format!("{sent} processes") };
                format!("{}: {} sent to {to}\n", format::job(&job), args.signal)
            };
            output::to_stdout(&text).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("signal", args.json, &error),
    }
}

fn reached_none(args: &SignalArgs, job: &Job) -> ErrorBody {
    let (why, hint) = if args.tree {
        ("no process of the tree could be signaled", format!("see `quell tree {}`", job.id()))
    } else {
        ("its root has exited or can't be signaled", "use --tree to signal every process of the job".into())
    };
    ErrorBody {
        code: "no_process".into(),
        message: format!("{} reached no process of {}: {why}", args.signal, format::job(job)),
        hint,
        retryable: false,
        details: json!({ "id": job.id(), "signal": args.signal, "tree": args.tree, "sent": 0 }),
    }
}
