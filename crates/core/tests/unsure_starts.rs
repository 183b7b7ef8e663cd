//! Starts of which it is not known whether they arrived: what a worker says that it has, said before a start, proves
//! nothing about it. No task of a chunk is given to two processes, and nothing is said to have ended that may run.

use crate::kit::{self, Farm, GIB, REQUEST, booked, cores, record, spec, step, task};
use windlass_core::engine::{
    Event, Held, HeldPhase, Hello, Inventory, NextBatch, Outbox, Settings, WorkerCommand, Write,
};
use windlass_core::job::{ChunkSize, Chunks, End, JobSpec, StepSpec, TaskRow};
use windlass_core::{JobId, Resources, TaskId, WorkerId};

const ONE: WorkerId = WorkerId(1);

/// One worker without a lease.
fn farm_of(of_cores: u32) -> Farm {
    let settings = Settings { lease_ns: None, ..Settings::default() };
    Farm::with_workers(settings, [Resources::new(of_cores * 100, 64 * GIB)])
}

/// A job of which one process runs all three tasks.
fn chunk() -> JobSpec {
    let chunks = Some(Chunks { block: 3, runs: Vec::new(), size: ChunkSize::Fixed(3) });
    spec("q", [StepSpec { chunks, ..step(3, cores(1)) }])
}

/// Another hello on the connection that there is, of a worker that has these attempts and has seen messages up to `seq`.
fn hello(of_cores: u32, seq: u64, held: Vec<Held>) -> Event {
    let inventory = Inventory { seq, held };
    let capacity = Resources::new(of_cores * 100, 64 * GIB);
    Event::Hello(Box::new(Hello { new_link: false, inventory, ..kit::hello("w1", capacity) }))
}

fn beat(seq: u64, held: Vec<Held>) -> Event {
    Event::Beat { worker: ONE, sent: 0, inventory: Inventory { seq, held } }
}

fn held(task: TaskId, phase: HeldPhase) -> Held {
    Held { task, attempt: 1, phase }
}

/// The starts that went out: the number of each, its task, and those that ride with it.
fn starts(out: &Outbox) -> Vec<(u64, u32, Vec<u32>)> {
    let starts = out.sends.iter().filter_map(|send| match &send.command {
        WorkerCommand::Start { task, riders, .. } => {
            Some((send.seq, task.index, riders.iter().map(|(index, _)| *index).collect()))
        }
        _ => None,
    });
    starts.collect()
}

fn kills(out: &Outbox) -> Vec<TaskId> {
    let kills = out.sends.iter().filter_map(|send| match send.command {
        WorkerCommand::Kill { task, .. } => Some(task),
        _ => None,
    });
    kills.collect()
}

fn resyncs(out: &Outbox) -> usize {
    out.sends.iter().filter(|send| send.command == WorkerCommand::Resync).count()
}

/// How attempts ended, in the order of the writes.
fn ends(out: &Outbox) -> Vec<&End> {
    let ends = out.writes.iter().filter_map(|write| match write {
        Write::End { result, .. } | Write::Requeued { result, .. } => Some(&result.end),
        _ => None,
    });
    ends.collect()
}

fn riding(farm: &Farm) -> usize {
    farm.engine.attempts().filter(|(_, attempt)| attempt.rides).count()
}

/// A chunk was sent; returns the number of its start.
fn sent_chunk(farm: &mut Farm) -> (JobId, u64) {
    let job = farm.submit(chunk());
    let sent = starts(&farm.take());
    assert_eq!((sent.len(), sent[0].1, &*sent[0].2), (1, 0, &[1, 2][..]));
    (job, sent[0].0)
}

#[test]
fn a_hello_from_before_a_chunk_gives_none_of_its_tasks_back() {
    let mut farm = farm_of(2);
    let (_, first) = sent_chunk(&mut farm);
    // It was asked twice for a hello, and said the second one before the start came.
    farm.tell(hello(2, first - 1, Vec::new()));
    let out = farm.take();
    let again = starts(&out);
    assert_eq!((again.len(), again[0].1, &*again[0].2), (1, 0, &[1, 2][..]), "the same start, and no other");
    assert!(ends(&out).is_empty() && kills(&out).is_empty() && riding(&farm) == 2);
    // The first start was dropped, and something else arrived since. The second start is still to come, with all of its
    // tasks.
    farm.tell(beat(first, Vec::new()));
    assert!(ends(&farm.take()).is_empty() && riding(&farm) == 2);
    // Once a later message was seen, neither will arrive.
    farm.tell(beat(again[0].0, Vec::new()));
    let out = farm.take();
    assert_eq!(ends(&out), [&End::Recalled, &End::Recalled]);
    assert_eq!(starts(&out)[0].1, 0);
}

#[test]
fn a_start_that_arrived_is_not_sent_again() {
    let mut farm = farm_of(1);
    let (job, first) = sent_chunk(&mut farm);
    let mut all = vec![held(task(job, 0), HeldPhase::Running(farm.now))];
    all.extend([1, 2].map(|index| held(task(job, index), HeldPhase::Queued)));
    farm.tell(hello(1, first, all));
    let out = farm.take();
    assert!(starts(&out).is_empty() && kills(&out).is_empty() && riding(&farm) == 2);
}

