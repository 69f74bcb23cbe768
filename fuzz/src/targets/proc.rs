//! What the kernel and systemd say.

use std::path::{Component, Path};

use quell_contain::fuzzing::{cgroup2_mount, dir_of, take_message, unescape, v2_path};
use quell_sys::Stat;
use quell_sys::fuzzing::{listener, numbers};

/// stat, children, loadavg, net/tcp, cgroup and mountinfo.
pub fn proc(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Some(stat) = Stat::parse(&text) {
        assert!(text.starts_with(&format!("{} (", stat.pid)) || text.starts_with(['+', '0']), "{text}");
        assert!(text.contains(&stat.comm));
    }
    assert!(numbers(input).len() <= input.len().div_ceil(2));
    for line in text.lines() {
        if let Some((_, inode)) = listener(line, 80) {
            assert!(line.contains(&inode.to_string()) || line.contains('+') || line.contains('0'), "{line}");
        }
    }
    if let (Some((root, mount)), Some(own)) = (cgroup2_mount(&text), v2_path(&text))
        && let Some(dir) = dir_of(&root, &mount, own)
    {
        // Whatever is written there is written below the mount, and to a cgroup that this process was said to be in.
        assert!(dir.starts_with(&mount), "{dir:?} is not below {mount:?}");
        let below = dir.strip_prefix(&mount).unwrap_or(Path::new(""));
        assert!(!below.components().any(|part| part == Component::ParentDir), "{dir:?} leaves {mount:?}");
        let whole = Path::new(&root).join(below);
        assert!(own.is_empty() || whole == Path::new(own), "{root:?}, {own:?}: {dir:?}");
    }
}

/// Replies of the bus: what is taken was there, and each one makes the rest shorter.
pub fn bus(input: &[u8]) {
    let mut rest = input.to_vec();
    loop {
        let before = rest.len();
        match take_message(&mut rest) {
            Some(Some((body, name))) => assert!(rest.len() < before && body + name < before),
            Some(None) | None => break,
        }
    }
    if let Some(plain) = unescape(input) {
        assert!(plain.len() <= input.len());
    }
}
