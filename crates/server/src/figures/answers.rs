//! Series as answers of the HTTP interface.

use super::charts::{
    CACHE_COLUMN, Chart, Charts, DAY_STEP_MS, FarmColumn, FarmRow, HOUR_STEP_MS, NETWORK_COLUMN,
    PARTS_OF_CPUS, PARTS_OF_LOAD, PARTS_OF_PERCENT, QueueRow, Row, Scaled, WorkerRow,
};
use super::timeline::{Ring, Timeline};
use std::ops::Range;
use windlass_api::figures::{FarmSeries, QueueSeries, Span, WorkerSeries};
use windlass_core::WorkerId;

/// Queues of one answer.
const QUEUES_TOLD_MAX: usize = 20;

impl Charts {
    fn held(&self, span: Span) -> (u64, Range<u64>) {
        let (step_ms, timeline): (u64, &Timeline) = match span {
            Span::Hour => (HOUR_STEP_MS, &self.hour),
            Span::Day => (DAY_STEP_MS, &self.day),
        };
        (step_ms, timeline.held())
    }

    /// The farm and its queues. Without a step yet the series are empty and end now.
    pub fn farm_series(&self, span: Span, now_ms: u64) -> FarmSeries {
        let (step_ms, steps) = self.held(span);
        let farm = of(&self.farm, span);
        let column = |column: FarmColumn| values(farm, &steps, |row| known(row[column as usize]));
        FarmSeries {
            step_ms,
            end_ms: if steps.is_empty() { now_ms } else { steps.end * step_ms },
            running: column(FarmColumn::Running),
            waiting: column(FarmColumn::Waiting),
            started: column(FarmColumn::Started),
            succeeded: column(FarmColumn::Succeeded),
            failed: column(FarmColumn::Failed),
            busy_cpus: column(FarmColumn::BusyCpus),
            total_cpus: column(FarmColumn::TotalCpus),
            cpu_pressure: column(FarmColumn::CpuPressure),
            memory_pressure: column(FarmColumn::MemoryPressure),
            io_pressure: column(FarmColumn::IoPressure),
            wait_p50_ms: column(FarmColumn::WaitP50),
            wait_p95_ms: column(FarmColumn::WaitP95),
            decisions: column(FarmColumn::Decisions),
            queues: self.queue_series(span, &steps),
        }
    }

    fn queue_series(&self, span: Span, steps: &Range<u64>) -> Vec<QueueSeries> {
        let held = |chart: &Chart<QueueRow>| {
            let busy = values(of(chart, span), steps, |row| known(row[0]));
            busy.into_iter().flatten().sum::<f64>()
        };
        let mut queues: Vec<(f64, &String)> =
            self.queues.iter().map(|(name, chart)| (held(chart), name)).collect();
        queues.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
        let told = queues.into_iter().filter(|(held, _)| *held > 0.0).take(QUEUES_TOLD_MAX);
        let told = told.filter_map(|(_, name)| Some((name, of(self.queues.get(name)?, span))));
        told.map(|(name, ring)| QueueSeries {
            queue: name.clone(),
            busy_cpus: values(ring, steps, |row| known(row[0])),
            entitled_cpus: values(ring, steps, |row| known(row[1])),
        })
        .collect()
    }

    /// The series of a worker that has `cpus` cpus.
    pub fn worker_series(&self, id: WorkerId, cpus: f64, span: Span, now_ms: u64) -> WorkerSeries {
        let (step_ms, steps) = self.held(span);
        let end_ms = if steps.is_empty() { now_ms } else { steps.end * step_ms };
        let Some(chart) = self.workers.get(&id) else {
            return WorkerSeries { step_ms, end_ms, ..WorkerSeries::default() };
        };
        let ring = of(chart, span);
        let column = |column: usize, parts: f64| {
            values(ring, &steps, |row: WorkerRow| Scaled(row[column]).value(parts))
        };
        let busy = column(0, PARTS_OF_CPUS).into_iter().map(|part| Some(rounded(part? * cpus)));
        WorkerSeries {
            step_ms,
            end_ms,
            busy_cpus: busy.collect(),
            load: column(1, PARTS_OF_LOAD),
            cpu_pressure: column(2, PARTS_OF_PERCENT),
            memory_pressure: column(3, PARTS_OF_PERCENT),
            io_pressure: column(4, PARTS_OF_PERCENT),
            network_mbit_s: values(ring, &steps, |row: WorkerRow| {
                Scaled(row[NETWORK_COLUMN]).speed_mbit_s().map(rounded)
            }),
            cache_used: column(CACHE_COLUMN, PARTS_OF_PERCENT),
        }
    }
}

fn of<R>(chart: &Chart<R>, span: Span) -> &Ring<R> {
    match span {
        Span::Hour => &chart.hour,
        Span::Day => &chart.day,
    }
}

fn values<R: Row>(ring: &Ring<R>, steps: &Range<u64>, value: impl Fn(R) -> Option<f64>) -> Vec<Option<f64>> {
    steps.clone().map(|step| value(ring.get(step))).collect()
}

