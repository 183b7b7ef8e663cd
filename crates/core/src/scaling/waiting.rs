//! What waits, by class of work: how many tasks, how long they take, and how many of them at a time start all of them
//! within the target.

use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, QueueId, StepKey};
use crate::job::Job;
use crate::plan::within_limit;
use std::collections::BTreeMap;

/// Classes of work that are looked at. Of the others it is told how many there are.
const WORK_CLASSES_MAX: usize = 256;

/// Steps of one class that are looked at; the others are taken to be like these on average.
const STEPS_PER_CLASS_MAX: usize = 16;

/// Steps of one class that are counted; more are not counted.
const STEPS_COUNTED_MAX: usize = 10_000;

/// Jobs that are looked at for tasks that more workers would not start.
const JOBS_LOOKED_MAX: usize = 10_000;

/// Jobs of one class that are named.
pub(super) const JOBS_MAX: usize = 20;

/// What waits of one class of work.
#[derive(Default)]
pub(super) struct WaitingWork {
    /// Tasks that more workers could start.
    pub(super) tasks: f64,
    /// Of these, tasks of unknown length.
    pub(super) unknown: f64,
    /// Milliseconds that the tasks of known length take, one after the other.
    pub(super) work_ms: f64,
    /// Tasks at a time, or gangs of a class of these, that start all of them within the target.
    pub(super) at_a_time: f64,
    /// The most hundredths of a core that one of them would use; 0 if none says.
    pub(super) cpus_max: u32,
    /// A few of their jobs.
    pub(super) jobs: Vec<JobId>,
}

/// All that waits and could start.
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) by_class: BTreeMap<ClassId, WaitingWork>,
    /// Tasks that a quota, a limit or a cap keeps from starting, however many workers there are.
    pub(super) blocked: f64,
    /// Tasks of paused queues and of held jobs.
    pub(super) paused: u64,
    /// Classes of work that were not looked at.
    pub(super) classes_left_out: usize,
}

/// The tasks of some steps that are alike.
struct Demand {
    queue: QueueId,
    tasks: f64,
    /// Milliseconds that one takes; `None` is unknown.
    each_ms: Option<f64>,
    /// Tasks that may start beside those that run.
    at_most: f64,
    /// Hundredths of a core that one with a jobserver uses at most; `None` is unknown.
    cpus_max: Option<u32>,
    /// `None` for requests of outside clients.
    job: Option<JobId>,
}

/// Looks at what waits. What a paused queue or a held job has is only counted.
pub(super) fn backlog(engine: &Engine, target_ms: f64) -> Backlog {
    let mut room = RoomInLimits { engine, cpu: BTreeMap::new(), limits: BTreeMap::new() };
    let queues = engine.queues();
    let mut backlog = Backlog {
        classes_left_out: queues.class_count().saturating_sub(WORK_CLASSES_MAX),
        ..Backlog::default()
    };
    for id in queues.classes().take(WORK_CLASSES_MAX) {
        let Some(class) = engine.class(id) else { continue };
        let mut steps = queues.steps_of(id).take(STEPS_COUNTED_MAX);
        let looked: Vec<StepKey> = steps.by_ref().take(STEPS_PER_CLASS_MAX).collect();
        let alike = (looked.len() + steps.count()) as f64 / looked.len().max(1) as f64;
        for key in looked {
            let Some(mut demand) = demand_of(engine, key) else { continue };
            demand.tasks *= alike;
            demand.at_most *= alike;
            backlog.add(id, class, &demand, target_ms, &mut room);
        }
    }
    for ((queue, _), subqueue) in engine.subqueues().iter() {
        let (away, first) = (subqueue.away().ready, subqueue.positions().next());
        if engine.queues().get(queue).record.paused.is_some() {
            backlog.paused += away;
            continue;
        }
        let Some(position) = first.filter(|_| away > 0) else { continue };
        // Parked jobs fit the same workers as the first resident job of their subqueue.
        let Some(key) = engine.ledger().first_ready(position.job) else { continue };
        let Some(id) = engine.ledger().step(key).map(|step| step.class) else { continue };
        let (Some(class), Some(demand)) = (engine.class(id), demand_of(engine, key)) else { continue };
        let parked = Demand { tasks: away as f64, at_most: f64::INFINITY, ..demand };
        if backlog.by_class.contains_key(&id) || backlog.by_class.len() < WORK_CLASSES_MAX {
            backlog.add(id, class, &parked, target_ms, &mut room);
        }
    }
    backlog.count_held_back(engine);
    backlog
}

impl Backlog {
    /// Counts the ready tasks of steps that stand in no queue, or in one that is paused.
    fn count_held_back(&mut self, engine: &Engine) {
        let waits = |job: &&Job| job.stop.is_none() && job.after.is_empty();
        for job in engine.jobs().take(JOBS_LOOKED_MAX).filter(waits) {
            let queue = engine.queues().get(engine.queues().whole(job.queue));
            let is_paused = job.held || queue.record.paused.is_some();
            for (number, step) in job.steps.iter().enumerate().filter(|(_, step)| !step.ready.is_empty()) {
                let key = StepKey { job: job.id, step: number as u16 };
                let is_capped = || job.cap_reached(job.leader_of(number)).is_some();
                if is_paused {
                    self.paused += u64::from(step.ready.len());
                } else if is_capped() || engine.licences().back_off(key).is_some() {
                    self.blocked += f64::from(step.ready.len());
                }
            }
        }
    }

