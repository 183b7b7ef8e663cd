//! The writes that the engines of a divided farm had still to make when they ended. Releases before this one could
//! divide a farm into shards, each with an engine of its own. A job was one shard's, its home, which delegated tasks to
//! others. When such a farm is opened, one engine goes on with all of it.
//!
//! - All shards wrote the attempts of tasks into one table. So the row of a task has its outcome, whatever messages
//!   about it were still on their way. A task without a row, or with a ready one, has not started.
//! - Decisions of the home may be missing: that a job stops because a task failed, that it ended, and that its
//!   dependents stop. This module derives them by the rules of the home's engine. An engine that starts does not derive
//!   them, because the engine of an undivided farm writes them in the batch that ends the task.
//! - It runs on the last schema that had shards, before the migration that takes these away, and may run again.

use crate::gather::Gather;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use windlass_core::engine::{Engine, Settings, StoredState, Write};
use windlass_core::job::{Counts, FailFast, JobRecord, JobSpec, JobState, Stop, TaskRow, TaskState};
use windlass_core::{Epoch, JobId, Time, WorkerId};

/// True of a farm that may be divided, by the schema that had shards.
pub const IS_DIVIDED: &str = "SELECT EXISTS (SELECT 1 FROM delegated) OR EXISTS (SELECT 1 FROM messages)
    OR (SELECT count(*) > 1 FROM farm_shards)";

/// An active job that comes after others, or of which other shards had tasks.
pub struct OpenJob {
    /// The number of the shard that accepted it.
    home: i64,
    spec: Arc<JobSpec>,
    stop: Option<Stop>,
    tasks: Gather,
}

/// The home and the state of each job that an open one comes after.
pub type Predecessors = BTreeMap<JobId, (i64, JobState)>;

impl OpenJob {
    pub fn new(home: i64, spec: JobSpec, stop: Option<Stop>) -> OpenJob {
        OpenJob { home, spec: Arc::new(spec), stop, tasks: Gather::default() }
    }

    /// Adds the next task that was ever booked, in the order of the tasks.
    pub fn add_task(&mut self, index: u32, state: TaskState) {
        self.tasks.row(TaskRow {
            index,
            state,
            attempt: 0,
            failures: 0,
            losses: 0,
            worker: WorkerId(0),
            epoch: Epoch(0),
            booked: Time(0),
            amounts: None,
        });
    }

    pub fn after(&self) -> &[JobId] {
        &self.spec.after
    }

    fn missing_stop(&self, predecessors: &Predecessors) -> Option<Stop> {
        if self.stop.is_some() {
            return None;
        }
        let has_failed = self.tasks.ended().iter().any(|part| part.state == TaskState::Failed);
        if has_failed && self.spec.fail_fast != FailFast::No {
            return Some(Stop::FailFast);
        }
        // A shard looked now and then for the ends of other shards' jobs. A job that was tried may have been retried
        // after such an end, which does not stop it again.
        let is_untried = self.tasks.open().is_empty() && self.tasks.ended().is_empty();
        let is_lost = |first: &&JobId| {
            let found = predecessors.get(*first).filter(|(home, _)| *home != self.home);
            found.is_some_and(|(_, state)| matches!(state, JobState::Failed | JobState::Canceled))
        };
        self.spec.after.iter().find(is_lost).filter(|_| is_untried).map(|first| Stop::After(*first))
    }

    /// The state in which it has ended; `None` if a task of it runs or can start.
    fn outcome(&self, id: JobId, predecessors: &Predecessors) -> Option<(JobState, Counts)> {
        let is_active = |first: &JobId| matches!(predecessors.get(first), Some((_, JobState::Active)));
        let waits = self.stop.is_none() && self.spec.after.iter().any(is_active);
        if waits || self.tasks.open().iter().any(|row| row.state == TaskState::Booked) {
            return None;
        }
        let record = JobRecord { stop: self.stop, ..JobRecord::new(id, self.spec.clone(), Time(0)) };
        let record = self.tasks.clone().into_record(record);
        let ground = StoredState { jobs: vec![record], ..StoredState::default() };
        let engine = Engine::restore(Settings::default(), ground);
        let mut job = engine.job(id).filter(|job| job.is_settled())?.clone();
        let state = job.end_state();
        job.ended = Some(state);
        Some((state, job.counts()))
    }
}

/// The missing writes of these jobs: stops and ends, in an order in which they may be applied.
pub fn unwritten(mut open: BTreeMap<JobId, OpenJob>, mut predecessors: Predecessors, at: Time) -> Vec<Write> {
    let mut writes = Vec::new();
    for (id, job) in &mut open {
        if let Some(stop) = job.missing_stop(&predecessors) {
            job.stop = Some(stop);
            writes.push(Write::JobStop { job: *id, stop });
        }
    }
    let mut next: VecDeque<JobId> = open.keys().copied().collect();
    while let Some(id) = next.pop_front() {
        let Some((state, counts)) = open.get(&id).and_then(|job| job.outcome(id, &predecessors)) else {
            continue;
        };
        open.remove(&id);
        if let Some((_, known)) = predecessors.get_mut(&id) {
            *known = state;
        }
        writes.push(Write::JobEnd { job: id, state, at, counts });
        if state == JobState::Succeeded {
            continue;
        }
        let stopped = open.iter_mut().filter(|(_, job)| job.stop.is_none() && job.spec.after.contains(&id));
        for (dependent, job) in stopped {
            let stop = Stop::After(id);
            job.stop = Some(stop);
            writes.push(Write::JobStop { job: *dependent, stop });
            next.push_back(*dependent);
        }
    }
    writes
}

/// The time that the ends of jobs get.
pub fn now() -> Time {
    Time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
}
