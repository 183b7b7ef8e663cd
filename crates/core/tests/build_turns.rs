//! Whose turn it is at cpus that builds use: shares between queues over time, what a build keeps, and what is said of it.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, cores, set_queue, spec, step, task};
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Processes, Reply, Settings};
use windlass_core::explain::{Change, Reason};
use windlass_core::job::{Hints, JobSpec, Jobserver, StepSpec};
use windlass_core::plan::PlanSettings;
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::{Charge, QueueRecord, TurnSettings};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, Resources, TaskId, WorkerId};

const ONE: WorkerId = WorkerId(1);

/// Whatever a test says of its worker, that is not silent.
fn settings(charge: Charge) -> Settings {
    let turn = TurnSettings { charge, ..TurnSettings::default() };
    let plan = PlanSettings { turn, suspect_ns: 1_000_000 * NS_PER_S, ..PlanSettings::default() };
    Settings { plan, lease_ns: None, ..Settings::default() }
}

fn farm(cpus: u32) -> Farm {
    Farm::with_workers(settings(Charge::Time), [Resources::new(cpus * 100, 64 * GIB)])
}

/// A build that runs for as long as any test.
fn build() -> StepSpec {
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..Hints::default() };
    StepSpec { hints, body: run((10_000_000, 10_000_000), 0), ..step(1, Resources::new(10, 0)) }
}

/// Tasks of this number of cpus that run for this number of seconds.
fn tasks(count: u32, cpus: u32, seconds: u64) -> StepSpec {
    StepSpec { body: run((seconds, seconds), 0), ..step(count, cores(cpus)) }
}

fn make(queue: &str, user: &str) -> JobSpec {
    JobSpec { name: "make".to_owned(), user: user.to_owned(), ..spec(queue, [build()]) }
}

/// The keeper says that the only task of a job may run `share` processes and runs `used`.
fn says(job: JobId, share: u32, used: u32) -> Event {
    let said = Processes { share, used, is_held_back: false };
    Event::Processes { worker: ONE, task: task(job, 0), attempt: 1, said }
}

fn weighs(queue: &str, weight: u32) -> Event {
    set_queue(QueueRecord { weight, ..QueueRecord::named(queue) })
}

fn placed(farm: &Farm, job: JobId, count: u32) -> usize {
    (0..count).filter(|index| farm.is_placed(task(job, *index))).count()
}

/// A worker of which a build of the queue `red` uses all cpus, with this weight.
fn with_build(cpus: u32, weight: u32) -> (LiveFarm, JobId) {
    let mut farm = LiveFarm::of(farm(cpus));
    farm.tell(weighs("red", weight));
    let job = farm.submit(make("red", "ann"));
    farm.settle();
    farm.tell(says(job, cpus, cpus));
    (farm, job)
}

/// Cpus that the tasks of `blue` had on average for an hour and a half, beside a build that wants all: cpus of the worker,
/// weights of the build's queue and of theirs, cpus and seconds of a task.
fn cpus_of_tasks(cpus: u32, weights: (u32, u32), task_cpus: u32, seconds: u64) -> f64 {
    let (mut farm, _) = with_build(cpus, weights.0);
    farm.checks = false;
    farm.tell(weighs("blue", weights.1));
    farm.submit(spec("blue", [tasks(8_000, task_cpus, seconds)]));
    // What runs at the end has not run to its end, and neither has what ran at the beginning.
    farm.advance(600);
    let from = farm.starts.len();
    farm.advance(4_800);
    farm.check();
    let started = farm.starts_of(from, "blue").count() as f64;
    started * f64::from(task_cpus) * seconds as f64 / 4_800.0
}

#[track_caller]
fn assert_near(cpus: f64, expected: f64) {
    assert!((cpus / expected - 1.0).abs() <= 0.1, "{cpus} cpus, and not {expected}");
}

#[test]
fn cpu_time_follows_the_weights_beside_a_stream_of_tasks() {
    assert_near(cpus_of_tasks(8, (300, 100), 1, 10), 2.0);
    assert_near(cpus_of_tasks(8, (100, 100), 1, 3), 4.0);
    assert_near(cpus_of_tasks(4, (100, 300), 1, 7), 3.0);
}

