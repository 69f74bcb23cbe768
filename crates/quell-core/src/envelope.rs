//! The JSON envelope around everything that a verb prints with `--json`.

use serde::Serialize;
use serde_json::{Value, json};

use crate::SCHEMA;

/// An error as programs read it.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorBody {
    /// A stable word for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What else is known.
    pub details: Value,
}

/// The envelope of a success.
pub fn success(verb: &str, data: &impl Serialize) -> String {
    json!({ "schema": SCHEMA, "ok": true, "type": verb, "data": data }).to_string()
}

/// The envelope of a failure.
pub fn failure(verb: &str, error: &ErrorBody) -> String {
    json!({ "schema": SCHEMA, "ok": false, "type": verb, "error": error }).to_string()
}
