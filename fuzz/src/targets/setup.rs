//! The configuration files of agents.

use quell_setup::{Agent, fuzzing::add_and_remove};

/// The first byte says which agent, and whether its servers are wrapped; the rest is its file.
pub fn setup(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    let agent = Agent::ALL[usize::from(first / 2) % Agent::ALL.len()];
    add_and_remove(agent, first % 2 == 1, &String::from_utf8_lossy(text));
}
