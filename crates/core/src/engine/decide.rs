//! Decisions as they were made, and why work waits.

use super::{Engine, Policy};
use crate::bounds;
use crate::cache_keys::Missing;
use crate::class::Class;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::QueuedStep;
use crate::plan::placement::{self, ScoredWorker};
use crate::score::context::{InstanceContext, JobContext, Pair, WorkerContext};
use crate::score::policy::Breakdown;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Where a task went, and how that worker and the next best were judged. What each rule said is worked out when
/// somebody asks, from what the rules saw.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// The task.
    pub task: TaskId,
    /// When.
    pub at: Time,
    policy: Policy,
    job: JobContext,
    instance: InstanceContext,
    others_wait: bool,
    /// The winner first.
    seen: Vec<Seen>,
}

/// A worker as the rules saw it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    worker: WorkerId,
    context: WorkerContext,
    missing: Option<Missing>,
    step_cpu: u32,
    warmth: f64,
    load: f64,
}

impl Decision {
    /// The scoring policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.0.name()
    }

    /// How workers were judged, the winner first.
    pub fn ranked(&self) -> Vec<Judged> {
        let judged = self.seen.iter().map(|seen| {
            let Seen { worker, context, missing, step_cpu, warmth, load } = seen;
            let pair = Pair {
                job: &self.job,
                worker: context,
                instance: &self.instance,
                missing: *missing,
                step_cpu: *step_cpu,
                warmth: *warmth,
                others_wait: self.others_wait,
                load: *load,
            };
            Judged { worker: *worker, load: *load, breakdown: self.policy.0.detail(&pair) }
        });
        judged.collect()
    }
}

/// A worker as it was judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// Which.
    pub worker: WorkerId,
    /// Its load with the task.
    pub load: f64,
    /// What each rule said.
    pub breakdown: Breakdown,
}

/// What the last full round could not place, and why.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BlockedWork {
    /// Classes whose licences are all taken.
    pub out_of_licences: BTreeSet<ClassId>,
    /// Classes of queues whose quota is used up, with the quota in hundredths of a core.
    pub over_quota: BTreeMap<(QueueId, ClassId), u32>,
}

/// The one reason for which a step with ready tasks waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BlockedReason {
    /// It does not wait: its tasks are being placed.
    Flowing,
    /// Workers that fit it are full.
    Capacity,
    /// It fits no worker of the farm.
    NoFit,
    /// Its queue is paused.
    Paused,
    /// Its queue has used up its quota.
    Quota,
    /// All licences are taken, over the farm or on all workers with room, or were busy when last tried.
    NoLicence,
    /// A rule holds it, its job is held, or its first tasks must show what they need.
    Held,
    /// No worker takes work.
    NoWorker,
}

impl BlockedReason {
    /// All, with the words that stand for them.
    pub const ALL: [(BlockedReason, &'static str); 8] = [
        (BlockedReason::Flowing, "flowing"),
        (BlockedReason::Capacity, "capacity"),
        (BlockedReason::NoFit, "no_fit"),
        (BlockedReason::Paused, "paused"),
        (BlockedReason::Quota, "quota"),
        (BlockedReason::NoLicence, "no_licence"),
        (BlockedReason::Held, "held"),
        (BlockedReason::NoWorker, "no_worker"),
    ];

    /// The word that stands for it.
    pub fn as_str(self) -> &'static str {
        BlockedReason::ALL[self as usize].1
    }
}

impl Engine {
    /// Remembers a decision with what each rule said of the winner and the runners-up.
    pub(super) fn record_decision(
        &mut self,
        queued_step: &QueuedStep,
        class: ClassId,
        ranked: Vec<ScoredWorker>,
    ) {
        let key = queued_step.step();
        let Some(job) = self.jobs.get(&key.job) else { return };
        let Some(index) = job.steps[usize::from(key.step)].ready.first() else { return };
        let Some(request) = self.placement_request(key, job.queue) else { return };
        debug_assert_eq!(request.class_id, class);
        let farm = self.match_context();
        let ranked = ranked.into_iter().filter_map(|ranked| {
            let worker = farm.workers.get(ranked.worker)?;
            let context = placement::worker_context(worker, farm.workers.load_settings());
            let pair = farm.pair(&request, worker, &context, ranked.load);
            let Pair { missing, step_cpu, warmth, load, .. } = pair;
            Some(Seen { worker: ranked.worker, context, missing, step_cpu, warmth, load })
        });
        let decision = Decision {
            task: TaskId { job: key.job, index },
            at: self.now,
            policy: Policy(farm.policy_for(&request)),
            job: request.job,
            instance: self.instance,
            others_wait: request.others_wait,
            seen: ranked.collect(),
        };
        if self.decisions.len() == bounds::DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().rev()
    }

    /// What the last full round could not place.
    pub fn blocked(&self) -> &BlockedWork {
        &self.blocked
    }

