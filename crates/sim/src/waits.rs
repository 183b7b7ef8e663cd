//! Checks of waiting work: no task waits for long beside room that it may have, wide work is not overtaken
//! forever, and a queue that becomes backlogged has no claim for the time when other queues were served. `run` calls
//! [`Waits`] at each booking and each second. It reads the engine's explanations and changes nothing.

use crate::clock::S;
use crate::gangs::judge_gangs;
use crate::promises::sizes_follow_workers;
use crate::scheduler::Scheduler;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::class::Class;
use windlass_core::engine::{Engine, Outbox};
use windlass_core::explain::Reason;
use windlass_core::ids::{QueueId, StepKey};
use windlass_core::job::Job;
use windlass_core::job::QueuedStep;
use windlass_core::plan::ReservationSettings;
use windlass_core::plan::placement::eligible_when_idle;
use windlass_core::queues::{Charge, Queue};
use windlass_core::score::dependents::ranked_since;
use windlass_core::{TaskId, Time, WorkerId};

/// Inspections in a row, one each second, at which a task may wait although some worker would take it. A
/// vetoed step is judged again each second, and a commit takes time.
const BESIDE_ROOM_MAX: u32 = 4;
/// Tasks of its own queue with a later turn that may overtake wide work, once that was blocked for long. Where more
/// classes wait than are watched at a time, these take turns, and each turn may let as many pass.
const PASSED_MAX: usize = 60;
/// Wide work is judged when it was blocked for this many times the time that earns a reservation.
const BLOCKED_FACTOR: u64 = 10;

#[derive(Default)]
struct Waiting {
    /// Inspections in a row at which some worker would have taken it.
    beside_room: u32,
    /// Since when it is blocked, in virtual nanoseconds; `None` if it is not.
    blocked_ns: Option<u64>,
    passed: usize,
}

/// The waiting steps, as far as they were inspected.
#[derive(Default)]
pub(crate) struct Waits {
    steps: BTreeMap<StepKey, Waiting>,
    /// Number of the scheduler that `steps` belongs to.
    life: u64,
}

impl Waits {
    /// Counts a booking as overtaking wide work of the same queue that waits for such a worker.
    pub fn booked(&mut self, world: &World, task: TaskId, worker: WorkerId) {
        let Some(engine) = world.engine() else { return };
        let Some(job) = engine.job(task.job) else { return };
        let own = StepKey { job: task.job, step: job.step_of(task.index) };
        self.steps.remove(&own);
        let Some(worker) = engine.workers().get(worker) else { return };
        for (key, waiting) in &mut self.steps {
            let Some(other) = engine.job(key.job).filter(|other| other.queue == job.queue) else { continue };
            let at = |job: &Job, key: &StepKey| {
                let ranked = ranked_since(&job.steps[usize::from(key.step)]);
                QueuedStep::new(job.spec.priority, ranked, *key)
            };
            let out_of_turn = at(other, key) < at(job, &own);
            let class = engine.class_of(*key).filter(|class| engine.class_of(own) != Some(class));
            let fits = class.is_some_and(|class| eligible_when_idle(class, worker));
            if fits && worker.booked.lending() > 0 {
                // When this worker will be free cannot be predicted.
                waiting.blocked_ns = None;
            } else if out_of_turn && fits && waiting.blocked_ns.is_some() {
                waiting.passed += 1;
            }
        }
    }

    /// Checks every ready step.
    pub fn inspect(&mut self, world: &World) -> Result<(), String> {
        let Some(scheduler) = world.scheduler.as_ref().filter(|scheduler| scheduler.is_idle()) else {
            return Ok(());
        };
        if std::mem::replace(&mut self.life, scheduler.life) != scheduler.life {
            self.steps.clear();
        }
        let engine = &scheduler.engine;
        sizes_follow_workers(engine)?;
        let mut before = std::mem::take(&mut self.steps);
        let after_ns = world.settings.plan.reserve.after_ns;
        for job in engine.jobs() {
            judge_gangs(engine, job)?;
            for (number, step) in job.steps.iter().enumerate() {
                let Some(index) = step.ready.first() else { continue };
                let key = StepKey { job: job.id, step: number as u16 };
                let Some(why) = windlass_core::explain::reason(engine, TaskId { job: job.id, index }) else {
                    continue;
                };
                let mut waiting = before.remove(&key).unwrap_or_default();
                let held_by_rule = matches!(why.reason, Reason::Turn | Reason::Closed(_));
                let beside_room = held_by_rule && why.open_workers > 0;
                waiting.beside_room = if beside_room { waiting.beside_room + 1 } else { 0 };
                if waiting.beside_room > BESIDE_ROOM_MAX {
                    return Err(format!("{}.{index} waits beside room that it may have: {why:?}", job.id));
                }
                let blocked = matches!(why.reason, Reason::Full | Reason::Behind(_) | Reason::BehindUser(_));
                waiting.blocked_ns = waiting.blocked_ns.or(Some(world.now_ns)).filter(|_| blocked);
                let since_ns = waiting.blocked_ns.map_or(0, |since| world.now_ns - since);
                let long = since_ns > BLOCKED_FACTOR * after_ns + 10 * S;
                if may_be_passed(engine, key) {
                    waiting.blocked_ns = None;
                }
                if !long || waiting.blocked_ns.is_none() {
                    waiting.passed = 0;
                } else if waiting.passed > PASSED_MAX
                    && waiting.passed > PASSED_MAX * turns_to_watch(engine, &world.settings.plan.reserve)
                {
                    let passed = waiting.passed;
                    let reserves = engine.planner().reservations();
                    return Err(format!(
                        "{}.{index} was passed {passed} times: {why:?}, {reserves:?}",
                        job.id
                    ));
                }
                self.steps.insert(key, waiting);
            }
        }
        Ok(())
    }
}

