//! A farm on PostgreSQL: an engine, its shell and the store as in a server, and many workers inside this process that
//! run nothing. A task counts as booked when its worker has the order to start it, so its row is durable by then.

use super::workers::Orders;
use super::{backlog, by_hand, work, workers};
use anyhow::Context as _;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use windlass_core::engine::{Settings, WorkerCommand};
use windlass_core::job::{End, StepSpec, TaskResult};
use windlass_core::{Epoch, Resources, TaskId, Time};
use windlass_server::{Delivery, Handle, ShellOptions, WorkerMessage};
use windlass_store::Store;

/// How long a measurement may stand still.
const PATIENCE: Duration = Duration::from_secs(240);
/// Bookings of the baseline.
const BASELINE_BOOKINGS: u32 = 100_000;
/// Sizes of the mixed farm's workers, in cores.
const CORES: [u32; 5] = [16, 24, 32, 48, 64];
/// How long its tasks run, and how long wide work is blocked before a worker is reserved, as in servers.
const RUN: Duration = Duration::from_secs(20);
const RESERVED_AFTER: Duration = Duration::from_secs(60);
/// Time for rounds and commits beside these.
const SLACK: Duration = Duration::from_secs(1);

/// The work that is placed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Debug)]
pub enum PostgresWork {
    /// Jobs of ten steps of a hundred tasks on idle workers, beside bookings by hand
    Jobs,
    /// Idle workers of mixed sizes until 99 percent of their cores are booked, and then a task of 64 cores
    Fill,
    /// One step on idle workers
    Step,
}

/// Measures in an empty database, in which the jobs stay.
pub async fn run(address: &str, what: PostgresWork, workers: u32, count: u32) -> anyhow::Result<()> {
    match what {
        PostgresWork::Jobs => jobs(address, workers, count).await,
        PostgresWork::Fill => fill(address, workers).await,
        PostgresWork::Step => step(address, workers, count).await,
    }
}

/// `count` jobs of 10 steps of 100 tasks, on workers with a core for each task.
async fn jobs(address: &str, workers: u32, count: u32) -> anyhow::Result<()> {
    let tasks = count * 1_000;
    let slots = tasks.div_ceil(workers);
    let mut farm = PostgresFarm::start(address, &vec![slots; workers as usize], None).await?;
    let (clock, before, engine) = (Instant::now(), farm.spent().await?, backlog::engine_time()?);
    let mut requests = tokio::task::JoinSet::new();
    for job in 0..count {
        let (handle, queue) = (farm.handle.clone(), format!("queue-{}", job % 10));
        requests.spawn(async move { submit(&handle, &queue, 10, 100, 1).await });
    }
    while let Some(accepted) = requests.join_next().await {
        accepted??;
    }
    let submitted = clock.elapsed();
    farm.await_started(tasks).await?;
    let (took, engine) = (clock.elapsed(), backlog::engine_time()? - engine);
    let (statements, batches) = farm.spent().await?;
    farm.stop().await;
    let batches = batches - before.1;
    let (batch, rate) = (f64::from(tasks) / batches as f64, f64::from(tasks) / took.as_secs_f64());
    let baseline = by_hand::bookings(address, BASELINE_BOOKINGS.min(tasks), batch.ceil() as u32).await?;
    let shown = windlass_store::shown_address(address);
    println!("{count} jobs of 10 steps of 100 tasks on {workers} workers, {shown}");
    println!(
        "  all jobs accepted after {:.2} s, all tasks booked after {:.2} s",
        secs(submitted),
        secs(took)
    );
    println!(
        "  {rate:.0} bookings/s in {batches} batches of {batch:.0}, {:.4} statements/task; by hand {:.0}/s, ratio {:.2}",
        (statements - before.0) as f64 / f64::from(tasks),
        baseline.by_hand,
        rate / baseline.by_hand
    );
    println!(
        "  the engine's thread {:.1} µs a booking; batches of the store alone {:.0}/s, ratio {:.2}",
        secs(engine) * 1e6 / f64::from(tasks),
        baseline.by_store,
        baseline.by_store / baseline.by_hand
    );
    Ok(())
}

