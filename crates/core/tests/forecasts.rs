//! When tasks are expected to start, beside when they do.

use crate::kit::{self, Farm, cores, spec, task};
use windlass_core::JobId;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Reply, Settings};
use windlass_core::explain::{expected_start, start_error};
use windlass_core::ids::AllocId;
use windlass_core::job::{End, TaskResult};
use windlass_core::queues::QueueRecord;
use windlass_core::time::{NS_PER_MS, NS_PER_S};

/// The place that a client is given in its queue.
fn place(farm: &mut Farm) -> AllocId {
    let place = PlaceRequest { queue: "client".to_owned(), amounts: cores(1), ..PlaceRequest::default() };
    let request = farm.ask(|request| Event::Alloc { request, place: Box::new(place) });
    farm.settle();
    match farm.replies[&request] {
        Reply::Placed { alloc, .. } => alloc,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn none_is_expected_where_the_length_of_what_runs_is_not_known() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let job = farm.submit(spec("q", [kit::step(2, cores(1))]));
    assert_eq!(expected_start(&farm.engine, task(job, 1)), None);
    farm.pass(10);
    farm.end(task(job, 0), 0);
    assert_eq!(expected_start(&farm.engine, task(job, 1)), None, "it does not wait");
}

/// Tasks of ten milliseconds are sent ahead. They start one after the other all the same.
#[test]
fn tasks_that_are_sent_ahead_take_their_time_when_those_before_them_have_ended() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let job = farm.submit(spec("q", [kit::step(60, cores(1))]));
    let start = |farm: &mut Farm, index| {
        let (by, at) = (farm.report(task(job, index)), farm.now);
        farm.tell(Event::Started { by, at });
    };
    for index in 0..5 {
        start(&mut farm, index);
        farm.now = farm.now.after(10 * NS_PER_MS);
        farm.end(task(job, index), 0);
    }
    start(&mut farm, 5);
    assert!(farm.engine.attempt(task(job, 6)).is_some_and(|attempt| attempt.queued), "it is sent ahead");
    for index in [20, 40] {
        let expected = expected_start(&farm.engine, task(job, index));
        assert_eq!(expected, Some(farm.now.after(u64::from(index - 5) * 10 * NS_PER_MS)));
    }
}

#[test]
fn places_of_outside_clients_end_as_those_of_their_queue_did_before() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let first = place(&mut farm);
    let job = farm.submit(spec("q", [kit::step(1, cores(1))]));
    assert_eq!(expected_start(&farm.engine, task(job, 0)), None, "no place of the queue has ended yet");
    farm.tell(Event::Cancel { request: kit::REQUEST, job });
    farm.pass(20);
    farm.tell(Event::Release { alloc: first });
    place(&mut farm);
    let job = farm.submit(spec("q", [kit::step(1, cores(1))]));
    let began = farm.now;
    farm.pass(5);
    assert_eq!(expected_start(&farm.engine, task(job, 0)), Some(began.after(20 * NS_PER_S)));
    farm.pass(25);
    // It is overdue, and so assumed to be half done.
    assert_eq!(expected_start(&farm.engine, task(job, 0)), Some(began.after(60 * NS_PER_S)));
}

#[test]
fn an_error_is_a_ratio_of_waits_either_way() {
    let asked = kit::START;
    let after = |ms: u64| asked.after(ms * NS_PER_MS);
    let cases = [
        (60_000, 60_000, 1.0_f64),
        (60_000, 120_000, 2.0),
        (120_000, 60_000, 2.0),
        (600_000, 60_000, 10.0),
        (0, 0, 1.0),
        (0, 3_000, 3.0),
        (2, 900, 1.0),
    ];
    for (expected_ms, real_ms, factor) in cases {
        let error = start_error(asked, after(expected_ms), after(real_ms));
        assert!((error - factor.ln()).abs() < 1e-9, "{expected_ms} ms, {real_ms} ms: {error}");
    }
}

