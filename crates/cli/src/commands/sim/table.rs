//! The results of replays, side by side.

use crate::ui::output::{count, cpus as cpus_in_words};
use crate::ui::table::{Cell, Column, Grid};
use crate::ui::text::wrap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use windlass_sim::swf::{Figures, Spread, Workload};

/// A workload replayed under several settings. Times are seconds unless a field's name has another unit.
#[derive(Serialize, Debug)]
pub struct Replayed {
    trace: String,
    jobs: usize,
    tasks: usize,
    users: usize,
    workers: usize,
    cpus: f64,
    /// From the first submission to the last.
    days: f64,
    left_out: BTreeMap<&'static str, usize>,
    ignored_tags: BTreeMap<String, usize>,
    pub settings: Vec<Outcome>,
}

#[derive(Serialize, Debug)]
pub struct Outcome {
    pub name: String,
    wait_s: Spreading,
    light_wait_s: Spreading,
    user_slowdown: Spreading,
    fairness: Option<f64>,
    short_of_share: Option<f64>,
    utilisation: Option<f64>,
    makespan_h: f64,
    never_started: usize,
    fits_nowhere: usize,
    /// Of what `--estimates` asked: natural logarithms.
    #[serde(skip_serializing_if = "Spreading::is_empty")]
    estimate_error: Spreading,
    without_estimate: usize,
    decisions: usize,
    decisions_per_s: f64,
    took_s: f64,
}

#[derive(Serialize, Debug)]
struct Spreading {
    count: usize,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl From<Spread> for Spreading {
    fn from(Spread { count, mean, p50, p90, p99, max }: Spread) -> Self {
        Spreading { count, mean, p50, p90, p99, max }
    }
}

/// What a line says of a setting.
type Line<'a> = Box<dyn Fn(&Outcome) -> String + 'a>;

impl Spreading {
    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Outcome {
    pub fn new(name: String, figures: &Figures) -> Self {
        Outcome {
            name,
            wait_s: figures.wait_s.into(),
            light_wait_s: figures.light_wait_s.into(),
            user_slowdown: figures.slowdown.into(),
            fairness: figures.fairness,
            short_of_share: figures.short_of_share,
            utilisation: figures.utilisation,
            makespan_h: figures.makespan_h,
            never_started: figures.starved,
            fits_nowhere: figures.unplaceable,
            estimate_error: figures.estimate_error.into(),
            without_estimate: figures.without_estimate,
            decisions: figures.placed,
            decisions_per_s: figures.decisions_per_s(),
            took_s: figures.took.as_secs_f64(),
        }
    }

    /// Whether some task was asked when it will start.
    fn has_estimates(&self) -> bool {
        self.estimate_error.count + self.without_estimate > 0
    }
}

impl Replayed {
    pub fn new(trace: &Path, workload: &Workload, settings: Vec<Outcome>) -> Self {
        Replayed {
            trace: trace.display().to_string(),
            jobs: workload.jobs.len(),
            tasks: workload.tasks(),
            users: workload.users.len(),
            workers: workload.farm.len(),
            cpus: workload.farm.cpu() as f64 / 100.0,
            days: workload.span_ms() as f64 / 8.64e7,
            left_out: workload.left_out.iter().map(|(why, jobs)| (why.as_str(), *jobs)).collect(),
            ignored_tags: workload.ignored_tags.clone(),
            settings,
        }
    }

