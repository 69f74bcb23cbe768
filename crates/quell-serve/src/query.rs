//! The query of a request, read by the parameters that its route declares. What is not declared is refused: a misspelled filter must
//! not select other jobs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quell::binary::regex;
use quell::{Cursor, JobId, JobState, TagFilter, Timestamp};

use crate::answer::HttpFailure;

/// A parameter of the query.
#[cfg_attr(not(feature = "schema"), allow(dead_code, reason = "the document is made from all of it"))]
#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
    pub about: &'static str,
}

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Any text.
    Text,
    /// A regular expression.
    Pattern,
    /// A word of lower-case letters. It can be given more than once.
    Words,
    /// A job: its id, the beginning of one, or its name. It can be given more than once.
    Jobs,
    /// The id of a job.
    Job,
    /// A label, `KEY` or `KEY=VALUE`. It can be given more than once.
    Tags,
    /// A state. It can be given more than once.
    States,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number from 0 to this.
    Count(u64),
    /// A whole number of `ms` or `s`, up to so many seconds.
    Wait(u64),
    /// A time such as 2026-01-31T12:00:00Z, or a duration until now with its unit.
    Time,
    /// A position in the output, such as `o1234e56`.
    Cursor,
    /// `JOB` or `JOB@CURSOR`. It can be given more than once.
    Logs,
    /// The id of an event, `EPOCH.NUMBER`.
    EventId,
}

impl ParamKind {
    pub fn is_repeatable(self) -> bool {
        matches!(self, Self::Jobs | Self::Words | Self::Tags | Self::States | Self::Logs)
    }

    /// What is wrong with a value.
    fn check(self, text: &str) -> Result<(), String> {
        match self {
            Self::Text | Self::Jobs => Ok(()),
            Self::Pattern => regex(text).map(drop).map_err(|error| error.to_string()),
            Self::Words if text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => Ok(()),
            Self::Words => Err("expected lower-case letters".into()),
            Self::Job => text.parse::<JobId>().map(drop).map_err(|error| error.to_string()),
            Self::Tags => text.parse::<TagFilter>().map(drop).map_err(|error| error.to_string()),
            Self::States => text.parse::<JobState>().map(drop).map_err(|error| error.to_string()),
            Self::Word(words) if words.contains(&text) => Ok(()),
            Self::Word(words) => Err(format!("expected one of {}", words.join(", "))),
            Self::Flag if matches!(text, "true" | "false" | "1" | "0") => Ok(()),
            Self::Flag => Err("expected true or false".into()),
            Self::Count(most) => match text.parse::<u64>() {
                Ok(count) if count <= most && !text.starts_with('+') => Ok(()),
                _ => Err(format!("expected a whole number from 0 to {most}")),
            },
            Self::Wait(most) => match wait(text) {
                Some(wait) if wait <= Duration::from_secs(most) => Ok(()),
                _ => Err(format!("expected a whole number with a unit, such as 500ms or 10s, up to {most}s")),
            },
            Self::Time => time(text).map(drop),
            Self::Cursor => text.parse::<Cursor>().map(drop).map_err(|error| error.to_string()),
            Self::Logs => logs(text).map(drop),
            Self::EventId => event_id(text).map(drop).ok_or_else(|| "expected EPOCH.NUMBER".into()),
        }
    }
}

