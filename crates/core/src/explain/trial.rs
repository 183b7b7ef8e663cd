//! Advice is tried before it is given: on a copy of the engine the change is made, rounds follow, and the task must be
//! placed. So whatever else counts (turns, bands, quotas, limits, gangs, reservations) counts for advice as well.

use super::explanation::{Change, Edit, Starts};
use super::gangs::leader_of;
use crate::class::Class;
use crate::engine::{
    Engine, Event, Held, HeldPhase, Hello, Inventory, Outbox, Pipeline, Reply, Report, Submit, Write,
};
use crate::ids::{AllocId, RequestId, StepKey, TaskId, WorkerId};
use crate::job::{End, JobSpec, StepSpec, TaskResult};
use crate::ledger::lend;
use crate::licences::Limit;
use crate::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use crate::plan::VetoedStep;
use crate::plan::placement::{self, Ineligible, VetoedUse};
use crate::queues::QueueRecord;
use crate::resources::Resources;
use crate::tags::{Attributes, EXECUTOR, Need};
use crate::time::Time;
use crate::worker::Worker;

/// Tasks that one round of a trial may book, and rounds after one change. A farm with more to place than that is not at
/// rest, and no advice holds there.
const ROUND_BUDGET: usize = 10_000;
const ROUNDS_MAX: usize = 8;
/// The request of a trial. Its answer is read from the batch at once.
const REQUEST: RequestId = RequestId(u64::MAX);

/// What is to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// A task of a job.
    Task(TaskId),
    /// A request of an outside client.
    Place(StepKey),
}

/// A copy of the engine in which something is changed.
#[derive(Clone)]
pub(super) struct Trial {
    engine: Engine,
    pipeline: Pipeline,
    goal: Goal,
    /// What to read of the last batch.
    answer: Option<Reply>,
    /// Bookings since they were taken last.
    booked: Vec<TaskId>,
}

impl Trial {
    /// A copy, after the rounds that are due. One that is not due would change what is remembered between rounds.
    pub(super) fn of(engine: &Engine, goal: Goal) -> Trial {
        let pipeline = Pipeline::default();
        let mut trial = Trial { engine: engine.clone(), pipeline, goal, answer: None, booked: Vec::new() };
        if engine.planner().needs_round() {
            trial.settle();
        }
        trial
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// True if what is to be placed is.
    pub(super) fn is_placed(&self) -> bool {
        match self.goal {
            Goal::Task(task) => self.engine.attempt(task).is_some(),
            Goal::Place(key) => !self.engine.places().waits(key),
        }
    }

    /// True if what is to be placed has room on its worker, and does not wait there for others to end.
    pub(super) fn is_started(&self) -> bool {
        match self.goal {
            Goal::Task(task) => self.engine.attempt(task).is_some_and(|attempt| !attempt.queued),
            Goal::Place(_) => self.is_placed(),
        }
    }

    /// The tasks that were booked since this was asked last.
    pub(super) fn take_booked(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.booked)
    }

    /// Tells the copy something, without rounds.
    pub(super) fn hear(&mut self, at: Time, event: Event) {
        self.engine.handle(at, event, &mut self.pipeline.forming);
        self.commit();
    }

    fn tell(&mut self, event: Event) {
        self.hear(self.engine.planner().now(), event);
        self.settle();
    }

    /// Rounds until nothing more is placed.
    pub(super) fn settle(&mut self) {
        let now = self.engine.planner().now();
        for _ in 0..ROUNDS_MAX {
            let booked = self.engine.round(now, ROUND_BUDGET, &mut self.pipeline.forming);
            self.commit();
            if booked == 0 && !self.engine.planner().needs_round() {
                break;
            }
        }
    }

    fn commit(&mut self) {
        let batch: Outbox = self.pipeline.commit_at_once(&mut self.engine);
        self.booked.extend(batch.writes.iter().filter_map(|write| match write {
            Write::Book { task, .. } => Some(*task),
            _ => None,
        }));
        let own = batch.replies.iter().chain(&batch.volatile).find(|(request, _)| *request == REQUEST);
        self.answer = own.map(|(_, reply)| reply.clone()).or_else(|| self.answer.take());
        self.pipeline.reuse(batch);
    }

