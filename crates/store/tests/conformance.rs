//! One suite for all stores, and tests of what only a store in a file has.

use crate::support::{block_on, commit, on_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{
    AfterEnd, BackOff, ChunkSize, Chunks, Counts, Dependency, DependencyKind, End, EndedTasks, EqualRuns,
    FailFast, FailLimit, Hints, JobSpec, JobState, Jobserver, Kind, OnEnd, StepSpec, Stop, TaskResult,
    TaskState, Tries,
};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::ranges::RangeSet;
use windlass_core::score::history::Sample;
use windlass_core::tags::Need;
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{
    FOREIGN_NODE_NUMBERS, ForeignWrite, HISTORY_MAX, JobFilter, Store, StoreError, TokenRecord, TokenWrite,
};

fn task(job: u64, index: u32) -> TaskId {
    TaskId { job: JobId(job), index }
}

fn spec(name: &str, user: &str, key: Option<&str>) -> JobSpec {
    let step = |name: &str, tasks| StepSpec {
        max_running: Some(3),
        nodes: Some(1),
        chunks: Some(Chunks {
            block: 4,
            runs: vec![EqualRuns { tasks: 1, end: 2 }, EqualRuns { tasks: 2, end: 4 }],
            size: ChunkSize::Learned { first: 2, target_ms: Some(3) },
        }),
        with: Some(0),
        name: name.to_owned(),
        tasks,
        request: Resources { custom: [("scratch".to_owned(), 7)].into(), ..Resources::new(150, 1 << 30) },
        needs: vec![Need::parse("arch=a|b"), Need::parse("ssd")],
        targets: ["w1".to_owned()].into(),
        time_limit_ms: Some(5000),
        retries: 2,
        depends: Vec::new(),
        limits: ["maya".to_owned(), "nuke".to_owned()].into(),
        hints: Hints {
            kind: Kind::Evaluation,
            shape: "gcc -c".to_owned(),
            network_bound: true,
            prefer_local: true,
            fetches: true,
            caches: [("toolchain".to_owned(), Some(1 << 31)), ("assets".to_owned(), None)].into(),
            deadline_ms: Some(90_000),
            cpus_auto: true,
            cpus_max: Some(1_600),
            jobserver: Some(Jobserver::Fifo),
            prefers: ["w2".to_owned()].into(),
        },
        is_external: true,
        body: Arc::from(name.as_bytes()),
    };
    let mut second = step("second", 3);
    second.depends = vec![Dependency { on: 0, kind: DependencyKind::Task }];
    JobSpec {
        max_running: Some(u32::MAX),
        name: name.to_owned(),
        queue: format!("{user}-queue"),
        user: user.to_owned(),
        priority: -5,
        key: key.map(str::to_owned),
        parent: Some(task(9, 9)),
        after: vec![JobId(3), JobId(4), JobId(5)],
        after_ends: [(JobId(4), AfterEnd::Any), (JobId(5), AfterEnd::NotOk)].into(),
        after_tasks: Some(JobId(6)),
        fail_fast: FailFast::Kill,
        fail_limit: FailLimit::Percent(10),
        on_end: vec![OnEnd { to: "https://hooks.example/a".to_owned(), only_failures: true }],
        steps: vec![step("first", 3), second],
    }
}

fn new_job(id: u64, spec: JobSpec) -> Write {
    Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1000 + id) }
}

fn book(task: TaskId, attempt: u32) -> Write {
    Write::Book { task, attempt, worker: WorkerId(4), epoch: Epoch(2), at: Time(77), amounts: (150, 3 << 30) }
}

fn end(task: TaskId, attempt: u32, state: TaskState, end: End) -> Write {
    Write::End { task, attempt, state, failures: 1, losses: 2, result: result(end) }
}

fn result(end: End) -> TaskResult {
    TaskResult {
        end,
        started: Some(Time(100)),
        finished: Some(Time(200)),
        cpu_ms: Some(3),
        token_cpu_ms: None,
        peak_memory: None,
        process_memory: None,
        disk_bytes: Some(4096),
        out_bytes: 10,
        message: Some("too dark".to_owned()),
        err_bytes: 0,
    }
}

#[test]
fn an_empty_store_is_empty() {
    on_all(async |store| {
        let snapshot = store.load().await.unwrap();
        assert_eq!((snapshot.next_job, snapshot.ground.jobs.len(), snapshot.ground.workers.len()), (1, 0, 0));
        assert_eq!(store.job(JobId(1)).await.unwrap(), None);
        assert!(store.tasks(JobId(1), 0..10).await.unwrap().is_empty());
        assert_eq!(store.body(JobId(1), 0).await.unwrap(), None);
        assert_eq!(store.retain(Time(u64::MAX >> 1), 10).await.unwrap(), (Vec::new(), false));
    });
}