fn known(value: f32) -> Option<f64> {
    value.is_finite().then(|| rounded(value.into()))
}

/// Two decimals: more is not known, and an answer of many numbers is a third as long.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The row of a worker: see [`Charts::worker_series`] for what the columns are. The percents are pressures on cpu, memory
/// and io, and what is in use where the caches are.
pub fn worker_row(
    part_of_cpus: Option<f64>,
    load: Option<f64>,
    percents: [Option<f64>; 4],
    network_mbit_s: Option<f64>,
) -> WorkerRow {
    let [cpu, memory, io, cache] = percents.map(|percent| Scaled::of(percent, PARTS_OF_PERCENT).0);
    let (part, load) = (Scaled::of(part_of_cpus, PARTS_OF_CPUS).0, Scaled::of(load, PARTS_OF_LOAD).0);
    [part, load, cpu, memory, io, Scaled::of_speed(network_mbit_s).0, cache]
}

/// The columns of the farm that the engine knows and those that are counted, in one row.
pub fn farm_row(columns: &[(FarmColumn, Option<f64>)]) -> FarmRow {
    let mut row = FarmRow::GAP;
    for (column, value) in columns {
        row[*column as usize] = value.map_or(f32::NAN, |value| value as f32);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::super::charts::{FOLD, Sample};
    use super::*;

    fn sample(running: f64, queues: Vec<(String, QueueRow)>) -> Sample {
        let row = worker_row(Some(0.75), Some(0.8), [Some(45.2), Some(0.0), None, Some(70.4)], Some(31.0));
        Sample {
            farm: farm_row(&[(FarmColumn::Running, Some(running)), (FarmColumn::WaitP50, None)]),
            queues,
            workers: vec![(WorkerId(1), row)],
            day_waits: [f32::NAN; 2],
        }
    }

    #[test]
    fn series_begin_with_the_first_step_and_end_with_the_last() {
        let mut charts = Charts::default();
        let empty = charts.farm_series(Span::Hour, 77);
        assert_eq!((empty.step_ms, empty.end_ms, empty.running.len()), (10_000, 77, 0));
        charts.add(FOLD * 9, sample(1.0, Vec::new()));
        charts.add(FOLD * 9 + 2, sample(2.5, vec![("films".to_owned(), [1.5, f32::NAN])]));
        let hour = charts.farm_series(Span::Hour, 77);
        assert_eq!(hour.end_ms, (FOLD * 9 + 3) * HOUR_STEP_MS);
        assert_eq!(hour.running, [Some(1.0), None, Some(2.5)]);
        assert_eq!(hour.wait_p50_ms, [None; 3]);
        assert_eq!(hour.queues[0].busy_cpus, [None, None, Some(1.5)]);
        assert_eq!(hour.queues[0].entitled_cpus, [None; 3]);
        charts.add(FOLD * 10, sample(0.0, Vec::new()));
        let day = charts.farm_series(Span::Day, 77);
        assert_eq!((day.step_ms, day.end_ms, day.running), (300_000, 10 * DAY_STEP_MS, vec![Some(1.75)]));
        let worker = charts.worker_series(WorkerId(1), 8.0, Span::Day, 77);
        assert_eq!((worker.busy_cpus, worker.load), (vec![Some(6.02)], vec![Some(0.8)]));
        assert_eq!((worker.cpu_pressure, worker.io_pressure), (vec![Some(45.0)], vec![None]));
        assert_eq!((worker.network_mbit_s, worker.cache_used), (vec![Some(31.0)], vec![Some(70.0)]));
        assert!(charts.worker_series(WorkerId(2), 8.0, Span::Day, 77).load.is_empty());
    }

    #[test]
    fn the_largest_answers_are_of_bounded_size() {
        let mut charts = Charts::default();
        for step in 0..=288 * FOLD {
            let value = (step % 97) as f32 * 1.37;
            let queues = (0..100).map(|n| (format!("queue-{n:02}"), [value + n as f32, value])).collect();
            let farm = [value; super::super::charts::FARM_COLUMNS];
            charts.add(step, Sample { farm, day_waits: [value; 2], ..sample(1.0, queues) });
        }
        let bytes = |span| serde_json::to_string(&charts.farm_series(span, 0)).unwrap().len();
        let worker = serde_json::to_string(&charts.worker_series(WorkerId(1), 8.0, Span::Hour, 0)).unwrap();
        println!("hour {}, day {}, worker {} bytes", bytes(Span::Hour), bytes(Span::Day), worker.len());
        assert!(bytes(Span::Hour) < 200_000 && bytes(Span::Day) < 200_000 && worker.len() < 20_000);
    }

    #[test]
    fn an_answer_names_the_queues_that_held_most() {
        let mut charts = Charts::default();
        let queues = (0..30).map(|n| (format!("q{n:02}"), [n as f32, 1.0])).collect();
        charts.add(5, sample(1.0, queues));
        let names: Vec<String> =
            charts.farm_series(Span::Hour, 0).queues.into_iter().map(|queue| queue.queue).collect();
        assert_eq!((names.len(), names[0].as_str(), names[19].as_str()), (20, "q29", "q10"));
    }
}
