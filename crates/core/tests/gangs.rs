//! Tasks that start together: all of them, on different workers, or none.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{self, Farm, GIB, booked, cores, record, set_limit, spec, starts, step, task};
use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::engine::{
    Event, Fact, GangPlace, Outbox, Refusal, Reply, Settings, StoredState, WorkerCommand, Write,
};
use windlass_core::explain::Reason;
use windlass_core::job::{
    Dependency, DependencyKind, End, EndedTasks, FailFast, JobRecord, JobSpec, JobState, StepSpec,
    TaskResult, TaskRow, TaskState, Tries,
};
use windlass_core::licences::Limit;
use windlass_core::plan::placement::Ineligible;
use windlass_core::{JobId, Resources, TaskId, WorkerId};

fn farm_of(workers: usize, of_cores: u32) -> Farm {
    Farm::with_workers(Settings::default(), vec![Resources::new(of_cores * 100, 64 * GIB); workers])
}

fn gang(name: &str, gangs: u32, nodes: u32, of_cores: u32) -> StepSpec {
    StepSpec { name: name.to_owned(), nodes: Some(nodes), ..step(gangs * nodes, cores(of_cores)) }
}

fn role(name: &str, with: Option<u16>, worker: &str) -> StepSpec {
    let targets = if worker.is_empty() { BTreeSet::new() } else { BTreeSet::from([worker.to_owned()]) };
    StepSpec { name: name.to_owned(), with, targets, ..step(1, cores(1)) }
}

fn workers_of(farm: &Farm, job: JobId) -> Vec<WorkerId> {
    farm.engine.attempts_of(job).map(|(_, attempt)| attempt.worker).collect()
}

fn kills(farm: &mut Farm) -> Vec<TaskId> {
    let sends = farm.take().sends;
    sends
        .iter()
        .filter_map(|send| match send.command {
            WorkerCommand::Kill { task, .. } => Some(task),
            _ => None,
        })
        .collect()
}

/// What a worker says of an attempt that it killed.
fn killed(farm: &mut Farm, task: TaskId) {
    let by = farm.report(task);
    farm.tell(Event::Finished { by, result: TaskResult::bare(End::Canceled) });
}

/// What the starts of a gang's tasks say of it, by task.
fn places(out: &Outbox) -> Vec<(u32, GangPlace)> {
    let places = out.sends.iter().filter_map(|send| match &send.command {
        WorkerCommand::Start { task, gang, .. } => Some((task.index, gang.clone()?)),
        _ => None,
    });
    places.collect()
}

/// The worker says over a new connection that it has nothing: what went over the earlier one was lost.
fn reconnect(farm: &mut Farm, worker: WorkerId, of_cores: u32) {
    let name = farm.engine.workers().get(worker).expect("it is known").record.name.to_string();
    farm.join(kit::hello(&name, Resources::new(of_cores * 100, 64 * GIB)));
}

#[test]
fn nodes_start_together_on_different_workers() {
    let mut farm = farm_of(4, 8);
    let job = farm.submit(spec("q", [gang("mpi", 1, 4, 2)]));
    let on: BTreeSet<WorkerId> = workers_of(&farm, job).into_iter().collect();
    assert_eq!(on.len(), 4);
    let orders = places(&farm.take());
    assert_eq!(orders.len(), 4);
    for (index, place) in &orders {
        assert_eq!(place.rank, *index);
        assert_eq!(place.workers.iter().collect::<BTreeSet<_>>().len(), 4, "each learns of all");
        assert_eq!(place.workers, orders[0].1.workers);
    }
}

#[test]
fn none_starts_while_one_has_no_room_and_why_says_so() {
    let mut farm = farm_of(3, 4);
    let busy = farm.submit(spec("q", [StepSpec { targets: ["w1".to_owned()].into(), ..step(1, cores(3)) }]));
    let job = farm.submit(spec("q", [gang("mpi", 1, 3, 2)]));
    assert_eq!(workers_of(&farm, job), []);
    let why = farm.why(task(job, 1));
    assert_eq!(why.reason, Reason::Together { tasks: 3, placed: 2 });
    let (word, says) = why.say(|_| String::new());
    assert_eq!(word.as_str(), "together");
    assert_eq!(says, "it starts together with 2 others, and 2 of these 3 tasks have room now");
    farm.end(task(busy, 0), 0);
    assert_eq!(workers_of(&farm, job).len(), 3);
}

