//! "Did you mean": finds the known word nearest to an unknown one.

/// The nearest of `known`, if it is similar enough.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace('-', "_");
    // One mistake in three letters still looks like the word; more is another word.
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase().replace('-', "_"));
    let best = known.into_iter().map(|known| (distance(known), known)).min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, known)| distance * 3 <= known.chars().count().max(3)).map(|(_, known)| known)
}

/// The nearest word as a hint; empty if no word is similar.
pub(crate) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("did you mean `{near}`?"))
}

/// The hint for an unknown word: the nearest known word, else all known words.
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
