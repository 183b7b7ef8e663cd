//! Jobs: submit, list, show, cancel, retry, hold, release.

use super::App;
use super::dry_run::{SubmitQuery, try_submission};
use super::extract::{JsonBody, Path, Query};
use super::lists::{PAGE_MAX, page_size, parse_states};
use super::peers::ChangeRequest;
use super::reasons;
use super::retry_rules::{RetryQuery, check_retry};
use super::stop_words::FirstJobs;
use super::submission_names::SubmissionNames;
use crate::api_error::ApiError;
use crate::auth::{Caller, Role};
use crate::bounded_json::{JsonLimits, read_json};
use crate::handle::Handle;
use crate::job_files::{FilesTrouble, SubmissionKind, SubmittedFiles, submitted};
use crate::peers::Effect;
use crate::reader::{Reader, Whole};
use crate::submission_rights::may_submit_as;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, ExtensionRejection};
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use std::collections::BTreeMap;
use utoipa::IntoParams;
use windlass_api::quantity::umask_text;
use windlass_api::{
    ErrorCode, Job, JobState, OnEnd, Page, SetPriority, Step, StepBody, StepFiles, SubmitAnswer,
    SubmitRequest, Submitted,
};
use windlass_core::bounds::CACHES_PER_STEP_MAX;
use windlass_core::engine::{Event, Refusal, Reply, Submit};
use windlass_core::explain::expected_job_end;
use windlass_core::job::{self as core, AfterEnd};
use windlass_core::{JobId, RequestId};
use windlass_store::{JobFilter, JobView};

/// Submits a job or, with `dry_run`, says what the submission would do.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", params(SubmitQuery), request_body = SubmitRequest, responses(
    (status = 201, description = "Accepted and durable", body = Submitted),
    (status = 200, description = "Was there before, under the same key; or, with `dry_run`, what would be done",
        body = SubmitAnswer),
    (status = 422, description = "`placeable_only`, and no worker could ever run it", body = windlass_api::ErrorBody),
    (status = 503, description = "The store is full or gone", body = windlass_api::ErrorBody)))]
pub async fn submit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<SubmitQuery>,
    change: ChangeRequest,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    if query.dry_run {
        let CheckedSubmission { submit, makes_queue, .. } =
            submission(&app, &caller, body, SubmissionKind::DryRun).await?;
        let answer = SubmitAnswer::DryRun(try_submission(&app, submit, makes_queue).await?);
        return Ok(Json(answer).into_response());
    }
    let (mut is_new_queue, mut files) = (false, None);
    let event = async {
        let checked = submission(&app, &caller, body, SubmissionKind::Real).await?;
        (is_new_queue, files) = (checked.makes_queue, checked.files);
        let submit = checked.submit;
        Ok::<_, ApiError>(move |request| Event::Submit(Box::new(Submit { request, ..submit })))
    };
    match change.ask(&app, event).await? {
        Ok(Effect::Submitted(mut submitted)) => {
            submitted.queue_created = is_new_queue && !submitted.existing;
            // An earlier submission with this key has files of its own.
            if let Some(files) = files.filter(|_| !submitted.existing) {
                files.keep(JobId(submitted.job)).await;
            }
            let status = if submitted.existing { StatusCode::OK } else { StatusCode::CREATED };
            Ok((status, Json(submitted)).into_response())
        }
        Ok(_) => Err(unexpected(Reply::Done)),
        Err(other) => Err(unexpected(other)),
    }
}

/// A submission that its caller may make.
struct CheckedSubmission {
    /// What is asked of the engine. Its request has no number yet.
    submit: Submit,
    makes_queue: bool,
    files: Option<SubmittedFiles>,
}

