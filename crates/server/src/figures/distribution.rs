//! Times by their size, in columns that grow by about a fifth each: enough for quantiles, and small.

use std::time::Duration;

/// Columns of each doubling.
const PARTS: usize = 4;
/// Doublings of a microsecond that are told apart: up to 12 days.
const DOUBLINGS: usize = 40;
const COLUMNS: usize = 1 + PARTS * DOUBLINGS;

/// How many times of each size there were. The counts wrap; what matters is the difference of two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    counts: Box<[u32; COLUMNS]>,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution { counts: Box::new([0; COLUMNS]) }
    }
}

impl Distribution {
    pub fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = &mut self.counts[column_of(micros)];
        *count = count.wrapping_add(1);
    }

    /// The difference to an `earlier` distribution.
    pub fn since(&self, earlier: &Distribution) -> Distribution {
        let mut counts = self.counts.clone();
        for (count, before) in counts.iter_mut().zip(earlier.counts.iter()) {
            *count = count.wrapping_sub(*before);
        }
        Distribution { counts }
    }

    /// Milliseconds that this part of the times, from 0 to 1, are at most; off by a tenth at most. `None` of none.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((all as f64 * part).ceil() as u64).max(1);
        let mut passed = 0;
        let reached = self.counts.iter().position(|count| {
            passed += u64::from(*count);
            passed >= wanted
        });
        reached.map(|column| middle_micros(column) / 1e3)
    }
}

fn column_of(micros: u64) -> usize {
    if micros == 0 {
        return 0;
    }
    let doubling = 63 - micros.leading_zeros() as usize;
    if doubling >= DOUBLINGS {
        return COLUMNS - 1;
    }
    let part = ((micros * PARTS as u64) >> doubling) as usize - PARTS;
    1 + doubling * PARTS + part
}

fn first_micros(column: usize) -> f64 {
    let (doubling, part) = ((column - 1) / PARTS, (column - 1) % PARTS);
    2f64.powi(doubling as i32) * (1.0 + part as f64 / PARTS as f64)
}

fn middle_micros(column: usize) -> f64 {
    if column == 0 { 0.0 } else { (first_micros(column) * first_micros(column + 1)).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_found_again_within_a_tenth_and_a_microsecond(micros in 0u64..(1 << 39)) {
            let mut times = Distribution::default();
            times.add(Duration::from_micros(micros));
            let found = times.quantile_ms(0.5).unwrap() * 1e3;
            prop_assert!((found - micros as f64).abs() <= micros as f64 * 0.13 + 1.0, "{micros}: {found}");
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_times(mut micros in prop::collection::vec(1u64..10_000_000, 1..200),
                                                   part in 0.0f64..1.0) {
            let mut times = Distribution::default();
            micros.iter().for_each(|micros| times.add(Duration::from_micros(*micros)));
            micros.sort_unstable();
            let exact = micros[((micros.len() as f64 * part).ceil() as usize).max(1) - 1] as f64;
            let found = times.quantile_ms(part).unwrap() * 1e3;
            prop_assert!((found - exact).abs() <= exact * 0.13 + 1.0, "{exact}: {found}");
        }
    }

    #[test]
    fn a_difference_has_only_what_came_between() {
        let mut times = Distribution::default();
        times.add(Duration::from_secs(100));
        let before = times.clone();
        assert_eq!(times.since(&before).quantile_ms(0.5), None);
        times.add(Duration::ZERO);
        times.add(Duration::MAX);
        assert_eq!(times.since(&before).quantile_ms(0.5), Some(0.0));
        assert!(times.quantile_ms(0.95).unwrap() > 1e6);
    }
}
