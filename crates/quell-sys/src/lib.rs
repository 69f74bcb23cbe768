//! What quell asks of the operating system. Every unsafe line of quell is in this crate, each with the reason that it
//! is sound. The modules of the platforms have the same names, so that callers carry no `cfg`.

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "other/mod.rs"]
mod platform;

pub mod fault;
mod timers;

/// A thread to be spawned, with a stack of the usual size: without one RUST_MIN_STACK of the caller would decide.
pub fn thread() -> std::thread::Builder {
    std::thread::Builder::new().stack_size(2 << 20)
}

pub use platform::*;
pub use timers::Timers;
