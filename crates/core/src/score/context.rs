//! What rules see of a step, a worker, both together, and the farm. All are plain numbers, cheap to make
//! for each pair: nothing is looked up while rules judge. Unknown is `None`, never 0.

use super::history::Prediction;
use super::windows::InstanceWindows;
use crate::cache_keys::Missing;
use crate::job::{Hints, Kind};
use crate::resources::Resources;

/// A step and a worker that could run a task of it, judged together.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// What rules see of the step.
    pub job: &'a JobContext,
    /// What rules see of the worker.
    pub worker: &'a WorkerContext,
    /// What rules see of the farm.
    pub instance: &'a InstanceContext,
    /// What the step reads from caches and the worker lacks; `None` while the worker has not said what its
    /// caches hold. See [`cache_keys`](crate::cache_keys).
    pub missing: Option<Missing>,
    /// Hundredths of a core that tasks of this step hold on this worker.
    pub step_cpu: u32,
    /// How much of what earlier tasks of the kind left behind is still there, 0 to 1: see
    /// [`Warmth`](crate::worker::Warmth).
    pub warmth: f64,
    /// Other steps could use this worker's room.
    pub others_wait: bool,
    /// The worker's load with one task of the step more, from 0; infinite where nothing is left.
    pub load: f64,
}

impl Pair<'_> {
    /// True if another pair with the same step gets the same points, because the rules see the same of its worker.
    pub fn is_of_like_worker(&self, other: &Pair) -> bool {
        // All fields are named, so that a new one is not forgotten here.
        let Pair { job: _, worker, instance: _, missing, step_cpu, warmth, others_wait: _, load } = self;
        *load == other.load
            && *worker == other.worker
            && *step_cpu == other.step_cpu
            && *warmth == other.warmth
            && *missing == other.missing
    }
}

/// A step of which a task looks for a worker.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct JobContext {
    /// What sort of work it is.
    pub kind: Kind,
    /// It needs an architecture. One that does not (Gradient's `builtin`) does hardly anything itself.
    pub has_arch: bool,
    /// It mostly waits for the network.
    pub network_bound: bool,
    /// It is short, and best run where its inputs are.
    pub prefer_local: bool,
    /// It needs a worker that fetches.
    pub fetches: bool,
    /// Its tasks have a jobserver: how many processes they run follows the cpus that are left.
    pub has_jobserver: bool,
    /// An outside client runs it.
    pub is_external: bool,
    /// Milliseconds since it was ready.
    pub waited_ms: u64,
    /// Milliseconds after which it should have started; `None` is the policy's default.
    pub deadline_ms: Option<u64>,
    /// How much waits for it: see [`Dependents::weight`](super::dependents::Dependents::weight).
    pub dependents: f64,
    /// What a task would be booked with.
    pub request: Amounts,
    /// The most memory that any worker which fits the step has; `None` where that is not known.
    pub largest_memory: Option<u64>,
    /// What earlier tasks of the kind held and took.
    pub prediction: Option<Prediction>,
}

impl JobContext {
    /// What a step says of itself; the rest is to be filled in.
    pub fn of(hints: &Hints, has_arch: bool, request: Amounts) -> Self {
        JobContext {
            kind: hints.kind,
            has_arch,
            network_bound: hints.network_bound,
            prefer_local: hints.prefer_local,
            fetches: hints.fetches,
            has_jobserver: hints.jobserver.is_some(),
            deadline_ms: hints.deadline_ms,
            request,
            ..JobContext::default()
        }
    }
}

/// A worker that has room.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WorkerContext {
    /// What the worker declares.
    pub capacity: Amounts,
    /// What is booked there.
    pub booked: Amounts,
    /// Bytes that a new task could have: the least of what the report and what the bookings leave.
    pub memory_free: Option<u64>,
    /// Bytes that could be had without swapping, as the worker reports it.
    pub memory_available: Option<u64>,
    /// Cores that other programs use; `None` also where tasks without a jobserver hold less than
    /// [`BESIDE_FOREIGN_CPU_MIN`](super::weights::BESIDE_FOREIGN_CPU_MIN).
    pub foreign_cpu: Option<f64>,
    /// The same where outside clients have less than that.
    pub foreign_cpu_beside_clients: Option<f64>,
    /// Speed of one core; the reference core has 1000.
    pub core_score: Option<f64>,
    /// Speed of its disks in MB/s.
    pub disk_mb_s: Option<f64>,
    /// Speed of its network in Mbit/s.
    pub network_mbit_s: Option<f64>,
    /// It fetches (tag `fetch`).
    pub fetches: bool,
    /// It names an architecture. One that does not runs only what needs none.
    pub has_arch: bool,
}

/// The farm as rules see it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct InstanceContext {
    /// Means over the last minutes and hours.
    pub windows: InstanceWindows,
    /// Workers that take work and run none.
    pub idle_workers: u32,
    /// Workers that take work.
    pub total_workers: u32,
    /// Mean of the workers' core scores.
    pub core_score: Option<f64>,
    /// Milliseconds after which a task should have started where its step does not say.
    pub deadline_ms: Option<u64>,
}

/// The amounts of [`Resources`] that have a place of their own, without the named ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts {
    /// Hundredths of a core.
    pub cpu: u32,
    /// Gpus: a device is never shared.
    pub gpus: u32,
    /// Bytes of main memory.
    pub memory: u64,
    /// Bytes over all of the devices.
    pub gpu_memory: u64,
}

impl From<&Resources> for Amounts {
    fn from(all: &Resources) -> Self {
        Amounts { cpu: all.cpu, gpus: all.gpus, memory: all.memory, gpu_memory: all.gpu_memory }
    }
}
