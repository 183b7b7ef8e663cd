//! What a submission would do, tried on a copy of the engine.

use crate::kit::{Farm, cores, set_queue, spec, step, task};
use windlass_core::RequestId;
use windlass_core::engine::{Refusal, Settings, Submit};
use windlass_core::explain::{DryRun, Reason, dry_run};
use windlass_core::job::{Dependency, DependencyKind, JobSpec, JobState, StepSpec};
use windlass_core::queues::QueueRecord;

fn tried(farm: &Farm, spec: &JobSpec) -> Result<DryRun, Refusal> {
    dry_run(farm.engine.clone(), farm.now, Submit::new(RequestId(0), spec.clone()), None)
}

#[test]
fn a_dry_run_says_what_the_submission_then_does() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(2), cores(1)]);
    let first = step(5, cores(1));
    let second = StepSpec {
        name: "t".to_owned(),
        depends: vec![Dependency { on: 0, kind: DependencyKind::Step }],
        ..step(2, cores(1))
    };
    let wanted = spec("q", [first, second]);
    let before = farm.engine.clone();
    let said = tried(&farm, &wanted).unwrap();
    assert_eq!(farm.engine, before, "nothing is submitted");
    let job = farm.submit(wanted);
    assert_eq!((said.job, said.existing), (job, false));
    assert_eq!(said.steps[0].starts.values().copied().collect::<Vec<_>>(), [2, 1]);
    assert_eq!((said.steps[0].waiting, said.steps[1].waiting), (2, 2));
    for (index, tried) in [(3, &said.steps[0]), (5, &said.steps[1])] {
        let (first, why) = tried.first_waiting.as_ref().unwrap();
        assert_eq!(*first, task(job, index));
        assert_eq!(why.reason, farm.why(*first).reason);
    }
    assert!(matches!(&said.steps[1].first_waiting, Some((_, why)) if matches!(why.reason, Reason::Steps(_))));
    assert!((0..3).all(|index| farm.is_placed(task(job, index))));
}

#[test]
fn a_dry_run_says_what_would_be_refused_and_what_waits() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(2)]);
    let twice = spec("q", [step(1, cores(1)), step(1, cores(1))]);
    assert_eq!(tried(&farm, &twice), Err(Refusal::DuplicateStep("s".to_owned())));
    farm.tell(set_queue(QueueRecord { paused: Some("backup".to_owned()), ..QueueRecord::named("q") }));
    let said = tried(&farm, &spec("q", [step(1, cores(1))])).unwrap();
    let reason = said.steps[0].first_waiting.as_ref().map(|(_, why)| why.reason.clone());
    assert_eq!(reason, Some(Reason::Paused("backup".to_owned())));
    let large = tried(&farm, &spec("p", [step(1, cores(9))])).unwrap();
    assert_eq!((large.unplaceable.len(), large.steps[0].waiting), (1, 1));
    // A job that is there under its key is named.
    let keyed = JobSpec { key: Some("k".to_owned()), ..spec("p", [step(1, cores(1))]) };
    let job = farm.submit(keyed.clone());
    let again = tried(&farm, &keyed).unwrap();
    assert_eq!((again.job, again.existing, again.steps), (job, true, Vec::new()));
    // One that comes after a job waits for it.
    let running = farm.submit(spec("p", [step(1, cores(1))]));
    let later = JobSpec { after: [running].into_iter().collect(), ..spec("p", [step(1, cores(1))]) };
    let submit = Submit {
        outcomes: [(running, JobState::Active)].into_iter().collect(),
        ..Submit::new(RequestId(0), later)
    };
    let said = dry_run(farm.engine.clone(), farm.now, submit, None).unwrap();
    let reason = said.steps[0].first_waiting.as_ref().map(|(_, why)| why.reason.clone());
    assert_eq!(reason, Some(Reason::AfterJobs(vec![running])));
}
