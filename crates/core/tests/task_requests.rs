//! Single tasks of a job that people cancel and retry.

use crate::kit::{self, Farm, REQUEST, START, booked, cores, record, spec, starts, step, task};
use std::cmp::Reverse;
use windlass_core::bounds::REQUESTED_RANGES_MAX;
use windlass_core::engine::{
    Event, Fact, FetchQuery, Refusal, Reply, Settings, StoredState, WorkerCommand, Write,
};
use windlass_core::job::{
    BacklogCounts, ChunkSize, Chunks, Counts, Dependency, DependencyKind, End, EndedTasks, FailFast,
    FailLimit, JobRecord, JobSpec, JobState, Parked, QueuePos, StepSpec, Stop, TaskResult, TaskRow,
    TaskState, Tries,
};
use windlass_core::ranges::RangeSet;
use windlass_core::residency::subqueues::ParkedCount;
use windlass_core::{JobId, TaskId};

fn farm_of(workers: usize, of_cores: u32) -> Farm {
    Farm::with_workers(Settings::default(), vec![cores(of_cores); workers])
}

fn some(indexes: impl IntoIterator<Item = u32>) -> RangeSet {
    let mut tasks = RangeSet::default();
    indexes.into_iter().for_each(|index| _ = tasks.insert(index));
    tasks
}

fn cancel(farm: &mut Farm, job: JobId, tasks: RangeSet) -> Reply {
    let request = farm.ask(|request| Event::CancelTasks { request, job, tasks });
    farm.replies[&request].clone()
}

fn retry(farm: &mut Farm, job: JobId, tasks: RangeSet) -> Reply {
    let request = farm.ask(|request| Event::RetryTasks { request, job, tasks });
    // An active job is read first, as one that the engine forgot would be.
    if let Some(fetch) = farm.take().fetches.pop() {
        farm.hear(Event::Fetched { number: fetch.number, records: Some(Vec::new()) });
    }
    farm.replies[&request].clone()
}

fn kills(farm: &mut Farm) -> Vec<u32> {
    let sends = farm.take().sends;
    let kills = sends.iter().filter_map(|send| match send.command {
        WorkerCommand::Kill { task, .. } => Some(task.index),
        _ => None,
    });
    kills.collect()
}

/// What a worker says of an attempt that it killed.
fn killed(farm: &mut Farm, task: TaskId) {
    let by = farm.report(task);
    farm.tell(Event::Finished { by, result: TaskResult::bare(End::Canceled) });
}

fn counts(farm: &Farm, job: JobId) -> Counts {
    farm.engine.job(job).expect("it is active").counts()
}

#[test]
fn running_tasks_are_killed_and_waiting_ones_never_start() {
    let mut farm = farm_of(1, 2);
    let job = farm.submit(spec("q", [step(5, cores(1))]));
    farm.take();
    assert_eq!(cancel(&mut farm, job, some([1, 3])), Reply::Done);
    let out = farm.out.writes.clone();
    assert!(out.contains(&Write::TasksCanceled { job, tasks: some([1, 3]) }), "{out:?}");
    assert_eq!(kills(&mut farm), [1]);
    assert_eq!(cancel(&mut farm, job, some([1, 3])), Reply::Done, "a second one changes nothing");
    assert!(farm.take().writes.is_empty());
    killed(&mut farm, task(job, 1));
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [2]);
    farm.end(task(job, 0), 0);
    farm.end(task(job, 2), 0);
    assert_eq!(
        counts(&farm, job),
        Counts { total: 5, active: 1, succeeded: 2, canceled: 2, ..Counts::default() }
    );
    assert_eq!(cancel(&mut farm, job, some([0])), Reply::Refused(Refusal::NothingToCancel(job)));
    let beyond = Refusal::NoSuchTask { job, index: 7, total: 5 };
    assert_eq!(cancel(&mut farm, job, some([4, 7])), Reply::Refused(beyond));
    assert_eq!(cancel(&mut farm, job, some([])), Reply::Refused(Refusal::NothingNamed));
}

