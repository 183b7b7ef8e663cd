//! The clients of a simulation: users who submit, cancel, hold, release, retry and drain, outside clients
//! that want allocations, and tasks that submit jobs of their own and wait for them. `run` calls
//! [`People::act`] at random times and passes replies on. Replies to clients are checked against the store.

use crate::clock::{MS, S};
use crate::events::{Alarm, SimEvent};
use crate::jobs::{child_job, made_alike, made_following, random_job, stream};
use crate::machine::AttemptKey;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::client_places::{NoPlace, PlaceRequest};
use windlass_core::engine::{Event, PlaceInUse, Reply, Submit};
use windlass_core::ids::AllocId;
use windlass_core::job::{End, JobSpec, JobState, Stop, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, RequestId, Resources, WorkerId};

/// Cache sizes below this, in steps, make most of a burst parked.
const SMALL_CACHE: usize = 100;

/// A request without a reply.
#[derive(Clone, Debug)]
enum Ask {
    /// The spec, the task that submits it, and the virtual time of the submission.
    Submit(Arc<JobSpec>, Option<AttemptKey>, u64),
    Cancel(JobId),
    CancelTasks(JobId, RangeSet),
    Alloc(PlaceInUse),
    Reclaim(AttemptKey),
    /// An outside client that hung up.
    Withdrawn,
    Other,
}

/// The progress of a task that waits for a job of its own.
#[derive(Clone, Debug)]
enum ParentStage {
    /// It submits its job, repeatedly until that is answered.
    Submitting(Arc<JobSpec>),
    Waiting(JobId),
    /// It wants its cpus back, and repeats that until it has them.
    Reclaiming,
    /// It runs on, and ends soon.
    Done,
}

#[derive(Default)]
pub(crate) struct People {
    next_request: u64,
    asks: BTreeMap<RequestId, Ask>,
    known: Vec<JobId>,
    /// Submissions with a key, answered or not, which may be sent again.
    keyed: Vec<Arc<JobSpec>>,
    /// Places that clients hold, each with its worker.
    places: BTreeMap<AllocId, (WorkerId, PlaceInUse)>,
    parents: BTreeMap<AttemptKey, (usize, ParentStage)>,
}

