//! Lists of jobs look at a bounded number of rows: one suite for all stores.

use crate::support::{commit, on_all};
use std::cmp::Reverse;
use std::sync::Arc;
use windlass_core::engine::Write;
use windlass_core::job::{BacklogCounts, Counts, JobSpec, JobState, Parked, QueuePos, StepSpec};
use windlass_core::{JobId, Time};
use windlass_store::{JobFilter, Store};

/// Jobs 1 to 38 have ended, 39 is active, and 40 is parked. The third alone is called rare.
async fn fill(store: &Store) {
    let counts = Counts::default();
    for id in 1..=40 {
        let name = if id == 3 { "rare" } else { "often" };
        let step =
            StepSpec { name: "main".to_owned(), tasks: 1, body: Arc::from(*b"x"), ..StepSpec::default() };
        let spec = JobSpec {
            name: name.to_owned(),
            queue: "q".to_owned(),
            user: "u".to_owned(),
            steps: vec![step],
            ..JobSpec::default()
        };
        commit(store, vec![Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(id) }]).await;
    }
    for id in 1..=38 {
        let state = JobState::Succeeded;
        commit(store, vec![Write::JobEnd { job: JobId(id), state, at: Time(99), counts }]).await;
    }
    let position = QueuePos { priority: Reverse(0), ranked: Time(1), job: JobId(40) };
    let backlog = BacklogCounts { jobs: 1, ready: 1, waiting: 0 };
    let parked = Parked { class: 1, position, ready: Time(1), backlog };
    commit(store, vec![Write::Park { job: JobId(40), queue: "q".to_owned(), parked }]).await;
}

#[test]
fn a_filter_that_few_jobs_pass_is_looked_for_part_by_part() {
    on_all(async |store| {
        fill(&store).await;
        let rare = JobFilter { name: Some("rare".into()), ..JobFilter::default() };
        let (mut before, mut found, mut seen) = (None, Vec::new(), Vec::new());
        loop {
            let part = store.jobs(rare.clone(), before, 5, 10).await.unwrap();
            seen.push((part.rows, part.next.map(|id| id.0)));
            found.extend(part.jobs.iter().map(|job| job.id.0));
            before = part.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, [3]);
        assert_eq!(seen, [(10, Some(31)), (10, Some(21)), (10, Some(11)), (10, Some(1)), (0, None)]);
        // A part that is full ends there.
        let part = store.jobs(JobFilter::default(), Some(JobId(9)), 2, 10).await.unwrap();
        assert_eq!((part.jobs.len(), part.rows, part.next), (2, 2, Some(JobId(7))));
    });
}

#[test]
fn a_list_of_active_jobs_looks_at_no_ended_ones() {
    on_all(async |store| {
        fill(&store).await;
        let active = JobFilter { states: vec![JobState::Active], ..JobFilter::default() };
        let list = async |filter: &JobFilter, before: Option<u64>, limit| {
            let part = store.jobs(filter.clone(), before.map(JobId), limit, 10).await.unwrap();
            (part.jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), part.rows, part.next.map(|id| id.0))
        };
        assert_eq!(list(&active, None, 5).await, (vec![40, 39], 2, None));
        assert_eq!(list(&active, None, 1).await, (vec![40], 1, Some(40)));
        assert_eq!(list(&active, Some(40), 1).await, (vec![39], 1, Some(39)));
        let named = JobFilter { name: Some("rare".into()), ..active };
        assert_eq!(list(&named, None, 5).await, (vec![], 2, None));
    });
}
