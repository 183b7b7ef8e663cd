//! What earlier tasks of a kind teach: how much memory the next one is booked with, how many cpus, how long
//! it will run; and how many may go first while nothing is known.

use super::{Attempt, Engine, Outbox, Write};
use crate::bounds::PEAK_BYTES_MAX;
use crate::class::Class;
use crate::ids::{StepKey, TaskId};
use crate::job::{End, StepSpec, TaskResult};
use crate::plan::placement;
use crate::resources::Resources;
use crate::score::history::{self, PROBE_MS, Prediction, Sample, Signature};
use crate::score::windows::Metric;
use crate::tags::asks_executor;
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Ended, Health, HealthVerdict, Record, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Samples of a kind whose number is a power of two are written at once, others with the next windows.
const WRITE_AT_ONCE_BELOW: u32 = 64;

/// Steps whose tasks are taken for alike.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TaskProfile {
    pub(super) signature: Arc<Signature>,
    pub(super) prediction: Option<Prediction>,
    /// The most memory that one of its steps asks for.
    declared: u64,
    /// What a task is booked with at least, rounded up so that small differences make no new class.
    reserve: u64,
    /// What steps that leave their cpus to us are sized by: kept until what is predicted differs by enough.
    sizing: Option<Prediction>,
    /// Some of its steps leave their cpus to us.
    auto: bool,
    steps: BTreeSet<StepKey>,
    /// Attempts booked.
    active: u32,
    /// When the first of these was booked.
    since: Option<Time>,
    /// No more may be booked until more is known.
    pub(super) throttled: bool,
    /// Samples came that the store does not have.
    unsaved: bool,
}

impl TaskProfile {
    /// True if some step is of it.
    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// What the workers have that could run a class.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct FeasibleCapacity {
    largest: Resources,
    memory_per_core: u64,
}

/// Classes whose fitting workers are remembered.
const FITTINGS_MAX: usize = 4_096;

/// Rounds up to an eighth of the power of two below, so that predictions that differ little are the same.
fn rounded(bytes: u64) -> u64 {
    let unit = (bytes.next_power_of_two() / 16).max(1 << 20);
    bytes.div_ceil(unit).saturating_mul(unit)
}

impl Engine {
    /// The kin of a new step.
    pub(super) fn join_kin(&mut self, key: StepKey, queue: &str, spec: &StepSpec) -> u64 {
        let signature =
            Signature { queue: queue.to_owned(), step: spec.name.clone(), shape: spec.hints.shape.clone() };
        let id = signature.number();
        let prediction = self.histories.predict(&signature);
        let profile = self.profile.entry(id).or_insert_with(|| TaskProfile {
            signature: Arc::new(signature),
            prediction,
            declared: 0,
            reserve: prediction.as_ref().and_then(Prediction::reserve).map_or(0, rounded),
            sizing: prediction,
            auto: false,
            steps: BTreeSet::new(),
            active: 0,
            since: None,
            throttled: false,
            unsaved: false,
        });
        profile.steps.insert(key);
        profile.declared = profile.declared.max(spec.request.memory);
        profile.auto |= spec.hints.cpus_auto;
        id
    }

    /// A step is gone.
    pub(super) fn leave_kin(&mut self, id: u64, key: StepKey) {
        let Some(profile) = self.profile.get_mut(&id) else { return };
        profile.steps.remove(&key);
        if profile.steps.is_empty() && !profile.unsaved {
            self.profile.remove(&id);
        }
    }

    /// What a task of a step is expected to hold and take.
    pub(super) fn prediction(&self, profile: u64) -> Option<&Prediction> {
        self.profile.get(&profile)?.prediction.as_ref()
    }

    /// The class of a step as it is sized now: never less than was asked for, never more than the largest
    /// worker that fits it has.
    pub(super) fn sized_class(&mut self, spec: &StepSpec, profile: u64) -> Class {
        let mut class = super::submit::class_of(spec);
        let Some(profile) = self.profile.get(&profile).filter(|profile| profile.sizing.is_some()) else {
            return class;
        };
        let (reserve, prediction) = (profile.reserve, profile.sizing);
        if reserve <= class.request.memory && !spec.hints.cpus_auto {
            return class;
        }
        let fitting = self.fitting(&class);
        class.request.memory = class.request.memory.max(reserve.min(fitting.largest.memory));
        class.guess = class.request.memory - spec.request.memory;
        if let Some(prediction) = prediction.filter(|_| spec.hints.cpus_auto) {
            let cpu = history::auto_cpus(&prediction, fitting.memory_per_core, fitting.largest.cpu);
            class.request.cpu = cpu.unwrap_or(class.request.cpu).max(spec.request.cpu);
        }
        class
    }

