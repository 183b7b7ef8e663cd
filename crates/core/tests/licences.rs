//! Limits of each worker, and licences that were busy: what is counted where, and how long steps back off.

use crate::kit::{self, Farm, REQUEST, cores, record, set_limit, spec, task};
use proptest::prelude::*;
use std::collections::BTreeMap;
use windlass_core::bounds::BACK_OFF_FACTOR_MAX;
use windlass_core::class::Class;
use windlass_core::engine::{Event, Fact, Settings, StoredState, Write};
use windlass_core::explain::Word;
use windlass_core::ids::StepKey;
use windlass_core::job::{BackOff, End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, Resources, TaskId, Time, WorkerId};

const MAYA: &str = "maya";

/// This number of workers of eight cores, and the limit of [`MAYA`].
fn farm_of(workers: usize, limit: Limit) -> Farm {
    let mut farm = Farm::with_workers(Settings::default(), vec![Resources::new(800, 1 << 30); workers]);
    farm.tell(set_limit(MAYA, limit));
    farm
}

fn work(tasks: u32, limits: &[&str]) -> JobSpec {
    let limits = limits.iter().map(ToString::to_string).collect();
    spec("q", [StepSpec { limits, ..kit::step(tasks, cores(1)) }])
}

/// Its worker says from when to when it ran, so that the end could teach how long such tasks run.
fn end(farm: &mut Farm, task: TaskId, exit: i32) {
    let by = farm.report(task);
    farm.now = farm.now.after(1);
    let bare = TaskResult::bare(End::Exited(exit));
    let result = TaskResult { started: Some(farm.now), finished: Some(farm.now), ..bare };
    farm.tell(Event::Finished { by, result });
}

/// How many tasks that take a licence are booked on each worker.
fn held(farm: &Farm) -> BTreeMap<WorkerId, u32> {
    let mut held = BTreeMap::new();
    for (task, attempt) in farm.engine.attempts() {
        if farm.engine.job(task.job).unwrap().spec.steps[0].limits.contains(MAYA) {
            *held.entry(attempt.worker).or_default() += 1;
        }
    }
    held
}

fn first(job: JobId) -> TaskId {
    task(job, 0)
}

fn step(job: JobId) -> StepKey {
    StepKey { job, step: 0 }
}

fn busy(back_off_s: u64) -> Limit {
    let busy = Busy { exits: [11, 12].into(), back_off_ms: back_off_s * 1_000 };
    Limit { busy: Some(busy), ..Limit::default() }
}

#[test]
fn a_busy_licence_is_nobodys_failure() {
    let mut farm = farm_of(1, busy(10));
    let job = farm.submit(work(1, &[MAYA]));
    for round in 0..20 {
        end(&mut farm, first(job), 11);
        assert!(!farm.is_placed(first(job)));
        assert_eq!(windlass_core::explain::waiting_tasks(&farm.engine).get(&Word::LicenceBusy), Some(&1));
        if round < 5 {
            let other = farm.submit(work(1, &[]));
            assert!(farm.is_placed(first(other)), "other steps of the queue go on");
        }
        farm.pass(160);
    }
    let worker = farm.engine.workers().get(WorkerId(1)).unwrap();
    assert!(worker.health.out().is_none() && worker.health == Default::default(), "{:?}", worker.health);
    assert_eq!(farm.engine.job(job).unwrap().failed_attempts, 0);
    assert_eq!(farm.engine.queues().by_name().next().unwrap().mean_ms, None, "it says nothing of lengths");
    let again = farm.out.writes.iter().filter_map(|write| match write {
        Write::Requeued { failures, losses, attempt, .. } => Some((*failures, *losses, *attempt)),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), (1..=20).map(|attempt| (0, 0, attempt)).collect::<Vec<_>>());
    // Any other code is a failure, and there are no retries.
    end(&mut farm, first(job), 1);
    assert!(farm.out.facts.iter().any(|note| matches!(note, Fact::JobEnded { state: JobState::Failed, .. })));
}

