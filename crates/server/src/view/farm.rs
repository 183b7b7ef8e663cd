//! A farm of several shards: what each engine says of its own, as one.

use super::overview::{NAMED_MAX, holds, sentence};
use crate::figures::ShardFigures;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::figures::{
    FarmCpus, Overview, QueueCpus, SchedulerFigures, SufferingWorker, WaitingTasks, WorkerCounts,
};
use windlass_core::engine::Engine;
use windlass_core::explain::BlockedReason;

/// Jobs of each kind that an engine names.
const JOBS_MAX: usize = 10_000;

/// What lies between an engine and the other shards.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BetweenShards {
    /// Tasks of other shards' jobs that are booked or run here.
    pub guests_active: u32,
    /// Jobs of other shards of which a task is booked or runs here.
    pub guests: BTreeSet<u64>,
    /// Jobs of this shard of which no task is booked or runs here, and some are with other shards. Held ones are not among
    /// them.
    pub away: BTreeSet<u64>,
    /// Workers that take work.
    pub open_workers: u32,
}

impl BetweenShards {
    /// Looks at the engine.
    pub fn of(engine: &Engine) -> BetweenShards {
        let mut between =
            BetweenShards { open_workers: engine.workers().open_count(), ..BetweenShards::default() };
        for job in engine.jobs().filter(|job| job.ended.is_none()) {
            let is_active = job.active > 0;
            match job.home {
                Some(_) if is_active => {
                    between.guests_active += job.active;
                    if between.guests.len() < JOBS_MAX {
                        between.guests.insert(job.id.0);
                    }
                }
                None if !is_active && !job.held => {
                    let has_some_away = job.steps.iter().any(|step| !step.delegated.is_empty());
                    if has_some_away && between.away.len() < JOBS_MAX {
                        between.away.insert(job.id.0);
                    }
                }
                _ => {}
            }
        }
        between
    }
}

/// The overview of the first shard with what the others say. Rates are added later.
pub fn join_overviews(mut own: Overview, between: &BetweenShards, others: &[ShardFigures]) -> Overview {
    let mut guests = BTreeSet::new();
    let (mut active, mut open_workers) = (0, between.open_workers);
    for ShardFigures { now: there, .. } in others {
        add_workers(&mut own.workers, there.overview.workers);
        add_cpus(&mut own.cpus, &there.overview.cpus);
        own.waiting.extend(there.overview.waiting.iter().cloned());
        guests.extend(&there.between.guests);
        active += there.between.guests_active;
        open_workers += there.between.open_workers;
    }
    let queues = std::mem::take(&mut own.cpus.by_queue);
    own.cpus.by_queue = by_queue(queues);
    own.waiting = by_reason(&own.waiting);
    own.suffering = in_turn(own.suffering, others);
    // The home counts what runs elsewhere as ready.
    let active = active.min(own.tasks.ready);
    own.tasks.ready -= active;
    own.tasks.running += active;
    let run_elsewhere = between.away.intersection(&guests).count() as u64;
    let run_elsewhere = run_elsewhere.min(own.jobs.waiting);
    own.jobs.waiting -= run_elsewhere;
    own.jobs.running += run_elsewhere;
    own.holds = holds(&own.workers, open_workers);
    own
}

fn add_workers(all: &mut WorkerCounts, there: WorkerCounts) {
    all.total += there.total;
    all.online += there.online;
    all.draining += there.draining;
    all.suspect += there.suspect;
    all.lost += there.lost;
    all.pressed += there.pressed;
    all.low_space += there.low_space;
    all.left_out += there.left_out;
}

fn add_cpus(all: &mut FarmCpus, there: &FarmCpus) {
    all.total += there.total;
    all.booked += there.booked;
    all.by_queue.extend(there.by_queue.iter().cloned());
}

/// Each queue once, the one that holds most first.
fn by_queue(queues: Vec<QueueCpus>) -> Vec<QueueCpus> {
    let mut sums = BTreeMap::<String, f64>::new();
    for QueueCpus { queue, cpus } in queues {
        *sums.entry(queue).or_default() += cpus;
    }
    let mut queues: Vec<QueueCpus> =
        sums.into_iter().map(|(queue, cpus)| QueueCpus { queue, cpus }).collect();
    queues.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then_with(|| a.queue.cmp(&b.queue)));
    queues.truncate(NAMED_MAX);
    queues
}

/// Each reason once, the most frequent first.
fn by_reason(waiting: &[WaitingTasks]) -> Vec<WaitingTasks> {
    let mut sums = BTreeMap::<BlockedReason, u64>::new();
    for part in waiting {
        *sums.entry(part.reason.0).or_default() += part.tasks;
    }
    waiting_tasks(sums)
}

