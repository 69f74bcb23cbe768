//! The files of a job's record.

use std::time::Instant;

use quell_core::{JobEvent, JobSpec, Receipt, StateRecord, StopPlan, account};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads `input` as a `T`. What could be read is written and read again, and is the same then.
pub fn round_trip<T: Serialize + DeserializeOwned>(input: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(input).ok()?;
    let once = serde_json::to_string(&value).expect("what was read can be written");
    let again: T = serde_json::from_str(&once).unwrap_or_else(|error| panic!("{error}: {once}"));
    let twice = serde_json::to_string(&again).expect("and written");
    if once != twice {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
        assert!(same(&read(&once), &read(&twice)), "{once}\n{twice}");
    }
    Some(value)
}

/// Whether they are equal, but for the last digit of a fraction, which serde_json does not keep.
fn same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => match (one.as_f64(), two.as_f64()) {
            (Some(one), Some(two)) => (one - two).abs() <= one.abs() * 1e-12,
            _ => one == two,
        },
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().all(|(key, one)| two.get(key).is_some_and(|two| same(one, two)))
        }
        _ => one == two,
    }
}

/// state.jsonl, spec.json, launch.private.json, receipt.json and a line of events.jsonl: the first byte does not choose, since each
/// of them may be in the place of another.
pub fn records(input: &[u8]) {
    round_trip::<StateRecord>(input);
    if let Some(spec) = round_trip::<JobSpec>(input) {
        // The process that finishes the job uses these.
        let StopPlan { grace, brief, verify, .. } = spec.request.stop;
        assert!(Instant::now().checked_add(grace + brief + verify).is_some(), "{:?}", spec.request.stop);
    }
    round_trip::<JobEvent>(input);
    if let Some(receipt) = round_trip::<Receipt>(input) {
        for columns in [None, Some(0), Some(40)] {
            assert!(!account::account(&receipt, columns).is_empty());
        }
    }
}
