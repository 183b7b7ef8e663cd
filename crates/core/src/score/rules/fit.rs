//! Whether the worker has enough for the task: by what earlier tasks took, and by what other programs take there now.

use super::known;
use crate::job::Kind;
use crate::score::context::Pair;
use crate::score::rule::{
    CORES_IN_USE, CORES_IN_USE_BESIDE_CLIENTS, Contribution, MEMORY_IN_USE, MEMORY_SHORT, ScoreRule,
};
use crate::score::weights;
use crate::score::windows::Metric;

/// Points off where predicted memory exceeds what is free, points for heavy steps on fast cores.
pub struct ResourceFit;

impl ScoreRule for ResourceFit {
    fn name(&self) -> &'static str {
        "ResourceFitRule"
    }

    fn description(&self) -> &'static str {
        "Prefers workers with room for the memory that earlier tasks held, and fast cores for what is heavy \
         on the processor."
    }

    fn range(&self) -> (f64, f64) {
        // A job and a farm of which every attempt is killed for memory double it twice.
        let off = weights::MEMORY_OVERSHOOT * weights::OVERSHOOT_MAX * 2.0 * 2.0;
        (off, weights::CORE_SPEED * weights::CORE_SPEED_MAX)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let (memory, speed) = (overshoot(pair), core_speed(pair));
        let reason = match (memory < 0.0, speed > 0.0) {
            (true, true) => "more memory than is free, and heavy on the processor",
            (true, false) => "it is predicted to hold more memory than is free",
            (false, true) => "heavy on the processor: the speed of the worker's cores",
            (false, false) => "nothing known against it",
        };
        Contribution::points(memory + speed, reason)
    }
}

/// From -3200 to 0.
fn overshoot(pair: &Pair) -> f64 {
    let Some(prediction) = &pair.job.prediction else { return 0.0 };
    let (Some(needs), Some(free)) = (prediction.memory(), pair.worker.memory_free) else { return 0.0 };
    if needs <= free {
        return 0.0;
    }
    // Of nothing free everything is the most: the ratio's limit, not an exception from it.
    let over = (needs - free) as f64 / free as f64;
    let killed = known(Some(prediction.oom_rate)).unwrap_or(0.0).min(1.0);
    let killed_here = known(pair.instance.windows[Metric::OomRate].w1h).unwrap_or(0.0).min(1.0);
    weights::MEMORY_OVERSHOOT * over.min(weights::OVERSHOOT_MAX) * (1.0 + killed) * (1.0 + killed_here)
}

/// From 0 to 100. Measured by the farm's mean: Gradient's fixed yardstick is passed by every processor of
/// today. How fast a task with a jobserver is follows from its share of the worker: the load says that, and any points
/// for the speed of one core would crowd such tasks on the fastest worker, which their bookings never fill.
fn core_speed(pair: &Pair) -> f64 {
    if pair.job.has_jobserver {
        return 0.0;
    }
    let Some(cpu_ms) = pair.job.prediction.as_ref().and_then(|prediction| prediction.cpu_ms) else {
        return 0.0;
    };
    let (score, mean) = (known(pair.worker.core_score), known(pair.instance.core_score));
    let (Some(score), Some(mean)) = (score, mean.filter(|mean| *mean > 0.0)) else { return 0.0 };
    if cpu_ms > known(pair.instance.windows[Metric::CpuMs].w1h).unwrap_or(weights::CPU_MS) {
        weights::CORE_SPEED * (score / mean).min(weights::CORE_SPEED_MAX)
    } else {
        0.0
    }
}

/// Holds a worker that others keep busy, or whose memory would not suffice.
pub struct ResourceSaturation;

impl ScoreRule for ResourceSaturation {
    fn name(&self) -> &'static str {
        "ResourceSaturationRule"
    }

    fn description(&self) -> &'static str {
        "Holds builds from workers of which something else uses the processor or the memory, and everything \
         from workers without room for the memory that earlier tasks held."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.job.kind != Kind::Evaluation && !lacks_predicted(pair) && is_busy(pair) {
            let is_external = pair.job.is_external;
            return Contribution::hold(if is_external { CORES_IN_USE_BESIDE_CLIENTS } else { CORES_IN_USE });
        }
        MemorySaturation.contribution(pair)
    }
}

/// Holds what the worker has no memory for. Cores are another matter: they are shared fairly with whatever
/// else wants them, so where others use those of all workers, work goes on there, only slower.
pub struct MemorySaturation;

impl ScoreRule for MemorySaturation {
    fn name(&self) -> &'static str {
        "MemorySaturationRule"
    }

    fn description(&self) -> &'static str {
        "Holds builds from workers of which something else uses the memory, and everything from workers \
         without room for the memory that earlier tasks held."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if lacks_predicted(pair) {
            return Contribution::hold(MEMORY_SHORT);
        }
        if pair.job.kind == Kind::Evaluation {
            return Contribution::none("an evaluation");
        }
        if is_short(pair) {
            return Contribution::hold(MEMORY_IN_USE);
        }
        Contribution::none("nothing known against it")
    }
}

/// True if the memory to keep for the task is not free. What is more than any worker has is run with all of
/// the largest one instead of never.
fn lacks_predicted(pair: &Pair) -> bool {
    let reserve = pair.job.prediction.as_ref().and_then(|prediction| prediction.reserve());
    let (Some(reserve), Some(free)) = (reserve, pair.worker.memory_free) else { return false };
    let Some(largest) = pair.job.largest_memory.filter(|largest| *largest < reserve) else {
        return reserve > free;
    };
    pair.worker.capacity.memory < largest || pair.worker.booked.memory > 0
}

/// True if other programs use so large a part of the cores that a task would only slow both down. What tasks use does not
/// count, or a full booking would veto the worker for ever. A task with a jobserver slows nothing down: it holds little
/// itself, and gets tokens by what is left. Work that asks for no cpu runs in the place of something that holds one.
/// Tasks wait for tasks to end, and outside clients for outside clients: so one of each goes on, however long the others
/// last.
fn is_busy(pair: &Pair) -> bool {
    let slows = !pair.job.has_jobserver && pair.job.request.cpu > 0;
    let foreign = match pair.job.is_external {
        true => pair.worker.foreign_cpu_beside_clients,
        false => pair.worker.foreign_cpu,
    };
    let Some(foreign) = known(foreign).filter(|_| slows) else { return false };
    let most = if pair.job.has_arch { weights::FOREIGN_CPU_MAX } else { weights::FOREIGN_CPU_MAX_BUILTIN };
    let cores = f64::from(pair.worker.capacity.cpu) / 100.0;
    cores > 0.0 && foreign / cores >= most
}

/// True if memory is nearly used up and the task would take more than what is left. That our own tasks hold
/// most of it is as it should be.
fn is_short(pair: &Pair) -> bool {
    let (Some(available), total) = (pair.worker.memory_available, pair.worker.capacity.memory) else {
        return false;
    };
    let predicted = pair.job.prediction.as_ref().and_then(|prediction| prediction.reserve());
    let takes = predicted.unwrap_or(pair.job.request.memory);
    let scarce = available as f64 <= total as f64 * weights::MEMORY_FREE_MIN;
    total > 0 && scarce && (takes == 0 || takes > available)
}