async fn submission(
    app: &App,
    caller: &Caller,
    body: Result<Bytes, BytesRejection>,
    kind: SubmissionKind,
) -> Result<CheckedSubmission, ApiError> {
    let body = body.map_err(|e| ApiError::new(ErrorCode::BadRequest, e.body_text()))?;
    let user = caller.user.clone();
    let ReadSubmission { placeable_only, limit_unset_ok, jobservers_open, step_files, mut spec } =
        app.shared.front.parsers.parse(body, move |body| read_submission(body, &user)).await?;
    if *app.handle.closing().borrow() {
        return Err(ApiError::new(ErrorCode::Unavailable, "the server is ending"));
    }
    may_submit_as(caller, &spec.user, &spec.queue)?;
    app.shared.front.rights.may_tell(&spec.on_end)?;
    app.shared.front.rights.may_use_queue(caller, &spec.queue).await?;
    app.shared.front.rights.may_submit(caller, spec.priority).await?;
    let store = app.handle.store();
    let (existing, read_before) = match &spec.key {
        Some(key) => app.handle.job_by_key(&spec.user, key).await?,
        None => (None, JobId(u64::MAX)),
    };
    // A job that is there is answered for, whatever limits are set now.
    let names = if existing.is_none() { SubmissionNames::of(&spec) } else { SubmissionNames::default() };
    let makes_queue = names.check(app, limit_unset_ok).await?;
    let step_files = if existing.is_none() { step_files } else { Vec::new() };
    let files = submitted_files(app, caller, (&mut spec, step_files), kind).await?;
    let mut outcomes = BTreeMap::new();
    for id in &spec.after {
        if let Some(job) = store.job(*id).await? {
            outcomes.insert(*id, job.state);
        }
    }
    let startable = app.shared.startable.clone();
    let new = Submit::new(RequestId(0), spec);
    let submit =
        Submit { jobservers_open, placeable_only, startable, existing, read_before, outcomes, ..new };
    Ok(CheckedSubmission { submit, makes_queue, files })
}

/// Checks the files of a submission, and adds to its steps the cache keys of their inputs.
async fn submitted_files(
    app: &App,
    caller: &Caller,
    (spec, step_files): (&mut core::JobSpec, Vec<Option<StepFiles>>),
    kind: SubmissionKind,
) -> Result<Option<SubmittedFiles>, ApiError> {
    if step_files.iter().all(Option::is_none) {
        return Ok(None);
    }
    let none = || ApiError::new(ErrorCode::Unavailable, "this server keeps no files of jobs");
    let files = submitted(app.files().ok_or_else(none)?, caller, (&*spec, step_files), kind).await?;
    for (step, keys) in spec.steps.iter_mut().zip(files.iter().flat_map(|files| &files.cache_keys)) {
        let room = CACHES_PER_STEP_MAX.saturating_sub(step.hints.caches.len());
        step.hints.caches.extend(keys.iter().take(room).map(|(key, bytes)| (key.clone(), *bytes)));
    }
    Ok(files)
}

/// What a submission says.
struct ReadSubmission {
    /// It is only wanted if it can be placed.
    placeable_only: bool,
    /// It is wanted although it names limits that are not set.
    limit_unset_ok: bool,
    /// The numbers of steps that leave their jobserver to their queue.
    jobservers_open: Vec<u16>,
    /// The files of each step.
    step_files: Vec<Option<StepFiles>>,
    spec: core::JobSpec,
}

fn read_submission(body: &[u8], user: &str) -> Result<ReadSubmission, ApiError> {
    let request: SubmitRequest = read_json(body, JsonLimits::SUBMISSION)
        .map_err(|e| ApiError::new(ErrorCode::BadRequest, format!("invalid request body: {e}")))?;
    let SubmitRequest { placeable_only, limit_unset_ok, .. } = request;
    let jobservers_open = request.jobservers_open();
    let step_files = request.steps.iter().map(|step| step.files.clone()).collect();
    let spec = request.into_spec(user)?;
    Ok(ReadSubmission { placeable_only, limit_unset_ok, jobservers_open, step_files, spec })
}

/// Rows of the store that are looked at for one part of a list; then the part is given as it is, and the caller goes on.
const ROWS_MAX: usize = 50_000;
/// Of these, jobs that are read whole, because the store cannot tell all that is asked for.
const LOOKED_MAX: usize = 20_000;
/// The words of all states of jobs.
const STATES: &str = "pending, running, held, succeeded, failed, canceled";

/// Which jobs to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct JobsQuery {
    /// Words of states, separated by commas.
    state: Option<String>,
    /// Only jobs of this user.
    user: Option<String>,
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Whose name holds this text.
    name: Option<String>,
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<u64>,
    /// Say why failed jobs failed and why waiting ones wait, of up to 50 jobs.
    #[serde(default)]
    reasons: bool,
}

