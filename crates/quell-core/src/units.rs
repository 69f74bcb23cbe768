//! Durations, sizes and core counts as people write them.

use std::time::Duration;

/// A text that can't be used as a duration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDuration {
    /// It is not a duration.
    #[error(
        "invalid duration `{0}`: expected a number and a unit (ms, s, m, h or d), such as 300ms, 1.5s or 1m30s"
    )]
    Malformed(String),
    /// It would overflow the clock's arithmetic.
    #[error("duration `{0}` is too long: the limit is about 100 years (36600d)")]
    TooLong(String),
}

/// A text that is not a size.
#[derive(Debug, thiserror::Error)]
#[error("invalid size `{text}`: {why}")]
pub struct InvalidSize {
    text: String,
    why: &'static str,
}

const SIZE_EXPECTED: &str =
    "expected a number of bytes or a number with K, M, G or T (powers of 1024), such as 512M";

/// A text that is not a number of cores.
#[derive(Debug, thiserror::Error)]
#[error("invalid number of cores `{0}`: expected a number greater than 0, such as 0.5 or 2")]
pub struct InvalidCores(String);

/// Splits `1.5s` into its number and its unit. Only plain decimal numbers count: no sign, no exponent, no `inf`.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some((number.parse().ok()?, unit))
}

/// The longest duration: no job lives so long, and longer ones would overflow the clock's arithmetic.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A duration in JSON: seconds as a number. A longer one than a century is read as a century.
pub mod seconds {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::CENTURY;

    /// As it is written, or as older records have it.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Seconds(f64),
        Parts(Duration),
    }

    /// Writes it.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let duration = match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => {
                Duration::try_from_secs_f64(seconds.min(CENTURY.as_secs_f64())).map_err(D::Error::custom)?
            }
            Written::Parts(duration) => duration,
        };
        Ok(duration.min(CENTURY))
    }

    /// The same for an optional duration.
    pub mod optional {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        struct Seconds(#[serde(with = "super")] Duration);

        /// Writes it.
        pub fn serialize<S: Serializer>(
            duration: &Option<Duration>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            duration.map(Seconds).serialize(serializer)
        }

        /// Reads it.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<Seconds>::deserialize(deserializer)?.map(|Seconds(duration)| duration))
        }
    }
}

/// Reads `300ms`, `1.5s`, `2m`, `1h` or `1d`, and several of them with the larger unit first, as [`format_duration`] writes
/// them: `1m30s`. A bare number is seconds, as for timeout(1).
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let bad = || InvalidDuration::Malformed(text.to_owned());
    let (mut rest, mut total, mut last_unit) = (text, 0.0, f64::INFINITY);
    loop {
        let (number, tail) = split(rest).ok_or_else(bad)?;
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, more) = tail.split_at(end);
        let seconds = match unit {
            "ms" => 0.001,
            "" if rest.len() == text.len() => 1.0,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        if seconds >= last_unit {
            return Err(bad());
        }
        total += number * seconds;
        (rest, last_unit) = (more, seconds);
        if rest.is_empty() {
            break;
        }
    }
    if total > CENTURY.as_secs_f64() {
        Err(InvalidDuration::TooLong(text.to_owned()))
    } else {
        Duration::try_from_secs_f64(total).map_err(|_| bad())
    }
}

/// Reads `4096`, `512K`, `512M`, `1.5G` or `1T`, with an optional `B` or `iB` after the letter.
pub fn parse_size(text: &str) -> Result<u64, InvalidSize> {
    let because = |why| InvalidSize { text: text.to_owned(), why };
    let bad = || because(SIZE_EXPECTED);
    let (number, unit) = split(text).ok_or_else(bad)?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(bad()),
    };
    if number == 0.0 {
        return Err(because("must be greater than 0"));
    }
    let bytes = number * f64::from(2u32.pow(10)).powi(shift / 10);
    if (1.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(bad()) }
}

/// Reads a number of cores such as `0.5` or `2`.
pub fn parse_cores(text: &str) -> Result<f64, InvalidCores> {
    match split(text) {
        Some((cores, "")) if (0.01..=100_000.0).contains(&cores) => Ok(cores),
        Some(_) | None => Err(InvalidCores(text.to_owned())),
    }
}