#[test]
fn a_retry_before_the_kill_is_done_runs_the_task_again() {
    let mut farm = farm_of(1, 2);
    let job = farm.submit(spec("q", [step(2, cores(1))]));
    cancel(&mut farm, job, some([1]));
    assert_eq!(retry(&mut farm, job, some([0, 1])), Reply::Done);
    assert!(farm.engine.job(job).expect("it is active").cancels.is_empty());
    killed(&mut farm, task(job, 1));
    let attempt = farm.engine.attempt(task(job, 1)).expect("it runs again");
    assert_eq!((attempt.number, attempt.losses), (2, 0), "the kill was asked for");
    assert_eq!(retry(&mut farm, job, some([1])), Reply::Refused(Refusal::NoneToRetry(job)));
}

#[test]
fn tasks_of_a_gang_are_cancelled_and_retried_together() {
    let mut farm = farm_of(2, 1);
    let mpi = StepSpec { nodes: Some(2), ..step(4, cores(1)) };
    let job = farm.submit(spec("q", [mpi]));
    farm.take();
    assert_eq!(cancel(&mut farm, job, some([1])), Reply::Done);
    assert_eq!(kills(&mut farm), [0, 1]);
    killed(&mut farm, task(job, 0));
    killed(&mut farm, task(job, 1));
    assert!(farm.is_placed(task(job, 2)) && farm.is_placed(task(job, 3)));
    assert_eq!(counts(&farm, job).canceled, 2);
    assert_eq!(retry(&mut farm, job, some([0])), Reply::Done);
    assert_eq!(counts(&farm, job).ready, 2);
    farm.end(task(job, 2), 0);
    farm.end(task(job, 3), 0);
    assert!(farm.is_placed(task(job, 0)) && farm.is_placed(task(job, 1)));
}

#[test]
fn the_others_of_a_killed_process_run_again_and_nothing_is_held_against_them() {
    let mut farm = farm_of(1, 2);
    let chunks = Some(Chunks { block: 3, runs: Vec::new(), size: ChunkSize::Fixed(3) });
    let job = farm.submit(spec("q", [StepSpec { chunks, ..step(3, cores(1)) }]));
    farm.take();
    assert_eq!(cancel(&mut farm, job, some([1])), Reply::Done);
    assert_eq!(kills(&mut farm), [0], "its worker knows the process by its first task");
    for index in 0..3 {
        let by = farm.report(task(job, index));
        farm.hear(Event::Finished { by, result: TaskResult::bare(End::Canceled) });
    }
    farm.settle();
    let running: Vec<_> =
        farm.engine.attempts_of(job).map(|(task, a)| (task.index, a.number, a.losses)).collect();
    assert_eq!(running, [(0, 2, 0), (2, 2, 0)]);
    assert_eq!(counts(&farm, job).canceled, 1);
}

#[test]
fn a_cancel_holds_under_the_next_engine() {
    let mut farm = farm_of(1, 2);
    let job = farm.submit(spec("q", [step(3, cores(1))]));
    let worker = farm.engine.workers().by_name("w1").expect("it is there").record.id;
    let workers = farm.engine.workers().iter().map(|worker| worker.stored()).collect();
    let rows = vec![booked(worker), TaskRow { index: 1, ..booked(worker) }];
    let stored = JobRecord { cancels: some([1, 2]), ..record(job.0, spec("q", [step(3, cores(1))]), rows) };
    let stored = StoredState { workers, jobs: vec![stored], ..StoredState::default() };
    let mut farm = Farm::restored(Settings::default(), stored, farm.now);
    assert_eq!(farm.engine.job(job).expect("it is active").state_of(2), TaskState::Canceled);
    farm.join(kit::hello("w1", cores(2)));
    // The worker has neither: one is started again, and the other is over.
    assert!(farm.is_placed(task(job, 0)) && !farm.is_placed(task(job, 1)));
    assert_eq!(counts(&farm, job).canceled, 2);
}

