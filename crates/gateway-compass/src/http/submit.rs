//! Submissions. The fields of one become one or several jobs, each with its queue and its machines.

use super::fields::read_fields;
use crate::access::account_of;
use crate::answer::{OTHER_QUESTION, Refused, tell};
use crate::app::App;
use crate::caller::{Who, who};
use crate::format::{
    BadJob, CLUSTER_ROLES, ClusterSpec, CompassJob, Fields, SEALED_SECRETS, cluster_job, cluster_name,
    jobs_of, nodes_of, result_root, text_of,
};
use crate::lab::Lab;
use crate::max_run::TooManyRuns;
use crate::number::number_of;
use crate::packages::PackageError;
use crate::time::{date_text, now_s, time_text};
use crate::view::View;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_core::bounds::{NAME_BYTES_MAX, PREFERS_PER_STEP_MAX};
use windlass_core::engine::{Event, Reply, Submit};
use windlass_core::queues::QueueRecord;
use windlass_core::tags::Attributes;
use windlass_core::{JobId, TaskId};
use windlass_server::Unavailable;
use windlass_server::auth::{Caller, Role};

/// Queues that any user may name. Other queues, also the urgent one, are for users that an administrator lists.
const SHARED_QUEUES: [&str; 3] = ["idle", "single-build", "bisect"];
const URGENT_QUEUE: &str = "vip";

/// A refused submission, with the status of the answer.
struct NotTaken {
    status: StatusCode,
    why: String,
}

impl NotTaken {
    fn new(status: StatusCode, why: impl ToString) -> NotTaken {
        NotTaken { status, why: why.to_string() }
    }

    fn bad(why: impl ToString) -> NotTaken {
        NotTaken::new(StatusCode::BAD_REQUEST, why)
    }

    /// The refusal in the form that clients read.
    fn body(&self) -> Value {
        json!({"job_id": "0", "job_state": "submit", "message": self.why})
    }
}

