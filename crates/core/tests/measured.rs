//! What workers measure of themselves: how it reaches the rules, and when it keeps work from them.

mod kit;

use kit::{Farm, GIB, hello};
use windlass_core::engine::{Event, Hello, Settings};
use windlass_core::load::pressure::LoadReport;
use windlass_core::tags::CORE_SCORE;
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
    assert!(farm.engine.workers().get(WorkerId(1)).unwrap().report().is_none());
    assert_eq!(core_score(&farm), Some(1_200.0));
    report(&mut farm, LoadReport::default());
    assert_eq!(core_score(&farm), None, "its agent is another one, and does not know");
    report(&mut farm, measured(0.0));
    assert_eq!(core_score(&farm), None, "0 is no speed");
}
