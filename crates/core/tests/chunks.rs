//! Tasks that one process runs together, because its start takes longer than they do.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{self, Farm, GIB, cores, record, set_limit, spec, step, task};
use windlass_core::Resources;
use windlass_core::engine::{Event, Refusal, Reply, Settings, StoredState, WorkerCommand};
use windlass_core::job::{ChunkSize, Chunks, End, EqualRuns, JobSpec, StepSpec, TaskResult, TaskRow};
use windlass_core::licences::Limit;

const AUTO: ChunkSize = ChunkSize::Learned { first: 1, target_ms: None };

fn farm_of(workers: usize, of_cores: u32) -> Farm {
    Farm::with_workers(Settings::default(), vec![Resources::new(of_cores * 100, 64 * GIB); workers])
}

fn chunked(tasks: u32, size: ChunkSize) -> StepSpec {
    StepSpec {
        chunks: Some(Chunks { block: tasks, runs: Vec::new(), size }),
        body: run((1, 1), 0),
        ..step(tasks, cores(1))
    }
}

/// The chunks that were sent since the last look: the number of the first task, and those of the others.
fn sent(farm: &mut Farm) -> Vec<(u32, Vec<u32>)> {
    let sends = farm.take().sends;
    let chunks = sends.into_iter().filter_map(|send| match send.command {
        WorkerCommand::Start { task, riders, .. } => {
            Some((task.index, riders.iter().map(|(index, _)| *index).collect()))
        }
        _ => None,
    });
    chunks.collect()
}

/// Seconds until a job of that many tasks ends, and the seconds if all tasks of each slot were one process. Starts take
/// up to `noise_ms` longer.
fn seconds(tasks: u32, (start_ms, task_ms): (u64, u64), noise_ms: u64, slots: u32) -> (f64, f64) {
    let mut farm = LiveFarm::of(farm_of((slots as usize).div_ceil(16), slots.min(16)));
    farm.checks = false;
    farm.chunk_ms = (start_ms, task_ms);
    farm.chunk_noise_ms = noise_ms;
    let job = farm.accept(spec("q", [chunked(tasks, AUTO)]));
    let begun = farm.now;
    farm.settle();
    while farm.engine.job(job).is_some_and(|job| job.ended.is_none()) {
        farm.advance_ms(50);
    }
    let start_ms = start_ms as f64 + noise_ms as f64 / 2.0;
    let ideal_ms = start_ms + f64::from(tasks) * task_ms as f64 / f64::from(slots);
    (farm.now.since(begun) as f64 / 1e9, ideal_ms / 1e3)
}

#[test]
fn short_tasks_with_a_long_start_take_little_more_than_their_ideal() {
    for (tasks, times, noise_ms, slots) in [
        (100_000, (1_000, 20), 0, 64),
        (100_000, (750, 20), 500, 64),
        (100_000, (500, 20), 1_000, 64),
        (50_000, (750, 20), 500, 8),
        (20_000, (1_000, 20), 0, 2),
        (20_000, (750, 20), 500, 2),
        (2_000, (500, 5_000), 0, 64),
    ] {
        let (took, ideal) = seconds(tasks, times, noise_ms, slots);
        assert!(
            took <= 1.2 * ideal,
            "{tasks} tasks of {times:?} with {noise_ms} ms of noise on {slots} slots: {took:.2} s, ideal is {ideal:.1} s"
        );
    }
}

#[test]
fn a_chunk_holds_what_one_task_holds_and_each_task_ends_by_itself() {
    let mut farm = farm_of(1, 2);
    farm.tell(set_limit("maya", Limit { max: Some(2), ..Limit::default() }));
    let step = StepSpec { limits: ["maya".to_owned()].into(), ..chunked(10, ChunkSize::Fixed(4)) };
    let job = farm.submit(spec("q", [step]));
    assert_eq!(sent(&mut farm), [(0, vec![1, 2, 3]), (4, vec![5, 6, 7])]);
    assert_eq!(*farm.engine.workers().by_name("w1").expect("it is there").booked.sum(), cores(2));
    assert_eq!(farm.engine.licences().taken()["maya"], 2, "one for each process");
    for index in [0, 1, 2] {
        farm.end(task(job, index), 0);
    }
    let counts = farm.engine.job(job).expect("it runs").counts();
    assert_eq!((counts.succeeded, counts.active), (3, 7), "the head's end frees the room");
    assert_eq!(sent(&mut farm), [(8, vec![9])]);
}

