//! Jobs: submit, show, wait, update, cancel, terminate.

use super::access::{Refused, account_of, check_look, check_owner, say};
use super::lab::{Ask, Lab, Speaker, now_s};
use super::record::{BadUpdate, Params};
use super::view::{View, date_text, time_text};
use crate::App;
use crate::format::{
    BadJob, CompassJob, Fields, Stage, WaitSpec, Waited, public_fields, result_root, text_of,
};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::bounds::PREFERS_PER_STEP_MAX;
use windlass_core::engine::{Event, Reply, Submit};
use windlass_core::queues::QueueRecord;
use windlass_core::tags::Attributes;
use windlass_core::{JobId, TaskId};
use windlass_server::Unavailable;
use windlass_server::auth::{Caller, Role};

/// How long somebody may wait for jobs at a time.
const WAIT: Duration = Duration::from_secs(10);
/// Queues that anybody may name; all others are for those whom an administrator lists, and so is the one that goes
/// before everything.
const SHARED_QUEUES: [&str; 3] = ["idle", "single-build", "bisect"];
const URGENT_QUEUE: &str = "vip";

/// An answer that cannot be.
const OTHER_QUESTION: &str = "unexpected reply of the engine";

/// Whoever asks, where that is known.
pub(super) type Who = Option<Extension<Caller>>;

pub(super) fn who(caller: &Who) -> Option<&Caller> {
    caller.as_ref().map(|Extension(caller)| caller)
}

pub(super) fn unavailable(why: Unavailable) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why.to_string()).into_response()
}

/// The number in a path; what is none names no job.
fn job_id(text: &str) -> Result<JobId, Refused> {
    let id = text.parse::<u64>().map(JobId);
    id.map_err(|_| not_found().into())
}

/// A body that is a JSON object, or a YAML mapping where the request says that it is YAML.
async fn read_fields(
    app: &App,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Fields, Refused> {
    let body = body.map_err(|rejection| rejection.into_response())?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_yaml = kind.contains("yaml");
    let fields = app.parse(body, move |body| if is_yaml { read_yaml(body) } else { read_json(body) }).await;
    fields.map_err(|why| bad_request(json!({"message": why})).into())
}

fn read_yaml(body: &[u8]) -> Result<Fields, String> {
    let read = std::str::from_utf8(body).map_err(|e| e.to_string());
    match read.and_then(|text| serde_saphyr::from_str::<Value>(text).map_err(|e| e.to_string())) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("Invalid YAML in request body: it is no mapping".to_owned()),
        Err(why) => Err(format!("Invalid YAML in request body: {why}")),
    }
}

fn read_json(body: &[u8]) -> Result<Fields, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err("Invalid JSON in request body".to_owned()),
    }
}

