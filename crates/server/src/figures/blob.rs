//! Series as the store keeps them: bytes for each step of the day, written once when it is over.
//!
//! Each blob begins with a byte for its form. What a later release wrote in another form is skipped: charts begin again.

use super::charts::{
    Charts, FARM_COLUMNS, FOLD, FarmRow, QUEUE_COLUMNS, QueueRow, Row, WORKER_COLUMNS, WorkerRow,
};
use super::timeline::Ring;
use std::ops::Range;
use windlass_core::WorkerId;
use windlass_store::SeriesRow;

/// The form of these blobs.
const FORM: u8 = 1;
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

    /// Steps of the day for which blobs of this part are kept.
    pub fn kept_steps(self) -> u64 {
        match self {
            Part::FarmDay | Part::WorkersDay => super::charts::DAY_STEPS as u64,
            Part::FarmHour | Part::WorkersHour => super::charts::HOUR_STEPS as u64 / FOLD,
        }
    }

    /// How many rows a series has in a blob.
    fn rows(self) -> u64 {
        if matches!(self, Part::FarmDay | Part::WorkersDay) { 1 } else { FOLD }
    }
}

/// A row as bytes.
trait Bytes: Row {
    const LEN: usize;
    fn write(&self, to: &mut Vec<u8>);
    /// `bytes` has `LEN`.
    fn read(bytes: &[u8]) -> Self;
}

fn write_floats(row: &[f32], to: &mut Vec<u8>) {
    row.iter().for_each(|value| to.extend(value.to_le_bytes()));
}

fn read_float(bytes: &[u8], column: usize) -> f32 {
    let value = bytes.get(column * 4..column * 4 + 4).and_then(|bytes| bytes.try_into().ok());
    value.map_or(f32::NAN, f32::from_le_bytes)
}

impl Bytes for FarmRow {
    const LEN: usize = FARM_COLUMNS * 4;

    fn write(&self, to: &mut Vec<u8>) {
        write_floats(self, to);
    }

    fn read(bytes: &[u8]) -> Self {
        std::array::from_fn(|column| read_float(bytes, column))
    }
}

impl Bytes for QueueRow {
    const LEN: usize = QUEUE_COLUMNS * 4;

    fn write(&self, to: &mut Vec<u8>) {
        write_floats(self, to);
    }

    fn read(bytes: &[u8]) -> Self {
        std::array::from_fn(|column| read_float(bytes, column))
    }
}

impl Bytes for WorkerRow {
    const LEN: usize = WORKER_COLUMNS;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self);
    }

    fn read(bytes: &[u8]) -> Self {
        std::array::from_fn(|column| bytes.get(column).copied().unwrap_or(Self::GAP[column]))
    }
}

/// The blobs of a step of the day.
pub fn encode(charts: &Charts, day: u64) -> Vec<SeriesRow> {
    let rows = Part::ALL.into_iter().map(|part| {
        let mut data = vec![FORM];
        match part {
            Part::FarmDay | Part::FarmHour => {
                write_rows(&mut data, part, day, &charts.farm.hour, &charts.farm.day, charts);
                for (name, chart) in &charts.queues {
                    // Names have at most 255 bytes.
                    let Ok(len) = u8::try_from(name.len()) else { continue };
                    data.push(len);
                    data.extend(name.as_bytes());
                    write_rows(&mut data, part, day, &chart.hour, &chart.day, charts);
                }
            }
            Part::WorkersDay | Part::WorkersHour => {
                for (id, chart) in &charts.workers {
                    data.extend(id.0.to_le_bytes());
                    write_rows(&mut data, part, day, &chart.hour, &chart.day, charts);
                }
            }
        }
        SeriesRow { part: part as u8, step: day, data }
    });
    rows.filter(|row| row.data.len() <= BLOB_BYTES_MAX).collect()
}

fn write_rows<R: Bytes>(
    data: &mut Vec<u8>,
    part: Part,
    day: u64,
    hour_ring: &Ring<R>,
    day_ring: &Ring<R>,
    charts: &Charts,
) {
    if part.rows() == 1 {
        return day_ring.get(day).write(data);
    }
    let held = charts.hour.held();
    for step in day * FOLD..(day + 1) * FOLD {
        let row = if held.contains(&step) { hour_ring.get(step) } else { R::GAP };
        row.write(data);
    }
}