#[test]
fn a_farm_with_too_few_workers_is_told_at_once() {
    let mut farm = farm_of(3, 4);
    let Reply::Submitted { unplaceable, job, .. } = farm.submission(spec("q", [gang("mpi", 1, 4, 2)])) else {
        panic!("it is accepted")
    };
    assert_eq!(unplaceable[0].reasons, [(Ineligible::TooFew { tasks: 4, could: 3 }, 1)]);
    farm.settle();
    let busy = farm.submit(spec("q", [StepSpec { targets: ["w1".to_owned()].into(), ..step(1, cores(3)) }]));
    let why = farm.why(task(job, 0));
    let [(Ineligible::TooFew { .. }, 3, _)] = why.ruled_out.as_slice() else { panic!("{why:?}") };
    assert_eq!((why.reason, why.open_workers), (Reason::FitsNowhere, 0), "what is free now is of no use");
    farm.end(task(busy, 0), 0);
    farm.worker("w4", cores(4));
    assert_eq!(workers_of(&farm, job).len(), 4);
}

#[test]
fn why_names_the_step_that_fits_no_worker() {
    let mut farm = farm_of(1, 4);
    let job = farm.submit(spec("q", [step(1, cores(1)), role("client", Some(0), "w9")]));
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::FitsNowhere);
    let expected = "connect w9 for step 'client', which starts together with it and fits no worker";
    assert_eq!(why.changes[0].steps(), [expected]);
    farm.worker("w9", cores(1));
    assert_eq!(workers_of(&farm, job).len(), 2);
}

#[test]
fn a_step_has_a_gang_of_each_so_many_tasks() {
    let mut farm = farm_of(3, 1);
    let job = farm.submit(spec("q", [gang("mpi", 3, 3, 1)]));
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [0, 1, 2]);
    (0..3).for_each(|index| farm.end(task(job, index), 0));
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn roles_move_until_each_has_a_worker() {
    let mut farm = farm_of(3, 1);
    let two =
        |step: StepSpec, names: [&str; 2]| StepSpec { targets: names.map(str::to_owned).into(), ..step };
    // The task that chooses first must not take what only another can have.
    let steps = [
        two(role("server", None, ""), ["w1", "w2"]),
        two(role("client", Some(0), ""), ["w1", "w3"]),
        role("probe", Some(0), "w1"),
    ];
    let job = farm.submit(spec("q", steps));
    let names: Vec<String> = workers_of(&farm, job)
        .iter()
        .map(|id| farm.engine.workers().get(*id).expect("it is there").record.name.to_string())
        .collect();
    assert_eq!(names, ["w2", "w3", "w1"]);
}

#[test]
fn what_needs_most_has_the_only_worker_that_is_large_enough() {
    let amounts = [200, 400, 200].map(|cpu| Resources::new(cpu, 64 * GIB));
    let mut farm = Farm::with_workers(Settings::default(), amounts);
    let follower =
        |name: &str, of_cores| StepSpec { name: name.to_owned(), with: Some(0), ..step(1, cores(of_cores)) };
    // Each of the small tasks would rather be on the large worker, and two of them leave it together or not at all.
    let job = farm.submit(spec("q", [gang("a", 1, 2, 1), follower("b", 1), follower("c", 4)]));
    assert_eq!(workers_of(&farm, job).len(), 4);
}

#[test]
fn what_is_left_of_a_gang_asks_for_itself_alone() {
    let mut farm = farm_of(2, 1);
    farm.tell(set_limit("maya", Limit { max: Some(2), ..Limit::default() }));
    let limits = BTreeSet::from(["maya".to_owned()]);
    let mpi = StepSpec { retries: 1, limits, ..gang("mpi", 1, 2, 1) };
    let job = farm.submit(spec("q", [mpi]));
    farm.end(task(job, 0), 0);
    // Another job has the worker of the first task from now on, and its licence is gone.
    farm.submit(spec("q", [step(1, cores(1))]));
    farm.tell(set_limit("maya", Limit { max: Some(1), ..Limit::default() }));
    farm.take();
    farm.end(task(job, 1), 1);
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [1]);
    farm.end(task(job, 1), 0);
    assert!(farm.engine.job(job).is_none_or(|job| job.ended == Some(JobState::Succeeded)));
}