fn bad_request(body: Value) -> Response {
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// The answer to a job that is not taken, which clients tell by its number.
fn not_taken(status: StatusCode, why: impl ToString) -> Response {
    let body = json!([{"job_id": "0", "job_state": "submit", "message": why.to_string()}]);
    (status, Json(body)).into_response()
}

/// Submits a job.
pub(super) async fn submit(
    State(app): State<App>,
    caller: Who,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let fields = read_fields(&app, &headers, body).await?;
    let caller = account_of(&app, who(&caller).cloned(), &fields)?;
    let job = CompassJob::parse(fields).map_err(|bad| not_taken(StatusCode::BAD_REQUEST, bad))?;
    Ok(Json(json!([accept(&app, &caller, job).await?])).into_response())
}

async fn accept(app: &App, caller: &Caller, mut job: CompassJob) -> Result<Value, Refused> {
    let bad = |why: &dyn ToString| not_taken(StatusCode::BAD_REQUEST, why.to_string());
    let (now, waits) = (now_s(), !job.wait.wait_on.is_empty());
    let date = date_text(now);
    job.fields.insert("submit_time".to_owned(), time_text(now).into());
    job.fields.insert("submit_date".to_owned(), date.clone().into());
    for id in job.wait.wait_on.keys() {
        if View::find(&app.handle, JobId(*id)).await.map_err(unavailable)?.is_none() {
            return Err(bad(&format!("wait_on: there is no job {id}")).into());
        }
    }
    let asked = job.clone();
    let found = app.compass().look(move |lab| machines_for(lab, &asked)).await.map_err(unavailable)?;
    let preferred = found.map_err(|e| bad(&e))?;
    let queue = queue_of(app, caller, &job).await.map_err(unavailable)?;
    let fields = job.fields.clone();
    let spec = job.into_spec(queue, preferred).map_err(|e| bad(&e))?;
    app.front.may_submit(caller, spec.priority).await.map_err(|e| not_taken(e.status(), e))?;
    let submit = move |request| {
        let (existing, outcomes) = (None, BTreeMap::new());
        Event::Submit(Box::new(Submit {
            request,
            spec,
            placeable_only: false,
            held: waits,
            existing,
            outcomes,
        }))
    };
    match app.handle.request(submit).await {
        Ok(Reply::Submitted { job, .. }) => {
            if waits {
                app.compass().waits.watch(job).await;
            }
            Ok(json!({
                "job_id": job.to_string(),
                "message": "",
                "version": env!("CARGO_PKG_VERSION"),
                "job_state": "submit",
                "result_root": format!("/srv{}", result_root(job, &fields, &date)),
            }))
        }
        Ok(Reply::Refused(refusal)) => Err(bad(&refusal).into()),
        Ok(_) => Err(not_taken(StatusCode::INTERNAL_SERVER_ERROR, OTHER_QUESTION).into()),
        Err(why) => Err(not_taken(StatusCode::SERVICE_UNAVAILABLE, why).into()),
    }
}

/// The queue that a job names where it is for everybody, a project's that somebody set up too; else its
/// account's own.
async fn queue_of(app: &App, caller: &Caller, job: &CompassJob) -> Result<String, Unavailable> {
    let Some(named) = job.queue.clone() else { return Ok(job.account.clone()) };
    if SHARED_QUEUES.contains(&named.as_str()) {
        return Ok(named);
    }
    if app.front.may_use_queue(caller, &named).await.is_err() {
        return Ok(job.account.clone());
    }
    if named == URGENT_QUEUE {
        return Ok(named);
    }
    let name = named.clone();
    let set_up = move |engine: &windlass_core::Engine| {
        engine
            .queues()
            .by_name()
            .any(|queue| queue.name() == name && queue.record != QueueRecord::named(&name))
    };
    // An account's own is nobody else's, whatever its weight.
    let project = !app.auth().knows_user(&named) && app.handle.query(set_up).await?;
    Ok(if project { named } else { job.account.clone() })
}

/// The machines whose caches hold most of what the job reads. Fails where no known machine has the devices.
fn machines_for(lab: &Lab, job: &CompassJob) -> Result<BTreeSet<String>, BadJob> {
    let needs = job.needs();
    let (devices, others): (Vec<_>, Vec<_>) = needs.iter().partition(|need| need.key == "device");
    let named = |host: &str| job.machines.as_ref().is_none_or(|machines| machines.contains(host));
    let fits = |attributes: &Attributes| others.iter().all(|need| need.met_by(attributes));
    let hosts = lab.hosts.values().filter(|host| named(&host.name)).map(|host| (host, host.described()));
    let hosts: Vec<_> = hosts.filter(|(_, attributes)| fits(attributes)).collect();
    let all = |attributes: &Attributes| devices.iter().all(|need| need.met_by(attributes));
    if !devices.is_empty() && !hosts.iter().any(|(_, attributes)| all(attributes)) {
        let lacking = |device: &&String| {
            let has =
                |attributes: &Attributes| attributes.get("device").is_some_and(|had| had.contains(*device));
            !hosts.iter().any(|(_, attributes)| has(attributes))
        };
        let lacked: Vec<&str> = job.devices.iter().filter(lacking).map(String::as_str).collect();
        let why = match lacked.as_slice() {
            [] => "each is there, but no machine that the job may have has them all".to_owned(),
            some => format!("no machine that the job may have has {}", some.join(", ")),
        };
        return Err(BadJob::Field { field: "sched.devices".to_owned(), why });
    }
    if job.cache_dirs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let hosts = hosts.iter().filter(|(_, attributes)| all(attributes));
    let hits = hosts.filter_map(|(host, _)| {
        let hits = host.request.as_ref()?.cache_dirs.intersection(&job.cache_dirs).count();
        (hits > 0).then(|| (hits, host.name.clone()))
    });
    let hits: Vec<(usize, String)> = hits.collect();
    let most = hits.iter().map(|(hits, _)| *hits).max().unwrap_or(0);
    let best: BTreeSet<String> = hits.into_iter().filter(|(n, _)| *n == most).map(|(_, name)| name).collect();
    // Where so many are as good, there is nothing to wait for.
    Ok(if best.len() > PREFERS_PER_STEP_MAX { BTreeSet::new() } else { best })
}

/// Shows a job.
pub(super) async fn show(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Refused> {
    check_look(who(&caller))?;
    let id = job_id(&id)?;
    let view = View::find(&app.handle, id).await.map_err(unavailable)?.ok_or_else(not_found)?;
    let wanted: Option<BTreeSet<String>> =
        query.get("fields").map(|fields| fields.split(',').map(str::to_owned).collect());
    Ok(Json(public_fields(view.fields(id), wanted.as_ref())).into_response())
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({"error": "Job not found"}))).into_response()
}

