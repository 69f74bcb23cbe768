//! The published JSON schema, made from the types themselves.

/// The schema of a receipt, as pretty JSON with a final newline.
pub fn receipt() -> String {
    let schema = schemars::schema_for!(crate::Receipt);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