/// Writes a duration the way people read it: `300ms`, `2s`, `1.5s`, `2m`, `1h30m`. From a second on it is rounded to
/// hundredths.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms < 1000 {
        return format!("{ms}ms");
    }
    // Rounded before it is divided, as it would give `1m60s` otherwise.
    let ms = (ms + 5) / 10 * 10;
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let mut text = String::new();
    if hours > 0 {
        text += &format!("{hours}h");
    }
    if minutes > 0 {
        text += &format!("{minutes}m");
    }
    if seconds > 0 {
        let decimals = format!("{:.2}", seconds as f64 / 1000.0);
        text += decimals.trim_end_matches('0').trim_end_matches('.');
        text += "s";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, ms) in [
            ("300ms", 300),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("5", 5000),
            ("0", 0),
            ("1h", 3_600_000),
            ("30d", 2_592_000_000),
            ("0.5d", 43_200_000),
            ("1m30s", 90_000),
            ("1h30m30s", 5_430_000),
            ("2m0.25s", 120_250),
            ("1d1ms", 86_400_001),
            ("36600d", 3_162_240_000_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn nonsense_is_not_a_duration() {
        for text in [
            "",
            "s",
            "-1s",
            "1x",
            "1 s",
            "1e3s",
            "inf",
            "nan",
            ".",
            "1..2s",
            "999999999999d",
            "+1s",
            "1m30",
            "30s1m",
            "1m1m",
            "1m 30s",
            "1m.5s",
            "1m-1s",
            "36500d999999h",
            "36600d1ms",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("1", 1), ("512M", 512 << 20), ("1.5G", 3 << 29), ("4KiB", 4096), ("2TB", 2 << 40)]
        {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "0", "M", "-1M", "1X", "99999999T", "0.2"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_are_read() {
        for (text, cores) in [("0.01", 0.01), ("0.5", 0.5), ("2", 2.0), ("100000", 100_000.0)] {
            assert_eq!(parse_cores(text).unwrap(), cores, "{text}");
        }
        for text in ["", "0", "0.001", "-1", "2x", "100001", "inf"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_for_people() {
        for (ms, text) in [
            (0, "0ms"),
            (300, "300ms"),
            (1000, "1s"),
            (2000, "2s"),
            (1500, "1.5s"),
            (120_000, "2m"),
            (5_430_000, "1h30m30s"),
            (119_999, "2m"),
            (3_599_996, "1h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_duration_in_json_is_seconds() {
        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct Both {
            #[serde(with = "seconds")]
            one: Duration,
            #[serde(default, with = "seconds::optional")]
            other: Option<Duration>,
        }
        let given = Both { one: Duration::from_millis(300), other: Some(Duration::from_secs(5)) };
        let text = r#"{"one":0.3,"other":5.0}"#;
        assert_eq!(serde_json::to_string(&given).unwrap(), text);
        let old = r#"{"one":{"secs":0,"nanos":300000000},"other":{"secs":5,"nanos":0}}"#;
        for text in [text, old] {
            assert_eq!(serde_json::from_str::<Both>(text).unwrap(), given, "{text}");
        }
        for (text, one) in
            [(r#"{"one":1e300}"#, CENTURY), (r#"{"one":2,"other":null}"#, Duration::from_secs(2))]
        {
            assert_eq!(serde_json::from_str::<Both>(text).unwrap(), Both { one, other: None }, "{text}");
        }
        for text in [r#"{"one":-1}"#, r#"{"one":"5s"}"#, r#"{"one":null}"#] {
            assert!(serde_json::from_str::<Both>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let below_a_second = 0..1000;
        let some_of_two_days = (1000..172_800_000).step_by(7919);
        for ms in below_a_second.chain(some_of_two_days) {
            let given = Duration::from_millis(ms);
            let text = format_duration(given);
            let read = parse_duration(&text).unwrap_or_else(|error| panic!("{ms} ms: {error}"));
            let most = Duration::from_millis(if ms < 1000 { 0 } else { 5 });
            assert!(read.abs_diff(given) <= most, "{given:?} is written as {text} and read as {read:?}");
        }
    }
}