impl People {
    fn ask(&mut self, ask: Ask) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.asks.insert(request, ask);
        request
    }

    /// Submits a job, with what a shell would look up for it.
    pub fn submit(&mut self, world: &mut World, spec: Arc<JobSpec>, parent: Option<AttemptKey>) {
        let request = self.ask(Ask::Submit(spec.clone(), parent, world.now_ns));
        let existing = spec.key.as_ref().and_then(|key| world.store.job_by_key(&spec.user, key));
        let known = spec.after.iter().filter_map(|id| Some((*id, world.store.job(*id)?.state)));
        let outcomes: BTreeMap<JobId, JobState> = known.collect();
        let placeable_only = world.rng.chance(300);
        let spec = JobSpec::clone(&spec);
        let held = parent.is_none() && world.rng.chance(50);
        let read_before = world.store.next_job();
        let submit =
            Submit { held, existing, read_before, outcomes, placeable_only, ..Submit::new(request, spec) };
        world.tell(Event::Submit(Box::new(submit)));
    }

    fn submit_new(&mut self, world: &mut World, alike: bool) {
        let mut spec = random_job(&mut world.rng, &self.known);
        let first = world.rng.pick(&self.known).copied().filter(|_| world.rng.chance(150));
        let first = first.and_then(|first| Some((first, world.store.job(first)?)));
        if let Some((first, view)) = first {
            // Rarely it has another number of tasks, and must be refused.
            let tasks = view.spec.tasks() + u32::from(world.rng.chance(50));
            spec = made_following(spec, first, tasks);
        }
        let spec = Arc::new(if alike { made_alike(spec) } else { spec });
        if spec.key.is_some() {
            self.keyed.push(spec.clone());
        }
        self.submit(world, spec, None);
    }

    /// Submits wide work, a stream of narrow work beside it, and work for machines that do not exist.
    fn submit_stream(&mut self, world: &mut World) {
        let widest = world.machines.iter().map(|machine| machine.capacity.cpu).max().unwrap_or(100);
        for spec in stream(&mut world.rng, widest) {
            self.submit(world, Arc::new(spec), None);
        }
    }

    pub fn act(&mut self, world: &mut World) {
        if world.seed % 8 == 5 && self.known.len() < 4 {
            self.submit_stream(world);
        }
        let job = world.rng.pick(&self.known).copied();
        let dice = world.rng.below(110);
        match (dice, job) {
            (0..45, _) | (_, None) => {
                self.submit_new(world, false);
                // Of many jobs of one class a small cache keeps only few resident.
                if world.settings.cache_steps < SMALL_CACHE && world.rng.chance(400) {
                    (0..world.rng.between(1, 4)).for_each(|_| self.submit_new(world, true));
                }
            }
            (45..53, Some(job)) if world.rng.chance(400) => self.cancel_tasks(world, job),
            (45..53, Some(job)) => {
                let request = self.ask(Ask::Cancel(job));
                world.tell(Event::Cancel { request, job });
            }
            (53..65, Some(job)) => {
                let held = world.rng.chance(500);
                let request = self.ask(Ask::Other);
                world.tell(Event::Hold { request, job, held });
            }
            (65..77, Some(job)) if world.rng.chance(300) => {
                let (request, tasks) = (self.ask(Ask::Other), some_tasks(world));
                world.tell(Event::RetryTasks { request, job, tasks });
            }
            (65..77, Some(job)) => {
                let request = self.ask(Ask::Other);
                world.tell(Event::Retry { request, job });
            }
            (77..81, _) => self.forget(world),
            (81..84, _) => {
                let worker = WorkerId(world.rng.between(1, 5));
                let draining = world.rng.chance(500);
                self.drain(world, worker, draining);
            }
            (84..94 | 105..110, _) => self.act_on_places(world, dice),
            (94..96, _) => self.set_queue(world),
            (96..98, _) => self.set_limit(world),
            (100..105, Some(job)) => {
                let priority = world.rng.below(5) as i32;
                let request = self.ask(Ask::Other);
                world.tell(Event::Prioritize { request, job, priority });
            }
            _ => {
                if let Some(spec) = world.rng.pick(&self.keyed).cloned() {
                    self.submit(world, spec, None);
                }
            }
        }
    }

    fn cancel_tasks(&mut self, world: &mut World, job: JobId) {
        let tasks = some_tasks(world);
        let request = self.ask(Ask::CancelTasks(job, tasks.clone()));
        world.tell(Event::CancelTasks { request, job, tasks });
    }

    /// Tells a worker to take nothing new, or to take work again.
    pub fn drain(&mut self, world: &mut World, worker: WorkerId, draining: bool) {
        let request = self.ask(Ask::Other);
        world.tell(Event::Drain { request, worker, draining, note: None });
    }

    /// Sets a random queue.
    pub fn set_queue(&mut self, world: &mut World) {
        let request = self.ask(Ask::Other);
        let queue = random_queue(world);
        world.tell(Event::SetQueue { request, queue });
    }

    /// Sets a random limit, or takes it away.
    pub fn set_limit(&mut self, world: &mut World) {
        let request = self.ask(Ask::Other);
        let name = format!("l{}", world.rng.below(2));
        let max = world.rng.chance(700).then(|| world.rng.below(4) as u32);
        world.tell(Event::SetLimit { request, name, limit: max.map(limit_of) });
    }

    /// The work of outside clients and their gateways.
    fn act_on_places(&mut self, world: &mut World, dice: u64) {
        match dice {
            84..89 => {
                let amounts = Resources::new(world.rng.between(1, 2) as u32 * 100, 64 << 20);
                let queue = ["a", "b", "vip"][world.rng.below(3) as usize].to_owned();
                let place = PlaceInUse { alloc: AllocId(0), queue: queue.clone(), amounts: amounts.clone() };
                let request = self.ask(Ask::Alloc(place));
                // Long enough for some to hang up before they are answered.
                let wait_max_ms = world.rng.below(3) * 20_000;
                let place = PlaceRequest { queue, amounts, wait_max_ms, ..PlaceRequest::default() };
                world.tell(Event::Alloc { request, place: Box::new(place) });
            }
            89..94 => {
                if let Some((alloc, _)) = self.places.pop_first() {
                    world.tell(Event::Release { alloc });
                }
            }
            105..107 => {
                let open: Vec<RequestId> = self
                    .asks
                    .iter()
                    .filter(|(_, ask)| matches!(ask, Ask::Alloc(_)))
                    .map(|(id, _)| *id)
                    .collect();
                if let Some(alloc) = world.rng.pick(&open).copied() {
                    self.asks.insert(alloc, Ask::Withdrawn);
                    world.tell(Event::Unalloc { alloc });
                }
            }
            _ => self.say_places(world),
        }
    }

    /// A gateway says which places its clients hold on a worker. A scheduler that started meanwhile knows of none.
    fn say_places(&mut self, world: &mut World) {
        let Some((_, (worker, _))) = self.places.first_key_value() else { return };
        let worker = *worker;
        let places = self.places.values().filter(|(on, _)| *on == worker).map(|(_, place)| place.clone());
        world.tell(Event::PlacesInUse { worker, places: places.collect() });
    }

    /// Forgets a worker whose machines are all without a keeper, or never come back.
    pub fn forget(&mut self, world: &mut World) {
        let alive = |name: &str| world.machines.iter().any(|m| m.name == name && m.keeper.is_some());
        let dead = world.machines.iter().map(|m| m.name.as_str()).filter(|name| !alive(name));
        let workers = world.engine().map(|engine| engine.workers());
        let known = |name: &str| workers.and_then(|workers| workers.by_name(name)).map(|w| w.record.id);
        let ids: Vec<WorkerId> = dead.filter_map(known).collect();
        if let Some(worker) = world.rng.pick(&ids).copied() {
            let request = self.ask(Ask::Other);
            world.tell(Event::Forget { request, worker, force: false });
        }
    }

    pub fn answered(&mut self, world: &mut World, request: RequestId, answer: Reply) {
        let Some(ask) = self.asks.remove(&request) else {
            world.broken(format!("request {request} was answered twice, or never asked"));
            return;
        };
        match (ask, answer) {
            (Ask::Submit(.., asked_ns), Reply::Submitted { job, existing: true, .. })
                if world.promises.is_deleted(job) =>
            {
                named_deleted(world, job, asked_ns);
            }
            // It ended at once, and was deleted before its submission was answered.
            (Ask::Submit(..), Reply::Submitted { job, .. }) if world.promises.is_deleted(job) => {}
            (Ask::Submit(spec, parent, _), Reply::Submitted { job, existing, .. }) => {
                if let Err(what) = world.promises.accepted(&world.store, job, &spec, existing) {
                    world.broken(what);
                }
                if !existing {
                    self.known.push(job);
                }
                if let Some(key) = parent {
                    self.child_accepted(world, key, job);
                }
            }
            (Ask::Withdrawn, Reply::Placed { alloc, .. }) => _ = world.tell(Event::Release { alloc }),
            (Ask::Withdrawn, Reply::NoPlace(NoPlace::Withdrawn)) => world.tally.hang_ups += 1,
            (Ask::Alloc(place), Reply::Placed { alloc, worker }) => {
                self.places.insert(alloc, (worker, PlaceInUse { alloc, ..place }));
            }
            (Ask::Reclaim(key), _) => self.cpus_back(world, key),
            (Ask::Cancel(job), Reply::Done) => {
                if world.promises.is_deleted(job) {
                    return;
                }
                let view = world.store.job(job);
                let stopped = view.is_some_and(|v| v.stop == Some(Stop::Canceled));
                if !stopped && !world.promises.was_retried(job) {
                    world.broken(format!("the cancel of job {job} was answered and is not durable"));
                }
            }
            (Ask::CancelTasks(job, tasks), Reply::Done) => tasks_cancelled(world, job, tasks),
            _ => {}
        }
    }

    /// Drops a request that failed because the store took no writes.
    pub fn unavailable(&mut self, request: RequestId) {
        self.asks.remove(&request);
    }

    /// Requests that have no answer.
    pub fn unanswered(&self) -> usize {
        self.asks.len()
    }

    /// Drops all requests of a scheduler that died. Its places are given back late, to a scheduler that never gave
    /// them.
    pub fn scheduler_died(&mut self) {
        self.asks.clear();
    }

    /// Begins the life of a task that submits a job of its own.
    pub fn parent_starts(&mut self, world: &mut World, machine: usize, key: AttemptKey) {
        let spec = Arc::new(child_job(&mut world.rng, key.0, key.1));
        self.parents.insert(key, (machine, ParentStage::Submitting(spec)));
        world.after(100 * MS, SimEvent::Alarm(Alarm::Parent(key)));
    }

    fn child_accepted(&mut self, world: &mut World, key: AttemptKey, job: JobId) {
        let Some((_, stage)) = self.parents.get_mut(&key) else { return };
        if matches!(stage, ParentStage::Submitting(_)) && world.promises.runs_on(key).is_some() {
            *stage = ParentStage::Waiting(job);
            world.promises.waits(key, true);
            world.tell(Event::Lend { task: key.0 });
        }
    }

    fn cpus_back(&mut self, world: &mut World, key: AttemptKey) {
        let Some((machine, stage)) = self.parents.get_mut(&key) else { return };
        if !matches!(stage, ParentStage::Reclaiming) || world.promises.runs_on(key).is_none() {
            return;
        }
        *stage = ParentStage::Done;
        let machine = *machine;
        world.promises.waits(key, false);
        world.check_machine(machine);
        let incarnation = world.machines[machine].keepers;
        world.after(50 * MS, SimEvent::TaskEnds(machine, incarnation, key, End::Exited(0)));
    }

    /// Takes the next step of a task that waits for a job of its own.
    pub fn parent(&mut self, world: &mut World, key: AttemptKey) {
        let Some((_, stage)) = self.parents.get_mut(&key) else { return };
        if world.promises.runs_on(key).is_none() {
            self.parents.remove(&key);
            return;
        }
        world.after(2 * S, SimEvent::Alarm(Alarm::Parent(key)));
        match stage {
            ParentStage::Submitting(spec) => {
                let spec = spec.clone();
                self.submit(world, spec, Some(key));
            }
            ParentStage::Waiting(job) => {
                let active = world.store.job(*job).is_some_and(|view| view.state == JobState::Active);
                if active {
                    // The request is repeated, because the scheduler may be another one by now.
                    world.tell(Event::Lend { task: key.0 });
                } else {
                    *stage = ParentStage::Reclaiming;
                    self.reclaim(world, key);
                }
            }
            ParentStage::Reclaiming => self.reclaim(world, key),
            ParentStage::Done => {}
        }
    }

    fn reclaim(&mut self, world: &mut World, key: AttemptKey) {
        let request = self.ask(Ask::Reclaim(key));
        world.tell(Event::Reclaim { request, task: key.0 });
    }

    /// Undoes everything that keeps work from ending, and cancels hopeless jobs.
    pub fn tidy(&mut self, world: &mut World, hopeless: &[JobId]) {
        while let Some((alloc, _)) = self.places.pop_first() {
            world.tell(Event::Release { alloc });
        }
        if world.engine().is_none() {
            return;
        }
        for name in ["a", "b", "vip"].map(str::to_owned) {
            let (request, weight) = (self.ask(Ask::Other), 100);
            world.tell(Event::SetQueue {
                request,
                queue: QueueRecord { weight, ..QueueRecord::named(&name) },
            });
        }
        for name in ["l0", "l1"].map(str::to_owned) {
            let request = self.ask(Ask::Other);
            world.tell(Event::SetLimit { request, name, limit: None });
        }
        self.tidy_jobs_and_workers(world);
        for job in hopeless {
            let request = self.ask(Ask::Cancel(*job));
            world.tell(Event::Cancel { request, job: *job });
        }
    }

    /// Releases held jobs, ends the draining of workers, and forgets the workers of machines that never come back.
    fn tidy_jobs_and_workers(&mut self, world: &mut World) {
        let Some(engine) = world.engine() else { return };
        let retired = world.machines.iter().filter(|machine| machine.retired).filter_map(|machine| {
            let worker = engine.workers().by_name(&machine.name)?;
            (worker.record.identity == machine.identity).then_some(worker.record.id)
        });
        let retired: BTreeSet<WorkerId> = retired.collect();
        let held: Vec<JobId> = engine.jobs().filter(|job| job.held).map(|job| job.id).collect();
        let workers: Vec<WorkerId> = engine.workers().iter().map(|worker| worker.record.id).collect();
        for job in held {
            let request = self.ask(Ask::Other);
            world.tell(Event::Hold { request, job, held: false });
        }
        for worker in workers {
            self.drain(world, worker, false);
        }
        for worker in retired {
            let request = self.ask(Ask::Other);
            world.tell(Event::Forget { request, worker, force: false });
        }
    }
}

