//! Workers behind a connection: the server is a process of its own, and its workers are streams of this process that
//! answer without starting anything.

use super::figures::{cpu_time, mib, percentile, resident_bytes};
use super::server_process::{ServerProcess, Setup};
use super::{work, workers};
use anyhow::Context as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use windlass_api::wire::workers_client::WorkersClient;
use windlass_api::wire::{
    Amounts, Beat, DiskSpace, Finished, FromWorker, Hello, Inventory, Load, Pressure, Pressures, Report,
    Stall, finished, order, report,
};
use windlass_api::{JobState, Param, Range, StepRequest, SubmitRequest};

/// Reports that may wait for the server.
const REPORTS_MAX: usize = 64;

/// Tasks a second from submission until the last completion is durable, with one worker.
pub async fn tasks(setup: &Setup, tasks: u32, slots: u32) -> anyhow::Result<()> {
    println!("{tasks} durable tasks with a worker on a loopback connection that starts nothing");
    let server = ServerProcess::without_worker(setup, &[]).await?;
    let channel = Endpoint::from_shared(server.listen.clone())?.tcp_nodelay(true).connect().await?;
    let worker = tokio::spawn(serve(channel, server.token.clone(), "bench-0".to_owned(), 1, slots, false));
    server.wait_for_workers(1).await?;
    let (cpu, own_cpu, clock) = (server.cpu()?, cpu_time(), Instant::now());
    let step = StepRequest {
        command: vec!["true".to_owned()],
        param: Some(Param::Range(Range { start: 1, end: i64::from(tasks), step: 1 })),
        ..StepRequest::default()
    };
    let submitted = server.client.submit(&SubmitRequest { steps: vec![step], ..Default::default() }).await?;
    let job = loop {
        let job = server.client.job(submitted.job).await?;
        if job.state.is_end() {
            break job;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (wall, used) = (clock.elapsed(), server.cpu()? - cpu);
    anyhow::ensure!(job.state == JobState::Succeeded, "the job ended as {:?}", job.state);
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(tasks);
    println!(
        "  {slots} slots: {:.0} tasks/s, server {:.1} µs of cpu a task, this worker {:.1} µs",
        f64::from(tasks) / wall.as_secs_f64(),
        each_us(used),
        each_us(cpu_time() - own_cpu)
    );
    worker.abort();
    server.stop().await?;
    Ok(())
}

/// Processor time of the server for the beats of idle workers, alone and with a report of load each second.
pub async fn beats(setup: &Setup, workers: u32, seconds: u64) -> anyhow::Result<()> {
    for with_load in [false, true] {
        let percent = beats_cost(setup, workers, seconds, with_load).await?;
        let what = if with_load { "heartbeats and reports of load" } else { "heartbeats" };
        println!("{what} of {workers} workers: {percent:.2} percent of one core over {seconds} s");
    }
    Ok(())
}

async fn beats_cost(setup: &Setup, workers: u32, seconds: u64, with_load: bool) -> anyhow::Result<f64> {
    let server = ServerProcess::without_worker(setup, &[]).await?;
    let mut all = tokio::task::JoinSet::new();
    for number in 0..workers {
        let channel = Endpoint::from_shared(server.listen.clone())?.tcp_nodelay(true).connect().await?;
        let (token, name) = (server.token.clone(), format!("bench-{number}"));
        all.spawn(serve(channel, token, name, u64::from(number) + 1, 2, with_load));
    }
    server.wait_for_workers(workers as usize).await?;
    let (cpu, clock) = (server.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = (server.cpu()? - cpu).as_secs_f64() / clock.elapsed().as_secs_f64();
    all.shutdown().await;
    server.stop().await?;
    Ok(used * 100.0)
}

/// Memory of idle workers in the server, and how soon a task starts among them.
pub async fn idle(dir: &Path, workers: u32, submissions: u32) -> anyhow::Result<()> {
    let handle = windlass_server::start(work::open(&dir.join("idle.db"))?, Default::default()).await?;
    let before = resident_bytes()?;
    let mut starts = workers::connect_instant(&handle, workers as usize, 2).await?;
    let held = resident_bytes()?.saturating_sub(before);
    let mut latencies_ms = Vec::new();
    for _ in 0..submissions {
        let clock = Instant::now();
        work::submit(&handle, work::job("bench", "bench", vec![work::step(1)])).await?;
        starts.recv().await.context("no worker is left")?;
        latencies_ms.push(clock.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "{workers} connected idle workers: {:.0} MiB more resident, {:.0} MiB in all; submission to start of \
         {submissions} tasks: p50 {:.2} ms, p99 {:.2} ms",
        mib(held),
        mib(resident_bytes()?),
        percentile(&mut latencies_ms, 0.5),
        percentile(&mut latencies_ms, 0.99)
    );
    handle.stop().await;
    Ok(())
}

/// A worker that ends every task as soon as it hears of it.
async fn serve(
    channel: Channel,
    token: String,
    name: String,
    number: u64,
    slots: u32,
    with_load: bool,
) -> anyhow::Result<()> {
    let (reports, outgoing) = mpsc::channel(REPORTS_MAX);
    let mut client = WorkersClient::new(channel);
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    let mut orders = client.work(request).await?.into_inner();
    let hello = Hello {
        version: "bench".to_owned(),
        name,
        identity: number,
        incarnation: number,
        fences: true,
        capacity: Some(Amounts { cpu: slots * 100, ..Amounts::default() }),
        inventory: Some(Inventory::default()),
        ..Hello::default()
    };
    say(&reports, vec![report::What::Hello(hello)]).await?;
    let (mut epoch, mut seq) = (0, 0);
    let mut beats = tokio::time::interval(Duration::from_secs(5));
    let mut loads = tokio::time::interval(Duration::from_secs(1));
    loop {
        let message = tokio::select! {
            message = orders.message() => message?.context("the server hung up")?,
            _ = beats.tick() => {
                let beat = Beat { sent: 0, inventory: Some(Inventory { seq, held: Vec::new() }) };
                say(&reports, vec![report::What::Beat(beat)]).await?;
                continue;
            }
            _ = loads.tick(), if with_load => {
                say(&reports, vec![report::What::Load(load())]).await?;
                continue;
            }
        };
        let mut ended = Vec::new();
        for order in message.orders {
            seq = seq.max(order.seq);
            match order.what {
                Some(order::What::Welcome(welcome)) => epoch = welcome.epoch,
                Some(order::What::Start(start)) => ended.push(report::What::Finished(Finished {
                    task: start.task,
                    epoch,
                    end: Some(finished::End::Exited(0)),
                    started: Some(1),
                    finished: Some(2),
                    ..Finished::default()
                })),
                _ => {}
            }
        }
        if !ended.is_empty() {
            say(&reports, ended).await?;
        }
    }
}

/// A report as full as that of a worker that can read all of its machine.
fn load() -> Load {
    let stall = Some(Stall { avg10: 1.5, avg60: 0.75, avg300: 0.25, total_us: 1 << 40, window: Some(2.5) });
    let pressure = Some(Pressure { some: stall, full: stall });
    let pressures = Some(Pressures { cpu: pressure, memory: pressure, io: pressure });
    Load {
        machine: pressures,
        own: pressures,
        load_average: vec![0.5, 1.0, 1.5],
        memory_available: Some(1 << 35),
        memory_own: Some(1 << 33),
        cpu_used: Some(1.5),
        cpu_foreign: Some(0.5),
        disk_mb_s: Some(100.0),
        network_mbit_s: Some(900.0),
        core_score: Some(1_000.0),
        network_in_mbit_s: Some(10.0),
        network_out_mbit_s: Some(1.0),
        network_percent: Some(1.0),
        state_space: Some(DiskSpace { free_bytes: 1 << 38, total_bytes: 1 << 40 }),
        session_space: Some(DiskSpace { free_bytes: 1 << 38, total_bytes: 1 << 40 }),
        cache_space: Some(DiskSpace { free_bytes: 1 << 38, total_bytes: 1 << 40 }),
        ..Load::default()
    }
}

async fn say(reports: &mpsc::Sender<FromWorker>, what: Vec<report::What>) -> anyhow::Result<()> {
    let all = what.into_iter().map(|what| Report { what: Some(what) }).collect();
    Ok(reports.send(FromWorker { reports: all }).await?)
}