/// Ready tasks by reason, the most frequent first.
pub(super) fn waiting_tasks(tasks: BTreeMap<BlockedReason, u64>) -> Vec<WaitingTasks> {
    let mut waiting: Vec<(BlockedReason, u64)> = tasks.into_iter().collect();
    waiting.sort_by_key(|(reason, tasks)| (Reverse(*tasks), *reason));
    let told = waiting.into_iter().map(|(reason, tasks)| WaitingTasks {
        reason: reason.into(),
        text: sentence(reason).to_owned(),
        tasks,
    });
    told.collect()
}

/// The worst worker of each shard, then the next of each.
fn in_turn(own: Vec<SufferingWorker>, others: &[ShardFigures]) -> Vec<SufferingWorker> {
    let mut lists = vec![own.into_iter()];
    lists.extend(others.iter().map(|other| other.now.overview.suffering.clone().into_iter()));
    let mut named = Vec::new();
    loop {
        let before = named.len();
        named.extend(lists.iter_mut().filter_map(Iterator::next));
        if named.len() == before || named.len() >= NAMED_MAX {
            named.truncate(NAMED_MAX);
            return named;
        }
    }
}

/// The scheduler's figures of the first shard with what the others say. Rates are added later.
pub fn join_scheduler(mut own: SchedulerFigures, others: &[ShardFigures]) -> SchedulerFigures {
    for there in others.iter().map(|other| &other.now.scheduler) {
        own.leases.workers += there.leases.workers;
        own.leases.oldest_ms = own.leases.oldest_ms.max(there.leases.oldest_ms);
        own.reservations += there.reservations;
        own.left_out += there.left_out;
        own.stranded_cores += there.stranded_cores;
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::engine::{Event, Hello, Outbox, Settings, Submit};
    use windlass_core::job::{JobSpec, StepSpec};
    use windlass_core::{RequestId, Resources, Time};

    const NOW: Time = Time(1 << 40);

    /// An engine with so many workers of two cpus, and jobs of so many tasks in the queue `films`.
    fn engine(workers: u64, jobs: &[u32]) -> Engine {
        let mut engine = Engine::new(Settings::default());
        let mut out = Outbox::default();
        for n in 1..=workers {
            let hello = Hello::new(&format!("w{n}"), n, Resources::new(200, 64 << 30));
            engine.handle(NOW, Event::Hello(Box::new(hello)), &mut out);
        }
        for (request, tasks) in (1..).zip(jobs) {
            let (name, request_of_task) = ("s".to_owned(), Resources::new(100, 0));
            let step = StepSpec { name, tasks: *tasks, request: request_of_task, ..StepSpec::default() };
            let (queue, user) = ("films".to_owned(), "ann".to_owned());
            let spec = JobSpec { queue, user, steps: vec![step], ..JobSpec::default() };
            engine.handle(NOW, Event::Submit(Box::new(Submit::new(RequestId(request), spec))), &mut out);
        }
        engine.round(NOW, 1024, &mut out);
        engine
    }

    fn joined(one: &Engine, others: &[ShardFigures]) -> Overview {
        join_overviews(super::super::overview(one, NOW), &BetweenShards::of(one), others)
    }

    #[test]
    fn workers_cpus_and_queues_are_of_all_shards() {
        let told = serde_json::to_string(&ShardFigures::of_engine(2, &engine(2, &[3]))).unwrap();
        let all = joined(&engine(1, &[1]), &[serde_json::from_str(&told).unwrap()]);
        assert_eq!((all.workers.total, all.workers.online), (3, 3));
        assert_eq!((all.cpus.total, all.cpus.booked), (6.0, 4.0));
        assert_eq!(all.cpus.by_queue, [QueueCpus { queue: "films".to_owned(), cpus: 4.0 }]);
        assert!(all.holds.is_empty());
    }

    #[test]
    fn the_farm_is_held_only_where_no_shard_has_a_worker_that_takes_work() {
        let (none, some) = (engine(0, &[1]), engine(1, &[]));
        assert!(joined(&none, &[]).holds[0].starts_with("no worker is known"));
        assert!(joined(&none, &[ShardFigures::of_engine(2, &some)]).holds.is_empty());
    }

    #[test]
    fn tasks_that_run_in_another_shard_run_and_so_does_their_job() {
        let mut there = ShardFigures::of_engine(2, &engine(1, &[]));
        // Jobs 1 and 2 wait at home, where there is no worker.
        let home = engine(0, &[5, 4]);
        (there.now.between.guests_active, there.now.between.guests) = (2, BTreeSet::from([1, 7]));
        let between = BetweenShards { away: BTreeSet::from([1, 2]), ..BetweenShards::of(&home) };
        let all = join_overviews(super::super::overview(&home, NOW), &between, &[there]);
        assert_eq!((all.tasks.ready, all.tasks.running, all.tasks.total), (7, 2, 9));
        assert_eq!((all.jobs.running, all.jobs.waiting), (1, 1));
    }
}
