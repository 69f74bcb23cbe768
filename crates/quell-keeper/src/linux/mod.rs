//! Linux.

mod evidence;
mod front;
mod prepare;
mod supervise;
mod wire;

pub use front::run;
