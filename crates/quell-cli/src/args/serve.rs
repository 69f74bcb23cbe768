//! The arguments of `serve`.

use clap::{Args, ValueEnum};

const SERVE_HELP: &str = "\
People and programs of this user see jobs and stop them over HTTP: a dashboard for a browser, a JSON API, a \
stream of events. Jobs do not depend on it: they run on when it ends, however it ends.

It listens on 127.0.0.1 and on the socket serve/api.sock in quell's home. A program sends the token in \
serve/token as `Authorization: Bearer …`; over the socket none is needed. A browser is logged in by --open \
or by the address that --url prints, which works once and for a minute. --add-token makes a token with fewer \
rights: view; stop (view, and stop jobs); operate (also signal, input, restart, remove); admin (also start, \
which is to have a shell); metrics (only /metrics).

Other addresses are refused. From another machine use `ssh -L 7835:127.0.0.1:7835 HOST`, or a proxy with TLS \
and --allow-host. docs/serve.md has the API.

Exit codes:
  0    INT, TERM or HUP was sent
  1    --status, --url: it does not run
  2    wrong usage
  4    refused by the guard
  125  quell failed: the port is taken, or it runs already

Examples:
  quell serve --open
  quell serve --no-tcp
  quell serve --add-token phone --role stop
  curl --unix-socket ~/.local/state/quell/serve/api.sock http://quell/v1/jobs";

#[derive(Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArgs {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 7835)]
    pub port: u16,
    /// Address to listen on; only loopback addresses are allowed
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_tcp")]
    pub listen: Option<std::net::IpAddr>,
    /// Listen on the socket only
    #[arg(long)]
    pub no_tcp: bool,
    /// Open the dashboard in a browser
    #[arg(long, conflicts_with = "no_tcp")]
    pub open: bool,
    /// Accept requests that name this host, as a proxy passes them on; repeatable
    #[arg(long, value_name = "HOST[:PORT]")]
    pub allow_host: Vec<String>,
    /// Show whether it runs, and where
    #[arg(long, conflicts_with_all = ["url", "add_token", "open"])]
    pub status: bool,
    /// Print an address for a browser that logs it in, once and within a minute
    #[arg(long, conflicts_with_all = ["add_token", "open"])]
    pub url: bool,
    /// Make a token with the rights of --role, and print it
    #[arg(long, value_name = "NAME", requires = "role", value_parser = super::common::name)]
    pub add_token: Option<String>,
    /// Rights of the new token
    #[arg(long, value_enum, requires = "add_token")]
    pub role: Option<RoleArg>,
    /// Print JSON, with --status and --url
    #[arg(long, conflicts_with = "add_token")]
    pub json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum RoleArg {
    /// Look at jobs and their output
    View,
    /// The same, and stop them
    Stop,
    /// The same, and signal, restart and remove them
    Operate,
    /// Everything, also to start jobs
    Admin,
    /// Read /metrics, and nothing else
    Metrics,
}
