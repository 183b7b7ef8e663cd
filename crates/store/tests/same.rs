//! PostgreSQL takes a batch apart into statements over arrays, and SQLite applies one write after the other. Over random
//! batches both refuse the same writes and hold the same state.

use crate::support::{self, commit, owned};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{
    BackOff, BacklogCounts, Counts, End, JobSpec, JobState, Parked, QueuePos, StepSpec, Stop, TaskResult,
    TaskState,
};
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::ranges::RangeSet;
use windlass_core::score::history::Sample;
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{JobFilter, Store};

/// A write by its kind and four small numbers.
#[derive(Clone, Copy, Debug)]
struct Op(u8, u64, u32, u32, u64);

const JOBS: u64 = 3;

fn result(exit: u32) -> TaskResult {
    TaskResult {
        message: (exit == 1).then(|| "nul \0 and more".replace('\0', "-")),
        ..TaskResult::bare(End::Exited(exit as i32))
    }
}

fn parked(job: u64, class: u32) -> Parked {
    Parked {
        class: class.into(),
        position: QueuePos { priority: Reverse(class as i32 - 1), ranked: Time(job), job: JobId(job) },
        ready: Time(3),
        backlog: BacklogCounts { jobs: 1, ready: 2, waiting: u64::from(class) },
    }
}

fn worker(id: u64, epoch: u32) -> WorkerRecord {
    WorkerRecord {
        id: WorkerId(id),
        name: format!("w{id}"),
        epoch: Epoch(epoch.into()),
        identity: 1,
        incarnation: 2,
        state: WorkerState::Up,
        draining: epoch == 1,
        note: None,
        lease_until: None,
        capacity: Resources::new(100, 1),
        attributes: Default::default(),
    }
}

/// The write, unless it would insert a job that the batches so far have inserted already.
fn write(Op(kind, job, index, attempt, worker_id): Op, made: &mut BTreeSet<u64>) -> Option<Write> {
    let (id, task, queue) = (JobId(job), TaskId { job: JobId(job), index }, format!("q{index}"));
    let (worker_id, epoch) = (WorkerId(worker_id), Epoch(1));
    let at = Time(u64::from(attempt) + 5);
    Some(match kind {
        0 if made.insert(job) => {
            let step = StepSpec {
                name: "s".to_owned(),
                tasks: 4,
                body: Arc::from(&b"body"[..]),
                ..StepSpec::default()
            };
            let spec = JobSpec { user: queue, steps: vec![step], ..JobSpec::default() };
            Write::Job { id, spec: Arc::new(spec), created: at }
        }
        0 => return None,
        1 => Write::JobHeld { job: id, held: index == 0 },
        2 => Write::JobPriority { job: id, priority: index as i32 },
        3 => Write::JobStop { job: id, stop: Stop::After(JobId(u64::from(index))) },
        4 => {
            let counts = Counts { total: u64::from(index) as _, ..Counts::default() };
            Write::JobEnd { job: id, state: JobState::Failed, at, counts }
        }
        5 if attempt == 1 => Write::FirstSucceeded { job: id, tasks: RangeSet::from_range(0..index) },
        5 => Write::JobRetry { job: id, tasks: RangeSet::from_range(0..4) },
        6 if attempt == 1 => Write::TasksCanceled { job: id, tasks: RangeSet::from_range(index..index + 2) },
        6 => {
            let mut tasks = RangeSet::from_range(index..index + 1);
            tasks.insert_range(3..4);
            Write::JobRetry { job: id, tasks }
        }
        7..=10 => Write::Book { task, attempt, worker: worker_id, epoch, at, amounts: (100, 7) },
        11..=13 => {
            let state = [TaskState::Succeeded, TaskState::Failed][index as usize % 2];
            Write::End { task, attempt, state, failures: index, losses: 0, result: result(index) }
        }
        14 | 15 => Write::Requeued { task, attempt, failures: 1, losses: index, result: result(1) },
        16 | 17 => Write::LateResult { task, attempt, worker: worker_id, epoch, result: result(index) },
        18 => Write::Worker(worker(worker_id.0, attempt)),
        19 => Write::WorkerGone(worker_id),
        20 => Write::Lease { worker: worker_id, until: at },
        21 | 22 => Write::Park { job: id, queue, parked: parked(job, attempt) },
        23 | 24 => Write::Unpark { job: id, queue, parked: parked(job, attempt) },
        25 => Write::History { signature: queue, samples: vec![Sample::default(); attempt as usize], at },
        26 if index == 0 => Write::QueueGone(queue),
        26 => Write::Queue(QueueRecord { weight: attempt, ..QueueRecord::named(&queue) }),
        27 => Write::Limit { name: queue, limit: (attempt != 1).then(|| Limit::of(attempt)) },
        28 => Write::SucceededRanges { job: id, tasks: RangeSet::from_range(0..index) },
        _ => {
            let back_off = BackOff { limit: queue, since: at, until: at, times: 1 };
            Write::LicenceBackoffs {
                job: id,
                steps: (0..index as u16).map(|n| (n, back_off.clone())).collect(),
            }
        }
    })
}

fn batches() -> impl Strategy<Value = Vec<Vec<Op>>> {
    let op = (0u8..30, 1..=JOBS, 0u32..3, 1u32..4, 1u64..3).prop_map(|(k, j, i, a, w)| Op(k, j, i, a, w));
    prop::collection::vec(prop::collection::vec(op, 1..40), 1..5)
}

/// Everything that a store shows.
async fn shown(store: &Store) -> String {
    let mut text =
        format!("{:#?}\n{:#?}\n", store.load().await.unwrap(), store.parked_counts().await.unwrap());
    text += &format!("{:#?}\n", store.jobs(JobFilter::default(), None, 99, usize::MAX).await.unwrap());
    for job in 1..=JOBS {
        text += &format!("{:#?}\n", store.tasks(JobId(job), 0..99).await.unwrap());
        text += &format!("{:#?}\n", store.parked(JobId(job)).await.unwrap());
        for index in 0..4 {
            text += &format!("{:#?}\n", store.history(TaskId { job: JobId(job), index }).await.unwrap());
        }
    }
    for user in ["q0", "q1", "q2"] {
        text += &format!("{:?}\n", store.user_totals(user.to_owned()).await.unwrap());
    }
    text + &format!("{:?} {:?}", store.last_ended(9, 9).await.unwrap(), store.ended_totals().await.unwrap())
}

async fn compare(sqlite: &Store, postgres: &Store, batches: &[Vec<Op>]) {
    let mut made = BTreeSet::new();
    for batch in batches {
        let writes: Vec<Write> = batch.iter().filter_map(|op| write(*op, &mut made)).collect();
        let refused = commit(sqlite, writes.clone()).await;
        assert_eq!(commit(postgres, writes.clone()).await, refused, "{writes:#?}");
        let (expected, found) = (shown(sqlite).await, shown(postgres).await);
        let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
        assert_eq!(expected, found, "{differs:?} after {writes:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_and_postgres_refuse_and_keep_the_same(batches in batches()) {
        let Some(address) = support::postgres::database() else { return Ok(()) };
        let dir = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", dir.path().join("w.db").display());
        support::block_on(async {
            let (sqlite, postgres) = (owned(&file).await, owned(&address).await);
            compare(&sqlite, &postgres, &batches).await;
        });
    }
}
