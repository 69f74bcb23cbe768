//! What a person needs to know about a process before it is killed.

use std::sync::OnceLock;

use quell_core::{ProcId, Timestamp};

use super::set::Process;

/// A process that may be killed, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The process.
    pub id: ProcId,
    /// Its name.
    pub name: String,
    /// Its command line, or the first 4 KiB of it.
    pub command: Vec<String>,
    /// The users by whose rights it can act.
    pub users: Vec<String>,
    /// When it started. In one process of quell's this is the same each time it is asked, whatever happens to the clock.
    pub started: Timestamp,
}

impl Victim {
    /// Reads the rest. None if the process has exited meanwhile: what was read may be about another one.
    pub(super) fn of(process: &Process) -> Option<Self> {
        let user = |uid: u32, name: &Option<String>| name.clone().unwrap_or_else(|| uid.to_string());
        let victim = Self {
            id: process.id,
            name: process.name().to_owned(),
            command: quell_sys::cmdline(process.id.pid),
            users: process.facts.owners.iter().map(|owner| user(owner.uid, &owner.name)).collect(),
            started: time_of(process.id.start),
        };
        process.pidfd.is_alive().then_some(victim)
    }
}

/// The time of a tick since boot.
fn time_of(tick: u64) -> Timestamp {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let ms = |ticks: u64| ticks.saturating_mul(1000) / quell_sys::ticks_per_second();
    let boot = *BOOT.get_or_init(|| quell_sys::unix_ms().saturating_sub(ms(quell_sys::ticks_since_boot())));
    Timestamp::from_unix_ms((boot + ms(tick)).cast_signed())
}