async fn step(address: &str, workers: u32, count: u32) -> anyhow::Result<()> {
    let mut farm =
        PostgresFarm::start(address, &vec![count.div_ceil(workers); workers as usize], None).await?;
    let (clock, before) = (Instant::now(), farm.spent().await?);
    submit(&farm.handle, "queue", 1, count, 1).await?;
    farm.await_started(count).await?;
    let took = clock.elapsed();
    let (statements, batches) = farm.spent().await?;
    farm.stop().await;
    let (statements, batches) = (statements - before.0, batches - before.1);
    let shown = windlass_store::shown_address(address);
    println!("a step of {count} tasks on {workers} idle workers, {shown}");
    println!(
        "  booked in {:.3} s, {:.0}/s, in {batches} batches, {:.4} statements/task",
        secs(took),
        f64::from(count) / secs(took),
        statements as f64 / f64::from(count)
    );
    Ok(())
}

/// A cold farm of mixed sizes. Its tasks end after a while, and others take their place. The wide task starts only
/// because a worker is reserved for it.
async fn fill(address: &str, workers: u32) -> anyhow::Result<()> {
    let sizes = mixed(workers);
    let cores: u32 = sizes.iter().sum();
    let mut farm = PostgresFarm::start(address, &sizes, Some(RUN)).await?;
    let clock = Instant::now();
    for queue in 0..10 {
        submit(&farm.handle, &format!("queue-{queue}"), 1, cores, 1).await?;
    }
    farm.await_started(cores - cores / 100).await?;
    let most = clock.elapsed();
    let wide = Instant::now();
    submit(&farm.handle, "wide", 1, 1, 64).await?;
    let bound = RESERVED_AFTER + RUN + SLACK;
    let shown = windlass_store::shown_address(address);
    println!("{workers} workers of {cores} cores, cold, ten queues with a task for each core, {shown}");
    println!("  99 percent booked after {:.2} s", secs(most));
    farm.await_wide().await?;
    let waited = wide.elapsed();
    println!(
        "  a task of 64 cores, submitted then, started after {:.1} s; bound {} s: a worker is reserved after {} s, and its \
         tasks run for {} s; {} tasks started in all",
        secs(waited),
        bound.as_secs(),
        RESERVED_AFTER.as_secs(),
        RUN.as_secs(),
        farm.started
    );
    farm.stop().await;
    Ok(())
}

/// Workers in the mix of [`CORES`]. 1,553 of them have 57,000 cores.
fn mixed(workers: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = CORES.iter().copied().cycle().take(workers as usize).collect();
    if workers == 1_553 {
        let (has, mut over) = (sizes.iter().sum::<u32>(), 0);
        for size in sizes.iter_mut().filter(|size| **size == 64) {
            if has - over > 57_000 {
                (*size, over) = (48, over + 16);
            }
        }
    }
    sizes
}

