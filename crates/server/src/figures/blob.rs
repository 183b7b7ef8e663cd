//! Series as the store keeps them: blobs of each step of the day, written once when the step is over.
//!
//! The first byte of a blob is its form, and the rest is a message of protobuf. The charts of a blob that is damaged, or
//! has the form of a later release, begin again.

use super::charts::{
    Chart, Charts, FARM_COLUMNS, FOLD, QUEUE_COLUMNS, QUEUES_MAX, Row, WORKER_COLUMNS, WORKERS_MAX,
    WorkerRow, seen,
};
use prost::Message as _;
use std::ops::Range;
use windlass_core::WorkerId;
use windlass_store::SeriesRow;

/// The form that is written.
const FORM: u8 = 2;
/// The form that earlier releases wrote. It is still read.
const FIRST_FORM: u8 = 1;
/// Columns of a worker that earlier releases wrote. Those that were added since are in a field of their own.
const FIRST_COLUMNS: usize = 5;
const MORE_COLUMNS: usize = WORKER_COLUMNS - FIRST_COLUMNS;
/// Bytes of one blob; a larger one is not written.
pub const BLOB_BYTES_MAX: usize = 4 << 20;

/// What a blob holds: the farm and its queues, or the workers; in steps of the day, or of the hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    FarmDay = 0,
    FarmHour = 1,
    WorkersDay = 2,
    WorkersHour = 3,
}

impl Part {
    pub const ALL: [Part; 4] = [Part::FarmDay, Part::FarmHour, Part::WorkersDay, Part::WorkersHour];

    pub fn kept_steps(self) -> u64 {
        match self {
            Part::FarmDay | Part::WorkersDay => super::charts::DAY_STEPS as u64,
            Part::FarmHour | Part::WorkersHour => super::charts::HOUR_STEPS as u64 / FOLD,
        }
    }

    /// True of the farm and its queues, false of the workers.
    fn is_of_farm(self) -> bool {
        matches!(self, Part::FarmDay | Part::FarmHour)
    }

    /// How many rows a series has in a blob.
    fn rows(self) -> u64 {
        if matches!(self, Part::FarmDay | Part::WorkersDay) { 1 } else { FOLD }
    }
}

/// The rows of one blob, each kind one after the other. Fields are only added.
#[derive(Clone, PartialEq, prost::Message)]
struct ChartRows {
    #[prost(float, repeated, tag = "1")]
    farm: Vec<f32>,
    #[prost(message, repeated, tag = "2")]
    queues: Vec<QueueRows>,
    #[prost(message, repeated, tag = "3")]
    workers: Vec<WorkerRows>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct QueueRows {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, repeated, tag = "2")]
    values: Vec<f32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WorkerRows {
    #[prost(uint64, tag = "1")]
    id: u64,
    /// Of the first columns.
    #[prost(bytes = "vec", tag = "2")]
    values: Vec<u8>,
    /// Of the other columns; absent in what an earlier release wrote.
    #[prost(bytes = "vec", tag = "3")]
    more: Vec<u8>,
}

impl WorkerRows {
    fn of(id: WorkerId, rows: &[u8]) -> WorkerRows {
        let rows = rows.as_chunks::<WORKER_COLUMNS>().0;
        let values = rows.iter().flat_map(|row| row[..FIRST_COLUMNS].iter().copied());
        let more = rows.iter().flat_map(|row| row[FIRST_COLUMNS..].iter().copied());
        WorkerRows { id: id.0, values: values.collect(), more: more.collect() }
    }

    /// The rows, one after the other.
    fn rows(&self) -> Vec<u8> {
        let mut more = self.more.as_chunks::<MORE_COLUMNS>().0.iter();
        let mut rows = Vec::new();
        for first in self.values.as_chunks::<FIRST_COLUMNS>().0 {
            let mut row = WorkerRow::GAP;
            row[..FIRST_COLUMNS].copy_from_slice(first);
            if let Some(more) = more.next() {
                row[FIRST_COLUMNS..].copy_from_slice(more);
            }
            rows.extend(row);
        }
        rows
    }
}

