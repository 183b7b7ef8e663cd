//! The farm of the core's tests: an engine, the pipeline through which it commits, and a clock that stands until a test
//! moves it. Its workers do nothing by themselves; those of [`live::LiveFarm`] run what they are sent.

pub mod live;
pub mod places;

use std::collections::BTreeMap;
use windlass_core::engine::{
    Engine, Event, Hello, Outbox, Pipeline, Reply, Report, Settings, StoredState, Submit, WorkerCommand,
};
use windlass_core::explain::Explanation;
use windlass_core::job::{End, JobRecord, JobSpec, StepSpec, TaskResult, TaskRow, TaskState};
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::time::NS_PER_S;
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

pub const GIB: u64 = 1 << 30;

/// Late enough for jobs that began days before.
pub const START: Time = Time(1_000_000 * NS_PER_S);

/// The number of all requests whose answer no test reads.
pub const REQUEST: RequestId = RequestId(0);

/// An engine, and what went out of it. Batches are durable at once, unless a test holds them in the pipeline.
pub struct Farm {
    pub engine: Engine,
    pub pipeline: Pipeline,
    pub now: Time,
    /// The last answer to each request.
    pub replies: BTreeMap<RequestId, Reply>,
    /// All that went out, in order, since a test took it.
    pub out: Outbox,
    /// Whether each commit is followed by [`Engine::check`], which walks all tasks: a farm with a million of them
    /// leaves it to its tests.
    pub checks: bool,
    requests: u64,
}

impl Farm {
    pub fn new(settings: Settings) -> Farm {
        Farm {
            engine: Engine::new(settings),
            pipeline: Pipeline::default(),
            now: START,
            replies: BTreeMap::new(),
            out: Outbox::default(),
            checks: true,
            requests: 0,
        }
    }

    /// The workers are named `w1`, `w2` and so on.
    pub fn with_workers(settings: Settings, capacities: impl IntoIterator<Item = Resources>) -> Farm {
        let mut farm = Farm::new(settings);
        for (n, capacity) in (1..).zip(capacities) {
            farm.worker(&format!("w{n}"), capacity);
        }
        farm
    }

    /// What another engine left in its store, taken over at this time.
    pub fn restored(settings: Settings, stored: StoredState, now: Time) -> Farm {
        let mut farm = Farm { engine: Engine::restore(settings, stored), now, ..Farm::new(settings) };
        farm.engine.settle_restored(now, &mut farm.pipeline.forming);
        farm.commit();
        farm
    }

    /// Nothing of what comes of the event is durable yet.
    pub fn handle(&mut self, event: Event) {
        self.engine.handle(self.now, event, &mut self.pipeline.forming);
    }

    /// What comes of the event goes out as one batch, and no round follows.
    pub fn hear(&mut self, event: Event) {
        self.handle(event);
        self.commit();
    }

    /// The event, and the rounds that a server would run after it.
    pub fn tell(&mut self, event: Event) {
        self.hear(event);
        self.settle();
    }