/// A number without leading zeros, and `s` or `ms`.
fn wait(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let number: u64 =
        digits.parse().ok().filter(|_| digits.len() <= 4 && (digits == "0" || !digits.starts_with('0')))?;
    match unit {
        "s" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        _ => None,
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    if text.parse::<f64>().is_ok() {
        return Err(
            "expected a duration with its unit, such as 10m, or a time such as 2026-01-31T12:00:00Z".into()
        );
    }
    quell::parse_since(text).map_err(|error| error.to_string())
}

fn logs(text: &str) -> Result<(String, Option<Cursor>), String> {
    match text.split_once('@') {
        Some((job, cursor)) => {
            Ok((job.to_owned(), Some(cursor.parse::<Cursor>().map_err(|error| error.to_string())?)))
        }
        None => Ok((text.to_owned(), None)),
    }
}

/// The epoch and the number of an event.
pub fn event_id(text: &str) -> Option<(&str, u64)> {
    let (epoch, number) = text.split_once('.')?;
    epoch.parse::<JobId>().ok()?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((epoch, number.parse().ok().filter(|_| is_number)?))
}

/// The values of a request, checked.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Checks the values against what the route declares.
    pub fn new(params: &[Param], pairs: Vec<(String, String)>) -> Result<Self, HttpFailure> {
        let mut values: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in pairs {
            let Some(param) = params.iter().find(|param| param.name == name) else {
                let known: Vec<&str> = params.iter().map(|param| param.name).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                let why = format!("unknown parameter `{name}`; known here: {known}");
                return Err(HttpFailure::bad_value(why));
            };
            if !param.kind.is_repeatable() && values.iter().any(|(known, _)| *known == param.name) {
                return Err(HttpFailure::bad_value(format!("`{name}` is given more than once")));
            }
            if value.contains('\0') {
                return Err(HttpFailure::bad_value(format!("`{name}` has a NUL byte")));
            }
            let wrong = |why| HttpFailure::bad_value(format!("invalid {name} `{value}`: {why}"));
            param.kind.check(&value).map_err(wrong)?;
            values.push((param.name, value));
        }
        Ok(Self(values))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(known, _)| *known == name).map(|(_, value)| value.clone()).collect()
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("true" | "1"))
    }

    pub fn count(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub fn wait(&self, name: &str) -> Option<Duration> {
        wait(self.text(name)?)
    }

    pub fn time(&self, name: &str) -> Option<Timestamp> {
        time(self.text(name)?).ok()
    }

    pub fn cursor(&self, name: &str) -> Option<Cursor> {
        self.text(name)?.parse().ok()
    }

    pub fn job(&self, name: &str) -> Option<JobId> {
        self.text(name)?.parse().ok()
    }

    pub fn tags(&self, name: &str) -> Vec<TagFilter> {
        self.texts(name).iter().filter_map(|text| text.parse().ok()).collect()
    }

    pub fn states(&self, name: &str) -> Vec<JobState> {
        self.texts(name).iter().filter_map(|text| text.parse().ok()).collect()
    }

    pub fn logs(&self, name: &str) -> Vec<(String, Option<Cursor>)> {
        self.texts(name).iter().filter_map(|text| logs(text).ok()).collect()
    }

    /// The time of `name` on the clock of this process.
    pub fn since(&self, name: &str) -> Option<SystemTime> {
        let ms = u64::try_from(self.time(name)?.unix_ms()).unwrap_or(0);
        UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &[Param] = &[
        Param { name: "limit", kind: ParamKind::Count(500), about: "" },
        Param { name: "job", kind: ParamKind::Jobs, about: "" },
        Param { name: "for", kind: ParamKind::Wait(50), about: "" },
        Param { name: "since", kind: ParamKind::Time, about: "" },
    ];

    fn read(pairs: &[(&str, &str)]) -> Result<Query, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Query::new(PARAMS, pairs).map_err(|failure| failure.body().message.clone())
    }

    #[test]
    fn only_declared_parameters_with_good_values_are_taken() {
        let query = read(&[("limit", "7"), ("job", "a"), ("job", "b"), ("for", "1500ms")]).unwrap();
        assert_eq!((query.count("limit"), query.texts("job").len()), (Some(7), 2));
        assert_eq!(query.wait("for"), Some(Duration::from_millis(1500)));
        assert!(read(&[("since", "10m")]).unwrap().time("since").is_some());
        for bad in [
            &[("limti", "7")][..],
            &[("limit", "501")],
            &[("limit", "-1")],
            &[("limit", "+1")],
            &[("limit", "")],
            &[("limit", "1"), ("limit", "2")],
            &[("for", "51s")],
            &[("for", "x")],
            &[("for", "5")],
            &[("for", "1.5s")],
            &[("for", "01s")],
            &[("job", "a\0")],
            &[("since", "0.5")],
            &[("since", "yesterday")],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_event_id_is_an_epoch_and_a_number() {
        let epoch = "01M7R6N5NC2D8QX7000NMNJHTY";
        assert_eq!(event_id(&format!("{epoch}.4711")), Some((epoch, 4711)));
        for bad in ["", "x.1", "E", "E.", "E.+1", "E.1.2", "E.99999999999999999999"] {
            assert_eq!(event_id(&bad.replace('E', epoch)), None, "{bad}");
        }
    }
}
