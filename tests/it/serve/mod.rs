//! `quell serve`, by a client that writes and reads the bytes of HTTP itself.

pub mod client;
mod gate;
mod jobs;
mod life;
mod roles;
mod rough_requests;
mod starts;
mod streams;
