//! Hosts, lists of jobs and hosts, and the scheduler's health.

use super::table::{LOOKED_MAX, Words, given, table};
use crate::access::{check_host, check_look};
use crate::answer::{Refused, say, tell};
use crate::app::App;
use crate::caller::{Who, who};
use crate::fill::is_private;
use crate::format::{Fields, Stage, is_compass, text_of};
use crate::lab::{Ask, Host, Lab};
use crate::number::task_of;
use crate::time::{now_s, time_text};
use crate::view::View;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_core::ids::ClassId;
use windlass_core::job::JobState;
use windlass_core::worker::Origin;
use windlass_core::{Engine, JobId};
use windlass_server::auth::{Caller, Role};
use windlass_server::{JsonLimits, Unavailable, read_json};
use windlass_store::JobFilter;

/// Rows of one list.
const ROWS_MAX: usize = 1_000;
/// Jobs that wait, the next ones in turn, of which the machines are counted.
const WAITING_MAX: usize = 2_000;

/// Answers that the server runs.
pub(super) async fn health() -> String {
    let (now, version) = (time_text(now_s()), env!("CARGO_PKG_VERSION"));
    format!("Compass CI scheduler is alive. Time: {now}, Version: {version}")
}

/// Shows a host's fields.
pub(super) async fn host(
    State(app): State<App>,
    caller: Who,
    Path(name): Path<String>,
) -> Result<Response, Refused> {
    check_look(who(&caller)).map(|_| ()).or_else(|_| check_host(who(&caller), &name))?;
    let (wanted, is_whole) = (name.clone(), reads_hosts(who(&caller)));
    let found =
        app.compass.look(move |lab| lab.hosts.get(&wanted).map(|host| host_fields(host, is_whole))).await;
    Ok(match found? {
        Some(mut fields) => {
            add_waiting(&mut fields, &name, &waiting_by_host(&app).await?);
            Json(fields).into_response()
        }
        None => tell(StatusCode::NOT_FOUND, json!({"error": "Host not found", "hostname": name})),
    })
}

/// True if the caller may see a host's private fields, which tell how to switch its power.
fn reads_hosts(caller: Option<&Caller>) -> bool {
    caller.is_some_and(|caller| caller.role == Role::Admin)
}

/// The registered and reported fields of a host; all of them, or those that are not private.
fn host_fields(host: &Host, is_whole: bool) -> Fields {
    let mut fields = host.info.clone();
    fields.extend(host.said.iter().filter(|(key, _)| *key != "type").map(|(k, v)| (k.clone(), v.clone())));
    fields.retain(|key, _| is_whole || !is_private(key));
    fields.insert("hostname".to_owned(), host.name.clone().into());
    fields.insert("connected".to_owned(), host.session.is_some().into());
    fields
}

fn add_waiting(fields: &mut Fields, host: &str, waiting: &BTreeMap<String, u64>) {
    fields.insert("nr_waiting".to_owned(), waiting.get(host).copied().unwrap_or_default().into());
}

/// How many jobs wait that name their machines, by machine. A job of several machines counts for each.
async fn waiting_by_host(app: &App) -> Result<BTreeMap<String, u64>, Unavailable> {
    let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
    for (targets, jobs) in app.handle.query(waiting_by_targets).await? {
        for host in targets.iter().filter_map(|worker| Origin::Compass.own_name(worker)) {
            *hosts.entry(host.to_owned()).or_default() += jobs;
        }
    }
    Ok(hosts)
}

/// Sets of workers, and how many ready tasks name each set.
fn waiting_by_targets(engine: &Engine) -> Vec<(BTreeSet<String>, u64)> {
    let mut tasks: BTreeMap<ClassId, u64> = BTreeMap::new();
    let steps = engine.queues().in_turn().flat_map(|(_, queue)| queue.in_order()).take(WAITING_MAX);
    for (queued, class) in steps {
        let key = queued.step();
        let step = engine.job(key.job).and_then(|job| job.steps.get(usize::from(key.step)));
        *tasks.entry(class).or_default() += step.map_or(0, |step| u64::from(step.ready.len()));
    }
    let classes = &engine.planner().classes;
    let sets = tasks.into_iter().map(|(class, tasks)| {
        let targets = classes.get(class).parts().flat_map(|part| part.targets.iter().cloned());
        (targets.collect::<BTreeSet<String>>(), tasks)
    });
    sets.filter(|(targets, _)| !targets.is_empty()).collect()
}

