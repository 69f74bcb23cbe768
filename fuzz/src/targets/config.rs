//! Configuration files.

/// A file that can't be used is told with its path; one that can, always can.
pub fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let read = quell::binary::config::fuzzing::read(&text);
    if let Err(why) = &read {
        assert!(why.contains("/etc/quell.toml"), "{why}");
    }
    assert_eq!(read, quell::binary::config::fuzzing::read(&text));
}
