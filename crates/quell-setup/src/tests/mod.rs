//! Tests of the texts (`texts`), of files on disk (`on_disk`) and of generated files (`generated`).

mod generated;
mod on_disk;
mod texts;

use crate::Agent;
use crate::change::{self, Changed, Earlier, WantedChange};

/// quell's path in the tests of texts.
const QUELL: &str = "/opt/bin/quell";

fn is_quell(word: &str) -> bool {
    word == QUELL
}

fn wanted(agent: Agent, wrap: bool) -> WantedChange<'static> {
    WantedChange { agent, quell: QUELL, wrap, is_this_quell: &is_quell }
}

fn add(agent: Agent, wrap: bool, text: &str) -> Changed {
    change::add(text, &wanted(agent, wrap)).expect(text)
}

/// Undoes a change without its backup.
fn undo(agent: Agent, changed: &Changed) -> String {
    let earlier = Earlier {
        own: changed.own,
        table: changed.table,
        servers: &changed.servers,
        corrected: &changed.corrected,
    };
    change::remove(&changed.text, agent, Some(&earlier), &is_quell).expect("undo").text
}
