//! What ended attempts teach: about their signature, their worker and the farm.

use super::submit::class_of;
use super::{Attempt, Engine, Outbox, Write};
use crate::bounds::PEAK_BYTES_MAX;
use crate::class::Class;
use crate::ids::{StepKey, TaskId};
use crate::job::{End, Job, JobSpec, LaunchFault, TaskResult};
use crate::plan::placement;
use crate::profiles::SizedPart;
use crate::score::history::{History, Sample, Signature};
use crate::score::windows::Metric;
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Ended, Health, HealthVerdict, Record, Worker};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// The class of a step as it is sized now. What starts together is sized together, and the class of the step that
    /// leads has those of the others. `profile_of` returns the number of a step's signature.
    pub(super) fn sized_class(
        &mut self,
        spec: &JobSpec,
        number: usize,
        has_gangs: bool,
        profile_of: impl Fn(usize) -> u64,
    ) -> Class {
        let (place, parts) = parts_of(spec, number, has_gangs, profile_of);
        let asked = self.class_with_mates(spec, leader_in(spec, number, has_gangs), has_gangs);
        part_of(self.profiles.size(asked, &parts, &self.plan), place)
    }

    /// What a step of a job asks for, and its class as it is sized now, worked out from scratch.
    pub(super) fn asked_and_sized(&self, job: &Job, number: usize) -> (Class, Class) {
        let (spec, has_gangs) = (&job.spec, job.has_gangs);
        let (place, parts) = parts_of(spec, number, has_gangs, |step| job.steps[step].profile);
        let asked = self.class_with_mates(spec, leader_in(spec, number, has_gangs), has_gangs);
        let sized = self.profiles.size_now(asked.clone(), &parts, &self.plan);
        (part_of(asked, place), part_of(sized, place))
    }

    /// An attempt is booked, or was when the engine started.
    pub(super) fn profile_booked(&mut self, profile: u64, at: Time) {
        let changed = self.profiles.booked(profile, at, self.now);
        changed.into_iter().for_each(|key| self.refresh(key));
    }

    /// An attempt is off the books.
    pub(super) fn profile_left(&mut self, profile: u64) {
        let changed = self.profiles.left(profile, self.now);
        changed.into_iter().for_each(|key| self.refresh(key));
    }

    fn gate(&mut self, profile: u64) {
        let changed = self.profiles.gate(profile, self.now);
        changed.into_iter().for_each(|key| self.refresh(key));
    }

    /// First tasks that have run long enough are believed to fit.
    pub(super) fn finish_probes(&mut self) {
        while let Some(profile) = self.profiles.take_probed(self.now) {
            self.gate(profile);
        }
    }

    /// An attempt ended: what it held and took.
    pub(super) fn learn(&mut self, task: TaskId, attempt: &Attempt, result: &TaskResult, out: &mut Outbox) {
        let capacity = self.plan.workers.get(attempt.worker).map_or(0, |worker| worker.capacity.memory);
        let Some(sample) = sample_of(attempt, result, capacity) else { return };
        self.record_windows(&sample);
        let Some(profile) = self.ledger.step(self.ledger.key_of(task)).map(|step| step.profile) else {
            return;
        };
        let learned = self.profiles.learn(profile, sample);
        out.writes.extend(learned.write.map(|(signature, history)| write_of(signature, history, self.now)));
        if learned.is_resized {
            self.resize(profile);
        }
        self.gate(profile);
    }

    fn record_windows(&mut self, sample: &Sample) {
        let mut record = |metric, value: Option<u64>| {
            if let Some(value) = value {
                self.plan.record(metric, value as f64);
            }
        };
        record(Metric::Completed, Some(1));
        record(Metric::OomRate, Some(sample.oom.into()));
        record(Metric::WallMs, sample.wall_ms);
        record(Metric::CpuMs, sample.cpu_ms);
        record(Metric::PeakMemory, sample.peak_memory.filter(|_| !sample.oom));
        record(Metric::DiskBytes, sample.disk_bytes.filter(|bytes| *bytes > 0));
    }

    /// Gives the steps of a signature, and those that start with them, the class that they are of now.
    fn resize(&mut self, profile: u64) {
        let mut steps: BTreeSet<StepKey> = BTreeSet::new();
        for key in self.profiles.steps(profile) {
            let Some(job) = self.ledger.jobs.get(&key.job) else { continue };
            let together = job.gang_steps(job.leader_of(key.step.into()));
            steps.extend(together.map(|step| StepKey { step: step as u16, ..key }));
        }
        steps.into_iter().for_each(|key| self.refresh_class(key));
    }

    /// Classes follow the workers: the queues that some are for alone, and how large what is learned may be.
    pub(super) fn follow_workers(&mut self) {
        let queues = self.plan.workers.take_new_or_gone_queues();
        if !queues.is_empty() {
            self.refresh_classes(&queues);
            self.places.refresh_classes(&queues, &mut self.plan);
        }
        let resized = self.profiles.follow_workers(&self.plan);
        resized.into_iter().for_each(|profile| self.resize(profile));
    }

    /// The first worker came that is for one of these queues alone, or the last one went: only while there is one, the
    /// steps of its queue are of classes of their own.
    fn refresh_classes(&mut self, queues: &BTreeSet<String>) {
        let of_queues = self.ledger.jobs.values().filter(|job| queues.contains(&job.spec.queue));
        let steps = of_queues
            .flat_map(|job| (0..job.steps.len()).map(|step| StepKey { job: job.id, step: step as u16 }));
        let steps: Vec<StepKey> = steps.collect();
        steps.into_iter().for_each(|key| self.refresh_class(key));
    }

    /// Gives a step the class that it is of now.
    fn refresh_class(&mut self, key: StepKey) {
        let Some(job) = self.ledger.jobs.get(&key.job) else { return };
        let number = usize::from(key.step);
        let together = job.gang_steps(job.leader_of(number));
        let profiles: BTreeMap<usize, u64> = together.map(|step| (step, job.steps[step].profile)).collect();
        let (next, has_gangs) = (job.next_nodes(number), job.has_gangs);
        let class = self.sized_class(&job.spec.clone(), number, has_gangs, |step| profiles[&step]);
        let class = match &next {
            Some(nodes) => class.with_nodes(nodes),
            None => class,
        };
        self.set_class(key, class);
    }

    /// A step is of this class from now on.
    pub(super) fn set_class(&mut self, key: StepKey, class: Class) {
        let Some(job) = self.ledger.jobs.get_mut(&key.job) else { return };
        let queue = job.queue;
        let step = &mut job.steps[usize::from(key.step)];
        if *self.plan.classes.get(step.class) == class {
            return;
        }
        let new = self.plan.classes.intern(class);
        let old = std::mem::replace(&mut step.class, new);
        self.plan.change_class(queue, (old, new), step.enlisted.as_ref());
    }

    /// Samples that were not durable are written again.
    pub(super) fn save_histories_again(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::History { signature, .. } = write {
                self.profiles.save_again(signature);
            }
        }
    }

    /// Writes the samples that the store does not have: now and then, and before the end.
    pub fn save_histories(&mut self, out: &mut Outbox) {
        for (signature, history) in self.profiles.take_unsaved() {
            out.writes.push(write_of(&signature, history, self.now));
        }
    }

    /// True if an attempt had as much memory as the largest worker by which the next one would be sized.
    pub(super) fn is_largest(&self, task: TaskId, attempt: &Attempt) -> bool {
        let Some(spec) = self.ledger.spec_of(self.ledger.key_of(task)) else { return false };
        let queue = self.ledger.jobs.get(&task.job).map_or("", |job| &job.spec.queue);
        let class = class_of(spec, queue, &self.plan.workers);
        let fits = |worker: &&Worker| placement::eligible_when_idle(&class, worker);
        let most = self.plan.workers.largest_first().find(fits).map_or(0, |worker| worker.capacity.memory);
        most > 0 && attempt.request.memory + attempt.expects >= most
    }

    /// What the end of an attempt says of its worker. A kill for memory, at a limit or on request says nothing,
    /// nor does a launch that failed by the job's own fault.
    pub(super) fn judge_worker(&mut self, task: TaskId, attempt: &Attempt, result: &TaskResult) {
        let is_external = self.ledger.spec_of(self.ledger.key_of(task)).is_some_and(|step| step.is_external);
        let verdict = match &result.end {
            End::Exited(0) => HealthVerdict::Succeeded,
            End::Exited(_) | End::Signaled(_) => HealthVerdict::Failed,
            End::NotStarted { fault, .. } => match fault {
                LaunchFault::Job => return,
                LaunchFault::Worker => HealthVerdict::NotStarted,
                LaunchFault::Unknown => HealthVerdict::Failed,
            },
            // Its client says so: it may be the client's access that is missing.
            End::Lost if is_external => return,
            End::Lost if attempt.started.is_none() => HealthVerdict::NotStarted,
            // One that was cut off may have fenced itself.
            end if super::job_lifecycle::is_unasked(attempt, end) && self.is_steady(attempt) => {
                HealthVerdict::NotStarted
            }
            End::Lost | End::OutOfMemory | End::TimeLimit | End::Canceled | End::Recalled => return,
        };
        let now = self.now;
        let Some(job) = self.ledger.jobs.get_mut(&task.job) else { return };
        if verdict == HealthVerdict::Succeeded {
            self.successes.count(&job.spec.user);
        }
        job.failed_attempts += u64::from(verdict == HealthVerdict::Failed);
        let record = Record { succeeded: job.counts().succeeded.into(), failed: job.failed_attempts };
        let of = Ended { job: task.job, user: &job.spec.user, record };
        let suspicious =
            |worker: &Worker| verdict != HealthVerdict::Succeeded || worker.health != Health::default();
        if self.plan.workers.get(attempt.worker).is_some_and(suspicious) {
            let successes = &self.successes;
            self.plan.workers.update(attempt.worker, |w| w.health.ended(now, of, verdict, successes));
        }
    }

    /// True if the attempt's worker was connected ever since it was booked.
    fn is_steady(&self, attempt: &Attempt) -> bool {
        self.plan.workers.get(attempt.worker).is_some_and(|w| w.connected && w.greeted <= attempt.booked)
    }
}

