//! Limits of each worker, and licences that were busy: what is counted where, and how long steps back off.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::bounds::BACK_OFF_FACTOR_MAX;
use windlass_core::class::Class;
use windlass_core::engine::{
    Attempt, Engine, Event, Fact, Hello, Inventory, Outbox, Report, Settings, StoredState, Submit, Write,
};
use windlass_core::explain::BlockedReason;
use windlass_core::ids::StepKey;
use windlass_core::job::{BackOff, End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, RequestId, Resources, TaskId, Time, WorkerId};

const MAYA: &str = "maya";

/// An engine whose every batch is durable at once, and what it wrote and noted.
struct Farm {
    engine: Engine,
    now: Time,
    jobs: u64,
    writes: Vec<Write>,
    notes: Vec<Fact>,
}

impl Farm {
    fn new(workers: u64, limit: Limit) -> Farm {
        let engine = Engine::new(Settings::default());
        let now = Time(1_000 * NS_PER_S);
        let mut farm = Farm { engine, now, jobs: 0, writes: Vec::new(), notes: Vec::new() };
        (1..=workers).for_each(|n| farm.worker(n));
        farm.set(limit);
        farm
    }

    fn worker(&mut self, n: u64) {
        self.tell(Event::Hello(Box::new(Hello {
            name: format!("w{n}"),
            identity: n,
            incarnation: 1,
            fences: false,
            sent: 0,
            new_link: true,
            capacity: Resources::new(800, 1 << 30),
            attributes: BTreeMap::new(),
            inventory: Inventory::default(),
        })));
    }

    fn set(&mut self, limit: Limit) {
        self.tell(Event::SetLimit { request: RequestId(0), name: MAYA.to_owned(), limit: Some(limit) });
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        while self.engine.round(self.now, 1_000, &mut out) > 0 {}
        self.engine.committed(&out);
        self.writes.append(&mut out.writes);
        self.notes.append(&mut out.notes);
        let mut out = Outbox::default();
        while self.engine.round(self.now, 1_000, &mut out) > 0 {}
        self.engine.committed(&out);
        self.engine.check().unwrap();
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.tell(Event::Tick);
    }

    fn submit(&mut self, tasks: u32, limits: &[&str]) -> JobId {
        self.submit_of(Resources::new(100, 0), tasks, limits)
    }

    fn submit_of(&mut self, request: Resources, tasks: u32, limits: &[&str]) -> JobId {
        self.jobs += 1;
        let limits = limits.iter().map(ToString::to_string).collect();
        let step = StepSpec { name: "s".to_owned(), tasks, request, limits, ..StepSpec::default() };
        let spec = JobSpec { queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() };
        let request = RequestId(self.jobs);
        let submit = Submit::new(request, spec);
        self.tell(Event::Submit(Box::new(submit)));
        JobId(self.jobs)
    }

    fn end(&mut self, task: TaskId, exit: i32) {
        let Attempt { worker, epoch, number: attempt, .. } = self.engine.attempt(task).unwrap().clone();
        let by = Report { worker, epoch, task, attempt };
        self.now = self.now.after(1);
        let result = TaskResult {
            started: Some(self.now),
            finished: Some(self.now),
            ..TaskResult::bare(End::Exited(exit))
        };
        self.tell(Event::Finished { by, result });
    }

    fn is_placed(&self, task: TaskId) -> bool {
        self.engine.attempt(task).is_some()
    }

    /// How many tasks that take a licence are booked on each worker.
    fn held(&self) -> BTreeMap<WorkerId, u32> {
        let mut held = BTreeMap::new();
        for (task, attempt) in self.engine.attempts() {
            if self.engine.job(task.job).unwrap().spec.steps[0].limits.contains(MAYA) {
                *held.entry(attempt.worker).or_default() += 1;
            }
        }
        held
    }
}