/// A job of one task that took this many seconds.
fn ran(farm: &mut Farm, seconds: u64) {
    let job = farm.submit(spec("q", [kit::step(1, cores(1))]));
    let (by, at) = (farm.report(task(job, 0)), farm.now);
    farm.tell(Event::Started { by, at });
    farm.pass(seconds);
    let (started, finished) = (Some(at), Some(farm.now));
    let result = TaskResult { started, finished, ..TaskResult::bare(End::Exited(0)) };
    farm.tell(Event::Finished { by, result });
}

/// `sleep 4` and `sleep 30` are tasks of one profile.
#[test]
fn the_start_behind_a_task_of_a_profile_of_very_different_lengths_is_a_range() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    [4, 30, 4, 30].into_iter().for_each(|seconds| ran(&mut farm, seconds));
    let running = farm.submit(spec("q", [kit::step(1, cores(1))]));
    let (by, began) = (farm.report(task(running, 0)), farm.now);
    farm.tell(Event::Started { by, at: began });
    let next = farm.submit(spec("q", [kit::step(1, cores(1))]));
    let after = |seconds: u64| Some(began.after(seconds * NS_PER_S));
    let starts = |farm: &Farm| {
        let turn = farm.why(task(next, 0)).turn.unwrap();
        (turn.starts_between.map(|(first, _)| first), turn.starts_between.map(|(_, last)| last), turn.starts)
    };
    assert_eq!(starts(&farm), (after(4), after(30), after(17)));
    farm.pass(10);
    assert_eq!(starts(&farm), (None, None, after(30)), "it is none of those that took 4 s");
}

#[test]
fn several_tasks_of_very_different_lengths_are_not_expected_to_end_together() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1), cores(1)]);
    [4, 30, 4, 30].into_iter().for_each(|seconds| ran(&mut farm, seconds));
    let jobs = [(); 3].map(|()| farm.submit(spec("q", [kit::step(1, cores(1))])));
    let starts = farm.why(task(jobs[2], 0)).turn.unwrap().starts;
    assert_eq!(starts, Some(farm.now.after(4 * NS_PER_S)), "one of two is a short one");
}

#[test]
fn the_start_behind_tasks_of_much_the_same_lengths_is_one_time() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    [20, 30].into_iter().for_each(|seconds| ran(&mut farm, seconds));
    let job = farm.submit(spec("q", [kit::step(2, cores(1))]));
    let turn = farm.why(task(job, 1)).turn.unwrap();
    assert_eq!((turn.starts, turn.starts_between), (Some(farm.now.after(25 * NS_PER_S)), None));
}

/// Parked jobs come after the resident ones of their subqueue. They hide only the starts of what comes after the last of
/// these.
#[test]
fn parked_jobs_hide_only_what_comes_after_them() {
    let settings = Settings { cache_steps: 8, ..Settings::default() };
    let mut farm = Farm::with_workers(settings, [cores(1)]);
    // Earlier tasks show how long one takes.
    for _ in 0..5 {
        ran(&mut farm, 10);
    }
    let jobs: Vec<JobId> = (0..30).map(|_| farm.submit(spec("q", [kit::step(1, cores(1))]))).collect();
    assert!(farm.engine.subqueues().away().ready > 0, "some are parked");
    let expected = |job: JobId| expected_start(&farm.engine, task(job, 0));
    assert!(farm.is_placed(task(jobs[0], 0)));
    assert_eq!(expected(jobs[1]), Some(farm.now.after(10 * NS_PER_S)));
    assert_eq!(expected(jobs[2]), Some(farm.now.after(20 * NS_PER_S)));
    // One of another queue has its turn before, whatever is parked.
    let other = farm.accept(spec("other", [kit::step(1, cores(1))]));
    farm.settle();
    assert_eq!(expected_start(&farm.engine, task(other, 0)), Some(farm.now.after(10 * NS_PER_S)));
    // One that starts only after all others has no expected start: how many they are is not known.
    let last = QueueRecord { band: Some(9), ..QueueRecord::named("q") };
    farm.tell(kit::set_queue(last));
    let other = farm.submit(spec("last", [kit::step(1, cores(1))]));
    assert_eq!(expected_start(&farm.engine, task(other, 0)), None);
}