/// Lists jobs, newest first. A part may have fewer jobs than asked for, or none, and still a `next`: one request looks
/// at 50,000 jobs at most.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, description = "A part of the list", body = Page<Job>)))]
pub async fn list(
    State(app): State<App>,
    reader: Reader,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Page<Job>>, ApiError> {
    let limit = page_size(query.limit)?;
    let wanted = query.state.as_deref().map(|text| parse_states(text, STATES)).transpose()?;
    let wanted: Vec<JobState> = wanted.unwrap_or_default();
    let mut states = Vec::new();
    for state in wanted.iter().map(|state| stored(*state)) {
        if !states.contains(&state) {
            states.push(state);
        }
    }
    let filter = JobFilter { states, user: query.user, queue: query.queue, name: query.name };
    let mut items: Vec<Whole<Job>> = Vec::new();
    let (mut before, mut rows, mut looked) = (query.cursor.map(JobId), 0, 0);
    // Pending, running and held are one state to the store: a part may be filtered to less.
    let whole = if wanted.is_empty() { limit } else { PAGE_MAX };
    loop {
        let part = app.handle.store().jobs(filter.clone(), before, whole, ROWS_MAX - rows).await?;
        (before, rows, looked) = (part.next, rows + part.rows, looked + part.jobs.len());
        let jobs = complete(&app.handle, part.jobs).await?.into_iter();
        items.extend(jobs.filter(|job| wanted.is_empty() || wanted.contains(&job.state)));
        if items.len() >= limit || before.is_none() || rows >= ROWS_MAX || looked >= LOOKED_MAX {
            let next = match items.len() >= limit {
                true => {
                    items.get(limit - 1).map(|job| job.id).filter(|_| before.is_some() || items.len() > limit)
                }
                false => before.map(|id| id.0),
            };
            items.truncate(limit);
            if query.reasons {
                reasons::add(&app.handle, &mut items).await?;
            }
            let (items, next) = (reader.told_each(items), next.map(|id| id.to_string()));
            return Ok(Json(Page { items, next }));
        }
    }
}

fn stored(state: JobState) -> core::JobState {
    match state {
        JobState::Pending | JobState::Running | JobState::Held => core::JobState::Active,
        JobState::Succeeded => core::JobState::Succeeded,
        JobState::Failed => core::JobState::Failed,
        JobState::Canceled => core::JobState::Canceled,
    }
}

/// Shows a job; what its tasks run, only to those who may read that.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = Job)))]
pub async fn show(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<u64>,
) -> Result<Json<Job>, ApiError> {
    let mut job = find(&app.handle, JobId(id)).await?;
    reasons::add(&app.handle, std::slice::from_mut(&mut job)).await?;
    job.notice_failures = app.handle.parts().notices.troubles.of_job(JobId(id));
    if !reader.may_read_job(job.spec()) {
        // What bodies say would be left out again.
        return Ok(Json(reader.told(job)));
    }
    for (number, step) in (0u16..).zip(&mut job.steps) {
        let raw = app.handle.store().body(JobId(id), number).await?;
        if let Some(body) = raw.and_then(|raw| serde_json::from_slice::<StepBody>(&raw).ok()) {
            step.command = body.command;
            step.cwd = Some(body.cwd);
            step.umask = body.umask.map(umask_text);
        }
    }
    Ok(Json(reader.told(job)))
}

/// Cancels a job: what runs is killed, what waits never starts.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = Job),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn cancel(change: JobChange, Path(id): Path<u64>) -> Result<Json<Job>, ApiError> {
    change.act(JobId(id), |request, job| Event::Cancel { request, job }).await
}

/// Runs the failed and cancelled tasks of a job again. Where it was skipped because of a job that it comes after, that
/// one is to be retried first.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/retry", tag = "jobs", params(("id" = u64, Path), RetryQuery),
    responses((status = 200, body = Job),
    (status = 409, description = "Nothing failed, or a job that it comes after did not end as it asks for",
        body = windlass_api::ErrorBody)))]
pub async fn retry(
    change: JobChange,
    Path(id): Path<u64>,
    Query(query): Query<RetryQuery>,
) -> Result<Json<Job>, ApiError> {
    change.act_if(JobId(id), Some(query), |request, job| Event::Retry { request, job }).await
}

