//! quell's lifecycle and its protocol on disk, explored exhaustively: every state that a bounded world can reach, not every
//! path to a depth. See `docs/reliability/model.md`.
//!
//! The search is our own (`explore.rs`). The crate `stateright` brings an HTTP server and threads that can't be left out,
//! and does not look for cycles, so that a path without an end that joins another goes unseen; here the whole graph is at
//! hand, and its cycles are what the liveness is checked on.

mod disk;
mod explore;
mod life;
mod life_world;
mod protocol;