    /// What the workers have that could run a class, looked up again when workers came or changed.
    fn fitting(&mut self, class: &Class) -> FeasibleCapacity {
        let version = self.workers.version();
        if self.feasible_capacities.0 != version || self.feasible_capacities.1.len() >= FITTINGS_MAX {
            self.feasible_capacities = (version, BTreeMap::new());
        }
        if let Some(known) = self.feasible_capacities.1.get(class) {
            return known.clone();
        }
        let (mut fitting, mut sum) = (FeasibleCapacity::default(), (0_u64, 0_u64));
        for worker in self.workers.present().filter(|worker| placement::eligible_when_idle(class, worker)) {
            fitting.largest.memory = fitting.largest.memory.max(worker.capacity.memory);
            fitting.largest.cpu = fitting.largest.cpu.max(worker.capacity.cpu);
            sum = (sum.0 + worker.capacity.memory / 1024, sum.1 + u64::from(worker.capacity.cpu));
        }
        fitting.memory_per_core = (sum.0 * 100).checked_div(sum.1).unwrap_or(0) * 1024;
        self.feasible_capacities.1.insert(class.clone(), fitting.clone());
        fitting
    }

    /// An attempt is booked, or was when the engine started.
    pub(super) fn kin_booked(&mut self, id: u64, at: Time) {
        let Some(profile) = self.profile.get_mut(&id) else { return };
        profile.active += 1;
        profile.since = profile.since.or(Some(at));
        self.gate(id);
    }

    /// An attempt is off the books.
    pub(super) fn kin_left(&mut self, id: u64) {
        let Some(profile) = self.profile.get_mut(&id) else { return };
        profile.active = profile.active.saturating_sub(1);
        if profile.active == 0 {
            profile.since = None;
        }
        self.gate(id);
    }

    /// How many attempts of the kin run while no more may, to show what they need; `None` where more may.
    pub(crate) fn throttled(&self, id: u64) -> Option<u32> {
        self.profile.get(&id).filter(|profile| profile.throttled).map(|profile| profile.active)
    }

    /// How many attempts of the kin may run at once now; `None` is no limit.
    pub(super) fn probes(&self, id: u64) -> Option<u32> {
        let profile = self.profile.get(&id).filter(|profile| profile.declared > 0)?;
        // Another system's executor never says what its work holds, and sees to limits by itself.
        let mut specs = profile.steps.iter().filter_map(|key| self.spec_of(*key));
        if specs.next().is_some_and(|spec| asks_executor(&spec.needs)) {
            return None;
        }
        let request = Resources::new(0, profile.declared);
        let longest_ms = profile.since.map(|since| self.now.since(since) / NS_PER_MS);
        history::probing(&request, self.histories.get(&profile.signature), longest_ms)
    }

    /// Opens or closes the gate before the tasks of a kin.
    pub(super) fn gate(&mut self, id: u64) {
        let throttled = self.probes(id);
        let Some(profile) = self.profile.get_mut(&id) else { return };
        let throttled = throttled.is_some_and(|most| profile.active >= most);
        if throttled != profile.throttled {
            self.probe_ends.retain(|(_, other)| *other != id);
        }
        let believed = profile.since.map(|since| since.after(PROBE_MS * NS_PER_MS));
        if let Some(at) = believed.filter(|at| throttled && *at > self.now) {
            self.probe_ends.insert((at, id));
        }
        if std::mem::replace(&mut profile.throttled, throttled) != throttled {
            let steps: Vec<StepKey> = profile.steps.iter().copied().collect();
            steps.into_iter().for_each(|key| self.refresh(key));
        }
    }

    /// Probes that have run long enough to be believed.
    pub(super) fn finish_probes(&mut self) {
        while let Some((_, id)) = self.probe_ends.first().copied().filter(|(at, _)| *at <= self.now) {
            self.probe_ends.pop_first();
            self.gate(id);
        }
    }

