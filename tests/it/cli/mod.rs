//! What people and programs read: errors, hints, JSON, schemas, completions, manual pages.

pub mod answer_schemas;
pub mod attribution;
pub mod bad_input;
pub mod completions_man;
pub mod hints;
pub mod json_shapes;
pub mod receipt_schema;
