//! What workers measure of themselves: how it reaches the rules, and when it keeps work from them.

use crate::kit::{self, Farm, GIB, hello, spec, task};
use std::collections::BTreeSet;
use windlass_core::engine::{Event, Hello, Reply, Settings, Unplaceable};
use windlass_core::explain::Reason;
use windlass_core::job::{Hints, StepSpec};
use windlass_core::load::pressure::{DiskSpace, LoadReport};
use windlass_core::plan::placement::Ineligible;
use windlass_core::tags::{CORE_SCORE, GPUS_LATE};
use windlass_core::time::NS_PER_S;
use windlass_core::{Resources, WorkerId};

/// A farm with one worker, and an attribute of it.
fn farm_with(attribute: Option<(&str, &str)>) -> Farm {
    let mut farm = Farm::new(Settings::default());
    let attributes = attribute.map(|(key, value)| (key.to_owned(), [value.to_owned()].into()));
    let hello = hello("w", Resources::new(200, GIB));
    farm.join(Hello { fences: true, new_link: false, attributes: attributes.into_iter().collect(), ..hello });
    farm
}

fn report(farm: &mut Farm, report: LoadReport) {
    farm.tell(Event::Load { worker: WorkerId(1), report: Box::new(report) });
}

fn core_score(farm: &Farm) -> Option<f64> {
    farm.engine.workers().get(WorkerId(1)).unwrap().core_score()
}

fn measured(score: f64) -> LoadReport {
    LoadReport { core_score: Some(score), ..LoadReport::default() }
}

#[test]
fn a_measured_core_counts_unless_an_operator_gave_it() {
    let mut farm = farm_with(None);
    assert_eq!(core_score(&farm), None);
    report(&mut farm, measured(1_200.0));
    assert_eq!(core_score(&farm), Some(1_200.0));
    let mut given = farm_with(Some((CORE_SCORE, "800")));
    report(&mut given, measured(1_200.0));
    assert_eq!(core_score(&given), Some(800.0));
    let mut nonsense = farm_with(Some((CORE_SCORE, "fast")));
    report(&mut nonsense, measured(1_200.0));
    assert_eq!(core_score(&nonsense), Some(1_200.0), "a tag that is not a number gives nothing");
}

#[test]
fn a_core_is_as_fast_as_before_when_its_report_is_stale() {
    let mut farm = farm_with(None);
    report(&mut farm, measured(1_200.0));
    farm.now = farm.now.after(10 * NS_PER_S);
    farm.tell(Event::Tick);
    assert!(farm.engine.workers().get(WorkerId(1)).unwrap().reported.load().is_none());
    assert_eq!(core_score(&farm), Some(1_200.0));
    report(&mut farm, LoadReport::default());
    assert_eq!(core_score(&farm), None, "its agent is another one, and does not know");
    report(&mut farm, measured(0.0));
    assert_eq!(core_score(&farm), None, "0 is not a speed");
}

/// On a disk of 100 GiB.
fn space(free_bytes: u64) -> Option<DiskSpace> {
    Some(DiskSpace { free_bytes, total_bytes: 100 * GIB })
}

#[test]
fn one_file_system_without_space_is_one_reason() {
    let mut farm = farm_with(None);
    let job = |farm: &mut Farm| farm.submit(spec("q", [kit::step(1, Resources::new(100, 0))]));
    report(&mut farm, LoadReport { state_space: space(0), session_space: space(0), ..LoadReport::default() });
    let first = job(&mut farm);
    let why = farm.why(task(first, 0));
    let needs = 640 << 20;
    assert_eq!(why.reason, Reason::Closed(Ineligible::LowSpace { directory: "state", free: 0, needs }));
    let workers = farm.engine.workers();
    let reasons = windlass_core::plan::placement::worker_blockers(workers.get(WorkerId(1)).unwrap());
    assert_eq!(reasons.count(), 1);
    report(
        &mut farm,
        LoadReport { state_space: space(GIB), session_space: space(1), ..LoadReport::default() },
    );
    let why = farm.why(task(first, 0));
    assert_eq!(why.reason, Reason::Closed(Ineligible::LowSpace { directory: "session", free: 1, needs }));
    report(
        &mut farm,
        LoadReport { state_space: space(GIB), session_space: space(GIB), ..LoadReport::default() },
    );
    assert_eq!(farm.why(task(first, 0)).state, windlass_core::job::TaskState::Booked);
}

#[test]
fn network_bound_steps_are_judged_again_as_soon_as_the_network_is_free() {
    let mut farm = farm_with(None);
    let hints = Hints { network_bound: true, ..Hints::default() };
    let bound = StepSpec { hints, ..kit::step(2, Resources::new(100, 0)) };
    let used = |percent| LoadReport { network_percent: Some(percent), ..LoadReport::default() };
    report(&mut farm, used(95.0));
    let job = farm.submit(spec("q", [bound]));
    let state = |farm: &Farm, index| farm.why(task(job, index)).state;
    assert_eq!(
        state(&farm, 0),
        windlass_core::job::TaskState::Booked,
        "nothing runs there, and no other is free"
    );
    assert_eq!(farm.why(task(job, 1)).reason, Reason::Closed(Ineligible::NetworkInUse));
    report(&mut farm, used(72.0));
    assert_eq!(farm.why(task(job, 1)).reason, Reason::Closed(Ineligible::NetworkInUse));
    report(&mut farm, used(71.0));
    assert_eq!(state(&farm, 1), windlass_core::job::TaskState::Booked);
}

#[test]
fn gpus_that_a_worker_does_not_know_yet_refuse_no_submission() {
    let mut farm = Farm::new(Settings::default());
    let with_gpus = |gpus| Resources { gpus, ..Resources::new(200, GIB) };
    let late = [(GPUS_LATE.to_owned(), BTreeSet::new())].into();
    farm.join(Hello { attributes: late, ..hello("w", with_gpus(0)) });
    let submit =
        |farm: &mut Farm, request: Resources| match farm.submission(spec("q", [kit::step(1, request)])) {
            Reply::Submitted { job, unplaceable, .. } => (job, unplaceable),
            other => panic!("{other:?}"),
        };
    let is_too_small = |steps: Vec<Unplaceable>| matches!(steps[0].reasons[0].0, Ineligible::TooSmall(_));
    let (job, unplaceable) = submit(&mut farm, with_gpus(2));
    assert!(unplaceable.is_empty(), "{unplaceable:?}");
    let (_, unplaceable) = submit(&mut farm, Resources { gpus: 2, ..Resources::new(300, 0) });
    assert!(is_too_small(unplaceable));
    farm.settle();
    let why = farm.why(task(job, 0));
    assert_eq!(why.reason, Reason::FitsNowhere);
    assert_eq!(why.ruled_out[0].0, Ineligible::GpusLate);
    farm.join(hello("w", with_gpus(1)));
    let (_, unplaceable) = submit(&mut farm, with_gpus(2));
    assert!(is_too_small(unplaceable), "now it is known");
    farm.join(hello("w", with_gpus(2)));
    farm.settle();
    assert!(farm.is_placed(task(job, 0)));
}
