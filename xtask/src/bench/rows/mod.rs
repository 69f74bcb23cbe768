//! The rows of the table.

mod idle;
mod many;
mod output;
mod raw;
mod run;
mod start;
mod stop;
mod wait;

use super::bench_env::BenchEnv;
use super::row::Row;

/// Makes rows that share an environment.
pub type Make = for<'a, 'p> fn(&'a BenchEnv<'p>) -> Result<Vec<Row<'a>>, String>;

/// All, in the order of the table.
pub const ALL: &[(&str, Make)] = &[
    ("run", run::rows),
    ("start", start::rows),
    ("stop-1", stop::one),
    ("stop-100", stop::hundred),
    ("stop-1000", stop::thousand),
    ("stop-10000", stop::ten_thousand),
    ("stop-1000-sessions", stop::sessions),
    ("wait", wait::rows),
    ("idle", idle::rows),
    ("output", output::bulk),
    ("lines", output::lines),
    ("rate", many::rate),
    ("list", many::list),
    ("live", many::live),
];
