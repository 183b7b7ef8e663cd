//! A database of far more ready jobs than the engine keeps resident: the memory of a server over it, the users that it
//! serves, and the cost of a decision beside that over a small database.

use super::figures::{cpu_time, median, mib, resident_bytes};
use super::{work, workers};
use anyhow::Context as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::engine::{Engine, Event, Outbox, Reply, Report, Settings, Submit, WorkerCommand, Write};
use windlass_core::job::{BacklogCounts, End, JobSpec, Parked, QueuePos, TaskResult};
use windlass_core::residency::subqueues::class_hash;
use windlass_core::{Epoch, JobId, RequestId, TaskId, Time, WorkerId};
use windlass_server::{Handle, ShellOptions};
use windlass_store::Memory;

/// Jobs of the small backlog, which is resident as a whole.
const FEW: u64 = 1_000;
/// Runs with it, of which the median counts: each is short.
const FEW_RUNS: usize = 9;
/// Tasks that run at a time.
const SLOTS: u32 = 64;
/// Jobs of one commit while the database is filled.
const FILL_BATCH: u64 = 2_000;
/// Time since the epoch at which the first job was submitted, in nanoseconds.
const FIRST_NS: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Ready jobs of one task.
    pub jobs: u64,
    /// Users, each with a queue; they submit in turn.
    pub users: u64,
    pub cache_steps: usize,
    /// Tasks that are placed and end.
    pub decisions: u64,
}

/// The figures of a run.
pub(super) struct Measured {
    pub(super) start_ms: f64,
    pub(super) resident_mib: f64,
    pub(super) held: usize,
    served: usize,
    engine_us: f64,
    process_us: f64,
}

/// Fills a database, and a small one, and runs each in a process of its own.
pub async fn run(dir: &Path, backlog: Backlog) -> anyhow::Result<()> {
    let Backlog { jobs, users, cache_steps, decisions } = backlog;
    println!("{jobs} ready jobs of {users} users in SQLite, {cache_steps} steps in memory, {SLOTS} slots");
    let path = dir.join("backlog.db");
    let clock = Instant::now();
    fill(&path, jobs, users, true).await?;
    let size = mib(std::fs::metadata(&path)?.len());
    println!("  filled in {:.1} s, {size:.0} MiB", clock.elapsed().as_secs_f64());
    let many = measure(&path, backlog)?;
    let (mut engine_us, mut process_us) = (Vec::new(), Vec::new());
    for number in 0..FEW_RUNS {
        let path = dir.join(format!("backlog-few-{number}.db"));
        fill(&path, FEW, users, false).await?;
        let few = measure(&path, Backlog { jobs: FEW, decisions: FEW, ..backlog })?;
        engine_us.push(few.engine_us);
        process_us.push(few.process_us);
    }
    let (few_engine_us, few_process_us) = (median(&mut engine_us), median(&mut process_us));
    println!("  started in {:.0} ms, {} steps held", many.start_ms, many.held);
    println!("  resident after {decisions} decisions: {:.0} MiB", many.resident_mib);
    println!("  users served: {} of {users}", many.served);
    println!(
        "  a decision, µs: engine {:.1}, process {:.1}; with {FEW} jobs {few_engine_us:.1}, {few_process_us:.1}; \
         ratios {:.2}, {:.2}",
        many.engine_us,
        many.process_us,
        many.engine_us / few_engine_us,
        many.process_us / few_process_us
    );
    Ok(())
}

