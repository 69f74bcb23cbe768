//! `quell mcp`: jobs as tools of the Model Context Protocol, over stdio.
//!
//! The protocol is rmcp's. `transport` carries its messages over two threads of this process, `server` answers them, `tools` has one
//! file per group of tools. A tool call blocks, so it has a thread of its own; what it does goes through the library `quell`, and the
//! guard is asked in each call. No other verb of quell gets here.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod answer;
mod approval;
mod arguments;
mod budget;
mod clean;
mod failure;
mod lease;
mod server;
mod tools;
mod transport;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quell::binary::Home;
use rmcp::service::serve_directly_with_ct;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use lease::Lease;
use server::Server;
use tools::Shared;
use transport::{OpenRequests, Wire};

/// How long after the end of the input the server waits for answers, once none has come for as long. Clients kill a server half a
/// second after that.
const FLUSH: Duration = Duration::from_millis(50);
/// The same in all, for a client that sends much and then closes its end.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);
/// How often it looks whether answers still come.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// Which jobs tools may stop, restart and write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobScope {
    /// Those of the server's session.
    #[default]
    Session,
    /// All jobs of the user.
    All,
}

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Where the records of jobs are.
    pub home: Home,
    /// The session of the jobs; if none is given, it is named after the client.
    pub session: Option<String>,
    /// Which jobs may be changed.
    pub scope: JobScope,
    /// How long one call may wait.
    pub max_wait: Duration,
    /// Returns the hint for an error, as the command line words it.
    pub hint: fn(&quell::Error) -> String,
}

/// Serves one client until the end of standard input, or until INT, TERM or HUP. Never returns before that, except for an error.
///
/// Before: no other part of this process writes to standard output. After: the caller exits at once, without waiting for threads; a
/// stop that is under way is finished by the job's keeper.
pub fn serve(options: McpOptions) -> quell::Result<ExitCode> {
    let lease = Lease::take(options.session.as_deref())?;
    let failed = |error| quell::Error::Io { path: "tokio".into(), error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let served: std::io::Result<()> = runtime.block_on(async {
        let (mut int, mut term, mut hup) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        );
        let (eof, ending) = (CancellationToken::new(), CancellationToken::new());
        let (shared, open) = (Arc::new(Shared::new(options, lease)), OpenRequests::default());
        let server = Server::new(shared.clone(), ending.clone());
        let running =
            serve_directly_with_ct(server, Wire::begin(&eof, open.clone())?, None, CancellationToken::new());
        let mut end = std::pin::pin!(running.waiting());
        tokio::select! {
            _ = &mut end => return Ok(()),
            () = eof.cancelled() => {}
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
        }
        tokio::select! {
            _ = &mut end => {}
            () = flushed(&open) => {}
        }
        // Calls that wait end their waits now, and commands whose call gets no answer are stopped: their keepers finish that.
        ending.cancel();
        stop_asked(&shared).await;
        Ok(())
    });
    // Dropping it would wait for threads that are blocked.
    std::mem::forget(runtime);
    served.map_err(|error| quell::Error::Io { path: "/dev/stdin".into(), error })?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until everything is answered and written, or nothing more is: a call is blocked, or the client does not read.
async fn flushed(open: &OpenRequests) {
    let begun = Instant::now();
    let (mut left, mut since) = (open.left(), begun);
    while left != (0, 0) && since.elapsed() < FLUSH && begun.elapsed() < LONGEST_FLUSH {
        // Both counts change on other threads and in tasks of rmcp.
        tokio::time::sleep(FLUSH_LOOK).await;
        if open.left() != left {
            (left, since) = (open.left(), Instant::now());
        }
    }
}

/// Waits until commands whose call gets no answer were asked to end.
async fn stop_asked(shared: &Shared) {
    let begun = Instant::now();
    // A look is a millisecond, and there are seldom any such commands.
    while shared.has_unreported() && begun.elapsed() < LONGEST_FLUSH {
        tokio::time::sleep(FLUSH_LOOK).await;
    }
}