fn first(job: JobId) -> TaskId {
    TaskId { job, index: 0 }
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
    let mut farm = Farm::new(1, busy(10));
    let job = farm.submit(1, &[MAYA]);
    for round in 0..20 {
        farm.end(first(job), 11);
        assert!(!farm.is_placed(first(job)));
        assert_eq!(
            windlass_core::explain::waiting_tasks(&farm.engine).get(&BlockedReason::NoLicence),
            Some(&1)
        );
        if round < 5 {
            let other = farm.submit(1, &[]);
            assert!(farm.is_placed(first(other)), "other steps of the queue go on");
        }
        farm.wait(160);
    }
    let worker = farm.engine.workers().get(WorkerId(1)).unwrap();
    assert!(worker.health.out().is_none() && worker.health == Default::default(), "{:?}", worker.health);
    assert_eq!(farm.engine.job(job).unwrap().failed_attempts, 0);
    assert_eq!(farm.engine.queues().by_name().next().unwrap().mean_ms, None, "it says nothing of lengths");
    let again = farm.writes.iter().filter_map(|write| match write {
        Write::Again { failures, losses, attempt, .. } => Some((*failures, *losses, *attempt)),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), (1..=20).map(|attempt| (0, 0, attempt)).collect::<Vec<_>>());
    // Any other code is a failure, and there are no retries.
    farm.end(first(job), 1);
    assert!(farm.notes.iter().any(|note| matches!(note, Fact::JobEnded { state: JobState::Failed, .. })));
}

#[test]
fn a_code_means_busy_only_of_a_limit_of_its_step() {
    let mut farm = Farm::new(1, busy(10));
    let job = farm.submit(1, &["nuke"]);
    farm.end(first(job), 11);
    assert!(
        matches!(farm.notes.last(), Some(Fact::JobEnded { state: JobState::Failed, .. })),
        "{:?}",
        farm.notes
    );
}

#[test]
fn back_offs_double_to_a_bound_and_are_short_again_after_a_success() {
    let mut farm = Farm::new(1, busy(10));
    let job = farm.submit(3, &[MAYA]);
    let lasts_s = |farm: &Farm| {
        let known = farm.engine.licences().back_off(step(job)).unwrap();
        (known.until.since(farm.now) / NS_PER_S, known.times)
    };
    for (times, factor) in (1..).zip([1, 2, 4, 8, 16, 16, 16]) {
        assert!(factor <= BACK_OFF_FACTOR_MAX);
        farm.end(first(job), 12);
        assert_eq!(lasts_s(&farm), (10 * factor, times));
        // It was booked before, and says nothing new.
        farm.end(TaskId { job, index: 1 }, 12);
        assert_eq!(lasts_s(&farm).1, times);
        farm.wait(10 * factor - 1);
        assert!(!farm.is_placed(first(job)), "not before it is over");
        farm.wait(1);
        assert!(farm.is_placed(first(job)));
    }
    farm.end(first(job), 11);
    farm.end(TaskId { job, index: 2 }, 0);
    assert_eq!(lasts_s(&farm), (159, 0), "what is in force lasts");
    farm.wait(160);
    farm.end(first(job), 11);
    assert_eq!(lasts_s(&farm), (10, 1));
    farm.wait(10);
    farm.end(first(job), 0);
    let kept = farm.writes.iter().rev().find_map(|write| match write {
        Write::LicenceBackoffs { steps, .. } => Some(steps.len()),
        _ => None,
    });
    assert_eq!(kept, Some(0), "nothing is kept of what is over");
}

#[test]
fn a_stopped_job_does_not_wait_for_a_licence() {
    let mut farm = Farm::new(1, busy(10));
    let job = farm.submit(1, &[MAYA]);
    farm.tell(Event::Cancel { request: RequestId(9), job });
    farm.end(first(job), 11);
    assert!(matches!(farm.notes.last(), Some(Fact::JobEnded { state: JobState::Canceled, .. })));
    assert!(farm.engine.licences().back_off(step(job)).is_none());
}

