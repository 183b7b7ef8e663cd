//! What reads and a takeover cost over a PostgreSQL database of few and of many ended tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::engine::{Engine, Outbox, Write};
use windlass_core::job::{
    BacklogCounts, Counts, End, JobSpec, JobState, Parked, QueuePos, StepSpec, TaskResult, TaskState,
};
use windlass_core::{Epoch, JobId, Resources, TaskId, Time, WorkerId};
use windlass_server::ShellOptions;
use windlass_store::{JobFilter, Store, bench_ended_jobs};

/// Tasks of each ended job.
const TASKS: u32 = 10;
/// Active jobs, and parked ones, which are there from the beginning.
const ACTIVE: u64 = 100;
const PARKED: u64 = 100;
/// How often each is measured; the median counts.
const RUNS: usize = 51;
/// Takeovers.
const TAKEOVERS: usize = 5;
/// Jobs of a page of a list, and rows that it looks at if few pass the filter, as the server has it.
const PAGE: usize = 100;
const ROWS_MAX: usize = 50_000;
const LEASE: Duration = Duration::from_secs(600);

/// What is measured, with its time in milliseconds.
type ReadTimes = Vec<(&'static str, f64)>;

/// Fills an empty database to `few` ended tasks and measures, and then again with `many`.
pub async fn run(address: &str, few: u64, many: u64) -> anyhow::Result<()> {
    let store = Store::connect(address).await?;
    let mut owner = own(&store).await?;
    anyhow::ensure!(owner.load().await?.next_job == 1, "the database has jobs; give an empty one");
    make(&owner).await?;
    let first = 1 + ACTIVE + PARKED;
    let jobs = |tasks: u64| tasks / u64::from(TASKS);
    let clock = Instant::now();
    // The first one is there.
    bench_ended_jobs(address, JobId(first), first + 1, first + jobs(few) - 1).await?;
    let before = measure(&mut owner, &store, first + jobs(few) / 2).await?;
    bench_ended_jobs(address, JobId(first), first + jobs(few), first + jobs(many) - 1).await?;
    println!(
        "{many} ended tasks in {} jobs beside {few}, {}, filled in {:.0} s",
        jobs(many),
        windlass_store::shown_address(address),
        clock.elapsed().as_secs_f64()
    );
    let after = measure(&mut owner, &store, first + jobs(many) / 2).await?;
    for ((what, few_ms), (_, many_ms)) in before.into_iter().zip(after) {
        println!("  {what:40} {few_ms:>8.2} ms {many_ms:>8.2} ms   ratio {:.2}", many_ms / few_ms);
    }
    Ok(())
}

async fn own(store: &Store) -> anyhow::Result<Store> {
    let server = store.register_server("bench", &[], env!("CARGO_PKG_VERSION"), None).await?;
    let owned = store.claim(server, LEASE).await?;
    let owned = owned.ok_or_else(|| anyhow::anyhow!("a server owns the farm in this database"))?;
    Ok(store.as_owner(owned))
}

async fn commit(store: &Store, writes: Vec<Write>) -> anyhow::Result<()> {
    let refused = store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await?;
    anyhow::ensure!(refused.is_empty(), "the store refused {refused:?}");
    Ok(())
}

fn job(id: u64) -> Write {
    let step = StepSpec {
        name: "main".to_owned(),
        tasks: TASKS,
        request: Resources::new(100, 0),
        body: Arc::from(*b"{}"),
        ..StepSpec::default()
    };
    let (name, queue, user) = ("bench".to_owned(), "q".to_owned(), "u".to_owned());
    let spec = Arc::new(JobSpec { name, queue, user, steps: vec![step], ..JobSpec::default() });
    Write::Job { id: JobId(id), spec, created: Time(id) }
}

/// The active jobs, the parked ones, and one that has ended.
async fn make(store: &Store) -> anyhow::Result<()> {
    let mut writes: Vec<Write> = (1..=1 + ACTIVE + PARKED).map(job).collect();
    for id in ACTIVE + 1..=ACTIVE + PARKED {
        let place = QueuePos { priority: std::cmp::Reverse(0), ranked: Time(id), job: JobId(id) };
        let backlog = BacklogCounts { jobs: 1, ready: u64::from(TASKS), waiting: 0 };
        let parked = Parked { class: 1, place, ready: Time(id), backlog };
        writes.push(Write::Park { job: JobId(id), queue: "q".to_owned(), parked });
    }
    commit(store, writes).await?;
    let id = JobId(1 + ACTIVE + PARKED);
    let mut writes = Vec::new();
    for index in 0..TASKS {
        let (task, worker, epoch, at) = (TaskId { job: id, index }, WorkerId(1), Epoch(1), Time(2));
        writes.push(Write::Book { task, attempt: 1, worker, epoch, at, amounts: (100, 0) });
        let bare = TaskResult::bare(End::Exited(0));
        let result = TaskResult { started: Some(Time(3)), finished: Some(Time(4)), ..bare };
        let state = TaskState::Succeeded;
        writes.push(Write::End { task, attempt: 1, state, failures: 0, losses: 0, result });
    }
    commit(store, writes).await?;
    let counts = Counts { succeeded: TASKS, ..Counts::default() };
    commit(store, vec![Write::JobEnd { job: id, state: JobState::Succeeded, at: Time(5), counts }]).await
}

async fn measure(owner: &mut Store, store: &Store, ended: u64) -> anyhow::Result<ReadTimes> {
    let mut figures = ReadTimes::new();
    let filters = [
        ("job list", JobFilter::default()),
        ("job list of a user", JobFilter { user: Some("u".to_owned()), ..JobFilter::default() }),
        ("job list of active ones", JobFilter { states: vec![JobState::Active], ..JobFilter::default() }),
        (
            "job list of succeeded ones",
            JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() },
        ),
    ];
    for (what, filter) in filters {
        let list =
            async || store.jobs(filter.clone(), None, PAGE, ROWS_MAX).await.map(|part| part.jobs.len());
        figures.push((what, median(list).await?));
    }
    let part = JobFilter { name: Some("nothing has this name".to_owned()), ..JobFilter::default() };
    let list = async || store.jobs(part.clone(), None, PAGE, 1_000).await.map(|part| part.rows);
    figures.push(("1000 rows of a filter that none passes", median(list).await?));
    let id = JobId(ended);
    figures.push(("job show of an ended job", median(async || store.job(id).await).await?));
    figures.push(("task list of an ended job", median(async || store.tasks(id, 0..TASKS).await).await?));
    let task = TaskId { job: id, index: 1 };
    figures.push(("history of an ended task", median(async || store.history(task).await).await?));
    let parked = JobId(ACTIVE + 7);
    figures.push(("why of a parked job", median(async || store.parked(parked).await).await?));
    figures.push(("counts of ended jobs", median(async || store.ended_totals().await).await?));
    let mut takeovers = Vec::new();
    for _ in 0..TAKEOVERS {
        owner.release().await?;
        let clock = Instant::now();
        *owner = own(store).await?;
        let handle = windlass_server::start(owner.clone(), ShellOptions::default()).await?;
        // It answers once it has what it restored.
        handle.query(Engine::resident_steps).await?;
        takeovers.push(clock.elapsed().as_secs_f64() * 1e3);
        handle.stop().await;
    }
    figures.push(("takeover, until the engine answers", super::median(&mut takeovers)));
    Ok(figures)
}

/// The median time of one of these in milliseconds.
async fn median<T, E: Into<anyhow::Error>>(what: impl AsyncFn() -> Result<T, E>) -> anyhow::Result<f64> {
    let mut times_ms = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let clock = Instant::now();
        what().await.map_err(Into::into)?;
        times_ms.push(clock.elapsed().as_secs_f64() * 1e3);
    }
    Ok(super::median(&mut times_ms))
}
