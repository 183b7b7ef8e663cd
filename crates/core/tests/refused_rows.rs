//! Rows that somebody else had changed: their jobs are read again, and nobody else waits for it.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{
    Committed, Engine, Event, FetchQuery, Hello, Inventory, NextBatch, Outbox, Pipeline, Report, Settings,
    Submit, WorkerCommand, Write,
};
use windlass_core::job::{End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskRow, TaskState};
use windlass_core::licences::Limit;
use windlass_core::time::NS_PER_S;
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

const ONE: WorkerId = WorkerId(1);
const TWO: WorkerId = WorkerId(2);

/// An engine that commits through a pipeline, and a store that refuses what it is told to.
struct Farm {
    engine: Engine,
    pipeline: Pipeline,
    now: Time,
    fetches: Vec<u64>,
}

impl Farm {
    /// Two workers of one core each.
    fn new() -> Farm {
        let engine = Engine::new(Settings { lease_ns: None, ..Settings::default() });
        let mut farm =
            Farm { engine, pipeline: Pipeline::default(), now: Time(NS_PER_S), fetches: Vec::new() };
        for name in ["one", "two"] {
            farm.tell(Event::Hello(Box::new(Hello::new(name, 7, Resources::new(100, 0)))));
            farm.commit(|_| false);
        }
        farm
    }

    fn tell(&mut self, event: Event) {
        self.engine.handle(self.now, event, &mut self.pipeline.forming);
        self.round();
    }

    fn round(&mut self) {
        self.engine.round(self.now, 1_000, &mut self.pipeline.forming);
        self.engine.check().expect("the engine's books are right");
    }

    fn submit(&mut self, job: u64, spec: JobSpec) {
        self.tell(Event::Submit(Box::new(Submit::new(RequestId(job), spec))));
    }

    /// Commits what formed, but for the writes that somebody else had changed. Returns what goes out.
    fn commit(&mut self, refuses: impl Fn(&Write) -> bool) -> Committed {
        let committed = match self.pipeline.next_batch() {
            None => return Committed::default(),
            Some(NextBatch::Deliver(batch)) => Committed { batch: *batch, undone: Vec::new() },
            Some(NextBatch::Commit(batch)) => {
                let rows = batch.writes.iter().enumerate().filter(|(_, write)| refuses(write));
                let rows: Vec<usize> = rows.map(|(number, _)| number).collect();
                drop(batch);
                self.pipeline.committed(&mut self.engine, &rows)
            }
        };
        self.engine.committed(&committed.batch);
        self.fetches.extend(committed.batch.fetches.iter().map(|fetch| {
            assert!(matches!(fetch.wanted, FetchQuery::Jobs(_)), "{fetch:?}");
            fetch.number
        }));
        self.engine.check().expect("the engine's books are right");
        committed
    }

    fn read(&mut self, records: Vec<JobRecord>) {
        let number = self.fetches.pop().expect("the jobs are read again");
        self.tell(Event::Fetched { number, records: Some(records) });
    }
}

fn spec(tasks: u32) -> JobSpec {
    let step = StepSpec { tasks, request: Resources::new(100, 0), ..StepSpec::default() };
    JobSpec { steps: vec![step], ..JobSpec::default() }
}

fn record(job: u64, spec: JobSpec, tasks: Vec<TaskRow>) -> JobRecord {
    JobRecord {
        id: JobId(job),
        spec: spec.into(),
        created: Time(NS_PER_S),
        state: JobState::Active,
        stop: None,
        held: false,
        parked: None,
        tasks,
        ended: Vec::new(),
        back_offs: BTreeMap::new(),
    }
}

/// Somebody else's booking of a job's first task.
fn booked(worker: WorkerId, attempt: u32) -> TaskRow {
    TaskRow {
        index: 0,
        state: TaskState::Booked,
        attempt,
        failures: 0,
        losses: 0,
        worker,
        epoch: Epoch(1),
        booked: Time(NS_PER_S),
        amounts: None,
    }
}

fn task(job: u64) -> TaskId {
    TaskId { job: JobId(job), index: 0 }
}

fn books(write: &Write, job: u64) -> bool {
    matches!(write, Write::Book { task, .. } if task.job == JobId(job))
}

fn starts(out: &Outbox) -> Vec<(WorkerId, JobId)> {
    let start = |send: &windlass_core::engine::Send| match &send.order {
        WorkerCommand::Start { task, .. } => Some((send.worker, task.job)),
        _ => None,
    };
    out.sends.iter().filter_map(start).collect()
}

fn resynced(out: &Outbox) -> Vec<WorkerId> {
    out.sends.iter().filter(|send| send.order == WorkerCommand::Resync).map(|send| send.worker).collect()
}

/// Jobs 1 and 2 run, and the booking of job 1 was refused.
fn refused() -> (Farm, WorkerId, WorkerId) {
    let mut farm = Farm::new();
    farm.submit(1, spec(1));
    farm.submit(2, spec(1));
    let worker_of = |job| farm.engine.attempt(task(job)).expect("it is booked").worker;
    let (first, second) = (worker_of(1), worker_of(2));
    let out = farm.commit(|write| books(write, 1));
    assert_eq!(starts(&out.batch), [(second, JobId(2))], "what was not refused goes out");
    assert_eq!(out.undone, [RequestId(1)]);
    (farm, first, second)
}