/// Registers a host, or takes in its metrics.
pub(super) async fn register(
    State(app): State<App>,
    caller: Who,
    Path(name): Path<String>,
    Query(query): Query<Words>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    check_host(who(&caller), &name)?;
    let bad = |why: &str| Refused::from(say(StatusCode::BAD_REQUEST, why));
    let body = body.map_err(|rejection| rejection.into_response())?;
    let fields = app.front.parse(body, |body| read_json::<Value>(body, JsonLimits::GATEWAY)).await;
    let Ok(Value::Object(fields)) = fields else {
        return Err(bad("Invalid JSON in request body"));
    };
    if text_of(&fields, "hostname").as_deref() != Some(name.as_str()) {
        return Err(bad("Hostname in body does not match URL parameter"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(bad(&format!("a host's name has {NAME_BYTES_MAX} bytes at most")));
    }
    let metrics = query.contains_key("report_metrics");
    let ask = |reply| Ask::Register { host: name.clone(), fields: Box::new(fields), metrics, reply };
    app.compass.ask(ask).await?.map_err(|why| bad(&why))?;
    Ok(say(StatusCode::OK, format!("Host registered successfully: {name}")))
}

/// Lists jobs that no host has yet.
pub(super) async fn pending(
    State(app): State<App>,
    caller: Who,
    Query(query): Query<Words>,
) -> Result<Response, Refused> {
    let reader = app.front.reader(check_look(who(&caller))?);
    let filter = JobFilter {
        states: vec![JobState::Active],
        user: given(&query, "my_account"),
        ..JobFilter::default()
    };
    let (mut rows, mut before, mut looked) = (Vec::new(), None, 0);
    while rows.len() < ROWS_MAX && looked < LOOKED_MAX {
        let store = app.handle.store();
        let part = store.jobs(filter.clone(), before, ROWS_MAX, LOOKED_MAX - looked).await;
        let part = part.map_err(|error| Unavailable::from_store(&error))?;
        (before, looked) = (part.next, looked + part.rows);
        for job in part.jobs.into_iter().filter(|job| is_compass(&job.spec)) {
            for id in View::numbers(&job) {
                let view = View::of(&app.handle, job.clone(), task_of(id).index).await?;
                rows.extend(
                    view.filter(|view| view.record.stage == Stage::Submit)
                        .map(|view| view.fields(id, &reader)),
                );
            }
        }
        if before.is_none() {
            break;
        }
    }
    Ok(table("Pending jobs", rows, &JOB_COLUMNS, &query))
}

/// Lists jobs that hosts have.
pub(super) async fn running(
    State(app): State<App>,
    caller: Who,
    Query(query): Query<Words>,
) -> Result<Response, Refused> {
    let reader = app.front.reader(check_look(who(&caller))?);
    let open = |lab: &Lab| {
        let open = lab.runs.iter().filter(|(_, run)| !run.record.stage.is_end());
        open.map(|(job, _)| job).take(ROWS_MAX).collect::<Vec<JobId>>()
    };
    let jobs = app.compass.look(open).await?;
    let (mut rows, account) = (Vec::new(), given(&query, "my_account"));
    for job in jobs {
        let view = View::find(&app.handle, job).await?;
        let wanted = view.filter(|view| account.as_ref().is_none_or(|account| view.spec.user == *account));
        rows.extend(wanted.map(|view| view.fields(job, &reader)));
    }
    Ok(table("Running jobs", rows, &JOB_COLUMNS, &query))
}

/// Lists hosts with their running jobs.
pub(super) async fn hosts(
    State(app): State<App>,
    caller: Who,
    Query(query): Query<Words>,
) -> Result<Response, Refused> {
    let is_whole = reads_hosts(Some(check_look(who(&caller))?));
    let all = move |lab: &Lab| {
        let hosts = lab.hosts.values().filter(|host| host.is_machine()).take(LOOKED_MAX);
        hosts
            .map(|host| {
                let mut fields = host_fields(host, is_whole);
                let running = lab.runs.on(&host.name).filter(|(_, run)| !run.record.stage.is_end()).count();
                fields.insert("nr_jobs".to_owned(), running.into());
                fields
            })
            .collect::<Vec<Fields>>()
    };
    let (mut rows, waiting) = (app.compass.look(all).await?, waiting_by_host(&app).await?);
    for fields in &mut rows {
        let host = text_of(fields, "hostname").unwrap_or_default();
        add_waiting(fields, &host, &waiting);
    }
    let columns =
        ["hostname", "arch", "tbox_type", "nr_cpu", "freemem", "nr_jobs", "nr_waiting", "connected"];
    Ok(table("Hosts", rows, &columns, &query))
}

const JOB_COLUMNS: [&str; 10] = [
    "job_id",
    "my_account",
    "submit_date",
    "suite",
    "category",
    "osv",
    "arch",
    "testbox",
    "job_stage",
    "timeout_seconds",
];

/// Shows hosts, clients and queues, for people who look for a fault.
pub(super) async fn debug(State(app): State<App>, caller: Who) -> Result<Response, Refused> {
    check_look(who(&caller))?;
    let lab = app.compass.look(|lab| {
        let hosts = lab.hosts.values().take(LOOKED_MAX).map(|host| {
            let free = host.request.as_ref().map(|request| request.free_memory >> 20);
            let jobs = lab.runs.on(&host.name);
            let jobs: BTreeMap<String, &str> =
                jobs.map(|(job, run)| (job.to_string(), run.record.stage.as_str())).collect();
            let (connected, waits) = (host.session.is_some(), host.ticket.is_some());
            let shown = json!({"connected": connected, "boots": waits, "freemem": free, "jobs": jobs});
            (host.name.clone(), shown)
        });
        let watched: Vec<String> = lab.clients.watched().into_iter().map(|job| job.to_string()).collect();
        let clients = json!({"connected": lab.clients.count(), "watched_jobs": watched});
        json!({"hosts": hosts.collect::<Fields>(), "clients": clients})
    });
    let mut shown = lab.await?;
    let queues = |engine: &Engine| {
        let queues = engine.queues().by_name().take(LOOKED_MAX);
        let queues = queues.map(|queue| {
            let shown = json!({"priority": queue.band(), "waiting": queue.steps(), "running": queue.active});
            (queue.name().to_owned(), shown)
        });
        let waits = windlass_core::explain::waiting_tasks(engine).into_iter();
        let waits: BTreeMap<&str, u64> = waits.map(|(reason, n)| (reason.as_str(), n)).collect();
        (Value::Object(queues.collect()), json!(waits))
    };
    let (queues, waits) = app.handle.query(queues).await?;
    (shown["queues"], shown["waiting"]) = (queues, waits);
    shown["waiting_by_host"] = json!(waiting_by_host(&app).await?);
    let text = serde_json::to_string_pretty(&shown).unwrap_or_default();
    Ok(say(StatusCode::OK, text))
}