    /// Makes the change, which may be one that cannot be made on a copy: then nothing happens.
    pub(super) fn make(&mut self, change: &Change) {
        match change {
            Change::Wait => {}
            Change::All(changes) => changes.iter().for_each(|change| self.make(change)),
            Change::Worker { worker, unmet } => unmet.iter().for_each(|why| self.mend(worker, why)),
            Change::Resubmit { edits, .. } => self.resubmit(edits),
            Change::Quota(name, cpu) => {
                let cpu = u32::try_from(*cpu).unwrap_or(u32::MAX);
                self.set_queue(name, |queue| {
                    queue.quota_cpu = Some(cpu);
                    queue.burst_cpu = queue.burst_cpu.map(|burst| burst.max(cpu));
                });
            }
            Change::Resume(name) => self.set_queue(name, |queue| queue.paused = None),
            Change::Pause(name) => self.set_queue(name, |queue| queue.paused = Some(String::new())),
            Change::Weight(name, weight) => self.set_queue(name, |queue| queue.weight = *weight),
            Change::Band(name, band) => self.set_queue(name, |queue| queue.band = Some(*band)),
            Change::UserWeight { queue, user, weight } => {
                self.set_queue(queue, |queue| _ = queue.user_weights.insert(user.clone(), *weight));
            }
            Change::Limit(name, max) => self.set_limit(name, |limit| limit.max = Some(*max)),
            Change::TryAgain(name, _) => self.set_limit(name, |_| ()),
            Change::Release(job) => self.tell(Event::Hold { request: REQUEST, job: *job, held: false }),
            Change::Priority(job, priority) => {
                self.tell(Event::Prioritize { request: REQUEST, job: *job, priority: *priority });
            }
            Change::Connect { system, needs } => {
                let executor = Need { key: EXECUTOR.to_owned(), any_of: [system.clone()].into() };
                let needs: Vec<Need> = needs.iter().cloned().chain([executor]).collect();
                self.connect("trial", &needs);
            }
            Change::Mate { step, targets } => self.connect_for(step, targets),
        }
    }

    fn set_queue(&mut self, name: &str, change: impl FnOnce(&mut QueueRecord)) {
        let Some(id) = self.engine.queues().id(name) else { return };
        let mut queue = self.engine.queues().get(id).record.clone();
        change(&mut queue);
        self.tell(Event::SetQueue { request: REQUEST, queue });
    }

    fn set_limit(&mut self, name: &str, change: impl FnOnce(&mut Limit)) {
        let mut limit = self.engine.licences().limits().get(name).cloned().unwrap_or_default();
        change(&mut limit);
        self.tell(Event::SetLimit { request: REQUEST, name: name.to_owned(), limit: Some(limit) });
    }

