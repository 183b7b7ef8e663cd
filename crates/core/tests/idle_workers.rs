//! Why a worker gets no work: one true reason each, by the predicates of placement.

use std::collections::BTreeSet;
use windlass_core::engine::{Engine, Event, Hello, Outbox, Report, Settings, Submit};
use windlass_core::explain::{PassedVerdict, WorkerExplanation, WorkerReason};
use windlass_core::ids::StepKey;
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::licences::Limit;
use windlass_core::plan::ReservationSettings;
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::QueueRecord;
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, RequestId, Resources, TaskId, Time, WorkerId};

const REQUEST: RequestId = RequestId(1);

/// An engine whose writes are durable at once.
struct Farm {
    engine: Engine,
    now: Time,
}

impl Farm {
    /// Workers `w1`, `w2`, … with so many cpus.
    fn new(settings: Settings, cpus: &[u32]) -> Farm {
        let mut farm = Farm { engine: Engine::new(settings), now: Time(1_000 * NS_PER_S) };
        for (n, cpus) in (1..).zip(cpus) {
            farm.handle(Event::Hello(Box::new(Hello::new(
                &format!("w{n}"),
                n,
                Resources::new(cpus * 100, 0),
            ))));
        }
        farm
    }

    fn handle(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.engine.round(self.now, 100, &mut out);
        self.engine.committed(&out);
    }

    /// A job of one step in a queue of its own name.
    fn submit(&mut self, step: StepSpec) {
        let queue = step.name.clone();
        let spec = JobSpec { name: queue.clone(), queue, steps: vec![step], ..JobSpec::default() };
        let submit = Submit::new(REQUEST, spec);
        self.handle(Event::Submit(Box::new(submit)));
    }

    /// The first task that runs there succeeds, so many seconds later.
    fn finish(&mut self, worker: u64, after_s: u64) {
        self.now = self.now.after(after_s * NS_PER_S);
        let id = WorkerId(worker);
        let worker = self.engine.workers().get(id).unwrap();
        let (task, epoch) = (*worker.running.first().unwrap(), worker.epoch);
        let by = Report { worker: id, epoch, task, attempt: 1 };
        let result = TaskResult::bare(End::Exited(0));
        self.handle(Event::Finished { by, result });
    }

    fn why(&self, worker: u64) -> WorkerExplanation {
        windlass_core::explain::worker(&self.engine, WorkerId(worker)).unwrap()
    }
}

fn step(name: &str, cpus: u32, tasks: u32) -> StepSpec {
    StepSpec { name: name.to_owned(), tasks, request: Resources::new(cpus * 100, 0), ..StepSpec::default() }
}

#[test]
fn a_worker_of_which_nobody_knows_has_no_reasons() {
    let farm = Farm::new(Settings::default(), &[1]);
    assert_eq!(windlass_core::explain::worker(&farm.engine, WorkerId(2)), None);
}

#[test]
fn an_idle_farm_has_nothing_to_do() {
    let why = Farm::new(Settings::default(), &[2]).why(1);
    assert_eq!((why.reason, why.waiting_queues, why.load), (WorkerReason::NothingWaits, 0, 0.5));
    assert!(why.steps.is_empty() && why.lost.is_empty() && why.worker_blockers.is_empty());
}

#[test]
fn one_that_takes_nothing_says_so_before_all_else() {
    let mut farm = Farm::new(Settings::default(), &[2]);
    farm.handle(Event::Drain { request: REQUEST, worker: WorkerId(1), draining: true });
    assert_eq!(farm.why(1).reason, WorkerReason::Unfit(Ineligible::Draining));
    farm.submit(step("s", 1, 1));
    let why = farm.why(1);
    assert_eq!(
        (why.reason, &why.worker_blockers[..]),
        (WorkerReason::Unfit(Ineligible::Draining), &[Ineligible::Draining][..])
    );
    let verdict = PassedVerdict::Unmet(vec![Ineligible::Draining]);
    assert_eq!(why.steps[0].verdict, verdict, "it would fit the step");
}

