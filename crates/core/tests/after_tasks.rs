//! Jobs whose tasks come after those of another job, task by task.

use crate::kit::{Farm, REQUEST, START, booked, cores, record, spec, starts, step, task};
use windlass_core::engine::{Event, FetchQuery, Refusal, Reply, Settings, StoredState, Submit, Write};
use windlass_core::explain::{Reason, dry_run, reason};
use windlass_core::job::{
    End, EndedTasks, JobRecord, JobSpec, JobState, Stop, TaskResult, TaskRow, TaskState, Tries,
};
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, TaskId};

const FIRST: JobId = JobId(1);
const SECOND: JobId = JobId(2);

fn farm() -> Farm {
    Farm::with_workers(Settings::default(), [cores(4)])
}

fn of(tasks: u32) -> JobSpec {
    spec("q", [step(tasks, cores(1))])
}

fn after(first: JobId, tasks: u32) -> JobSpec {
    JobSpec { after_tasks: Some(first), ..of(tasks) }
}

fn some(indexes: impl IntoIterator<Item = u32>) -> RangeSet {
    let mut tasks = RangeSet::default();
    indexes.into_iter().for_each(|index| _ = tasks.insert(index));
    tasks
}

/// The tasks of a job that are booked.
fn running(farm: &Farm, job: JobId) -> Vec<u32> {
    farm.engine.attempts_of(job).map(|(task, _)| task.index).collect()
}

/// A job of three tasks as a store has it. The last has failed, and the first two have succeeded.
fn two_of_three(state: JobState) -> JobRecord {
    let ended = |tasks, state| EndedTasks { tasks, state, tries: Tries { attempt: 1, ..Tries::default() } };
    JobRecord {
        state,
        ended: vec![ended(0..2, TaskState::Succeeded), ended(2..3, TaskState::Failed)],
        ..record(FIRST.0, of(3), Vec::new())
    }
}

/// Answers the reads that the engine has asked for.
fn read(farm: &mut Farm, found: &[JobRecord]) {
    for fetch in farm.take().fetches {
        let FetchQuery::Jobs(jobs) = fetch.wanted else { continue };
        let records = found.iter().filter(|record| jobs.contains(&record.id)).cloned().collect();
        farm.tell(Event::Fetched { number: fetch.number, records: Some(records) });
    }
}

#[test]
fn each_task_starts_when_its_counterpart_has_succeeded() {
    let mut farm = farm();
    let first = farm.submit(of(3));
    let second = farm.submit(after(first, 3));
    assert!(running(&farm, second).is_empty());
    farm.end(task(first, 1), 0);
    assert_eq!(running(&farm, second), [1]);
    farm.end(task(first, 0), 1);
    farm.end(task(second, 1), 0);
    assert!(running(&farm, second).is_empty(), "task 0 did not succeed, and task 2 still runs");
    assert!(farm.engine.job(second).is_some_and(|job| job.ended.is_none()));
    let why = |index| reason(&farm.engine, TaskId { job: second, index }).expect("it is active").reason;
    assert_eq!(why(0), Reason::FirstTask { task: task(first, 0), is_over: true });
    assert_eq!(why(2), Reason::FirstTask { task: task(first, 2), is_over: false });
    farm.take();
    farm.end(task(first, 2), 0);
    let told = Write::FirstSucceeded { job: second, tasks: some([1, 2]) };
    assert!(farm.take().writes.contains(&told), "it is written with the end of the first job");
    assert_eq!(running(&farm, second), [2]);
    farm.end(task(second, 2), 0);
    let ends = farm.take().writes.into_iter().filter_map(|write| match write {
        Write::JobEnd { job, state, counts, .. } => Some((job, state, counts.succeeded, counts.skipped)),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(second, JobState::Failed, 2, 1)]);
}

#[test]
fn another_number_of_tasks_is_refused() {
    let mut farm = farm();
    let first = farm.submit(of(3));
    let refusal = Refusal::BadAfterTasks { first, is: 2, of_first: 3 };
    assert_eq!(farm.submission(after(first, 2)), Reply::Refused(refusal));
}

