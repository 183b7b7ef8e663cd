//! Jobs that the store has parked.

use crate::kit::{self, Farm, REQUEST, START, cores, spec, step, task};
use std::cmp::Reverse;
use windlass_core::JobId;
use windlass_core::engine::{Event, FetchQuery, Settings, StoredState, Write};
use windlass_core::job::{BacklogCounts, JobRecord, JobSpec, Parked, QueuePos};
use windlass_core::residency::subqueues::ParkedCount;

const FIRST: JobId = JobId(1);
const NEXT: JobId = JobId(2);
const CLASS: u64 = 7;

/// The job that comes after the first one, as a store has it parked.
fn parked_job() -> (JobRecord, ParkedCount) {
    let spec = JobSpec { after: vec![FIRST], ..spec("q", [step(1, cores(1))]) };
    let backlog = BacklogCounts::of(&spec);
    let position = QueuePos { priority: Reverse(0), ranked: START, job: NEXT };
    let parked = Some(Parked { class: CLASS, position, ready: START, backlog });
    let record = JobRecord { parked, ..kit::record(NEXT.0, spec, Vec::new()) };
    (record, ParkedCount { queue: "q".to_owned(), class: CLASS, backlog })
}

/// The number of the page of parked jobs that the engine asked for.
fn asked_page(farm: &mut Farm) -> Option<u64> {
    let fetches = farm.take().fetches;
    fetches.iter().find(|fetch| matches!(fetch.wanted, FetchQuery::Page { .. })).map(|fetch| fetch.number)
}

#[test]
fn a_parked_job_that_waits_again_after_a_failed_batch_is_unparked() {
    // The next job was retried after the first one had failed, and was parked. Then the first one was retried, too.
    let (record, count) = parked_job();
    let jobs = vec![kit::record(FIRST.0, spec("q", [step(1, cores(1))]), Vec::new())];
    let stored = StoredState { jobs, parked: vec![count.clone()], ..StoredState::default() };
    let mut farm = Farm::restored(Settings::default(), stored, START);
    let page = asked_page(&mut farm).expect("a page is asked for");
    farm.hear(Event::Fetched { number: page, records: Some(vec![record.clone()]) });
    farm.handle(Event::Hold { request: REQUEST, job: NEXT, held: true });
    farm.pipeline.next_batch(&mut farm.engine).expect("it is held and unparked");
    farm.pipeline.failed(&mut farm.engine);
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![record], vec![count]);
    farm.commit();
    let is_unpark = |write: &&Write| matches!(write, Write::Unpark { .. });
    assert_eq!(farm.take().writes.iter().filter(is_unpark).count(), 1);
    farm.worker("w", cores(1));
    assert!(!farm.is_placed(task(NEXT, 0)));
    farm.end(task(FIRST, 0), 0);
    assert!(farm.is_placed(task(NEXT, 0)));
}
