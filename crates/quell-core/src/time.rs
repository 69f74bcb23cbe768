//! Times: text in files and output, numbers in comparisons and arithmetic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::json_as_text;

/// An instant by the wall clock, in whole milliseconds. As text it is RFC 3339 in UTC, such as `2026-01-31T12:00:00.000Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Milliseconds since 1970.
    ms: i64,
}

/// A text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}: expected a time like 2026-01-31T12:00:00Z")]
pub struct InvalidTimestamp(String);

impl Timestamp {
    /// From milliseconds since 1970. A time outside the calendar becomes the nearest one inside.
    pub fn from_unix_ms(ms: i64) -> Self {
        let (first, last) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
        Self { ms: ms.clamp(first * 1000, last * 1000) }
    }

    /// From nanoseconds since 1970, as an output log has them.
    pub fn from_unix_ns(ns: u64) -> Self {
        Self::from_unix_ms((ns / 1_000_000).cast_signed())
    }

    /// Milliseconds since 1970; negative before that.
    pub fn unix_ms(self) -> i64 {
        self.ms
    }

    /// The time `earlier` before this one, rounded down to a millisecond.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Self {
        let ms = i64::try_from(earlier.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Self::from_unix_ms(self.ms.saturating_sub(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.ms).unwrap_or_default();
        write!(f, "{time:.3}")
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp(text.to_owned()))?;
        Ok(Self::from_unix_ms(time.as_millisecond()))
    }
}

json_as_text!(Timestamp);

/// An instant on both clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment {
    /// Seconds since the job's start on the monotonic clock, which cannot be set.
    pub at: f64,
    /// The wall clock, RFC 3339.
    pub wall: Timestamp,
}

impl Moment {
    /// The wall clock when the job started.
    pub fn start(&self) -> Timestamp {
        self.wall.before(Duration::try_from_secs_f64(self.at).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_as_the_text_that_it_was() {
        for text in ["2026-01-31T12:00:00.000Z", "1970-01-01T00:00:00.001Z", "1969-12-31T23:59:59.999Z"] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(time.to_string(), text);
            let json = serde_json::to_string(&time).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        }
        let other: Timestamp = "2026-01-31T13:00:00.9999+01:00".parse().unwrap();
        assert_eq!(other.to_string(), "2026-01-31T12:00:00.999Z");
    }

    #[test]
    fn times_are_compared_as_numbers() {
        let of = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(of("2026-01-31T13:30:00+02:00") < of("2026-01-31T12:00:00Z"));
        assert_eq!(of("2026-01-31T12:00:00Z"), of("2026-01-31T12:00:00.000Z"));
        assert_eq!(of("1970-01-01T00:00:01Z").before(Duration::from_millis(1500)).unix_ms(), -500);
    }

    #[test]
    fn what_is_not_a_time_is_refused_and_no_number_panics() {
        for text in ["", "now", "2026-01-31", "2026-13-01T00:00:00Z"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Timestamp>("5").is_err());
        for ms in [i64::MIN, i64::MAX] {
            let time = Timestamp::from_unix_ms(ms);
            assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
            let _ = time.before(Duration::MAX);
        }
    }

    #[test]
    fn a_time_outside_the_calendar_becomes_the_nearest_inside() {
        let (first, last) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
        assert_eq!(Timestamp::from_unix_ms(i64::MIN).unix_ms(), first * 1000);
        assert_eq!(Timestamp::from_unix_ms(i64::MAX).unix_ms(), last * 1000);
    }

    #[test]
    fn a_job_started_as_long_ago_as_its_own_clock_says() {
        let wall = Timestamp::from_unix_ns(5_000_999_999);
        assert_eq!(wall.unix_ms(), 5000);
        assert_eq!(Moment { at: 1.5, wall }.start().unix_ms(), 3500);
        assert_eq!(Moment { at: f64::NAN, wall }.start(), wall);
    }
}