    /// An attempt of a kin ended: what it held and took.
    pub(super) fn learn(&mut self, task: TaskId, attempt: &Attempt, result: &TaskResult, out: &mut Outbox) {
        let capacity = self.workers.get(attempt.worker).map_or(0, |worker| worker.capacity.memory);
        let Some(sample) = sample_of(attempt, result, capacity) else { return };
        self.record_windows(&sample);
        let Some(id) = self.step(self.key_of(task)).map(|step| step.profile) else { return };
        let Some(profile) = self.profile.get_mut(&id) else { return };
        let history = self.histories.push(&profile.signature, sample);
        profile.prediction = history.and_then(history::History::predict);
        let count = profile.prediction.map_or(0, |prediction| prediction.samples);
        if sample.oom || (count < WRITE_AT_ONCE_BELOW && count.is_power_of_two()) {
            profile.unsaved = false;
            out.writes.extend(write_of(&profile.signature, history, self.now));
        } else {
            profile.unsaved = true;
            self.unsaved_history = true;
        }
        let reserve = profile.prediction.as_ref().and_then(Prediction::reserve).map_or(0, rounded);
        // More at once, for less is killed; less only where it is much.
        let resized = reserve > profile.reserve || reserve < profile.reserve / 4 * 3;
        let recored = profile.auto && !same_cores(profile.sizing.as_ref(), profile.prediction.as_ref());
        if resized || recored || profile.sizing.is_none() {
            profile.reserve = reserve;
            profile.sizing = profile.prediction;
            self.resize_kin(id);
        }
        self.gate(id);
    }

    fn record_windows(&mut self, sample: &Sample) {
        let now = self.now;
        let mut record = |metric, value: Option<u64>| {
            if let Some(value) = value {
                self.windows.record(now, metric, value as f64);
            }
        };
        record(Metric::Completed, Some(1));
        record(Metric::OomRate, Some(sample.oom.into()));
        record(Metric::WallMs, sample.wall_ms);
        record(Metric::CpuMs, sample.cpu_ms);
        record(Metric::PeakMemory, sample.peak_memory.filter(|_| !sample.oom));
        record(Metric::DiskBytes, sample.disk_bytes.filter(|bytes| *bytes > 0));
    }

    /// Gives the steps of a kin the class that they are of now.
    fn resize_kin(&mut self, id: u64) {
        let steps: Vec<StepKey> =
            self.profile.get(&id).map_or_else(Vec::new, |k| k.steps.iter().copied().collect());
        for key in steps {
            let Some(job) = self.jobs.get(&key.job).map(|job| job.spec.clone()) else { continue };
            let class = self.sized_class(&job.steps[usize::from(key.step)], id);
            let Some(step) = self.step(key) else { continue };
            if *self.classes.get(step.class) == class {
                continue;
            }
            let new = self.classes.intern(class);
            let Some(job) = self.jobs.get_mut(&key.job) else { continue };
            let queue = job.queue;
            let step = &mut job.steps[usize::from(key.step)];
            let old = std::mem::replace(&mut step.class, new);
            if let Some(queued_step) = &step.enlisted {
                self.queues.remove(queue, old, queued_step);
                self.held.remove_step(key);
                self.queues.insert(queue, new, *queued_step);
                self.needs_round = true;
            }
            self.classes.release(old);
        }
    }

