//! Series of the farm, of its busiest queues and of its workers: an hour in steps of 10 s, a day in steps of 5 min.

use super::timeline::{Ring, Timeline};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windlass_core::WorkerId;

/// Milliseconds of a step of the hour, and of the day.
pub const HOUR_STEP_MS: u64 = 10_000;
pub const DAY_STEP_MS: u64 = 300_000;
/// Steps of the hour, and of the day.
pub const HOUR_STEPS: usize = 360;
pub const DAY_STEPS: usize = 288;
/// Steps of the hour in one of the day.
pub const FOLD: u64 = DAY_STEP_MS / HOUR_STEP_MS;

/// Queues that are charted; the one that has been idle longest makes room.
pub const QUEUES_MAX: usize = 100;
/// Workers that are charted; the one that was seen least lately makes room, and no new one is charted if all are there.
pub const WORKERS_MAX: usize = 10_000;
/// Steps of the hour for which a worker that is not seen is still charted: a day.
const UNSEEN_MAX: u64 = DAY_STEPS as u64 * FOLD;

/// Columns of the farm. `NaN` is unknown.
pub const FARM_COLUMNS: usize = 13;
/// Columns of a queue: cpus that it holds, and that it is entitled to. `NaN` is unknown.
pub const QUEUE_COLUMNS: usize = 2;
/// Columns of a worker: the part of its cpus that is booked, its load, its pressures, its network and its caches; see
/// [`Scaled`].
pub const WORKER_COLUMNS: usize = 7;
/// The columns of a worker's network, in Mbit/s, and of the space in use where its caches are, in percent.
pub const NETWORK_COLUMN: usize = 5;
pub const CACHE_COLUMN: usize = 6;

/// A row of each kind.
pub type FarmRow = [f32; FARM_COLUMNS];
pub type QueueRow = [f32; QUEUE_COLUMNS];
pub type WorkerRow = [u8; WORKER_COLUMNS];