#[test]
fn blocks_caps_and_earlier_failures_bound_a_chunk() {
    let mut farm = farm_of(1, 1);
    let blocks = StepSpec {
        chunks: Some(Chunks { block: 3, runs: Vec::new(), size: ChunkSize::Fixed(10) }),
        ..chunked(6, ChunkSize::Fixed(1))
    };
    let job = farm.submit(spec("q", [blocks]));
    assert_eq!(sent(&mut farm), [(0, vec![1, 2])]);
    (0..3).for_each(|index| farm.end(task(job, index), 0));
    assert_eq!(sent(&mut farm), [(3, vec![4, 5])]);
    let mut farm = farm_of(1, 1);
    let job = farm.submit(JobSpec { max_running: Some(2), ..spec("q", [chunked(6, ChunkSize::Fixed(10))]) });
    assert_eq!(sent(&mut farm), [(0, vec![1])]);
    (0..2).for_each(|index| farm.end(task(job, index), 0));
    let mut farm = farm_of(1, 1);
    let retried = StepSpec { retries: 1, ..chunked(3, ChunkSize::Fixed(3)) };
    let job = farm.submit(spec("q", [retried]));
    farm.take();
    (0..3).for_each(|index| farm.end(task(job, index), 1));
    assert_eq!(sent(&mut farm), [(0, vec![])], "what failed runs alone");
}

/// Runs of these lengths, a block of them, and chunks of this size.
fn in_runs(lengths: &[u32], size: ChunkSize) -> Chunks {
    let ends = lengths.iter().scan(0, |end, tasks| {
        *end += tasks;
        Some(EqualRuns { tasks: *tasks, end: *end })
    });
    Chunks { block: lengths.iter().sum(), runs: ends.collect(), size }
}

#[test]
fn runs_are_divided_evenly_and_no_chunk_crosses_a_gap() {
    // The lengths of the parts of 1,10-12,18-50 for each of two cameras.
    let chunks = in_runs(&[1, 3, 33], ChunkSize::Fixed(10));
    assert_eq!(chunks.count(74), Some(12));
    let mut farm = farm_of(1, 16);
    let step = StepSpec { chunks: Some(chunks), ..chunked(74, ChunkSize::Fixed(1)) };
    farm.submit(spec("q", [step]));
    let sent_of = |sent: &[(u32, Vec<u32>)]| -> Vec<(u32, u32)> {
        sent.iter().map(|(head, riders)| (*head, riders.last().copied().unwrap_or(*head))).collect()
    };
    let of_one = [(0, 0), (1, 3), (4, 12), (13, 20), (21, 28), (29, 36)];
    let of_both: Vec<(u32, u32)> =
        of_one.into_iter().chain(of_one.map(|(first, last)| (first + 37, last + 37))).collect();
    assert_eq!(sent_of(&sent(&mut farm)), of_both);
    // A limit cuts the first part short: its rest does not reach into the second.
    let step = StepSpec { chunks: Some(in_runs(&[33], ChunkSize::Fixed(10))), ..chunked(33, AUTO) };
    let mut farm = farm_of(1, 1);
    let job = farm.submit(JobSpec { max_running: Some(6), ..spec("q", [step]) });
    assert_eq!(sent(&mut farm), [(0, vec![1, 2, 3, 4, 5])]);
    [1, 2, 3, 4, 5, 0].into_iter().for_each(|index| farm.end(task(job, index), 0));
    assert_eq!(sent(&mut farm), [(6, vec![7, 8])]);
}

#[test]
fn learned_chunks_end_at_gaps_and_fixed_ones_are_as_few_as_can_be() {
    let learned = in_runs(&[4, 3], AUTO);
    assert_eq!((0..7).map(|place| learned.end(place)).collect::<Vec<_>>(), [4, 4, 4, 4, 7, 7, 7]);
    assert_eq!(learned.count(7), None);
    let of = |tasks: u32, size: u32| -> Vec<u32> {
        let chunks = in_runs(&[tasks], ChunkSize::Fixed(size));
        let ends: Vec<u32> =
            std::iter::successors(Some(chunks.end(0)), |end| (*end < tasks).then(|| chunks.end(*end)))
                .collect();
        assert_eq!(chunks.count(tasks), Some(ends.len() as u32));
        ends
    };
    assert_eq!(of(12, 5), [4, 8, 12]);
    assert_eq!(of(10, 3), [3, 5, 8, 10]);
    assert_eq!(of(5, 100), [5]);
    assert_eq!(of(3, 1), [1, 2, 3]);
    assert_eq!(of(2_500, 5_000), [834, 1_667, 2_500], "no process runs more than 1,000");
    // Every other frame: runs of one task, as few bytes as one run.
    let runs = vec![EqualRuns { tasks: 1, end: 500_000 }];
    let every_other = Chunks { block: 500_000, runs, size: ChunkSize::Fixed(10) };
    assert_eq!((every_other.end(499_999), every_other.count(500_000)), (500_000, Some(500_000)));
}

