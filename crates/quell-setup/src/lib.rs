//! `quell setup`: quell in the configuration of AI agents. It adds `quell mcp` as a server, puts `quell wrap` before the commands of
//! the other servers, and undoes both.
//!
//! ```text
//! agents/    one table of facts per agent: its files, its entries     edit/      the editors for JSON and TOML
//! change.rs  add and remove, on texts                                 file.rs    a configuration file on disk
//! setup.rs   what to add and remove, and what is set up               plan.rs    a change: shown, made, put on record
//! manifest.rs  what was written: $QUELL_HOME/setup.json
//! program.rs this quell, and what a word would start                  places.rs  where agents keep their files
//! ```
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod agents;
mod answer;
mod change;
mod edit;
mod error;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod manifest;
mod places;
mod plan;
mod program;
mod setup;
#[cfg(test)]
mod tests;

pub use agents::{Agent, ConfigScope};
pub use answer::{SetupAction, SetupAnswer, SetupServer, SetupState, WrapState};
pub use error::Error;
pub use places::Places;
pub use plan::SetupPlan;
pub use setup::{Installation, OtherServers, Setup};

/// The name of the published schema of [`SetupAnswer`], and the function that makes it.
#[cfg(feature = "schema")]
pub const SCHEMA: (&str, fn() -> String) = ("setup", quell_core::schema::written::<SetupAnswer>);