/// The step whose turn is that of a step.
fn leader_in(spec: &JobSpec, number: usize, has_gangs: bool) -> usize {
    spec.steps[number].with.filter(|_| has_gangs).map_or(number, usize::from)
}

/// What sizes a step and those that start together with it, and its place among them. The one that leads is the first.
fn parts_of(
    spec: &JobSpec,
    number: usize,
    has_gangs: bool,
    profile_of: impl Fn(usize) -> u64,
) -> (usize, Vec<SizedPart>) {
    let leader = leader_in(spec, number, has_gangs);
    let followers = has_gangs.then(|| spec.followers(leader)).into_iter().flatten();
    let (mut place, mut parts) = (0, Vec::with_capacity(1));
    for step in std::iter::once(leader).chain(followers) {
        if step == number {
            place = parts.len();
        }
        let cpus_auto = spec.steps[step].hints.cpus_auto;
        parts.push(SizedPart { profile: profile_of(step), cpus_auto });
    }
    (place, parts)
}

/// The part at this place of a class and those that start with it: the whole class for the first.
fn part_of(mut class: Class, place: usize) -> Class {
    match place.checked_sub(1) {
        Some(mate) => class.mates.swap_remove(mate),
        None => class,
    }
}

fn write_of(signature: &Signature, history: &History, at: Time) -> Write {
    let samples = history.samples().copied().collect();
    Write::History { signature: signature.to_string(), samples, at }
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
