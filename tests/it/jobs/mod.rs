//! What a background job has: readiness, restarts, hooks, an owner, input, captured output, settings.

pub mod captured_output;
pub mod diagnostics;
pub mod hooks;
pub mod input;
pub mod owners;
pub mod ready;
pub mod resource_limits;
pub mod restarts;
pub mod settings;
