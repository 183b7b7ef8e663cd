//! No processes: a worker inside this process completes every task at once.

use super::by_hand;
use anyhow::Context as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use windlass_api::{JobState, ServerEvent, StepBody};
use windlass_core::engine::{CheckedHello, Event, Hello, Reply, Submit, WorkerCommand};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::{Epoch, JobId, Resources, Time};
use windlass_server::{Delivery, Handle, WorkerLink, WorkerMessage};
use windlass_store::Store;

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
    let store = Store::open(&format!("sqlite:{}", path.display()))?;
    let handle = windlass_server::start(store, Default::default()).await?;
    start_worker(&handle, slots).await?;
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
    let store = Store::open(&format!("sqlite:{}", dir.join("array.db").display()))?;
    let handle = windlass_server::start(store, Default::default()).await?;
    start_worker(&handle, 0).await?;
    submit(&handle, 10).await?;
    let before = resident_bytes()?;
    let clock = Instant::now();
    let job = submit(&handle, tasks).await?;
    let accepted = clock.elapsed();
    let counts = handle.query(move |engine| engine.job(job).map(|job| job.counts())).await?;
    anyhow::ensure!(counts.is_some_and(|counts| counts.ready == tasks), "not all tasks are ready");
    let grown = resident_bytes()?.saturating_sub(before) as f64 / f64::from(1 << 20);
    println!(
        "an array of {tasks} tasks: accepted and durable in {:.1} ms, {grown:.1} MiB more resident",
        accepted.as_secs_f64() * 1e3
    );
    handle.stop().await;
    Ok(())
}

/// A worker of `slots` cpus.
async fn start_worker(handle: &Handle, slots: u32) -> anyhow::Result<()> {
    workers(handle, 1, slots).await.map(|_| ())
}

/// `count` workers of `slots` cpus each, on one thread. Each message received says that tasks reached a worker and have
/// ended.
pub async fn workers(
    handle: &Handle,
    count: u32,
    slots: u32,
) -> anyhow::Result<tokio::sync::mpsc::UnboundedReceiver<()>> {
    let (starts, started) = tokio::sync::mpsc::unbounded_channel();
    let (parcels, inbox) = mpsc::channel::<(u64, Vec<Delivery>)>();
    for number in 0..count {
        let (id, parcels) = (handle.next_link(), parcels.clone());
        let hello = hello(format!("bench-{number}"), id, slots);
        let link = Arc::new(InstantLink { id, parcels });
        handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link }]).await;
    }
    let up = handle.clone();
    std::thread::spawn(move || {
        let mut epoch = Epoch(0);
        while let Ok((id, parcel)) = inbox.recv() {
            let ended = end_all(parcel, &mut epoch);
            if !ended.is_empty() {
                _ = starts.send(());
                up.worker_says(id, ended);
            }
        }
    });
    wait_for_workers(handle, count as usize).await?;
    Ok(started)
}

/// A connection to one of many workers that share a thread.
struct InstantLink {
    id: u64,
    parcels: mpsc::Sender<(u64, Vec<Delivery>)>,
}

impl WorkerLink for InstantLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        _ = self.parcels.send((self.id, parcel));
    }

    fn refuse(&self, why: &str) {
        panic!("the worker is refused: {why}");
    }
}

pub fn hello(name: String, number: u64, slots: u32) -> CheckedHello {
    let hello = Hello::new(&name, number, Resources::new(slots * 100, 0));
    CheckedHello::of_agent(hello, &[]).expect("the benchmark's names are valid")
}

/// Ends every task that starts.
pub fn end_all(parcel: Vec<Delivery>, epoch: &mut Epoch) -> Vec<WorkerMessage> {
    let mut ended = Vec::new();
    for delivery in parcel {
        match delivery.order {
            WorkerCommand::Registered { epoch: welcome } => *epoch = welcome,
            WorkerCommand::Start { task, attempt, .. } => {
                let now = Some(Time(1));
                let result = TaskResult { started: now, finished: now, ..TaskResult::bare(End::Exited(0)) };
                ended.push(WorkerMessage::Finished { task, attempt, epoch: *epoch, result });
            }
            _ => {}
        }
    }
    ended
}

async fn wait_for_workers(handle: &Handle, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while handle.query(move |engine| engine.workers().iter().count() < count).await? {
        anyhow::ensure!(Instant::now() < deadline, "the workers did not register");
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub async fn submit(handle: &Handle, tasks: u32) -> anyhow::Result<JobId> {
    let body = StepBody { command: vec!["true".to_owned()], cwd: "/".to_owned(), ..StepBody::default() };
    let step = StepSpec {
        name: "main".to_owned(),
        tasks,
        request: Resources::new(100, 0),
        body: serde_json::to_vec(&body)?.into(),
        ..StepSpec::default()
    };
    let spec = JobSpec { name: "bench".to_owned(), steps: vec![step], ..JobSpec::default() };
    let submit = |request| Event::Submit(Box::new(Submit::new(request, spec)));
    match handle.request(submit).await? {
        Reply::Submitted { job, .. } => Ok(job),
        other => anyhow::bail!("not accepted: {other:?}"),
    }
}

/// Processor time of this process so far.
pub fn cpu_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
}

pub fn resident_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("statm has no second field")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
