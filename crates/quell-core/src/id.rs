//! Job ids: ULIDs, so that they sort by time and can be cut to a prefix.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;

use crate::text::json_as_text;

/// The id of one job. It is a valid file name by construction: 26 characters of Crockford's base 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Ulid);

/// A text that is not a job id.
#[derive(Debug, thiserror::Error)]
#[error("invalid job id `{0}`: expected 26 letters and digits, such as 01KA3W6Z0GJ8X4T9M2N7Q5R1SB")]
pub struct InvalidId(String);

/// Of the 80 bits after the wall clock, how many identify the boot, and how many count clock ticks since then: five years.
const BOOT_BITS: u32 = 16;
const TICK_BITS: u32 = 34;

impl JobId {
    /// An id from the wall clock and 80 random bits (the upper 48 bits of `random` are not used).
    pub fn new(unix_ms: u64, random: u128) -> Self {
        Self(Ulid::from_parts(unix_ms, random))
    }

    /// An id that also holds its time on a clock that cannot be set: clock ticks since the boot `boot`. The random bits come
    /// first, so that ids of one millisecond differ in their first characters.
    pub fn born(unix_ms: u64, boot: u16, ticks: u64, random: u128) -> Self {
        let ticks = u128::from(ticks) & ((1 << TICK_BITS) - 1);
        Self::new(unix_ms, random << (BOOT_BITS + TICK_BITS) | ticks << BOOT_BITS | u128::from(boot))
    }

    /// When it was made, in clock ticks since the boot `boot`; none if it was made in another boot.
    pub fn ticks_since(&self, boot: u16) -> Option<u64> {
        let bits = self.0.random();
        let ticks = bits >> BOOT_BITS & ((1 << TICK_BITS) - 1);
        (bits & u128::from(u16::MAX) == u128::from(boot)).then_some(ticks as u64)
    }

    /// Whether `text` could be the beginning of an id that is made between 2004 and 2039, as quell prints it (8 characters or
    /// more, in any case). Such a text is refused as a name, because the name would hide the job with that id.
    pub fn may_begin_with(text: &str) -> bool {
        let of_ids = |byte: u8| byte.is_ascii_alphanumeric() && !b"ILOU".contains(&byte.to_ascii_uppercase());
        (8..=26).contains(&text.len()) && text.starts_with("01") && text.bytes().all(of_ids)
    }

    /// The wall clock when it was made, in milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id = Ulid::from_string(text).map_err(|_| InvalidId(text.to_owned()))?;
        // The decoder takes lower case and overflowing first characters too; only the canonical form names a job.
        if id.to_string() == text { Ok(Self(id)) } else { Err(InvalidId(text.to_owned())) }
    }
}

json_as_text!(JobId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_round_trip() {
        let id = JobId::new(1_700_000_000_000, 42);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert_eq!(id.unix_ms(), 1_700_000_000_000);
    }

    #[test]
    fn an_id_tells_its_boot_when_it_was_made() {
        let id = JobId::born(1_700_000_000_000, 0xBEEF, 123_456_789, u128::MAX);
        assert_eq!((id.ticks_since(0xBEEF), id.ticks_since(0xBEEE)), (Some(123_456_789), None));
        assert_eq!(id.unix_ms(), 1_700_000_000_000);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
    }

    #[test]
    fn the_parts_of_an_id_do_not_change_each_other() {
        let (one, other) = (JobId::born(1, 0, 0, 1), JobId::born(1, 0, 0, 2));
        assert_ne!(one, other);
        assert_eq!(JobId::born(1, 0, 1 << TICK_BITS, 1), one, "ticks that do not fit are cut");
        let full = (1 << TICK_BITS) - 1;
        assert_eq!(JobId::born(1, u16::MAX, full, 0).ticks_since(u16::MAX), Some(full));
    }

    #[test]
    fn only_texts_like_an_id_may_begin_one() {
        let id = JobId::new(1_790_000_000_000, 42).to_string();
        for text in [&id, &id[..8], &id.to_lowercase()[..10]] {
            assert!(JobId::may_begin_with(text), "{text}");
        }
        for text in
            ["01", "01M7PGY", "01-deploy", "01monitor", "20261118", "web", "build012", &format!("{id}0")]
        {
            assert!(!JobId::may_begin_with(text), "{text}");
        }
    }

    #[test]
    fn ids_sort_by_time() {
        assert!(JobId::new(1, u128::MAX).to_string() < JobId::new(2, 0).to_string());
    }

    #[test]
    fn what_could_leave_the_job_directory_is_refused() {
        for text in ["", "..", "/", "../x", "a/b", "01ka3w6z0gj8x4t9m2n7q5r1sb", "01KA3W6Z0GJ8X4T9M2N7Q5R1S/"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }
}
