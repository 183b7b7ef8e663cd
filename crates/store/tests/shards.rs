//! One suite for all stores: shards of a farm, each with a handle of its own, and the messages between them.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use support::{LONG, commit, on_all, turn};
use windlass_core::engine::Write;
use windlass_core::job::{
    BacklogCounts, End, JobSpec, Parked, QueuePos, StepSpec, TaskResult, TaskState, Tries,
};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{QueueRecord, SavedTurns, TurnRecord};
use windlass_core::ranges::RangeSet;
use windlass_core::shards::{Message, Room, TriedTasks};
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::{MAIL_BYTES_MAX, MAIL_ROWS_MAX, Mail, MailPlace, ServerId, ShardId, Store};

const ONE: ShardId = ShardId(1);
const TWO: ShardId = ShardId(2);
const JOB: JobId = JobId(1);

/// The handles of two shards. That of the first owns it already.
async fn two(store: &Store) -> (Store, Store) {
    store.set_shards([ONE, TWO].into()).await.unwrap();
    let server = ServerId(77);
    let ownership = store.claim(TWO, server, LONG).await.unwrap().expect("no other server has it");
    (store.clone(), store.as_owner(ownership))
}

fn new_job(id: JobId, tasks: u32) -> Write {
    let steps = vec![StepSpec { name: "s".to_owned(), tasks, ..StepSpec::default() }];
    let spec = JobSpec { queue: "q".to_owned(), steps, ..JobSpec::default() };
    Write::Job { id, spec: Arc::new(spec), created: Time(7) }
}

fn range(from: u32, to: u32) -> RangeSet {
    RangeSet::from_range(from..to)
}

fn delegate(number: u64, tasks: RangeSet) -> Vec<Write> {
    let message =
        Message::Delegate { job: JOB, tasks: tasks.clone(), tried: Vec::new(), waited_ms: 5, stays: false };
    vec![Write::Delegated { job: JOB, shard: TWO, tasks }, Write::Tell { to: TWO, number, message }]
}

fn heard(from: ShardId, number: u64) -> Write {
    Write::Heard { from, number, job: None }
}

fn back(tasks: std::ops::Range<u32>, state: TaskState) -> Message {
    let tries = Tries { attempt: 2, failures: 1, losses: 1, failed_on: Some(WorkerId(4)) };
    let tasks = vec![TriedTasks { tasks, state, tries }];
    Message::Return { job: JOB, tasks, fits: true, mean_us: vec![(0, 1_500)] }
}

/// All messages to a handle's shard, page by page.
async fn mail(store: &Store) -> Vec<Mail> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.mail(after).await.unwrap();
        all.extend(page.mail);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

async fn guest(store: &Store) -> RangeSet {
    store.records([JOB].into()).await.unwrap().remove(0).guest
}

#[test]
fn tasks_are_with_a_shard_from_the_batch_that_hears_of_them_to_the_batch_that_returns_them() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        let mut writes = vec![new_job(JOB, 10)];
        writes.extend(delegate(1, range(2, 8)));
        assert!(commit(&one, writes).await.is_empty());
        assert!(guest(&two).await.is_empty(), "they are on their way");
        assert!(two.load().await.unwrap().ground.jobs.is_empty());
        assert!(commit(&two, vec![heard(ONE, 1)]).await.is_empty());
        assert_eq!(guest(&two).await, range(2, 8));
        let ground = two.load().await.unwrap().ground;
        assert_eq!((ground.jobs.len(), ground.jobs[0].home), (1, ONE));
        assert_eq!(ground.heard, [(ONE, 1)].into());
        let tell = Write::Tell { to: ONE, number: 1, message: back(2..4, TaskState::Failed) };
        assert!(commit(&two, vec![tell]).await.is_empty());
        assert_eq!(guest(&two).await, range(4, 8));
        let record = one.records([JOB].into()).await.unwrap().remove(0);
        assert_eq!(record.delegated, [(TWO, range(2, 8))].into(), "its home has not heard of that");
        let left = Write::Delegated { job: JOB, shard: TWO, tasks: range(4, 8) };
        assert!(commit(&one, vec![heard(TWO, 1), left]).await.is_empty());
        assert_eq!(guest(&two).await, range(4, 8));
        let none = Write::Delegated { job: JOB, shard: TWO, tasks: RangeSet::default() };
        assert!(commit(&one, vec![none]).await.is_empty());
        assert!(one.records([JOB].into()).await.unwrap().remove(0).delegated.is_empty());
        assert!(guest(&two).await.is_empty());
    });
}