pub(super) fn measure(path: &Path, backlog: Backlog) -> anyhow::Result<Measured> {
    let output = Command::new(std::env::current_exe()?)
        .args(["backlog", "--over"])
        .arg(path)
        .args(["--jobs", &backlog.jobs.to_string(), "--users", &backlog.users.to_string()])
        .args(["--cache-steps", &backlog.cache_steps.to_string()])
        .args(["--decisions", &backlog.decisions.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "the measured process ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().context("a number is missing")?.context("no number");
    Ok(Measured {
        start_ms: next()?,
        resident_mib: next()?,
        held: next()? as usize,
        served: next()? as usize,
        engine_us: next()?,
        process_us: next()?,
    })
}

/// Puts ready jobs into a store, parked as an engine parks them, or not.
async fn fill(path: &Path, jobs: u64, users: u64, parked: bool) -> anyhow::Result<()> {
    let store = work::open(path)?;
    let mut next = 1;
    while next <= jobs {
        let last = (next + FILL_BATCH - 1).min(jobs);
        work::commit(&store, (next..=last).flat_map(|id| job(id, users, parked)).collect()).await?;
        next = last + 1;
    }
    Ok(())
}

fn spec(user: u64) -> JobSpec {
    let user = format!("user-{user}");
    work::job(&user, &user, vec![work::step(1)])
}

fn job(number: u64, users: u64, parked: bool) -> Vec<Write> {
    let (id, spec, created) = (JobId(number), spec(number % users), Time(FIRST_NS + number));
    let position = QueuePos { priority: Reverse(0), ranked: created, job: id };
    let backlog = BacklogCounts::of(&spec);
    let how = Parked { class: class_hash(&spec), position, ready: created, backlog };
    let park = Write::Park { job: id, queue: spec.queue.clone(), parked: how };
    let made = Write::Job { id, spec: Arc::new(spec), created };
    std::iter::once(made).chain(parked.then_some(park)).collect()
}

/// The process that is measured: a server's engine and store, and a worker that ends what it starts. Prints
/// numbers alone.
pub async fn over(path: PathBuf, backlog: Backlog) -> anyhow::Result<()> {
    let store = work::open(&path)?;
    let settings = Settings { cache_steps: backlog.cache_steps, ..Settings::default() };
    let clock = Instant::now();
    let handle = windlass_server::start(store, ShellOptions { settings }).await?;
    let stocked = |engine: &Engine| engine.subqueues().iter().all(|(_, line)| !line.is_reading());
    while !handle.query(stocked).await? {
        tokio::task::yield_now().await;
    }
    let start_ms = clock.elapsed().as_secs_f64() * 1e3;
    let (engine, process) = (engine_time()?, cpu_time());
    let served = serve(&handle, backlog.decisions).await?;
    let (engine, process) = (engine_time()? - engine, cpu_time() - process);
    let held = handle.query(Engine::resident_steps).await?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / backlog.decisions as f64;
    let resident_mib = mib(resident_bytes()?);
    println!("{start_ms} {resident_mib} {held} {served} {} {}", each(engine), each(process));
    handle.stop().await;
    Ok(())
}

/// Lets a worker run until this number of tasks has ended; returns how many users had one.
async fn serve(handle: &Handle, decisions: u64) -> anyhow::Result<usize> {
    let orders = workers::connect(handle, &[SLOTS]).await;
    let (done, over) = tokio::sync::oneshot::channel();
    let up = handle.clone();
    std::thread::spawn(move || {
        let (mut epoch, mut ended, mut users, mut done) = (Epoch(0), 0, BTreeSet::new(), Some(done));
        while let Ok((id, parcel)) = orders.recv() {
            let starts = parcel.iter().filter_map(|delivery| delivery.start.as_ref());
            users.extend(starts.map(|start| start.job.user.clone()));
            let ends = workers::end_all(parcel, &mut epoch);
            ended += ends.len() as u64;
            up.worker_says(id, ends);
            if ended >= decisions {
                _ = done.take().map(|done| done.send(users.len()));
            }
        }
    });
    over.await.context("the worker's thread ended")
}

/// Processor time of the threads of all engines.
pub(super) fn engine_time() -> anyhow::Result<Duration> {
    let mut sum = None;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == "engine" {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            let ns = text.split(' ').next().context("schedstat is empty")?.parse()?;
            sum = Some(sum.unwrap_or(Duration::ZERO) + Duration::from_nanos(ns));
        }
    }
    sum.context("there is no engine's thread")
}

/// For callgrind to count: an engine over a store in memory places tasks of a backlog, and takes in the pages that it
/// fetches for this.
pub fn count(decisions: u64, backlog: Backlog) {
    let Backlog { jobs, users, cache_steps, .. } = backlog;
    let (store, mut engine) =
        (Memory::default(), Engine::new(Settings { cache_steps, ..Settings::default() }));
    let mut out = Outbox::default();
    let mut running: BTreeMap<TaskId, u32> = BTreeMap::new();
    for number in 0..jobs {
        let (request, spec) = (RequestId(number), spec(number % users));
        let submit = Submit::new(request, spec);
        engine.handle(Time(number + 1), Event::Submit(Box::new(submit)), &mut out);
        settle(&mut engine, &store, &mut out, &mut running, Time(number + 1));
    }
    engine.handle(Time(jobs + 1), Event::Hello(workers::hello("w", 1, 2).into_inner()), &mut out);
    for number in 0..decisions {
        let now = Time(jobs + 2 + number);
        engine.round(now, 100, &mut out);
        settle(&mut engine, &store, &mut out, &mut running, now);
        let Some((task, attempt)) = running.pop_first() else { return };
        let by = Report { worker: WorkerId(1), epoch: Epoch(1), task, attempt };
        engine.handle(now, Event::Finished { by, result: TaskResult::bare(End::Exited(0)) }, &mut out);
    }
}

/// Commits what the engine decided, reads what it wants, and notes what starts.
fn settle(
    engine: &mut Engine,
    store: &Memory,
    out: &mut Outbox,
    running: &mut BTreeMap<TaskId, u32>,
    now: Time,
) {
    while !out.is_empty() {
        let batch = std::mem::take(out);
        store.apply(&batch.writes);
        engine.committed(&batch);
        running.extend(batch.sends.iter().filter_map(|send| match send.command {
            WorkerCommand::Start { task, attempt, .. } => Some((task, attempt)),
            _ => None,
        }));
        debug_assert!(batch.replies.iter().all(|(_, answer)| !matches!(answer, Reply::Refused(_))));
        for fetch in batch.fetches {
            let records = Some(store.fetch(&fetch));
            engine.handle(now, Event::Fetched { number: fetch.number, records }, out);
        }
    }
}