#[test]
fn a_hello_from_before_a_start_does_not_end_what_is_to_end() {
    let mut farm = farm_of(1);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    let sent = starts(&farm.take());
    farm.tell(Event::Cancel { request: REQUEST, job });
    farm.take();
    farm.tell(hello(1, sent[0].0 - 1, Vec::new()));
    let out = farm.take();
    assert!(ends(&out).is_empty() && farm.is_placed(task(job, 0)), "it may run");
    assert_eq!(kills(&out), [task(job, 0)]);
    assert_eq!(resyncs(&out), 1, "one that does not beat is asked whether it has it");
    let kill = out.sends.iter().find(|send| matches!(send.command, WorkerCommand::Kill { .. }));
    farm.tell(hello(1, kill.expect("it was sent").seq, Vec::new()));
    assert_eq!(ends(&farm.take()), [&End::Canceled]);
}

#[test]
fn a_commit_that_takes_longer_than_beats_are_apart_loses_nothing() {
    let mut farm = farm_of(1);
    farm.tell(beat(0, Vec::new()));
    farm.accept(chunk());
    farm.take();
    farm.engine.round(farm.now, 1_000, &mut farm.pipeline.forming);
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("the chunk is booked")
    };
    drop(batch);
    for _ in 0..5 {
        farm.handle(beat(0, Vec::new()));
    }
    let forming = &farm.pipeline.forming;
    assert!(ends(forming).is_empty() && starts(forming).is_empty(), "it is not even sent: {forming:?}");
    let committed = farm.pipeline.committed(&mut farm.engine, &[]);
    farm.engine.committed(&committed.batch);
    farm.go_out(committed.batch);
    assert_eq!(starts(&farm.take()).len(), 1);
    // It waits on its way, for its body or for a user database. Copies of it are few, and carry the same tasks.
    let mut copies = Vec::new();
    for _ in 0..64 {
        farm.tell(beat(0, Vec::new()));
        let out = farm.take();
        assert!(ends(&out).is_empty());
        copies.extend(starts(&out));
    }
    assert!((1..=6).contains(&copies.len()), "{copies:?}");
    assert!(copies.iter().all(|(_, head, riders)| *head == 0 && riders[..] == [1, 2]));
    assert_eq!(riding(&farm), 2);
}

#[test]
fn a_failed_commit_leaves_a_chunk_that_is_under_way_as_it_is() {
    let mut farm = farm_of(1);
    let (job, first) = sent_chunk(&mut farm);
    farm.handle(Event::Prioritize { request: REQUEST, job, priority: 1 });
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("the priority is written")
    };
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    let row = |index: u32| TaskRow {
        index,
        amounts: Some(if index == 0 { (100, 0) } else { (0, 0) }),
        ..booked(ONE)
    };
    let records = vec![record(job.0, chunk(), (0..3).map(row).collect())];
    farm.pipeline.reload(&mut farm.engine, farm.now, records, Vec::new());
    // A hello that was said before the start came is the first one that the engine hears after that.
    farm.tell(hello(1, first - 1, Vec::new()));
    let out = farm.take();
    let again = starts(&out);
    assert_eq!((again.len(), again[0].1, &*again[0].2), (1, 0, &[1, 2][..]));
    assert!(ends(&out).is_empty() && riding(&farm) == 2);
    assert_eq!(resyncs(&out), 1, "reports that came behind that hello were dropped, and are to be repeated");
}

#[test]
fn a_late_hello_of_an_earlier_connection_gives_nothing_back() {
    let mut farm = farm_of(1);
    let new = |sent| Hello { sent, ..kit::hello("w1", Resources::new(100, 64 * GIB)) };
    farm.join(new(50));
    sent_chunk(&mut farm);
    farm.join(new(40));
    let out = farm.take();
    assert_eq!(starts(&out).iter().map(|(.., riders)| riders.len()).collect::<Vec<_>>(), [2]);
    assert!(ends(&out).is_empty());
    // One that was said later knows: nothing of an earlier connection is under way.
    farm.join(new(60));
    assert_eq!(ends(&farm.take()), [&End::Recalled, &End::Recalled]);
}

#[test]
fn tasks_that_start_together_on_one_worker_have_a_number_each() {
    let mut farm = farm_of(2);
    let client = StepSpec { name: "client".to_owned(), with: Some(0), ..step(1, cores(1)) };
    let job = farm.submit(spec("q", [step(1, cores(1)), client]));
    let sent = starts(&farm.take());
    assert_eq!(sent.len(), 2);
    farm.tell(Event::Cancel { request: REQUEST, job });
    farm.take();
    // Between the two.
    farm.tell(beat(sent[0].0, vec![held(task(job, sent[0].1), HeldPhase::Running(farm.now))]));
    assert!(ends(&farm.take()).is_empty() && farm.is_placed(task(job, sent[1].1)), "it may run");
}

#[test]
fn a_result_that_was_lost_is_not_that_of_a_task_that_never_began() {
    let mut farm = farm_of(1);
    let (job, _) = sent_chunk(&mut farm);
    farm.end(task(job, 0), 0);
    farm.take();
    farm.join(kit::hello("w1", Resources::new(100, 64 * GIB)));
    assert_eq!(ends(&farm.take()), [&End::Lost, &End::Lost], "their process ended with the first task");
}

#[test]
fn an_attempt_in_a_phase_of_a_later_release_is_there() {
    let mut farm = farm_of(1);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    let sent = starts(&farm.take());
    farm.tell(beat(sent[0].0, vec![held(task(job, 0), HeldPhase::Unknown)]));
    let out = farm.take();
    assert!(starts(&out).is_empty() && kills(&out).is_empty() && farm.is_placed(task(job, 0)));
}