/// A job that backs off since `since_s` and for 100 s, in the engine of a store that is opened `now_s`.
fn restored(since_s: u64, now_s: u64) -> Engine {
    let at = |s: u64| Time(s * NS_PER_S);
    let limits: BTreeSet<String> = [MAYA.to_owned()].into();
    let step = StepSpec { name: "s".to_owned(), tasks: 1, limits, ..StepSpec::default() };
    let spec = JobSpec { queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() };
    let (since, until) = (at(since_s), at(since_s + 100));
    let record = JobRecord {
        ended: Vec::new(),
        id: JobId(1),
        spec: spec.into(),
        created: Time(1),
        state: JobState::Active,
        stop: None,
        held: false,
        parked: None,
        tasks: Vec::new(),
        back_offs: [(0, BackOff { limit: MAYA.to_owned(), since, until, times: 3 })].into(),
    };
    let ground = StoredState {
        jobs: vec![record],
        limits: [(MAYA.to_owned(), busy(10))].into(),
        ..StoredState::default()
    };
    let mut engine = Engine::restore(Settings::default(), ground);
    let mut out = Outbox::default();
    engine.settle_restored(at(now_s), &mut out);
    engine.handle(at(now_s), Event::Tick, &mut out);
    engine.check().unwrap();
    engine
}

#[test]
fn a_back_off_goes_on_after_a_restart() {
    let key = step(JobId(1));
    let engine = restored(1_000, 1_050);
    assert_eq!(engine.licences().back_off(key).map(|known| known.until), Some(Time(1_100 * NS_PER_S)));
    assert_eq!(engine.next_wakeup(), Some(Time(1_100 * NS_PER_S)));
    assert_eq!(engine.licences().backing_off(MAYA), 1);
    let engine = restored(1_000, 1_100);
    assert_eq!((engine.licences().back_off(key), engine.licences().backing_off(MAYA)), (None, 0));
    assert_eq!(windlass_core::explain::task(&engine, first(JobId(1))).unwrap().state, TaskState::Ready);
    let engine = restored(1_000_000, 50);
    let until = engine.licences().back_off(key).map(|known| known.until);
    assert_eq!(until, Some(Time(150 * NS_PER_S)), "a clock that was set back makes none longer");
}

#[test]
fn workers_that_hold_all_that_they_may_are_not_looked_at() {
    let mut farm = Farm::new(200, Limit { per_worker: Some(1), ..Limit::default() });
    let job = farm.submit(201, &[MAYA]);
    assert!(farm.held().len() == 200 && farm.held().values().all(|held| *held == 1), "one on each");
    let seen = |farm: &Farm, limits: &[&str]| {
        let limits = limits.iter().map(ToString::to_string).collect();
        let class = Class { request: Resources::new(100, 0), limits, ..Class::default() };
        let mut seen = 0;
        farm.engine.workers().index().candidates(&class, |_| {
            seen += 1;
            false
        });
        seen
    };
    assert_eq!((seen(&farm, &[MAYA]), seen(&farm, &[]), seen(&farm, &["nuke"])), (0, 200, 200));
    assert_eq!(windlass_core::explain::waiting_tasks(&farm.engine), [(BlockedReason::NoLicence, 1)].into());
    farm.end(first(job), 0);
    assert!(farm.is_placed(TaskId { job, index: 200 }));
    farm.end(TaskId { job, index: 1 }, 0);
    assert_eq!(seen(&farm, &[MAYA]), 1);
}

#[test]
fn a_task_that_holds_nothing_else_gives_its_licence_back() {
    let mut farm = Farm::new(1, Limit { per_worker: Some(1), ..Limit::default() });
    let job = farm.submit_of(Resources::default(), 2, &[MAYA]);
    farm.end(first(job), 0);
    assert!(farm.is_placed(TaskId { job, index: 1 }));
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
        let mut farm = Farm::new(3, limit(per_worker));
        for (what, n) in steps {
            let running: Vec<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
            let before = farm.held();
            match what {
                0 | 1 => _ = farm.submit(n + 1, &[MAYA]),
                2 => _ = farm.submit(n + 1, &[]),
                3 => farm.wait(u64::from(n)),
                _ => {
                    if let Some(task) = running.get(n as usize % running.len().max(1)) {
                        farm.end(*task, [0, 1, 11, 0][usize::from(what - 4)]);
                    }
                }
            }
            let held = farm.held();
            let grew = |(worker, held): (&WorkerId, &u32)| held > before.get(worker).unwrap_or(&0);
            prop_assert!(held.iter().filter(|entry| grew(*entry)).all(|(_, held)| *held <= per_worker), "{:?}", held);
            prop_assert!(held.values().sum::<u32>() <= max.unwrap_or(u32::MAX), "{:?}", held);
            // Whoever waits for a licence finds none: where the farm has one left, all workers hold theirs.
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