/// What all workers' rows take, without what allocation adds.
const _: () = assert!(WORKERS_MAX * WORKER_COLUMNS * (HOUR_STEPS + DAY_STEPS) < 44 << 20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FarmColumn {
    Running,
    Waiting,
    Started,
    Succeeded,
    Failed,
    BusyCpus,
    TotalCpus,
    CpuPressure,
    MemoryPressure,
    IoPressure,
    WaitP50,
    WaitP95,
    Decisions,
}

/// Columns that count what happened in a step: five minutes have the sum, and not the mean.
const COUNTS: [FarmColumn; 4] =
    [FarmColumn::Started, FarmColumn::Succeeded, FarmColumn::Failed, FarmColumn::Decisions];

/// A number of a worker in a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scaled(pub u8);

/// The byte that means unknown.
pub const UNKNOWN: u8 = u8::MAX;
/// The largest byte that is a number.
const SCALED_MAX: f64 = 250.0;
/// Steps of a byte: of the whole of a worker's cpus, so that 1 is the largest number; of a load of one, so that 5 is; and of
/// a percentage, which is a whole one.
pub const PARTS_OF_CPUS: f64 = 250.0;
pub const PARTS_OF_LOAD: f64 = 50.0;
pub const PARTS_OF_PERCENT: f64 = 1.0;
/// Steps of a byte for each doubling of a speed in Mbit/s and one more: a speed is known within a fortieth, and 104 Gbit/s
/// is the largest.
const PARTS_OF_DOUBLING: f64 = 15.0;

impl Scaled {
    pub fn of(value: Option<f64>, parts: f64) -> Scaled {
        let scaled = value.filter(|value| value.is_finite()).map(|value| (value * parts).round());
        Scaled(scaled.map_or(UNKNOWN, |scaled| scaled.clamp(0.0, SCALED_MAX) as u8))
    }

    pub fn value(self, parts: f64) -> Option<f64> {
        (self.0 != UNKNOWN).then(|| f64::from(self.0) / parts)
    }

    /// A speed in Mbit/s, by its logarithm: it may be that of a short message, or of the fastest link.
    pub fn of_speed(mbit_s: Option<f64>) -> Scaled {
        let known = mbit_s.filter(|speed| *speed >= 0.0);
        Scaled::of(known.map(|speed| (1.0 + speed).log2()), PARTS_OF_DOUBLING)
    }

    pub fn speed_mbit_s(self) -> Option<f64> {
        Some(self.value(PARTS_OF_DOUBLING)?.exp2() - 1.0)
    }
}

/// What is unknown of each kind, and how rows are joined.
pub trait Row: Copy + PartialEq {
    /// A row of which nothing is known.
    const GAP: Self;

    fn fold(rows: impl Iterator<Item = Self> + Clone) -> Self;
}

/// The mean of what is known of a column, or the sum.
fn fold_column(values: impl Iterator<Item = f32>, sums: bool) -> f32 {
    let (sum, count) = values
        .filter(|value| !value.is_nan())
        .fold((0.0f64, 0u32), |(sum, count), value| (sum + f64::from(value), count + 1));
    match count {
        0 => f32::NAN,
        _ if sums => sum as f32,
        _ => (sum / f64::from(count)) as f32,
    }
}

impl Row for FarmRow {
    const GAP: Self = [f32::NAN; FARM_COLUMNS];

    fn fold(rows: impl Iterator<Item = Self> + Clone) -> Self {
        std::array::from_fn(|column| {
            let sums = COUNTS.iter().any(|count| *count as usize == column);
            fold_column(rows.clone().map(|row| row[column]), sums)
        })
    }
}

impl Row for QueueRow {
    const GAP: Self = [f32::NAN; QUEUE_COLUMNS];

    fn fold(rows: impl Iterator<Item = Self> + Clone) -> Self {
        std::array::from_fn(|column| fold_column(rows.clone().map(|row| row[column]), false))
    }
}

impl Row for WorkerRow {
    const GAP: Self = [UNKNOWN; WORKER_COLUMNS];

    fn fold(rows: impl Iterator<Item = Self> + Clone) -> Self {
        std::array::from_fn(|column| {
            let known = rows.clone().map(|row| row[column]).filter(|byte| *byte != UNKNOWN);
            if column == NETWORK_COLUMN {
                return mean_speed(known);
            }
            let (sum, count) =
                known.fold((0u32, 0u32), |(sum, count), byte| (sum + u32::from(byte), count + 1));
            (sum + count / 2).checked_div(count).map_or(UNKNOWN, |mean| mean as u8)
        })
    }
}

/// The mean of speeds, each in a byte. The mean of their logarithms would hide a burst.
fn mean_speed(known: impl Iterator<Item = u8>) -> u8 {
    let speeds = known.filter_map(|byte| Scaled(byte).speed_mbit_s());
    let (sum, count) = speeds.fold((0.0, 0u32), |(sum, count), speed| (sum + speed, count + 1));
    Scaled::of_speed((count > 0).then(|| sum / f64::from(count))).0
}

/// An hour and a day of rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart<R> {
    pub hour: Ring<R>,
    pub day: Ring<R>,
    /// The last step of the hour in which there was something to chart.
    seen: u64,
}

impl<R: Row> Chart<R> {
    fn new() -> Self {
        Chart { hour: Ring::new(HOUR_STEPS, R::GAP), day: Ring::new(DAY_STEPS, R::GAP), seen: 0 }
    }
}

/// The rows of all series at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub farm: FarmRow,
    /// Queues that hold or want something.
    pub queues: Vec<(String, QueueRow)>,
    pub workers: Vec<(WorkerId, WorkerRow)>,
    /// Milliseconds from ready to placed in the last five minutes, two quantiles.
    pub day_waits: [f32; 2],
}

/// The series of the farm, of its queues and of its workers.
#[derive(Clone, PartialEq, Debug)]
pub struct Charts {
    pub(super) hour: Timeline,
    pub(super) day: Timeline,
    pub(super) farm: Chart<FarmRow>,
    pub(super) queues: BTreeMap<String, Chart<QueueRow>>,
    pub(super) workers: BTreeMap<WorkerId, Chart<WorkerRow>>,
}

impl Default for Charts {
    fn default() -> Self {
        Charts {
            hour: Timeline::new(HOUR_STEPS),
            day: Timeline::new(DAY_STEPS),
            farm: Chart::new(),
            queues: BTreeMap::new(),
            workers: BTreeMap::new(),
        }
    }
}

impl Charts {
    /// Takes in a sample of a step of the hour. Returns the step of the day that is over with it, if one is.
    pub fn add(&mut self, step: u64, sample: Sample) -> Option<u64> {
        let over = self.close_day(step, sample.day_waits);
        self.go_to_hour(step);
        let stale = self.day.drop_from(step / FOLD);
        self.clear_day(stale);
        let mut farm = sample.farm;
        let before = self.farm.hour.get(step);
        for column in COUNTS.map(|column| column as usize) {
            // A server that stopped in this step counted from 0 again.
            farm[column] += if before[column].is_nan() { 0.0 } else { before[column] };
        }
        self.farm.hour.set(step, farm);
        self.add_queues(step, sample.queues);
        self.add_workers(step, sample.workers);
        over
    }