pub fn encode(charts: &Charts, day: u64) -> Vec<SeriesRow> {
    let mut blobs = Vec::new();
    for part in Part::ALL {
        let mut rows = ChartRows::default();
        if part.is_of_farm() {
            rows.farm = values_of(&charts.farm, part, day, charts);
            for (name, chart) in &charts.queues {
                let values = values_of(chart, part, day, charts);
                rows.queues.push(QueueRows { name: name.clone(), values });
            }
        } else {
            for (id, chart) in &charts.workers {
                rows.workers.push(WorkerRows::of(*id, &values_of(chart, part, day, charts)));
            }
        }
        let mut data = vec![FORM];
        data.extend(rows.encode_to_vec());
        if data.len() <= BLOB_BYTES_MAX {
            blobs.push(SeriesRow { part: part as u8, step: day, data });
        }
    }
    blobs
}

/// The rows of a chart in a step of the day, one after the other.
fn values_of<T: Copy, const N: usize>(chart: &Chart<[T; N]>, part: Part, day: u64, charts: &Charts) -> Vec<T>
where
    [T; N]: Row,
{
    if part.rows() == 1 {
        return chart.day.get(day).to_vec();
    }
    let held = charts.hour.held();
    let steps = day * FOLD..(day + 1) * FOLD;
    steps.flat_map(|step| if held.contains(&step) { chart.hour.get(step) } else { Row::GAP }).collect()
}

/// Series from what the store has, for a server that starts in this step of the hour. What is older than a day, or of a
/// time that has not come, is left out.
pub fn restore(rows: &[SeriesRow], now: u64) -> Charts {
    let (mut charts, today) = (Charts::default(), now / FOLD);
    let mut rows: Vec<&SeriesRow> = rows.iter().filter(|row| row.step <= today).collect();
    rows.sort_by_key(|row| (row.step, row.part));
    for row in rows {
        let Some(part) = Part::ALL.into_iter().find(|part| *part as u8 == row.part) else { continue };
        if row.step + part.kept_steps() < today {
            continue;
        }
        let found = match row.data.split_first() {
            Some((&FORM, data)) => ChartRows::decode(data).ok(),
            Some((&FIRST_FORM, data)) => read_first_form(part, data),
            _ => None,
        };
        let Some(found) = found else { continue };
        match part.rows() {
            1 => {
                let stale = charts.day.go_to(row.step);
                charts.clear_day(stale);
            }
            // The other part of this step may have been here before.
            _ if charts.hour.newest().is_none_or(|newest| newest < row.step * FOLD) => {
                let steps = row.step * FOLD..((row.step + 1) * FOLD).min(now + 1);
                steps.for_each(|step| charts.go_to_hour(step));
            }
            _ => {}
        }
        put_rows(&mut charts, part, row.step, &found);
    }
    charts
}

fn put_rows(charts: &mut Charts, part: Part, day: u64, rows: &ChartRows) {
    let (held, step) = (charts.hour.held(), (day + 1) * FOLD - 1);
    put_values(&mut charts.farm, part, day, &held, &rows.farm);
    for QueueRows { name, values } in &rows.queues {
        if let Some(chart) = seen(&mut charts.queues, name.clone(), QUEUES_MAX, step) {
            put_values(chart, part, day, &held, values);
        }
    }
    for worker in &rows.workers {
        if let Some(chart) = seen(&mut charts.workers, WorkerId(worker.id), WORKERS_MAX, step) {
            put_values(chart, part, day, &held, &worker.rows());
        }
    }
}