    /// Takes away what is in the way on a worker.
    fn mend(&mut self, worker: &str, why: &Ineligible) {
        let Some(worker) = self.engine.workers().by_name(worker).cloned() else { return };
        match why {
            Ineligible::Attribute(need) => {
                let mut hello = self.hello_of(&worker);
                give(&mut hello.attributes, need);
                self.tell(Event::Hello(Box::new(hello)));
            }
            Ineligible::Suspect => {
                let hello = self.hello_of(&worker);
                self.tell(Event::Hello(Box::new(hello)));
            }
            Ineligible::Draining(_) => {
                let (worker, request) = (worker.record.id, REQUEST);
                self.tell(Event::Drain { request, worker, draining: false, note: None });
            }
            Ineligible::LowSpace { directory, needs, .. } => self.report(&worker, |report| {
                // Mostly they are one file system.
                let is_one = report.state_space == report.session_space;
                let spaces = [("state", &mut report.state_space), ("session", &mut report.session_space)];
                for (name, space) in spaces {
                    if let Some(space) = space.as_mut().filter(|_| is_one || name == *directory) {
                        space.free_bytes = space.free_bytes.max(*needs);
                    }
                }
            }),
            Ineligible::UnderPressure(_) => self.report(&worker, |report| {
                let none = Some(Pressure { some: Some(Stall::default()), full: None });
                let none = Pressures { cpu: none, memory: none, io: none };
                (report.machine, report.own) = (none, none);
            }),
            Ineligible::Foreign(_) => self.mend_memory(&worker),
            Ineligible::Limit { name, max } => {
                let more = max.saturating_add(1);
                self.set_limit(name, |limit| limit.per_worker = Some(more));
            }
            Ineligible::TooFew { tasks, could } => {
                for number in 0..tasks.saturating_sub(*could) {
                    let record = &worker.record;
                    let number = u64::MAX - u64::from(number);
                    let mut hello = Hello::new(&format!("trial{number}"), number, record.capacity.clone());
                    hello.attributes.clone_from(&record.attributes);
                    self.tell(Event::Hello(Box::new(hello)));
                }
            }
            Ineligible::Vetoed { .. } => self.end_use(&worker, why.vetoed_use()),
            _ => {}
        }
    }

    /// Other programs cease to use that for which a rule vetoes the worker.
    fn end_use(&mut self, worker: &Worker, used: Option<VetoedUse>) {
        match used {
            Some(VetoedUse::Memory) => self.mend_memory(worker),
            Some(VetoedUse::Cores) => {
                self.report(worker, |report| report.cpu_foreign = Some(0.0));
                // No room is gained by that, so the step is judged again only when its time comes.
                if let Some(at) = self.vetoed().map(|vetoed| vetoed.again) {
                    self.hear(at.max(self.engine.planner().now()), Event::Tick);
                    self.settle();
                }
            }
            None => {}
        }
    }

    /// Other programs hold none of the worker's memory.
    fn mend_memory(&mut self, worker: &Worker) {
        let all = worker.record.capacity.memory.saturating_mul(2);
        self.report(worker, |report| {
            report.memory_available = report.memory_available.map(|free| free.max(all));
        });
    }

    /// Set if a rule vetoes the goal on every worker with room.
    fn vetoed(&self) -> Option<&VetoedStep> {
        let key = match self.goal {
            Goal::Task(task) => {
                let job = self.engine.job(task.job)?;
                leader_of(job, StepKey { job: task.job, step: job.step_of(task.index) })
            }
            Goal::Place(key) => key,
        };
        self.engine.planner().vetoed.get(key)
    }

    /// What the worker would say if it came back as it is.
    fn hello_of(&self, worker: &Worker) -> Hello {
        let record = &worker.record;
        let tasks = worker.booked.running().iter().chain(worker.booked.backlog());
        let held = tasks.filter_map(|task| {
            let attempt = self.engine.attempt(*task)?;
            let phase = attempt.started.map_or(HeldPhase::Queued, HeldPhase::Running);
            Some(Held { task: *task, attempt: attempt.number, phase })
        });
        Hello {
            name: record.name.clone(),
            identity: record.identity,
            incarnation: record.incarnation,
            fences: record.lease_until.is_some(),
            sent: worker.link.last_sent,
            new_link: false,
            capacity: record.capacity.clone(),
            attributes: record.attributes.clone(),
            inventory: Inventory { seq: worker.link.seq, held: held.collect() },
        }
    }

    fn report(&mut self, worker: &Worker, change: impl FnOnce(&mut LoadReport)) {
        let Some(mut report) = worker.reported.load().cloned() else { return };
        change(&mut report);
        self.tell(Event::Load { worker: worker.record.id, report: Box::new(report) });
    }

    /// A worker that meets needs, and is as large as the goal asks.
    fn connect(&mut self, name: &str, needs: &[Need]) {
        let request = self.class().map(|class| class.request.clone()).unwrap_or_default();
        self.join(name, request, needs);
    }