#[test]
fn runs_that_are_not_a_block_are_refused() {
    for (block, runs) in [
        (5, vec![EqualRuns { tasks: 4, end: 4 }]),
        (4, vec![EqualRuns { tasks: 3, end: 4 }]),
        (4, vec![EqualRuns { tasks: 0, end: 4 }]),
        (4, vec![EqualRuns { tasks: 4, end: 4 }, EqualRuns { tasks: 1, end: 4 }]),
        (10_001, (1..=10_001).map(|end| EqualRuns { tasks: 1, end }).collect()),
    ] {
        let chunks = Some(Chunks { block, runs, size: ChunkSize::Fixed(2) });
        let step = StepSpec { chunks, ..chunked(block, ChunkSize::Fixed(1)) };
        let reply = farm_of(1, 1).submission(spec("q", [step]));
        assert!(matches!(reply, Reply::Refused(Refusal::BadChunk { .. })), "{reply:?}");
    }
}

#[test]
fn a_worker_of_many_slots_divides_what_may_ride_among_them() {
    let mut farm = farm_of(1, 200);
    farm.submit(spec("q", [chunked(100_000, ChunkSize::Fixed(1_000))]));
    let sizes: Vec<usize> = sent(&mut farm).iter().map(|(_, riders)| riders.len() + 1).collect();
    assert_eq!(sizes, [250; 200], "50,000 in all");
}

#[test]
fn a_start_that_was_lost_runs_no_task_twice() {
    let mut farm = farm_of(1, 1);
    let job = farm.submit(spec("q", [chunked(4, ChunkSize::Fixed(3))]));
    assert_eq!(sent(&mut farm), [(0, vec![1, 2])]);
    // It holds nothing, and says hello on a new connection.
    farm.join(kit::hello("w1", cores(1)));
    farm.settle();
    let out = farm.take();
    let kills = out.sends.iter().filter(|send| matches!(send.command, WorkerCommand::Kill { .. }));
    assert_eq!(kills.count(), 0);
    let started = out.sends.iter().filter_map(|send| match &send.command {
        WorkerCommand::Start { task, riders, .. } => Some((task.index, riders.len())),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [(0, 0)], "the head alone: the others went back");
    farm.end(task(job, 0), 0);
    assert_eq!(sent(&mut farm), [(1, vec![2, 3])]);
}

#[test]
fn one_process_that_fails_says_one_thing_of_its_worker() {
    let mut farm = farm_of(1, 1);
    let job = farm.submit(spec("q", [chunked(50, ChunkSize::Fixed(50))]));
    (0..50).for_each(|index| farm.end(task(job, index), 1));
    assert!(farm.engine.workers().by_name("w1").expect("it is there").takes_work());
}

#[test]
fn a_worker_that_lost_a_start_gets_the_chunk_again_and_a_restart_keeps_it() {
    let mut farm = farm_of(1, 1);
    let spec_of = || spec("q", [chunked(4, ChunkSize::Fixed(4))]);
    farm.submit(spec_of());
    let workers: Vec<_> = farm.engine.workers().iter().map(|worker| worker.stored()).collect();
    let row = |index: u32| TaskRow {
        index,
        amounts: Some(if index == 0 { (100, 0) } else { (0, 0) }),
        ..kit::booked(workers[0].id)
    };
    let stored = StoredState {
        workers: workers.clone(),
        jobs: vec![record(1, spec_of(), (0..4).map(row).collect())],
        ..StoredState::default()
    };
    let mut again = Farm::restored(Settings::default(), stored, farm.now);
    assert_eq!(again.engine.attempts().filter(|(_, attempt)| attempt.rides).count(), 3);
    again.take();
    // The worker holds nothing: its keeper's disk is new, or the start was lost.
    again.join(kit::hello("w1", cores(1)));
    again.settle();
    let chunks = sent(&mut again);
    let started: usize = chunks.iter().map(|(_, riders)| 1 + riders.len()).sum();
    assert!(started >= 1 && again.engine.job(windlass_core::JobId(1)).is_some());
    loop {
        let next = again.engine.attempts().next().map(|(task, _)| task);
        let Some(head) = next else { break };
        let by = again.report(head);
        again.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    }
    assert!(again.engine.job(windlass_core::JobId(1)).is_none_or(|job| job.ended.is_some()));
}
