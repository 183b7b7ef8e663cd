//! Whose turn it is: the bounds on shares and waits, judged by the order in which tasks are booked.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, cores, set_limit, set_queue, spec, step, task};
use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::engine::{Event, Settings};
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::{QueuedStep, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{
    Charge, ClockOf, ClockRecord, QueueRecord, QueueTurn, Queues, RoundFilter, SavedTurns, TurnClock,
    TurnRecord, TurnSettings, band_of,
};
use windlass_core::{JobId, Resources, Time};

/// Queues of these weights that always have work, and the queues that `n` bookings went to.
fn served(weights: &[u32], n: usize) -> Vec<usize> {
    let mut queues = Queues::new(turn(Charge::Task, None));
    let ids: Vec<_> = (0..weights.len())
        .map(|number| {
            let name = format!("q{number:03}");
            queues.set(&QueueRecord { weight: weights[number], ..QueueRecord::named(&name) });
            let id = queues.intern(&name);
            let step = StepKey { job: JobId(number as u64 + 1), step: 0 };
            queues.insert(id, ClassId(0), QueuedStep::new(0, Time(0), step));
            id
        })
        .collect();
    let next = |_| {
        let mut skip = RoundFilter::default();
        let (queue, ..) = queues.next(&mut skip, &|_| true).expect("all have work");
        queues.charge(queue, 1, &mut skip);
        queues.resume_exhausted(&mut skip);
        ids.iter().position(|id| *id == queue).expect("it is one of them")
    };
    (0..n).map(next).collect()
}

/// The largest distance of any queue from its share, in tasks, over all prefixes.
fn largest_error(weights: &[u32], n: usize) -> f64 {
    let total: u32 = weights.iter().sum();
    let mut had = vec![0.0; weights.len()];
    let mut largest: f64 = 0.0;
    for (done, queue) in (1..).zip(served(weights, n)) {
        had[queue] += 1.0;
        for (had, weight) in had.iter().zip(weights) {
            largest = largest.max((had - f64::from(done) * f64::from(*weight) / f64::from(total)).abs());
        }
    }
    largest
}

#[test]
fn shares_are_within_one_task_at_every_prefix() {
    let many_light: Vec<u32> = [100].into_iter().chain([1; 100]).collect();
    let heavies: Vec<u32> = [50; 20].into_iter().chain([10]).collect();
    for weights in [vec![50, 30, 20, 10, 10], heavies, many_light] {
        let error = largest_error(&weights, 3_000);
        assert!(error <= 1.0, "{weights:?}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shares_of_any_weights_are_within_one_task(weights in prop::collection::vec(1_u32..=100, 2..=40)) {
        let error = largest_error(&weights, 2_000);
        prop_assert!(error <= 1.0, "{}", error);
    }
}

/// A farm of one worker. Tests with backlogs of millions of tasks check it when they are done.
fn farm_of(slots: u32, turn: TurnSettings) -> LiveFarm {
    let settings = Settings { plan: PlanSettings { turn, ..PlanSettings::default() }, ..Settings::default() };
    let mut farm = LiveFarm::of(Farm::with_workers(settings, [Resources::new(slots * 100, 1_024 * GIB)]));
    farm.checks = false;
    farm
}

/// A step of tasks of one core.
fn lasting(tasks: u32, seconds: u64) -> StepSpec {
    StepSpec { body: run((seconds, seconds), 0), ..step(tasks, cores(1)) }
}

/// Submits a job with this number of tasks and run time, and runs no round, so that several jobs can arrive at once.
fn submit(farm: &mut LiveFarm, queue: &str, tasks: u32, seconds: u64) -> JobId {
    farm.accept(spec(queue, [lasting(tasks, seconds)]))
}

/// Of the starts from the `from`th on, how many were of the queue.
fn started(farm: &LiveFarm, from: usize, queue: &str) -> usize {
    farm.starts_of(from, queue).count()
}

fn turn(charge: Charge, express: Option<u32>) -> TurnSettings {
    TurnSettings { charge, express }
}

#[test]
fn a_restored_queue_stands_where_it_stood_though_its_first_step_leaves_while_jobs_are_taken_in() {
    let stood = QueueTurn {
        band: band_of("q"),
        start: 40,
        rest: 0,
        weight: 100,
        task: 1,
        since: 1,
        waits: true,
        passed: false,
        express: false,
        ahead: 0,
        rate: 0,
        at: Time(0),
    };
    let record = |user: Option<&str>, turn: QueueTurn| TurnRecord {
        queue: "q".to_owned(),
        user: user.map(str::to_owned),
        turn: Some(turn),
    };
    let turns = vec![
        record(None, stood.clone()),
        record(Some("ann"), QueueTurn { band: 0, ..stood.clone() }),
        record(Some("bob"), QueueTurn { band: 0, ..stood.clone() }),
    ];
    let clock = Some(TurnClock { virtual_time: 1_000, express_in: 0, charge: Charge::Task });
    let clock_of = |of| ClockRecord { of, clock };
    let clocks = vec![clock_of(ClockOf::Band(stood.band)), clock_of(ClockOf::Users("q".to_owned()))];
    let mut queues = Queues::new(turn(Charge::Task, None));
    assert!(queues.restore_turns(SavedTurns { turns, clocks }));
    let (ann, bob) = (queues.intern_for("q", "ann"), queues.intern_for("q", "bob"));
    let queued = |job| QueuedStep::new(0, Time(0), StepKey { job: JobId(job), step: 0 });
    // A step is throttled as soon as it is known what runs of it.
    queues.insert(ann, ClassId(0), queued(1));
    queues.remove(ann, ClassId(0), &queued(1));
    queues.insert(ann, ClassId(0), queued(2));
    queues.settle_restored();
    assert_eq!(queues.get(ann).share().start_tag(), 40);
    assert_eq!(queues.user_share(ann).map(|share| share.start_tag()), Some(40));
    // Of the other user there is no work.
    queues.insert(bob, ClassId(0), queued(3));
    assert!(queues.user_share(bob).is_some_and(|share| share.start_tag() >= 1_000));
}

#[test]
fn a_queue_whose_only_step_changes_places_keeps_its_turn() {
    let mut farm = farm_of(1, turn(Charge::Task, None));
    let running = farm.submit(spec("running", [step(1, cores(1))]));
    let first = farm.submit(spec("first", [step(1, cores(1))]));
    farm.submit(spec("second", [step(1, cores(1))]));
    farm.ask(|request| Event::Prioritize { request, job: first, priority: 1 });
    farm.end(task(running, 0), 0);
    assert!(farm.is_placed(task(first, 0)));
}

/// After how many bookings the only task of a light queue starts that comes when twenty heavy queues have
/// been served for a while.
fn light_wait(backlog: u32, express: Option<u32>) -> usize {
    let mut farm = farm_of(1, turn(Charge::Task, express));
    for number in 0..20 {
        let name = format!("heavy{number}");
        farm.hear(set_queue(QueueRecord { weight: 50, ..QueueRecord::named(&name) }));
        submit(&mut farm, &name, backlog, 1);
    }
    farm.hear(set_queue(QueueRecord { weight: 10, ..QueueRecord::named("light") }));
    farm.advance(400);
    let before = farm.starts.len();
    submit(&mut farm, "light", 1, 1);
    farm.advance(200);
    farm.starts[before..].iter().position(|start| start.queue == "light").expect("it starts") + 1
}

#[test]
fn a_light_queue_waits_as_long_whatever_the_backlog_of_others() {
    let waits = [100, 1_000_000].map(|backlog| light_wait(backlog, None));
    assert_eq!(waits[0], waits[1]);
    assert!(waits[0] <= 1010_usize.div_ceil(10) + 1, "{waits:?}");
    assert_eq!([100, 1_000_000].map(|backlog| light_wait(backlog, Some(8))), [1, 1]);
}

#[test]
fn the_only_task_of_a_user_starts_with_the_next_free_slot() {
    for charge in [Charge::Task, Charge::Time] {
        let mut farm = farm_of(4, turn(charge, Some(8)));
        submit(&mut farm, "a", 10_000, 7);
        farm.advance(60);
        let before = farm.starts.len();
        submit(&mut farm, "b", 1, 7);
        farm.advance(10);
        assert_eq!(farm.starts[before].queue, "b", "{charge:?}");
    }
}

/// Two queues go on while a third cannot run for want of a licence; how many of the next bookings are whose.
fn after_blocked(charge: Charge) -> (usize, usize, Vec<usize>) {
    let mut farm = farm_of(2, turn(charge, None));
    farm.hear(set_limit("sim", Limit::of(0)));
    for queue in ["a", "b"] {
        submit(&mut farm, queue, 10_000, 1);
    }
    let limits = BTreeSet::from(["sim".to_owned()]);
    farm.accept(spec("c", [StepSpec { limits, ..lasting(10_000, 1) }]));
    farm.advance(2_000);
    let (a, b) = (started(&farm, 0, "a"), started(&farm, 0, "b"));
    let before = farm.starts.len();
    farm.hear(set_limit("sim", Limit::of(1_000)));
    farm.advance(300);
    farm.check();
    (a, b, ["a", "b", "c"].map(|queue| started(&farm, before, queue)).to_vec())
}

#[test]
fn a_queue_that_was_blocked_takes_its_share_and_one_task() {
    for charge in [Charge::Task, Charge::Time] {
        let (a, b, after) = after_blocked(charge);
        assert!(a.abs_diff(b) <= 2 && a + b >= 4_000, "the others were not slowed: {a} {b}");
        let total: usize = after.iter().sum();
        assert!(total >= 600);
        assert!(after[2] <= total / 3 + 2 && after[2] + 2 >= total / 3, "{charge:?}: {after:?}");
    }
}

#[test]
fn machine_time_is_shared_whatever_the_length_of_tasks() {
    let mut farm = farm_of(10, turn(Charge::Time, Some(8)));
    submit(&mut farm, "short", 100_000, 1);
    submit(&mut farm, "long", 100_000, 40);
    farm.advance(4_000);
    farm.check();
    let (short, long) = (started(&farm, 0, "short"), 40 * started(&farm, 0, "long"));
    // A slot's worth of the longest task, on every slot.
    assert!(short.abs_diff(long) <= 40 * 10, "{short} s against {long} s");
    let mut farm = farm_of(10, turn(Charge::Task, Some(8)));
    submit(&mut farm, "short", 100_000, 1);
    submit(&mut farm, "long", 100_000, 40);
    farm.advance(4_000);
    assert!(started(&farm, 0, "short").abs_diff(started(&farm, 0, "long")) <= 2);
}

#[test]
fn what_runs_long_is_charged_while_it_runs() {
    let mut farm = farm_of(10, turn(Charge::Time, None));
    // Nothing is known of either, and `long` holds nine of ten slots for minutes.
    submit(&mut farm, "long", 9, 250);
    farm.advance(1);
    submit(&mut farm, "short", 1, 1);
    farm.advance(200);
    submit(&mut farm, "long", 1_000, 250);
    submit(&mut farm, "short", 1_000, 1);
    let before = farm.starts.len();
    farm.advance(40);
    assert!(started(&farm, before, "short") >= 39, "{:?}", &farm.starts[before..]);
}

#[test]
fn many_that_come_at_once_do_not_take_all_slots_out_of_turn() {
    let mut farm = farm_of(1, turn(Charge::Task, Some(8)));
    farm.hear(set_queue(QueueRecord { weight: 10_000, ..QueueRecord::named("heavy") }));
    submit(&mut farm, "heavy", 100_000, 1);
    farm.advance(100);
    let before = farm.starts.len();
    for number in 0..100 {
        let name = format!("light{number}");
        farm.hear(set_queue(QueueRecord { weight: 1, ..QueueRecord::named(&name) }));
        submit(&mut farm, &name, 1, 1);
    }
    farm.advance(80);
    let heavy = started(&farm, before, "heavy");
    assert!((69..=71).contains(&heavy), "seven of eight: {heavy}");
}

#[test]
fn sleeping_and_waking_gains_nothing() {
    let mut farm = farm_of(1, turn(Charge::Task, Some(2)));
    submit(&mut farm, "steady", 100_000, 1);
    farm.advance(10);
    let before = farm.starts.len();
    for _ in 0..300 {
        submit(&mut farm, "now-and-then", 1, 1);
        farm.advance(1);
    }
    farm.advance(400);
    let after = &farm.starts[before..before + 500];
    let steady = after.iter().filter(|start| start.queue == "steady").count();
    assert!(steady >= 249, "{steady} of 500");
}

#[test]
fn a_lower_band_gets_what_nothing_higher_fits() {
    let mut farm = farm_of(4, TurnSettings::default());
    submit(&mut farm, "idle", 100, 50);
    farm.accept(spec("q", [StepSpec { request: cores(3), ..lasting(2, 50) }]));
    submit(&mut farm, "vip", 1, 50);
    farm.settle();
    let first: Vec<&str> = farm.starts.iter().map(|start| start.queue.as_str()).collect();
    assert_eq!(first, ["vip", "q"], "idle waits while higher work fits");
    farm.advance(51);
    farm.check();
    assert_eq!((started(&farm, 2, "q"), started(&farm, 2, "idle")), (1, 1), "the slot that q has no use for");
}

#[test]
fn a_paused_queue_starts_nothing_until_it_goes_on() {
    let mut farm = farm_of(1, TurnSettings::default());
    let paused = Some("moving the disks".to_owned());
    farm.hear(set_queue(QueueRecord { paused, ..QueueRecord::named("q") }));
    let job = submit(&mut farm, "q", 2, 1);
    farm.advance(100);
    assert!(farm.starts.is_empty());
    let why = farm.why(task(job, 0));
    assert!(format!("{why:?}").contains("moving the disks"), "{why:?}");
    farm.hear(set_queue(QueueRecord::named("q")));
    farm.advance(3);
    assert_eq!(farm.starts.len(), 2);
}

#[test]
fn a_queue_goes_beyond_its_quota_only_where_nobody_else_can_use_it() {
    let mut farm = farm_of(10, turn(Charge::Task, None));
    let (quota_cpu, burst_cpu) = (Some(300), Some(800));
    farm.hear(set_queue(QueueRecord { quota_cpu, burst_cpu, ..QueueRecord::named("q") }));
    submit(&mut farm, "q", 1_000, 10);
    farm.settle();
    assert_eq!(farm.starts.len(), 8, "alone it has its burst");
    submit(&mut farm, "other", 1_000, 10);
    farm.advance(10);
    let held = farm.engine.queues().by_name().find(|queue| queue.name() == "q").map(|q| q.booked_cpu);
    assert_eq!(held, Some(300), "with others it has its quota");
}

#[test]
fn a_queue_that_moves_to_another_band_has_its_turn_there() {
    let mut farm = farm_of(1, TurnSettings::default());
    submit(&mut farm, "a", 100, 1);
    submit(&mut farm, "b", 100, 1);
    farm.advance(10);
    let before = farm.starts.len();
    farm.hear(set_queue(QueueRecord { band: Some(8), ..QueueRecord::named("b") }));
    farm.advance(20);
    assert_eq!(started(&farm, before, "a"), 0);
}

#[test]
fn a_queue_that_was_forgotten_leaves_its_turn_to_nobody() {
    let mut queues = Queues::new(turn(Charge::Task, None));
    let work = |queues: &mut Queues, id, job| {
        let queued_step = QueuedStep::new(0, Time(0), StepKey { job: JobId(job), step: 0 });
        queues.insert(id, ClassId(0), queued_step);
        queued_step
    };
    // A queue has had something while another one waited, and is idle.
    let farm = queues.intern_for("farm", "ann");
    work(&mut queues, farm, 2);
    let old = queues.intern("old");
    let first = work(&mut queues, old, 1);
    let mut skip = RoundFilter::default();
    queues.charge(old, 1, &mut skip);
    queues.remove(old, ClassId(0), &first);
    let saved = queues.take_changed_turns();
    assert!(saved.turns.iter().any(|record| record.queue == "old"), "{saved:?}");
    // The other one takes the clock beyond it, and it is forgotten after a day.
    (0..3).for_each(|_| queues.charge(farm, 1, &mut skip));
    queues.take_changed_turns();
    queues.tell_time(Time(2 * windlass_core::bounds::QUEUE_IDLE_NS));
    queues.prune(|id| id == farm);
    queues.prune(|id| id == farm);
    // A second user's part gets its place.
    let part = queues.intern_for("farm", "bob");
    assert_eq!(part, old, "the place is taken again");
    work(&mut queues, part, 3);
    let saved = queues.take_changed_turns();
    let of_whole = saved.turns.iter().filter(|record| record.queue == "farm" && record.user.is_none());
    assert_eq!(of_whole.count(), 0, "the queue itself did not change: {saved:?}");
    assert!(saved.turns.iter().any(|record| record.user.as_deref() == Some("bob")), "{saved:?}");
}
