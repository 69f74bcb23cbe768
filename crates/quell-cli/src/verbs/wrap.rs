//! `quell wrap`: an MCP server for its client, and nothing of it left when the client is done with it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use quell::binary::{Loaded, Returned, ServerRules, account};
use quell::{Error, ErrorBody, Foreground, JobId, JobRequest, Until, Verdict};

use super::{Admitted, run};
use crate::args::WrapArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::columns_of;

/// The grace of a server whose front is killed without any sign before: clients kill within half a second after they have asked.
const FRONT_LOST_GRACE: Duration = Duration::from_secs(1);

/// Runs the server and returns the exit code. `id` is the id of the job, if it has one already.
pub fn wrap(admitted: Admitted, args: WrapArgs, id: Option<JobId>) -> ExitCode {
    let fail = |code, error: &ErrorBody| output::fail("wrap", false, code, error);
    let Some(permit) = admitted.permit else {
        return fail(exit::FAILED, &errors::said("system", "the guard was not asked", "this is a bug"));
    };
    let (request, home) = match request(admitted.settings, args, id) {
        Ok(request) => request,
        Err(error) => return fail(exit::FAILED, &error),
    };
    let finished = match quell::binary::run(request, home, &permit) {
        Ok(Returned::Finished(finished)) => finished,
        // What a server leaves behind is never kept.
        Ok(Returned::Left(_)) => return ExitCode::from(exit::FAILED),
        Err(error) => {
            let (code, error) = errors::of_run(&error);
            return fail(code, &error);
        }
    };
    // Clients show what is on stderr as an error of the server.
    if finished.receipt.verdict == Verdict::Gone {
        return run::root_code(&finished);
    }
    output::to_stderr(&account::account(&finished.receipt, columns_of(&std::io::stderr())));
    ExitCode::from(exit::RUN_NOT_PROVEN_DEAD)
}

/// The request, options over settings; and the directory of its record.
fn request(
    settings: Result<Loaded, Error>,
    args: WrapArgs,
    id: Option<JobId>,
) -> Result<(JobRequest, Option<PathBuf>), ErrorBody> {
    let clients = quell::binary::clients().map_err(|error| errors::body(&error))?;
    let client = clients.last().map(|client| ("client".to_owned(), client.name.clone()));
    let server = Some(ServerRules { eof_grace: args.eof_grace, clients });
    let mut request = JobRequest::new(args.command, Foreground { id, server, ..Foreground::default() });
    run::configure_run(&mut request, settings).map_err(|error| errors::body(&error))?;
    output::hide(request.masked_values());
    request.name = args.name;
    request.tags = [("kind".to_owned(), "mcp".to_owned())].into_iter().chain(client).collect();
    request.contain = args.contain.map_or(request.contain, Into::into);
    // The times that clients wait for are known; those for other jobs are too long.
    request.stop.grace = args.grace;
    request.stop.brief = FRONT_LOST_GRACE;
    request.until = Until::Root;
    // For the jobs that the server starts.
    request.env.set.extend(request.session.iter().map(|session| ("QUELL_SESSION".into(), session.into())));
    Ok((request, if args.no_record { None } else { Some(run::home()?) }))
}