fn secs(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Tasks that a worker was sent to start, and whether one of them is wide.
struct BegunTasks {
    tasks: u32,
    has_wide: bool,
}

struct PostgresFarm {
    handle: Handle,
    store: Store,
    begun: tokio::sync::mpsc::UnboundedReceiver<BegunTasks>,
    /// Tasks that workers were sent.
    started: u32,
    wide: bool,
}

impl PostgresFarm {
    /// Workers with these numbers of cores, which end tasks after `run`, or never.
    async fn start(address: &str, sizes: &[u32], run: Option<Duration>) -> anyhow::Result<PostgresFarm> {
        let store = Store::connect(address).await?;
        anyhow::ensure!(matches!(store, Store::Postgres(_)), "this bench measures PostgreSQL");
        let store = work::own(&store).await?;
        let found = store.load().await?;
        anyhow::ensure!(
            found.next_job == 1 && found.ground.workers.is_empty(),
            "the database has a farm; give a new one, because the jobs of the measurement stay in it"
        );
        let settings = Settings { lease_ns: None, ..Settings::default() };
        let handle = windlass_server::start(store.clone(), ShellOptions { settings }).await?;
        let (starts, begun) = tokio::sync::mpsc::unbounded_channel();
        let orders = workers::connect(&handle, sizes).await;
        let up = handle.clone();
        std::thread::spawn(move || serve(&up, &orders, run, &starts));
        workers::registered(&handle, sizes.len()).await?;
        Ok(PostgresFarm { handle, store, begun, started: 0, wide: false })
    }

    async fn hear(&mut self) -> anyhow::Result<()> {
        let heard = tokio::time::timeout(PATIENCE, self.begun.recv()).await;
        let heard = heard.with_context(|| format!("nothing began after {} tasks", self.started))?;
        let BegunTasks { tasks, has_wide } = heard.context("the workers are gone")?;
        self.started += tasks;
        self.wide |= has_wide;
        Ok(())
    }

    async fn await_started(&mut self, tasks: u32) -> anyhow::Result<()> {
        while self.started < tasks {
            self.hear().await?;
        }
        Ok(())
    }

    async fn await_wide(&mut self) -> anyhow::Result<()> {
        while !self.wide {
            self.hear().await?;
        }
        Ok(())
    }

    /// Statements of commits, and commits, so far.
    async fn spent(&self) -> anyhow::Result<(u64, u64)> {
        let Store::Postgres(postgres) = &self.store else { anyhow::bail!("this bench measures PostgreSQL") };
        let batches = self.store.owner().await?.map_or(0, |owner| owner.batch);
        Ok((postgres.statements(), batches))
    }

    /// Ends it, so that the baseline may own the farm.
    async fn stop(self) {
        self.handle.stop().await;
        _ = self.store.release().await;
    }
}

async fn submit(handle: &Handle, queue: &str, steps: u32, tasks: u32, cores: u32) -> anyhow::Result<()> {
    let step = StepSpec { request: Resources::new(cores * 100, 0), ..work::step(tasks) };
    let steps = (0..steps).map(|number| StepSpec { name: format!("step-{number}"), ..step.clone() });
    work::submit(handle, work::job("bench", queue, steps.collect())).await.map(|_| ())
}

/// A task that runs, ordered so that the one that ends first is the greatest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RunningOrder {
    ends: std::cmp::Reverse<Instant>,
    link: u64,
    task: TaskId,
    attempt: u32,
}

/// The thread of all workers.
fn serve(
    up: &Handle,
    orders: &Orders,
    run: Option<Duration>,
    starts: &tokio::sync::mpsc::UnboundedSender<BegunTasks>,
) {
    let mut epochs = BTreeMap::new();
    let mut running: BinaryHeap<RunningOrder> = BinaryHeap::new();
    loop {
        let next =
            running.peek().map_or(PATIENCE, |first| first.ends.0.saturating_duration_since(Instant::now()));
        match orders.recv_timeout(next) {
            Ok((link, parcel)) => {
                let mut begun = BegunTasks { tasks: 0, has_wide: false };
                for Delivery { order, start, .. } in parcel {
                    match order {
                        WorkerCommand::Registered { epoch } => _ = epochs.insert(link, epoch),
                        WorkerCommand::Start { task, attempt, .. } => {
                            begun.tasks += 1;
                            begun.has_wide |= start.is_some_and(|start| start.job.queue == "wide");
                            if let Some(run) = run {
                                let ends = std::cmp::Reverse(Instant::now() + run);
                                running.push(RunningOrder { ends, link, task, attempt });
                            }
                        }
                        _ => {}
                    }
                }
                if begun.tasks > 0 && starts.send(begun).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) if starts.is_closed() => return,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while running.peek().is_some_and(|first| first.ends.0 <= Instant::now()) {
            let Some(RunningOrder { link, task, attempt, .. }) = running.pop() else { break };
            let epoch = epochs.get(&link).copied().unwrap_or(Epoch(0));
            let now = Time(up.now().0);
            let began = Time(now.0.saturating_sub(run.unwrap_or_default().as_nanos() as u64));
            let bare = TaskResult::bare(End::Exited(0));
            let result = TaskResult { started: Some(began), finished: Some(now), ..bare };
            up.worker_says(link, vec![WorkerMessage::Finished { task, attempt, epoch, result }]);
        }
    }
}
