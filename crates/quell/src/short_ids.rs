//! The shortest beginnings of ids by which jobs can be named.

use std::collections::BTreeSet;

use quell_core::JobId;
use quell_store::Home;

use crate::index;
use crate::{Error, Result};

/// The shortest beginning: it has one second of the clock in it.
const SHORTEST: usize = 8;

/// From this many jobs on, reading all ids is quicker than asking for the neighbours of each.
const MANY: usize = 200;

/// For each of `ids` the shortest beginning, of eight characters or more, that no other job of `home` has now.
pub fn short_ids(home: &Home, ids: &[JobId]) -> Result<Vec<String>> {
    let live = home.live().map_err(Error::io(home.dir().join("live")))?;
    let mut known: BTreeSet<JobId> = live.into_iter().chain(ids.iter().copied()).collect();
    index::with(home, |index| {
        known.extend(if ids.len() > MANY { index.all_ids()? } else { index.neighbours(ids)? });
        Ok(())
    })?;
    Ok(ids.iter().map(|id| beginning(*id, &known)).collect())
}

fn beginning(id: JobId, known: &BTreeSet<JobId>) -> String {
    let text = id.to_string();
    // In sorted order, the neighbours have the most characters in common with it.
    let beside = known.range(..id).next_back().into_iter().chain(known.range(id..).nth(1));
    let common = |other: &JobId| {
        let other = other.to_string();
        text.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
    };
    let length = beside.map(common).max().map_or(SHORTEST, |common| SHORTEST.max(common + 1));
    text.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_as_long_as_it_takes_to_be_unique() {
        let [a, b, c] = [(1 << 40, 0), (1 << 40, 1), (1 << 41, 0)].map(|(ms, random)| JobId::new(ms, random));
        let known = BTreeSet::from([a, b, c]);
        assert_eq!(beginning(a, &known), a.to_string(), "they differ in the last character");
        assert_eq!(beginning(c, &known), c.to_string()[..8]);
        assert_eq!(beginning(a, &BTreeSet::from([a])), a.to_string()[..8]);
    }
}