#[test]
fn tokens_are_kept_and_end_once() {
    on_all(async |store| {
        let token = |id: &str| TokenRecord {
            id: id.to_owned(),
            hash: [7; 32],
            role: "worker".to_owned(),
            user: "ann".to_owned(),
            worker: Some("box".to_owned()),
            serves: ["nix".to_owned()].into(),
            for_users: BTreeSet::new(),
            queue: None,
            cache: None,
            note: "rack 3".to_owned(),
            created: Time(5),
            expires: Some(Time(9)),
            revoked: None,
        };
        let other = TokenRecord {
            role: "submitter".to_owned(),
            worker: None,
            serves: BTreeSet::new(),
            for_users: ["film-*", "ann\"b"].map(str::to_owned).into(),
            queue: Some("opencue".to_owned()),
            cache: Some("read".to_owned()),
            expires: None,
            ..token("a")
        };
        let create = |token| store.write_token(TokenWrite::Create(Box::new(token)));
        let revoke = |id: &str, at| store.write_token(TokenWrite::Revoke(id.to_owned(), Time(at)));
        assert!(create(token("b")).await.unwrap());
        assert!(create(other.clone()).await.unwrap());
        let thief = TokenRecord { hash: [8; 32], ..token("b") };
        assert!(!create(thief).await.unwrap(), "an id is taken once");
        assert_eq!(store.tokens().await.unwrap(), [other.clone(), token("b")]);
        assert!(revoke("b", 6).await.unwrap());
        assert!(!revoke("b", 7).await.unwrap(), "it ended before");
        assert!(!revoke("c", 7).await.unwrap());
        let ended = TokenRecord { revoked: Some(Time(6)), ..token("b") };
        assert_eq!(store.tokens().await.unwrap(), [other, ended]);
    });
}

