//! `quell stats`: sums over the finished jobs.

use std::process::ExitCode;
use std::time::Duration;

use quell::binary::QuellInternals;
use quell::{Bucket, Error, Period, Spread, Stats, StatsFilter, TagSums};

use super::{Admitted, envelope, fail, job_selection};
use crate::args::{ByArg, StatsArgs};
use crate::output;
use crate::render::{self, Cell, Chart, Reader, Style, Table, fields};

/// Prints the sums.
pub fn stats(admitted: Admitted, args: &StatsArgs) -> ExitCode {
    match sums(admitted, args) {
        Ok(stats) => {
            let text = || describe(&stats, args.chart || render::is_terminal());
            let said = if args.json { envelope("stats", &stats) } else { text() };
            output::painted_to_stdout(&said).unwrap_or(ExitCode::SUCCESS)
        }
        Err(error) => fail("stats", args.json, &error),
    }
}

fn sums(admitted: Admitted, args: &StatsArgs) -> Result<Stats, Error> {
    let filter = StatsFilter {
        since: job_selection::since(args.since),
        tags: job_selection::tags(&args.tag)?,
        period: match args.by {
            ByArg::Auto => Period::Auto,
            ByArg::Hour => Period::Hour,
            ByArg::Day => Period::Day,
            ByArg::Week => Period::Week,
        },
        tag_key: args.by_tag.clone(),
    };
    quell::binary::stats_of(admitted.quell?.home(), &filter)
}

fn describe(stats: &Stats, with_chart: bool) -> String {
    let reader = Reader::of_stdout();
    let head = format!("{} ended\n", render::count(stats.jobs, "job has", "jobs have"));
    let mut rows = if stats.jobs == 0 { Vec::new() } else { about_jobs(stats) };
    if let Some(refusals) = stats.refusals.filter(|refusals| *refusals > 0 || stats.jobs > 0) {
        rows.push(("refusals", Cell::from(refusals.to_string() + &by_code(stats))));
    }
    let mut text = head + &fields(&rows, reader);
    if !stats.by_tag.is_empty() {
        text += &format!("\n{}", by_tag(stats, reader));
    }
    if with_chart && !stats.over_time.is_empty() {
        text += &format!("\n{}", over_time(stats, reader));
    }
    text
}

fn by_code(stats: &Stats) -> String {
    let code = |(code, count): (&String, &u64)| format!("{count} {code}");
    let codes: Vec<String> = stats.refusals_by_code.iter().map(code).collect();
    if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) }
}

fn about_jobs(stats: &Stats) -> Vec<(&'static str, Cell)> {
    let exits = stats.exits;
    let mut rows: Vec<(&'static str, Cell)> = Vec::new();
    let mut row = |label, value: String| rows.push((label, Cell::from(value)));
    let ends = [
        (exits.ok, "with 0"),
        (exits.failed, "with another code"),
        (exits.signaled, "by a signal"),
        (exits.not_started, "never ran"),
        (exits.unknown, "unknown"),
    ];
    let ends: Vec<String> =
        ends.iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{count} {how}")).collect();
    row("exits", ends.join(", "));
    let causes: Vec<String> =
        stats.by_cause.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    row("causes", causes.join(", "));
    row("timeouts", stats.timeouts.to_string());
    row("stopped", stats.stopped.to_string());
    let rate = stats.kill_rate.map(|rate| {
        let (killed, asked) = (stats.asked_killed, stats.asked);
        format!(
            ": {killed} of {} did not exit within the grace ({})",
            render::count(asked, "job", "jobs"),
            percent(rate)
        )
    });
    row("killed", format!("{}{}", stats.killed, rate.unwrap_or_default()));
    row("leaks", stats.leaks.to_string());
    row("not proven", stats.not_proven.to_string());
    let spread = |spread: Spread| {
        let [median, p90, max] = [spread.median, spread.p90, spread.max].map(render::seconds);
        format!("half within {median}, 9 in 10 within {p90}, longest {max}")
    };
    if let Some(grace) = stats.grace_used {
        row("time to exit", spread(grace));
    }
    if let Some(duration) = stats.duration {
        row("duration", spread(duration));
    }
    if let Some(share) = stats.grace_share {
        let [half, most] = [share.median, share.p90].map(percent);
        row("grace used", format!("half used {half} or less, 9 in 10 used {most} or less"));
    }
    rows
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn by_tag(stats: &Stats, reader: Reader) -> String {
    // The label comes last, because it may be too long.
    let headings = ["JOBS", "TIMEOUTS", "KILLED", "LEAKS", "NOT PROVEN", "GRACE", "LABEL"];
    let mut table = Table::new(headings, &[0, 1, 2, 3, 4, 5]);
    for TagSums { key, value, sums } in &stats.by_tag {
        let bad =
            |count: u64| Cell::new(count.to_string(), if count == 0 { Style::Plain } else { Style::Bad });
        let grace = match (sums.grace_used, sums.grace_given) {
            (Some(used), Some(given)) => format!("{} of {}", render::seconds(used), render::seconds(given)),
            _ => "-".to_owned(),
        };
        table.row([
            sums.jobs.to_string().into(),
            bad(sums.timeouts),
            bad(sums.killed),
            bad(sums.leaks),
            bad(sums.not_proven),
            grace.into(),
            format!("{key}={value}").into(),
        ]);
    }
    let more = match stats.by_tag_omitted {
        0 => String::new(),
        more => format!("and {}\n", render::count(more, "other label", "other labels")),
    };
    table.lines(reader) + &more
}

fn over_time(stats: &Stats, reader: Reader) -> String {
    let buckets = &stats.over_time;
    let measure = |label, style, value: fn(&Bucket) -> u64| {
        (label, style, buckets.iter().map(value).collect::<Vec<u64>>())
    };
    let mut measures = vec![
        measure("jobs", Style::Plain, |bucket| bucket.sums.jobs),
        measure("timeouts", Style::Busy, |bucket| bucket.sums.timeouts),
        measure("killed", Style::Bad, |bucket| bucket.sums.killed),
        measure("leaks", Style::Bad, |bucket| bucket.sums.leaks),
    ];
    if stats.refusals.is_some() {
        measures.push(measure("refusals", Style::Busy, |bucket| bucket.refusals.unwrap_or(0)));
    }
    // To the minute: no period is shorter.
    let times = buckets.iter().map(|bucket| bucket.start.get(..16).unwrap_or(&bucket.start)).collect();
    let (lines, each) = Chart { measures, times }.lines(reader, render::speaks_utf8());
    let seconds = buckets.first().map_or(0, |bucket| bucket.seconds).saturating_mul(each as u64);
    let width = render::rough(Duration::from_secs(seconds));
    let omitted = match stats.over_time_omitted {
        0 => String::new(),
        _ => format!(", the last {}", buckets.len().div_ceil(each)),
    };
    format!("over time (UTC), a column is {width}{omitted}\n{lines}")
}