#[test]
fn a_whole_gang_without_room_does_not_stop_the_rest_of_another() {
    let mut farm = farm_of(3, 1);
    let mpi = || StepSpec { retries: 1, ..gang("mpi", 1, 3, 1) };
    let first = farm.submit(spec("q", [mpi()]));
    let second = farm.submit(JobSpec { priority: 1, ..spec("q", [mpi()]) });
    farm.end(task(first, 0), 0);
    let small = farm.submit(spec("q", [step(1, cores(1))]));
    farm.end(task(first, 1), 0);
    farm.take();
    farm.end(task(first, 2), 1);
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| *task).collect::<Vec<_>>(), [task(first, 2)]);
    farm.end(task(first, 2), 0);
    assert_eq!(workers_of(&farm, second), []);
    farm.end(task(small, 0), 0);
    assert_eq!(workers_of(&farm, second).len(), 3);
}

#[test]
fn a_cap_counts_of_a_gang_what_is_left_of_it() {
    let mut farm = farm_of(4, 1);
    let mpi = StepSpec { retries: 1, ..gang("mpi", 2, 2, 1) };
    let job = farm.submit(JobSpec { max_running: Some(3), ..spec("q", [mpi]) });
    assert_eq!(workers_of(&farm, job).len(), 2);
    farm.end(task(job, 0), 0);
    assert_eq!(workers_of(&farm, job).len(), 3, "the second gang starts");
    farm.take();
    farm.end(task(job, 1), 1);
    assert_eq!(starts(&farm.take()).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn roles_share_a_worker_where_it_has_room_for_all() {
    let mut farm = farm_of(1, 3);
    let steps = [role("server", None, ""), role("client", Some(0), ""), role("probe", Some(0), "")];
    let job = farm.submit(spec("q", steps));
    assert_eq!(workers_of(&farm, job).len(), 3);
    let mut small = farm_of(1, 2);
    let steps = [role("server", None, ""), role("client", Some(0), ""), role("probe", Some(0), "")];
    let job = small.submit(spec("q", steps));
    assert_eq!(workers_of(&small, job), []);
    assert_eq!(small.why(task(job, 2)).reason, Reason::FitsNowhere);
    small.worker("w2", cores(1));
    assert_eq!(workers_of(&small, job).len(), 3);
}

#[test]
fn a_failure_ends_the_others_and_all_start_again_together() {
    let mut farm = farm_of(3, 1);
    let job = farm.submit(spec("q", [StepSpec { retries: 1, ..gang("mpi", 1, 3, 1) }]));
    farm.take();
    farm.end(task(job, 1), 7);
    assert_eq!(kills(&mut farm), [task(job, 0), task(job, 2)]);
    assert_eq!(workers_of(&farm, job).len(), 2, "it waits for those that are being killed");
    assert_eq!(farm.why(task(job, 1)).reason, Reason::Mates { waiting: 2, lost: false });
    killed(&mut farm, task(job, 0));
    assert_eq!(workers_of(&farm, job).len(), 1);
    killed(&mut farm, task(job, 2));
    assert_eq!(workers_of(&farm, job).len(), 3, "all start again");
    farm.end(task(job, 1), 7);
    assert_eq!(kills(&mut farm), [task(job, 0), task(job, 2)], "it failed for good: the others end");
    killed(&mut farm, task(job, 0));
    killed(&mut farm, task(job, 2));
    let ended = farm.engine.jobs().find(|known| known.id == job).and_then(|job| job.ended);
    assert_eq!(ended.unwrap_or(JobState::Failed), JobState::Failed);
    assert_eq!(farm.engine.attempts_of(job).count(), 0);
}

#[test]
fn a_role_that_fails_for_good_leaves_the_others_running() {
    let mut farm = farm_of(2, 1);
    let job = farm.submit(spec("q", [role("server", None, ""), role("client", Some(0), "")]));
    farm.take();
    farm.end(task(job, 1), 1);
    assert_eq!(kills(&mut farm), []);
    assert!(farm.is_placed(task(job, 0)));
    let steps = [role("server", None, ""), role("client", Some(0), "")];
    let mut strict = farm_of(2, 1);
    let job = strict.submit(JobSpec { fail_fast: FailFast::Kill, ..spec("q", steps) });
    strict.take();
    strict.end(task(job, 1), 1);
    assert_eq!(kills(&mut strict), [task(job, 0)]);
}

#[test]
fn a_retry_ends_those_that_still_run_so_that_all_start_together() {
    let mut farm = farm_of(2, 1);
    let job = farm.submit(spec("q", [role("server", None, ""), role("client", Some(0), "")]));
    farm.end(task(job, 1), 1);
    farm.take();
    farm.tell(Event::Retry { request: kit::REQUEST, job });
    assert_eq!(kills(&mut farm), [task(job, 0)]);
    killed(&mut farm, task(job, 0));
    assert_eq!(starts(&farm.take()).len(), 2);
}

#[test]
fn a_gang_that_can_never_be_whole_does_not_keep_its_job_open() {
    let mut farm = farm_of(4, 1);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Task }];
    let first = StepSpec { name: "first".to_owned(), ..step(4, cores(1)) };
    let job = farm.submit(spec("q", [first, StepSpec { depends, ..gang("mpi", 1, 4, 1) }]));
    for (index, exit) in [(0, 0), (1, 0), (2, 1), (3, 0)] {
        farm.end(task(job, index), exit);
    }
    let ended =
        farm.out.facts.iter().any(|note| matches!(note, Fact::JobEnded { state: JobState::Failed, .. }));
    assert!(ended, "{:?}", farm.engine.job(job));
}