#[test]
fn a_job_comes_back_as_it_was_given() {
    on_all(async |store| {
        let given = spec("n", "ann", Some("k"));
        assert!(commit(&store, vec![new_job(7, given.clone())]).await.is_empty());
        let snapshot = store.load().await.unwrap();
        assert_eq!(snapshot.next_job, 8);
        let record = &snapshot.ground.jobs[0];
        assert_eq!(*record.spec, given.without_bodies(), "engines have no use for bodies");
        assert_eq!((record.id, record.created, record.state), (JobId(7), Time(1007), JobState::Active));
        let view = store.job(JobId(7)).await.unwrap().unwrap();
        assert!(view.spec.steps.iter().all(|step| step.body.is_empty()), "views carry no bodies");
        assert_eq!(store.body(JobId(7), 1).await.unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(store.job_by_key("ann".into(), "k".into()).await.unwrap(), Some(JobId(7)));
        assert_eq!(store.job_by_key("bob".into(), "k".into()).await.unwrap(), None);
    });
}

#[test]
fn a_booking_is_a_compare_and_swap() {
    on_all(async |store| {
        let (a, b) = (task(1, 0), task(1, 1));
        commit(&store, vec![new_job(1, spec("n", "u", None))]).await;
        assert!(commit(&store, vec![book(a, 1)]).await.is_empty());
        // The second booking of a is refused. The booking of b beside it is applied.
        assert_eq!(commit(&store, vec![book(a, 1), book(b, 1)]).await, [0]);
        assert_eq!(commit(&store, vec![book(a, 2)]).await, [0], "a is not ready again");
        let again =
            Write::Requeued { task: a, attempt: 1, failures: 1, losses: 0, result: result(End::Exited(9)) };
        assert!(commit(&store, vec![again.clone()]).await.is_empty());
        assert_eq!(commit(&store, vec![again]).await, [0], "an attempt ends once");
        assert_eq!(commit(&store, vec![book(a, 3)]).await, [0], "attempts are not left out");
        assert!(commit(&store, vec![book(a, 2)]).await.is_empty());
        let rows = store.tasks(JobId(1), 0..10).await.unwrap();
        let seen: Vec<_> =
            rows.iter().map(|t| (t.row.index, t.row.state, t.row.attempt, t.row.failures)).collect();
        assert_eq!(seen, [(0, TaskState::Booked, 2, 1), (1, TaskState::Booked, 1, 0)]);
        let history = store.history(a).await.unwrap();
        assert_eq!(history.len(), 1);
        assert_eq!((history[0].attempt, history[0].late), (1, false));
        assert_eq!(history[0].result, result(End::Exited(9)));
    });
}

#[test]
fn a_result_counts_once_and_a_late_one_is_history() {
    on_all(async |store| {
        let a = task(1, 0);
        commit(&store, vec![new_job(1, spec("n", "u", None)), book(a, 1)]).await;
        let done = end(a, 1, TaskState::Succeeded, End::Exited(0));
        assert_eq!(commit(&store, vec![end(a, 2, TaskState::Failed, End::Exited(1))]).await, [0]);
        assert!(commit(&store, vec![done.clone()]).await.is_empty());
        assert_eq!(commit(&store, vec![done]).await, [0]);
        let (worker, epoch) = (WorkerId(8), Epoch(1));
        let late = Write::LateResult { task: a, attempt: 1, worker, epoch, result: result(End::Signaled(9)) };
        let never =
            Write::LateResult { task: a, attempt: 2, worker, epoch, result: result(End::Signaled(9)) };
        let nowhere = Write::LateResult {
            task: task(7, 0),
            attempt: 1,
            worker,
            epoch,
            result: result(End::Signaled(9)),
        };
        assert!(commit(&store, vec![late.clone(), late, never, nowhere]).await.is_empty());
        assert!(store.history(task(7, 0)).await.unwrap().is_empty());
        let stored = &store.tasks(JobId(1), 0..1).await.unwrap()[0];
        assert_eq!((stored.row.state, stored.row.losses), (TaskState::Succeeded, 2));
        assert_eq!(stored.result, Some(result(End::Exited(0))));
        let history = store.history(a).await.unwrap();
        assert_eq!(history.len(), 1, "said twice, and of attempts that never were: {history:?}");
        assert_eq!((history[0].late, history[0].worker), (true, worker));
    });
}

#[test]
fn failed_tasks_are_found_among_the_others() {
    on_all(async |store| {
        commit(&store, vec![new_job(1, spec("n", "u", None))]).await;
        for index in 0..5 {
            let (a, failed) = (task(1, index), index % 2 == 1 || index == 4);
            let state = if failed { TaskState::Failed } else { TaskState::Succeeded };
            let code = i32::from(failed);
            commit(&store, vec![book(a, 1), end(a, 1, state, End::Exited(code))]).await;
        }
        let found = async |range, limit| {
            let rows = windlass_store::failed_tasks(&store, JobId(1), range, limit).await.unwrap();
            rows.iter().map(|task| task.row.index).collect::<Vec<_>>()
        };
        assert_eq!(found(0..u32::MAX, 9).await, [1, 3, 4]);
        assert_eq!(found(0..u32::MAX, 2).await, [1, 3], "no more than asked for");
        assert_eq!(found(2..4, 9).await, [3]);
        let first = &windlass_store::failed_tasks(&store, JobId(1), 0..9, 1).await.unwrap()[0];
        assert_eq!(first.result, Some(result(End::Exited(1))));
        assert!(windlass_store::failed_tasks(&store, JobId(2), 0..9, 9).await.unwrap().is_empty());
    });
}

#[test]
fn a_job_ends_and_is_retried() {
    on_all(async |store| {
        let (good, bad, stopped) = (task(1, 0), task(1, 1), task(1, 2));
        let counts = Counts { total: 3, succeeded: 1, failed: 1, canceled: 1, ..Counts::default() };
        commit(
            &store,
            vec![
                new_job(1, spec("n", "u", None)),
                book(good, 1),
                book(bad, 1),
                book(stopped, 1),
                end(good, 1, TaskState::Succeeded, End::Exited(0)),
                end(bad, 1, TaskState::Failed, End::Exited(1)),
                end(stopped, 1, TaskState::Canceled, End::Canceled),
                Write::JobStop { job: JobId(1), stop: Stop::After(JobId(3)) },
                Write::JobHeld { job: JobId(1), held: true },
                Write::JobPriority { job: JobId(1), priority: -7 },
                Write::JobEnd { job: JobId(1), state: JobState::Failed, at: Time(500), counts },
            ],
        )
        .await;
        assert!(store.load().await.unwrap().ground.jobs.is_empty(), "ended jobs are not loaded");
        let view = store.job(JobId(1)).await.unwrap().unwrap();
        assert_eq!((view.state, view.ended, view.counts), (JobState::Failed, Some(Time(500)), Some(counts)));
        assert_eq!((view.stop, view.held), (Some(Stop::After(JobId(3))), true));
        assert_eq!(view.spec.priority, -7, "as a user changed it");
        commit(&store, vec![Write::JobRetry { job: JobId(1), tasks: RangeSet::from_range(0..6) }]).await;
        let record = store.records(BTreeSet::from([JobId(1), JobId(2)])).await.unwrap().pop().unwrap();
        assert_eq!((record.state, record.stop), (JobState::Active, None));
        let rows: Vec<_> = record.tasks.iter().map(|row| (row.state, row.attempt, row.failures)).collect();
        assert_eq!(rows, [(TaskState::Ready, 1, 0), (TaskState::Ready, 1, 0)]);
        let succeeded = EndedTasks { tasks: 0..1, state: TaskState::Succeeded, tries: Tries::default() };
        assert_eq!(record.ended, [succeeded]);
    });
}

/// A task that ran twice has both attempts: the first in its history, with the time of its booking.
#[test]
fn a_retry_keeps_the_last_attempt_of_each_task() {
    on_all(async |store| {
        let (bad, other) = (task(1, 1), task(1, 4));
        commit(
            &store,
            vec![
                new_job(1, spec("n", "u", None)),
                book(bad, 1),
                book(other, 1),
                end(bad, 1, TaskState::Failed, End::Exited(7)),
                end(other, 1, TaskState::Canceled, End::Canceled),
            ],
        )
        .await;
        let retry = |range| Write::JobRetry { job: JobId(1), tasks: RangeSet::from_range(range) };
        assert!(commit(&store, vec![retry(0..3)]).await.is_empty());
        let states = async || {
            let rows = store.tasks(JobId(1), 0..9).await.unwrap();
            rows.iter().map(|task| (task.row.index, task.row.state, task.row.failures)).collect::<Vec<_>>()
        };
        let untouched = (4, TaskState::Canceled, 1);
        assert_eq!(states().await, [(1, TaskState::Ready, 0), untouched]);
        commit(&store, vec![book(bad, 2), end(bad, 2, TaskState::Succeeded, End::Exited(0))]).await;
        let history = store.history(bad).await.unwrap();
        let seen: Vec<_> = history.iter().map(|earlier| (earlier.attempt, earlier.booked)).collect();
        assert_eq!(seen, [(1, Some(Time(77)))]);
        assert_eq!(history[0].result, result(End::Exited(7)));
        assert!(store.history(other).await.unwrap().is_empty());
        commit(&store, vec![retry(0..6)]).await;
        assert_eq!(store.history(other).await.unwrap().len(), 1);
        assert_eq!(store.history(bad).await.unwrap().len(), 1, "it succeeded, and is not retried");
    });
}

#[test]
fn cancelled_tasks_are_kept_until_they_are_retried() {
    on_all(async |store| {
        commit(&store, vec![new_job(1, spec("n", "u", None)), book(task(1, 0), 1)]).await;
        let cancels = |tasks: &RangeSet| Write::TasksCanceled { job: JobId(1), tasks: tasks.clone() };
        let mut tasks = RangeSet::from_range(0..2);
        tasks.insert_range(4..5);
        assert!(commit(&store, vec![cancels(&RangeSet::from_range(0..1)), cancels(&tasks)]).await.is_empty());
        let record = store.load().await.unwrap().ground.jobs.remove(0);
        assert_eq!((record.cancels, record.tasks.len()), (tasks.clone(), 1));
        assert_eq!(store.job(JobId(1)).await.unwrap().unwrap().cancels, tasks);
        commit(&store, vec![cancels(&RangeSet::default())]).await;
        assert!(store.load().await.unwrap().ground.jobs[0].cancels.is_empty());
        let nowhere = Write::TasksCanceled { job: JobId(2), tasks };
        assert_eq!(commit(&store, vec![nowhere]).await, [0]);
    });
}

#[test]
fn what_succeeded_of_another_job_is_kept_with_the_job_whose_tasks_come_after() {
    on_all(async |store| {
        commit(&store, vec![new_job(1, spec("n", "u", None))]).await;
        assert!(store.load().await.unwrap().ground.jobs[0].first_succeeded.is_empty());
        let told = |job, tasks: &RangeSet| Write::FirstSucceeded { job: JobId(job), tasks: tasks.clone() };
        let mut tasks = RangeSet::from_range(0..2);
        tasks.insert_range(4..5);
        let both = vec![told(1, &RangeSet::from_range(0..1)), told(1, &tasks)];
        assert!(commit(&store, both).await.is_empty());
        let record = store.load().await.unwrap().ground.jobs.remove(0);
        assert_eq!((record.first_succeeded, record.cancels), (tasks.clone(), RangeSet::default()));
        assert_eq!(store.job(JobId(1)).await.unwrap().unwrap().first_succeeded, tasks);
        assert_eq!(commit(&store, vec![told(2, &tasks)]).await, [0]);
    });
}

#[test]
fn ended_tasks_are_read_with_their_rows_while_others_that_started_with_them_are_booked() {
    on_all(async |store| {
        let (first, second) = (task(1, 0), task(1, 1));
        let mut one_by_one = spec("n", "u", None);
        for step in &mut one_by_one.steps {
            (step.nodes, step.with) = (None, None);
        }
        let mut writes = vec![new_job(1, spec("n", "u", None)), new_job(2, one_by_one)];
        writes.extend([book(first, 1), book(second, 1), book(task(2, 0), 1), book(task(2, 1), 1)]);
        writes.push(end(first, 1, TaskState::Succeeded, End::Exited(0)));
        writes.push(end(task(2, 0), 1, TaskState::Succeeded, End::Exited(0)));
        commit(&store, writes).await;
        let mates = async || {
            let records = store.records(BTreeSet::from([JobId(1), JobId(2)])).await.unwrap();
            let mates = records.iter().flat_map(|record| &record.mates);
            mates.map(|row| (row.index, row.attempt, row.worker, row.booked)).collect::<Vec<_>>()
        };
        assert_eq!(mates().await, [(0, 1, WorkerId(4), Time(77))], "of the job with gangs alone");
        commit(&store, vec![end(second, 1, TaskState::Failed, End::Exited(1))]).await;
        assert_eq!(mates().await, []);
    });
}

#[test]
fn lists_are_filtered_and_paged_newest_first() {
    on_all(async |store| {
        for id in 1..=9 {
            let user = if id % 2 == 0 { "even" } else { "odd" };
            commit(&store, vec![new_job(id, spec(&format!("job%_{id}"), user, None))]).await;
        }
        let counts = Counts::default();
        let ended = Write::JobEnd { job: JobId(4), state: JobState::Canceled, at: Time(9), counts };
        commit(&store, vec![ended]).await;
        let list = async |filter: JobFilter, before: Option<u64>, limit| {
            let part = store.jobs(filter, before.map(JobId), limit, usize::MAX).await.unwrap();
            part.jobs.iter().map(|job| job.id.0).collect::<Vec<_>>()
        };
        let all = JobFilter::default();
        assert_eq!(list(all.clone(), None, 4).await, [9, 8, 7, 6]);
        assert_eq!(list(all.clone(), Some(6), 100).await, [5, 4, 3, 2, 1]);
        let even = JobFilter { user: Some("even".into()), ..all.clone() };
        assert_eq!(list(even.clone(), None, 100).await, [8, 6, 4, 2]);
        let active = JobFilter { states: vec![JobState::Active, JobState::Failed], ..even };
        assert_eq!(list(active, None, 100).await, [8, 6, 2]);
        let queue = JobFilter { queue: Some("odd-queue".into()), ..all.clone() };
        assert_eq!(list(queue, None, 2).await, [9, 7]);
        // A filter is plain text: wildcards of LIKE stand for themselves.
        assert_eq!(list(JobFilter { name: Some("%_3".into()), ..all.clone() }, None, 9).await, [3]);
        assert_eq!(list(JobFilter { name: Some("' OR 1".into()), ..all }, None, 9).await, [0u64; 0]);
    });
}

#[test]
fn old_jobs_go_with_all_that_hangs_on_them() {
    on_all(async |store| {
        let counts = Counts::default();
        for id in 1..=3 {
            let a = task(id, 0);
            let again =
                Write::Requeued { task: a, attempt: 1, failures: 0, losses: 1, result: result(End::Lost) };
            commit(&store, vec![new_job(id, spec("n", "u", None)), book(a, 1), again]).await;
        }
        for (id, at) in [(1, 10), (2, 20)] {
            let state = JobState::Succeeded;
            commit(&store, vec![Write::JobEnd { job: JobId(id), state, at: Time(at), counts }]).await;
        }
        assert_eq!(store.retain(Time(20), 10).await.unwrap(), (vec![JobId(1)], false));
        assert_eq!(store.job(JobId(1)).await.unwrap(), None);
        assert!(store.tasks(JobId(1), 0..9).await.unwrap().is_empty());
        assert!(store.history(task(1, 0)).await.unwrap().is_empty());
        assert_eq!(store.body(JobId(1), 0).await.unwrap(), None);
        assert_eq!(store.history(task(2, 0)).await.unwrap().len(), 1);
        assert_eq!(store.retain(Time(1 << 60), 10).await.unwrap().0, [JobId(2)], "active jobs stay");
        assert_eq!(store.load().await.unwrap().next_job, 4, "numbers are not given out twice");
    });
}

#[test]
fn a_store_has_a_number_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| Store::open(&format!("sqlite:{}", dir.path().join(name).display())).unwrap();
    let first = open("a").id();
    assert_ne!(first, open("b").id());
    assert_ne!(Store::open("memory").unwrap().id(), Store::open("memory").unwrap().id());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn workers_are_kept_by_id() {
    on_all(async |store| {
        let mut worker = WorkerRecord {
            id: WorkerId(1),
            name: "w".to_owned(),
            epoch: Epoch(1),
            identity: u64::MAX,
            incarnation: u64::MAX >> 1,
            state: WorkerState::Up,
            draining: false,
            note: Some("new disk".to_owned()),
            lease_until: None,
            capacity: Resources::new(800, 1 << 40),
            attributes: [("arch".to_owned(), ["x".to_owned()].into())].into(),
        };
        commit(&store, vec![Write::Worker(worker.clone())]).await;
        worker.epoch = Epoch(2);
        worker.draining = true;
        worker.lease_until = Some(Time(5));
        commit(&store, vec![Write::Worker(worker.clone())]).await;
        assert_eq!(store.load().await.unwrap().ground.workers, [worker.clone()]);
        let until = Time(9);
        let (known, unknown) = (WorkerId(1), WorkerId(2));
        let renewals = [known, unknown].map(|worker| Write::Lease { worker, until });
        assert_eq!(commit(&store, renewals.to_vec()).await, [1], "a worker that is not there has no lease");
        worker.lease_until = Some(until);
        assert_eq!(store.load().await.unwrap().ground.workers, [worker.clone()]);
        for state in
            [WorkerState::Suspect, WorkerState::Draining, WorkerState::Expired, WorkerState::Forgotten]
        {
            (worker.state, worker.lease_until) = (state, None);
            commit(&store, vec![Write::Worker(worker.clone())]).await;
            assert_eq!(store.load().await.unwrap().ground.workers, [worker.clone()]);
        }
        assert_eq!(store.load().await.unwrap().ground.workers, [worker]);
    });
}

#[test]
fn a_file_is_there_after_it_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", dir.path().join("sub/w.db").display());
    let given = spec("n", "u", None);
    block_on(async {
        let store = Store::open(&address).unwrap();
        commit(&store, vec![new_job(3, given.clone()), book(task(3, 0), 1)]).await;
    });
    block_on(async {
        let snapshot = Store::open(&address).unwrap().load().await.unwrap();
        assert_eq!((snapshot.next_job, &*snapshot.ground.jobs[0].spec), (4, &given.without_bodies()));
        assert_eq!(snapshot.ground.jobs[0].tasks[0].state, TaskState::Booked);
    });
}

