//! Durations, sizes and CPU shares as text, in the spelling of the command line.

pub use quell_core::{
    InvalidCores, InvalidDuration, InvalidSize, format_duration, parse_cores, parse_duration, parse_size,
};