/// Holds a job back: what runs goes on, nothing new starts.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/hold", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = Job),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn hold(change: JobChange, Path(id): Path<u64>) -> Result<Json<Job>, ApiError> {
    change.act(JobId(id), |request, job| Event::Hold { request, job, held: true }).await
}

/// Lets a held job go on.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", tag = "jobs", params(("id" = u64, Path)), responses(
    (status = 200, body = Job),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn release(change: JobChange, Path(id): Path<u64>) -> Result<Json<Job>, ApiError> {
    change.act(JobId(id), |request, job| Event::Hold { request, job, held: false }).await
}

/// Gives a job another priority: its waiting tasks take their turn by it from now on. A user may give as much as a
/// submission of theirs may have.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/priority", tag = "jobs", params(("id" = u64, Path)),
    request_body = SetPriority, responses(
    (status = 200, body = Job),
    (status = 403, description = "Too high, or another user's job", body = windlass_api::ErrorBody),
    (status = 409, description = "It has ended", body = windlass_api::ErrorBody)))]
pub async fn prioritize(
    change: JobChange,
    Path(id): Path<u64>,
    JsonBody(SetPriority { priority }): JsonBody<SetPriority>,
) -> Result<Json<Job>, ApiError> {
    change.app.shared.front.rights.may_have_priority(&change.caller, priority)?;
    change.act(JobId(id), move |request, job| Event::Prioritize { request, job, priority }).await
}

pub async fn check_owner(app: &App, caller: &Caller, id: JobId) -> Result<(), ApiError> {
    if caller.role == Role::Admin {
        return Ok(());
    }
    let job = app.handle.store().job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
    let may_act = caller.may_act_on(&job.spec.user, &job.spec.queue);
    if may_act { Ok(()) } else { Err(ApiError::not_yours(id)) }
}

/// A caller's change of a job.
pub(crate) struct JobChange {
    pub(super) app: App,
    pub(super) caller: Caller,
    request: ChangeRequest,
}

impl FromRequestParts<App> for JobChange {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ExtensionRejection> {
        let Extension(caller): Extension<Caller> = Extension::from_request_parts(parts, app).await?;
        let Ok(request) = ChangeRequest::from_request_parts(parts, app).await;
        Ok(JobChange { app: app.clone(), caller, request })
    }
}

impl JobChange {
    /// Asks the engine for the event, which is about a job of the caller's. The answer is the job after it.
    pub(super) async fn act(
        self,
        id: JobId,
        event: impl FnOnce(RequestId, JobId) -> Event + Send + 'static,
    ) -> Result<Json<Job>, ApiError> {
        self.act_if(id, None, event).await
    }

    /// As [`JobChange::act`]. A retry must also be one that the jobs allow which this job comes after.
    pub(super) async fn act_if(
        self,
        id: JobId,
        retry: Option<RetryQuery>,
        event: impl FnOnce(RequestId, JobId) -> Event + Send + 'static,
    ) -> Result<Json<Job>, ApiError> {
        let JobChange { app, caller, request } = self;
        let files = app.files().filter(|_| retry.is_some());
        let event = async {
            check_owner(&app, &caller, id).await?;
            if let Some(query) = retry {
                check_retry(&app, id, query).await?;
            }
            if let Some(files) = files {
                files.retried(id).await.map_err(FilesTrouble::into_api_error)?;
            }
            Ok::<_, ApiError>(move |request| event(request, id))
        };
        let asked = request.ask(&app, event).await;
        if let Some(files) = files {
            // A retry that was refused needs nothing.
            files.retry_is_over(id).await;
        }
        match asked? {
            Ok(_) => Ok(Json(app.reader(&caller).told(find(&app.handle, id).await?))),
            // The engine forgets jobs that ended: the store tells them from those that never were.
            Err(Reply::Refused(Refusal::NoJob(_) | Refusal::Ended(_))) => {
                let view = app.handle.store().job(id).await?;
                Err(view.map_or_else(|| ApiError::no_job(id), |view| has_ended(id, view.state)))
            }
            Err(other) => Err(unexpected(other)),
        }
    }
}

