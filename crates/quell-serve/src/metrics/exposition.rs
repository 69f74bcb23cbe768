//! The text that Prometheus reads, in its classic form or as OpenMetrics.

use std::fmt::Write;

/// What the values of a family mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How often values were at most so large.
    Histogram,
}

impl MetricKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The form of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `text/plain; version=0.0.4`, which every Prometheus reads.
    #[default]
    Classic,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl Format {
    /// The form that a client with this `Accept` header gets.
    pub fn accepted(header: &str) -> Self {
        let wants = header.split(',').any(|part| {
            let mut words = part.split(';').map(str::trim);
            words.next() == Some("application/openmetrics-text")
                && !words.any(|word| word.starts_with("q=0.0") || word == "q=0")
        });
        if wants { Self::OpenMetrics } else { Self::Classic }
    }

    /// The type of the text.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The text as it is written: first a family, then its series.
#[derive(Debug)]
pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    /// An empty text.
    pub fn new(format: Format) -> Self {
        Self { format, text: String::new() }
    }

    /// Begins a family. The series that follow belong to it.
    pub fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        // OpenMetrics names a family of counters without the suffix that each of its series has.
        let name = match (self.format, kind) {
            (Format::OpenMetrics, MetricKind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
    }

    /// One value. `series` is the name with its labels: see [`series`].
    pub fn value(&mut self, series: &str, value: impl Into<f64>) {
        let _ = writeln!(self.text, "{series} {}", value.into());
    }

    /// One count.
    pub fn count(&mut self, series: &str, value: u64) {
        let _ = writeln!(self.text, "{series} {value}");
    }

    /// One histogram: the counts of values up to each of `bounds` (and, last, of all others), and the sum of the values.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let mut total = 0;
        let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            total += count;
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.count(&series(&format!("{name}_bucket"), &labels), total);
        }
        self.value(&series(&format!("{name}_sum"), labels), sum);
        self.count(&series(&format!("{name}_count"), labels), total);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text += "# EOF\n";
        }
        self.text
    }
}

/// A name with its labels, as it stands before a value.
pub fn series(name: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return name.to_owned();
    }
    let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    format!("{name}{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_may_hold_any_text() {
        assert_eq!(series("a_total", &[]), "a_total");
        assert_eq!(series("a_total", &[("k", "x\"y\\z\n"), ("l", "")]), r#"a_total{k="x\"y\\z\n",l=""}"#);
    }

    #[test]
    fn a_bucket_counts_all_smaller_values_too() {
        let mut text = Exposition::new(Format::Classic);
        text.histogram("d", &[("e", "no")], &[0.5, 2.0], &[1, 0, 4], 7.25);
        let expected = "d_bucket{e=\"no\",le=\"0.5\"} 1\nd_bucket{e=\"no\",le=\"2\"} 1\nd_bucket{e=\"no\",le=\"+Inf\"} 5\n\
                        d_sum{e=\"no\"} 7.25\nd_count{e=\"no\"} 5\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn open_metrics_names_a_counter_without_its_suffix_and_has_an_end() {
        let written = |format| {
            let mut text = Exposition::new(format);
            text.family("a_total", MetricKind::Counter, "Help.");
            text.count("a_total", 3);
            text.finish()
        };
        assert_eq!(written(Format::Classic), "# HELP a_total Help.\n# TYPE a_total counter\na_total 3\n");
        assert_eq!(written(Format::OpenMetrics), "# HELP a Help.\n# TYPE a counter\na_total 3\n# EOF\n");
    }

    #[test]
    fn open_metrics_is_given_only_where_it_is_accepted() {
        for (header, format) in [
            ("", Format::Classic),
            ("*/*", Format::Classic),
            ("text/plain;version=0.0.4", Format::Classic),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", Format::OpenMetrics),
            ("text/plain, application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Classic),
        ] {
            assert_eq!(Format::accepted(header), format, "{header}");
        }
    }
}
