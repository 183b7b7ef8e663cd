//! Tasks: list, show, why.

use super::App;
use super::extract::{Path, Query};
use super::lists::{page_size, parse_states};
use super::reasons::failure_of;
use super::tails;
use crate::api_error::ApiError;
use crate::handle::Handle;
use crate::reader::{Reader, Whole};
use crate::view::jobserver_why;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::IntoParams;
use windlass_api::{Attempt, End, ErrorCode, FailedTask, Judged, Page, StepBody, Task, TaskState, Why};
use windlass_core::explain::SHORT_OF_MEMORY;
use windlass_core::job::{self as core, JobSpec, Stop};
use windlass_core::plan::Decision;
use windlass_core::ranges::RangeSet;
use windlass_core::{JobId, TaskId, Time, WorkerId};
use windlass_store::{AttemptView, StoredTask};

/// Rows read from the store at a time.
const CHUNK: u32 = 4096;
/// Tasks that one request looks at, and how long it looks. What is left is in the next part of the list.
const LOOKED_AT_MAX: u32 = 64 * CHUNK;
const LOOK_TIME: Duration = Duration::from_secs(1);
/// The words of all states of tasks.
const STATES: &str = "waiting, ready, booked, running, succeeded, failed, canceled, skipped";

/// Which tasks to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TasksQuery {
    /// Words of states, separated by commas.
    state: Option<String>,
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<u32>,
}

/// Lists the tasks of a job by number.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/tasks", tag = "tasks", params(("id" = u64, Path), TasksQuery),
    responses((status = 200, description = "A part of the list", body = Page<Task>)))]
pub async fn list(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<u64>,
    Query(query): Query<TasksQuery>,
) -> Result<Json<Page<Task>>, ApiError> {
    let limit = page_size(query.limit)?;
    let wanted: Option<Vec<TaskState>> =
        query.state.as_deref().map(|text| parse_states(text, STATES)).transpose()?;
    let job = Snapshot::take(&app.handle, JobId(id), None).await?;
    let candidates = job.candidates(wanted.as_deref());
    let mut items = Vec::new();
    let mut from = query.cursor.unwrap_or(0);
    let (begun, mut looked_at, mut rest) = (Instant::now(), 0, None);
    'chunks: while let Some(start) = next_from(&candidates, from) {
        if looked_at == LOOKED_AT_MAX || (looked_at > 0 && begun.elapsed() >= LOOK_TIME) {
            rest = Some(start.to_string());
            break;
        }
        looked_at += CHUNK;
        let end = start.saturating_add(CHUNK);
        let rows = app.handle.store().tasks(job.id, start..end).await?;
        let rows: BTreeMap<u32, StoredTask> = rows.into_iter().map(|task| (task.row.index, task)).collect();
        for index in candidates.ranges().filter(|r| r.end > start && r.start < end).flatten() {
            if index < start || index >= end {
                continue;
            }
            let task = job.task(index, rows.get(&index));
            if wanted.as_ref().is_none_or(|states| states.contains(&task.state)) {
                items.push(task);
                if items.len() > limit {
                    break 'chunks;
                }
            }
        }
        from = end;
    }
    let next = items.get(limit).map(|task| task.index.to_string()).or(rest);
    items.truncate(limit);
    job.fill_values(&app.handle, &mut items, &reader).await?;
    Ok(Json(Page { items: reader.told_each(items), next }))
}

fn next_from(set: &RangeSet, from: u32) -> Option<u32> {
    set.ranges().find(|range| range.end > from).map(|range| range.start.max(from))
}