#[test]
fn a_file_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", dir.path().join("w.db").display());
    let _first = Store::open(&address).unwrap();
    let Err(second) = Store::open(&address) else { panic!("opened twice") };
    assert!(matches!(second, StoreError::InUse(_)), "{second}");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let garbage = b"this is a shopping list, not a database, and it is long enough to be read".repeat(200);
    std::fs::write(&path, &garbage).unwrap();
    let Err(refused) = Store::open(&format!("sqlite:{}", path.display())) else { panic!("opened garbage") };
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
}

#[test]
fn a_damaged_page_is_an_error_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.db");
    let address = format!("sqlite:{}", path.display());
    block_on(async {
        let store = Store::open(&address).unwrap();
        for id in 1..200 {
            commit(&store, vec![new_job(id, spec("n", "u", None))]).await;
        }
    });
    let db = rusqlite::Connection::open(&path).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = std::fs::read(&path).unwrap();
    let (from, to) = (bytes.len() / 4, bytes.len() / 4 * 3);
    bytes[from..to].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    let refused = match Store::open(&address) {
        Err(e) => e,
        Ok(store) => block_on(store.load()).expect_err("loaded a damaged file"),
    };
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
}

#[test]
fn addresses_that_name_no_store_say_what_does() {
    let refuse = |address: &str| match Store::open(address) {
        Ok(_) => panic!("{address} was opened"),
        Err(e) => e.to_string(),
    };
    let other = refuse("mysql://ann:secret@db.example/farm");
    assert!(other.contains("postgres://HOST/DATABASE") && other.contains("sqlite:PATH"), "{other}");
    assert!(!other.contains("secret"), "{other}");
    assert!(refuse("mysql:x").contains("is not a store"));
}

