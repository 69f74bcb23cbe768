//! `GET /metrics`.

use crate::state::State;

/// The metrics in Prometheus' text format.
pub fn text(_: &State) -> String {
    format!(
        "# HELP quell_build_info The version that runs.\n# TYPE quell_build_info gauge\nquell_build_info{{version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    )
}
