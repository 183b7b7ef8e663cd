//! Rows that somebody else had changed: their jobs are read again, and nobody else waits for it.

mod kit;

use kit::{Farm, booked, cores, record, set_limit, starts, step};
use std::collections::BTreeSet;
use windlass_core::engine::{
    Committed, Event, FetchQuery, Hello, Inventory, NextBatch, Outbox, Settings, Submit, WorkerCommand, Write,
};
use windlass_core::job::{End, JobRecord, JobSpec, JobState, TaskResult};
use windlass_core::licences::Limit;
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, RequestId, TaskId, WorkerId};

const ONE: WorkerId = WorkerId(1);
const TWO: WorkerId = WorkerId(2);

/// Of one core each.
fn two_workers() -> Farm {
    Farm::with_workers(Settings { lease_ns: None, ..Settings::default() }, [cores(1), cores(1)])
}

fn hello(worker: WorkerId) -> Hello {
    kit::hello(&format!("w{}", worker.0), cores(1))
}

/// The event and a round. Nothing is committed, for the store may refuse it.
fn tell(farm: &mut Farm, event: Event) {
    farm.handle(event);
    round(farm);
}

fn round(farm: &mut Farm) {
    farm.engine.round(farm.now, 1_000, &mut farm.pipeline.forming);
    farm.check();
}

fn submit(farm: &mut Farm, job: u64, spec: JobSpec) {
    tell(farm, Event::Submit(Box::new(Submit::new(RequestId(job), spec))));
}

/// Commits what formed, but for the writes that somebody else had changed. Returns what goes out.
fn commit(farm: &mut Farm, refuses: impl Fn(&Write) -> bool) -> Committed {
    let committed = match farm.pipeline.next_batch(&mut farm.engine) {
        None => return Committed::default(),
        Some(NextBatch::Deliver(batch)) => Committed { batch: *batch, undone: Vec::new() },
        Some(NextBatch::Commit(batch)) => {
            let rows = batch.writes.iter().enumerate().filter(|(_, write)| refuses(write));
            let rows: Vec<usize> = rows.map(|(number, _)| number).collect();
            drop(batch);
            farm.pipeline.committed(&mut farm.engine, &rows)
        }
    };
    farm.engine.committed(&committed.batch);
    farm.go_out(committed.batch.clone());
    for fetch in &committed.batch.fetches {
        assert!(matches!(fetch.wanted, FetchQuery::Jobs(_)), "{fetch:?}");
    }
    committed
}

fn read(farm: &mut Farm, records: Vec<JobRecord>) {
    answer(farm, Some(records));
}

/// Answers the last read that was asked for.
fn answer(farm: &mut Farm, records: Option<Vec<JobRecord>>) {
    let number = farm.out.fetches.pop().expect("the jobs are read again").number;
    tell(farm, Event::Fetched { number, records });
}

fn spec(tasks: u32) -> JobSpec {
    kit::spec("", [step(tasks, cores(1))])
}

fn task(job: u64) -> TaskId {
    kit::task(JobId(job), 0)
}

fn books(write: &Write, job: u64) -> bool {
    matches!(write, Write::Book { task, .. } if task.job == JobId(job))
}

fn resynced(out: &Outbox) -> Vec<WorkerId> {
    out.sends.iter().filter(|send| send.order == WorkerCommand::Resync).map(|send| send.worker).collect()
}

/// Jobs 1 and 2 run, and the booking of job 1 was refused.
fn refused() -> (Farm, WorkerId, WorkerId) {
    let mut farm = two_workers();
    submit(&mut farm, 1, spec(1));
    submit(&mut farm, 2, spec(1));
    let worker_of = |job| farm.engine.attempt(task(job)).expect("it is booked").worker;
    let (first, second) = (worker_of(1), worker_of(2));
    let out = commit(&mut farm, |write| books(write, 1));
    assert_eq!(starts(&out.batch), [(second, task(2))], "what was not refused goes out");
    assert_eq!(out.undone, [RequestId(1)]);
    (farm, first, second)
}

#[test]
fn a_refused_row_makes_nobody_else_wait() {
    let (mut farm, first, second) = refused();
    assert!(farm.pipeline.stalled().is_none());
    // The other worker's task ends, and the next one starts there, while the job is being read.
    let by = farm.report(task(2));
    let result = TaskResult::bare(End::Exited(0));
    tell(&mut farm, Event::Finished { by, result });
    submit(&mut farm, 3, spec(2));
    let out = commit(&mut farm, |_| false);
    assert_eq!(starts(&out.batch), [(second, task(3))], "and nothing where the refused booking may run");
    assert!(resynced(&out.batch).is_empty());
    // Somebody else had booked it there.
    read(&mut farm, vec![record(1, spec(1), vec![booked(first)])]);
    let out = commit(&mut farm, |_| false);
    assert_eq!(resynced(&out.batch), [first], "and nobody else");
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
}