#[test]
fn a_code_means_busy_only_of_a_limit_of_its_step() {
    let mut farm = farm_of(1, busy(10));
    let job = farm.submit(work(1, &["nuke"]));
    end(&mut farm, first(job), 11);
    assert!(
        matches!(farm.out.facts.last(), Some(Fact::JobEnded { state: JobState::Failed, .. })),
        "{:?}",
        farm.out.facts
    );
}

#[test]
fn back_offs_double_to_a_bound_and_are_short_again_after_a_success() {
    let mut farm = farm_of(1, busy(10));
    let job = farm.submit(work(3, &[MAYA]));
    let lasts_s = |farm: &Farm| {
        let known = farm.engine.licences().back_off(step(job)).unwrap();
        (known.until.since(farm.now) / NS_PER_S, known.times)
    };
    for (times, factor) in (1..).zip([1, 2, 4, 8, 16, 16, 16]) {
        assert!(factor <= BACK_OFF_FACTOR_MAX);
        end(&mut farm, first(job), 12);
        assert_eq!(lasts_s(&farm), (10 * factor, times));
        // It was booked before, and says nothing new.
        end(&mut farm, task(job, 1), 12);
        assert_eq!(lasts_s(&farm).1, times);
        farm.pass(10 * factor - 1);
        assert!(!farm.is_placed(first(job)), "not before it is over");
        farm.pass(1);
        assert!(farm.is_placed(first(job)));
    }
    end(&mut farm, first(job), 11);
    end(&mut farm, task(job, 2), 0);
    assert_eq!(lasts_s(&farm), (159, 0), "what is in force lasts");
    farm.pass(160);
    end(&mut farm, first(job), 11);
    assert_eq!(lasts_s(&farm), (10, 1));
    farm.pass(10);
    end(&mut farm, first(job), 0);
    let kept = farm.out.writes.iter().rev().find_map(|write| match write {
        Write::LicenceBackoffs { steps, .. } => Some(steps.len()),
        _ => None,
    });
    assert_eq!(kept, Some(0), "nothing is kept of what is over");
}

#[test]
fn a_stopped_job_does_not_wait_for_a_licence() {
    let mut farm = farm_of(1, busy(10));
    let job = farm.submit(work(1, &[MAYA]));
    farm.tell(Event::Cancel { request: REQUEST, job });
    end(&mut farm, first(job), 11);
    assert!(matches!(farm.out.facts.last(), Some(Fact::JobEnded { state: JobState::Canceled, .. })));
    assert!(farm.engine.licences().back_off(step(job)).is_none());
}

/// A job that backs off since `since_s` and for 100 s, on a farm whose engine starts `now_s`.
fn restored(since_s: u64, now_s: u64) -> Farm {
    let at = |s: u64| Time(s * NS_PER_S);
    let (since, until) = (at(since_s), at(since_s + 100));
    let back_off = BackOff { limit: MAYA.to_owned(), since, until, times: 3 };
    let record = record(1, work(1, &[MAYA]), Vec::new());
    let record = JobRecord { created: Time(1), back_offs: [(0, back_off)].into(), ..record };
    let limits = [(MAYA.to_owned(), busy(10))].into();
    let stored = StoredState { jobs: vec![record], limits, ..StoredState::default() };
    let mut farm = Farm::restored(Settings::default(), stored, at(now_s));
    farm.hear(Event::Tick);
    farm
}

#[test]
fn a_back_off_goes_on_after_a_restart() {
    let key = step(JobId(1));
    let farm = restored(1_000, 1_050);
    assert_eq!(farm.engine.licences().back_off(key).map(|known| known.until), Some(Time(1_100 * NS_PER_S)));
    assert_eq!(farm.engine.next_wakeup(), Some(Time(1_100 * NS_PER_S)));
    assert_eq!(farm.engine.licences().backing_off(MAYA), 1);
    let farm = restored(1_000, 1_100);
    assert_eq!((farm.engine.licences().back_off(key), farm.engine.licences().backing_off(MAYA)), (None, 0));
    assert_eq!(farm.why(first(JobId(1))).state, TaskState::Ready);
    let farm = restored(1_000_000, 50);
    let until = farm.engine.licences().back_off(key).map(|known| known.until);
    assert_eq!(until, Some(Time(150 * NS_PER_S)), "a clock that was set back makes none longer");
}