fn sample(n: u64) -> Sample {
    let disk_bytes = n.is_multiple_of(2).then_some(n);
    Sample {
        peak_memory: Some(n << 30),
        cpu_ms: Some(n),
        wall_ms: None,
        disk_bytes,
        oom: !n.is_multiple_of(2),
    }
}

fn history(signature: &str, samples: Vec<Sample>, at: u64) -> Write {
    Write::History { signature: signature.to_owned(), samples, at: Time(at) }
}

#[test]
fn a_booking_keeps_its_amounts_through_its_end_and_the_next_one() {
    on_all(async |store| {
        let a = task(1, 0);
        commit(&store, vec![new_job(1, spec("n", "u", None)), book(a, 1)]).await;
        let amounts = async || store.load().await.unwrap().ground.jobs[0].tasks[0].amounts;
        assert_eq!(amounts().await, Some((150, 3 << 30)));
        let again =
            Write::Requeued { task: a, attempt: 1, failures: 1, losses: 0, result: result(End::OutOfMemory) };
        commit(&store, vec![again]).await;
        assert_eq!(amounts().await, Some((150, 3 << 30)));
        let (worker, epoch) = (WorkerId(4), Epoch(2));
        let twice = Write::Book { task: a, attempt: 2, worker, epoch, at: Time(80), amounts: (25, u64::MAX) };
        commit(&store, vec![twice]).await;
        assert_eq!(amounts().await, Some((25, u64::MAX)));
        assert_eq!(store.history(a).await.unwrap()[0].result.disk_bytes, Some(4096));
    });
}