    /// Samples that were not durable are written again.
    pub(super) fn save_histories_again(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::History { signature, .. } = write {
                self.lost_histories.insert(signature.clone());
                self.unsaved_history = true;
            }
        }
    }

    /// Writes what the store does not have of histories: now and then, and before the end.
    pub fn save_histories(&mut self, out: &mut Outbox) {
        let (now, histories) = (self.now, &self.histories);
        for signature in std::mem::take(&mut self.lost_histories) {
            let signature = Signature::parse(&signature);
            out.writes.extend(write_of(&signature, histories.get(&signature), now));
        }
        for profile in self.profile.values_mut().filter(|profile| profile.unsaved) {
            profile.unsaved = false;
            out.writes.extend(write_of(&profile.signature, histories.get(&profile.signature), now));
        }
        self.profile.retain(|_, profile| !profile.steps.is_empty());
        self.unsaved_history = false;
    }

    /// True if an attempt had as much memory as any worker that fits its step.
    pub(super) fn is_largest(&self, task: TaskId, attempt: &Attempt) -> bool {
        let Some(spec) = self.spec_of(self.key_of(task)) else { return false };
        let class = super::submit::class_of(spec);
        let fits = self.workers.present().filter(|worker| placement::eligible_when_idle(&class, worker));
        fits.map(|worker| worker.capacity.memory)
            .max()
            .is_some_and(|most| most > 0 && attempt.request.memory + attempt.expects >= most)
    }

    /// What the end of an attempt says of its worker. A kill for memory, at a limit or on request says nothing,
    /// nor does a launch that failed by the job's own fault.
    pub(super) fn judge_worker(&mut self, task: TaskId, attempt: &Attempt, result: &TaskResult) {
        let verdict = match &result.end {
            End::Exited(0) => HealthVerdict::Succeeded,
            End::Exited(_) | End::Signaled(_) => HealthVerdict::Failed,
            End::NotStarted(_) if result.job_at_fault => return,
            End::NotStarted(_) => HealthVerdict::NotStarted,
            End::Lost if attempt.started.is_none() => HealthVerdict::NotStarted,
            // One that was cut off may have fenced itself.
            end if super::job_lifecycle::is_unasked(attempt, end) && self.is_steady(attempt) => {
                HealthVerdict::NotStarted
            }
            End::Lost | End::OutOfMemory | End::TimeLimit | End::Canceled | End::Recalled => return,
        };
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        if verdict == HealthVerdict::Succeeded {
            self.successes.count(&job.spec.user);
        }
        job.failed_attempts += u64::from(verdict == HealthVerdict::Failed);
        let record = Record { succeeded: job.counts().succeeded.into(), failed: job.failed_attempts };
        let of = Ended { job: task.job, user: &job.spec.user, record };
        let suspicious =
            |worker: &Worker| verdict != HealthVerdict::Succeeded || worker.health != Health::default();
        if self.workers.get(attempt.worker).is_some_and(suspicious) {
            let successes = &self.successes;
            self.workers.update(attempt.worker, |w| w.health.ended(now, of, verdict, successes));
        }
    }

    /// True if the attempt's worker was connected ever since it was booked.
    fn is_steady(&self, attempt: &Attempt) -> bool {
        self.workers.get(attempt.worker).is_some_and(|w| w.connected && w.greeted <= attempt.booked)
    }

    fn spec_of(&self, key: StepKey) -> Option<&StepSpec> {
        self.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))
    }
}

/// True if tasks use as many whole cores by both predictions, give or take a tenth of one: what hovers at a whole
/// number changes nothing.
fn same_cores(before: Option<&Prediction>, now: Option<&Prediction>) -> bool {
    let cores = |p: Option<&Prediction>| {
        let (cpu_ms, wall_ms) = p.and_then(|p| p.cpu_ms.zip(p.wall_ms))?;
        Some(cpu_ms / wall_ms.max(1.0))
    };
    match (cores(before), cores(now)) {
        (Some(before), Some(now)) => {
            let whole = libm::ceil(before).max(1.0);
            now <= whole + 0.1 && (now > whole - 1.1 || whole <= 1.0)
        }
        (before, now) => before.is_none() == now.is_none(),
    }
}

fn write_of(signature: &Signature, history: Option<&history::History>, at: Time) -> Option<Write> {
    let samples = history?.samples().copied().collect();
    Some(Write::History { signature: signature.to_string(), samples, at })
}

/// What an attempt teaches; `None` of one that did not run to its own end. No task is taken to hold more than the
/// `capacity` of its worker in bytes, whatever that says; 0 is unknown.
fn sample_of(attempt: &Attempt, result: &TaskResult, capacity: u64) -> Option<Sample> {
    let oom = result.end == End::OutOfMemory;
    if !oom && result.end != End::Exited(0) {
        return None;
    }
    let ran = result.started.zip(result.finished);
    let most = if capacity > 0 { capacity } else { PEAK_BYTES_MAX };
    let peak_memory = result.peak_memory.map(|bytes| bytes.min(most));
    let limit = (attempt.request.memory + attempt.expects).max(peak_memory.unwrap_or(0));
    let killed = oom.then_some(limit.saturating_mul(2)).filter(|needs| *needs > 0);
    Some(Sample {
        peak_memory: if oom { killed } else { peak_memory },
        cpu_ms: result.cpu_ms,
        // Of one that was killed it is not how long such a task takes.
        wall_ms: ran.filter(|_| !oom).map(|(started, finished)| finished.since(started) / NS_PER_MS),
        disk_bytes: result.disk_bytes,
        oom,
    })
}
