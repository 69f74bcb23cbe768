//! `quell mcp`: the tools of a Model Context Protocol server, over standard input and output.

use std::process::ExitCode;

use quell::Error;
use quell::binary::QuellInternals;
use quell_mcp::{JobScope, McpOptions};

use super::{Admitted, fail};
use crate::args::{McpArgs, ScopeArg};
use crate::errors;

/// Serves until the client is gone.
pub fn mcp(admitted: Admitted, args: McpArgs) -> ExitCode {
    serve(admitted, args).unwrap_or_else(|error| fail("mcp", false, &error))
}

fn serve(admitted: Admitted, args: McpArgs) -> Result<ExitCode, Error> {
    let options = McpOptions {
        home: admitted.quell?.home().clone(),
        session: args.session,
        scope: match args.scope {
            ScopeArg::Session => JobScope::Session,
            ScopeArg::All => JobScope::All,
        },
        max_wait: args.max_wait,
        hint: errors::hint,
    };
    quell_mcp::serve(options)
}