#[test]
fn samples_come_back_newest_first_and_the_oldest_go() {
    on_all(async |store| {
        let writes = vec![
            history("b", vec![sample(1)], 10),
            history("a", vec![sample(2)], 30),
            history("c", vec![], 20),
            history("b", vec![sample(1), sample(4)], 40),
        ];
        assert!(commit(&store, writes).await.is_empty());
        let load = async || store.load().await.unwrap().ground.history;
        let b = ("b".to_owned(), vec![sample(1), sample(4)]);
        let a = ("a".to_owned(), vec![sample(2)]);
        assert_eq!(load().await, [b.clone(), a.clone(), ("c".to_owned(), vec![])]);
        assert_eq!(store.retain(Time(30), 10).await.unwrap(), (Vec::new(), false));
        assert_eq!(load().await, [b, a]);
    });
}

#[test]
fn an_engine_starts_with_a_bounded_history() {
    on_all(async |store| {
        let max = HISTORY_MAX as u64;
        let writes = (0..=max).map(|n| history(&format!("s{n}"), vec![sample(n)], n));
        commit(&store, writes.collect()).await;
        let known = store.load().await.unwrap().ground.history;
        assert_eq!(known.len(), HISTORY_MAX);
        assert_eq!(known[0], (format!("s{max}"), vec![sample(max)]));
        assert!(!known.iter().any(|(signature, _)| signature == "s0"), "the oldest is left out");
    });
}

