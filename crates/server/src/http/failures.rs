//! Why the tasks of a job failed: the failed tasks by cause, each cause with its first task and the last lines of that
//! one's standard error.

use super::extract::Path;
use super::reasons::failure_of;
use super::tasks::{Snapshot, failed_task};
use super::{App, jobs, tails};
use crate::api_error::ApiError;
use crate::reader::{Reader, Whole};
use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use windlass_api::{CauseWord, FailureGroup, Failures, Task};
use windlass_core::{JobId, TaskId, WorkerId};
use windlass_store::StoredTask;

/// Failed tasks read from the store at a time, and the tasks among which they are looked for.
const ROWS_READ: usize = 4_096;
const TASKS_READ: u32 = 1 << 18;
/// Failed tasks that one request looks at, and how long it looks. The answer has the number of the others.
const LOOKED_AT_MAX: usize = 65_536;
const LOOK_TIME: Duration = Duration::from_millis(500);
/// Causes that are told apart while they are counted, and those that the answer has. The first task of each cause in the
/// answer is read with its output.
const CAUSES_COUNTED_MAX: usize = 1_000;
const GROUPS_MAX: usize = 20;
/// Ids of tasks, and names of workers, that a group has.
const EXAMPLES_MAX: usize = 8;

/// Says why the tasks of a job failed, by cause. Of a job with very many failed tasks it looks at the first ones.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/failures", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, description = "The failed tasks by cause", body = Failures),
    (status = 404, body = windlass_api::ErrorBody)))]
pub async fn failures(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<u64>,
) -> Result<Json<Failures>, ApiError> {
    let job = jobs::find(&app.handle, JobId(id)).await?;
    let failed = job.counts.failed;
    let mut answer = Failures { job: id, failed, stopped: job.stopped.clone(), ..Failures::default() };
    if failed > 0 {
        let job = Snapshot::of_ended(&app.handle, JobId(id)).await?;
        let causes = Causes::look(&app, &reader, &job, failed).await?;
        answer.not_looked_at = failed.saturating_sub(causes.looked_at);
        answer.other_tasks = causes.other_tasks();
        answer.groups = causes.groups(&app, &reader, &job).await?;
    }
    Ok(Json(answer))
}

/// The failed tasks of a job by the sentence that says how they failed, as far as the reader is told it.
#[derive(Default)]
struct Causes {
    by_summary: BTreeMap<String, CauseCount>,
    looked_at: u32,
}

/// The tasks that failed for one cause.
struct CauseCount {
    cause: CauseWord,
    tasks: u32,
    first: StoredTask,
    /// Indexes of the first tasks.
    examples: Vec<u32>,
    workers: BTreeSet<WorkerId>,
}

impl Causes {
    /// Looks at the failed tasks in order of their numbers, until it has seen `failed` of them or as many as it may.
    async fn look(app: &App, reader: &Reader, job: &Snapshot, failed: u32) -> Result<Causes, ApiError> {
        let (begun, mut causes, mut from) = (Instant::now(), Causes::default(), 0);
        while causes.looked_at < failed && from < job.total() {
            let to = from.saturating_add(TASKS_READ).min(job.total());
            let rows = app.handle.store().failed_tasks(job.id, from..to, ROWS_READ).await?;
            from = match rows.last() {
                Some(last) if rows.len() == ROWS_READ => last.row.index + 1,
                _ => to,
            };
            rows.into_iter().for_each(|stored| causes.take(reader, job, stored));
            if causes.looked_at as usize >= LOOKED_AT_MAX || begun.elapsed() >= LOOK_TIME {
                break;
            }
        }
        Ok(causes)
    }

    fn take(&mut self, reader: &Reader, job: &Snapshot, stored: StoredTask) {
        let index = stored.row.index;
        let step = &job.spec.steps[job.step_of(index).0];
        let failure = failure_of(TaskId { job: job.id, index }, step, &stored);
        let failure = reader.told(Whole::new(job.spec.clone(), failure));
        self.looked_at += 1;
        if !self.by_summary.contains_key(&failure.summary) && self.by_summary.len() >= CAUSES_COUNTED_MAX {
            return;
        }
        let worker = stored.row.worker;
        let count = self.by_summary.entry(failure.summary).or_insert_with(|| CauseCount {
            cause: failure.cause,
            tasks: 0,
            first: stored,
            examples: Vec::new(),
            workers: BTreeSet::new(),
        });
        count.tasks += 1;
        count.workers.insert(worker);
        if count.examples.len() < EXAMPLES_MAX {
            count.examples.push(index);
        }
    }

    /// The most frequent causes; of equally frequent ones that with the lowest task first.
    fn most_frequent(&self) -> Vec<(&String, &CauseCount)> {
        let mut all: Vec<(&String, &CauseCount)> = self.by_summary.iter().collect();
        all.sort_by_key(|(_, count)| (Reverse(count.tasks), count.first.row.index));
        all.truncate(GROUPS_MAX);
        all
    }

    /// The tasks that were looked at and are in no group of the answer.
    fn other_tasks(&self) -> u32 {
        let told: u32 = self.most_frequent().iter().map(|(_, count)| count.tasks).sum();
        self.looked_at - told
    }

    /// The groups of the answer, with the output of the first task of each.
    async fn groups(
        &self,
        app: &App,
        reader: &Reader,
        job: &Snapshot,
    ) -> Result<Vec<FailureGroup>, ApiError> {
        let counts = self.most_frequent();
        let of_count =
            |(_, count): &(&String, &CauseCount)| job.task(count.first.row.index, Some(&count.first));
        let mut firsts: Vec<Whole<Task>> = counts.iter().map(of_count).collect();
        job.fill_values(&app.handle, &mut firsts, reader).await?;
        join_all(firsts.iter_mut().map(|task| tails::add(app, reader, task))).await;
        let firsts = reader.told_each(firsts);
        let groups = counts.iter().zip(&firsts).filter_map(|((summary, count), first)| {
            let id = |index: &u32| TaskId { job: job.id, index: *index }.to_string();
            let names = count.workers.iter().filter_map(|worker| job.workers.get(worker));
            Some(FailureGroup {
                cause: count.cause,
                summary: (*summary).clone(),
                tasks: count.tasks,
                task_examples: count.examples.iter().map(id).collect(),
                workers: count.workers.len(),
                worker_examples: names.take(EXAMPLES_MAX).cloned().collect(),
                first: failed_task(first)?,
            })
        });
        Ok(groups.collect())
    }
}