/// The refusal of a change of a job that has ended. Of one that succeeded there is nothing to run again.
fn has_ended(id: JobId, state: core::JobState) -> ApiError {
    let ended = ApiError::from(Refusal::Ended(id));
    match state {
        core::JobState::Succeeded => ended,
        _ => ended.hint(format!("'windlass job retry {id}' runs what failed again")),
    }
}

/// An answer that is a refusal, or none that this request can have.
pub fn unexpected(answer: Reply) -> ApiError {
    match answer {
        Reply::Refused(refusal) => refusal.into(),
        _ => ApiError::new(ErrorCode::Internal, "unexpected reply of the engine"),
    }
}

/// One job, as the engine has it while it is active and as the store has it then.
pub(super) async fn find(handle: &Handle, id: JobId) -> Result<Whole<Job>, ApiError> {
    let view = handle.store().job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
    let mut jobs = complete(handle, vec![view]).await?;
    jobs.pop().ok_or_else(|| ApiError::no_job(id))
}

/// Fills in what only the engine knows of active jobs.
async fn complete(handle: &Handle, views: Vec<JobView>) -> Result<Vec<Whole<Job>>, ApiError> {
    let active = views.iter().filter(|view| view.state == core::JobState::Active);
    let ids: Vec<JobId> = active.map(|view| view.id).collect();
    let mut live = BTreeMap::new();
    if !ids.is_empty() {
        let now = handle.now();
        let counts = move |engine: &windlass_core::Engine| {
            let jobs = ids.iter().filter_map(|id| engine.job(*id));
            let live = jobs.map(|job| {
                let end = expected_job_end(engine, job.id, now);
                (job.id, (job.counts(), job.held, end))
            });
            live.collect::<BTreeMap<_, _>>()
        };
        live = handle.query(counts).await?;
    }
    let (mut jobs, mut first_jobs) = (Vec::new(), FirstJobs::default());
    for mut view in views {
        let mut end = None;
        if view.state == core::JobState::Active {
            match live.get(&view.id) {
                Some((counts, held, expected)) => {
                    view.counts = Some(*counts);
                    view.held = *held;
                    end = *expected;
                }
                // It ended between the two looks, and the store has it whole now; or it is parked.
                None => {
                    view = handle.store().job(view.id).await?.unwrap_or(view);
                    if view.state == core::JobState::Active {
                        view.counts = Some(core::untouched_counts(&view.spec));
                    }
                }
            }
        }
        let mut job = to_wire(&view);
        job.expected_end_ms = end.map(windlass_core::Time::as_ms);
        job.stopped = first_jobs.say_stopped(handle.store(), &view).await?;
        jobs.push(job);
    }
    Ok(jobs)
}

/// The jobs that must end so before a job starts.
fn first_jobs(spec: &core::JobSpec, end: AfterEnd) -> Vec<u64> {
    let is_so = |id: &&JobId| spec.after_ends.get(*id).copied().unwrap_or_default() == end;
    spec.after.iter().filter(is_so).map(|id| id.0).collect()
}

fn to_wire(view: &JobView) -> Whole<Job> {
    let counts = view.counts.unwrap_or_else(|| core::Counts {
        total: view.spec.steps.iter().map(|s| s.tasks).sum(),
        ..Default::default()
    });
    let job = Job {
        id: view.id.0,
        name: view.spec.name.clone(),
        queue: view.spec.queue.clone(),
        user: view.spec.user.clone(),
        priority: view.spec.priority,
        max_running: view.spec.max_running,
        state: JobState::from_core(view.state, view.held, &counts),
        stopped: None,
        reason: None,
        created_ms: view.created.as_ms(),
        ended_ms: view.ended.map(windlass_core::Time::as_ms),
        expected_end_ms: None,
        after: first_jobs(&view.spec, AfterEnd::Ok),
        after_any: first_jobs(&view.spec, AfterEnd::Any),
        after_not_ok: first_jobs(&view.spec, AfterEnd::NotOk),
        after_tasks: view.spec.after_tasks.map(|id| id.0),
        on_end: view.spec.on_end.iter().map(OnEnd::from_core).collect(),
        notice_failures: Vec::new(),
        parent: view.spec.parent.map(|task| task.to_string()),
        counts: counts.into(),
        steps: Step::all_from_core(&view.spec),
    };
    Whole::new(view.spec.clone(), job)
}
