//! Metrics as OpenMetrics text, for figures that are read at each scrape. A registry would keep a set of labels for each
//! worker.

use std::fmt::Write as _;

/// Lines of one metric, which differ in the value of a label.
#[derive(Clone, Copy, Debug)]
pub struct MetricFamily {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    /// What follows the name in each line.
    suffix: &'static str,
}

impl MetricFamily {
    /// A number that rises and falls. The name is whole, such as `windlass_nix_machines`; the help for people has no full
    /// stop.
    pub const fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: "gauge", suffix: "" }
    }

    /// A number that only rises until the server starts again. The name has no `_total`; its lines have.
    pub const fn counter(name: &'static str, help: &'static str) -> MetricFamily {
        MetricFamily { name, help, kind: "counter", suffix: "_total" }
    }

    /// Writes a line for each value of the label.
    pub fn write<'a>(
        &self,
        text: &mut String,
        label: &str,
        samples: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        self.write_head(text);
        for (label_value, value) in samples {
            // Writing to a string does not fail.
            _ = write!(text, "{}{}{{{label}=\"", self.name, self.suffix);
            escape(text, label_value);
            _ = writeln!(text, "\"}} {value}");
        }
    }

    /// Writes the one line of a metric without a label.
    pub fn write_one(&self, text: &mut String, value: f64) {
        self.write_head(text);
        _ = writeln!(text, "{}{} {value}", self.name, self.suffix);
    }

    fn write_head(&self, text: &mut String) {
        _ = writeln!(text, "# HELP {0} {1}.\n# TYPE {0} {2}", self.name, self.help, self.kind);
    }
}

fn escape(text: &mut String, label: &str) {
    for letter in label.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_a_suffix_and_no_label_breaks_the_text() {
        let mut text = String::new();
        let samples = [("a", 2.0), ("b\"} 1\n\\", 0.5)];
        MetricFamily::counter("windlass_tries", "Tries").write(&mut text, "answer", samples);
        MetricFamily::gauge("windlass_machines", "Machines").write_one(&mut text, 7.0);
        let expected = "# HELP windlass_tries Tries.\n# TYPE windlass_tries counter\n\
            windlass_tries_total{answer=\"a\"} 2\nwindlass_tries_total{answer=\"b\\\"} 1\\n\\\\\"} 0.5\n\
            # HELP windlass_machines Machines.\n# TYPE windlass_machines gauge\nwindlass_machines 7\n";
        assert_eq!(text, expected);
    }
}