    fn add_queues(&mut self, step: u64, queues: Vec<(String, QueueRow)>) {
        // One that is not named holds nothing and wants nothing.
        self.queues.values_mut().for_each(|chart| chart.hour.set(step, [0.0; QUEUE_COLUMNS]));
        for (name, row) in queues {
            let chart = self.queues.entry(name).or_insert_with(Chart::new);
            chart.hour.set(step, row);
            chart.seen = step;
        }
        while self.queues.len() > QUEUES_MAX {
            let idle = self.queues.iter().min_by_key(|(_, chart)| chart.seen).map(|(name, _)| name.clone());
            idle.and_then(|name| self.queues.remove(&name));
        }
    }

    fn add_workers(&mut self, step: u64, workers: Vec<(WorkerId, WorkerRow)>) {
        let mut new = Vec::new();
        for (id, row) in workers {
            match self.workers.get_mut(&id) {
                Some(chart) => {
                    chart.hour.set(step, row);
                    chart.seen = step;
                }
                None => new.push((id, row)),
            }
        }
        self.workers.retain(|_, chart| chart.seen.saturating_add(UNSEEN_MAX) > step);
        let over = (self.workers.len() + new.len()).saturating_sub(WORKERS_MAX);
        self.forget_unseen(step, over);
        let room = WORKERS_MAX.saturating_sub(self.workers.len());
        for (id, row) in new.into_iter().take(room) {
            let mut chart = Chart::new();
            chart.hour.set(step, row);
            chart.seen = step;
            self.workers.insert(id, chart);
        }
    }

    /// Forgets up to the given number of workers that were not seen in this step, the least recently seen first.
    fn forget_unseen(&mut self, step: u64, count: usize) {
        let unseen = self.workers.iter().filter(|(_, chart)| chart.seen < step);
        let unseen: BTreeSet<(u64, WorkerId)> = unseen.map(|(id, chart)| (chart.seen, *id)).collect();
        for (_, id) in unseen.into_iter().take(count) {
            self.workers.remove(&id);
        }
    }

    /// Folds the last step of the day if `step` is of a later one.
    fn close_day(&mut self, step: u64, waits: [f32; 2]) -> Option<u64> {
        let newest = self.hour.newest()?;
        let over = newest / FOLD;
        (step / FOLD > over).then(|| self.fold_into(over, newest, waits))
    }

    /// Folds what there is of the step of the day that is not over, for a server that ends. Returns that step.
    pub fn close(&mut self, waits: [f32; 2]) -> Option<u64> {
        let newest = self.hour.newest()?;
        Some(self.fold_into(newest / FOLD, newest, waits))
    }

    fn fold_into(&mut self, day: u64, newest: u64, waits: [f32; 2]) -> u64 {
        let stale = self.day.go_to(day);
        self.clear_day(stale);
        // What is behind the newest step is of an hour ago.
        let steps = day * FOLD..((day + 1) * FOLD).min(newest + 1);
        fn fold<R: Row>(chart: &mut Chart<R>, day: u64, steps: &Range<u64>) {
            let folded = R::fold(steps.clone().map(|step| chart.hour.get(step)));
            chart.day.set(day, folded);
        }
        fold(&mut self.farm, day, &steps);
        self.queues.values_mut().for_each(|chart| fold(chart, day, &steps));
        self.workers.values_mut().for_each(|chart| fold(chart, day, &steps));
        let mut farm = self.farm.day.get(day);
        (farm[FarmColumn::WaitP50 as usize], farm[FarmColumn::WaitP95 as usize]) = (waits[0], waits[1]);
        self.farm.day.set(day, farm);
        day
    }

    pub(super) fn go_to_hour(&mut self, step: u64) {
        let stale = self.hour.go_to(step);
        self.farm.hour.clear(stale.clone(), Row::GAP);
        self.queues.values_mut().for_each(|chart| chart.hour.clear(stale.clone(), Row::GAP));
        self.workers.values_mut().for_each(|chart| chart.hour.clear(stale.clone(), Row::GAP));
    }

