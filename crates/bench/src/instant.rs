//! No processes: a worker inside this process completes every task at once.

use super::figures::{cpu_time, mib, resident_bytes};
use super::{by_hand, work, workers};
use std::path::Path;
use std::time::Instant;
use windlass_api::{JobState, ServerEvent};
use windlass_core::JobId;
use windlass_server::Handle;

/// Measures tasks a second for each number of slots.
pub async fn run(dir: &Path, tasks: u32, slots: &[u32]) -> anyhow::Result<()> {
    println!("durable tasks with a worker that completes at once ({tasks} tasks, SQLite, synchronous=FULL)");
    println!("  slots    tasks/s   cpu µs/task   raw SQLite rows/s at that batch   ratio");
    for slots in slots {
        let (rate, cpu_us) = instant(&dir.join(format!("instant-{slots}.db")), tasks, *slots).await?;
        let rows = tasks.min(50 * slots + 20_000);
        let raw = by_hand::sqlite_rows(&dir.join(format!("raw-{slots}.db")), rows, *slots)?;
        println!("  {slots:>5} {rate:>10.0} {cpu_us:>13.1} {raw:>33.0} {:>7.2}", rate / raw);
    }
    Ok(())
}

/// Tasks a second from submission until the last completion is durable, and processor time of this
/// process for each, in microseconds.
async fn instant(path: &Path, tasks: u32, slots: u32) -> anyhow::Result<(f64, f64)> {
    let handle = windlass_server::start(work::open(path)?, Default::default()).await?;
    workers::connect_instant(&handle, 1, slots).await?;
    let mut events = handle.subscribe();
    let (cpu, clock) = (cpu_time(), Instant::now());
    submit(&handle, tasks).await?;
    loop {
        let event = match events.recv().await {
            Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => continue,
            event => event?,
        };
        match &*event {
            ServerEvent::Job(job) if job.state.is_end() => {
                anyhow::ensure!(job.state == JobState::Succeeded, "the job ended as {:?}", job.state);
                anyhow::ensure!(
                    job.counts.succeeded == tasks,
                    "{} of {tasks} succeeded",
                    job.counts.succeeded
                );
                break;
            }
            _ => {}
        }
    }
    let (wall, cpu) = (clock.elapsed(), cpu_time() - cpu);
    handle.stop().await;
    Ok((f64::from(tasks) / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / f64::from(tasks)))
}

/// How fast a large array is accepted and what it holds while it waits.
pub async fn array(dir: &Path, tasks: u32) -> anyhow::Result<()> {
    let handle = windlass_server::start(work::open(&dir.join("array.db"))?, Default::default()).await?;
    submit(&handle, 10).await?;
    let before = resident_bytes()?;
    let clock = Instant::now();
    let job = submit(&handle, tasks).await?;
    let accepted = clock.elapsed();
    let counts = handle.query(move |engine| engine.job(job).map(|job| job.counts())).await?;
    anyhow::ensure!(counts.is_some_and(|counts| counts.ready == tasks), "not all tasks are ready");
    let grown = mib(resident_bytes()?.saturating_sub(before));
    println!(
        "an array of {tasks} tasks: accepted and durable in {:.1} ms, {grown:.1} MiB more resident",
        accepted.as_secs_f64() * 1e3
    );
    handle.stop().await;
    Ok(())
}

async fn submit(handle: &Handle, tasks: u32) -> anyhow::Result<JobId> {
    work::submit(handle, work::job("bench", "bench", vec![work::step(tasks)])).await
}