    /// Hears a request under a number of its own, by which [`Farm::replies`] has the answer.
    pub fn ask(&mut self, event: impl FnOnce(RequestId) -> Event) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.hear(event(request));
        request
    }

    /// Returns how many tasks the round booked.
    pub fn round(&mut self) -> usize {
        let booked = self.engine.round(self.now, 1_000, &mut self.pipeline.forming);
        self.commit();
        booked
    }

    /// Rounds until one books nothing.
    pub fn settle(&mut self) {
        while self.round() > 0 {}
    }

    pub fn commit(&mut self) {
        let batch = self.pipeline.commit_at_once(&mut self.engine);
        self.go_out(batch);
    }

    pub fn go_out(&mut self, batch: Outbox) {
        self.replies.extend(batch.replies.iter().chain(&batch.volatile).cloned());
        self.out.writes.extend(batch.writes);
        self.out.sends.extend(batch.sends);
        self.out.replies.extend(batch.replies);
        self.out.volatile.extend(batch.volatile);
        self.out.facts.extend(batch.facts);
        self.out.fetches.extend(batch.fetches);
        if self.checks {
            self.check();
        }
    }

    pub fn take(&mut self) -> Outbox {
        std::mem::take(&mut self.out)
    }

    pub fn check(&self) {
        self.engine.check().expect("the engine's books are right");
    }

    pub fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.tell(Event::Tick);
    }

    pub fn worker(&mut self, name: &str, capacity: Resources) -> WorkerId {
        self.join(hello(name, capacity))
    }

    pub fn join(&mut self, hello: Hello) -> WorkerId {
        let name = hello.name.clone();
        self.tell(Event::Hello(Box::new(hello)));
        self.engine.workers().by_name(&name).expect("it was welcomed").record.id
    }

    /// A job of which the rounds that follow place what they can.
    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        let job = self.accept(spec);
        self.settle();
        job
    }

    /// A job, and no round yet.
    pub fn accept(&mut self, spec: JobSpec) -> JobId {
        match self.submission(spec) {
            Reply::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }

    /// What a submission is answered, before a round.
    pub fn submission(&mut self, spec: JobSpec) -> Reply {
        let request = self.ask(|request| Event::Submit(Box::new(Submit::new(request, spec))));
        self.replies[&request].clone()
    }

    /// The head of what a worker says of the attempt that the task has now.
    pub fn report(&self, task: TaskId) -> Report {
        let attempt = self.engine.attempt(task).expect("it is booked");
        Report { worker: attempt.worker, epoch: attempt.epoch, task, attempt: attempt.number }
    }

    /// The task's attempt ends, and its worker says no more of it than its exit code.
    pub fn end(&mut self, task: TaskId, exit: i32) {
        let by = self.report(task);
        self.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(exit)) });
    }

    pub fn is_placed(&self, task: TaskId) -> bool {
        self.engine.attempt(task).is_some()
    }

    pub fn why(&self, task: TaskId) -> Explanation {
        windlass_core::explain::task(&self.engine, task).expect("it is active")
    }
}

pub fn cores(n: u32) -> Resources {
    Resources::new(n * 100, 0)
}

/// Its machine's number is made of its name, so that every hello of a name is of one machine and one keeper.
pub fn hello(name: &str, capacity: Resources) -> Hello {
    let number = name.bytes().fold(0, |number: u64, byte| (number << 8) | u64::from(byte));
    Hello::new(name, number, capacity)
}

pub fn step(tasks: u32, request: Resources) -> StepSpec {
    StepSpec { name: "s".to_owned(), tasks, request, ..StepSpec::default() }
}

pub fn spec(queue: &str, steps: impl Into<Vec<StepSpec>>) -> JobSpec {
    JobSpec { queue: queue.to_owned(), steps: steps.into(), ..JobSpec::default() }
}

pub fn task(job: JobId, index: u32) -> TaskId {
    TaskId { job, index }
}

pub fn set_limit(name: &str, limit: Limit) -> Event {
    Event::SetLimit { request: REQUEST, name: name.to_owned(), limit: Some(limit) }
}

pub fn set_queue(queue: QueueRecord) -> Event {
    Event::SetQueue { request: REQUEST, queue }
}

/// Which tasks were sent where.
pub fn starts(out: &Outbox) -> Vec<(WorkerId, TaskId)> {
    let sends = out.sends.iter().filter_map(|send| match send.command {
        WorkerCommand::Start { task, .. } => Some((send.worker, task)),
        _ => None,
    });
    sends.collect()
}

/// An active job as a store has it.
pub fn record(job: u64, spec: JobSpec, tasks: Vec<TaskRow>) -> JobRecord {
    JobRecord { tasks, ..JobRecord::new(JobId(job), spec.into(), START) }
}

/// A job's first task as a store has it, booked for the first time under its worker's first epoch.
pub fn booked(worker: WorkerId) -> TaskRow {
    TaskRow {
        index: 0,
        state: TaskState::Booked,
        attempt: 1,
        failures: 0,
        losses: 0,
        worker,
        epoch: Epoch(1),
        booked: START,
        amounts: None,
    }
}
