//! The arguments of a call: checked against the tool's own schema, and forgiving where the meaning is clear.

use std::time::Duration;

use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::ToolFailure;

/// The arguments as `T`. A number or a boolean in quotes and a single text for a list are taken for what they mean; everything else
/// that does not fit is an error that names the argument.
pub fn read<T: DeserializeOwned>(tool: &Tool, given: JsonObject) -> Result<T, ToolFailure> {
    let known = tool.input_schema.get("properties").and_then(Value::as_object);
    let mut arguments = JsonObject::new();
    for (name, value) in given {
        let Some(wanted) = known.and_then(|known| known.get(&name)) else {
            let all: Vec<&str> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            return Err(ToolFailure::argument(format!(
                "{} has no argument `{name}`, only {}",
                tool.name,
                all.join(", ")
            )));
        };
        // For a model, an argument that is null is one that is not given.
        if !value.is_null() {
            arguments.insert(name.clone(), fit(&name, wanted, value)?);
        }
    }
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| ToolFailure::argument(format!("{}: {error}", tool.name)))
}

fn fit(name: &str, wanted: &Value, value: Value) -> Result<Value, ToolFailure> {
    let kind = wanted["type"].as_str().unwrap_or_default();
    let misfit = |value: &Value| ToolFailure::argument(format!("`{name}` must be {kind}, not {value}"));
    let fitted = match (kind, value) {
        ("integer", Value::String(text)) => match text.trim().parse::<u64>() {
            Ok(number) => number.into(),
            Err(_) => return Err(misfit(&text.into())),
        },
        ("integer", Value::Number(number)) => match whole(&number) {
            Some(number) => number.into(),
            None => {
                return Err(ToolFailure::argument(format!(
                    "`{name}` must be a whole number from 0 on, not {number}"
                )));
            }
        },
        ("boolean", Value::String(text)) if text == "true" || text == "false" => (text == "true").into(),
        ("array", Value::String(text)) => vec![text].into(),
        ("object", Value::Object(fields)) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| match value {
                    Value::Number(_) | Value::Bool(_) => (key, value.to_string().into()),
                    value => (key, value),
                })
                .collect(),
        ),
        ("string", value @ Value::String(_))
        | ("boolean", value @ Value::Bool(_))
        | ("array", value @ Value::Array(_)) => value,
        (_, value) => return Err(misfit(&value)),
    };
    if let (Some(allowed), Some(text)) = (wanted["enum"].as_array(), fitted.as_str())
        && !allowed.contains(&fitted)
    {
        let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        return Err(ToolFailure::argument(format!(
            "`{name}` must be one of {}, not `{text}`",
            words.join(", ")
        )));
    }
    Ok(fitted)
}

/// A time limit. It can't be 0: the job would be stopped at once.
pub fn limit(name: &str, seconds: Option<u64>) -> Result<Option<Duration>, ToolFailure> {
    match seconds {
        Some(0) => Err(ToolFailure::argument(format!("`{name}` must be greater than 0"))),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

/// The number, if it is a whole one from 0 on; 5.0 is one too.
fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
        Some(float as u64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fitted(schema: Value, value: Value) -> Result<Value, String> {
        fit("x", &schema, value).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn what_is_clear_is_taken_and_what_is_not_is_named() {
        let integer = || json!({ "type": "integer" });
        assert_eq!(fitted(integer(), json!("50")), Ok(json!(50)));
        assert_eq!(fitted(integer(), json!(50.0)), Ok(json!(50)));
        assert!(fitted(integer(), json!(1.5)).unwrap_err().contains("whole number"));
        assert!(fitted(integer(), json!(-1)).is_err());
        assert!(fitted(integer(), json!("soon")).unwrap_err().contains("`x` must be integer"));
        assert_eq!(fitted(json!({ "type": "boolean" }), json!("true")), Ok(json!(true)));
        assert_eq!(fitted(json!({ "type": "array" }), json!("web")), Ok(json!(["web"])));
        assert_eq!(fitted(json!({ "type": "object" }), json!({ "PORT": 1 })), Ok(json!({ "PORT": "1" })));
        let choice = json!({ "type": "string", "enum": ["exit", "ready"] });
        assert!(fitted(choice, json!("end")).unwrap_err().contains("exit, ready"));
        assert!(fitted(json!({ "type": "string" }), json!(3)).unwrap_err().contains("`x` must be string"));
    }

    #[test]
    fn a_time_limit_of_nothing_is_refused() {
        assert_eq!(limit("x", None).unwrap(), None);
        assert_eq!(limit("x", Some(2)).unwrap(), Some(Duration::from_secs(2)));
        assert!(format!("{:?}", limit("x", Some(0)).unwrap_err()).contains("`x` must be greater than 0"));
    }
}