    fn connect_for(&mut self, step: &str, targets: &[String]) {
        let Goal::Task(task) = self.goal else { return };
        let Some(job) = self.engine.job(task.job) else { return };
        let Some(number) = job.spec.steps.iter().position(|spec| spec.name == step) else { return };
        let Some(class) = self.engine.class_of(StepKey { job: task.job, step: number as u16 }) else {
            return;
        };
        let (request, needs) = (class.request.clone(), class.needs.clone());
        let name = targets.first().map_or("trial", String::as_str).to_owned();
        self.join(&name, request, &needs);
    }

    fn join(&mut self, name: &str, request: Resources, needs: &[Need]) {
        let capacity = Resources { cpu: request.cpu.max(100), ..request };
        let mut hello = Hello::new(name, u64::MAX, capacity.clone());
        needs.iter().for_each(|need| give(&mut hello.attributes, need));
        self.tell(Event::Hello(Box::new(hello)));
        let Some(id) = self.engine.workers().by_name(name).map(|worker| worker.record.id) else { return };
        let report = LoadReport {
            memory_available: Some(capacity.memory),
            memory_own: Some(0),
            ..LoadReport::default()
        };
        self.tell(Event::Load { worker: id, report: Box::new(report) });
    }

    /// Submits one task like the goal beside it, with changes.
    fn resubmit(&mut self, edits: &[Edit]) {
        let Goal::Task(task) = self.goal else { return };
        let Some(job) = self.engine.job(task.job) else { return };
        let number = usize::from(job.step_of(task.index));
        let mut step = StepSpec { tasks: 1, depends: Vec::new(), ..job.spec.steps[number].clone() };
        let mut queue = job.spec.queue.clone();
        for edit in edits {
            match edit {
                Edit::Less(name, amount) => ask_less(&mut step.request, name, *amount),
                Edit::Queue(name) => queue.clone_from(name),
                Edit::Target(name) => step.targets = [name.clone()].into(),
                Edit::Without(need) => step.needs.retain(|other| other != need),
            }
        }
        let (name, user, priority) = (job.spec.name.clone(), job.spec.user.clone(), job.spec.priority);
        let (parent, steps) = (job.spec.parent, vec![step]);
        let spec = JobSpec { name, queue, user, priority, parent, steps, ..JobSpec::default() };
        self.answer = None;
        self.hear(self.engine.planner().now(), Event::Submit(Box::new(Submit::new(REQUEST, spec))));
        if let Some(Reply::Submitted { job, .. }) = self.answer {
            self.goal = Goal::Task(TaskId { job, index: 0 });
        }
        self.settle();
    }

    /// The class of the goal.
    pub(super) fn class(&self) -> Option<&Class> {
        match self.goal {
            Goal::Task(task) => {
                let step = self.engine.job(task.job)?.step_of(task.index);
                self.engine.class_of(StepKey { job: task.job, step })
            }
            Goal::Place(key) => {
                let (_, waiting) = self.engine.places().waiting().find(|(waiting, _)| *waiting == key)?;
                self.engine.class(waiting.class)
            }
        }
    }

    /// Ends what runs on a worker, what ends first coming first, until the goal is placed there. `None` if all has
    /// ended, if something else got what the goal waits for, or if it found its place elsewhere.
    pub(super) fn placed_when_free(&mut self, worker: &str) -> Option<Starts> {
        let id = self.engine.workers().by_name(worker)?.record.id;
        self.booked.clear();
        let has_room = |trial: &Trial| {
            let known = trial.class().zip(trial.engine.workers().get(id));
            known.is_none_or(|(class, worker)| placement::fits_now(class, worker))
        };
        let takes_work = self.engine.workers().get(id).is_some_and(Worker::takes_work);
        let is_kept_off = !takes_work || (self.vetoed().is_some() && has_room(self));
        let mut after_smaller = false;
        while !self.is_placed() {
            if (has_room(self) && !is_kept_off) || !self.end_next_of(id) {
                return None;
            }
            let was_room = has_room(self);
            self.settle();
            let booked = self.take_booked();
            if self.is_placed() {
                break;
            }
            let starts_there = |task: &TaskId| {
                self.engine.attempt(*task).is_some_and(|attempt| attempt.worker == id && !attempt.queued)
            };
            let others_start = booked.iter().any(starts_there);
            let others_got_it = if is_kept_off { others_start } else { was_room };
            if others_got_it {
                return None;
            }
            after_smaller |= others_start;
        }
        let worker = worker.to_owned();
        self.is_on(id).then_some(match (is_kept_off, after_smaller) {
            (true, _) => Starts::AfterTasks(worker),
            (false, true) => Starts::AfterSmaller(worker),
            (false, false) => Starts::WhenFree(worker),
        })
    }

