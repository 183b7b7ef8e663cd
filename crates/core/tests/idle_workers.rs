//! Why a worker gets no work: one true reason each, by the predicates of placement.

use crate::kit::{self, Farm, REQUEST, START, cores, set_limit, set_queue, spec, task};
use std::collections::BTreeSet;
use windlass_core::engine::{Event, Settings};
use windlass_core::explain::{PassedVerdict, WorkerExplanation, WorkerReason, vetoed_workers};
use windlass_core::ids::StepKey;
use windlass_core::job::{Hints, StepSpec};
use windlass_core::licences::Limit;
use windlass_core::plan::placement::Ineligible;
use windlass_core::plan::{PlanSettings, ReservationSettings};
use windlass_core::queues::QueueRecord;
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, WorkerId};

/// The first task that runs on the first worker succeeds, one second later.
fn finish_one(farm: &mut Farm) {
    farm.now = farm.now.after(NS_PER_S);
    let task = *farm.engine.workers().get(WorkerId(1)).unwrap().booked.running().first().unwrap();
    farm.end(task, 0);
}

/// A job of one step in a queue of its own name.
fn submit(farm: &mut Farm, step: StepSpec) {
    farm.submit(spec(&step.name.clone(), [step]));
}

fn explain(farm: &Farm, worker: u64) -> WorkerExplanation {
    windlass_core::explain::worker(&farm.engine, WorkerId(worker)).unwrap()
}

fn step(name: &str, cpus: u32, tasks: u32) -> StepSpec {
    StepSpec { name: name.to_owned(), ..kit::step(tasks, cores(cpus)) }
}

#[test]
fn a_worker_of_which_nobody_knows_has_no_reasons() {
    let farm = Farm::with_workers(Settings::default(), [cores(1)]);
    assert_eq!(windlass_core::explain::worker(&farm.engine, WorkerId(2)), None);
}

#[test]
fn workers_on_which_a_rule_vetoes_all_that_waits_are_named() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1), cores(1)]);
    let targets = BTreeSet::from(["w2".to_owned()]);
    submit(&mut farm, StepSpec { targets: targets.clone(), ..step("busy", 1, 1) });
    assert!(vetoed_workers(&farm.engine).is_empty(), "nothing waits");
    let hints = Hints { prefers: targets, ..Hints::default() };
    submit(&mut farm, StepSpec { hints, ..step("choosy", 1, 1) });
    let vetoed = vetoed_workers(&farm.engine);
    assert!(matches!(vetoed[..], [(WorkerId(1), Ineligible::Vetoed { .. })]), "{vetoed:?}");
    assert_eq!(explain(&farm, 1).reason, WorkerReason::Closed(vetoed[0].1.clone()));
    // Of what waits for want of room, no rule says anything.
    submit(&mut farm, step("wide", 9, 1));
    assert_eq!(vetoed_workers(&farm.engine), vetoed);
    let mut full = Farm::with_workers(Settings::default(), [cores(1)]);
    submit(&mut full, step("more", 1, 5));
    assert!(vetoed_workers(&full.engine).is_empty());
}

#[test]
fn an_idle_farm_has_nothing_to_do() {
    let why = explain(&Farm::with_workers(Settings::default(), [cores(2)]), 1);
    assert_eq!((why.reason, why.waiting_queues, why.load), (WorkerReason::NothingWaits, 0, 0.5));
    assert!(why.steps.is_empty() && why.lost.is_empty() && why.worker_blockers.is_empty());
}

#[test]
fn one_that_takes_nothing_says_so_before_all_else() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(2)]);
    farm.tell(Event::Drain { request: REQUEST, worker: WorkerId(1), draining: true, note: None });
    assert_eq!(explain(&farm, 1).reason, WorkerReason::Unfit(Ineligible::Draining(None)));
    submit(&mut farm, step("s", 1, 1));
    let why = explain(&farm, 1);
    assert_eq!(
        (why.reason, &why.worker_blockers[..]),
        (WorkerReason::Unfit(Ineligible::Draining(None)), &[Ineligible::Draining(None)][..])
    );
    let verdict = PassedVerdict::Unmet(vec![Ineligible::Draining(None)]);
    assert_eq!(why.steps[0].verdict, verdict, "it would fit the step");
}