    fn add<'a>(
        &mut self,
        id: ClassId,
        class: &'a Class,
        demand: &Demand,
        target_ms: f64,
        room: &mut RoomInLimits<'a>,
    ) {
        let Demand { queue, tasks, each_ms, at_most, cpus_max, job } = *demand;
        let together = f64::from(class.tasks_at_a_time().max(1));
        // A task of no length that was measured takes a moment all the same.
        let part_of_target = each_ms.map_or(1.0, |ms| (ms.max(1.0) / target_ms).min(1.0));
        let shared = tasks / together * part_of_target;
        // The tasks of a gang start together, or not at all.
        let needed = if class.is_gang() { shared.ceil() } else { shared };
        let at_a_time = room.take(queue, class, needed.min(at_most / together));
        if at_a_time <= 0.0 {
            self.blocked += tasks;
            return;
        }
        // The others start after these, and not because there are more workers.
        let helped = tasks * (at_a_time / needed).min(1.0);
        self.blocked += tasks - helped;
        let work = self.by_class.entry(id).or_default();
        work.tasks += helped;
        work.at_a_time += at_a_time;
        work.cpus_max = work.cpus_max.max(cpus_max.unwrap_or(0));
        match each_ms {
            Some(ms) => work.work_ms += ms * helped,
            None => work.unknown += helped,
        }
        let job = job.filter(|_| work.jobs.len() < JOBS_MAX);
        work.jobs.extend(job);
    }
}

/// The ready tasks of a step, or a request of an outside client. The step that leads gangs stands for all of their tasks.
fn demand_of(engine: &Engine, key: StepKey) -> Option<Demand> {
    if let Some(waiting) = engine.places().find(key) {
        let each_ms = engine.queues().mean_ms(waiting.queue);
        let queue = engine.queues().whole(waiting.queue);
        return Some(Demand { queue, tasks: 1.0, each_ms, at_most: 1.0, cpus_max: None, job: None });
    }
    let job = engine.job(key.job)?;
    let number = usize::from(key.step);
    let (step, spec) = (job.steps.get(number)?, job.spec.steps.get(number)?);
    let class = engine.class(step.class)?;
    // The mean of the queue is not asked. A short task that counts as long has workers for a moment more than it needs; a
    // long one that counts as short has too few for as long as the first of its kind runs.
    let prediction = engine.profiles().prediction(step.profile).and_then(|known| known.wall_ms);
    let each_ms = within_limit(step.mean_ms.or(prediction), spec.time_limit_ms);
    let caps = [
        spec.max_running.map(|max| max.saturating_sub(step.active)),
        job.spec.max_running.map(|max| max.saturating_sub(job.active)),
    ];
    let ready = step.ready.len();
    let gangs = class.nodes.map_or(ready, |nodes| ready / nodes.max(1)).max(1);
    let tasks = if class.is_gang() { gangs.saturating_mul(class.tasks_at_a_time()) } else { ready };
    Some(Demand {
        queue: engine.queues().whole(job.queue),
        tasks: f64::from(tasks),
        each_ms,
        at_most: caps.into_iter().flatten().map(f64::from).fold(f64::INFINITY, f64::min),
        cpus_max: spec.hints.cpus_max,
        job: Some(key.job),
    })
}

/// What quotas and limits still let start, less what was counted already.
struct RoomInLimits<'a> {
    engine: &'a Engine,
    /// Hundredths of a core by queue; infinite without a quota.
    cpu: BTreeMap<QueueId, f64>,
    limits: BTreeMap<&'a str, f64>,
}

impl<'a> RoomInLimits<'a> {
    /// How many of these tasks, or gangs, that would run at a time may do so.
    fn take(&mut self, queue: QueueId, class: &'a Class, at_a_time: f64) -> f64 {
        let engine = self.engine;
        let quota = || engine.queues().room_in_quota(queue).map_or(f64::INFINITY, f64::from);
        let cpu_left = self.cpu.entry(queue).or_insert_with(quota);
        let cpu_each = f64::from(class.cpu_at_a_time());
        let mut may = at_a_time;
        if cpu_each > 0.0 {
            may = may.min((*cpu_left / cpu_each).floor());
        }
        let names = class.parts().flat_map(|part| &part.limits).map(String::as_str);
        let names: BTreeMap<&str, f64> = names.map(|name| (name, f64::from(class.takes(name)))).collect();
        for (name, each) in &names {
            let left = *self.limits.entry(*name).or_insert_with(|| left_of(engine, name));
            may = may.min((left / each.max(1.0)).floor());
        }
        *cpu_left -= may * cpu_each;
        for (name, each) in names {
            self.limits.entry(name).and_modify(|left| *left -= may * each);
        }
        may
    }
}

/// How many of a limit are left over the farm.
fn left_of(engine: &Engine, limit: &str) -> f64 {
    let taken = engine.licences().taken().get(limit).copied().unwrap_or(0);
    let max = engine.licences().limits().get(limit).and_then(|limit| limit.max);
    max.map_or(f64::INFINITY, |max| f64::from(max.saturating_sub(taken)))
}
