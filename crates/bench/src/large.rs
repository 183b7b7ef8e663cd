//! Large jobs: the memory of a server for the bodies of their steps, and its restart over a job that is nearly done.

use super::backlog::{self, Backlog};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use windlass_api::{Params, StepBody};
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult, TaskState};
use windlass_core::ranges::RangeSet;
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::Store;

/// Jobs whose bodies are large.
const JOBS: u64 = 1_000;
/// Tasks of each, and bytes of each one's value.
const TASKS: u32 = 1_000;
const VALUE_BYTES: usize = 100;
/// Tasks that are placed of these jobs.
const DECISIONS: u64 = 20_000;
/// Tasks of the job that is nearly done that have not ended.
const OPEN: u32 = 5_000;
/// Tasks of one commit while the database is filled.
const BATCH: u32 = 20_000;

/// Runs both.
pub async fn run(dir: &Path, tasks: u32) -> anyhow::Result<()> {
    bodies(dir).await?;
    restart(dir, tasks).await
}

/// A million tasks whose jobs' bodies are 100 kB each.
async fn bodies(dir: &Path) -> anyhow::Result<()> {
    let path = dir.join("bodies.db");
    let store = open(&path)?;
    for id in 1..=JOBS {
        let values = (0..TASKS).map(|task| format!("{task:0VALUE_BYTES$}")).collect();
        let body = StepBody { command: vec!["true".to_owned()], params: Params::Values(values), ..body() };
        commit(&store, vec![job(id, TASKS, &body)]).await?;
    }
    drop(store);
    let backlog = Backlog { jobs: JOBS, users: 1, cache_steps: 10_000, decisions: DECISIONS };
    let many = backlog::measure(&path, backlog)?;
    println!("{} tasks in {JOBS} jobs, the body of each job {} kB", JOBS * u64::from(TASKS), TASKS / 10);
    println!(
        "  started in {:.0} ms, {} steps held, resident after {DECISIONS} tasks: {:.0} MiB",
        many.start_ms, many.held, many.resident_mib
    );
    Ok(())
}

/// A job of many tasks of which all but some have succeeded.
async fn restart(dir: &Path, tasks: u32) -> anyhow::Result<()> {
    let path = dir.join("large.db");
    let store = open(&path)?;
    let clock = Instant::now();
    commit(&store, vec![job(1, tasks, &body())]).await?;
    let done = tasks.saturating_sub(OPEN);
    let mut noted = RangeSet::default();
    for first in (0..done).step_by(BATCH as usize) {
        let last = (first + BATCH).min(done);
        let mut writes: Vec<Write> = (first..last).flat_map(ended).collect();
        // As the engine notes them.
        noted.insert_range(first..last);
        writes.push(Write::Done { job: JobId(1), tasks: noted.clone() });
        commit(&store, writes).await?;
    }
    drop(store);
    let size = std::fs::metadata(&path)?.len() as f64 / f64::from(1 << 20);
    println!("a job of {tasks} tasks, {OPEN} of them to be done");
    println!("  written in {:.0} s, {size:.0} MiB", clock.elapsed().as_secs_f64());
    let backlog = Backlog { jobs: 1, users: 1, cache_steps: 10_000, decisions: 1_000 };
    let one = backlog::measure(&path, backlog)?;
    println!("  restarted in {:.0} ms, resident after 1000 tasks: {:.0} MiB", one.start_ms, one.resident_mib);
    Ok(())
}

fn open(path: &Path) -> anyhow::Result<Store> {
    Ok(Store::open(&format!("sqlite:{}", path.display()))?)
}

async fn commit(store: &Store, writes: Vec<Write>) -> anyhow::Result<()> {
    let refused = store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await?;
    anyhow::ensure!(refused.is_empty(), "the store refused {refused:?}");
    Ok(())
}

fn body() -> StepBody {
    StepBody { command: vec!["true".to_owned()], cwd: "/".to_owned(), ..StepBody::default() }
}

fn job(id: u64, tasks: u32, body: &StepBody) -> Write {
    let step = StepSpec {
        name: "main".to_owned(),
        tasks,
        request: Resources::new(100, 0),
        body: serde_json::to_vec(body).unwrap_or_default().into(),
        ..StepSpec::default()
    };
    let (name, queue, user) = ("large".to_owned(), "q".to_owned(), "u".to_owned());
    let spec = Arc::new(JobSpec { name, queue, user, steps: vec![step], ..JobSpec::default() });
    Write::Job { id: JobId(id), spec, created: Time(1) }
}

/// A task that was booked and succeeded.
fn ended(index: u32) -> [Write; 2] {
    let task = TaskId { job: JobId(1), index };
    let (worker, epoch, at) = (WorkerId(1), Epoch(1), Time(2));
    let result = TaskResult {
        started: Some(Time(3)),
        finished: Some(Time(4)),
        cpu_ms: Some(5),
        peak_memory: Some(1 << 20),
        ..TaskResult::bare(End::Exited(0))
    };
    let (attempt, state, failures, losses) = (1, TaskState::Succeeded, 0, 0);
    [
        Write::Book { task, attempt, worker, epoch, at, amounts: (100, 0) },
        Write::End { task, attempt, state, failures, losses, result },
    ]
}
