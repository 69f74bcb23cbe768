//! Finding jobs: the index, what users type, lists, gc and sums, on real files.
#![cfg(target_os = "linux")]

mod damage;
mod fake;
mod find;
mod gc;
mod guard_log;
mod lists;
mod many;
mod scale;
mod stats;
