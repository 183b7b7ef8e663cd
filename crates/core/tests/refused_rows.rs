//! Rows that are not what the engine knew: their jobs are read again before anything else is committed.

use crate::kit::{self, Farm, booked, cores, record, set_limit, starts, step};
use std::collections::BTreeSet;
use windlass_core::engine::{
    Committed, Event, Hello, NextBatch, Outbox, Settings, Submit, WorkerCommand, Write,
};
use windlass_core::job::{AfterEnd, End, JobRecord, JobSpec, JobState, Stop, TaskResult};
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

/// Commits what formed, but for the writes whose rows something else had changed. Returns what goes out.
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
    committed
}

/// The store is read, and has this.
fn reload(farm: &mut Farm, records: Vec<JobRecord>) {
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    round(farm);
}

fn greet(farm: &mut Farm, worker: WorkerId) {
    tell(farm, Event::Hello(Box::new(Hello { new_link: false, ..hello(worker) })));
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
    out.sends.iter().filter(|send| send.command == WorkerCommand::Resync).map(|send| send.worker).collect()
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
fn a_refused_row_is_read_again_before_anything_else_is_committed() {
    let (mut farm, first, second) = refused();
    submit(&mut farm, 3, spec(1));
    assert_eq!(farm.pipeline.stalled(), Some(&BTreeSet::from([JobId(1)])));
    assert_eq!(commit(&mut farm, |_| false), Committed::default(), "job 3 waits");
    reload(&mut farm, vec![record(1, spec(1), vec![booked(first)])]);
    let out = commit(&mut farm, |_| false);
    assert_eq!(resynced(&out.batch), [ONE, TWO]);
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
    assert_eq!(farm.engine.attempt(task(2)).map(|attempt| attempt.worker), Some(second));
}

#[test]
fn what_forms_above_a_refused_row_is_not_done() {
    let mut farm = two_workers();
    submit(&mut farm, 1, spec(1));
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("job 1 is written")
    };
    let row = batch.writes.iter().position(|write| books(write, 1)).expect("it is booked");
    drop(batch);
    submit(&mut farm, 2, spec(1));
    let out = farm.pipeline.committed(&mut farm.engine, &[row]);
    assert_eq!(out.undone, [RequestId(2), RequestId(1)]);
    assert_eq!(farm.pipeline.stalled(), Some(&BTreeSet::from([JobId(1), JobId(2)])));
    reload(&mut farm, vec![record(1, spec(1), Vec::new())]);
    assert!(farm.engine.job(JobId(1)).is_some() && farm.engine.job(JobId(2)).is_none());
}

#[test]
fn a_refused_booking_costs_its_queue_nothing() {
    let (mut farm, first, _) = refused();
    // It is not booked after all: it waits for a place again.
    reload(&mut farm, vec![record(1, spec(1), Vec::new())]);
    commit(&mut farm, |_| false);
    assert!(farm.engine.attempt(task(1)).is_none(), "its worker must say hello first");
    let charged = |farm: &Farm| farm.engine.queues().iter().map(|queue| queue.charged).sum::<i128>();
    let before = charged(&farm);
    greet(&mut farm, first);
    assert_eq!(farm.engine.attempt(task(1)).map(|attempt| attempt.worker), Some(first));
    assert_eq!(before * 2, charged(&farm), "one job of two was charged, then both");
}

#[test]
fn a_refused_booking_holds_its_licence_if_it_is_there_after_all() {
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
    reload(&mut farm, vec![record(1, licensed(), vec![booked(first)])]);
    commit(&mut farm, |_| false);
    [ONE, TWO].into_iter().for_each(|worker| greet(&mut farm, worker));
    submit(&mut farm, 2, licensed());
    assert!(farm.engine.attempt(task(2)).is_none(), "there is one licence, and job 1 has it");
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

/// Job 1 is cancelled while it runs, and its worker is lost: it ends. Two jobs that come after its failure are let go.
/// The commit fails, the store has what was before, and job 1 is lost again while the jobs are read.
#[test]
fn a_job_waits_for_none_that_ended_while_jobs_were_read_again() {
    let mut farm = Farm::new(Settings { lease_ns: Some(NS_PER_S), ..Settings::default() });
    farm.join(Hello { fences: true, ..hello(ONE) });
    let after =
        JobSpec { after: vec![JobId(1)], after_ends: [(JobId(1), AfterEnd::NotOk)].into(), ..spec(1) };
    submit(&mut farm, 1, spec(1));
    [2, 3].into_iter().for_each(|job| submit(&mut farm, job, after.clone()));
    farm.handle(Event::Cancel { request: RequestId(9), job: JobId(1) });
    commit(&mut farm, |_| false);
    // It is silent, and its lease ends.
    for _ in 0..2 {
        farm.now = farm.now.after(60 * NS_PER_S);
        tell(&mut farm, Event::Tick);
    }
    assert_eq!(farm.engine.attempt(task(1)), None, "it is lost with its worker");
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("the end of job 1 is written")
    };
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    let first = JobRecord { stop: Some(Stop::Canceled), ..record(1, spec(1), vec![booked(ONE)]) };
    let stalled = farm.pipeline.stalled().cloned().expect("jobs are to be read");
    let records = [first, record(2, after.clone(), Vec::new()), record(3, after, Vec::new())];
    reload(&mut farm, records.into_iter().filter(|record| stalled.contains(&record.id)).collect());
    commit(&mut farm, |_| false);
    for job in [JobId(2), JobId(3)] {
        let after = farm.engine.job(job).map(|job| job.after.clone());
        assert_eq!(after, Some(BTreeSet::new()), "job 1 has ended");
    }
}