#[test]
fn a_parked_job_is_opened_first() {
    let spec = spec("q", [step(2, cores(1))]);
    let backlog = BacklogCounts::of(&spec);
    let job = JobId(2);
    let position = QueuePos { priority: Reverse(0), ranked: START, job };
    let parked = Some(Parked { class: 7, position, ready: START, backlog });
    let stored = JobRecord { parked, ..record(job.0, spec, Vec::new()) };
    let count = ParkedCount { queue: "q".to_owned(), class: 7, backlog };
    let state = StoredState { parked: vec![count], ..StoredState::default() };
    let mut farm = Farm::restored(Settings::default(), state, START);
    farm.take();
    farm.tell(Event::CancelTasks { request: REQUEST, job, tasks: some([0]) });
    let fetches = farm.take().fetches;
    let asked = fetches.iter().find(|fetch| fetch.wanted == FetchQuery::Jobs([job].into()));
    let number = asked.expect("the job is read").number;
    farm.tell(Event::Fetched { number, records: Some(vec![stored]) });
    assert_eq!(farm.replies[&REQUEST], Reply::Done);
    let writes = farm.take().writes;
    assert!(writes.iter().any(|write| matches!(write, Write::Unpark { .. })), "{writes:?}");
    assert!(writes.contains(&Write::TasksCanceled { job, tasks: some([0]) }), "{writes:?}");
}

#[test]
fn of_a_job_that_is_being_cancelled_the_others_stay_cancelled() {
    let mut farm = farm_of(1, 2);
    let job = farm.submit(spec("q", [step(4, cores(1))]));
    farm.tell(Event::Cancel { request: REQUEST, job });
    assert_eq!(retry(&mut farm, job, some([0, 2])), Reply::Done);
    let cancels = farm.engine.job(job).expect("it is active").cancels.clone();
    assert_eq!(cancels, some([1, 3]));
    killed(&mut farm, task(job, 0));
    killed(&mut farm, task(job, 1));
    assert!(farm.is_placed(task(job, 0)) && farm.is_placed(task(job, 2)));
    assert_eq!(counts(&farm, job).canceled, 2);
}

#[test]
fn a_request_has_a_bound_on_its_ranges() {
    let mut farm = farm_of(1, 1);
    let tasks = 2 * REQUESTED_RANGES_MAX as u32 + 2;
    let job = farm.submit(spec("q", [step(tasks, cores(1))]));
    farm.checks = false;
    let every_other = (0..tasks).step_by(2);
    let refused = cancel(&mut farm, job, some(every_other));
    assert!(matches!(refused, Reply::Refused(Refusal::TooMany { .. })), "{refused:?}");
    assert_eq!(cancel(&mut farm, job, RangeSet::from_range(0..tasks)), Reply::Done);
}

#[test]
fn a_job_stops_when_as_many_tasks_have_failed_as_it_says() {
    for (fail_limit, tasks, stops_at) in [
        (FailLimit::Tasks(1), 10, 1),
        (FailLimit::Tasks(3), 10, 3),
        (FailLimit::Percent(0), 10, 1),
        (FailLimit::Percent(20), 10, 3),
        (FailLimit::Percent(50), 3, 2),
    ] {
        let mut farm = farm_of(1, 1);
        let one = spec("q", [step(tasks, cores(1))]);
        let job = farm.submit(JobSpec { fail_fast: FailFast::Finish, fail_limit, ..one });
        let mut failed = 0;
        while farm.engine.job(job).is_some_and(|job| job.ended.is_none()) {
            farm.end(task(job, failed), 1);
            failed += 1;
        }
        assert_eq!(failed, stops_at, "{fail_limit:?} of {tasks}");
    }
}

#[test]
fn a_retry_of_tasks_whose_first_step_failed_ends_the_job_as_it_was() {
    let mut farm = farm_of(1, 1);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    let second = StepSpec { name: "second".to_owned(), depends, ..step(2, cores(1)) };
    let of = spec("q", [step(1, cores(1)), second]);
    let ended = vec![EndedTasks { state: TaskState::Failed, tasks: 0..1, tries: Tries::default() }];
    let stop = Some(Stop::FailFast);
    let stored = JobRecord { state: JobState::Failed, stop, ended, ..record(7, of, Vec::new()) };
    farm.take();
    farm.tell(Event::RetryTasks { request: REQUEST, job: JobId(7), tasks: some([1]) });
    let number = farm.take().fetches.pop().expect("the job is read").number;
    farm.tell(Event::Fetched { number, records: Some(vec![stored]) });
    assert_eq!(farm.replies[&REQUEST], Reply::Done);
    assert!(farm.engine.job(JobId(7)).is_none(), "nothing of it can run");
    let facts = farm.take().facts;
    let ends = facts.iter().filter(|fact| matches!(fact, Fact::JobEnded { state: JobState::Failed, .. }));
    assert_eq!(ends.count(), 1);
}
