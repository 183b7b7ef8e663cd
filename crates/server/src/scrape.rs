//! The text of `/metrics` where a process has engines of several shards.
//!
//! - Each engine counts in a registry of its own. Their samples get the label `shard`, so that sums over servers count
//!   nothing twice: a shard has one engine.
//! - The samples of a metric stand together, because OpenMetrics wants that. All registries have the same metrics.
//! - What is the process's and no shard's has no label, and is told once.
//! - A farm that is not divided has one engine and one registry, whose text is told as it is.

use std::collections::BTreeMap;
use windlass_core::ids::ShardId;

/// Metrics of the process. A registry of another shard than the process's own has them at 0.
const OF_THE_PROCESS: [&str; 5] = [
    "windlass_board_sessions",
    "windlass_store_free_bytes",
    "windlass_refusals",
    "windlass_audit_lost",
    "windlass_requests_passed",
];
/// The end of every OpenMetrics text.
pub const LAST_LINE: &str = "# EOF\n";

/// A text that is made of several.
#[derive(Default)]
pub struct Scrape {
    /// The names of metrics, in the order in which they were told first.
    order: Vec<String>,
    metrics: BTreeMap<String, Metric>,
}

#[derive(Default)]
struct Metric {
    /// Type, unit and help.
    head: String,
    samples: String,
}

/// Whose samples a text has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A gateway, which has metrics of its own. They have no label.
    Gateway,
    /// The process. What it has of an engine is left out.
    Process,
    /// The engine of a shard. What is the process's is left out.
    Shard(ShardId),
    /// The engine of a shard, in the registry that has what is the process's, too.
    ShardAndProcess(ShardId),
}

impl Origin {
    /// The label of a metric's samples; `None` if they are left out.
    fn label(self, metric: &str) -> Option<String> {
        let is_of_process = OF_THE_PROCESS.contains(&metric);
        match (self, is_of_process) {
            (Origin::Gateway, _) | (Origin::Process | Origin::ShardAndProcess(_), true) => {
                Some(String::new())
            }
            (Origin::Shard(shard) | Origin::ShardAndProcess(shard), false) => {
                Some(format!("shard=\"{shard}\""))
            }
            (Origin::Process, false) | (Origin::Shard(_), true) => None,
        }
    }
}

impl Scrape {
    /// Adds a text.
    pub fn add(&mut self, text: &str, origin: Origin) {
        let (mut name, mut label) = (String::new(), None);
        for line in text.lines().filter(|line| *line != LAST_LINE.trim_end()) {
            if let Some(about) = line.strip_prefix("# ") {
                let told = about.split(' ').nth(1).unwrap_or_default();
                if told != name {
                    name = told.to_owned();
                    label = origin.label(&name);
                    if !self.metrics.contains_key(&name) {
                        self.order.push(name.clone());
                        self.metrics.insert(name.clone(), Metric::default());
                    }
                }
                let Some(metric) = self.metrics.get_mut(&name) else { continue };
                if !metric.head.lines().any(|known| known == line) {
                    metric.head.push_str(line);
                    metric.head.push('\n');
                }
            } else if let (Some(label), Some(metric)) = (&label, self.metrics.get_mut(&name)) {
                push_sample(&mut metric.samples, line, label);
            }
        }
    }

    /// The whole text, with its end.
    pub fn finish(self) -> String {
        let mut text = String::new();
        for name in &self.order {
            if let Some(Metric { head, samples }) = self.metrics.get(name) {
                text.push_str(head);
                text.push_str(samples);
            }
        }
        text + LAST_LINE
    }
}

/// Adds a line with one more label. No name of a metric has a brace or a space.
fn push_sample(samples: &mut String, line: &str, label: &str) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    samples.push_str(name);
    match rest.strip_prefix('{') {
        _ if label.is_empty() => samples.push_str(rest),
        Some(labels) if labels.starts_with('}') => {
            samples.push_str(&format!("{{{label}"));
            samples.push_str(labels);
        }
        Some(labels) => {
            samples.push_str(&format!("{{{label},"));
            samples.push_str(labels);
        }
        None => {
            samples.push_str(&format!("{{{label}}}"));
            samples.push_str(rest);
        }
    }
    samples.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    const TEXT: &str = "# HELP windlass_tasks Tasks.\n# TYPE windlass_tasks gauge\nwindlass_tasks{state=\"ready\"} 3\n\
                        # HELP windlass_refusals Refused.\n# TYPE windlass_refusals counter\nwindlass_refusals_total 5\n\
                        # HELP windlass_stranded_cores Idle.\n# TYPE windlass_stranded_cores gauge\n\
                        windlass_stranded_cores 1.5\n# EOF\n";

    fn scrape(parts: &[(&str, Origin)]) -> String {
        let mut scrape = Scrape::default();
        parts.iter().for_each(|(text, origin)| scrape.add(text, *origin));
        scrape.finish()
    }

    #[test]
    fn a_text_without_labels_is_told_as_it_is() {
        assert_eq!(scrape(&[(TEXT, Origin::Gateway)]), TEXT);
        let own = Metrics::new().encode(None, None, 0);
        assert_eq!(scrape(&[(&own, Origin::Gateway)]), own);
    }

    #[test]
    fn samples_of_shards_stand_together_each_with_its_label() {
        let parts = [(TEXT, Origin::ShardAndProcess(ShardId(1))), (TEXT, Origin::Shard(ShardId(4)))];
        let lines = scrape(&parts);
        let samples: Vec<&str> = lines.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "windlass_tasks{shard=\"1\",state=\"ready\"} 3",
            "windlass_tasks{shard=\"4\",state=\"ready\"} 3",
            "windlass_refusals_total 5",
            "windlass_stranded_cores{shard=\"1\"} 1.5",
            "windlass_stranded_cores{shard=\"4\"} 1.5",
        ];
        assert_eq!(samples, expected);
        assert_eq!(lines.matches("# TYPE windlass_tasks gauge").count(), 1);
        assert!(lines.ends_with(LAST_LINE) && lines.matches("# EOF").count() == 1);
    }

    #[test]
    fn a_server_that_stands_by_tells_what_is_its_own_and_the_shards_that_it_runs() {
        let lines = scrape(&[(TEXT, Origin::Process), (TEXT, Origin::Shard(ShardId(2)))]);
        assert!(!lines.contains("windlass_tasks{state") && lines.contains("windlass_tasks{shard=\"2\""));
        assert_eq!(lines.matches("windlass_refusals_total").count(), 1);
    }

    #[test]
    fn what_is_the_processs_is_in_every_registry() {
        let text = Metrics::new().encode(None, Some(1), 0);
        for name in OF_THE_PROCESS {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
}
