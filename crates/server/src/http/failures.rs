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
    (status = 200, description = "The failed tasks by cause", body = Failures)))]
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
            let rows = windlass_store::failed_tasks(app.handle.store(), job.id, from..to, ROWS_READ).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Auth;
    use crate::config::Config;
    use crate::connections::RoomLimits;
    use crate::gateway::Gateways;
    use crate::grpc::WorkerTerms;
    use crate::http::{ServeOptions, app_for_tests};
    use crate::shell::{self, ShellOptions};
    use std::sync::Arc;
    use windlass_core::engine::{Outbox, Write};
    use windlass_core::job::{Counts, End, JobSpec, JobState, LaunchFault, StepSpec, TaskResult, TaskState};
    use windlass_core::{Epoch, Time};
    use windlass_store::Store;

    const SECRET: &str = "cannot start '/secret/render': Permission denied";

    /// A server that nobody connects to.
    async fn app_of(store: &Store) -> App {
        let config = Config::default();
        let options = ShellOptions { settings: config.engine_settings() };
        let handle = shell::start(store.clone(), options).await.unwrap();
        let options = ServeOptions {
            store: "memory".to_owned(),
            auth: Auth::load(store, true, "root".to_owned()).await.unwrap(),
            audit: None,
            idle: None,
            terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
            gateways: Gateways::default(),
            files: None,
            room: RoomLimits::new(None, None),
            user_limits: config.users.clone(),
            read_all: false,
            audit_files: 1,
            board: config.board.clone(),
            queues: BTreeMap::new(),
            scaling: windlass_core::scaling::ScalingSettings::default(),
            key: None,
            users: None,
        };
        app_for_tests(&handle, options).0
    }

    /// A job of ann's that has ended, whose first tasks failed so.
    async fn failed_job(store: &Store, id: u64, total: u32, ends: Vec<End>) {
        let step = StepSpec { name: "main".to_owned(), tasks: total, ..StepSpec::default() };
        let spec = JobSpec { user: "ann".to_owned(), steps: vec![step], ..JobSpec::default() };
        let failed = ends.len() as u32;
        let mut writes = vec![Write::Job { id: JobId(id), spec: Arc::new(spec), created: Time(1) }];
        for (index, end) in (0..).zip(ends) {
            let task = TaskId { job: JobId(id), index };
            let (worker, epoch, at) = (WorkerId(4), Epoch(1), Time(2));
            writes.push(Write::Book { task, attempt: 1, worker, epoch, at, amounts: (100, 0) });
            let (state, result) = (TaskState::Failed, TaskResult::bare(end));
            writes.push(Write::End { task, attempt: 1, state, failures: 1, losses: 0, result });
        }
        let counts = Counts { total, failed, succeeded: total - failed, ..Counts::default() };
        writes.push(Write::JobEnd { job: JobId(id), state: JobState::Failed, at: Time(3), counts });
        store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await.unwrap();
    }

    async fn told(app: &App, user: &str, job: u64) -> Failures {
        let reader = Reader::for_user(user, false);
        let answer = failures(State(app.clone()), reader, Path(job)).await;
        answer.unwrap_or_else(|_| panic!("job {job} is there")).0
    }

    #[tokio::test]
    async fn fifty_thousand_failed_tasks_are_told_by_cause() {
        const FAILED: u32 = 50_000;
        let store = Store::open("memory").unwrap();
        let app = app_of(&store).await;
        let end = |index: u32| match index {
            index if index % 2 == 1 => End::Exited(4),
            index if index % 10 == 0 => {
                End::NotStarted { why: SECRET.to_owned(), fault: LaunchFault::Unknown }
            }
            _ => End::Signaled(11),
        };
        failed_job(&store, 1, 60_000, (0..FAILED).map(end).collect()).await;
        let all = told(&app, "ann", 1).await;
        let in_groups: u32 = all.groups.iter().map(|group| group.tasks).sum();
        // A slow machine may look at a part, and says so.
        assert_eq!((all.failed, in_groups + all.other_tasks + all.not_looked_at), (FAILED, FAILED));
        let groups: Vec<(&str, &str)> =
            all.groups.iter().map(|group| (&*group.summary, &*group.first.task)).collect();
        let expected = [("exit code 4", "1.1"), ("killed by signal 11 (SIGSEGV)", "1.2"), (SECRET, "1.0")];
        assert_eq!(groups, expected);
        assert_eq!(all.groups[0].task_examples.len(), EXAMPLES_MAX);
        let others = told(&app, "bob", 1).await;
        assert_eq!((others.failed, others.groups.len()), (FAILED, 3));
        assert!(!serde_json::to_string(&others).unwrap().contains("secret"), "{others:?}");
        app.handle.stop().await;
    }

    #[tokio::test]
    async fn causes_that_the_answer_has_no_room_for_are_counted() {
        let store = Store::open("memory").unwrap();
        let app = app_of(&store).await;
        failed_job(&store, 1, 30, (1..=30).map(End::Exited).collect()).await;
        let all = told(&app, "ann", 1).await;
        assert_eq!((all.groups.len(), all.other_tasks, all.not_looked_at), (GROUPS_MAX, 10, 0));
        failed_job(&store, 2, 3, Vec::new()).await;
        let none = told(&app, "ann", 2).await;
        assert_eq!((none.failed, none.groups.len()), (0, 0));
        app.handle.stop().await;
    }
}