/// Shows a task with its history.
#[utoipa::path(get, path = "/api/v1/tasks/{id}", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 200, description = "The task, with its earlier attempts", body = Task)))]
pub async fn show(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Json<Task>, ApiError> {
    let id = parse_id(&id)?;
    let mut task = find(&app, &reader, id).await?;
    tails::add(&app, &reader, &mut task).await;
    Ok(Json(reader.told(task)))
}

/// One task with its history. What only its user's readers are told is not looked up for others.
pub(super) async fn find(app: &App, reader: &Reader, id: TaskId) -> Result<Whole<Task>, ApiError> {
    let handle = &app.handle;
    let job = Snapshot::take(handle, id.job, Some(id.index)).await.map_err(|e| e.or_no_task(id))?;
    if id.index >= job.total() {
        return Err(ApiError::no_task(id));
    }
    let rows = handle.store().tasks(id.job, id.index..id.index + 1).await?;
    let history = handle.store().history(id).await?;
    let mut tasks = [job.task(id.index, rows.first())];
    job.fill_values(handle, &mut tasks, reader).await?;
    let [mut task] = tasks;
    task.history = history.into_iter().map(|attempt| job.earlier(attempt)).collect();
    Ok(task)
}

/// Says why a task is where it is, and what would make it run.
#[utoipa::path(get, path = "/api/v1/tasks/{id}/why", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 200, body = Why)))]
pub async fn why(
    State(app): State<App>,
    reader: Reader,
    Path(text): Path<String>,
) -> Result<Json<Why>, ApiError> {
    let id = parse_id(&text)?;
    let said = app.handle.parts().jobservers.clone();
    let explain = move |engine: &windlass_core::Engine| {
        let policy = engine.planner().policy().name();
        let name_of = |n| {
            engine.workers().get(WorkerId(n)).map(|worker| worker.record.name.clone()).unwrap_or_default()
        };
        match windlass_core::explain::task(engine, id) {
            Some(why) if !matches!(why.state, core::TaskState::Succeeded | core::TaskState::Failed) => {
                let why = Why::from_core(id.to_string(), why, policy, name_of);
                let jobserver = jobserver_why(engine, id, |task, attempt| said.get(task, attempt));
                (Some(Why { jobserver, ..why }), None)
            }
            // It is over, or the engine does not hold its job. How it was placed may still be remembered.
            _ => (
                None,
                windlass_core::explain::decision(engine, id).map(|decision| decided(decision, name_of)),
            ),
        }
    };
    let (why, decided) = app.handle.ask_copy(explain).await?;
    if let Some(mut why) = why {
        why.message += &what_is_said(&app, &reader, id).await?;
        return Ok(Json(why));
    }
    if let Some(parked) = app.handle.store().parked(id.job).await? {
        let explain = move |engine: &windlass_core::Engine| {
            let why =
                windlass_core::explain::parked_task(engine, id, &parked.spec, &parked.parked, parked.ahead)?;
            // Nobody was judged, and nothing that it says is of one worker.
            Some(Why::from_core(id.to_string(), why, engine.planner().policy().name(), |_| String::new()))
        };
        return app.handle.query(explain).await?.map(Json).ok_or_else(|| ApiError::no_task(id));
    }
    let mut task = find(&app, &reader, id).await?;
    tails::add(&app, &reader, &mut task).await;
    let task = reader.told(task);
    let message = how_it_ended(&app, id, &task).await?;
    let mut why = Why {
        task: text,
        state: task.state,
        reason: windlass_core::explain::Word::Ended.into(),
        message,
        failure: failed_task(&task),
        turn: None,
        backs_off_until_ms: None,
        open_workers: 0,
        policy: String::new(),
        judged: Vec::new(),
        decided_ms: None,
        ruled_out: Vec::new(),
        changes: Vec::new(),
        jobserver: None,
    };
    if let Some((policy, at_ms, judged)) = decided {
        (why.policy, why.decided_ms, why.judged) = (policy, Some(at_ms), judged);
    }
    Ok(Json(why))
}

/// What is said of a task whose attempt says what it does, and of one whose last attempt lost a process because memory was
/// short; empty of others.
async fn what_is_said(app: &App, reader: &Reader, id: TaskId) -> Result<String, ApiError> {
    let task = reader.told(find(app, reader, id).await?);
    let does = task.status.as_ref().map(|status| format!("; it says: {status}")).unwrap_or_default();
    let last = task.history.iter().filter(|earlier| !earlier.late).max_by_key(|earlier| earlier.attempt);
    let said = last.filter(|last| last.end == Some(End::Oom)).and_then(|last| last.message.as_ref());
    let before = said.map(|said| format!("; before, {SHORT_OF_MEMORY}: {said}")).unwrap_or_default();
    Ok(does + &before)
}

/// Of a task that is over, or never starts.
async fn how_it_ended(app: &App, id: TaskId, task: &Task) -> Result<String, ApiError> {
    Ok(match (task.state, task.attempt.end) {
        (TaskState::Skipped, _) => {
            let stopped = super::jobs::find(&app.handle, id.job).await?.stopped.clone();
            format!(
                "it never started: {}",
                stopped.unwrap_or_else(|| "a step that it waited for failed".to_owned())
            )
        }
        (TaskState::Canceled, end) => {
            let view = app.handle.store().job(id.job).await?.ok_or_else(|| ApiError::no_job(id.job))?;
            let never = if end.is_none() { "it never started: " } else { "" };
            format!("{never}{}", super::stop_words::why_canceled(&view, id.index))
        }
        (TaskState::Failed, _) => {
            let failure = task.failure.as_ref();
            failure.map_or_else(|| "it failed".to_owned(), |failure| failure.summary.clone())
        }
        (TaskState::Succeeded, _) => {
            let worker = task.attempt.worker.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
            format!("it succeeded{worker}, in attempt {}", task.attempt.attempt)
        }
        // Its end is not durable yet.
        _ => "it ends just now".to_owned(),
    })
}

/// A failed task with its failure, as its reader is told of it; `None` of one that did not fail.
pub(super) fn failed_task(task: &Task) -> Option<FailedTask> {
    Some(FailedTask {
        task: task.id.clone(),
        step: task.step.clone(),
        value: task.value.clone(),
        attempt: task.attempt.attempt,
        worker: task.attempt.worker.clone(),
        finished_ms: task.attempt.finished_ms,
        failure: task.failure.clone()?,
    })
}

/// A decision: by which policy, when, and how workers were judged, by name.
fn decided(decision: &Decision, name_of: impl Fn(u64) -> String) -> (String, u64, Vec<Judged>) {
    let ranked = decision.ranked();
    let judged = ranked.iter().map(|judged| Judged::from_core(judged, name_of(judged.worker.0)));
    (decision.policy().to_owned(), decision.at.as_ms(), judged.collect())
}

pub fn parse_id(text: &str) -> Result<TaskId, ApiError> {
    text.parse()
        .map_err(|e: windlass_core::ids::BadTaskId| ApiError::new(ErrorCode::BadRequest, e.to_string()))
}

/// A job as far as lists of its tasks need it.
pub(super) struct Snapshot {
    pub(super) id: JobId,
    pub(super) spec: Arc<JobSpec>,
    stop: Option<Stop>,
    /// Of a job that has ended: the tasks that requests cancelled.
    cancels: RangeSet,
    live: Live,
    /// Its booked and running tasks.
    attempts: BTreeMap<u32, LiveAttempt>,
    pub(super) workers: BTreeMap<WorkerId, String>,
}

/// A copy of the engine's state of a job.
enum Live {
    /// The job has ended, and the store has all of it.
    No,
    /// A copy of the whole job.
    Job(Box<core::Job>),
    /// The state of the one task that is asked about.
    Task(core::TaskState),
    /// Its job is parked: the state of each task follows from its step.
    Parked,
}

fn worker_names(engine: &windlass_core::Engine) -> BTreeMap<WorkerId, String> {
    engine.workers().iter().map(|worker| (worker.record.id, worker.record.name.clone())).collect()
}

struct LiveAttempt {
    number: u32,
    worker: WorkerId,
    booked: Time,
    started: Option<Time>,
    /// When it is expected to end.
    due: Option<Time>,
}

impl Snapshot {
    /// The job, or, where `one` names a task, as much of it as that task needs: a large job is much to
    /// copy.
    async fn take(handle: &Handle, id: JobId, one: Option<u32>) -> Result<Snapshot, ApiError> {
        let look = move |engine: &windlass_core::Engine| {
            let job = engine.job(id)?;
            let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
            let live = match one {
                Some(index) if index < total => Live::Task(job.state_of(index)),
                Some(_) => Live::No,
                None => Live::Job(Box::new(job.clone())),
            };
            let attempts = engine.attempts_of(id).filter(|(task, _)| one.is_none_or(|one| task.index == one));
            let attempts = attempts.map(|(task, attempt)| {
                let live = LiveAttempt {
                    number: attempt.number,
                    worker: attempt.worker,
                    booked: attempt.booked,
                    started: attempt.started,
                    due: attempt.started.and_then(|_| engine.expected_end(task)),
                };
                (task.index, live)
            });
            Some((job.spec.clone(), job.stop, live, attempts.collect::<BTreeMap<_, _>>()))
        };
        let (found, workers) = handle.query(move |engine| (look(engine), worker_names(engine))).await?;
        if let Some((spec, stop, live, attempts)) = found {
            return Ok(Snapshot { id, spec, stop, cancels: RangeSet::default(), live, attempts, workers });
        }
        let view = handle.store().job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
        let live = if view.state == core::JobState::Active { Live::Parked } else { Live::No };
        let (spec, stop, cancels) = (view.spec, view.stop, view.cancels);
        Ok(Snapshot { id, spec, stop, cancels, live, attempts: BTreeMap::new(), workers })
    }

    /// The job for those of its tasks that have ended, of which the store knows all.
    pub(super) async fn of_ended(handle: &Handle, id: JobId) -> Result<Snapshot, ApiError> {
        let view = handle.store().job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
        let workers = handle.query(worker_names).await?;
        let (spec, stop, cancels) = (view.spec, view.stop, view.cancels);
        Ok(Snapshot { id, spec, stop, cancels, live: Live::No, attempts: BTreeMap::new(), workers })
    }

    pub(super) fn total(&self) -> u32 {
        self.spec.steps.iter().map(|step| step.tasks).sum()
    }

    /// The tasks that may be in one of the wanted states; the engine's sets narrow them down.
    fn candidates(&self, wanted: Option<&[TaskState]>) -> RangeSet {
        let all = RangeSet::from_range(0..self.total());
        let (Some(wanted), Live::Job(job)) = (wanted, &self.live) else { return all };
        if wanted
            .iter()
            .any(|state| matches!(state, TaskState::Waiting | TaskState::Skipped | TaskState::Canceled))
        {
            return all;
        }
        let mut some = RangeSet::default();
        for step in &job.steps {
            let sets = [
                (TaskState::Ready, &step.ready),
                (TaskState::Succeeded, &step.succeeded),
                (TaskState::Failed, &step.failed),
            ];
            for (_, set) in sets.iter().filter(|(state, _)| wanted.contains(state)) {
                set.ranges().for_each(|range| some.insert_range(range));
            }
        }
        if wanted.iter().any(|state| matches!(state, TaskState::Booked | TaskState::Running)) {
            self.attempts.keys().for_each(|index| _ = some.insert(*index));
        }
        some
    }

    pub(super) fn task(&self, index: u32, stored: Option<&StoredTask>) -> Whole<Task> {
        let mut attempt = Attempt::default();
        if let Some(StoredTask { row, result }) = stored {
            attempt.attempt = row.attempt;
            attempt.worker = self.workers.get(&row.worker).cloned();
            attempt.booked_ms = Some(row.booked.as_ms());
            if let Some(result) = result {
                attempt = attempt.with_result(result);
            }
        }
        let live = match &self.live {
            Live::No => None,
            Live::Job(job) => Some(job.state_of(index)),
            Live::Task(state) => Some(*state),
            Live::Parked if self.spec.steps[self.step_of(index).0].depends.is_empty() => {
                Some(core::TaskState::Ready)
            }
            Live::Parked => Some(core::TaskState::Waiting),
        };
        let state = match (self.attempts.get(&index), live, stored) {
            (Some(live), ..) => {
                attempt = Attempt {
                    attempt: live.number,
                    worker: self.workers.get(&live.worker).cloned(),
                    booked_ms: Some(live.booked.as_ms()),
                    started_ms: live.started.map(Time::as_ms),
                    ..Attempt::default()
                };
                if live.started.is_some() { TaskState::Running } else { TaskState::Booked }
            }
            (None, Some(state), stored) => {
                let state = TaskState::from(state);
                // The engine knows of an end before it is durable; until then the task is said to run.
                let booked = stored.is_some_and(|task| task.row.state == core::TaskState::Booked);
                if booked && state.is_end() { TaskState::Running } else { state }
            }
            (None, None, Some(stored)) if stored.row.state >= core::TaskState::Succeeded => {
                stored.row.state.into()
            }
            (None, None, _) if self.cancels.contains(index) => TaskState::Canceled,
            (None, None, _) => core::unstarted_state(self.stop).into(),
        };
        let (step, _) = self.step_of(index);
        let id = TaskId { job: self.id, index };
        let failed = stored.filter(|_| state == TaskState::Failed);
        let task = Task {
            id: id.to_string(),
            job: self.id.0,
            index,
            step: self.spec.steps[step].name.clone(),
            value: None,
            state,
            progress: None,
            status: None,
            jobserver: None,
            expected_end_ms: self.attempts.get(&index).and_then(|live| live.due).map(Time::as_ms),
            attempt,
            failure: failed.map(|stored| failure_of(id, &self.spec.steps[step], stored)),
            history: Vec::new(),
        };
        Whole::new(self.spec.clone(), task)
    }

    /// The step of a task and the task's place in it.
    pub(super) fn step_of(&self, index: u32) -> (usize, u32) {
        let mut base = 0;
        for (number, step) in self.spec.steps.iter().enumerate() {
            if index < base + step.tasks {
                return (number, index - base);
            }
            base += step.tasks;
        }
        (self.spec.steps.len().saturating_sub(1), 0)
    }

    /// Adds what their jobservers give these tasks, how far they are, and their values, reading the body of each step
    /// once: the last two not for a reader who is not told them.
    pub(super) async fn fill_values(
        &self,
        handle: &Handle,
        tasks: &mut [Whole<Task>],
        reader: &Reader,
    ) -> Result<(), ApiError> {
        for task in tasks.iter_mut().filter(|task| task.state == TaskState::Running) {
            let id = TaskId { job: self.id, index: task.index };
            task.jobserver = handle.parts().jobservers.get(id, task.attempt.attempt);
        }
        if !reader.may_read_job(&self.spec) {
            return Ok(());
        }
        let mut bodies: BTreeMap<usize, Option<StepBody>> = BTreeMap::new();
        for task in tasks {
            let id = TaskId { job: self.id, index: task.index };
            // Of one that is booked its worker says what it does with the files.
            if matches!(task.state, TaskState::Booked | TaskState::Running)
                && let Some(said) = handle.parts().progress.get(id, task.attempt.attempt)
            {
                (task.progress, task.status) = (said.percent, said.status);
            }
            let (step, place) = self.step_of(task.index);
            if self.spec.steps[step].tasks == 1 {
                continue;
            }
            let body = match bodies.entry(step) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let raw = handle.store().body(self.id, step as u16).await?;
                    unknown.insert(raw.and_then(|raw| serde_json::from_slice(&raw).ok()))
                }
            };
            task.value = body.as_ref().and_then(|body| body.value(place)).map(std::borrow::Cow::into_owned);
        }
        Ok(())
    }

    fn earlier(&self, view: AttemptView) -> Attempt {
        let attempt = Attempt {
            attempt: view.attempt,
            worker: self.workers.get(&view.worker).cloned(),
            booked_ms: view.booked.map(Time::as_ms),
            late: view.late,
            ..Attempt::default()
        };
        attempt.with_result(&view.result)
    }
}
