//! What a row of the table of routes has.

use std::pin::Pin;

use quell_guard::Verb;

use crate::TokenRole;
use crate::call::{HttpCall, Reply};
use crate::query::Param;

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    Get,
    Post,
    Delete,
}

/// Which callers a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Any program on this host.
    Anyone,
    /// Callers with this role, or one that includes it.
    Role(TokenRole),
}

/// What a route reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    None,
    /// JSON of this type.
    Json(&'static str),
    Bytes,
}

/// Which threads carry a call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    Reads,
    Asks,
    Changes,
}

/// Carries out a call.
pub type Act = fn(HttpCall) -> Pin<Box<dyn Future<Output = Reply> + Send>>;

/// One row of the table.
#[cfg_attr(not(feature = "schema"), allow(dead_code, reason = "the document is made from all of it"))]
#[derive(Debug)]
pub struct Route {
    pub method: Verbs,
    pub path: &'static str,
    /// What the guard is asked for.
    pub verb: Option<Verb>,
    pub who: Who,
    pub query: &'static [Param],
    pub body: BodyKind,
    pub pool: Pool,
    /// The `type` of its envelope.
    pub kind: &'static str,
    /// The statuses of its answers that are not errors, each with the type of its data; `""` for what is not JSON.
    pub answers: &'static [(u16, &'static str)],
    /// The statuses of errors that are its own, in addition to those that follow from the rest of the row.
    pub errors: &'static [u16],
    pub about: &'static str,
    pub act: Act,
}