#[test]
fn a_refused_booking_costs_its_queue_nothing() {
    let (mut farm, first, _) = refused();
    commit(&mut farm, |_| false);
    // It is not booked after all: it waits for a place again.
    read(&mut farm, vec![record(1, spec(1), Vec::new())]);
    assert!(farm.engine.attempt(task(1)).is_none(), "its worker must say hello first");
    let hello = Hello { new_link: false, ..hello(first) };
    let before = farm.engine.queues().iter().map(|queue| queue.charged).sum::<i128>();
    tell(&mut farm, Event::Hello(Box::new(hello)));
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
    let after = farm.engine.queues().iter().map(|queue| queue.charged).sum::<i128>();
    assert_eq!(before * 2, after, "one job of two was charged, then both");
}

#[test]
fn what_a_refused_job_took_stays_taken_until_the_store_answers() {
    let mut farm = two_workers();
    farm.tell(set_limit("maya", Limit::of(1)));
    let licensed = || {
        let mut spec = spec(1);
        spec.steps[0].limits = BTreeSet::from(["maya".to_owned()]);
        spec
    };
    submit(&mut farm, 1, licensed());
    let first = farm.engine.attempt(task(1)).expect("it is booked").worker;
    commit(&mut farm, |write| books(write, 1));
    submit(&mut farm, 2, licensed());
    assert!(farm.engine.attempt(task(2)).is_none(), "there is one licence, and job 1 may run");
    commit(&mut farm, |_| false);
    read(&mut farm, vec![record(1, licensed(), vec![booked(first)])]);
    assert!(farm.engine.attempt(task(2)).is_none(), "it does");
}

#[test]
fn requests_about_a_refused_job_wait_for_the_store() {
    let (mut farm, first, _) = refused();
    tell(&mut farm, Event::Cancel { request: RequestId(5), job: JobId(1) });
    // Its worker speaks meanwhile: a lost link, another hello, a beat, and what it holds.
    tell(&mut farm, Event::Lost { worker: first });
    tell(&mut farm, Event::Beat { worker: first, sent: 1, inventory: Inventory::default() });
    tell(&mut farm, Event::Hello(Box::new(Hello { incarnation: 8, ..hello(first) })));
    let out = commit(&mut farm, |_| false);
    assert!(out.batch.answers.iter().all(|(request, _)| *request != RequestId(5)), "{:?}", out.batch.answers);
    // The read fails once.
    answer(&mut farm, None);
    farm.now = farm.now.after(2 * NS_PER_S);
    tell(&mut farm, Event::Tick);
    commit(&mut farm, |_| false);
    read(&mut farm, vec![record(1, spec(1), vec![booked(first)])]);
    let out = commit(&mut farm, |_| false);
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
    let mut farm = two_workers();
    submit(&mut farm, 1, spec(1));
    submit(&mut farm, 2, JobSpec { after: vec![JobId(1)], ..spec(1) });
    let out = commit(&mut farm, |write| books(write, 1));
    let answered: Vec<RequestId> = out.batch.answers.iter().map(|(request, _)| *request).collect();
    assert_eq!((answered, out.undone), (vec![RequestId(2)], vec![RequestId(1)]));
    commit(&mut farm, |_| false);
    let after = record(2, JobSpec { after: vec![JobId(1)], ..spec(1) }, Vec::new());
    read(&mut farm, vec![record(1, spec(1), vec![booked(ONE)]), after]);
    let job = farm.engine.job(JobId(2)).expect("it is there");
    assert!(job.steps[0].enlisted.is_none(), "and waits for the first");
}

#[test]
fn a_failed_commit_reads_refused_jobs_too() {
    let (mut farm, first, _) = refused();
    submit(&mut farm, 3, spec(1));
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("job 3 is written")
    };
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    let jobs = farm.pipeline.stalled().cloned().unwrap();
    assert_eq!(jobs, BTreeSet::from([JobId(1), JobId(3)]));
    let records = vec![record(1, spec(1), vec![booked(first)])];
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    round(&mut farm);
    assert_eq!(resynced(&commit(&mut farm, |_| false).batch), [ONE, TWO]);
    assert!(farm.engine.job(JobId(1)).is_some() && farm.engine.job(JobId(3)).is_none());
}

#[test]
fn a_commit_that_was_durable_after_all_leaves_nothing_behind() {
    let mut farm = two_workers();
    submit(&mut farm, 1, spec(1));
    commit(&mut farm, |_| false);
    let task = TaskId { job: JobId(1), index: 0 };
    let by = farm.report(task);
    farm.handle(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("it ended")
    };
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    // The store had it all the same.
    let ended = JobRecord { state: JobState::Succeeded, ..record(1, spec(1), Vec::new()) };
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![ended], Vec::new());
    round(&mut farm);
    commit(&mut farm, |_| false);
    assert_eq!(farm.engine.check_empty(), Ok(()));
}
