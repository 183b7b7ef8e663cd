//! Large jobs: the memory of a server for the bodies of their steps, and its restart over a job that is nearly done.

use super::backlog::{self, Backlog};
use super::figures::mib;
use super::work;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use windlass_api::{Params, StepBody};
use windlass_core::engine::Write;
use windlass_core::job::{End, StepSpec, TaskResult, TaskState};
use windlass_core::ranges::RangeSet;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

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

pub async fn run(dir: &Path, tasks: u32) -> anyhow::Result<()> {
    bodies(dir).await?;
    restart(dir, tasks).await
}

/// A million tasks whose jobs' bodies are 100 kB each.
async fn bodies(dir: &Path) -> anyhow::Result<()> {
    let path = dir.join("bodies.db");
    let store = work::open(&path)?;
    for id in 1..=JOBS {
        let values = (0..TASKS).map(|task| format!("{task:0VALUE_BYTES$}")).collect();
        let body = StepBody { params: Params::Values(values), ..work::command() };
        work::commit(&store, vec![job(id, TASKS, &body)]).await?;
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
    let store = work::open(&path)?;
    let clock = Instant::now();
    work::commit(&store, vec![job(1, tasks, &work::command())]).await?;
    let done = tasks.saturating_sub(OPEN);
    let mut noted = RangeSet::default();
    for first in (0..done).step_by(BATCH as usize) {
        let last = (first + BATCH).min(done);
        let mut writes: Vec<Write> = (first..last).flat_map(ended).collect();
        // As the engine notes them.
        noted.insert_range(first..last);
        writes.push(Write::SucceededRanges { job: JobId(1), tasks: noted.clone() });
        work::commit(&store, writes).await?;
    }
    drop(store);
    let size = mib(std::fs::metadata(&path)?.len());
    println!("a job of {tasks} tasks, {OPEN} of them to be done");
    println!("  written in {:.0} s, {size:.0} MiB", clock.elapsed().as_secs_f64());
    let backlog = Backlog { jobs: 1, users: 1, cache_steps: 10_000, decisions: 1_000 };
    let one = backlog::measure(&path, backlog)?;
    println!("  restarted in {:.0} ms, resident after 1000 tasks: {:.0} MiB", one.start_ms, one.resident_mib);
    Ok(())
}

fn job(id: u64, tasks: u32, body: &StepBody) -> Write {
    let step = StepSpec { body: work::body(body), ..work::step(tasks) };
    let spec = Arc::new(work::job("u", "q", vec![step]));
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
