//! Jobs, and databases in files, for all benches.

use anyhow::Context as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass_api::StepBody;
use windlass_core::engine::{Event, Outbox, Reply, Submit, Write};
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::{JobId, Resources};
use windlass_server::Handle;
use windlass_store::Store;

/// The lease of a farm on PostgreSQL, which outlasts each measurement.
const LEASE: Duration = Duration::from_secs(600);

/// A command that no worker of a bench runs.
pub fn command() -> StepBody {
    StepBody { command: vec!["true".to_owned()], cwd: "/".to_owned(), ..StepBody::default() }
}

/// A body as it is stored.
pub fn body(step: &StepBody) -> Arc<[u8]> {
    serde_json::to_vec(step).expect("strings and lists always serialize").into()
}

/// A step of tasks of one core.
pub fn step(tasks: u32) -> StepSpec {
    StepSpec {
        name: "main".to_owned(),
        tasks,
        request: Resources::new(100, 0),
        body: body(&command()),
        ..StepSpec::default()
    }
}

pub fn job(user: &str, queue: &str, steps: Vec<StepSpec>) -> JobSpec {
    let (name, user, queue) = ("bench".to_owned(), user.to_owned(), queue.to_owned());
    JobSpec { name, user, queue, steps, ..JobSpec::default() }
}

/// Submits a job to the engine of a server inside this process.
pub async fn submit(handle: &Handle, spec: JobSpec) -> anyhow::Result<JobId> {
    let submit = |request| Event::Submit(Box::new(Submit::new(request, spec)));
    match handle.request(submit).await? {
        Reply::Submitted { job, .. } => Ok(job),
        other => anyhow::bail!("not accepted: {other:?}"),
    }
}

pub fn open(path: &Path) -> anyhow::Result<Store> {
    Ok(Store::open(&format!("sqlite:{}", path.display()))?)
}

pub async fn commit(store: &Store, writes: Vec<Write>) -> anyhow::Result<()> {
    let refused = store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await?;
    anyhow::ensure!(refused.is_empty(), "the store refused {refused:?}");
    Ok(())
}

/// The store as the owner of the farm, who may commit.
pub async fn own(store: &Store) -> anyhow::Result<Store> {
    let server = store.register_server("bench", &[], env!("CARGO_PKG_VERSION"), None).await?;
    let owned = store.claim(server, LEASE).await?;
    Ok(store.as_owner(owned.context("a server owns the farm in this database")?))
}