/// Waits for jobs: until one is so far, or for ten seconds.
pub(super) async fn wait(
    State(app): State<App>,
    caller: Who,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let fields = read_fields(&app, &headers, body).await?;
    if who(&caller).is_none() {
        account_of(&app, None, &fields)?;
    } else {
        check_look(who(&caller))?;
    }
    let spec = WaitSpec::parse(&fields).map_err(|e| bad_request(json!({"error": e.to_string()})))?;
    let (mut changes, mut events) = (app.compass().changes.subscribe(), app.handle.subscribe());
    let (mut closing, deadline) = (app.handle.closing(), Instant::now() + WAIT);
    loop {
        let (answer, progress) = look(&app, &spec, &fields).await?;
        if progress || *closing.borrow() {
            return Ok(Json(answer).into_response());
        }
        loop {
            let changed = tokio::select! {
                job = changes.recv() => job.ok().is_none_or(|job| spec.wait_on.contains_key(&job.0)),
                event = events.recv() => match event.as_deref() {
                    Ok(windlass_api::ServerEvent::Job(job)) => spec.wait_on.contains_key(&job.job),
                    Ok(_) => false,
                    Err(_) => true,
                },
                () = tokio::time::sleep_until(deadline) => return Ok(Json(answer).into_response()),
                () = super::ended(&mut closing) => true,
            };
            if changed {
                break;
            }
        }
    }
}

/// What is left to wait for, and what was told of the rest; true if there is anything to tell.
async fn look(app: &App, spec: &WaitSpec, fields: &Fields) -> Result<(Value, bool), Refused> {
    let (mut left, mut told, mut failed) = (Fields::new(), Fields::new(), None);
    let asked = fields.get("wait_on").and_then(Value::as_object);
    for id in spec.wait_on.keys() {
        let job = View::find(&app.handle, JobId(*id)).await.map_err(unavailable)?;
        let Some(job) = job else {
            let body = json!({"error": format!("Job {id} not found")});
            return Err((StatusCode::NOT_FOUND, Json(body)).into_response().into());
        };
        let view = public_fields(job.fields(JobId(*id)), None);
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

/// Takes in how far a job is.
pub(super) async fn update(
    State(app): State<App>,
    caller: Who,
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
            _ => Speaker::Token(params.remove("job_token").ok_or(BadUpdate::NotYours)?),
        };
        let failed = |why: Unavailable| BadUpdate::Unavailable(why.to_string());
        let ask = |reply| Ask::Update { job: id, params, speaker, reply: Some(reply) };
        match app.compass().ask(ask).await.map_err(failed)? {
            // No host has it: never, or no more.
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

/// The job that somebody wants to end, which must be theirs.
async fn ours(
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
    let caller = account_of(app, who(caller).cloned(), &fields)?;
    let missing = || say(StatusCode::NOT_FOUND, "Job not found");
    let id = id.parse::<u64>().map(JobId).map_err(|_| missing())?;
    let view = View::find(&app.handle, id).await.map_err(unavailable)?.ok_or_else(missing)?;
    check_owner(Some(&caller), &view.spec.user)?;
    Ok((id, view))
}

/// Cancels a job that no host has yet.
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let (job, view) = ours(&app, &caller, &headers, &id, body).await?;
    let task = TaskId { job, index: 0 };
    let booked = app.handle.query(move |engine| engine.attempt(task).is_some()).await.map_err(unavailable)?;
    if view.record.stage != Stage::Submit || booked {
        return Err(say(StatusCode::FORBIDDEN, "Job already running").into());
    }
    end(&app, job).await
}

/// Ends a job that a host has.
pub(super) async fn terminate(
    State(app): State<App>,
    caller: Who,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let (job, view) = ours(&app, &caller, &headers, &id, body).await?;
    if view.record.stage == Stage::Submit || view.record.stage.is_end() {
        return Err(say(StatusCode::FORBIDDEN, "Job not running").into());
    }
    end(&app, job).await
}

async fn end(app: &App, job: JobId) -> Result<Response, Refused> {
    match app.handle.request(move |request| Event::Cancel { request, job }).await.map_err(unavailable)? {
        Reply::Done => Ok(say(StatusCode::OK, "Success")),
        Reply::Refused(refusal) => Err(say(StatusCode::FORBIDDEN, refusal.to_string()).into()),
        _ => Err(say(StatusCode::INTERNAL_SERVER_ERROR, OTHER_QUESTION).into()),
    }
}

/// The word of a query, where it is given and not empty.
pub(super) fn given(query: &BTreeMap<String, String>, key: &str) -> Option<String> {
    query.get(key).filter(|text| !text.is_empty()).cloned()
}

/// The queue and account that a job's fields name, for lists.
pub(super) fn cell(fields: &Fields, key: &str) -> String {
    match fields.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(value) => text_of(fields, key).unwrap_or_else(|| value.to_string()),
    }
}
