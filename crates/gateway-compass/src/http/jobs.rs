//! Jobs: show, wait, update, cancel, terminate.

use super::fields::read_fields;
use crate::access::{account_of, check_look, check_owner, speaks_for_job};
use crate::answer::{OTHER_QUESTION, Refused, say, tell};
use crate::app::App;
use crate::caller::{MaybePeer, Who, peer_address, who};
use crate::format::{Fields, Stage, WaitSpec, Waited, public_fields, text_of};
use crate::lab::{Ask, Speaker};
use crate::number::task_of;
use crate::record::{BadUpdate, Params};
use crate::view::View;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::JobId;
use windlass_core::engine::{Event, Reply};
use windlass_server::auth::{Caller, Role};
use windlass_server::{Reader, Unavailable};

/// The longest wait for jobs of one request.
const WAIT: Duration = Duration::from_secs(10);

/// The number in a path. Other texts name no job.
fn job_id(text: &str) -> Result<JobId, Refused> {
    let id = text.parse::<u64>().map(JobId);
    id.map_err(|_| not_found().into())
}

/// Shows a job's public fields, all or those that the query names.
pub(super) async fn show(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Refused> {
    let reader = app.front.reader(check_look(who(&caller))?);
    let id = job_id(&id)?;
    let view = View::find(&app.handle, id).await?.ok_or_else(not_found)?;
    let wanted: Option<BTreeSet<String>> =
        query.get("fields").map(|fields| fields.split(',').map(str::to_owned).collect());
    Ok(Json(public_fields(view.fields(id, &reader), wanted.as_ref())).into_response())
}

fn not_found() -> Response {
    tell(StatusCode::NOT_FOUND, json!({"error": "Job not found"}))
}

/// Waits until one of the jobs meets its condition, or for [`WAIT`].
pub(super) async fn wait(
    State(app): State<App>,
    caller: Who,
    Query(query): Query<Fields>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let fields = read_fields(&app, &headers, body).await?;
    let reader = check_wait(&app, &caller, &query, &fields).await?;
    let spec = WaitSpec::parse(&fields)
        .map_err(|e| tell(StatusCode::BAD_REQUEST, json!({"error": e.to_string()})))?;
    let (mut changes, mut events) = (app.compass.changes.subscribe(), app.handle.subscribe());
    let deadline = Instant::now() + WAIT;
    loop {
        let (answer, progress) = look(&app, &spec, &fields, &reader).await?;
        if progress || *app.handle.closing().borrow() {
            return Ok(Json(answer).into_response());
        }
        loop {
            let changed = tokio::select! {
                job = changes.recv() => job.ok().is_none_or(|job| spec.wait_on.contains_key(&job.0)),
                event = events.recv() => match event.as_deref() {
                    Ok(windlass_api::ServerEvent::Job(job)) => {
                        spec.wait_on.keys().any(|number| task_of(JobId(*number)).job.0 == job.job)
                    }
                    Ok(_) => false,
                    Err(_) => true,
                },
                () = tokio::time::sleep_until(deadline) => return Ok(Json(answer).into_response()),
                () = app.handle.ends() => true,
            };
            if changed {
                break;
            }
        }
    }
}

/// Admits callers that may look at jobs. A job that shows its token, such as a node of a cluster, may wait too, and
/// reads what its user may read.
async fn check_wait(app: &App, caller: &Who, query: &Fields, fields: &Fields) -> Result<Reader, Refused> {
    if let Some(caller) = who(caller).filter(|caller| caller.role != Role::Worker) {
        return Ok(app.front.reader(check_look(Some(caller))?));
    }
    let shown = |key: &str| text_of(query, key).or_else(|| text_of(fields, key));
    if let (Some(id), Some(token)) = (shown("job_id"), shown("job_token")) {
        let id = job_id(&id)?;
        if speaks_for_job(&app.handle, id, None, Some(&token), None).await? {
            let own = View::find(&app.handle, id).await?.ok_or_else(not_found)?;
            return Ok(app.front.reader_for_user(&own.spec.user));
        }
    }
    match who(caller) {
        Some(caller) => Ok(app.front.reader(check_look(Some(caller))?)),
        None => Ok(app.front.reader(&account_of(&app.front, None, fields)?)),
    }
}

/// The answer: the conditions that are still open, and the fields of jobs that met theirs. True if the answer has news.
async fn look(
    app: &App,
    spec: &WaitSpec,
    fields: &Fields,
    reader: &Reader,
) -> Result<(Value, bool), Refused> {
    let (mut left, mut told, mut failed) = (Fields::new(), Fields::new(), None);
    let asked = fields.get("wait_on").and_then(Value::as_object);
    for id in spec.wait_on.keys() {
        let job = View::find(&app.handle, JobId(*id)).await?;
        let Some(job) = job else {
            return Err(tell(StatusCode::NOT_FOUND, json!({"error": format!("Job {id} not found")})).into());
        };
        let view = job.fields(JobId(*id), reader);
        let (key, met) = (id.to_string(), spec.look(*id, &view, job.record.is_closed()));
        if met == Waited::Open {
            let wanted = asked.and_then(|asked| asked.get(&key)).cloned().unwrap_or(Value::Null);
            left.insert(key, wanted);
            continue;
        }
        if met == Waited::Failed {
            failed = Some(key.clone());
        }
        told.insert(key, spec.tell(&view).into());
    }
    let mut options = fields.get("wait_options").and_then(Value::as_object).cloned().unwrap_or_default();
    let progress = !told.is_empty() || left.is_empty();
    if let Some(job) = failed {
        options.insert("fail_fast".to_owned(), json!({"failed_job": job}));
        left.clear();
    }
    let mut answer = json!({"waited_jobs": told});
    if !left.is_empty() {
        answer["wait_on"] = left.into();
    }
    if !options.is_empty() {
        answer["wait_options"] = options.into();
    }
    Ok((answer, progress))
}

/// Applies an update of a job's progress.
pub(super) async fn update(
    State(app): State<App>,
    caller: Who,
    peer: MaybePeer,
    Path(id): Path<String>,
    Query(mut params): Query<Params>,
) -> Response {
    let answer = async {
        let id = id.parse::<u64>().map(JobId).map_err(|_| BadUpdate::NoJob)?;
        let speaker = match who(&caller) {
            Some(caller) if caller.role == Role::Admin => Speaker::Trusted,
            Some(Caller { role: Role::Worker, worker: Some(host), .. }) => Speaker::Host(host.clone()),
            Some(caller) if caller.role == Role::User => {
                let view =
                    View::find(&app.handle, id).await.map_err(|e| BadUpdate::Unavailable(e.to_string()))?;
                let owner = view.ok_or(BadUpdate::NoJob)?.spec.user.clone();
                if !caller.may_act_for(&owner) {
                    return Err(BadUpdate::NotYours);
                }
                Speaker::Trusted
            }
            _ => match (params.remove("job_token"), peer_address(&peer)) {
                (Some(token), _) => Speaker::Token(token),
                // Scripts of bare machines show no token.
                (None, Some(address)) => Speaker::Address(address),
                (None, None) => return Err(BadUpdate::NotYours),
            },
        };
        let failed = |why: Unavailable| BadUpdate::Unavailable(why.to_string());
        let ask = |reply| Ask::Update { job: id, params, speaker, reply: Some(reply) };
        match app.compass.ask(ask).await.map_err(failed)? {
            // The laboratory has no run of the job.
            Err(BadUpdate::NotDispatched) => match View::find(&app.handle, id).await.map_err(failed)? {
                None => Err(BadUpdate::NoJob),
                Some(view) if view.record.is_closed() => Err(BadUpdate::Closed),
                Some(_) => Err(BadUpdate::NotDispatched),
            },
            answer => answer,
        }
    };
    match answer.await {
        Ok(text) => say(StatusCode::OK, text),
        Err(bad) => say(status_of(&bad), bad.to_string()),
    }
}

fn status_of(bad: &BadUpdate) -> StatusCode {
    match bad {
        BadUpdate::NoJob => StatusCode::NOT_FOUND,
        BadUpdate::Closed => StatusCode::LOCKED,
        BadUpdate::NotYours => StatusCode::UNAUTHORIZED,
        BadUpdate::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The job that the caller wants to end, if the caller owns it.
async fn owned_job(
    app: &App,
    caller: &Who,
    headers: &HeaderMap,
    id: &str,
    body: Result<Bytes, BytesRejection>,
) -> Result<(JobId, View), Refused> {
    let fields = match read_fields(app, headers, body).await {
        Ok(fields) => fields,
        Err(_) => return Err(say(StatusCode::BAD_REQUEST, "Invalid JSON in request body").into()),
    };
    let caller = account_of(&app.front, who(caller).cloned(), &fields)?;
    let missing = || say(StatusCode::NOT_FOUND, "Job not found");
    let id = id.parse::<u64>().map(JobId).map_err(|_| missing())?;
    let view = View::find(&app.handle, id).await?.ok_or_else(missing)?;
    check_owner(Some(&caller), &view.spec.user)?;
    Ok((id, view))
}

/// Cancels a job that no host has yet. A cluster's nodes are cancelled together.
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let (job, view) = owned_job(&app, &caller, &headers, &id, body).await?;
    let whole = task_of(job).job;
    let booked = move |engine: &windlass_core::Engine| engine.attempts_of(whole).next().is_some();
    let booked = app.handle.query(booked).await?;
    if view.record.stage != Stage::Submit || booked {
        return Err(say(StatusCode::FORBIDDEN, "Job already running").into());
    }
    end(&app, job).await
}

/// Ends a job that a host has. The other nodes of its cluster go on.
pub(super) async fn terminate(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let (job, view) = owned_job(&app, &caller, &headers, &id, body).await?;
    if view.record.stage == Stage::Submit || view.record.stage.is_end() {
        return Err(say(StatusCode::FORBIDDEN, "Job not running").into());
    }
    if view.spec.steps.len() == 1 {
        return end(&app, job).await;
    }
    let ask = |reply| Ask::Terminate { job, reply };
    match app.compass.ask(ask).await? {
        true => Ok(say(StatusCode::OK, "Success")),
        false => Err(say(StatusCode::FORBIDDEN, "Job not running").into()),
    }
}

async fn end(app: &App, number: JobId) -> Result<Response, Refused> {
    let job = task_of(number).job;
    match app.handle.request(move |request| Event::Cancel { request, job }).await? {
        Reply::Done => Ok(say(StatusCode::OK, "Success")),
        Reply::Refused(refusal) => Err(say(StatusCode::FORBIDDEN, refusal.to_string()).into()),
        _ => Err(say(StatusCode::INTERNAL_SERVER_ERROR, OTHER_QUESTION).into()),
    }
}
