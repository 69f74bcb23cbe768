//! `quell serve`: jobs over HTTP, for people and programs of one user, on this host only.
//!
//! ```text
//! listen ─▶ connection ─▶ gate (host, origin) ─▶ routes (token, role, guard, body) ─▶ api/* ─▶ library `quell`
//!                                                       │
//!                    hub (one inotify) ─▶ ring ─▶ stream, waits
//! ```
//!
//! `routes` is the one table of what can be called: the router, the checks and the OpenAPI document are made from it. Calls of
//! the library block, so they run on threads of their own (`pools`). Jobs never depend on this process.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod answer;
mod api;
mod assets;
mod call;
mod connection;
mod files;
mod gate;
mod hub;
mod launch;
mod listen;
mod metrics;
mod pools;
mod query;
mod ring;
mod role;
mod route;
mod router;
mod routes;
mod running;
mod sessions;
mod state;
mod stream;
mod stream_output;
mod tokens;
mod vitals;

#[cfg(feature = "schema")]
pub mod openapi;

/// The name of the published schema of [`Serving`], and the function that makes it.
#[cfg(feature = "schema")]
pub const SCHEMA: quell::schema::Published = ("serve", quell::schema::written::<Serving>);

use std::net::IpAddr;

use quell::binary::Home;

pub use files::Serving;
pub use launch::serve;
pub use role::TokenRole;
pub use running::{login_url, status};
pub use tokens::add_token;

/// The program that opens a file in the user's browser.
pub const BROWSER: &str = "xdg-open";

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where the records of jobs are.
    pub home: Home,
    /// The address and port of TCP; none for the socket alone.
    pub listen: Option<(IpAddr, u16)>,
    /// Names of this server in addition to those of loopback: `HOST` or `HOST:PORT`.
    pub allow_hosts: Vec<String>,
    /// Whether a browser is opened.
    pub open: bool,
    /// Returns the hint for an error, as the command line words it.
    pub hint: fn(&quell::Error) -> String,
    /// Writes a line to the terminal.
    pub tell: fn(&str),
}
