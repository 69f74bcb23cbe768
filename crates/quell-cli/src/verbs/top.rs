//! `quell top`: all jobs, live in the terminal, or as one table.

use std::process::ExitCode;

use quell::{AttentionRules, Error, Filter, StateLook, StateWords};
use quell_top::{Closed, JobRow};

use super::{Admitted, envelope, fail};
use crate::args::TopArgs;
use crate::output;
use crate::render::{Cell, Reader, Style, Table};

/// Shows them.
pub fn top(admitted: Admitted, args: &TopArgs) -> ExitCode {
    show(admitted, args).unwrap_or_else(|error| fail("top", args.json, &error))
}

fn show(admitted: Admitted, args: &TopArgs) -> Result<ExitCode, Error> {
    let quell = admitted.quell?;
    // With settings that can't be read, jobs can still be looked at.
    let rules =
        admitted.settings.map_or_else(|_| AttentionRules::default(), |loaded| loaded.config.attention);
    if args.json {
        let listing = quell.list(&Filter::default())?;
        return Ok(output::to_stdout(&envelope("list", &listing)).unwrap_or(ExitCode::SUCCESS));
    }
    if !quell_top::has_screen() {
        let table = table(&quell_top::rows(&quell, &rules)?);
        return Ok(output::painted_to_stdout(&table).unwrap_or(ExitCode::SUCCESS));
    }
    match quell_top::run(&quell, rules) {
        Ok(Closed::ByUser) => Ok(ExitCode::SUCCESS),
        Ok(Closed::BySignal(signal)) => {
            quell::binary::exit_by_signal(signal);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Error::Io { path: "terminal".into(), error }),
    }
}

fn table(rows: &[JobRow]) -> String {
    let now = quell::binary::now();
    let headings = ["NAME", "STATE", "PROCS", "AGE", "CPU", "MEM", "OUT", "NOTE"];
    let mut table = Table::new(headings, &[2, 3, 4, 5, 6]);
    for row in rows {
        table.row([
            row.name().into(),
            Cell::new(row.state(now), style(row)),
            row.processes().into(),
            row.age(now).into(),
            row.cpu().into(),
            row.memory().into(),
            row.output_age().into(),
            Cell::new(row.note(), if row.attention.is_some() { Style::Bold } else { Style::Plain }),
        ]);
    }
    table.lines(Reader::of_stdout())
}

fn style(row: &JobRow) -> Style {
    match StateWords::of(&row.view).look {
        StateLook::Running | StateLook::Ready => Style::Good,
        StateLook::Starting | StateLook::Stopping | StateLook::Waiting | StateLook::RootExited => Style::Busy,
        StateLook::Succeeded | StateLook::Stopped => Style::Faint,
        _ => Style::Bad,
    }
}
