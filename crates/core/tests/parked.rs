//! Jobs that the store has parked.

mod kit;

use kit::{Farm, REQUEST, START, cores, spec, step, task};
use std::cmp::Reverse;
use std::sync::Arc;
use windlass_core::JobId;
use windlass_core::engine::{Event, FetchQuery, Settings, StoredState, Write};
use windlass_core::ids::{ShardId, WHOLE_FARM};
use windlass_core::job::{BacklogCounts, JobRecord, JobSpec, JobState, Parked, QueuePos};
use windlass_core::residency::subqueues::ParkedCount;

const JOB: JobId = JobId(1);
const CLASS: u64 = 7;

fn parked_job(after: Vec<JobId>) -> (JobRecord, ParkedCount) {
    let spec = Arc::new(JobSpec { after, ..spec("q", [step(1, cores(1))]) });
    let backlog = BacklogCounts::of(&spec);
    let place = QueuePos { priority: Reverse(0), ranked: START, job: JOB };
    let parked = Some(Parked { class: CLASS, place, ready: START, backlog });
    let record = JobRecord { parked, ..JobRecord::new(JOB, spec, START, WHOLE_FARM) };
    (record, ParkedCount { queue: "q".to_owned(), class: CLASS, backlog })
}

/// The number of the page of parked jobs that the engine asked for.
fn asked_page(farm: &mut Farm) -> Option<u64> {
    let fetches = farm.take().fetches;
    fetches.iter().find(|fetch| matches!(fetch.wanted, FetchQuery::Page { .. })).map(|fetch| fetch.number)
}

#[test]
fn a_job_that_waits_for_another_shard_after_a_failed_batch_is_unparked() {
    let elsewhere = JobId(50);
    let (record, count) = parked_job(vec![elsewhere]);
    let (parked, peers) = (vec![count.clone()], [ShardId(2)].into());
    let stored = StoredState { parked, peers, ..StoredState::default() };
    let mut farm = Farm::restored(Settings::default(), stored, START);
    let page = asked_page(&mut farm).expect("a page is asked for");
    farm.hear(Event::Fetched { number: page, records: Some(vec![record.clone()]) });
    farm.handle(Event::Hold { request: REQUEST, job: JOB, held: true });
    farm.pipeline.next_batch(&mut farm.engine).expect("it is held and unparked");
    farm.pipeline.failed(&mut farm.engine);
    // How the other job ended is not in this record.
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![record], vec![count]);
    farm.commit();
    assert_eq!(farm.engine.awaited_elsewhere(), [elsewhere].into());
    let is_unpark = |write: &&Write| matches!(write, Write::Unpark { .. });
    assert_eq!(farm.take().writes.iter().filter(is_unpark).count(), 1);
    assert!(farm.engine.subqueues().is_empty());
    farm.hear(Event::EndedElsewhere([(elsewhere, Some(JobState::Succeeded))].into()));
    farm.hear(Event::Numbers { jobs: 10..20, workers: 10..20 });
    farm.worker("w", cores(1));
    assert!(farm.is_placed(task(JOB, 0)));
}