impl From<Unavailable> for NotTaken {
    fn from(why: Unavailable) -> NotTaken {
        NotTaken::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

impl From<NotTaken> for Refused {
    fn from(not: NotTaken) -> Refused {
        tell(not.status, json!([not.body()])).into()
    }
}

/// Submits a job, or the jobs of a matrix or a cluster.
pub(super) async fn submit(
    State(app): State<App>,
    caller: Who,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let fields = read_fields(&app, &headers, body).await?;
    let caller = account_of(&app.front, who(&caller).cloned(), &fields)?;
    let account = text_of(&fields, "my_account");
    let fields = without_packages(&app, &caller, fields).await?;
    // All jobs are checked before the first is submitted. Checking many large jobs takes a while.
    let cluster = cluster_of(&app, &fields).await?;
    let parsed = tokio::task::spawn_blocking(move || nodes_of(jobs_of(fields)?, cluster.as_ref()));
    let parsed = parsed.await.map_err(|e| NotTaken::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
    let jobs = parsed.map_err(NotTaken::bad)?;
    for job in jobs.iter().flatten() {
        // The account was checked before the matrix was expanded.
        if account.as_deref() != Some(&*job.account) {
            let why = format!("my_account '{}' is not the account of this submission", job.account);
            return Err(NotTaken::new(StatusCode::FORBIDDEN, why).into());
        }
        app.files.check_kernel(&job.fields).map_err(NotTaken::bad)?;
    }
    let (mut answers, mut taken) = (Vec::new(), false);
    for nodes in jobs {
        match accept(&app, &caller, nodes).await {
            Ok(mut answer) => {
                taken = true;
                answers.append(&mut answer);
            }
            // Clients find the refusal among the answers for each job.
            Err(not) if taken => answers.push(not.body()),
            Err(not) => return Err(not.into()),
        }
    }
    Ok(Json(answers).into_response())
}

/// The machines of the cluster that a job names: its own `cluster_spec`, or the registered cluster.
async fn cluster_of(app: &App, fields: &Fields) -> Result<Option<ClusterSpec>, NotTaken> {
    let Some(name) = cluster_name(fields) else { return Ok(None) };
    if let Some(own) = ClusterSpec::of_job(fields).map_err(NotTaken::bad)? {
        return Ok(Some(own));
    }
    let wanted = name.clone();
    let known = app.compass.look(move |lab| lab.clusters.get(&wanted).cloned()).await?;
    known.map(Some).ok_or_else(|| {
        let name: String = name.chars().take(NAME_BYTES_MAX).collect();
        NotTaken::bad(BadJob::Field {
            field: "cluster".to_owned(),
            why: format!(
                "there is no cluster '{name}': give cluster_spec in the job, or let an administrator import the \
                 laboratory's file cluster/{name} by windlass compass import"
            ),
        })
    })
}

/// Stores the files that a submission brings. The refusal names files that it has to send.
async fn without_packages(app: &App, caller: &Caller, mut fields: Fields) -> Result<Fields, Refused> {
    let (files, trusted) = (app.files.clone(), caller.role == Role::Admin);
    let taken =
        tokio::task::spawn_blocking(move || files.take_packages(&mut fields, trusted).map(|()| fields));
    let error = match taken.await {
        Ok(Ok(fields)) => return Ok(fields),
        Ok(Err(error)) => error,
        Err(error) => return Err(NotTaken::new(StatusCode::INTERNAL_SERVER_ERROR, error).into()),
    };
    if let PackageError::File(error) = &error {
        tracing::warn!("a file of a submission is not taken: {error}");
    }
    let status =
        if error.is_server_fault() { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST };
    Err(tell(status, error.body()).into())
}

/// Submits the job of one machine, or those of a cluster's nodes, which are one job for the engine. Returns an answer
/// for each node.
async fn accept(app: &App, caller: &Caller, mut nodes: Vec<CompassJob>) -> Result<Vec<Value>, NotTaken> {
    let now = now_s();
    let date = date_text(now);
    for node in &mut nodes {
        node.fields.insert("submit_time".to_owned(), time_text(now).into());
        node.fields.insert("submit_date".to_owned(), date.clone().into());
        seal(app, node)?;
    }
    let first = nodes.first().ok_or_else(|| NotTaken::bad("the job has no nodes"))?;
    // All nodes have the conditions, the queue and the limits of the first.
    let waits = !first.wait.wait_on.is_empty();
    for id in first.wait.wait_on.keys() {
        if View::find(&app.handle, JobId(*id)).await?.is_none() {
            return Err(NotTaken::bad(format!("wait_on: there is no job {id}")));
        }
    }
    let Chosen { queue, note } = queue_of(app, caller, first).await?;
    let fields: Vec<Fields> = nodes.iter().map(|node| node.fields.clone()).collect();
    let asked = nodes.clone();
    let preferred = app.compass.look(move |lab| {
        asked.iter().map(|node| machines_for(lab, node)).collect::<Result<Vec<BTreeSet<String>>, BadJob>>()
    });
    let preferred = preferred.await?.map_err(NotTaken::bad)?;
    let is_cluster = fields[0].contains_key(CLUSTER_ROLES);
    let mut nodes: Vec<_> = nodes.into_iter().zip(preferred).collect();
    let spec = match nodes.pop() {
        Some((only, preferred)) if !is_cluster => only.into_spec(queue, preferred),
        last => {
            nodes.extend(last);
            cluster_job(nodes, &queue)
        }
    };
    let spec = spec.map_err(NotTaken::bad)?;
    app.front.may_submit(caller, spec.priority).await.map_err(|e| NotTaken::new(e.status(), e))?;
    let _turn = app.compass.max_runs.enter(&app.handle, &fields[0]).await.map_err(|why| match why {
        TooManyRuns::Reached { .. } => NotTaken::new(StatusCode::CONFLICT, why),
        TooManyRuns::Bad(_) => NotTaken::bad(why),
        TooManyRuns::Unavailable(why) => why.into(),
    })?;
    let submit = move |request| Event::Submit(Box::new(Submit { held: waits, ..Submit::new(request, spec) }));
    match app.handle.request(submit).await {
        Ok(Reply::Submitted { job, .. }) => {
            app.compass.max_runs.add(job, &fields[0]);
            if waits {
                app.compass.waits.watch(job).await;
            }
            let answer =
                |(index, fields)| submitted(number_of(TaskId { job, index }), fields, &date, note.as_deref());
            Ok((0..).zip(&fields).map(answer).collect())
        }
        Ok(Reply::Refused(refusal)) => Err(NotTaken::bad(refusal)),
        Ok(_) => Err(NotTaken::new(StatusCode::INTERNAL_SERVER_ERROR, OTHER_QUESTION)),
        Err(why) => Err(why.into()),
    }
}

/// The answer for an accepted job. `note` says what is otherwise than its submitter asked for.
fn submitted(number: JobId, fields: &Fields, date: &str, note: Option<&str>) -> Value {
    json!({
        "job_id": number.to_string(),
        "message": note.unwrap_or_default(),
        "version": env!("CARGO_PKG_VERSION"),
        "job_state": "submit",
        "result_root": format!("/srv{}", result_root(number, fields, date)),
    })
}

/// Replaces the secrets of a job by their sealed form, which is stored for its machine.
fn seal(app: &App, job: &mut CompassJob) -> Result<(), NotTaken> {
    let secrets = std::mem::take(&mut job.secrets);
    if secrets.is_empty() {
        return Ok(());
    }
    let sealed = app.files.seal.close(&job.account, &secrets).map_err(|error| {
        tracing::error!("a job with secrets is not taken: {error}");
        NotTaken::new(StatusCode::INTERNAL_SERVER_ERROR, "secrets: the server cannot seal them; see its log")
    })?;
    job.fields.insert(SEALED_SECRETS.to_owned(), sealed.into());
    Ok(())
}

/// The queue that a job gets.
struct Chosen {
    queue: String,
    /// Why that is another one than the job names.
    note: Option<String>,
}

impl Chosen {
    fn named(queue: String) -> Chosen {
        Chosen { queue, note: None }
    }

    /// The account's own queue instead of the named one.
    fn own(account: &str, named: &str, why: &str) -> Chosen {
        let note = format!("queue '{named}' {why}, so the job is in the account's own queue '{account}'");
        Chosen { queue: account.to_owned(), note: Some(note) }
    }
}

/// The queue of a job: the named one if all users share it or if it is a project's queue that was set up, otherwise the
/// account's own.
async fn queue_of(app: &App, caller: &Caller, job: &CompassJob) -> Result<Chosen, Unavailable> {
    let account = job.account.as_str();
    let Some(named) = job.queue.clone().filter(|named| named != account) else {
        return Ok(Chosen::named(account.to_owned()));
    };
    if SHARED_QUEUES.contains(&named.as_str()) {
        return Ok(Chosen::named(named));
    }
    if app.front.may_use_queue(caller, &named).await.is_err() {
        return Ok(Chosen::own(account, &named, "is not open to the submitter"));
    }
    if named == URGENT_QUEUE {
        return Ok(Chosen::named(named));
    }
    let name = named.clone();
    let set_up = move |engine: &windlass_core::Engine| {
        engine
            .queues()
            .by_name()
            .any(|queue| queue.name() == name && queue.record != QueueRecord::named(&name))
    };
    // The queue of another account is not a project's, even if it was set up.
    let project = !app.front.auth().knows_user(&named) && app.handle.query(set_up).await?;
    Ok(if project {
        Chosen::named(named)
    } else {
        Chosen::own(account, &named, "was not set up by 'windlass queue set'")
    })
}

/// The machines whose caches hold most of the job's cache directories. Fails if no known machine has the devices.
fn machines_for(lab: &Lab, job: &CompassJob) -> Result<BTreeSet<String>, BadJob> {
    let needs = job.needs();
    let (devices, others): (Vec<_>, Vec<_>) = needs.iter().partition(|need| need.key == "device");
    let mut hosts = Vec::new();
    for host in lab.hosts.values().filter(|host| host.is_machine()) {
        if job.machines.as_ref().is_some_and(|machines| !machines.contains(&host.name)) {
            continue;
        }
        let attributes = host.described();
        if others.iter().all(|need| need.met_by(&attributes)) {
            hosts.push((host, attributes));
        }
    }
    let has_devices = |attributes: &Attributes| devices.iter().all(|need| need.met_by(attributes));
    if !devices.is_empty() && !hosts.iter().any(|(_, attributes)| has_devices(attributes)) {
        let had: BTreeSet<&String> =
            hosts.iter().filter_map(|(_, attributes)| attributes.get("device")).flatten().collect();
        let lacked: Vec<&str> =
            job.devices.iter().filter(|device| !had.contains(device)).map(String::as_str).collect();
        let why = match lacked.as_slice() {
            [] => "each is there, but no machine that the job may have has them all".to_owned(),
            some => format!("no machine that the job may have has {}", some.join(", ")),
        };
        return Err(BadJob::Field { field: "sched.devices".to_owned(), why });
    }
    if job.cache_dirs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (mut best, mut most) = (BTreeSet::new(), 1);
    for (host, attributes) in hosts {
        let Some(request) = host.request.as_ref().filter(|_| has_devices(&attributes)) else { continue };
        let hits = request.cache_dirs.intersection(&job.cache_dirs).count();
        if hits > most {
            best.clear();
            most = hits;
        }
        if hits == most {
            best.insert(host.name.clone());
        }
    }
    // With more machines than a step may prefer, waiting for one of them gains nothing.
    Ok(if best.len() > PREFERS_PER_STEP_MAX { BTreeSet::new() } else { best })
}
