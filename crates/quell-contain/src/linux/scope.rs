//! stub
use std::time::Duration;
pub(crate) struct ScopeRequest<'a> {
    pub unit: &'a str,
    pub description: &'a str,
    pub pid: u32,
    pub memory_max: Option<u64>,
    pub tasks_max: Option<u64>,
    pub cpu_cores: Option<f64>,
}
pub(crate) fn probe(_: Duration) -> Result<(), String> {
    Err("none".into())
}
pub(crate) fn start(_: &ScopeRequest, _: Duration) -> Result<String, String> {
    Err("none".into())
}
