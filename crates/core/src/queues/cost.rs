//! What a booking costs its queue while `charge` is `time`: its dominant share of the worker, for the time for which it
//! holds that.

use crate::resources::Resources;

/// What bookings cost a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// The time that they hold of a worker: an estimate at first, corrected when they end.
    #[default]
    Time,
    /// One each. In this mode no queue that always has work is ever more than one task from its share.
    Task,
}

/// Milliseconds that a task without history is assumed to run. Kept small: virtual time follows charges, so a refund
/// of an overestimate leaves queues that joined meanwhile behind.
pub(crate) const UNKNOWN_MS: u64 = 2_000;
/// A booking is charged one part in this many of its estimate in advance; the rest is charged as the task runs. A queue
/// that starts many long tasks at once holds no more than its share of the workers yet: charged for all of their time,
/// it would wait with the next one as if it had held them to their ends.
pub(crate) const ADVANCE: u64 = 2;

/// Hundredths of core-milliseconds; never nothing, so that tasks of no length have turns too.
pub(crate) fn cost(share: u32, ms: u64) -> u64 {
    u64::from(share.max(1)).saturating_mul(ms).clamp(1, i64::MAX as u64)
}

/// What a booking without an estimate of its own is charged at first: half of the queue's mean run time.
pub(crate) fn first_cost(share: u32, mean_ms: Option<f64>) -> u64 {
    cost(share, mean_ms.map_or(UNKNOWN_MS, |ms| ms as u64) / ADVANCE)
}

/// The largest part of any amount of the worker that a task holds, as hundredths of a core of that worker.
pub(crate) fn dominant_share(request: &Resources, headroom_bytes: u64, capacity: &Resources) -> u32 {
    let part = |holds: u64, of: u64| if of == 0 { 0.0 } else { holds as f64 / of as f64 };
    let parts = [
        part(request.cpu.into(), capacity.cpu.into()),
        part(request.memory + headroom_bytes, capacity.memory),
        part(request.gpus.into(), capacity.gpus.into()),
        part(request.gpu_memory, capacity.gpu_memory),
    ];
    let custom = request.custom.iter();
    let custom = custom.map(|(name, holds)| part(*holds, capacity.custom.get(name).copied().unwrap_or(0)));
    let largest = parts.into_iter().chain(custom).fold(0.0, f64::max).min(1.0);
    libm::ceil(largest * f64::from(capacity.cpu)) as u32
}