/// Half a cpu is one task for half of the time.
#[test]
fn cpu_time_follows_the_weights_where_cpus_cannot_be_divided() {
    assert_near(cpus_of_tasks(2, (300, 100), 1, 10), 0.5);
    assert_near(cpus_of_tasks(2, (300, 100), 1, 1), 0.5);
    assert_near(cpus_of_tasks(8, (100, 100), 3, 20), 4.0);
}

#[test]
fn users_of_one_queue_share_with_a_build_by_their_weights() {
    let mut farm = LiveFarm::of(farm(8));
    let user_weights = [("ann".to_owned(), 300)].into();
    farm.tell(set_queue(QueueRecord { user_weights, ..QueueRecord::named("film") }));
    let job = farm.submit(make("film", "ann"));
    farm.settle();
    farm.tell(says(job, 8, 8));
    farm.submit(JobSpec { user: "bob".to_owned(), ..spec("film", [tasks(8_000, 1, 10)]) });
    farm.checks = false;
    farm.advance(600);
    let from = farm.starts.len();
    farm.advance(4_800);
    farm.check();
    assert_near(farm.starts[from..].len() as f64 * 10.0 / 4_800.0, 2.0);
}

/// A client asks for a turn of one cpu, holds it for about five seconds, and asks again. Returns for how much of the time it
/// had one.
fn part_of_turns(weight_of_build: u32) -> f64 {
    let (mut farm, _) = with_build(2, weight_of_build);
    farm.checks = false;
    let place = PlaceRequest {
        queue: "blue".to_owned(),
        amounts: cores(1),
        wait_max_ms: 3_600_000,
        ..PlaceRequest::default()
    };
    let (mut held_ns, mut waits, mut held) = (0, None, None);
    for second in 0..3_600 {
        if let Some((alloc, end)) = held
            && end <= second
        {
            let since = farm.engine.places().get(alloc).expect("it is held").since;
            held_ns += farm.now.since(since);
            farm.tell(Event::Release { alloc });
            held = None;
        }
        if waits.is_none() && held.is_none() {
            let place = Box::new(place.clone());
            waits = Some(farm.ask(|request| Event::Alloc { request, place }));
        }
        farm.advance(1);
        if let Some(Reply::Placed { alloc, .. }) = waits.and_then(|request| farm.replies.get(&request)) {
            (held, waits) = (Some((*alloc, second + 5)), None);
        }
    }
    farm.check();
    held_ns as f64 / 1e9 / 3_600.0
}

#[test]
fn turns_of_commands_share_with_a_build_like_tasks() {
    assert_near(part_of_turns(300), 0.5);
}

/// Three queues: the one of which the build does not want all that it is entitled to leaves it to both others.
#[test]
fn what_one_build_leaves_is_divided_between_another_one_and_tasks() {
    let (mut farm, wants) = with_build(8, 100);
    let idle = farm.submit(make("green", "cyn"));
    farm.settle();
    farm.tell(says(idle, 4, 1));
    farm.tell(says(wants, 4, 4));
    farm.submit(spec("blue", [tasks(8_000, 1, 10)]));
    farm.checks = false;
    farm.advance(600);
    let from = farm.starts.len();
    farm.advance(4_800);
    farm.check();
    assert_near(farm.starts_of(from, "blue").count() as f64 * 10.0 / 4_800.0, 3.5);
}

#[test]
fn what_a_build_does_not_use_is_free_for_all_at_once() {
    let mut farm = farm(8);
    let job = farm.submit(make("red", "ann"));
    farm.tell(says(job, 8, 2));
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    assert_eq!(placed(&farm, other, 20), 6);
    // It could use more, and memory keeps it from that.
    let said = Processes { share: 1, used: 1, is_held_back: true };
    farm.tell(Event::Processes { worker: ONE, task: task(job, 0), attempt: 1, said });
    assert_eq!(placed(&farm, other, 20), 7);
}