#[test]
fn a_message_is_sent_once_and_heard_once() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        let tell = |number| Write::Tell { to: TWO, number, message: Message::AskRoom };
        assert!(commit(&one, vec![tell(1), tell(2)]).await.is_empty());
        assert_eq!(commit(&one, vec![tell(2)]).await, [0], "its number is taken");
        let asks = |number| Mail { from: ONE, number, message: Message::AskRoom };
        assert_eq!(mail(&two).await, [asks(1), asks(2)]);
        assert!(mail(&one).await.is_empty());
        assert_eq!(one.load().await.unwrap().ground.sent, [(TWO, 2)].into());
        assert!(commit(&two, vec![heard(ONE, 1)]).await.is_empty());
        assert_eq!(commit(&two, vec![heard(ONE, 1)]).await, [0], "it took effect before");
        assert_eq!(commit(&one, vec![tell(1)]).await, [0], "that was sent before");
        assert_eq!(mail(&two).await, [asks(2)]);
        assert!(commit(&two, vec![heard(ONE, 2)]).await.is_empty());
        assert_eq!(one.load().await.unwrap().ground.sent, [(TWO, 2)].into(), "numbers are not used again");
    });
}

#[test]
fn every_message_is_read_as_it_was_written() {
    let queue = QueueRecord {
        weight: 7,
        band: Some(3),
        quota_cpu: Some(200),
        burst_cpu: Some(300),
        paused: Some("closed".to_owned()),
        users: ["ann".to_owned()].into(),
        user_weights: [("bob".to_owned(), 9)].into(),
        ..QueueRecord::named("films")
    };
    let busy = Some(Busy { exits: [11].into(), back_off_ms: 500 });
    let limit = Some(Limit { max: Some(2), per_worker: Some(1), busy });
    let room = Room { cpu: 1_200, memory: 3 << 30, largest: Resources::new(400, 1 << 30), version: 5 };
    let mut tasks = range(0, 3);
    tasks.insert_range(7..9);
    let tries = Tries { attempt: 1, ..Tries::default() };
    let tried = vec![TriedTasks { tasks: 1..2, state: TaskState::Ready, tries }];
    let stop = Some(windlass_core::job::Stop::After(JobId(9)));
    let messages = [
        Message::AskRoom,
        Message::Room(room),
        Message::Delegate { job: JOB, tasks, tried, waited_ms: 7, stays: true },
        back(3..4, TaskState::Canceled),
        Message::Orders { job: JOB, stop, held: true, priority: -5 },
        Message::Withdraw { job: JOB },
        Message::Queue(Box::new(queue)),
        Message::Limit { name: "lic".to_owned(), limit },
        Message::Limit { name: "lic".to_owned(), limit: None },
    ];
    on_all(async |store| {
        let (one, two) = two(&store).await;
        let tells = (1..).zip(&messages).map(|(number, message)| Write::Tell {
            to: TWO,
            number,
            message: message.clone(),
        });
        assert!(commit(&one, tells.collect()).await.is_empty());
        let read: Vec<Message> = mail(&two).await.into_iter().map(|mail| mail.message).collect();
        assert_eq!(read, messages);
    });
}

#[test]
fn messages_are_read_in_pages_of_bounded_rows_and_bytes_and_none_is_left_out() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        let small = MAIL_ROWS_MAX as u64 + 5;
        let tell = |number, message| Write::Tell { to: TWO, number, message };
        let asks = (1..=small).map(|number| tell(number, Message::AskRoom)).collect();
        assert!(commit(&one, asks).await.is_empty());
        let first = two.mail(None).await.unwrap();
        assert_eq!((first.mail.len(), first.mail[0].number), (MAIL_ROWS_MAX, 1));
        let last = two.mail(first.next).await.unwrap();
        let numbers: Vec<u64> = last.mail.iter().map(|mail| mail.number).collect();
        assert_eq!((numbers, last.next), ((small - 4..=small).collect(), None));
        // A page ends behind the message that fills it, so each page brings something.
        let paused = Some("p".repeat(MAIL_BYTES_MAX / 2 + 1));
        let queue = QueueRecord { paused, ..QueueRecord::named("films") };
        let large = (1..=3).map(|n| tell(small + n, Message::Queue(Box::new(queue.clone())))).collect();
        assert!(commit(&one, large).await.is_empty());
        let after = first.next.map(|place| MailPlace { number: small, ..place });
        let full = two.mail(after).await.unwrap();
        assert_eq!(full.mail.len(), 2);
        let rest = two.mail(full.next).await.unwrap();
        assert_eq!((rest.mail.len(), rest.mail[0].number, rest.next), (1, small + 3, None));
        assert_eq!(mail(&two).await.len() as u64, small + 3);
    });
}

