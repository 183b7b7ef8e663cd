//! Turns of the users inside a queue, judged by the order in which tasks are booked.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, cores, set_limit, set_queue, spec, step, task};
use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::engine::Settings;
use windlass_core::explain::Reason;
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::{JobSpec, QueuedStep, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::plan::PlanSettings;
use windlass_core::queues::{Charge, QueueRecord, Queues, RoundFilter, TurnSettings, TurnsBy};
use windlass_core::{JobId, Resources, Time};

/// A project: its weight, and its users' weights.
type Project = (u32, Vec<u32>);

fn user(number: usize) -> String {
    format!("user{number}")
}

/// Which project and user each of the first `n` bookings went to, when all always have work.
fn served(projects: &[Project], n: usize) -> Vec<(usize, usize)> {
    let mut queues = Queues::new(TurnSettings { charge: Charge::Task, express: None });
    let mut ids = Vec::new();
    for (number, (weight, users)) in projects.iter().enumerate() {
        let name = format!("project{number}");
        let user_weights = users.iter().enumerate().map(|(number, weight)| (user(number), *weight)).collect();
        queues.set(&QueueRecord { weight: *weight, user_weights, ..QueueRecord::named(&name) });
        for number in 0..users.len() {
            ids.push(queues.intern_for(&name, &user(number)));
            let step = StepKey { job: JobId(ids.len() as u64), step: 0 };
            queues.insert(ids[ids.len() - 1], ClassId(0), QueuedStep::new(0, Time(0), step));
        }
    }
    let places: Vec<(usize, usize)> = projects
        .iter()
        .enumerate()
        .flat_map(|(project, (_, users))| (0..users.len()).map(move |user| (project, user)))
        .collect();
    let next = |_| {
        let mut filter = RoundFilter::default();
        let (id, ..) = queues.next(&mut filter, &|_| true).expect("all have work");
        queues.charge(id, 1, &mut filter);
        queues.resume_exhausted(&mut filter);
        places[ids.iter().position(|other| *other == id).expect("it is one of them")]
    };
    (0..n).map(next).collect()
}

/// The largest distances from its share, in tasks and over all prefixes, of any project and of any user in their project.
fn largest_errors(projects: &[Project], n: usize) -> (f64, f64) {
    let total: u32 = projects.iter().map(|(weight, _)| weight).sum();
    let mut had: Vec<Vec<f64>> = projects.iter().map(|(_, users)| vec![0.0; users.len()]).collect();
    let (mut of_projects, mut of_users): (f64, f64) = (0.0, 0.0);
    for (done, (project, user)) in (1..).zip(served(projects, n)) {
        had[project][user] += 1.0;
        for ((weight, users), had) in projects.iter().zip(&had) {
            let all: f64 = had.iter().sum();
            let ideal = f64::from(done) * f64::from(*weight) / f64::from(total);
            of_projects = of_projects.max((all - ideal).abs());
            let weights: u32 = users.iter().sum();
            for (had, weight) in had.iter().zip(users) {
                of_users = of_users.max((had - all * f64::from(*weight) / f64::from(weights)).abs());
            }
        }
    }
    (of_projects, of_users)
}

#[test]
fn shares_are_within_one_task_at_both_levels_at_every_prefix() {
    let projects: Vec<Project> = [50, 30, 20, 10].map(|weight| (weight, vec![100; 10])).into();
    let (of_projects, of_users) = largest_errors(&projects, 10_000);
    assert!(of_projects <= 1.0 && of_users <= 1.0, "{of_projects} {of_users}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn shares_of_any_weights_are_within_one_task_at_both_levels(
        projects in prop::collection::vec((1_u32..=100, prop::collection::vec(1_u32..=100, 1..=8)), 1..=6)
    ) {
        let (of_projects, of_users) = largest_errors(&projects, 1_000);
        prop_assert!(of_projects <= 1.0 && of_users <= 1.0, "{} {}", of_projects, of_users);
    }
}

fn farm_of(slots: u32, charge: Charge, express: Option<u32>) -> LiveFarm {
    let plan = PlanSettings { turn: TurnSettings { charge, express }, ..PlanSettings::default() };
    let settings = Settings { plan, ..Settings::default() };
    let mut farm = LiveFarm::of(Farm::with_workers(settings, [Resources::new(slots * 100, 1_024 * GIB)]));
    farm.checks = false;
    farm
}

fn lasting(tasks: u32, seconds: u64) -> StepSpec {
    StepSpec { body: run((seconds, seconds), 0), ..step(tasks, cores(1)) }
}

fn submit(farm: &mut LiveFarm, queue: &str, user: &str, step: StepSpec) -> JobId {
    farm.accept(JobSpec { user: user.to_owned(), ..spec(queue, [step]) })
}

/// The number of starts of a job from the `from`th start on.
fn started(farm: &LiveFarm, from: usize, job: JobId) -> usize {
    farm.starts[from..].iter().filter(|start| start.task.job == job).count()
}

/// A user has `backlog` tasks in a project, and another user submits one there. Returns how many tasks of the project
/// start before that one.
fn wait_beside(backlog: u32, express: Option<u32>) -> usize {
    let mut farm = farm_of(1, Charge::Task, express);
    for project in ["film", "game", "ads"] {
        submit(&mut farm, project, "bulk", lasting(backlog, 1));
    }
    farm.advance(50);
    let before = farm.starts.len();
    let quick = submit(&mut farm, "film", "quick", lasting(1, 1));
    farm.advance(40);
    let at = farm.starts[before..].iter().position(|start| start.task.job == quick).expect("it starts");
    farm.starts_of(before, "film").take_while(|start| start.task.job != quick).count().min(at)
}

#[test]
fn a_user_s_backlog_delays_another_of_the_project_by_one_turn_at_most() {
    for express in [None, Some(8)] {
        for backlog in [100, 10_000] {
            let others = wait_beside(backlog, express);
            assert!(others <= 1, "{others} tasks of the project came first: {backlog} {express:?}");
        }
    }
}

#[test]
fn users_get_machine_time_by_their_weights() {
    let mut farm = farm_of(4, Charge::Time, Some(8));
    let user_weights = [("ann".to_owned(), 300)].into();
    farm.hear(set_queue(QueueRecord { user_weights, ..QueueRecord::named("film") }));
    let ann = submit(&mut farm, "film", "ann", lasting(10_000, 3));
    let bob = submit(&mut farm, "film", "bob", lasting(10_000, 7));
    let other = submit(&mut farm, "game", "ann", lasting(10_000, 5));
    farm.advance(4_000);
    let seconds = [(ann, 3), (bob, 7), (other, 5)].map(|(job, s)| started(&farm, 0, job) * s);
    assert!(seconds[2].abs_diff(8_000) <= 60, "the projects are even: {seconds:?}");
    assert!(seconds[0].abs_diff(6_000) <= 60 && seconds[1].abs_diff(2_000) <= 60, "{seconds:?}");
    farm.hear(set_queue(QueueRecord::named("film")));
    let before = farm.starts.len();
    farm.advance(4_000);
    let [ann, bob] = [(ann, 3), (bob, 7)].map(|(job, s)| started(&farm, before, job) * s);
    assert!(ann.abs_diff(bob) <= 60, "the weights are even now: {ann} {bob}");
    farm.check();
}

#[test]
fn in_a_queue_whose_jobs_stand_in_one_line_priority_and_time_decide() {
    for (turns, expected) in [(TurnsBy::Jobs, 0), (TurnsBy::Users, 5)] {
        let mut farm = farm_of(1, Charge::Task, None);
        farm.hear(set_queue(QueueRecord { turns, ..QueueRecord::named("film") }));
        submit(&mut farm, "film", "ann", lasting(10, 1));
        let later = submit(&mut farm, "film", "bob", lasting(10, 1));
        farm.advance(9);
        assert!(started(&farm, 0, later).abs_diff(expected) <= 1, "{turns:?}: {}", started(&farm, 0, later));
    }
}

#[test]
fn priority_counts_inside_one_user_s_work() {
    let mut farm = farm_of(1, Charge::Task, None);
    let first = submit(&mut farm, "film", "ann", lasting(5, 1));
    let other = submit(&mut farm, "film", "bob", lasting(5, 1));
    let spec = spec("film", [lasting(5, 1)]);
    let urgent = farm.accept(JobSpec { user: "ann".to_owned(), priority: 9, ..spec });
    farm.advance(9);
    let jobs = [first, other, urgent].map(|job| started(&farm, 0, job));
    assert!(jobs[0] <= 1 && jobs[1].abs_diff(5) <= 1 && jobs[2] >= 4, "{jobs:?}");
}

#[test]
fn a_user_who_was_blocked_takes_their_share_and_one_task() {
    for charge in [Charge::Task, Charge::Time] {
        let mut farm = farm_of(2, charge, None);
        farm.hear(set_limit("sim", Limit::of(0)));
        let free = ["ann", "bob"].map(|user| submit(&mut farm, "film", user, lasting(10_000, 1)));
        let limits = BTreeSet::from(["sim".to_owned()]);
        let blocked = submit(&mut farm, "film", "cyn", StepSpec { limits, ..lasting(10_000, 1) });
        farm.advance(500);
        assert_eq!(started(&farm, 0, blocked), 0);
        assert!(started(&farm, 0, free[0]).abs_diff(started(&farm, 0, free[1])) <= 2);
        let before = farm.starts.len();
        farm.hear(set_limit("sim", Limit::of(1_000)));
        farm.advance(300);
        let of_blocked = started(&farm, before, blocked);
        farm.check();
        assert!(of_blocked.abs_diff((farm.starts.len() - before) / 3) <= 2, "{charge:?}: {of_blocked}");
    }
}

#[test]
fn a_quota_is_the_whole_queue_s() {
    let mut farm = farm_of(8, Charge::Time, None);
    farm.hear(set_queue(QueueRecord { quota_cpu: Some(300), ..QueueRecord::named("film") }));
    for user in ["ann", "bob", "cyn"] {
        submit(&mut farm, "film", user, lasting(100, 5));
    }
    submit(&mut farm, "game", "ann", lasting(100, 5));
    farm.settle();
    assert_eq!((farm.starts_of(0, "film").count(), farm.starts_of(0, "game").count()), (3, 5));
    let users: BTreeSet<JobId> = farm.starts_of(0, "film").map(|start| start.task.job).collect();
    assert_eq!(users.len(), 3, "one task of each user");
}

#[test]
fn a_task_that_waits_for_another_user_of_its_queue_says_so() {
    let mut farm = farm_of(1, Charge::Task, None);
    let first = submit(&mut farm, "film", "ann", lasting(3, 1));
    farm.settle();
    let second = submit(&mut farm, "film", "bob", lasting(3, 1));
    farm.advance(1);
    let (waiting, ahead, of) =
        if started(&farm, 1, second) > 0 { (second, "ann", "bob") } else { (first, "bob", "ann") };
    let next =
        farm.engine.job(waiting).and_then(|job| job.steps[0].ready.first()).expect("it has ready tasks");
    let why = farm.why(task(waiting, next));
    assert_eq!(why.reason, Reason::BehindUser(ahead.to_owned()));
    assert_eq!(why.changes, [], "no weight brings {of} before {ahead}, who has had nothing");
    let turn = why.turn.expect("it stands in line");
    assert_eq!((turn.queues_ahead, turn.users_ahead, turn.queue.as_str()), (0, 1, "film"));
}
