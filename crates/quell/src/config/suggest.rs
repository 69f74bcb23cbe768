//! "Did you mean": the known word that is nearest to a wrong one.

/// The nearest of `known`, if it is near enough to be what was meant.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace('-', "_");
    // One slip in three letters still looks like the word; more is another word.
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase().replace('-', "_"));
    let best = known.into_iter().map(|known| (distance(known), known)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, known)| distance * 3 <= known.chars().count().max(3)).map(|(_, known)| known)
}

/// The nearest word as a hint; empty if there is none.
pub(crate) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("did you mean `{near}`?"))
}

/// What to do about an unknown word: the nearest one if there is one, else all of them.
pub(crate) fn hint<'k>(word: &str, what: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known {what}: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["grace", "signal", "verify", "on-failure"];
        for (word, near) in
            [("grce", "grace"), ("sginal", "signal"), ("VERIFY", "verify"), ("on_failure", "on-failure")]
        {
            assert_eq!(nearest(word, known), Some(near), "{word}");
        }
        for word in ["", "timeout", "g", "signature"] {
            assert_eq!(nearest(word, known), None, "{word}");
        }
        assert_eq!(hint("timeout", "keys", ["grace", "signal"]), "known keys: grace, signal");
    }
}
