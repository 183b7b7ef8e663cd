//! Means over the last 5 minutes, hour and day of the farm. Thresholds of rules are relative to them.

use crate::time::{NS_PER_S, Time};
use std::ops::Index;

/// What means are kept of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Metric {
    /// Seconds from ready to booked.
    WaitS,
    /// Milliseconds from start to end.
    WallMs,
    /// Most bytes of memory at one time.
    PeakMemory,
    /// Processor time in milliseconds.
    CpuMs,
    /// Bytes read and written.
    DiskBytes,
    /// Speed of workers' networks in Mbit/s.
    NetworkMbitS,
    /// 1 for an attempt killed for memory, else 0.
    OomRate,
    /// Bytes that a booked task had to fetch.
    MissingBytes,
    /// Keys that a booked task had to fetch.
    MissingKeys,
    /// What waited for a booked task.
    Dependents,
    /// Tasks that ended: a count, not a mean.
    Completed,
}

/// How many metrics there are.
const METRICS: usize = Metric::Completed as usize + 1;

impl Metric {
    /// All metrics, in the order of the enum.
    pub const ALL: [Metric; METRICS] = [
        Metric::WaitS,
        Metric::WallMs,
        Metric::PeakMemory,
        Metric::CpuMs,
        Metric::DiskBytes,
        Metric::NetworkMbitS,
        Metric::OomRate,
        Metric::MissingBytes,
        Metric::MissingKeys,
        Metric::Dependents,
        Metric::Completed,
    ];

    /// Its name for people and programs, with its unit.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::WaitS => "wait_s",
            Metric::WallMs => "wall_ms",
            Metric::PeakMemory => "peak_bytes",
            Metric::CpuMs => "cpu_ms",
            Metric::DiskBytes => "disk_bytes",
            Metric::NetworkMbitS => "network_mbit_s",
            Metric::OomRate => "oom_rate",
            Metric::MissingBytes => "missing_bytes",
            Metric::MissingKeys => "missing_keys",
            Metric::Dependents => "dependents",
            Metric::Completed => "completed",
        }
    }
}

/// One metric over the three windows; `None` where nothing was recorded.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Windowed {
    /// The last 5 minutes.
    pub w5m: Option<f64>,
    /// Mean of the last hour; `None` without a value in it.
    pub w1h: Option<f64>,
    /// The last 24 hours.
    pub w24h: Option<f64>,
}

/// All metrics as they were at one time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct InstanceWindows([Windowed; METRICS]);

impl InstanceWindows {
    /// Sets the means of one metric.
    pub fn set(&mut self, metric: Metric, to: Windowed) {
        self.0[metric as usize] = to;
    }
}

impl Index<Metric> for InstanceWindows {
    type Output = Windowed;

    fn index(&self, metric: Metric) -> &Windowed {
        &self.0[metric as usize]
    }
}

/// How often [`Windows::recompute`] is worth its cost where no setting says it, in nanoseconds.
pub const RECOMPUTE_NS: u64 = 30 * NS_PER_S;

/// Sums by time, in buckets: the memory does not grow. A window is right to one bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct Windows {
    metrics: [Sums; METRICS],
}

impl Default for Windows {
    fn default() -> Self {
        Windows { metrics: std::array::from_fn(|_| Sums::default()) }
    }
}

impl Windows {
    /// Counts a value. One that is not finite is left out.
    pub fn record(&mut self, now: Time, metric: Metric, value: f64) {
        if value.is_finite() {
            let sums = &mut self.metrics[metric as usize];
            sums.w5m.add(now, value);
            sums.w1h.add(now, value);
            sums.w24h.add(now, value);
        }
    }

    /// The windows that end now.
    pub fn recompute(&self, now: Time) -> InstanceWindows {
        let mut all = InstanceWindows::default();
        for (to, sums) in all.0.iter_mut().zip(&self.metrics) {
            *to = Windowed { w5m: sums.w5m.mean(now), w1h: sums.w1h.mean(now), w24h: sums.w24h.mean(now) };
        }
        let completed = &self.metrics[Metric::Completed as usize];
        let count = |(count, _): (u64, f64)| Some(count as f64);
        let completed = Windowed {
            w5m: count(completed.w5m.total(now)),
            w1h: count(completed.w1h.total(now)),
            w24h: count(completed.w24h.total(now)),
        };
        all.set(Metric::Completed, completed);
        all
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Sums {
    w5m: Ring<10, { 30 * NS_PER_S }>,
    w1h: Ring<12, { 300 * NS_PER_S }>,
    w24h: Ring<24, { 3600 * NS_PER_S }>,
}

/// A row of buckets, each of `NS` nanoseconds.
#[derive(Clone, PartialEq, Debug)]
struct Ring<const BUCKETS: usize, const NS: u64> {
    buckets: [WindowBucket; BUCKETS],
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct WindowBucket {
    /// Which stretch of time the sums are of.
    number: u64,
    count: u64,
    sum: f64,
}

impl<const BUCKETS: usize, const NS: u64> Default for Ring<BUCKETS, NS> {
    fn default() -> Self {
        Ring { buckets: [WindowBucket::default(); BUCKETS] }
    }
}

impl<const BUCKETS: usize, const NS: u64> Ring<BUCKETS, NS> {
    fn add(&mut self, now: Time, value: f64) {
        let number = now.0 / NS;
        let bucket = &mut self.buckets[(number % BUCKETS as u64) as usize];
        if bucket.number != number {
            *bucket = WindowBucket { number, ..WindowBucket::default() };
        }
        bucket.count += 1;
        bucket.sum += value;
    }

    fn total(&self, now: Time) -> (u64, f64) {
        let number = now.0 / NS;
        let inside =
            |bucket: &&WindowBucket| bucket.number <= number && bucket.number + BUCKETS as u64 > number;
        let inside = self.buckets.iter().filter(inside);
        inside.fold((0, 0.0), |(count, sum), bucket| (count + bucket.count, sum + bucket.sum))
    }

    fn mean(&self, now: Time) -> Option<f64> {
        let (count, sum) = self.total(now);
        (count > 0).then(|| sum / count as f64).filter(|mean| mean.is_finite())
    }
}
