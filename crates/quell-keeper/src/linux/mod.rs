//! Linux.

mod evidence;
mod front;
mod prepare;
mod store;
mod supervise;
mod wire;

pub use front::run;