    /// How many ready tasks wait for which reason. Tasks of steps that wait for others are not counted.
    pub fn waiting_tasks(&self) -> BTreeMap<BlockedReason, u64> {
        let mut tasks: BTreeMap<BlockedReason, u64> = BTreeMap::new();
        let mut fits = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.stop.is_none() && job.after.is_empty()) {
            for (number, step) in job.steps.iter().enumerate().filter(|(_, step)| !step.ready.is_empty()) {
                let key = StepKey { job: job.id, step: number as u16 };
                if let Some(reason) = self.wait_reason(key, &mut fits) {
                    *tasks.entry(reason).or_default() += u64::from(step.ready.len());
                }
            }
        }
        // What is parked waits for what the first of its line waits for.
        for (first, away) in self.evicted_by_subqueue() {
            let reason = first.and_then(|key| self.wait_reason(key, &mut fits));
            *tasks.entry(reason.unwrap_or(BlockedReason::Flowing)).or_default() += away.ready;
        }
        tasks
    }

    /// Why a step with ready tasks waits; `None` if there is no such step. `fits` remembers between calls
    /// which classes some worker fits.
    pub fn wait_reason(&self, key: StepKey, fits: &mut BTreeMap<ClassId, bool>) -> Option<BlockedReason> {
        let (job, step) = (self.jobs.get(&key.job)?, self.step(key)?);
        let could = || {
            let class = self.classes.get(step.class);
            self.workers.present().any(|worker| placement::eligible_when_idle(class, worker))
        };
        Some(match () {
            // What waits for the first of its kind may be one that fits nowhere.
            () if !job.held && self.back_off(key).is_some() => BlockedReason::NoLicence,
            () if step.enlisted.is_none() && !job.held && !*fits.entry(step.class).or_insert_with(could) => {
                BlockedReason::NoFit
            }
            () if step.enlisted.is_none() => BlockedReason::Held,
            () if self.queues.get(job.queue).record.paused.is_some() => BlockedReason::Paused,
            () if self.blocked.over_quota.contains_key(&(job.queue, step.class)) => BlockedReason::Quota,
            () if self.blocked.out_of_licences.contains(&step.class) => BlockedReason::NoLicence,
            () if self.held_step(key).is_some() => BlockedReason::Held,
            () if !self.full.contains(step.class) => BlockedReason::Flowing,
            () if self.workers.open_count() == 0 => BlockedReason::NoWorker,
            () if !*fits.entry(step.class).or_insert_with(could) => BlockedReason::NoFit,
            () if self.lacks_licence(step.class) => BlockedReason::NoLicence,
            () => BlockedReason::Capacity,
        })
    }

    /// Hundredths of a core that are idle although work waits, for none that waits can have them.
    pub fn stranded_cpu(&self) -> u64 {
        if self.full.is_empty() {
            return 0;
        }
        self.workers.iter().filter(|worker| worker.takes_work()).map(|w| u64::from(w.free().cpu)).sum()
    }

    /// The quota, or the burst, that keeps a step's tasks from being placed: the same caps as a round's.
    pub(crate) fn over_quota(&self, queue: QueueId, key: StepKey) -> Option<u32> {
        let class = self.step(key)?.class;
        let cpu = self.classes.get(class).request.cpu;
        self.queues
            .get(queue)
            .over_quota(cpu, true)
            .or_else(|| self.blocked.over_quota.get(&(queue, class)).copied())
    }

    /// The first limit of a class of which no more may be taken: its name, how many there are, and how many
    /// are taken.
    pub(crate) fn limit_reached<'a>(&self, class: &'a Class) -> Option<(&'a str, u32, u32)> {
        class.limits.iter().find_map(|name| {
            let max = self.limits.get(name)?.max?;
            let taken = self.limits_taken.get(name).copied().unwrap_or(0);
            (taken >= max).then_some((name.as_str(), max, taken))
        })
    }

    /// How many of each limit tasks hold.
    pub fn limits_taken(&self) -> &BTreeMap<String, u32> {
        &self.limits_taken
    }

    /// True if some worker would take a task of the class now but for a limit of each worker.
    fn lacks_licence(&self, class: ClassId) -> bool {
        let class = self.classes.get(class);
        let per_worker =
            |name: &String| self.limits.get(name).is_some_and(|limit| limit.per_worker.is_some());
        let unlimited = Class { limits: BTreeSet::new(), ..class.clone() };
        class.limits.iter().any(per_worker)
            && self.workers.present().any(|worker| placement::fits_now(&unlimited, worker))
    }

    /// A task of the step that is booked on the worker takes one of each of its limits, or gives it back.
    pub(super) fn take_limits(&mut self, key: StepKey, worker: WorkerId, by: i32) {
        let Some(job) = self.jobs.get(&key.job) else { return };
        let names = &job.spec.steps[usize::from(key.step)].limits;
        if names.is_empty() {
            return;
        }
        for name in names {
            let taken = self.limits_taken.entry(name.clone()).or_default();
            *taken = taken.saturating_add_signed(by);
            if *taken == 0 {
                self.limits_taken.remove(name);
            }
        }
        let per_worker = |name: &String| self.limits.get(name).and_then(|limit| limit.per_worker);
        let freed = self.workers.update(worker, |w| {
            let mut freed = false;
            for name in names {
                freed |= w.licences.take(name, per_worker(name), by);
            }
            freed
        });
        if freed == Some(true) {
            self.workers.gained(worker);
        }
    }

    /// Somebody set a limit, or took it away: workers that hold some may hold more, or less.
    pub(super) fn cap_workers(&mut self, name: &str) {
        let max = self.limits.get(name).and_then(|limit| limit.per_worker);
        let holders: Vec<WorkerId> =
            self.workers.iter().filter(|worker| worker.licences.held(name) > 0).map(|w| w.id).collect();
        for id in holders {
            self.workers.update(id, |worker| worker.licences.cap(name, max));
            self.workers.gained(id);
        }
    }
}