#[test]
fn workers_that_hold_all_that_they_may_are_not_looked_at() {
    let mut farm = farm_of(200, Limit { per_worker: Some(1), ..Limit::default() });
    let job = farm.submit(work(201, &[MAYA]));
    assert!(held(&farm).len() == 200 && held(&farm).values().all(|held| *held == 1), "one on each");
    let seen = |farm: &Farm, limits: &[&str]| {
        let limits = limits.iter().map(ToString::to_string).collect();
        let class = Class { request: cores(1), limits, ..Class::default() };
        let mut seen = 0;
        farm.engine.workers().index().candidates(&class, 1, |_| {
            seen += 1;
            false
        });
        seen
    };
    assert_eq!((seen(&farm, &[MAYA]), seen(&farm, &[]), seen(&farm, &["nuke"])), (0, 200, 200));
    assert_eq!(windlass_core::explain::waiting_tasks(&farm.engine), [(Word::WorkerLimit, 1)].into());
    end(&mut farm, first(job), 0);
    assert!(farm.is_placed(task(job, 200)));
    end(&mut farm, task(job, 1), 0);
    assert_eq!(seen(&farm, &[MAYA]), 1);
}

#[test]
fn a_task_that_holds_nothing_else_gives_its_licence_back() {
    let mut farm = farm_of(1, Limit { per_worker: Some(1), ..Limit::default() });
    let limits = [MAYA.to_owned()].into();
    let step = StepSpec { limits, ..kit::step(2, Resources::default()) };
    let job = farm.submit(spec("q", [step]));
    end(&mut farm, first(job), 0);
    assert!(farm.is_placed(task(job, 1)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_worker_and_no_farm_has_more_than_it_may(
        max in prop::option::of(1_u32..6),
        per_worker in 1_u32..4,
        // What happens: a submission, an end, another limit of each worker, time.
        steps in prop::collection::vec((0_u8..8, 0_u32..6), 1..60),
    ) {
        let limit = |per_worker| Limit { max, per_worker: Some(per_worker), ..busy(5) };
        let mut farm = farm_of(3, limit(per_worker));
        for (what, n) in steps {
            let running: Vec<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
            let before = held(&farm);
            match what {
                0 | 1 => _ = farm.submit(work(n + 1, &[MAYA])),
                2 => _ = farm.submit(work(n + 1, &[])),
                3 => farm.pass(u64::from(n)),
                _ => {
                    if let Some(task) = running.get(n as usize % running.len().max(1)) {
                        end(&mut farm, *task, [0, 1, 11, 0][usize::from(what - 4)]);
                    }
                }
            }
            let held = held(&farm);
            let grew = |(worker, held): (&WorkerId, &u32)| held > before.get(worker).unwrap_or(&0);
            prop_assert!(held.iter().filter(|entry| grew(*entry)).all(|(_, held)| *held <= per_worker), "{:?}", held);
            prop_assert!(held.values().sum::<u32>() <= max.unwrap_or(u32::MAX), "{:?}", held);
            // A task that waits for a licence finds none: where the farm has one left, all workers hold theirs.
            let waits = farm.engine.jobs().any(|job| {
                let enlisted = job.steps[0].enlisted.is_some();
                enlisted && job.spec.steps[0].limits.contains(MAYA)
            });
            let left = held.values().sum::<u32>() < max.unwrap_or(u32::MAX);
            let open = (1..=3).any(|id| {
                let worker = farm.engine.workers().get(WorkerId(id)).unwrap();
                worker.takes_work() && worker.free().cpu >= 100 && worker.licences.held(MAYA) < per_worker
            });
            prop_assert!(!(waits && left && open), "a licence is left and taken by nobody");
        }
    }
}
