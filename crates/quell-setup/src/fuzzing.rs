//! The editors, for the fuzz targets.

use crate::Agent;
use crate::change::{self, Earlier, WantedChange};
use crate::edit::{ConfigText, ServerEntry};

const QUELL: &str = "/opt/bin/quell";

/// Adds quell to a text and removes it again. Returns whether the text can be used. Panics if what was there is not there then.
pub fn add_and_remove(agent: Agent, wrap: bool, text: &str) -> bool {
    let is_this_quell: &dyn Fn(&str) -> bool = &|word| word == QUELL;
    let wanted = WantedChange { agent, quell: QUELL, wrap, is_this_quell };
    let Ok(added) = change::add(text, &wanted) else { return false };
    let again = change::add(&added.text, &wanted).expect("what was written can be read");
    assert!(again.text == added.text, "a second run changes {text:?}: {:?}, {:?}", added.text, again.text);
    let earlier =
        Earlier { own: added.own, table: added.table, servers: &added.servers, corrected: &added.corrected };
    let removed = change::remove(&added.text, agent, Some(&earlier), is_this_quell)
        .expect("what was added can be removed");
    if added.corrected.is_empty() {
        assert_eq!(servers(agent, text), servers(agent, &removed.text), "{text:?}: {:?}", added.text);
    }
    true
}

fn servers(agent: Agent, text: &str) -> Option<Vec<ServerEntry>> {
    let document = ConfigText::parse(agent.facts().syntax, text.trim_start_matches('\u{feff}')).ok()?;
    document.servers(agent.facts()).ok()
}