/// How many turns it takes until each class of ready work was watched for a reservation.
fn turns_to_watch(engine: &Engine, settings: &ReservationSettings) -> usize {
    let keys = engine.jobs().flat_map(|job| {
        let ready = job.steps.iter().zip(0..).filter(|(step, _)| !step.ready.is_empty());
        ready.map(|(_, step)| StepKey { job: job.id, step })
    });
    let classes: BTreeSet<&Class> = keys.filter_map(|key| engine.class_of(key)).collect();
    classes.len().div_ceil(settings.watched_max)
}

/// Whether the work is not wide, or some worker is reserved, or no worker could be reserved for it now.
fn may_be_passed(engine: &Engine, key: StepKey) -> bool {
    let Some(class) = engine.class_of(key) else { return true };
    let workers = || engine.workers().present().filter(|worker| eligible_when_idle(class, worker));
    let widest = |of: fn(&windlass_core::Resources) -> u64| {
        workers().map(|w| of(&w.record.capacity)).max().unwrap_or(0)
    };
    let wide = u64::from(class.request.cpu) * 2 >= widest(|amounts| amounts.cpu.into())
        || class.request.memory * 2 >= widest(|amounts| amounts.memory);
    let reserved = engine.planner().reservations().holders().next().is_some();
    let takes = workers().any(|worker| worker.takes_work() && worker.booked.lending() == 0);
    !wide || reserved || !takes
}

/// The queues that wait, also with parked work. Those that have resident steps have their band, their start
/// tag and the level to which they were really served.
pub(crate) type Waited = BTreeMap<QueueId, Option<(u8, i128, i128)>>;

pub(crate) fn waiting(engine: &Engine, now: Time) -> Waited {
    let parked = engine.subqueues().iter().filter(|(_, line)| line.away().jobs > 0);
    let mut waited: Waited = parked.map(|((queue, _), _)| (queue, None)).collect();
    waited.extend(engine.queues().wholes_in_turn().map(|(id, queue)| {
        let share = queue.share();
        (id, Some((queue.band(), share.start_tag(), share.served(now))))
    }));
    waited
}

/// Checks that a queue that did not wait before starts no earlier than the level to which the least served
/// waiting queue of its band was really served.
pub(crate) fn newcomers(engine: &Engine, before: &Waited) -> Result<(), String> {
    for (id, queue) in engine.queues().wholes_in_turn().filter(|(id, _)| !before.contains_key(id)) {
        let others = before.values().flatten().filter(|(band, ..)| *band == queue.band());
        let Some((_, _, served)) = others.min_by_key(|(_, start, _)| *start) else { continue };
        let start = queue.share().start_tag();
        if queue.active == 0 && start < *served {
            let (id, name) = (id.0, queue.name());
            return Err(format!(
                "queue {id} {name} comes in at {start}, where the least had has had {served}"
            ));
        }
    }
    Ok(())
}

/// The queues that wait, with their band and start tag, if tasks count and all that was decided is durable. Elsewhere
/// none: what tasks run is charged from time to time, and what a place costs when it is given. Both are written with
/// the next batch, and are no reason for one.
pub(crate) fn turns(scheduler: &Scheduler) -> BTreeMap<String, (u8, i128)> {
    let engine = &scheduler.engine;
    let mut unsaved = Outbox::default();
    engine.clone().save_turns(&mut unsaved);
    if engine.charge() == Charge::Time || !scheduler.is_idle() || !unsaved.writes.is_empty() {
        return BTreeMap::new();
    }
    let turn =
        |(_, queue): (QueueId, &Queue)| (queue.name().to_owned(), (queue.band(), queue.share().start_tag()));
    engine.queues().wholes_in_turn().map(turn).collect()
}

/// Checks that the queues that waited before a scheduler died, and that have work at the start of the next one, stand
/// where they stood.
pub(crate) fn turns_kept(engine: &Engine, before: &BTreeMap<String, (u8, i128)>) -> Result<(), String> {
    for (_, queue) in engine.queues().wholes_in_turn() {
        let Some((band, before)) = before.get(queue.name()) else { continue };
        let start = queue.share().start_tag();
        if *band == queue.band() && start != *before {
            return Err(format!("queue {} stood at {before}, and starts again at {start}", queue.name()));
        }
    }
    Ok(())
}
