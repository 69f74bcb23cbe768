//! Signals, input, removal: what operators do with a job, as the command line does it.

use std::time::Duration;

use quell::binary::responses::{RmAnswer, SendAnswer, SignalAnswer};
use quell::{DryRun, Removal, SendEof, Signal, SignalTo};
use serde::Deserialize;

use crate::answer::HttpFailure;
use crate::call::{HttpCall, Reply};

/// How long a program may take to read what is sent to it.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// A signal.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignalBody {
    /// Its name or number.
    pub signal: Signal,
    /// To every process of the job, and not only to its root.
    #[serde(default)]
    pub tree: bool,
}

pub async fn signal(call: HttpCall) -> Reply {
    let SignalBody { signal, tree } = call.json()?;
    call.with_access(move |call, access| {
        let job = call.job(access)?;
        let sent = job.signal(signal, if tree { SignalTo::Tree } else { SignalTo::Root })?;
        if sent == 0 {
            let why = format!("{signal} reached no process of {}", job.id());
            return Err(HttpFailure::new(
                409,
                "no_process",
                why,
                "GET /v1/jobs/{job}/tree shows its processes",
            ));
        }
        Ok(SignalAnswer { id: job.id(), signal, tree, sent })
    })
    .await
}

pub async fn send(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let (job, eof) = (call.job(access)?, call.query.flag("eof"));
        let mut bytes: &[u8] = &call.body;
        let bytes = job.send_from(&mut bytes, SendEof::from(eof), READ_WITHIN)?;
        Ok(SendAnswer { id: job.id(), bytes, eof })
    })
    .await
}

pub async fn remove(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let job = call.job(access)?;
        job.remove(if call.query.flag("force") { Removal::Force } else { Removal::IfProvenDead })?;
        Ok(RmAnswer { id: job.id() })
    })
    .await
}

/// Whether something is done, or only reported.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DryRunBody {
    /// Change nothing, and report what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

pub async fn gc(call: HttpCall) -> Reply {
    let body: DryRunBody = call.json()?;
    call.with_access(move |_, access| {
        Ok(access.quell.gc(&access.config.gc.rules(), DryRun::from(body.dry_run))?)
    })
    .await
}

pub async fn sweep(call: HttpCall) -> Reply {
    let body: DryRunBody = call.json()?;
    call.with_access(move |_, access| Ok(access.quell.sweep(DryRun::from(body.dry_run))?)).await
}
