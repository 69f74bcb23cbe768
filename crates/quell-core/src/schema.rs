//! The published JSON schemas, made from the types themselves.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::ErrorBody;

/// The schema of a receipt, as pretty JSON with a final newline.
pub fn receipt() -> String {
    pretty(&schemars::schema_for!(crate::Receipt))
}

/// The schema of what a verb prints as `data`: of `T` as it is written, so that what is always there is required.
pub fn written<T: JsonSchema>() -> String {
    pretty(&SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>())
}

fn pretty(schema: &Schema) -> String {
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
    text.push('\n');
    text
}

/// What a verb prints with `--json` when it fails; also when it was called wrongly.
#[derive(serde::Serialize, JsonSchema)]
#[schemars(rename = "Failure", deny_unknown_fields)]
pub struct Failure {
    /// The schema of this object: `quell/1`.
    pub schema: String,
    /// Always false.
    pub ok: bool,
    /// The verb.
    pub r#type: String,
    /// What went wrong.
    pub error: ErrorBody,
}
