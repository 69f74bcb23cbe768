//! The JSON envelope of all output with `--json`.

use serde::Serialize;
use serde_json::Value;

use crate::SCHEMA;
use crate::text::safe_json;

/// An error, for programs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// A stable word for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// More facts.
    pub details: Value,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: &'a str,
    ok: bool,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorBody>,
}

/// JSON in which all characters are escaped that a terminal could act on.
pub fn json(value: &impl Serialize) -> String {
    // Serializing quell's own types does not fail.
    safe_json(&serde_json::to_string(value).unwrap_or_default()).into_owned()
}

/// A line of JSON for a file, with its line feed. A terminal shows it as it is, like the output of `--json`.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = safe_json(&serde_json::to_string(value)?).into_owned();
    line.push('\n');
    Ok(line.into_bytes())
}

/// The envelope of a success.
pub fn success(verb: &str, data: &impl Serialize) -> String {
    let envelope = Envelope { schema: SCHEMA, ok: true, r#type: verb, data: Some(data), error: None };
    json(&envelope)
}

/// The envelope of a failure.
pub fn failure(verb: &str, error: &ErrorBody) -> String {
    json(&Envelope::<()> { schema: SCHEMA, ok: false, r#type: verb, data: None, error: Some(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_begins_with_its_schema() {
        let body = ErrorBody {
            code: "usage".into(),
            message: "m".into(),
            hint: "h".into(),
            retryable: false,
            details: Value::Null,
        };
        assert!(
            failure("run", &body)
                .starts_with(r#"{"schema":"quell/1","ok":false,"type":"run","error":{"code":"usage""#)
        );
        assert_eq!(success("stop", &1), r#"{"schema":"quell/1","ok":true,"type":"stop","data":1}"#);
    }
}
