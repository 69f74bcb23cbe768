//! quell's lifecycle and its protocol on disk, explored exhaustively: every state that a bounded world can reach, not every
//! path to a depth. See `docs/reliability/model.md`.
//!
//! The search is our own (`explore.rs`). The crate `stateright` brings an HTTP server and threads that can't be left out, and
//! does not look for cycles, so it misses an endless path that joins another one. Here the whole graph is kept, and liveness
//! is checked on its cycles.

mod disk;
mod explore;
mod life;
mod life_world;
mod protocol;
