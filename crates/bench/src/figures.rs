//! The figures of a run: medians of samples, and what this process has used.

use anyhow::Context as _;
use std::time::{Duration, Instant};

pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which this part of all lies; `part` is between 0 and 1.
pub fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Milliseconds that the work takes, and its result, whose drop is not counted.
pub fn elapsed_ms<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let clock = Instant::now();
    let result = std::hint::black_box(work());
    (clock.elapsed().as_secs_f64() * 1e3, result)
}

/// Processor time of this process so far.
pub fn cpu_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
}

pub fn resident_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("statm has no second field")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Bytes in MiB, for people.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