#[test]
fn a_build_of_which_nothing_is_known_keeps_nothing() {
    let mut farm = farm(8);
    farm.submit(make("red", "ann"));
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    assert_eq!(placed(&farm, other, 20), 7);
}

#[test]
fn the_first_task_of_a_queue_that_was_idle_waits_for_no_turn() {
    let (mut farm, _) = with_build(2, 10_000);
    farm.advance(1_000);
    let other = farm.submit(spec("blue", [step(2, cores(1))]));
    assert_eq!(placed(&farm, other, 2), 1);
}

#[test]
fn tasks_of_its_own_user_come_before_a_build() {
    let (mut farm, _) = with_build(8, 100);
    let own = JobSpec { user: "ann".to_owned(), ..spec("red", [step(20, cores(1))]) };
    let own = farm.submit(own);
    assert_eq!(placed(&farm, own, 20), 7);
}

#[test]
fn bands_are_strict_at_the_cpus_of_a_build() {
    let (mut farm, job) = with_build(8, 100);
    let idle = farm.submit(spec("idle", [tasks(3, 1, 10)]));
    farm.advance(1_000);
    assert_eq!(placed(&farm, idle, 3), 0, "a lower band gets nothing that the build can use");
    let vip = farm.submit(spec("vip", [step(20, cores(1))]));
    assert_eq!(placed(&farm, vip, 20), 7, "a higher one waits for no turn");
    farm.tell(says(job, 1, 1));
    assert_eq!(placed(&farm, idle, 3), 0);
}

#[test]
fn a_queue_that_is_paused_or_beyond_its_quota_keeps_no_cpus() {
    let (mut farm, _) = with_build(8, 10_000);
    farm.tell(set_queue(QueueRecord { quota_cpu: Some(200), weight: 10_000, ..QueueRecord::named("red") }));
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    assert_eq!(placed(&farm, other, 20), 6, "its quota is two cpus");
    let paused = Some(String::new());
    farm.tell(set_queue(QueueRecord { paused, weight: 10_000, ..QueueRecord::named("red") }));
    assert_eq!(placed(&farm, other, 20), 7);
}

#[test]
fn where_tasks_count_no_task_waits_for_a_build() {
    let mut farm = Farm::with_workers(settings(Charge::Task), [Resources::new(800, 64 * GIB)]);
    let job = farm.submit(make("red", "ann"));
    farm.tell(says(job, 8, 8));
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    assert_eq!(placed(&farm, other, 20), 7);
}

#[test]
fn the_end_of_a_build_starts_what_waited_for_its_turn() {
    let (mut farm, job) = with_build(8, 10_000);
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    assert_eq!(placed(&farm, other, 20), 1);
    farm.end(task(job, 0), 0);
    assert_eq!(placed(&farm, other, 20), 8);
}

/// The narrow tasks of a queue come after a wide one that waits for its turn, and do not take each turn from it.
#[test]
fn a_wide_task_has_its_turn_before_narrow_ones_behind_it() {
    let (mut farm, _) = with_build(8, 100);
    let first = farm.submit(spec("blue", [tasks(1, 1, 5)]));
    let wide = farm.submit(spec("blue", [tasks(4, 6, 20)]));
    let narrow = farm.submit(spec("blue", [tasks(8_000, 1, 5)]));
    assert_eq!((placed(&farm, first, 1), placed(&farm, wide, 4), placed(&farm, narrow, 50)), (1, 0, 0));
    farm.advance(600);
    let started =
        |farm: &LiveFarm, job: JobId| farm.starts.iter().filter(|start| start.task.job == job).count();
    assert_eq!(started(&farm, wide), 4, "each had its turn");
}

/// There was no room for its class before there was some that a build used.
#[test]
fn a_turn_comes_with_time_also_to_what_had_no_room_before() {
    let (mut farm, _) = with_build(3, 300);
    farm.submit(spec("blue", [tasks(1, 1, 60)]));
    farm.advance(10);
    farm.submit(spec("vip", [tasks(1, 1, 20)]));
    let waits = farm.submit(spec("blue", [tasks(1, 1, 5)]));
    assert_eq!(placed(&farm, waits, 1), 0);
    farm.advance(52);
    let why = farm.why(task(waits, 0)).reason;
    assert!(matches!(why, Reason::Closed(Ineligible::BuildTurn(_))), "all others have ended: {why:?}");
    farm.advance(300);
    assert!(farm.starts.iter().any(|start| start.task == task(waits, 0)));
}

