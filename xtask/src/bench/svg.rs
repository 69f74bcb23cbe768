//! Plots, as text.

use std::fmt::Write;

use serde_json::Value;

use super::report::{array, figure, text_of};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 70.0;
const LINE: f64 = 26.0;
const TOP: f64 = 40.0;
const OWN: &str = "#c2410c";
const OTHER: &str = "#64748b";

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('`', "")
}

/// A scale by powers of ten between two figures, onto `from..to`.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn over(figures: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let logs = figures.filter(|figure| *figure > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| (low.min(log), high.max(log)));
        if low > high {
            return Self { low: 0.0, high: 1.0, from, to };
        }
        let low = low.floor();
        Self { low, high: high.ceil().max(low + 1.0), from, to }
    }

    fn at(&self, figure: f64) -> f64 {
        let log = if figure > 0.0 { figure.log10() } else { self.low };
        self.from + (log - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

fn power(figure: f64) -> String {
    if figure >= 1.0 { format!("{figure:.0}") } else { format!("{figure}") }
}

/// One row: a bar for each median, a line from the minimum to the 95th percentile.
pub fn bars(row: &Value) -> String {
    let contenders: Vec<&Value> =
        array(&row["contenders"]).iter().filter(|contender| contender["median"].is_f64()).collect();
    let height = TOP + LINE * contenders.len() as f64 + 30.0;
    let mut text = open(height, &format!("{} ({})", text_of(&row["title"]), text_of(&row["unit"])));
    let figures = contenders.iter().flat_map(|one| ["min", "median", "p95"].map(|key| one[key].as_f64()));
    let scale = Scale::over(figures.flatten(), LEFT, WIDTH - RIGHT);
    let bottom = height - 26.0;
    upright(&mut text, &scale, bottom);
    for (place, contender) in contenders.iter().enumerate() {
        let y = TOP + LINE * place as f64;
        let value = |key: &str| contender[key].as_f64().unwrap_or_default();
        let (median, low, high) = (scale.at(value("median")), scale.at(value("min")), scale.at(value("p95")));
        let colour = if contender["ours"] == true { OWN } else { OTHER };
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <line x1=\"{low:.1}\" y1=\"{mid}\" x2=\"{high:.1}\" y2=\"{mid}\" stroke=\"#111\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8.0,
            y + 16.0,
            escaped(text_of(&contender["name"])),
            y + 4.0,
            (median - LEFT).max(1.0),
            median.max(high) + 6.0,
            y + 16.0,
            figure(value("median")),
            mid = y + 12.0,
        );
    }
    text + "</svg>\n"
}

/// A name, whether it is ours, and its points.
type Line = (String, bool, Vec<(f64, f64)>);

/// Stops of 1 to 10,000 processes: a straight line at 45 degrees is linear.
pub fn scaling(rows: &[Value]) -> Option<String> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(count) = text_of(&row["id"]).strip_prefix("stop-").and_then(|text| text.parse().ok()) else {
            continue;
        };
        for contender in array(&row["contenders"]) {
            let Some(median) = contender["median"].as_f64() else { continue };
            let name = text_of(&contender["name"]);
            match lines.iter_mut().find(|(known, _, _)| known == name) {
                Some((_, _, points)) => points.push((count, median)),
                None => lines.push((name.to_owned(), contender["ours"] == true, vec![(count, median)])),
            }
        }
    }
    lines.retain(|(_, _, points)| points.len() > 1);
    let points = || lines.iter().flat_map(|(_, _, points)| points);
    points().next()?;
    let (height, bottom) = (420.0, 380.0);
    let mut text = open(height, "stop request → verified zero (ms) by number of processes");
    let across = Scale::over(points().map(|point| point.0), 60.0, WIDTH - 190.0);
    let up = Scale::over(points().map(|point| point.1), bottom, TOP);
    upright(&mut text, &across, bottom);
    for mark in up.marks() {
        let y = up.at(mark);
        let _ = writeln!(
            text,
            "<line x1=\"60\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"54\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            WIDTH - 190.0,
            y + 4.0,
            power(mark)
        );
    }
    let mut labels: Vec<(f64, &str, &str)> = Vec::new();
    for (name, ours, points) in &lines {
        let colour = if *ours { OWN } else { OTHER };
        let path: Vec<String> =
            points.iter().map(|(count, ms)| format!("{:.1},{:.1}", across.at(*count), up.at(*ms))).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        labels.push((points.last().map_or(TOP, |(_, ms)| up.at(*ms)), name, colour));
    }
    // Names that would lie on each other are moved apart.
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = TOP;
    for (y, name, colour) in labels {
        let y = y.max(free);
        free = y + 15.0;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            WIDTH - 182.0,
            y + 4.0,
            escaped(name)
        );
    }
    Some(text + "</svg>\n")
}

/// A line at each mark of what goes from left to right, and what it stands for below.
fn upright(text: &mut String, scale: &Scale, bottom: f64) {
    for mark in scale.marks() {
        let x = scale.at(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
            bottom + 17.0,
            power(mark)
        );
    }
}
