//! The guard: policies, decisions, `quell kill` and `quell service`.

pub mod attacks;
pub mod decisions;
pub mod policy;
pub mod roles;
pub mod service;
pub mod service_edges;
