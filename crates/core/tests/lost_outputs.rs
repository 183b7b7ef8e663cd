//! Tasks that succeeded, and whose outputs could not be kept.

use crate::kit::{Farm, cores, spec, step, task};
use windlass_core::JobId;
use windlass_core::bounds::LOSSES_MAX;
use windlass_core::engine::{Event, Settings, Write};
use windlass_core::job::{End, LaunchFault, TaskResult, TaskState};

/// The task of a job succeeds for nothing.
fn lose(farm: &mut Farm, job: JobId, fault: LaunchFault) {
    let by = farm.report(task(job, 0));
    farm.tell(Event::Started { by, at: farm.now });
    let result = TaskResult {
        started: Some(farm.now),
        finished: Some(farm.now),
        ..TaskResult::bare(End::OutputsLost { why: "no room".to_owned(), fault })
    };
    farm.tell(Event::Finished { by, result });
}

/// How the last attempt left its task.
fn left(farm: &mut Farm) -> Option<TaskState> {
    let writes = farm.take().writes.into_iter();
    let mut ends = writes.filter_map(|write| match write {
        Write::Requeued { .. } => Some(TaskState::Ready),
        Write::End { state, .. } => Some(state),
        _ => None,
    });
    ends.next_back()
}

#[test]
fn what_its_worker_could_not_keep_is_made_again_elsewhere() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1), cores(1)]);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    let first = farm.engine.attempt(task(job, 0)).unwrap().worker;
    lose(&mut farm, job, LaunchFault::Worker);
    assert_eq!(left(&mut farm), Some(TaskState::Ready));
    let attempt = farm.engine.attempt(task(job, 0)).expect("it runs again");
    assert_ne!(attempt.worker, first);
    assert_eq!((attempt.number, attempt.failures, attempt.losses), (2, 0, 1), "it has no retries");
    farm.end(task(job, 0), 0);
    assert_eq!(left(&mut farm), Some(TaskState::Succeeded));
}

#[test]
fn a_task_whose_outputs_are_lost_each_time_fails_in_the_end() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    for _ in 0..LOSSES_MAX {
        lose(&mut farm, job, LaunchFault::Worker);
        assert_eq!(left(&mut farm), Some(TaskState::Ready));
    }
    lose(&mut farm, job, LaunchFault::Worker);
    assert_eq!(left(&mut farm), Some(TaskState::Failed));
}

#[test]
fn what_the_job_may_not_keep_is_its_failure() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1), cores(1)]);
    let job = farm.submit(spec("q", [step(1, cores(1))]));
    lose(&mut farm, job, LaunchFault::Job);
    assert_eq!(left(&mut farm), Some(TaskState::Failed));
    let healthy = |name| farm.engine.workers().by_name(name).unwrap().health == Default::default();
    assert!(["w1", "w2"].into_iter().all(healthy), "it says nothing of them");
}