#[test]
fn a_job_that_has_ended_is_read_for_a_submission_and_one_that_is_gone_is_refused() {
    let settings = Settings { first_job: 10, ..Settings::default() };
    let mut farm = Farm::with_workers(settings, [cores(4)]);
    let submit = |farm: &mut Farm, found: &[JobRecord]| {
        let request = farm.ask(|request| Event::Submit(Box::new(Submit::new(request, after(FIRST, 3)))));
        read(farm, found);
        farm.replies[&request].clone()
    };
    assert_eq!(submit(&mut farm, &[]), Reply::Refused(Refusal::NoJob(FIRST)));
    let Reply::Submitted { job, .. } = submit(&mut farm, &[two_of_three(JobState::Failed)]) else {
        panic!("it is accepted");
    };
    assert_eq!(running(&farm, job), [0, 1]);
    let told = Write::FirstSucceeded { job, tasks: some([0, 1]) };
    assert!(farm.take().writes.contains(&told));
    farm.end(task(job, 0), 0);
    farm.end(task(job, 1), 0);
    assert!(farm.engine.job(job).is_none(), "nothing of it can start any more");
}

#[test]
fn a_restart_needs_the_first_job_only_while_it_is_active() {
    // The first job is active: its rows say what has succeeded.
    let follower = |first_succeeded| JobRecord { first_succeeded, ..record(2, after(FIRST, 3), Vec::new()) };
    let mut first = two_of_three(JobState::Active);
    first.ended.pop();
    let jobs = vec![first, follower(RangeSet::default())];
    let mut farm = Farm::restored(Settings::default(), StoredState { jobs, ..StoredState::default() }, START);
    farm.worker("w", cores(4));
    assert_eq!(running(&farm, SECOND), [0, 1]);
    farm.end(task(FIRST, 2), 0);
    assert_eq!(running(&farm, SECOND), [0, 1, 2]);
    // It has ended: what it left with its follower says that.
    let jobs = vec![follower(some([1]))];
    let mut farm = Farm::restored(Settings::default(), StoredState { jobs, ..StoredState::default() }, START);
    farm.worker("w", cores(4));
    assert_eq!(running(&farm, SECOND), [1]);
    farm.end(task(SECOND, 1), 0);
    assert!(farm.engine.job(SECOND).is_none());
    // Its last task had ended, and the engine was killed before the job was.
    let jobs = vec![two_of_three(JobState::Active), follower(RangeSet::default())];
    let mut farm = Farm::restored(Settings::default(), StoredState { jobs, ..StoredState::default() }, START);
    let told = Write::FirstSucceeded { job: SECOND, tasks: some([0, 1]) };
    assert!(farm.take().writes.contains(&told));
    farm.worker("w", cores(4));
    assert_eq!(running(&farm, SECOND), [0, 1]);
}

#[test]
fn a_retry_of_the_first_job_opens_its_followers_again() {
    let mut farm = farm();
    let first = farm.submit(of(2));
    let second = farm.submit(after(first, 2));
    farm.end(task(first, 0), 1);
    farm.end(task(first, 1), 0);
    assert!(farm.engine.job(first).is_none(), "it has ended");
    assert_eq!(running(&farm, second), [1]);
    farm.take();
    farm.tell(Event::Retry { request: REQUEST, job: first });
    let ended = |tasks, state| EndedTasks { tasks, state, tries: Tries { attempt: 1, ..Tries::default() } };
    let failed = JobRecord {
        state: JobState::Failed,
        ended: vec![ended(0..1, TaskState::Failed), ended(1..2, TaskState::Succeeded)],
        ..record(first.0, of(2), Vec::new())
    };
    read(&mut farm, &[failed]);
    assert_eq!(running(&farm, first), [0]);
    farm.end(task(second, 1), 0);
    assert!(farm.engine.job(second).is_some_and(|job| job.ended.is_none()), "it waits for the retry");
    farm.end(task(first, 0), 0);
    assert_eq!(running(&farm, second), [0]);
}

