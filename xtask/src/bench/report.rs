//! results.json, the table and the plots. The table is made from the JSON alone, so that it can be made again.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{rows, svg};

/// What is known from earlier runs, or nothing.
pub fn load(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("results.json")).unwrap_or_default();
    let known: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    if known.is_object() { known } else { json!({"rows": []}) }
}

/// Puts a row where the one of the same id was, or at the end.
pub fn take(results: &mut Value, row: Value) {
    let Some(rows) = results["rows"].as_array_mut() else { return };
    match rows.iter_mut().find(|known| known["id"] == row["id"]) {
        Some(known) => *known = row,
        None => rows.push(row),
    }
    let place = |row: &Value| {
        let id = row["id"].as_str().unwrap_or_default();
        // `idle-pss` belongs to `idle`; the longest beginning counts.
        let fits = rows::ALL.iter().enumerate().filter(|(_, (name, _))| id.starts_with(name));
        fits.max_by_key(|(_, (name, _))| name.len()).map(|(place, _)| place)
    };
    rows.sort_by_key(place);
}

/// Writes all files.
pub fn write(out: &Path, results: &Value) -> Result<(), String> {
    let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
    fs::create_dir_all(out).map_err(|why| failed(out, why))?;
    let put = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(|why| failed(&path, why))
    };
    let text = serde_json::to_string_pretty(&flat(results)).map_err(|why| why.to_string())?;
    put("results.json", &(text + "\n"))?;
    put("README.md", &markdown(results))?;
    for row in array(&results["rows"]) {
        put(&format!("{}.svg", text_of(&row["id"])), &svg::bars(row))?;
    }
    if let Some(plot) = svg::scaling(array(&results["rows"])) {
        put("stop-scaling.svg", &plot)?;
    }
    Ok(())
}

/// Samples as one string each: a thousand lines of numbers are useless in a diff.
fn flat(results: &Value) -> Value {
    let mut results = results.clone();
    for row in results["rows"].as_array_mut().into_iter().flatten() {
        for contender in row["contenders"].as_array_mut().into_iter().flatten() {
            if let Some(samples) = contender["samples"].as_array() {
                let words: Vec<String> =
                    samples.iter().filter_map(Value::as_f64).map(|figure| format!("{figure:.4}")).collect();
                contender["samples"] = json!(words.join(" "));
            }
        }
    }
    results
}

pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A figure with three digits that count.
pub fn figure(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn markdown(results: &Value) -> String {
    let (mut text, host) = (String::new(), &results["host"]);
    let _ = write!(
        text,
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`, which you can run yourself; `cargo xtask help` has its options. Every round runs each \
         contender\nonce, in changing order, so that a busy moment falls on all of them; the first round is thrown away. \
         Ratios are of medians in\none run: look at those, not at the milliseconds. The plots show the median, and a line \
         from the minimum to the 95th\npercentile. All samples are in [results.json](results.json).\n\n\
         Up to {} rounds (fewer where each takes long: each table says how many) on {}, commit {}: Linux {}, {} × {}, {}, as {}.\n",
        most_rounds(results),
        text_of(&host["date"]),
        text_of(&host["commit"]),
        text_of(&host["kernel"]),
        host["cores"],
        text_of(&host["cpu"]),
        text_of(&host["memory"]),
        text_of(&host["user"]),
    );
    summary(&mut text, results);
    for row in array(&results["rows"]) {
        section(&mut text, row);
    }
    let _ = write!(text, "\n## Peers\n\n| | |\n|---|---|\n");
    for peer in array(&results["peers"]) {
        let word = peer["missing"].as_str().map(|why| format!("missing: {why}"));
        let word = word.unwrap_or_else(|| text_of(&peer["version"]).to_owned());
        let _ = writeln!(text, "| {} | {} |", text_of(&peer["name"]), cell(&word));
    }
    text
}

fn most_rounds(results: &Value) -> u64 {
    let contenders = array(&results["rows"]).iter().flat_map(|row| array(&row["contenders"]));
    contenders.filter_map(|contender| contender["rounds"].as_u64()).max().unwrap_or(0)
}

/// What stands between two bars of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn median(row: &Value, name: &str) -> Option<f64> {
    let found = array(&row["contenders"]).iter().find(|contender| text_of(&contender["name"]) == name);
    found?["median"].as_f64()
}

/// How one of quell's figures stands to one bar.
fn judged(row: &Value, bar: &Value, own: f64) -> Option<(String, String, bool)> {
    let most = bar["most"].as_f64()?;
    match bar["of"].as_str() {
        Some(of) => {
            let ratio = own / median(row, of)?;
            Some((format!("≤ {} × {of}", figure(most)), format!("{} ×", figure(ratio)), ratio <= most))
        }
        None => {
            let unit = text_of(&row["unit"]);
            Some((format!("≤ {} {unit}", figure(most)), format!("{} {unit}", figure(own)), own <= most))
        }
    }
}

fn summary(text: &mut String, results: &Value) {
    let _ =
        write!(text, "\n## The bars\n\n| work | quell | median | is | bar | |\n|---|---|---|---|---|---|\n");
    for row in array(&results["rows"]) {
        for own in array(&row["contenders"]).iter().filter(|contender| contender["ours"] == true) {
            let Some(median) = own["median"].as_f64() else {
                let (title, why) = (cell(text_of(&row["title"])), cell(text_of(&own["missing"])));
                let name = text_of(&own["name"]);
                let _ = writeln!(text, "| {title} | `{name}` | none: {why} | | | **not met** |");
                continue;
            };
            for bar in array(&row["bars"]) {
                let aim = bar["only_aim"] == true;
                let Some((bar, is, met)) = judged(row, bar, median) else { continue };
                let _ = writeln!(
                    text,
                    "| {} | `{}` | {} {} | {is} | {bar} | {} |",
                    cell(text_of(&row["title"])),
                    text_of(&own["name"]),
                    figure(median),
                    text_of(&row["unit"]),
                    match (met, aim) {
                        (true, false) => "met",
                        (false, false) => "**not met**",
                        (true, true) => "aim met",
                        (false, true) => "aim not met",
                    }
                );
            }
        }
    }
}

fn section(text: &mut String, row: &Value) {
    let (id, unit) = (text_of(&row["id"]), text_of(&row["unit"]));
    let _ = write!(text, "\n## {}\n\n![{id}]({id}.svg)\n\n", text_of(&row["title"]));
    let bars = array(&row["bars"]);
    let of = bars.first().and_then(|bar| bar["of"].as_str());
    // Without a bar, the first one that has a figure is the measure.
    let first = array(&row["contenders"]).iter().find(|contender| contender["median"].is_f64());
    let of = of.filter(|of| median(row, of).is_some()).or(first.map(|first| text_of(&first["name"])));
    let against = of.unwrap_or_default();
    let base = median(row, against);
    for bar in bars {
        let aim = bar["aim"].as_f64().map(|aim| format!(", aim {}", figure(aim))).unwrap_or_default();
        let most = figure(bar["most"].as_f64().unwrap_or_default());
        let of = bar["of"].as_str().map_or_else(|| format!(" {unit}"), |of| format!(" × {of}"));
        let word = if bar["only_aim"] == true { "Aim" } else { "Bar" };
        let _ = writeln!(text, "{word}: at most {most}{of}{aim}.");
    }
    let _ = write!(
        text,
        "\n| | median {unit} | min | p95 | × {against} | rounds | what it does and doesn't |\n|---|--:|--:|--:|--:|--:|---|\n"
    );
    for contender in array(&row["contenders"]) {
        let name = match contender["ours"] == true {
            true => format!("**{}**", text_of(&contender["name"])),
            false => text_of(&contender["name"]).to_owned(),
        };
        let word = cell(text_of(&contender["word"]));
        if let Some(why) = contender["missing"].as_str() {
            let _ = writeln!(text, "| {name} | missing | | | | | {} |", cell(why));
            continue;
        }
        let number = |key: &str| contender[key].as_f64();
        let shown = |key: &str| number(key).map(figure).unwrap_or_default();
        let ratio = number("median").zip(base).filter(|(_, base)| *base > 0.0);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {word} |",
            shown("median"),
            shown("min"),
            shown("p95"),
            ratio.map(|(own, base)| figure(own / base)).unwrap_or_default(),
            contender["rounds"],
        );
    }
}