#[test]
fn queues_and_limits_are_as_they_were_set_last() {
    on_all(async |store| {
        let queue =
            |name: &str, weight, quota_cpu| QueueRecord { weight, quota_cpu, ..QueueRecord::named(name) };
        let limit = |name: &str, limit| Write::Limit { name: name.to_owned(), limit };
        let busy = Busy { exits: [1, 255].into(), back_off_ms: 86_400_000 };
        let full = Limit { max: Some(u32::MAX), per_worker: Some(1), busy: Some(busy) };
        let worker = Limit { per_worker: Some(u32::MAX), ..Limit::default() };
        let paused = QueueRecord {
            band: Some(0),
            burst_cpu: Some(u32::MAX),
            paused: Some("the 'disk' is full\n".to_owned()),
            users: ["ann".to_owned(), "*".to_owned()].into(),
            turns: TurnsBy::Jobs,
            user_weights: [("ann".to_owned(), 10_000), ("b'\n".to_owned(), 1)].into(),
            jobserver: Some(true),
            ..queue("a", 10_000, Some(u32::MAX))
        };
        let writes = vec![
            Write::Queue(QueueRecord { band: Some(7), burst_cpu: Some(60), ..queue("b", 100, Some(50)) }),
            Write::Queue(paused.clone()),
            Write::Queue(QueueRecord { jobserver: Some(false), ..queue("b", 1, None) }),
            Write::Queue(queue("b", 1, None)),
            Write::Queue(queue("gone", 1, None)),
            Write::QueueGone("gone".to_owned()),
            Write::QueueGone("never".to_owned()),
            Write::QueueGone("c".to_owned()),
            Write::Queue(queue("c", 7, None)),
            limit("maya", Some(Limit::of(3))),
            limit("nuke", Some(full.clone())),
            limit("nuke", Some(Limit::of(0))),
            limit("maya", Some(full.clone())),
            limit("rack", Some(worker.clone())),
            limit("gone", Some(Limit::of(1))),
            limit("gone", None),
            limit("never", None),
        ];
        assert!(commit(&store, writes).await.is_empty());
        let ground = store.load().await.unwrap().ground;
        assert_eq!(ground.queues, [paused, queue("b", 1, None), queue("c", 7, None)]);
        let limits = [("maya", full), ("nuke", Limit::of(0)), ("rack", worker)];
        assert_eq!(ground.limits, limits.map(|(name, limit)| (name.to_owned(), limit)).into());
    });
}

#[test]
fn a_large_old_history_goes_bit_by_bit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite:{}", dir.path().join("w.db").display())).unwrap();
    block_on(async {
        commit(&store, (0..5).map(|n| history(&n.to_string(), vec![], n)).collect()).await;
        let left = async || store.load().await.unwrap().ground.history.len();
        assert_eq!(store.retain(Time(4), 3).await.unwrap(), (Vec::new(), true));
        assert_eq!(left().await, 2);
        assert_eq!(store.retain(Time(4), 3).await.unwrap(), (Vec::new(), false));
        assert_eq!(left().await, 1);
    });
}