/// Series from what the store has, for a server that starts in this step of the hour. What is older than a day, or of a
/// time that has not come, is left out.
pub fn restore(rows: &[SeriesRow], now: u64) -> Charts {
    let (mut charts, today) = (Charts::default(), now / FOLD);
    let mut rows: Vec<&SeriesRow> = rows.iter().filter(|row| row.step <= today).collect();
    rows.sort_by_key(|row| (row.step, row.part));
    for row in rows {
        let Some(part) = Part::ALL.into_iter().find(|part| *part as u8 == row.part) else { continue };
        let Some((&FORM, data)) = row.data.split_first() else { continue };
        if row.step + part.kept_steps() < today {
            continue;
        }
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
        read_blob(&mut charts, part, row.step, data);
    }
    charts
}

/// What is cut off in the middle ends there.
fn read_blob(charts: &mut Charts, part: Part, day: u64, data: &[u8]) -> Option<()> {
    let (mut data, held) = (data, charts.hour.held());
    let of_farm = matches!(part, Part::FarmDay | Part::FarmHour);
    if of_farm {
        let rows = take(&mut data, FarmRow::LEN * part.rows() as usize)?;
        let farm = &mut charts.farm;
        set_rows((&mut farm.hour, &mut farm.day), part, day, &held, rows);
    }
    while !data.is_empty() {
        let seen = (day + 1) * FOLD - 1;
        if of_farm {
            let len = take(&mut data, 1)?[0];
            let name = std::str::from_utf8(take(&mut data, len.into())?).ok()?;
            let rows = take(&mut data, QueueRow::LEN * part.rows() as usize)?;
            if let Some(chart) = charts.queue_seen(name, seen) {
                set_rows((&mut chart.hour, &mut chart.day), part, day, &held, rows);
            }
        } else {
            let id = WorkerId(u64::from_le_bytes(take(&mut data, 8)?.try_into().ok()?));
            let rows = take(&mut data, WorkerRow::LEN * part.rows() as usize)?;
            if let Some(chart) = charts.worker_seen(id, seen) {
                set_rows((&mut chart.hour, &mut chart.day), part, day, &held, rows);
            }
        }
    }
    Some(())
}

fn set_rows<R: Bytes>(
    (hour, day_ring): (&mut Ring<R>, &mut Ring<R>),
    part: Part,
    day: u64,
    held: &Range<u64>,
    rows: &[u8],
) {
    for (n, row) in (0u64..).zip(rows.chunks_exact(R::LEN)) {
        match part.rows() {
            1 => day_ring.set(day, R::read(row)),
            _ if held.contains(&(day * FOLD + n)) => hour.set(day * FOLD + n, R::read(row)),
            // Of a time that has not come.
            _ => {}
        }
    }
}

fn take<'a>(data: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (first, rest) = data.split_at_checked(len)?;
    *data = rest;
    Some(first)
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
            workers: vec![(WorkerId(7), [value as u8, 1, 2, 3, 255]), (WorkerId(1 << 40), [9; 5])],
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

    proptest! {
        #[test]
        fn no_bytes_of_a_store_are_a_danger(part in 0u8..6, step in 0u64..2_000,
                                            mut data in prop::collection::vec(any::<u8>(), 0..4_000), good in any::<bool>()) {
            if good && let Some(first) = data.first_mut() {
                *first = FORM;
            }
            let mut charts = restore(&[SeriesRow { part, step, data }], FOLD * 1_000);
            charts.add(30_000, sample(1.0));
            charts.add(30_030, sample(1.0));
        }

        #[test]
        fn a_blob_that_is_cut_off_is_read_as_far_as_it_goes(cut in 0usize..2_000) {
            let (_, mut rows) = charted(FOLD * 2);
            rows.iter_mut().for_each(|row| row.data.truncate(cut));
            restore(&rows, FOLD * 5_002);
        }
    }
}
