//! What quell's processes say to each other: lines of JSON.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quell_keeper::control_protocol::{Answer, Call};
use quell_keeper::fuzzing::{FrontCommand, JsonChannel, KeeperEvent};
use quell_keeper::{StartMessage, StartReply};

use super::records::round_trip;

/// One message of each kind.
pub fn control(input: &[u8]) {
    let within = match round_trip::<Call>(input) {
        Some(Call::Stop { grace, .. }) => grace.unwrap_or_default(),
        Some(Call::Send { within, .. }) => within,
        Some(Call::Signal { .. } | Call::ListMembers | Call::Vitals) | None => Duration::ZERO,
    };
    assert!(Instant::now().checked_add(within * 4).is_some(), "{within:?} is beyond the keeper's clock");
    round_trip::<Answer>(input);
    round_trip::<StartReply>(input);
    round_trip::<StartMessage>(input);
    round_trip::<KeeperEvent>(input);
    round_trip::<FrontCommand>(input);
}

/// A line as it comes over a socket, in two parts: nothing is heard that was not said, and nothing twice.
pub fn lines(input: &[u8]) {
    let Ok((mut client, keeper)) = UnixStream::pair() else { return };
    let mut line = JsonChannel::new(keeper);
    let (one, two) = input.split_at(input.len() / 2);
    let mut heard = 0;
    for part in [one, two] {
        client.write_all(part).expect("a socket takes this much");
        let arrived = line.recv::<Call>();
        assert!(!arrived.closed);
        heard += arrived.messages.len();
    }
    drop(client);
    let last = line.recv::<Call>();
    assert!(last.closed && last.messages.is_empty());
    let said = |text: &&[u8]| serde_json::from_slice::<Call>(text).is_ok();
    let mut whole: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    whole.pop();
    assert_eq!(heard, whole.iter().filter(|text| said(text)).count());
}