    pub(super) fn clear_day(&mut self, stale: Range<u64>) {
        self.farm.day.clear(stale.clone(), Row::GAP);
        self.queues.values_mut().for_each(|chart| chart.day.clear(stale.clone(), Row::GAP));
        self.workers.values_mut().for_each(|chart| chart.day.clear(stale.clone(), Row::GAP));
    }
}

/// The chart with this key, made if there is none and there are fewer than `max`. It was seen at that step of the hour.
pub(super) fn seen<K: Ord, R: Row>(
    charts: &mut BTreeMap<K, Chart<R>>,
    key: K,
    max: usize,
    step: u64,
) -> Option<&mut Chart<R>> {
    if charts.len() >= max && !charts.contains_key(&key) {
        return None;
    }
    let chart = charts.entry(key).or_insert_with(Chart::new);
    chart.seen = chart.seen.max(step);
    Some(chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A sample in which only these columns are known.
    fn sample(running: f32, started: f32) -> Sample {
        let mut farm = FarmRow::GAP;
        farm[FarmColumn::Running as usize] = running;
        farm[FarmColumn::Started as usize] = started;
        farm[FarmColumn::Decisions as usize] = f32::NAN;
        Sample { farm, queues: Vec::new(), workers: Vec::new(), day_waits: [1.0, 2.0] }
    }

    fn with_workers(workers: Vec<(u64, u8)>) -> Sample {
        let rows = workers.into_iter().map(|(id, byte)| (WorkerId(id), [byte; WORKER_COLUMNS]));
        Sample { workers: rows.collect(), ..sample(0.0, 0.0) }
    }

    #[test]
    fn five_minutes_are_the_mean_of_levels_and_the_sum_of_counts() {
        let mut charts = Charts::default();
        let first = 1_000 * FOLD;
        let burst = |step| Scaled::of_speed(Some(if step == first { 3_000.0 } else { 0.0 })).0;
        for step in first..first + FOLD {
            let value = (step - first) as f32;
            let sample = Sample {
                queues: vec![("films".to_owned(), [value, f32::NAN])],
                workers: vec![(WorkerId(3), [value as u8, UNKNOWN, 7, 8, 9, burst(step), 60])],
                ..sample(value, 2.0)
            };
            assert_eq!(charts.add(step, sample), None);
        }
        assert_eq!(charts.add(first + FOLD, sample(0.0, 0.0)), Some(1_000));
        let farm = charts.farm.day.get(1_000);
        assert_eq!(farm[FarmColumn::Running as usize], 14.5);
        assert_eq!(farm[FarmColumn::Started as usize], 60.0);
        assert_eq!((farm[FarmColumn::WaitP50 as usize], farm[FarmColumn::WaitP95 as usize]), (1.0, 2.0));
        assert!(farm[FarmColumn::CpuPressure as usize].is_nan());
        let queue = charts.queues["films"].day.get(1_000);
        assert_eq!(queue[0], 14.5);
        assert!(queue[1].is_nan());
        let worker = charts.workers[&WorkerId(3)].day.get(1_000);
        assert_eq!(worker[..NETWORK_COLUMN], [15, UNKNOWN, 7, 8, 9]);
        assert_eq!(worker[CACHE_COLUMN], 60);
        let mean = Scaled(worker[NETWORK_COLUMN]).speed_mbit_s().unwrap();
        assert!((mean / 100.0 - 1.0).abs() < 0.06, "3000 Mbit/s in one of 30 steps: {mean}");
        // A queue that is not named any more holds nothing.
        assert_eq!(charts.queues["films"].hour.get(first + FOLD), [0.0, 0.0]);
    }

    #[test]
    fn a_step_that_was_missed_is_a_gap_and_no_zero() {
        let mut charts = Charts::default();
        charts.add(30_000, sample(4.0, 1.0));
        charts.add(30_003, sample(8.0, 1.0));
        let running = |step| charts.farm.hour.get(step)[FarmColumn::Running as usize];
        assert_eq!((running(30_000), running(30_003)), (4.0, 8.0));
        assert!(running(30_001).is_nan() && running(30_002).is_nan());
        charts.add(30_030, sample(0.0, 0.0));
        assert_eq!(charts.farm.day.get(1_000)[FarmColumn::Running as usize], 6.0);
    }

    #[test]
    fn queues_and_workers_that_are_too_many_make_room_by_idleness() {
        let mut charts = Charts::default();
        for n in 0..QUEUES_MAX as u64 + 5 {
            let queues = vec![(format!("q{n}"), [1.0, 1.0])];
            charts.add(n, Sample { queues, ..sample(0.0, 0.0) });
        }
        assert_eq!(charts.queues.len(), QUEUES_MAX);
        assert!(!charts.queues.contains_key("q4") && charts.queues.contains_key("q5"));
        let mut charts = Charts::default();
        charts.add(0, with_workers((0..WORKERS_MAX as u64).map(|id| (id, 1)).collect()));
        // All are there: a further one is not charted. Once one is gone, it makes room.
        charts.add(1, with_workers((0..=WORKERS_MAX as u64).map(|id| (id, 1)).collect()));
        assert!(!charts.workers.contains_key(&WorkerId(WORKERS_MAX as u64)));
        charts.add(2, with_workers((1..=WORKERS_MAX as u64).map(|id| (id, 1)).collect()));
        assert!(charts.workers.contains_key(&WorkerId(WORKERS_MAX as u64)));
        assert!(!charts.workers.contains_key(&WorkerId(0)));
        assert_eq!(charts.workers.len(), WORKERS_MAX);
    }

    #[test]
    fn a_byte_holds_what_is_charted_of_a_worker() {
        assert_eq!(Scaled::of(Some(1.0), PARTS_OF_CPUS).value(PARTS_OF_CPUS), Some(1.0));
        assert_eq!(Scaled::of(Some(0.5), PARTS_OF_CPUS).value(PARTS_OF_CPUS), Some(0.5));
        assert_eq!(Scaled::of(Some(1.26), PARTS_OF_LOAD).value(PARTS_OF_LOAD), Some(1.26));
        assert_eq!(Scaled::of(Some(99.0), PARTS_OF_LOAD).value(PARTS_OF_LOAD), Some(5.0));
        assert_eq!(Scaled::of(Some(45.4), PARTS_OF_PERCENT).value(PARTS_OF_PERCENT), Some(45.0));
        for speed in [0.0, 1.0, 12.5, 1_000.0, 100_000.0] {
            let told = Scaled::of_speed(Some(speed)).speed_mbit_s().unwrap();
            assert!(
                (1.0 + told) / (1.0 + speed) < 1.025 && (1.0 + told) / (1.0 + speed) > 0.975,
                "{speed}: {told}"
            );
        }
        assert_eq!(Scaled::of_speed(Some(f64::NAN)).speed_mbit_s(), None);
        assert_eq!(Scaled::of_speed(None).speed_mbit_s(), None);
        assert_eq!(Scaled::of(None, PARTS_OF_PERCENT).value(PARTS_OF_PERCENT), None);
        assert_eq!(Scaled::of(Some(f64::NAN), PARTS_OF_PERCENT).value(PARTS_OF_PERCENT), None);
    }

    proptest! {
        /// Whatever the clock does, the day has the fold of the hour as it was when its step was over, and nothing of a
        /// time that has not come.
        #[test]
        fn a_clock_that_jumps_leaves_the_series_in_order(jumps in prop::collection::vec((-400i64..800, 0u8..100), 1..80)) {
            let mut charts = Charts::default();
            let mut step = 100_000u64;
            for (samples, (jump, value)) in (1u32..).zip(jumps) {
                // Mostly by one, as clocks do.
                step = if jump % 4 == 0 { step.saturating_add_signed(jump) } else { step + 1 };
                let over = charts.add(step, Sample { workers: vec![(WorkerId(1), [value; WORKER_COLUMNS])],
                                                     ..sample(f32::from(value), 1.0) });
                prop_assert!(over.is_none_or(|day| day < step / FOLD));
                prop_assert_eq!(charts.hour.newest(), Some(step));
                prop_assert!(charts.day.newest().is_none_or(|day| day < step / FOLD));
                prop_assert_eq!(charts.workers[&WorkerId(1)].hour.get(step), [value; WORKER_COLUMNS]);
                for held in charts.day.held() {
                    let row = charts.farm.day.get(held)[FarmColumn::Running as usize];
                    prop_assert!(row.is_nan() || (0.0..100.0).contains(&row));
                }
                // Each sample has one start. A step that comes again has the starts of both times.
                let started = charts.day.held().map(|held| charts.farm.day.get(held)[FarmColumn::Started as usize]);
                let counted: f32 = started.filter(|started| !started.is_nan()).sum();
                prop_assert!(counted <= samples as f32, "{} starts of {}", counted, samples);
            }
        }
    }
}