    /// True if a task was placed on this worker. Where a client's place is, its client is told.
    fn is_on(&self, worker: WorkerId) -> bool {
        match self.goal {
            Goal::Task(task) => self.engine.attempt(task).is_some_and(|attempt| attempt.worker == worker),
            Goal::Place(_) => true,
        }
    }

    /// The tasks that wait until the job of the goal has ended.
    pub(super) fn waiting_for_goal(&self) -> Vec<TaskId> {
        match self.goal {
            Goal::Task(task) => lend::waiting_for(self.engine.ledger(), task.job),
            Goal::Place(_) => Vec::new(),
        }
    }

    /// Ends the task of a worker that is expected to end first, or frees a place there. False if it has neither.
    fn end_next_of(&mut self, worker: WorkerId) -> bool {
        let Some(known) = self.engine.workers().get(worker) else { return false };
        let runs = known.booked.running().iter().copied();
        // What waits for the goal does not end before it.
        let waiting = self.waiting_for_goal();
        let heads = runs.filter(|task| self.engine.attempt(*task).is_some_and(|attempt| !attempt.rides));
        let heads = heads.filter(|task| !waiting.contains(task));
        let next =
            heads.min_by_key(|task| (self.engine.expected_end(*task).unwrap_or(Time(u64::MAX)), *task));
        let now = self.engine.planner().now();
        if let Some(task) = next {
            self.end(now, task);
            return true;
        }
        let place: Option<AllocId> = known.booked.places().keys().next().copied();
        let Some(alloc) = place else { return false };
        self.hear(now, Event::Release { alloc });
        true
    }

    /// A task succeeds, without a round. So do those that ride with it.
    pub(super) fn end(&mut self, at: Time, task: TaskId) {
        let riders = self.engine.riders(task);
        let tasks = riders.into_iter().map(|(rider, _)| rider).chain([task]);
        for task in tasks.collect::<Vec<_>>() {
            let Some(attempt) = self.engine.attempt(task) else { continue };
            let by = Report { worker: attempt.worker, epoch: attempt.epoch, task, attempt: attempt.number };
            // Without its times nothing would be learned of how long it took.
            let (started, finished) = (attempt.started, Some(at));
            let result = TaskResult { started, finished, ..TaskResult::bare(End::Exited(0)) };
            self.hear(at, Event::Finished { by, result });
        }
    }

    /// A booked task has started.
    pub(super) fn start(&mut self, at: Time, task: TaskId) {
        let Some(attempt) = self.engine.attempt(task).filter(|attempt| !attempt.queued) else { return };
        let by = Report { worker: attempt.worker, epoch: attempt.epoch, task, attempt: attempt.number };
        self.hear(at, Event::Started { by, at });
    }
}

/// Adds what a need asks for.
fn give(attributes: &mut Attributes, need: &Need) {
    let values = attributes.entry(need.key.clone()).or_default();
    values.extend(need.any_of.first().cloned());
}

fn ask_less(request: &mut Resources, name: &str, amount: u64) {
    match name {
        "cpu" => request.cpu = amount as u32,
        "memory" => request.memory = amount,
        "gpus" => request.gpus = amount as u32,
        "gpu_memory" => request.gpu_memory = amount,
        custom => _ = request.custom.insert(custom.to_owned(), amount),
    }
}
