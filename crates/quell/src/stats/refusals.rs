//! What the guard has refused, from its log.

use std::time::SystemTime;

use quell_store::Home;

use crate::Result;
use crate::index::ms_of;
use quell_guard::{Kind, audit_log};

/// Nothing was refused: there was nothing to act on.
const NOT_FOUND: [&str; 2] = ["no_such_process", "no_such_service"];

/// One refusal.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// In milliseconds since 1970.
    pub at: i64,
    /// The code of the decision.
    pub code: String,
}

/// The refusals since then. Lines that can't be read are skipped.
pub(super) fn refusals(home: &Home, since: Option<SystemTime>) -> Result<Vec<Refusal>> {
    let since = since.map_or(i64::MIN, ms_of);
    let lines = audit_log(home)?.into_iter();
    let refused = lines.filter(|line| line.kind == Kind::Decision && !line.decision.allowed);
    let dated = refused.map(|line| Refusal { at: line.at.unix_ms(), code: line.decision.code.to_string() });
    let counts = |refusal: &Refusal| refusal.at >= since && !NOT_FOUND.contains(&refusal.code.as_str());
    Ok(dated.filter(counts).collect())
}