fn put_values<T: Copy, const N: usize>(
    chart: &mut Chart<[T; N]>,
    part: Part,
    day: u64,
    held: &Range<u64>,
    values: &[T],
) where
    [T; N]: Row,
{
    for (n, row) in (0..part.rows()).zip(values.as_chunks().0) {
        match part.rows() {
            1 => chart.day.set(day, *row),
            _ if held.contains(&(day * FOLD + n)) => chart.hour.set(day * FOLD + n, *row),
            // Of a time that has not come.
            _ => {}
        }
    }
}

/// Reads what an earlier release wrote: the farm's rows, then of each queue the length of its name in a byte, its name
/// and its rows; or of each worker its id and its rows. Numbers have their lowest byte first.
fn read_first_form(part: Part, mut data: &[u8]) -> Option<ChartRows> {
    let (rows, mut found) = (part.rows() as usize, ChartRows::default());
    if part.is_of_farm() {
        found.farm = floats(data.split_off(..FARM_COLUMNS * 4 * rows)?);
        while let Some(len) = data.split_off_first() {
            let name = std::str::from_utf8(data.split_off(..usize::from(*len))?).ok()?.to_owned();
            let values = floats(data.split_off(..QUEUE_COLUMNS * 4 * rows)?);
            found.queues.push(QueueRows { name, values });
        }
    }
    while let Some(id) = data.split_off(..8) {
        let id = u64::from_le_bytes(id.try_into().ok()?);
        let values = data.split_off(..FIRST_COLUMNS * rows)?.to_vec();
        found.workers.push(WorkerRows { id, values, more: Vec::new() });
    }
    Some(found)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::charts::{FarmColumn, Sample};
    use super::*;
    use proptest::prelude::*;

    fn sample(value: f32) -> Sample {
        Sample {
            farm: [value; FARM_COLUMNS],
            queues: vec![("films".to_owned(), [value, f32::NAN]), ("tests".to_owned(), [0.5, value])],
            workers: vec![
                (WorkerId(7), [value as u8, 1, 2, 3, 255, 4, 5]),
                (WorkerId(1 << 40), [9; WORKER_COLUMNS]),
            ],
            day_waits: [3.0, f32::NAN],
        }
    }

    /// Series of a number of steps, and what a store has of them.
    fn charted(steps: u64) -> (Charts, Vec<SeriesRow>) {
        let (mut charts, mut rows) = (Charts::default(), Vec::new());
        for n in 0..steps {
            if let Some(day) = charts.add(FOLD * 5_000 + n, sample((n % 50) as f32)) {
                rows.extend(encode(&charts, day));
            }
        }
        if let Some(day) = charts.close([3.0, f32::NAN]) {
            rows.retain(|row| row.step != day);
            rows.extend(encode(&charts, day));
        }
        (charts, rows)
    }

    /// NaN is equal to itself here.
    fn same(a: &[f32], b: &[f32]) -> bool {
        a.iter().map(|value| value.to_bits()).eq(b.iter().map(|value| value.to_bits()))
    }

    #[test]
    fn a_server_that_starts_again_has_the_series_of_the_one_before() {
        let steps = FOLD * 20 + 7;
        let (before, rows) = charted(steps);
        let now = FOLD * 5_000 + steps;
        let mut after = restore(&rows, now);
        // The first sample drops what the last blob holds of a time that has not come.
        after.add(now, sample(1.0));
        let held = after.hour.held();
        assert_eq!((held.start, held.end), (now + 1 - 360, now + 1));
        for step in held.start..now {
            assert!(same(&before.farm.hour.get(step), &after.farm.hour.get(step)), "step {step}");
            let chart = |charts: &Charts| charts.workers[&WorkerId(7)].hour.get(step);
            assert_eq!(chart(&before), chart(&after), "step {step}");
        }
        for day in 5_000..5_020 {
            assert!(same(&before.farm.day.get(day), &after.farm.day.get(day)), "day {day}");
            assert!(same(&before.queues["films"].day.get(day), &after.queues["films"].day.get(day)));
            let chart = |charts: &Charts| charts.workers[&WorkerId(1 << 40)].day.get(day);
            assert_eq!(chart(&before), chart(&after));
        }
        assert_eq!(after.farm.day.get(5_003)[FarmColumn::WaitP50 as usize], 3.0);
        // It folds the step in which the other server ended as if that one had gone on.
        assert_eq!(after.add((now / FOLD + 1) * FOLD, sample(1.0)), Some(now / FOLD));
    }

    #[test]
    fn what_is_old_or_of_the_future_is_left_out() {
        let (_, rows) = charted(FOLD * 3);
        assert_eq!(restore(&rows, FOLD * 4_999).day.newest(), None);
        assert_eq!(restore(&rows, FOLD * 5_001).day.newest(), Some(5_001));
        let later = restore(&rows, FOLD * 5_201);
        assert_eq!((later.day.newest(), later.hour.newest()), (Some(5_002), None));
        assert_eq!(restore(&rows, FOLD * 5_401).day.newest(), None);
    }

    #[test]
    fn series_that_an_earlier_release_wrote_are_read() {
        let farm: Vec<u8> = [4.0f32; FARM_COLUMNS].into_iter().flat_map(f32::to_le_bytes).collect();
        let queue: Vec<u8> = [2.0f32, 3.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let of_farm = [&[1], &farm[..], b"\x05films", &queue].concat();
        let of_workers = [&[1], &7u64.to_le_bytes()[..], &[10, 11, 12, 13, 255]].concat();
        let row = |part: Part, data| SeriesRow { part: part as u8, step: 5_000, data };
        let charts = restore(&[row(Part::FarmDay, of_farm), row(Part::WorkersDay, of_workers)], FOLD * 5_001);
        assert_eq!(charts.farm.day.get(5_000), [4.0; FARM_COLUMNS]);
        assert_eq!(charts.queues["films"].day.get(5_000), [2.0, 3.0]);
        assert_eq!(charts.workers[&WorkerId(7)].day.get(5_000), [10, 11, 12, 13, 255, 255, 255]);
        // The form of today, without the columns that were added last.
        let rows = ChartRows {
            workers: vec![WorkerRows { id: 8, values: vec![1, 2, 3, 4, 5], more: Vec::new() }],
            ..ChartRows::default()
        };
        let data = [vec![FORM], rows.encode_to_vec()].concat();
        let charts = restore(&[row(Part::WorkersDay, data)], FOLD * 5_001);
        assert_eq!(charts.workers[&WorkerId(8)].day.get(5_000), [1, 2, 3, 4, 5, 255, 255]);
    }

    #[test]
    fn the_blobs_of_the_largest_farm_are_written() {
        let mut charts = Charts::default();
        let workers = (0..10_000).map(|id| (WorkerId((1 << 40) + id), [250; WORKER_COLUMNS]));
        charts.add(FOLD, Sample { workers: workers.collect(), ..sample(1.0) });
        let blobs = encode(&charts, 1);
        assert_eq!(blobs.len(), Part::ALL.len());
        assert!(blobs.iter().all(|blob| blob.data.len() < BLOB_BYTES_MAX * 3 / 4));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_store_are_a_danger(part in 0u8..6, step in 0u64..2_000,
                                            mut data in prop::collection::vec(any::<u8>(), 0..4_000), known_form in any::<bool>()) {
            if known_form && let Some(first) = data.first_mut() {
                *first = FIRST_FORM + *first % 2;
            }
            let mut charts = restore(&[SeriesRow { part, step, data }], FOLD * 1_000);
            charts.add(30_000, sample(1.0));
            charts.add(30_030, sample(1.0));
        }

        #[test]
        fn a_blob_that_is_cut_off_is_no_danger(cut in 0usize..2_000) {
            let (_, mut rows) = charted(FOLD * 2);
            rows.iter_mut().for_each(|row| row.data.truncate(cut));
            restore(&rows, FOLD * 5_002);
        }
    }
}
