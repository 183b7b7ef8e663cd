//! How much work waits, by reason.

use super::gangs::leader_of;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::plan::{self, placement};
use std::collections::{BTreeMap, BTreeSet};

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

/// How many ready tasks wait for which reason. Tasks of steps that wait for others are not counted.
pub fn waiting_tasks(engine: &Engine) -> BTreeMap<BlockedReason, u64> {
    let mut tasks: BTreeMap<BlockedReason, u64> = BTreeMap::new();
    let mut fits = BTreeMap::new();
    for job in engine.jobs().filter(|job| job.stop.is_none() && job.after.is_empty()) {
        for (number, step) in job.steps.iter().enumerate().filter(|(_, step)| !step.ready.is_empty()) {
            let key = StepKey { job: job.id, step: number as u16 };
            if let Some(reason) = wait_reason(engine, key, &mut fits) {
                *tasks.entry(reason).or_default() += u64::from(step.ready.len());
            }
        }
    }
    // Parked jobs wait for what the first job of their subqueue waits for.
    for (_, subqueue) in engine.subqueues().iter() {
        let (first, away) = (subqueue.positions().next(), subqueue.away());
        if away.ready == 0 {
            continue;
        }
        let step = first.and_then(|position| engine.ledger().first_ready(position.job));
        let reason = step.and_then(|key| wait_reason(engine, key, &mut fits));
        *tasks.entry(reason.unwrap_or(BlockedReason::Flowing)).or_default() += away.ready;
    }
    tasks
}

/// Why a step with ready tasks waits; `None` if the step does not exist, or waits for steps with which it starts. The
/// caller keeps `fits` between calls: it remembers which classes fit some worker.
pub fn wait_reason(
    engine: &Engine,
    key: StepKey,
    fits: &mut BTreeMap<ClassId, bool>,
) -> Option<BlockedReason> {
    let job = engine.job(key.job).filter(|job| usize::from(key.step) < job.steps.len())?;
    // What starts together waits together.
    let leader = leader_of(job, key);
    let (number, step) = (usize::from(leader.step), engine.ledger().step(leader)?);
    if job.is_in_gang(number) && !job.has_startable(number) {
        return None;
    }
    let plan = engine.planner();
    let backs_off = |step: usize| engine.licences().back_off(StepKey { step: step as u16, ..key }).is_some();
    // What waits for the first of its kind may be one that fits nowhere.
    if !job.held && job.gang_steps(number).any(backs_off) {
        return Some(BlockedReason::NoLicence);
    }
    if step.enlisted.is_none() {
        let is_held = job.held || fits_some(engine, step.class, fits);
        return Some(if is_held { BlockedReason::Held } else { BlockedReason::NoFit });
    }
    let reason = if plan.queues.get(job.queue).record.paused.is_some() {
        BlockedReason::Paused
    } else if plan.blocked.over_quota.contains_key(&(plan.queues.whole(job.queue), step.class)) {
        BlockedReason::Quota
    } else if plan.blocked.out_of_licences.contains(&step.class) {
        BlockedReason::NoLicence
    } else if plan.vetoed.get(leader).is_some() {
        BlockedReason::Held
    } else if !plan.is_full(step.class) {
        BlockedReason::Flowing
    } else if plan.workers.open_count() == 0 {
        BlockedReason::NoWorker
    } else if !fits_some(engine, step.class, fits) {
        BlockedReason::NoFit
    } else if lacks_licence(engine, step.class) {
        BlockedReason::NoLicence
    } else {
        BlockedReason::Capacity
    };
    Some(reason)
}

/// True if some worker of the farm fits the class, or if enough do for tasks that start together.
fn fits_some(engine: &Engine, id: ClassId, fits: &mut BTreeMap<ClassId, bool>) -> bool {
    *fits.entry(id).or_insert_with(|| {
        let class = engine.planner().classes.get(id);
        if class.is_gang() {
            return plan::too_few_at_a_time(engine.planner(), class).is_none();
        }
        engine.workers().present().any(|worker| placement::eligible_when_idle(class, worker))
    })
}

/// The quota, or the burst, that keeps a step's tasks from being placed: the same caps as a round's.
pub(super) fn over_quota(engine: &Engine, queue: QueueId, key: StepKey) -> Option<u32> {
    let class = engine.ledger().step(key)?.class;
    let cpu = engine.planner().classes.get(class).cpu_at_a_time();
    let plan = engine.planner();
    let of_queue = plan.queues.over_quota(queue, cpu, true);
    of_queue.or_else(|| plan.blocked.over_quota.get(&(plan.queues.whole(queue), class)).copied())
}

/// True if some worker would take a task of the class now, or one that starts with it, but for a limit of each worker.
fn lacks_licence(engine: &Engine, class: ClassId) -> bool {
    let per_worker =
        |name: &String| engine.licences().limits().get(name).is_some_and(|limit| limit.per_worker.is_some());
    let mut limited =
        engine.planner().classes.get(class).parts().filter(|part| part.limits.iter().any(per_worker));
    limited.any(|part| {
        let unlimited = Class { limits: BTreeSet::new(), ..part.clone() };
        engine.planner().workers.present().any(|worker| placement::fits_now(&unlimited, worker))
    })
}