#[test]
fn a_retry_of_a_follower_reads_the_first_job() {
    let mut farm = farm();
    let follower = JobRecord {
        state: JobState::Failed,
        first_succeeded: some([1]),
        ended: vec![EndedTasks { tasks: 1..2, state: TaskState::Succeeded, tries: Tries::default() }],
        ..record(2, after(FIRST, 3), Vec::new())
    };
    farm.tell(Event::Retry { request: REQUEST, job: SECOND });
    read(&mut farm, std::slice::from_ref(&follower));
    read(&mut farm, &[two_of_three(JobState::Failed)]);
    assert_eq!(running(&farm, SECOND), [0], "task 0 of the first job has succeeded since");
    assert!(farm.take().writes.contains(&Write::FirstSucceeded { job: SECOND, tasks: some([0, 1]) }));
}

#[test]
fn a_cancel_of_the_first_job_skips_what_is_left_of_its_followers() {
    let mut farm = farm();
    let first = farm.submit(of(6));
    let second = farm.submit(after(first, 6));
    farm.end(task(first, 0), 0);
    farm.tell(Event::Cancel { request: REQUEST, job: first });
    for index in running(&farm, first) {
        let by = farm.report(task(first, index));
        let result = TaskResult::bare(End::Canceled);
        farm.tell(Event::Finished { by, result });
    }
    assert_eq!(running(&farm, second), [0]);
    farm.end(task(second, 0), 0);
    assert!(farm.engine.job(second).is_none());
    let stops = farm.take().writes.into_iter().filter(
        |write| matches!(write, Write::JobStop { job, stop } if *job == second || *stop != Stop::Canceled),
    );
    assert_eq!(stops.count(), 0, "it was not stopped: what was let start has run");
}

#[test]
fn a_batch_that_failed_takes_back_what_it_let_start() {
    let mut farm = farm();
    let first = farm.submit(of(2));
    let second = farm.submit(after(first, 2));
    let rows: Vec<_> =
        [0, 1].map(|index| TaskRow { index, ..booked(farm.report(task(first, index)).worker) }).into();
    farm.take();
    let by = farm.report(task(first, 0));
    farm.handle(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    farm.engine.round(farm.now, 10, &mut farm.pipeline.forming);
    assert_eq!(running(&farm, second), [0]);
    farm.pipeline.next_batch(&mut farm.engine).expect("a task has ended");
    farm.pipeline.failed(&mut farm.engine);
    assert!(farm.pipeline.stalled().is_some_and(|jobs| jobs.contains(&second)), "it is read again, too");
    let records = vec![record(first.0, of(2), rows), record(second.0, after(first, 2), Vec::new())];
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    farm.commit();
    assert!(running(&farm, second).is_empty() && starts(&farm.take()).is_empty());
}

#[test]
fn neither_a_follower_nor_what_it_follows_is_parked() {
    let settings = Settings { cache_steps: 2, ..Settings::default() };
    let mut farm = Farm::new(settings);
    let first = farm.submit(of(2));
    let second = farm.submit(after(first, 2));
    let others: Vec<JobId> = (0..8).map(|_| farm.submit(of(1))).collect();
    assert!(others.iter().any(|job| farm.engine.job(*job).is_none()), "the others are parked");
    assert!(farm.engine.job(first).is_some() && farm.engine.job(second).is_some());
}

#[test]
fn a_dry_run_knows_what_of_an_ended_job_succeeded() {
    let settings = Settings { first_job: 10, ..Settings::default() };
    let farm = Farm::with_workers(settings, [cores(4)]);
    let submit = || Submit::new(REQUEST, after(FIRST, 3));
    let tried = |first| dry_run(farm.engine.clone(), farm.now, submit(), first);
    let said = tried(Some(two_of_three(JobState::Failed))).expect("it would be accepted");
    assert_eq!((said.steps[0].starts.values().sum::<u32>(), said.steps[0].waiting), (2, 1));
    let why = said.steps[0].first_waiting.as_ref().map(|(_, why)| why.reason.clone());
    assert_eq!(why, Some(Reason::FirstTask { task: task(FIRST, 2), is_over: true }));
    assert_eq!(tried(None), Err(Refusal::NoJob(FIRST)));
}
