//! Tasks that a job has in other shards. Its home counts them as ready until they return; the rows of the tasks, which each
//! shard writes for its own, say which of them have begun.

use std::collections::BTreeMap;
use std::ops::Range;
use windlass_core::JobId;
use windlass_core::job::{Counts, Job};
use windlass_core::ranges::RangeSet;
use windlass_store::{Store, StoreError};

/// Ranges of tasks that one read asks about. Of jobs behind them what runs elsewhere counts as ready.
const RANGES_MAX: usize = 10_000;

/// The tasks of a job that are with other shards.
pub fn delegated(job: &Job) -> RangeSet {
    let mut away = RangeSet::default();
    for step in &job.steps {
        step.delegated.ranges().for_each(|range| away.insert_range(range));
    }
    away
}

/// How many of these tasks are booked or run, by job; no job of which none is.
pub async fn running<'a>(
    store: &Store,
    delegated: impl Iterator<Item = (JobId, &'a RangeSet)>,
) -> Result<BTreeMap<JobId, u32>, StoreError> {
    let mut asked: Vec<(JobId, Range<u32>)> = Vec::new();
    for (job, tasks) in delegated {
        asked.extend(tasks.ranges().map(|range| (job, range)));
        if asked.len() > RANGES_MAX {
            break;
        }
    }
    asked.truncate(RANGES_MAX);
    if asked.is_empty() {
        return Ok(BTreeMap::new());
    }
    store.booked_counts(asked).await
}

/// What a job counts of which so many tasks run in other shards. In a job that was stopped its home counts them as tasks
/// that never start.
pub fn counted(mut counts: Counts, running: u32) -> Counts {
    let mut left = running;
    for not_running in [&mut counts.ready, &mut counts.canceled, &mut counts.skipped] {
        let moved = left.min(*not_running);
        *not_running -= moved;
        left -= moved;
    }
    counts.active += running - left;
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_elsewhere_is_counted_as_running_and_all_tasks_are_as_many_as_before() {
        let counts = Counts { total: 10, waiting: 2, ready: 3, active: 1, succeeded: 4, ..Counts::default() };
        let seen = counted(counts, 2);
        assert_eq!((seen.ready, seen.active, seen.waiting, seen.total), (1, 3, 2, 10));
        assert_eq!(counted(counts, 9).active, 4, "more cannot run than are away");
        let stopped = Counts { total: 5, canceled: 4, active: 1, ..Counts::default() };
        let seen = counted(stopped, 3);
        assert_eq!((seen.canceled, seen.active), (1, 4));
        assert_eq!(counted(counts, 0), counts);
    }
}
