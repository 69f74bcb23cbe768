//! What the routes do, one file per group.

pub mod control;
pub mod group;
pub mod host;
pub mod jobs;
pub mod logs;
pub mod output;
pub mod server;
pub mod start;
pub mod stop;
pub mod waits;