#[test]
fn a_refused_row_makes_nobody_else_wait() {
    let (mut farm, first, second) = refused();
    assert!(farm.pipeline.stalled().is_none());
    // The other worker's task ends, and the next one starts there, while the job is being read.
    let by = Report { worker: second, epoch: Epoch(1), task: task(2), attempt: 1 };
    let result = TaskResult::bare(End::Exited(0));
    farm.tell(Event::Finished { by, result });
    farm.submit(3, spec(2));
    let out = farm.commit(|_| false);
    assert_eq!(starts(&out.batch), [(second, JobId(3))], "and nothing where the refused booking may run");
    assert!(resynced(&out.batch).is_empty());
    // Somebody else had booked it there.
    farm.read(vec![record(1, spec(1), vec![booked(first, 1)])]);
    let out = farm.commit(|_| false);
    assert_eq!(resynced(&out.batch), [first], "and nobody else");
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
}

#[test]
fn a_refused_booking_costs_its_queue_nothing() {
    let (mut farm, first, _) = refused();
    farm.commit(|_| false);
    // It is not booked after all: it waits for a place again.
    farm.read(vec![record(1, spec(1), Vec::new())]);
    assert!(farm.engine.attempt(task(1)).is_none(), "its worker must say hello first");
    let hello = Hello {
        new_link: false,
        ..Hello::new(if first == ONE { "one" } else { "two" }, 7, Resources::new(100, 0))
    };
    let before = farm.engine.queues().iter().map(|queue| queue.charged).sum::<i128>();
    farm.tell(Event::Hello(Box::new(hello)));
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
    let after = farm.engine.queues().iter().map(|queue| queue.charged).sum::<i128>();
    assert_eq!(before * 2, after, "one job of two was charged, then both");
}

#[test]
fn what_a_refused_job_took_stays_taken_until_the_store_answers() {
    let mut farm = Farm::new();
    let limit = Limit { max: Some(1), ..Limit::default() };
    farm.tell(Event::SetLimit { request: RequestId(9), name: "maya".to_owned(), limit: Some(limit) });
    farm.commit(|_| false);
    let licensed = || {
        let mut spec = spec(1);
        spec.steps[0].limits = BTreeSet::from(["maya".to_owned()]);
        spec
    };
    farm.submit(1, licensed());
    let first = farm.engine.attempt(task(1)).expect("it is booked").worker;
    farm.commit(|write| books(write, 1));
    farm.submit(2, licensed());
    assert!(farm.engine.attempt(task(2)).is_none(), "there is one licence, and job 1 may run");
    farm.commit(|_| false);
    farm.read(vec![record(1, licensed(), vec![booked(first, 1)])]);
    assert!(farm.engine.attempt(task(2)).is_none(), "it does");
}

#[test]
fn requests_about_a_refused_job_wait_for_the_store() {
    let (mut farm, first, _) = refused();
    farm.tell(Event::Cancel { request: RequestId(5), job: JobId(1) });
    // Its worker speaks meanwhile: a lost link, another hello, a beat, and what it holds.
    farm.tell(Event::Lost { worker: first });
    farm.tell(Event::Beat { worker: first, sent: 1, inventory: Inventory::default() });
    let name = if first == ONE { "one" } else { "two" };
    farm.tell(Event::Hello(Box::new(Hello {
        incarnation: 8,
        ..Hello::new(name, 7, Resources::new(100, 0))
    })));
    let out = farm.commit(|_| false);
    assert!(out.batch.answers.iter().all(|(request, _)| *request != RequestId(5)), "{:?}", out.batch.answers);
    // The read fails once.
    let number = farm.fetches.pop().unwrap();
    farm.tell(Event::Fetched { number, records: None });
    farm.now = Time(3 * NS_PER_S);
    farm.tell(Event::Tick);
    farm.commit(|_| false);
    farm.read(vec![record(1, spec(1), vec![booked(first, 1)])]);
    let out = farm.commit(|_| false);
    assert!(out.batch.answers.iter().any(|(request, _)| *request == RequestId(5)), "{:?}", out.batch.answers);
    // The new keeper knows nothing of it: the attempt is lost, and the job ends as canceled.
    let writes = &out.batch.writes;
    assert!(writes.iter().any(|write| matches!(write, Write::Again { .. })), "{writes:?}");
    let is_end = |write: &Write| matches!(write, Write::JobEnd { state: JobState::Canceled, .. });
    assert!(writes.iter().any(is_end), "{writes:?}");
    assert!(farm.engine.workers().get(first).unwrap().connected);
}

#[test]
fn what_comes_after_a_refused_job_is_accepted_all_the_same() {
    let mut farm = Farm::new();
    farm.submit(1, spec(1));
    farm.submit(2, JobSpec { after: vec![JobId(1)], ..spec(1) });
    let out = farm.commit(|write| books(write, 1));
    let answered: Vec<RequestId> = out.batch.answers.iter().map(|(request, _)| *request).collect();
    assert_eq!((answered, out.undone), (vec![RequestId(2)], vec![RequestId(1)]));
    farm.commit(|_| false);
    let after = record(2, JobSpec { after: vec![JobId(1)], ..spec(1) }, Vec::new());
    farm.read(vec![record(1, spec(1), vec![booked(ONE, 1)]), after]);
    let job = farm.engine.job(JobId(2)).expect("it is there");
    assert!(job.steps[0].enlisted.is_none(), "and waits for the first");
}

#[test]
fn a_failed_commit_reads_refused_jobs_too() {
    let (mut farm, first, _) = refused();
    farm.submit(3, spec(1));
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch() else { panic!("job 3 is written") };
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    let jobs = farm.pipeline.stalled().cloned().unwrap();
    assert_eq!(jobs, BTreeSet::from([JobId(1), JobId(3)]));
    let records = vec![record(1, spec(1), vec![booked(first, 1)])];
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    farm.round();
    assert_eq!(resynced(&farm.commit(|_| false).batch), [ONE, TWO]);
    assert!(farm.engine.job(JobId(1)).is_some() && farm.engine.job(JobId(3)).is_none());
}