#[test]
fn a_full_one_is_told_from_one_that_is_too_small() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(2), cores(1)]);
    submit(&mut farm, step("long", 2, 2));
    let (full, small) = (explain(&farm, 1), explain(&farm, 2));
    assert!(matches!(full.reason, WorkerReason::Closed(Ineligible::Busy(_))), "{full:?}");
    assert_eq!((full.steps[0].step, full.steps[0].tasks), (StepKey { job: JobId(1), step: 0 }, 1));
    assert_eq!(small.reason, WorkerReason::FitsNone);
    // What fits when there is room is nearer than what never does, whichever turn is first.
    submit(&mut farm, step("more", 1, 9));
    let small = explain(&farm, 2);
    assert!(matches!(small.reason, WorkerReason::Closed(Ineligible::Busy(_))), "{small:?}");
    assert_eq!(small.steps.len(), 2);
}

#[test]
fn a_quota_or_a_limit_holds_work_back_wherever_it_might_go() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4)]);
    let queue = QueueRecord { quota_cpu: Some(100), ..QueueRecord::named("s") };
    farm.tell(set_queue(queue));
    submit(&mut farm, step("s", 1, 2));
    let why = explain(&farm, 1);
    assert_eq!((why.reason, &why.steps[0].verdict), (WorkerReason::HeldBack, &PassedVerdict::Quota));
    farm.tell(set_limit("maya", Limit::of(0)));
    submit(&mut farm, StepSpec { limits: BTreeSet::from(["maya".to_owned()]), ..step("t", 1, 1) });
    let limit = PassedVerdict::Limit("maya".to_owned());
    let why = explain(&farm, 1);
    assert!(why.steps.iter().any(|passed| passed.verdict == limit), "{why:?}");
    assert_eq!(why.reason, WorkerReason::HeldBack);
}

#[test]
fn who_lost_knows_to_whom() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(4)]);
    submit(&mut farm, step("s", 1, 1));
    let (winner, loser) = (explain(&farm, 1), explain(&farm, 2));
    assert!(winner.lost.is_empty());
    let lost = &loser.lost[0];
    assert_eq!((lost.task, lost.winner, lost.at), (task(JobId(1), 0), WorkerId(1), farm.now));
    assert!(lost.winner_score >= lost.score, "{lost:?}");
    assert_eq!(loser.reason, WorkerReason::NothingWaits);
}

#[test]
fn a_worker_with_room_before_its_round_is_told_who_is_better() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(4)]);
    // Submitted, and no round yet.
    farm.accept(spec("q", [step("s", 1, 1)]));
    assert_eq!(explain(&farm, 1).reason, WorkerReason::Turn);
    let second = explain(&farm, 2);
    assert_eq!(second.reason, WorkerReason::OthersPreferred);
    let PassedVerdict::Preferred { best, here } = &second.steps[0].verdict else { panic!("{second:?}") };
    assert_eq!((best.worker, here.worker), (WorkerId(1), WorkerId(2)));
    assert!(best.load < here.load);
}

#[test]
fn a_reserved_worker_knows_for_whom() {
    let reserve = ReservationSettings { after_ns: 5 * NS_PER_S, ..ReservationSettings::default() };
    let mut farm = Farm::with_workers(
        Settings { plan: PlanSettings { reserve, ..PlanSettings::default() }, ..Settings::default() },
        [cores(4)],
    );
    submit(&mut farm, step("narrow", 1, 100));
    submit(&mut farm, step("wide", 4, 1));
    assert_eq!(explain(&farm, 1).reserved, None);
    for _ in 0..8 {
        finish_one(&mut farm);
    }
    let reserved = explain(&farm, 1).reserved.expect("the wide one was overtaken for long enough");
    assert_eq!(reserved.step, Some(StepKey { job: JobId(2), step: 0 }));
    assert_eq!(reserved.waits_since, Some(START));
}