#[test]
fn what_placement_goes_by_is_there_after_the_file_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", dir.path().join("w.db").display());
    let before = block_on(async {
        let store = Store::open(&address).unwrap();
        let queue = QueueRecord { weight: 7, jobserver: Some(false), ..QueueRecord::named("q") };
        let limit = Write::Limit { name: "maya".to_owned(), limit: Some(Limit::of(2)) };
        let job = new_job(1, spec("n", "u", None));
        let known = history("s", vec![sample(1), sample(2)], 5);
        commit(&store, vec![job, book(task(1, 0), 1), known, Write::Queue(queue), limit]).await;
        store.load().await.unwrap()
    });
    assert_eq!([before.ground.history.len(), before.ground.queues.len(), before.ground.limits.len()], [1; 3]);
    assert_eq!(block_on(Store::open(&address).unwrap().load()).unwrap(), before);
}

#[test]
fn what_another_system_says_is_kept_as_long_as_the_job() {
    on_all(async |store| {
        let job = |id, open, doc: &str| ForeignWrite::Job { job: JobId(id), open, doc: doc.to_owned() };
        let host = |doc: &str| ForeignWrite::Host { name: "h".to_owned(), doc: doc.to_owned() };
        store.write_foreign(vec![job(1, true, "a"), job(2, true, "b"), host("x")]).await.unwrap();
        store.write_foreign(vec![job(2, false, "c"), job(3, true, "d"), host("y")]).await.unwrap();
        store.write_foreign(vec![ForeignWrite::Forget(JobId(3))]).await.unwrap();
        let docs = store.foreign_docs().await.unwrap();
        assert_eq!(docs.open, [(JobId(1), "a".to_owned())]);
        assert_eq!(docs.hosts, [("h".to_owned(), "y".to_owned())]);
        assert_eq!(store.foreign_job(JobId(2)).await.unwrap().as_deref(), Some("c"));
        assert_eq!(store.foreign_job(JobId(3)).await.unwrap(), None);
        // The documents of its nodes are deleted with the job, and no others.
        let node = |of: u64, n: u64| of + n * FOREIGN_NODE_NUMBERS;
        let nodes = [node(2, 1), node(2, 63), node(1, 1), node(22, 1)];
        store.write_foreign(nodes.iter().map(|id| job(*id, false, "n")).collect()).await.unwrap();
        let (spec, created) = (Arc::new(spec("j", "u", None)), Time(1));
        let new = |id| Write::Job { id: JobId(id), spec: spec.clone(), created };
        let end = Write::JobEnd {
            job: JobId(2),
            state: JobState::Canceled,
            at: Time(2),
            counts: Counts::default(),
        };
        let held = Write::JobHeld { job: JobId(1), held: true };
        assert!(commit(&store, vec![new(1), new(2), end, held]).await.is_empty());
        assert_eq!(store.held_jobs().await.unwrap(), [JobId(1)]);
        assert_eq!(store.retain(Time(9), 1_000).await.unwrap().0, [JobId(2)]);
        assert_eq!(store.foreign_job(JobId(2)).await.unwrap(), None);
        assert_eq!(store.foreign_job(JobId(1)).await.unwrap().as_deref(), Some("a"));
        let mut left = Vec::new();
        for id in nodes {
            left.push(store.foreign_job(JobId(id)).await.unwrap().is_some());
        }
        assert_eq!(left, [false, false, true, true]);
    });
}

/// Steps 0 and 3 back off for a limit.
fn back_offs() -> BTreeMap<u16, BackOff> {
    let back_off = |limit: &str, times| BackOff {
        limit: limit.to_owned(),
        since: Time(1 << 60),
        until: Time((1 << 60) + 5),
        times,
    };
    [(0, back_off("maya", 1)), (3, back_off("a \"b\"", u32::MAX))].into()
}

#[test]
fn what_backs_off_is_kept_with_its_job() {
    on_all(async |store| {
        let write = |job, steps| Write::LicenceBackoffs { job: JobId(job), steps };
        commit(&store, vec![new_job(1, spec("n", "u", None)), new_job(2, spec("n", "u", None))]).await;
        assert!(commit(&store, vec![write(1, back_offs()), write(2, back_offs())]).await.is_empty());
        assert!(commit(&store, vec![write(2, BTreeMap::new())]).await.is_empty());
        let jobs = store.load().await.unwrap().ground.jobs;
        assert_eq!((&jobs[0].back_offs, &jobs[1].back_offs), (&back_offs(), &BTreeMap::new()));
        assert_eq!(store.records([JobId(1)].into()).await.unwrap()[0].back_offs, back_offs());
        assert_eq!(commit(&store, vec![write(9, back_offs())]).await, [0], "there is no such job");
    });
}
