//! Real processes, through the real server and keeper.

use super::figures::{median, percentile};
use super::server_process::{ServerProcess, Setup};
use super::work;
use anyhow::Context as _;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use windlass_api::client::TasksQuery;
use windlass_api::{StepRequest, SubmitRequest};
use windlass_core::JobId;

/// Real processes, in turn with xargs.
pub async fn run(setup: &Setup, tasks: u32, pairs: u32) -> anyhow::Result<()> {
    println!("{tasks} x /bin/true on 2 slots, control groups and logs on, beside xargs -P2");
    let server = ServerProcess::with_worker(setup, "exec").await?;
    let (mut ratios, mut gaps_ms, mut last) = (Vec::new(), Vec::new(), 0);
    for pair in 1..=pairs {
        let (windlass, xargs) = (by_windlass(setup, &server, tasks)?, by_xargs(tasks)?);
        let ratio = windlass / xargs;
        ratios.push(ratio);
        println!("  pair {pair}: windlass {windlass:.0}/s, xargs {xargs:.0}/s, ratio {ratio:.2}");
        last = server.client.jobs(&Default::default()).await?.items.first().map_or(0, |job| job.id);
    }
    let state = server.stop().await?;
    let store = work::open(&state.join("windlass.db"))?;
    let rows = store.tasks(JobId(last), 0..tasks).await?;
    let spans = rows.iter().filter_map(|row| row.result.as_ref());
    let spans = spans.filter_map(|result| Some((result.started?.0, result.finished?.0)));
    gaps(spans.collect(), 2, &mut gaps_ms);
    println!(
        "  median ratio {:.2}; end of a task to start of the next on its slot: p50 {:.2} ms, p99 {:.2} ms",
        median(&mut ratios),
        percentile(&mut gaps_ms, 0.5),
        percentile(&mut gaps_ms, 0.99)
    );
    Ok(())
}

/// Tasks a second of `windlass run`, as a user runs it.
fn by_windlass(setup: &Setup, server: &ServerProcess, tasks: u32) -> anyhow::Result<f64> {
    let clock = Instant::now();
    let status = Command::new(&setup.windlass)
        .args(["run", "--quiet", "--server", &server.listen])
        .args(["--array", &format!("1-{tasks}"), "--", "/bin/true"])
        .env_remove("WINDLASS_TASK")
        .stdin(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "windlass run ended with {status}");
    Ok(f64::from(tasks) / clock.elapsed().as_secs_f64())
}

fn by_xargs(tasks: u32) -> anyhow::Result<f64> {
    let clock = Instant::now();
    let status = Command::new("sh")
        .args(["-c", &format!("seq {tasks} | xargs -P2 -n1 /bin/true")])
        .stdin(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "xargs ended with {status}");
    Ok(f64::from(tasks) / clock.elapsed().as_secs_f64())
}

/// The time that slots stood empty between two tasks, in milliseconds. Each start after the first ones takes the slot
/// that became free first.
fn gaps(mut spans: Vec<(u64, u64)>, slots: usize, into: &mut Vec<f64>) {
    spans.sort_unstable();
    let mut free = std::collections::BinaryHeap::new();
    for (place, (started, finished)) in spans.iter().enumerate() {
        if place >= slots
            && let Some(std::cmp::Reverse(since)) = free.pop()
        {
            into.push(started.saturating_sub(since) as f64 / 1e6);
        }
        free.push(std::cmp::Reverse(*finished));
    }
}

/// From submission to the start of the process, one job after the other.
pub async fn latency(setup: &Setup, submissions: u32) -> anyhow::Result<()> {
    let server = ServerProcess::with_worker(setup, "latency").await?;
    let mut latencies_ms = Vec::new();
    let step = StepRequest { command: vec!["/bin/true".to_owned()], ..StepRequest::default() };
    let request = SubmitRequest { steps: vec![step], ..SubmitRequest::default() };
    for _ in 0..submissions {
        let submitted_ns = now_ns();
        let job = server.client.submit(&request).await?.job;
        server.client.wait(job, None).await?;
        latencies_ms.push((job, submitted_ns));
    }
    let query = TasksQuery::default();
    let first = latencies_ms.first().map_or(0, |(job, _)| *job);
    anyhow::ensure!(!server.client.tasks(first, &query).await?.items.is_empty(), "the first job has no task");
    let state = server.stop().await?;
    let store = work::open(&state.join("windlass.db"))?;
    let mut waits = Vec::new();
    for (job, submitted_ns) in latencies_ms {
        let row = store.tasks(JobId(job), 0..1).await?.pop().context("a task has no row")?;
        let started = row.result.and_then(|r| r.started).context("a task has no start")?;
        waits.push(started.0.saturating_sub(submitted_ns) as f64 / 1e6);
    }
    println!(
        "idle, submission to start of the process over {submissions}: p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms",
        percentile(&mut waits, 0.5),
        percentile(&mut waits, 0.99),
        percentile(&mut waits, 1.0)
    );
    Ok(())
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
