//! What was counted, beside what was counted before.

use std::collections::BTreeMap;

/// What was counted of each row, by its name.
pub type Counts = BTreeMap<String, u64>;

/// A rise by more than so many in a hundred is a failure until the baseline is changed on purpose.
pub const TOLERATED: u64 = 5;
/// A difference up to this many is none, whatever part of a small count it is.
const SLACK: u64 = 5;

/// How a row stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// Within what is tolerated.
    Same,
    /// More: a failure.
    Risen,
    /// Less: worth a word, and a new baseline.
    Fallen,
    /// It was not counted before.
    New,
    /// It was counted before and is not now.
    Missing,
}

/// One row, before and now.
#[derive(Debug, PartialEq)]
pub struct Compared {
    pub name: String,
    pub before: Option<u64>,
    pub now: Option<u64>,
    pub standing: Standing,
}

/// All rows that are in either of them, by name.
pub fn compare(before: &Counts, now: &Counts) -> Vec<Compared> {
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &String| {
        let (before, now) = (before.get(name).copied(), now.get(name).copied());
        Compared { name: name.clone(), before, now, standing: stands(before, now) }
    };
    names.into_iter().map(one).collect()
}

fn stands(before: Option<u64>, now: Option<u64>) -> Standing {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (None, _) => return Standing::New,
        (_, None) => return Standing::Missing,
    };
    let apart = now.abs_diff(before);
    match now > before {
        _ if apart <= SLACK || apart.saturating_mul(100) <= before.saturating_mul(TOLERATED) => {
            Standing::Same
        }
        true => Standing::Risen,
        false => Standing::Fallen,
    }
}

/// By which part of what it was it has grown.
pub fn difference(before: u64, now: u64) -> f64 {
    now as f64 / before.max(1) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(before: u64, now: u64) -> Standing {
        stands(Some(before), Some(now))
    }

    #[test]
    fn a_rise_beyond_five_in_a_hundred_is_one() {
        assert_eq!(standing(1000, 1050), Standing::Same);
        assert_eq!(standing(1000, 1051), Standing::Risen);
        assert_eq!(standing(2_000_000, 2_200_000), Standing::Risen);
    }

    #[test]
    fn a_fall_is_said_and_is_no_rise() {
        assert_eq!(standing(1000, 950), Standing::Same);
        assert_eq!(standing(1000, 949), Standing::Fallen);
    }

    #[test]
    fn a_few_more_of_a_small_count_are_none() {
        assert_eq!(standing(10, 15), Standing::Same);
        assert_eq!(standing(10, 16), Standing::Risen);
        assert_eq!(standing(10, 5), Standing::Same);
        assert_eq!(standing(10, 4), Standing::Fallen);
        assert_eq!(standing(0, 5), Standing::Same);
        assert_eq!(standing(0, 6), Standing::Risen);
    }

    #[test]
    fn a_row_that_is_only_in_one_of_them_is_named() {
        let counts = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 7)).collect::<Counts>();
        let found = compare(&counts(&["list", "run"]), &counts(&["run", "stop"]));
        let found: Vec<_> = found.iter().map(|row| (row.name.as_str(), row.standing)).collect();
        assert_eq!(found, [("list", Standing::Missing), ("run", Standing::Same), ("stop", Standing::New)]);
    }
}