/// A few tasks in a row, which a job may have or not.
fn some_tasks(world: &mut World) -> RangeSet {
    let first = world.rng.below(5) as u32;
    RangeSet::from_range(first..first + world.rng.between(1, 3) as u32)
}

/// Checks that a cancel of tasks that was answered is durable: they have ended, or are cancelled.
fn tasks_cancelled(world: &mut World, job: JobId, tasks: RangeSet) {
    let Some(view) = world.store.job(job).filter(|_| !world.promises.was_retried(job)) else { return };
    let mut open = tasks;
    open.subtract(&view.cancels);
    for task in world.store.tasks(job, 0..u32::MAX) {
        if task.row.state >= TaskState::Succeeded {
            open.remove(task.row.index);
        }
    }
    if !open.is_empty() {
        world.broken(format!("the cancel of tasks of job {job} was answered and is not durable: {open:?}"));
    }
}

/// A queue with a random weight, and mostly a quota.
fn random_queue(world: &mut World) -> QueueRecord {
    let name = ["a", "b", "vip"][world.rng.below(3) as usize];
    let quota_cpu = world.rng.chance(600).then(|| world.rng.between(1, 8) as u32 * 50);
    let weight = world.rng.between(1, 300) as u32;
    let more = world.rng.between(0, 3) as u32 * 100;
    let burst_cpu = quota_cpu.filter(|_| world.rng.chance(300)).map(|quota| quota + more);
    let band = world.rng.chance(200).then(|| world.rng.below(4) as u8);
    let paused = world.rng.chance(150).then(|| "later".to_owned());
    let turns = if world.rng.chance(200) { TurnsBy::Jobs } else { TurnsBy::default() };
    let weight_of_ann = world.rng.chance(300).then(|| ("ann".to_owned(), world.rng.between(1, 300) as u32));
    let user_weights = weight_of_ann.into_iter().collect();
    QueueRecord {
        weight,
        quota_cpu,
        burst_cpu,
        band,
        paused,
        turns,
        user_weights,
        ..QueueRecord::named(name)
    }
}

/// A limit of `max` tasks. Some limits count per worker, and some have a busy exit code.
fn limit_of(max: u32) -> Limit {
    let busy = Busy { exits: [1].into(), back_off_ms: 500 };
    match max {
        3 => Limit { per_worker: Some(1), busy: Some(busy), ..Limit::of(max) },
        2 => Limit { per_worker: Some(max), ..Limit::default() },
        _ => Limit::of(max),
    }
}

/// Judges a reply that names a deleted job for a key. The job may have existed when that was decided, but not
/// if it was deleted before the request was made.
fn named_deleted(world: &mut World, job: JobId, asked_ns: u64) {
    if world.promises.deleted_ns(job).is_some_and(|at| at < asked_ns) {
        world.broken(format!("a key names {job}, which was deleted before"));
    }
}
