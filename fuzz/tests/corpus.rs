//! Every target over its kept corpus. An input that a long run has found stays there as a file.
#![cfg(target_os = "linux")]

use quell_fuzz::{corpus, targets};

#[test]
fn every_input_of_the_corpus_is_survived() {
    for target in targets::ALL {
        let inputs = corpus(target.name).expect("a corpus");
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for (name, input) in inputs {
            // A panic shows the name last printed.
            println!("{}/{name}", target.name);
            (target.run)(&input);
        }
    }
}

#[test]
fn every_target_has_a_dictionary() {
    for target in targets::ALL {
        let file = format!("{}/dictionaries/{}.dict", env!("CARGO_MANIFEST_DIR"), target.dictionary);
        assert!(std::fs::read_to_string(&file).is_ok(), "{file}");
    }
}
