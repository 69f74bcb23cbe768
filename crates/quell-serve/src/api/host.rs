//! Statistics, the audit log, the host, the settings, and what the guard would decide.

use quell::binary::QuellInternals;
use quell::binary::responses::{CheckAnswer, ConfigAnswer};
use quell::{Period, StatsFilter};
use quell_guard::{AuditLine, audit_log, decide_verb, read_verb};
use serde::{Deserialize, Serialize};

use crate::call::{HttpCall, Reply, settings};

/// How many lines of the audit log an answer has by default.
const LINES: u64 = 200;

pub async fn stats(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let query = &call.query;
        let filter = StatsFilter {
            since: query.since("since"),
            tags: query.tags("tag"),
            period: match query.text("by") {
                Some("hour") => Period::Hour,
                Some("day") => Period::Day,
                Some("week") => Period::Week,
                _ => Period::Auto,
            },
            tag_key: query.text("by_tag").map(str::to_owned),
        };
        Ok(access.quell.stats(&filter)?)
    })
    .await
}

/// The newest lines of the audit log.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditAnswer {
    /// The lines, oldest first.
    pub lines: Vec<AuditLine>,
}

pub async fn audit(call: HttpCall) -> Reply {
    call.with_access(|call, access| {
        let mut lines = audit_log(access.quell.home()).map_err(quell::Error::from)?;
        let limit = call.query.count("limit").unwrap_or(LINES) as usize;
        lines.drain(..lines.len().saturating_sub(limit));
        Ok(AuditAnswer { lines })
    })
    .await
}

pub async fn doctor(call: HttpCall) -> Reply {
    call.with_access(|_, _| Ok(quell::binary::doctor())).await
}

pub async fn config(call: HttpCall) -> Reply {
    call.with_access(|_, _| Ok(ConfigAnswer::from(&settings()?))).await
}

/// A verb that is asked about.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// The verb, as the command line has it.
    pub verb: String,
}

pub async fn check(call: HttpCall) -> Reply {
    let body: CheckBody = call.json()?;
    call.with_access(move |_, access| {
        let decision = match read_verb(&body.verb) {
            Ok(verb) => decide_verb(&access.config.guard, verb),
            Err(refusal) => *refusal,
        };
        Ok(CheckAnswer { verb: "verb".into(), target: body.verb, decision })
    })
    .await
}