/// The first user of a queue waits for a turn, and another one of the queue waits for it too.
#[test]
fn each_user_of_a_queue_is_told_of_the_build_that_is_first() {
    let (mut farm, _) = with_build(4, 300);
    farm.tell(set_queue(QueueRecord::named("blue")));
    let [ann, bob] = ["ann", "bob"]
        .map(|user| farm.submit(JobSpec { user: user.to_owned(), ..spec("blue", [tasks(3, 1, 100)]) }));
    farm.advance(1);
    for waits in [task(ann, 2), task(bob, 2)] {
        let why = farm.why(waits).reason;
        assert!(matches!(why, Reason::Closed(Ineligible::BuildTurn(_))), "{waits}: {why:?}");
    }
}

/// A build that wanted no more for long has no claim for that time.
#[test]
fn a_build_gathers_no_credit_while_it_wants_no_more() {
    let (mut farm, job) = with_build(8, 100);
    farm.tell(says(job, 8, 1));
    farm.submit(spec("blue", [tasks(8_000, 1, 10)]));
    farm.checks = false;
    farm.advance(3_600);
    farm.tell(says(job, 1, 1));
    let from = farm.starts.len();
    farm.advance(120);
    let cpus = farm.starts_of(from, "blue").count() as f64 * 10.0 / 120.0;
    assert!((3.0..=5.0).contains(&cpus), "half of the worker at once, and not {cpus} cpus");
}

fn reason(farm: &Farm, of: TaskId) -> String {
    farm.why(of).say(|_| "w1".to_owned()).1
}

#[test]
fn a_task_that_waits_for_its_turn_says_for_which_build() {
    let (mut farm, job) = with_build(8, 300);
    let other = farm.submit(spec("blue", [step(20, cores(1))]));
    let waits = (0..20).map(|index| task(other, index)).find(|task| !farm.is_placed(*task));
    let waits = waits.expect("some have no room");
    let why = farm.why(waits);
    assert!(matches!(why.reason, Reason::Closed(Ineligible::BuildTurn(_))), "{why:?}");
    assert_eq!(
        reason(&farm, waits),
        format!(
            "it waits for its turn at cpus that builds use: job {job} (make, queue red) uses 6 cpus in its turn"
        )
    );
    let pause = why.changes.iter().any(|advice| advice.change == Change::Pause("red".to_owned()));
    assert!(pause, "{:?}", why.changes);
    assert_eq!(why.ruled_out.len(), 1);
}

#[test]
fn a_range_of_cpus_takes_nothing_that_a_build_uses() {
    let (mut farm, job) = with_build(8, 100);
    let wide = Hints { cpus_max: Some(800), ..Hints::default() };
    let wide = StepSpec { hints: wide, ..step(1, cores(2)) };
    let vip = farm.submit(spec("vip", [wide.clone()]));
    assert_eq!(farm.engine.attempt(task(vip, 0)).map(|attempt| attempt.request.cpu), Some(200));
    farm.tell(says(job, 6, 2));
    let vip = farm.submit(spec("vip", [wide]));
    // Two cpus are the first one's, two the build uses.
    assert_eq!(farm.engine.attempt(task(vip, 0)).map(|attempt| attempt.request.cpu), Some(400));
}

#[test]
fn what_is_said_of_other_attempts_is_passed_over() {
    let (mut farm, job) = with_build(8, 100);
    let said = Processes { share: 8, used: 1, is_held_back: false };
    for (worker, of, attempt) in
        [(ONE, task(job, 0), 2), (WorkerId(7), task(job, 0), 1), (ONE, task(job, 9), 1)]
    {
        farm.tell(Event::Processes { worker, task: of, attempt, said });
    }
    let worker = farm.engine.workers().get(ONE).expect("it is there");
    assert!(worker.booked.wants_more());
}
