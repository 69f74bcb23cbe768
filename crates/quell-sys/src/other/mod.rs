//! The platforms that quell is not built for yet. What is missing says so.

/// What this platform's quell can't do yet.
#[derive(Debug, thiserror::Error)]
#[error("quell can't run jobs on {} yet; Linux is supported", std::env::consts::OS)]
pub struct Unsupported;

/// Whether jobs can be run here at all.
pub fn supported() -> Result<(), Unsupported> {
    Err(Unsupported)
}

/// Which of the descriptors 0 to 2 the caller had closed.
pub fn closed_at_start() -> [bool; 3] {
    [false; 3]
}

/// The user's home where the environment doesn't tell it.
pub fn own_home() -> Option<std::path::PathBuf> {
    None
}

/// Ends this process by `signal`, where there are signals.
pub fn exit_by_signal(_signal: quell_core::Signal) {}

/// How large the stack may become, where that is limited, in bytes.
pub fn stack_limit() -> Option<u64> {
    None
}

/// Remembers this process's user, where it is asked for.
pub fn remember_user() {}

/// Why this program has more rights than its caller, where that can be.
pub fn raised_rights() -> Option<&'static str> {
    None
}
