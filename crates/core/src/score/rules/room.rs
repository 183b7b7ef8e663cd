//! How full a worker is, and how full the task would make it.

use crate::score::context::Pair;
use crate::score::rule::{Contribution, ScoreRule};
use crate::score::weights;
use crate::worker::Saturation;

/// Points for little load.
pub struct LowPressure;

impl ScoreRule for LowPressure {
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
        // Infinite load gives no points; NaN is taken for that.
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
        let costs = self.weights().map(|weight| weight * weights::PACKING * (std::f64::consts::E - 1.0));
        (costs.iter().filter(|c| **c < 0.0).sum(), costs.iter().filter(|c| **c > 0.0).sum())
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.job.has_jobserver {
            return Contribution::none("it goes where its share of the cpus is largest");
        }
        let (has, booked, takes) = (&pair.worker.capacity, &pair.worker.booked, &pair.job.request);
        let scarcer = [
            scarcer(has.cpu.into(), booked.cpu.into(), takes.cpu.into()),
            scarcer(has.memory, booked.memory, takes.memory),
            scarcer(has.gpus.into(), booked.gpus.into(), takes.gpus.into()),
            scarcer(has.gpu_memory, booked.gpu_memory, takes.gpu_memory),
        ];
        let cost: f64 = scarcer.iter().zip(self.weights()).map(|(scarcer, weight)| scarcer * weight).sum();
        // Rounding can go past the range by a hair.
        let (least, most) = self.range();
        let value = (weights::PACKING * cost).clamp(least, most);
        Contribution::points(value, "what the task takes of what is scarce here")
    }
}

impl Packing {
    /// Of cores, memory, gpus and their memory.
    fn weights(&self) -> [f64; 4] {
        let turned = |saturated: bool, weight: f64| if saturated { -weight } else { weight };
        [
            turned(self.saturation.cores, weights::PACKING_CORES),
            turned(self.saturation.memory, weights::PACKING_MEMORY),
            weights::PACKING_GPUS,
            weights::PACKING_GPU_MEMORY,
        ]
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

/// A point for each MiB that a task could have: more is better, whatever the size of the worker.
pub struct FreeMemory;

impl ScoreRule for FreeMemory {
    fn name(&self) -> &'static str {
        "FreeMemoryRule"
    }

    fn description(&self) -> &'static str {
        "Prefers the worker with the most free memory, which spreads work over machines."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::FREE_MEMORY_MIB)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let mib = pair.worker.memory_free.map_or(0.0, |bytes| (bytes >> 20) as f64);
        Contribution::points(mib.min(weights::FREE_MEMORY_MIB), "its free memory in MiB")
    }
}