#[test]
fn a_round_that_books_more_than_its_budget_goes_on() {
    let mut farm = farm_of(6, 1);
    let job = farm.accept(spec("q", [gang("mpi", 2, 3, 1)]));
    let (now, budget) = (farm.now, 2);
    let booked = farm.engine.round(now, budget, &mut farm.pipeline.forming);
    assert_eq!(booked, 3);
    assert!(farm.engine.planner().needs_round(), "there is room for the second");
    farm.settle();
    assert_eq!(workers_of(&farm, job).len(), 6);
}

#[test]
fn what_is_done_is_not_run_again() {
    let mut farm = farm_of(2, 1);
    let job = farm.submit(spec("q", [StepSpec { retries: 1, ..gang("mpi", 1, 2, 1) }]));
    farm.end(task(job, 0), 0);
    farm.take();
    farm.end(task(job, 1), 1);
    let out = farm.take();
    assert_eq!(starts(&out).iter().map(|(_, task)| task.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn licences_quotas_and_caps_count_all_that_start_together() {
    let mut farm = farm_of(4, 1);
    farm.tell(set_limit("maya", Limit { max: Some(3), ..Limit::default() }));
    let licensed = StepSpec { limits: ["maya".to_owned()].into(), ..gang("mpi", 1, 4, 1) };
    let job = farm.submit(spec("q", [licensed]));
    assert_eq!(workers_of(&farm, job), []);
    let reason = Reason::Limit { name: "maya".to_owned(), max: 3, first: None, waiting_holder: None };
    assert_eq!(farm.why(task(job, 0)).reason, reason);
    farm.tell(set_limit("maya", Limit { max: Some(4), ..Limit::default() }));
    assert_eq!(workers_of(&farm, job).len(), 4);
    let capped = JobSpec { max_running: Some(5), ..spec("q", [gang("mpi", 2, 4, 0)]) };
    let capped = farm.submit(capped);
    assert_eq!(workers_of(&farm, capped).len(), 4, "two gangs would be eight");
}

#[test]
fn what_can_never_start_together_is_refused() {
    let mut farm = farm_of(1, 1);
    let mut refused = |steps: Vec<StepSpec>, max_running| match farm
        .submission(JobSpec { max_running, ..spec("q", steps) })
    {
        Reply::Refused(refusal @ (Refusal::BadGang { .. } | Refusal::TooMany { .. })) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let odd = StepSpec { tasks: 5, ..gang("mpi", 1, 2, 1) };
    assert_eq!(
        refused(vec![odd], None),
        "step 'mpi' cannot start as it says: 5 tasks are not a multiple of 2 nodes"
    );
    refused(vec![StepSpec { nodes: Some(0), ..gang("mpi", 1, 2, 1) }], None);
    refused(vec![role("a", Some(0), "")], None);
    refused(vec![role("a", None, ""), role("b", Some(0), ""), role("c", Some(1), "")], None);
    refused(vec![role("a", None, ""), StepSpec { tasks: 2, ..role("b", Some(0), "") }], None);
    let depends = vec![Dependency { on: 0, kind: DependencyKind::Step }];
    refused(vec![role("a", None, ""), StepSpec { depends, ..role("b", Some(0), "") }], None);
    refused(vec![gang("mpi", 1, 4, 1)], Some(3));
    refused(vec![StepSpec { max_running: Some(3), ..gang("mpi", 1, 4, 1) }], None);
    refused(vec![gang("mpi", 1, 1_001, 1)], None);
}

fn after(on: u16, step: StepSpec) -> StepSpec {
    StepSpec { depends: vec![Dependency { on, kind: DependencyKind::Step }], ..step }
}

/// It starts with the first step, and waits for the second, which waits for the first.
fn waits_for_itself() -> JobSpec {
    let (first, second) = (role("a", None, ""), after(0, role("b", None, "")));
    spec("q", [first, second, after(1, role("c", Some(0), ""))])
}

#[test]
fn a_gang_that_waits_for_itself_through_other_steps_is_refused() {
    let mut farm = farm_of(4, 1);
    let mut refused = |spec: JobSpec| match farm.submission(spec) {
        Reply::Refused(refusal @ Refusal::Cycle(_)) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(waits_for_itself()), "these steps wait for each other: a with c -> b -> a with c");
    // Task by task it is the same: the first tasks of all wait for each other.
    let mut by_task = waits_for_itself();
    for dependency in by_task.steps.iter_mut().flat_map(|step| &mut step.depends) {
        dependency.kind = DependencyKind::Task;
    }
    refused(by_task);
    let (first, second) = (role("a", None, ""), role("b", None, ""));
    let crossed = [first, second, after(0, role("c", Some(1), "")), after(1, role("d", Some(0), ""))];
    assert_eq!(
        refused(spec("q", crossed)),
        "these steps wait for each other: a with d -> b with c -> a with d"
    );
    let (first, second) = (role("a", None, ""), after(0, role("b", None, "")));
    let third = after(1, role("c", None, ""));
    let job = farm.submit(spec("q", [first, second, third, after(1, role("d", Some(2), ""))]));
    farm.end(task(job, 0), 0);
    farm.end(task(job, 1), 0);
    assert_eq!(workers_of(&farm, job).len(), 2, "the last two start together");
}

#[test]
fn one_that_was_accepted_before_waits_until_it_is_cancelled_and_says_for_what() {
    let farm = farm_of(2, 1);
    let stored = StoredState {
        workers: farm.engine.workers().iter().map(|worker| worker.stored()).collect(),
        jobs: vec![record(1, waits_for_itself(), Vec::new())],
        ..StoredState::default()
    };
    let (mut farm, job) = (Farm::restored(Settings::default(), stored, farm.now), JobId(1));
    assert_eq!(farm.why(task(job, 0)).reason, Reason::Mates { waiting: 1, lost: false });
    assert_eq!(farm.why(task(job, 1)).reason, Reason::Steps(vec![("a".to_owned(), 1, 0)]));
    assert_eq!(farm.why(task(job, 2)).reason, Reason::Steps(vec![("b".to_owned(), 1, 0)]));
    farm.tell(Event::Cancel { request: kit::REQUEST, job });
    let ended =
        farm.out.facts.iter().any(|note| matches!(note, Fact::JobEnded { state: JobState::Canceled, .. }));
    assert!(ended, "{:?}", farm.engine.job(job));
}

#[test]
fn a_stream_of_small_work_does_not_keep_a_gang_from_starting() {
    let workers = vec![Resources::new(200, 64 * GIB); 4];
    let mut farm = LiveFarm::of(Farm::with_workers(Settings::default(), workers));
    // On four workers of two cores, tasks of one core that end at different times, for a quarter of an hour.
    let small = StepSpec { body: run((3, 9), 0), ..step(1_500, cores(1)) };
    farm.accept(spec("small", [small]));
    farm.settle();
    farm.advance(5);
    let wide = StepSpec { body: run((5, 5), 0), ..gang("mpi", 1, 4, 2) };
    farm.accept(spec("wide", [wide]));
    farm.settle();
    farm.advance(600);
    assert_eq!(farm.starts_of(0, "wide").count(), 4, "it never had four empty workers");
}

#[test]
fn two_gangs_that_need_the_whole_farm_take_turns() {
    let workers = vec![Resources::new(200, 64 * GIB); 4];
    let mut farm = LiveFarm::of(Farm::with_workers(Settings::default(), workers));
    farm.accept(spec("small", [StepSpec { body: run((3, 9), 0), ..step(1_500, cores(1)) }]));
    farm.settle();
    for name in ["one", "two"] {
        let wide = StepSpec { body: run((5, 5), 0), ..gang("mpi", 2, 4, 2) };
        farm.accept(spec(name, [wide]));
    }
    farm.settle();
    farm.advance(1_000);
    for name in ["one", "two"] {
        assert_eq!(farm.starts_of(0, name).count(), 8, "{name}");
    }
}

#[test]
fn after_a_restart_a_gang_runs_on_and_a_broken_one_ends() {
    let mpi = || StepSpec { retries: 1, ..gang("mpi", 1, 2, 1) };
    let mut farm = farm_of(2, 1);
    farm.submit(spec("q", [mpi()]));
    let workers: Vec<_> = farm.engine.workers().iter().map(|worker| worker.stored()).collect();
    let row = |index: u32, state| TaskRow { index, state, ..booked(workers[index as usize].id) };
    let stored = |rows| StoredState {
        workers: workers.clone(),
        jobs: vec![record(1, spec("q", [mpi()]), rows)],
        ..StoredState::default()
    };
    let rows = vec![row(0, TaskState::Booked), row(1, TaskState::Booked)];
    let whole = Farm::restored(Settings::default(), stored(rows), farm.now);
    assert_eq!(workers_of(&whole, JobId(1)).len(), 2);
    // The first is to run again: that was durable, and the kill of the second was not heard.
    let rows = vec![TaskRow { failures: 1, ..row(0, TaskState::Ready) }, row(1, TaskState::Booked)];
    let mut broken = Farm::restored(Settings::default(), stored(rows), farm.now);
    assert_eq!(workers_of(&broken, JobId(1)).len(), 1);
    broken.engine.check().expect("what runs is being ended");
    broken.settle();
    assert_eq!(workers_of(&broken, JobId(1)).len(), 1, "nothing starts beside it");
}

#[test]
fn a_start_that_is_sent_again_after_others_ended_says_the_same_place() {
    let mut farm = farm_of(3, 1);
    let job = farm.submit(spec("q", [gang("mpi", 1, 3, 1)]));
    let first = places(&farm.take());
    let last = workers_of(&farm, job)[2];
    farm.end(task(job, 0), 0);
    farm.take();
    reconnect(&mut farm, last, 1);
    assert_eq!(places(&farm.take()), [first[2].clone()]);
    farm.end(task(job, 1), 0);
    farm.take();
    reconnect(&mut farm, last, 1);
    assert_eq!(places(&farm.take()), [first[2].clone()]);
}

#[test]
fn after_a_restart_what_cannot_start_again_with_its_gang_ends() {
    let roles = || spec("q", [StepSpec { retries: 1, ..gang("mpi", 1, 2, 1) }, role("log", Some(0), "")]);
    let mut farm = farm_of(3, 1);
    let job = farm.submit(roles());
    let on = workers_of(&farm, job);
    let row = |index: u32, state| TaskRow { index, state, ..booked(on[index as usize]) };
    // One is to run again, and another role has failed for good: the gang never starts again. The kill of what runs was
    // not heard.
    let rows = vec![
        row(0, TaskState::Booked),
        TaskRow { failures: 1, ..row(1, TaskState::Ready) },
        row(2, TaskState::Failed),
    ];
    let workers = farm.engine.workers().iter().map(|worker| worker.stored()).collect();
    let stored = StoredState { workers, jobs: vec![record(job.0, roles(), rows)], ..StoredState::default() };
    let mut restored = Farm::restored(Settings::default(), stored, farm.now);
    restored.take();
    reconnect(&mut restored, on[0], 1);
    assert_eq!(places(&restored.take()), [], "its start is not sent again");
    assert_eq!(workers_of(&restored, job), []);
}

#[test]
fn a_role_that_failed_keeps_its_place_among_those_that_go_on() {
    let mut farm = farm_of(1, 2);
    let job = farm.submit(spec("q", [role("server", None, ""), role("client", Some(0), "")]));
    let first = places(&farm.take());
    farm.end(task(job, 0), 1);
    farm.take();
    let worker = workers_of(&farm, job)[0];
    reconnect(&mut farm, worker, 2);
    assert_eq!(places(&farm.take()), [first[1].clone()]);
}

#[test]
fn tasks_that_start_again_are_counted_by_themselves() {
    let mut farm = farm_of(3, 1);
    let job = farm.submit(spec("q", [StepSpec { retries: 1, ..gang("mpi", 1, 3, 1) }]));
    farm.end(task(job, 0), 0);
    farm.end(task(job, 1), 1);
    farm.take();
    killed(&mut farm, task(job, 2));
    let again = places(&farm.take());
    let ranks: Vec<_> =
        again.iter().map(|(index, place)| (*index, place.rank, place.workers.len())).collect();
    assert_eq!(ranks, [(1, 0, 2), (2, 1, 2)]);
    let last = workers_of(&farm, job)[1];
    farm.end(task(job, 1), 0);
    farm.take();
    reconnect(&mut farm, last, 1);
    assert_eq!(places(&farm.take()), [again[1].clone()]);
}

#[test]
fn after_a_restart_a_lost_start_is_sent_again_with_the_same_place() {
    let mpi = || spec("q", [gang("mpi", 1, 2, 1)]);
    let mut farm = farm_of(2, 1);
    let job = farm.submit(mpi());
    let first = places(&farm.take());
    let on = workers_of(&farm, job);
    let row = |index: u32, state| TaskRow { index, state, ..booked(on[index as usize]) };
    let restart = |mates| {
        let stored = JobRecord {
            ended: vec![EndedTasks { tasks: 0..1, state: TaskState::Succeeded, tries: Tries::default() }],
            mates,
            ..record(job.0, mpi(), vec![row(1, TaskState::Booked)])
        };
        let workers = farm.engine.workers().iter().map(|worker| worker.stored()).collect();
        let stored = StoredState { workers, jobs: vec![stored], ..StoredState::default() };
        let mut restored = Farm::restored(Settings::default(), stored, farm.now);
        restored.take();
        reconnect(&mut restored, on[1], 1);
        places(&restored.take())
    };
    let ended = row(0, TaskState::Succeeded);
    assert_eq!(restart(vec![ended.clone()]), [first[1].clone()]);
    // The store has rows of all that were booked at that time, of earlier attempts too.
    let place = GangPlace { rank: 0, workers: vec![first[1].1.workers[1].clone()] };
    assert_eq!(restart(vec![TaskRow { attempt: 2, ..ended }]), [(1, place)]);
}

#[test]
fn tasks_of_a_gang_that_runs_are_not_listed_as_done() {
    use windlass_core::bounds::NOTED_TASKS;
    let mut farm = farm_of(2, 1);
    farm.checks = false;
    let job = farm.submit(spec("q", [gang("mpi", NOTED_TASKS / 2 + 1, 2, 0)]));
    // The first gang is left with one of its tasks.
    for index in (0..=NOTED_TASKS).filter(|index| *index != 1) {
        let by = farm.report(task(job, index));
        farm.hear(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    }
    let out = farm.take();
    let done = out.writes.iter().find_map(|write| match write {
        Write::SucceededRanges { tasks, .. } => Some(tasks),
        _ => None,
    });
    let done = done.expect("many have succeeded since");
    assert!(!done.contains(0) && done.contains(2) && done.contains(NOTED_TASKS - 1));
    // Of the last gang one task still runs, too.
    assert!(!done.contains(NOTED_TASKS));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Small workers, gangs and roles of all shapes: the engine's check holds after each commit that tasks of a gang
    /// are booked together and on different workers; and what fits the empty farm ends.
    #[test]
    fn whatever_fits_the_empty_farm_ends(
        jobs in prop::collection::vec((1_u32..4, 1_u32..4, 0_usize..3, 1_u32..3, 0_u8..4), 1..12),
        workers in 3_usize..6,
    ) {
        let capacity = vec![Resources::new(300, 64 * GIB); workers];
        let mut farm = LiveFarm::of(Farm::with_workers(Settings::default(), capacity));
        let mut ids = Vec::new();
        for (gangs, nodes, roles, of_cores, fails) in jobs {
            let first = StepSpec { body: run((1, 9), i32::from(fails == 0)), retries: 1, ..gang("s0", gangs, nodes, of_cores) };
            let mut steps = vec![first];
            for number in 1..=roles {
                let body = run((1, 9), 0);
                steps.push(StepSpec {
                    name: format!("s{number}"), tasks: gangs, with: Some(0), body, ..step(1, cores(1))
                });
            }
            ids.push(farm.accept(spec(["a", "b"][gangs as usize % 2], steps)));
        }
        farm.settle();
        farm.advance(1_000);
        for id in ids {
            let ended = farm.engine.job(id).is_none_or(|job| job.ended.is_some());
            prop_assert!(ended, "{:?}", farm.engine.job(id));
        }
    }
}