#[test]
fn a_full_one_is_told_from_one_that_is_too_small() {
    let mut farm = Farm::new(Settings::default(), &[2, 1]);
    farm.submit(step("long", 2, 2));
    let (full, small) = (farm.why(1), farm.why(2));
    assert!(matches!(full.reason, WorkerReason::Closed(Ineligible::Busy(_))), "{full:?}");
    assert_eq!((full.steps[0].step, full.steps[0].tasks), (StepKey { job: JobId(1), step: 0 }, 1));
    assert_eq!(small.reason, WorkerReason::FitsNone);
    // What fits when there is room is nearer than what never does, whoever's turn is first.
    farm.submit(step("more", 1, 9));
    let small = farm.why(2);
    assert!(matches!(small.reason, WorkerReason::Closed(Ineligible::Busy(_))), "{small:?}");
    assert_eq!(small.steps.len(), 2);
}

#[test]
fn a_quota_or_a_limit_holds_work_back_wherever_it_might_go() {
    let mut farm = Farm::new(Settings::default(), &[4]);
    let queue = QueueRecord { quota_cpu: Some(100), ..QueueRecord::named("s") };
    farm.handle(Event::SetQueue { request: REQUEST, queue });
    farm.submit(step("s", 1, 2));
    let why = farm.why(1);
    assert_eq!((why.reason, &why.steps[0].verdict), (WorkerReason::HeldBack, &PassedVerdict::Quota));
    farm.handle(Event::SetLimit { request: REQUEST, name: "maya".to_owned(), limit: Some(Limit::of(0)) });
    farm.submit(StepSpec { limits: BTreeSet::from(["maya".to_owned()]), ..step("t", 1, 1) });
    let limit = PassedVerdict::Limit("maya".to_owned());
    let why = farm.why(1);
    assert!(why.steps.iter().any(|passed| passed.verdict == limit), "{why:?}");
    assert_eq!(why.reason, WorkerReason::HeldBack);
}

#[test]
fn who_lost_knows_to_whom() {
    let mut farm = Farm::new(Settings::default(), &[8, 4]);
    farm.submit(step("s", 1, 1));
    let (winner, loser) = (farm.why(1), farm.why(2));
    assert!(winner.lost.is_empty());
    let lost = &loser.lost[0];
    assert_eq!(
        (lost.task, lost.winner, lost.at),
        (TaskId { job: JobId(1), index: 0 }, WorkerId(1), farm.now)
    );
    assert!(lost.winner_score >= lost.score, "{lost:?}");
    assert_eq!(loser.reason, WorkerReason::NothingWaits);
}

#[test]
fn a_worker_with_room_before_its_round_is_told_who_is_better() {
    let mut farm = Farm::new(Settings::default(), &[8, 4]);
    let spec = JobSpec { queue: "q".to_owned(), steps: vec![step("s", 1, 1)], ..JobSpec::default() };
    let submit = Submit::new(REQUEST, spec);
    // Submitted, and no round yet.
    farm.engine.handle(farm.now, Event::Submit(Box::new(submit)), &mut Outbox::default());
    assert_eq!(farm.why(1).reason, WorkerReason::Turn);
    let second = farm.why(2);
    assert_eq!(second.reason, WorkerReason::OthersPreferred);
    let PassedVerdict::Preferred { best, here } = &second.steps[0].verdict else { panic!("{second:?}") };
    assert_eq!((best.worker, here.worker), (WorkerId(1), WorkerId(2)));
    assert!(best.load < here.load);
}

#[test]
fn a_reserved_worker_knows_for_whom() {
    let reserve = ReservationSettings { after_ns: 5 * NS_PER_S, ..ReservationSettings::default() };
    let mut farm = Farm::new(Settings { reserve, ..Settings::default() }, &[4]);
    farm.submit(step("narrow", 1, 100));
    farm.submit(step("wide", 4, 1));
    assert_eq!(farm.why(1).reserved, None);
    for _ in 0..8 {
        farm.finish(1, 1);
    }
    let reserved = farm.why(1).reserved.expect("the wide one was overtaken for long enough");
    assert_eq!(reserved.step, Some(StepKey { job: JobId(2), step: 0 }));
    assert_eq!(reserved.waits_since, Some(Time(1_000 * NS_PER_S)));
}