    /// A line for each figure, a column for each setting; each line of at most `room` cells.
    pub fn table(&self, room: Option<usize>) -> String {
        let Replayed { trace, jobs, tasks, users, workers, cpus, days, .. } = self;
        let head = format!(
            "{trace}: {}, {}, {} in {days:.1} days; {} with {}",
            count(*jobs as u64, "job"),
            count(*tasks as u64, "task"),
            count(*users as u64, "user"),
            count(*workers as u64, "worker"),
            cpus_in_words(*cpus)
        );
        let number = |value: f64| grouped(value, if value < 100.0 { 2 } else { 0 });
        let part = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", part * 100.0))
        };
        let count = |value: usize| grouped(value as f64, 0);
        let figure = |of: fn(&Outcome) -> f64| -> Line { Box::new(move |outcome| number(of(outcome))) };
        let mut lines: Vec<(&str, Line)> = vec![
            ("wait of jobs, mean s", figure(|o| o.wait_s.mean)),
            ("  median", figure(|o| o.wait_s.p50)),
            ("  99 of 100", figure(|o| o.wait_s.p99)),
            ("  longest", figure(|o| o.wait_s.max)),
            ("wait of light users, mean s", figure(|o| o.light_wait_s.mean)),
            ("  99 of 100 jobs", figure(|o| o.light_wait_s.p99)),
            ("slowdown of users, median", figure(|o| o.user_slowdown.p50)),
            ("  9 of 10", figure(|o| o.user_slowdown.p90)),
            ("  worst", figure(|o| o.user_slowdown.max)),
            (
                "  fairness (Jain's index)",
                Box::new(|o| o.fairness.map_or_else(|| "-".to_owned(), |f| format!("{f:.3}"))),
            ),
            ("short of their shares", Box::new(|o| part(o.short_of_share))),
            ("utilisation while jobs come", Box::new(|o| part(o.utilisation))),
            ("hours until the last end", figure(|o| o.makespan_h)),
            ("jobs never started", Box::new(|o| count(o.never_started))),
            ("jobs that fit no worker", Box::new(|o| count(o.fits_nowhere))),
            ("decisions/s", Box::new(|o| grouped(o.decisions_per_s, 0))),
            ("seconds for all of them", figure(|o| o.took_s)),
        ];
        if self.settings.iter().any(Outcome::has_estimates) {
            lines.extend(estimate_lines());
        }
        let settings = self
            .settings
            .iter()
            .zip(1..)
            .map(|(outcome, rank)| Column::whole(outcome.name.clone(), rank).right());
        let row = |(name, line): &(&str, Line)| -> Vec<Cell> {
            let cells = self.settings.iter().map(|outcome| Cell::from(line(outcome)));
            std::iter::once(Cell::from(*name)).chain(cells).collect()
        };
        let grid = Grid {
            columns: std::iter::once(Column::text("", 0, 20)).chain(settings).collect(),
            rows: lines.iter().map(row).collect(),
            empty: "nothing was replayed",
        };
        let head = room.map_or_else(|| vec![head.clone()], |cells| wrap(&head, cells, 2));
        head.join("\n") + "\n" + &grid.render(room)
    }
}

/// What was expected of starts, and how far that was from what came.
fn estimate_lines() -> [(&'static str, Line<'static>); 4] {
    let error = |of: fn(&Spreading) -> f64| -> Line<'static> {
        Box::new(move |outcome| {
            let errors = &outcome.estimate_error;
            if errors.is_empty() { "-".to_owned() } else { grouped(of(errors), 2) }
        })
    };
    [
        ("expected starts", Box::new(|o| grouped(o.estimate_error.count as f64, 0))),
        ("  error, median", error(|errors| errors.p50)),
        ("  9 of 10", error(|errors| errors.p90)),
        ("starts without an estimate", Box::new(|o| grouped(o.without_estimate as f64, 0))),
    ]
}

/// A number with a comma between thousands.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, part) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, part)| (whole, Some(part)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    part.map_or(grouped.clone(), |part| format!("{grouped}.{part}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::tables::fits;

    #[test]
    fn the_figures_of_many_settings_fit() {
        let spread = || Spreading { count: 9, mean: 1e6, p50: 12.345, p90: 99.0, p99: 1e5, max: 1e9 };
        let setting = |policy: &str, charge: &str| Outcome {
            name: format!("{policy}/{charge}"),
            wait_s: spread(),
            light_wait_s: spread(),
            user_slowdown: spread(),
            fairness: Some(0.987),
            short_of_share: None,
            utilisation: Some(0.75),
            makespan_h: 1e4,
            never_started: 0,
            fits_nowhere: 1_000_000,
            estimate_error: spread(),
            without_estimate: 1_000_000,
            decisions: 9,
            decisions_per_s: 1e6,
            took_s: 0.5,
        };
        let policies = ["simple", "packing", "resource-aware"];
        let settings = policies
            .iter()
            .flat_map(|policy| ["time", "task", "order"].map(|charge| setting(policy, charge)));
        let replayed = Replayed {
            trace: "a-directory-with-a-long-name/".repeat(4),
            jobs: 1,
            tasks: 1_000_000,
            users: 12,
            workers: 68,
            cpus: 2176.0,
            days: 30.5,
            left_out: BTreeMap::new(),
            ignored_tags: BTreeMap::new(),
            settings: settings.collect(),
        };
        let texts = fits("sim run", |room| replayed.table(room));
        assert!(
            texts[0].contains("simple/time") && !texts[0].contains("resource-aware/order"),
            "{}",
            texts[0]
        );
    }

    #[test]
    fn numbers_are_read_in_thousands() {
        assert_eq!(grouped(0.0, 0), "0");
        assert_eq!(grouped(999.6, 0), "1,000");
        assert_eq!(grouped(38_922.4, 0), "38,922");
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(2.154, 2), "2.15");
    }
}