#[test]
fn a_retry_leaves_tasks_alone_that_are_with_another_shard() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        let mut writes = vec![new_job(JOB, 4)];
        writes.extend(delegate(1, range(1, 3)));
        commit(&one, writes).await;
        let failed = |index| {
            let task = TaskId { job: JOB, index };
            let (worker, epoch) = (WorkerId(4), Epoch(1));
            let result = TaskResult::bare(End::Exited(1));
            vec![
                Write::Book { task, attempt: 1, worker, epoch, at: Time(8), amounts: (100, 0) },
                Write::End { task, attempt: 1, state: TaskState::Failed, failures: 1, losses: 0, result },
            ]
        };
        commit(&two, [failed(1), failed(2)].concat()).await;
        assert!(commit(&one, [failed(0), vec![Write::JobRetry { job: JOB }]].concat()).await.is_empty());
        let states = async || -> Vec<TaskState> {
            one.tasks(JOB, 0..4).await.unwrap().iter().map(|task| task.row.state).collect()
        };
        assert_eq!(states().await, [TaskState::Ready, TaskState::Failed, TaskState::Failed]);
        // In one batch: first they return, then they are retried.
        let left = Write::Delegated { job: JOB, shard: TWO, tasks: range(2, 3) };
        assert!(commit(&one, vec![left, Write::JobRetry { job: JOB }]).await.is_empty());
        assert_eq!(states().await, [TaskState::Ready, TaskState::Ready, TaskState::Failed]);
    });
}

#[test]
fn each_shard_reads_its_own_jobs_workers_turns_and_parked_jobs() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        for (handle, number) in [(&one, 1_u64), (&two, 2)] {
            let job = JobId(number);
            let place = QueuePos { job, ..QueuePos::FIRST };
            let backlog = BacklogCounts { jobs: 1, ready: number, waiting: 0 };
            let parked = Parked { class: 5, place, ready: Time(7), backlog };
            let turn = turn(i128::from(number) << 56);
            let turns = vec![TurnRecord { queue: "q".to_owned(), user: None, turn: Some(turn) }];
            let worker = WorkerRecord {
                id: WorkerId(number),
                name: format!("w{number}"),
                epoch: Epoch(1),
                identity: number,
                incarnation: number,
                state: WorkerState::Up,
                draining: false,
                note: None,
                lease_until: None,
                capacity: Resources::new(100, 0),
                attributes: Default::default(),
            };
            let writes = vec![
                new_job(job, 2),
                Write::Park { job, queue: "q".to_owned(), parked },
                new_job(JobId(number + 10), 2),
                Write::Worker(worker),
                Write::Turns(SavedTurns { turns, clocks: Vec::new() }),
            ];
            assert!(commit(handle, writes).await.is_empty());
        }
        for (handle, number, other) in [(&one, 1_u64, TWO), (&two, 2, ONE)] {
            let ground = handle.load().await.unwrap().ground;
            let jobs: Vec<u64> = ground.jobs.iter().map(|job| job.id.0).collect();
            let workers: Vec<u64> = ground.workers.iter().map(|worker| worker.id.0).collect();
            assert_eq!((jobs, workers), (vec![number + 10], vec![number]));
            assert_eq!(ground.parked.len(), 1);
            assert_eq!((&*ground.parked[0].queue, ground.parked[0].backlog.ready), ("q", number));
            let starts: Vec<i128> =
                ground.turns.turns.iter().filter_map(|record| Some(record.turn.as_ref()?.start)).collect();
            assert_eq!(starts, [i128::from(number) << 56]);
            assert_eq!(ground.peers, BTreeSet::from([other]));
            assert!(handle.audit_parked().await.unwrap().is_empty());
            let place = QueuePos { job: JobId(number), ..QueuePos::FIRST };
            let backlog = BacklogCounts { jobs: 1, ready: number, waiting: 0 };
            let parked = Parked { class: 5, place, ready: Time(7), backlog };
            let unpark = Write::Unpark { job: JobId(number), queue: "q".to_owned(), parked };
            assert!(commit(handle, vec![unpark]).await.is_empty());
            assert!(handle.parked_counts().await.unwrap().is_empty());
        }
    });
}

#[test]
fn leased_numbers_are_given_once() {
    on_all(async |store| {
        let (one, two) = two(&store).await;
        commit(&one, vec![new_job(JobId(7), 1)]).await;
        let (jobs, workers) = one.lease_numbers(100).await.unwrap();
        assert_eq!((jobs, workers), (8..108, 1..101));
        let (jobs, workers) = two.lease_numbers(100).await.unwrap();
        assert_eq!((jobs, workers), (108..208, 101..201));
    });
}
