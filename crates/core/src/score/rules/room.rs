//! How full a worker is, and how full the task would make it.

use crate::score::context::Pair;
use crate::score::rule::{Contribution, ScoreRule};
use crate::score::weights;
use crate::workers::Saturation;

/// Points for little load.
pub struct Pressure;

impl ScoreRule for Pressure {
    fn name(&self) -> &'static str {
        "PressureRule"
    }

    fn description(&self) -> &'static str {
        "Prefers the least loaded worker: bookings and others' use by cores, raised by stalls for processor, \
         memory and disks."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::PRESSURE)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        // Infinite load gives no points; what is no number is taken for that.
        let value = if pair.load >= 0.0 { weights::PRESSURE / (1.0 + pair.load) } else { 0.0 };
        Contribution::points(value, "the worker's load with the task")
    }
}

/// Points off by how much scarcer the task makes what is scarce: the sum over resources of
/// `w * (e^(after/total) - e^(before/total))`, after OpenCue's Maestro.
pub struct Packing {
    /// What is filled where it is fullest: its cost counts for the worker instead of against it.
    pub saturation: Saturation,
}

impl ScoreRule for Packing {
    fn name(&self) -> &'static str {
        "PackingRule"
    }

    fn description(&self) -> &'static str {
        "Prefers the worker of which the task takes least that is scarce; with saturation, the fullest one."
    }

    fn range(&self) -> (f64, f64) {
        let most = (std::f64::consts::E - 1.0) * weights::PACKING.abs();
        let all = weights::PACKING_CORES
            + weights::PACKING_MEMORY
            + weights::PACKING_GPUS
            + weights::PACKING_GPU_MEMORY;
        (-most * all, most * (weights::PACKING_CORES + weights::PACKING_MEMORY))
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let (has, booked, takes) = (&pair.worker.capacity, &pair.worker.booked, &pair.job.request);
        let cores = scarcer(has.cpu.into(), booked.cpu.into(), takes.cpu.into());
        let memory = scarcer(has.memory, booked.memory, takes.memory);
        let gpus = scarcer(has.gpus.into(), booked.gpus.into(), takes.gpus.into());
        let gpu_memory = scarcer(has.gpu_memory, booked.gpu_memory, takes.gpu_memory);
        let turned = |saturated: bool, weight: f64| if saturated { -weight } else { weight };
        let cost = turned(self.saturation.cores, weights::PACKING_CORES) * cores
            + turned(self.saturation.memory, weights::PACKING_MEMORY) * memory
            + weights::PACKING_GPUS * gpus
            + weights::PACKING_GPU_MEMORY * gpu_memory;
        Contribution::points(weights::PACKING * cost, "what the task takes of what is scarce here")
    }
}

/// `e^(after/total) - e^(before/total)`, from 0 to e - 1; 0 where nothing is taken or there is nothing.
fn scarcer(total: u64, before: u64, takes: u64) -> f64 {
    if takes == 0 || total == 0 {
        return 0.0;
    }
    let part = |amount: u64| (amount as f64 / total as f64).min(1.0);
    libm::exp(part(before.saturating_add(takes))) - libm::exp(part(before))
}
