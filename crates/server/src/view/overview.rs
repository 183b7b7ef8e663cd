//! The farm at a glance, and the scheduler at work: one walk over jobs, steps in memory and workers.

use crate::figures::Stretch;
use crate::token_end::TokenEnd;
use std::cmp::Reverse;
use windlass_api::figures::{
    ActiveJobs, AttemptRates, FarmCpus, InstanceFigures, Leases, Overview, QueueCpus, SchedulerFigures,
    SufferingWorker, WaitingTasks, WindowMeans, WorkerCounts,
};
use windlass_core::engine::Engine;
use windlass_core::explain::{Word, WorkerReason, vetoed_workers, waiting_tasks};
use windlass_core::plan::placement::{Ineligible, worker_blockers};
use windlass_core::score::windows::{Metric, Windowed};
use windlass_core::worker::{Worker, WorkerState};
use windlass_core::{Time, WorkerId, queues};

/// Workers that suffer, and queues, that one answer names.
const NAMED_MAX: usize = 50;

/// What the engine's thread makes of the farm; rates and ended jobs are added later.
pub fn overview(engine: &Engine, now: Time) -> Overview {
    let mut workers = WorkerCounts::default();
    for worker in engine.workers().present() {
        count_worker(&mut workers, worker);
    }
    let vetoed = vetoed_workers(engine);
    workers.vetoed = vetoed.len();
    let mut waiting: Vec<(Word, u64)> = waiting_tasks(engine).into_iter().collect();
    waiting.sort_by_key(|(reason, tasks)| (Reverse(*tasks), *reason));
    let waiting = waiting.into_iter().map(|(reason, tasks)| WaitingTasks {
        reason: reason.into(),
        text: reason.of_tasks().to_owned(),
        tasks,
    });
    Overview {
        time_ms: now.as_ms(),
        suffering: suffering(engine, vetoed),
        cpus: farm_cpus(engine),
        tasks: engine.counts().into(),
        jobs: active_jobs(engine),
        waiting: waiting.collect(),
        holds: holds(engine, &workers),
        workers,
        ..Overview::default()
    }
}

fn count_worker(counts: &mut WorkerCounts, worker: &Worker) {
    counts.total += 1;
    match worker.record.state {
        WorkerState::Up => {
            counts.online += 1;
            counts.pressed += usize::from(worker.reported.saturated().is_pressed());
            counts.low_space += usize::from(worker.reported.saturated().lacks_space());
            counts.left_out += usize::from(worker.health.out().is_some());
        }
        WorkerState::Draining => counts.draining += 1,
        WorkerState::Suspect => counts.suspect += 1,
        WorkerState::Expired => counts.lost += 1,
        WorkerState::Forgotten => counts.total -= 1,
    }
}

/// Workers whose tokens end soon, the first to end first. They get no work from then on.
pub fn ending_tokens(
    engine: &Engine,
    mut ends: Vec<(WorkerId, TokenEnd)>,
    now: Time,
) -> Vec<SufferingWorker> {
    ends.retain(|(_, end)| end.is_told(now));
    ends.sort_by_key(|(worker, end)| (end.at, *worker));
    let named = ends.into_iter().filter_map(|(worker, end)| {
        let worker = engine.workers().get(worker)?.record.name.clone();
        Some(SufferingWorker { worker, reason: format!("its token {}", end.text(now)) })
    });
    named.take(NAMED_MAX).collect()
}

fn farm_cpus(engine: &Engine) -> FarmCpus {
    let (mut total, mut booked, mut usable, mut out_of_service) = (0u64, 0u64, 0u64, 0u64);
    for worker in engine.workers().present() {
        let free = u64::from(worker.free().cpu);
        booked += u64::from(worker.booked.sum().cpu);
        if worker.record.state == WorkerState::Up {
            total += u64::from(worker.record.capacity.cpu);
        }
        if worker.takes_work() {
            usable += free;
        } else if worker.record.state != WorkerState::Expired {
            out_of_service += free;
        }
    }
    FarmCpus {
        total: cores(total),
        booked: cores(booked),
        usable: cores(usable),
        out_of_service: cores(out_of_service),
        by_queue: by_queue(engine),
    }
}

/// Workers that get no work although no operator wants that, the worst first, and behind them those that rules veto.
fn suffering(engine: &Engine, vetoed: Vec<(WorkerId, Ineligible)>) -> Vec<SufferingWorker> {
    let mut all: Vec<(u8, &Worker)> = engine
        .workers()
        .present()
        .filter_map(|worker| Some((how_bad(worker, &worker_blockers(worker).next()?)?, worker)))
        .collect();
    all.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.record.name.cmp(&other.record.name)));
    all.truncate(NAMED_MAX);
    let told = all.into_iter().map(|(_, worker)| SufferingWorker {
        worker: worker.record.name.clone(),
        reason: match worker.record.state {
            WorkerState::Expired => "its lease has run out, and its tasks run elsewhere".to_owned(),
            _ => worker_blockers(worker).next().map(|why| why.to_string()).unwrap_or_default(),
        },
    });
    let vetoed = vetoed.into_iter().filter_map(|(id, why)| {
        let worker = engine.workers().get(id)?.record.name.clone();
        Some(SufferingWorker { worker, reason: WorkerReason::Closed(why).say().1 })
    });
    told.chain(vetoed).take(NAMED_MAX).collect()
}

/// 0 is worst; `None` of what an operator asked for.
fn how_bad(worker: &Worker, why: &Ineligible) -> Option<u8> {
    match why {
        Ineligible::Suspect if worker.record.state == WorkerState::Expired => Some(0),
        Ineligible::Suspect => Some(1),
        Ineligible::LowSpace { .. } => Some(2),
        Ineligible::Quarantined { .. } => Some(3),
        Ineligible::UnderPressure(_) => Some(4),
        _ => None,
    }
}

fn by_queue(engine: &Engine) -> Vec<QueueCpus> {
    let mut busy: Vec<&queues::Queue> = engine.queues().iter().filter(|queue| queue.booked_cpu > 0).collect();
    busy.sort_by(|a, b| b.booked_cpu.cmp(&a.booked_cpu).then_with(|| a.name().cmp(b.name())));
    let named = busy.into_iter().take(NAMED_MAX);
    named.map(|queue| QueueCpus { queue: queue.name().to_owned(), cpus: cores(queue.booked_cpu) }).collect()
}

fn active_jobs(engine: &Engine) -> ActiveJobs {
    let mut jobs = ActiveJobs { waiting: engine.subqueues().away().jobs, ..ActiveJobs::default() };
    for job in engine.jobs().filter(|job| job.ended.is_none()) {
        match (job.held, job.active) {
            (true, _) => jobs.held += 1,
            (false, 0) => jobs.waiting += 1,
            (false, _) => jobs.running += 1,
        }
    }
    jobs
}

/// What keeps every task of the farm from starting.
fn holds(engine: &Engine, workers: &WorkerCounts) -> Vec<String> {
    if workers.total == 0 {
        return vec!["no worker is known: start one with 'windlass worker start'".to_owned()];
    }
    if engine.workers().open_count() > 0 {
        return Vec::new();
    }
    let kinds = [
        (workers.draining, "drained"),
        (workers.suspect, "not heard from"),
        (workers.lost, "lost"),
        (workers.pressed, "under pressure"),
        (workers.low_space, "short of disk space"),
        (workers.left_out, "left out because tasks kept failing there"),
    ];
    let kinds = kinds.iter().filter(|(workers, _)| *workers > 0).map(|(n, what)| format!("{n} {what}"));
    vec![format!("no worker takes work: {}", kinds.collect::<Vec<_>>().join(", "))]
}

/// Adds what happened in the last minute and in the last five.
pub fn with_rates(mut overview: Overview, minute: &Stretch, five: &Stretch) -> Overview {
    let tally = &minute.tally;
    overview.per_minute = AttemptRates {
        started: minute.per_minute(tally.started),
        succeeded: minute.per_minute(tally.succeeded),
        failed: minute.per_minute(tally.failed),
    };
    overview.wait_ms = five.tally.waits.quantiles();
    if tally.store_failures > 0 {
        let why = "the store does not take what is written: new work is refused until it does, and nothing accepted is \
                   lost; the server's log has the reason";
        overview.holds.push(why.to_owned());
    }
    overview
}

/// The scheduler at work; rates are added later.
pub fn scheduler(engine: &Engine, now: Time) -> SchedulerFigures {
    let mut leases = Leases::default();
    let mut left_out = 0;
    for worker in engine.workers().present() {
        left_out += usize::from(worker.health.out().is_some());
        if worker.record.lease_until.is_some() && worker.record.state != WorkerState::Expired {
            leases.workers += 1;
            leases.oldest_ms = leases
                .oldest_ms
                .max(worker.link.heard.map(|at| now.since(at) / windlass_core::time::NS_PER_MS));
        }
    }
    SchedulerFigures {
        time_ms: now.as_ms(),
        leases,
        reservations: engine.planner().reservations().holders().count(),
        left_out,
        stranded_cores: cores(engine.planner().stranded_cpu()),
        instance: Some(instance(engine, now)),
        ..SchedulerFigures::default()
    }
}

/// What scoring rules see of the farm, with the means until now.
fn instance(engine: &Engine, now: Time) -> InstanceFigures {
    let (plan, workers, counts) = (engine.planner(), engine.workers(), engine.counts());
    let means = plan.means(now);
    let means = Metric::ALL.map(|metric| {
        let Windowed { w5m, w1h, w24h } = means[metric];
        (metric.as_str().to_owned(), WindowMeans { w5m, w1h, w24h })
    });
    InstanceFigures {
        total_workers: workers.open_count(),
        idle_workers: workers.idle_count(),
        active_tasks: counts.active,
        pending_tasks: counts.ready,
        core_score: plan.instance().core_score,
        means: means.into(),
    }
}

/// Adds what happened in the last minute and in the last five, and since the server started.
pub fn with_scheduler_rates(
    figures: SchedulerFigures,
    minute: &Stretch,
    five: &Stretch,
    (late_results, store_failures): (u64, u64),
) -> SchedulerFigures {
    SchedulerFigures {
        decisions_per_s: minute.per_second(minute.tally.placed),
        rounds_per_s: minute.per_second(minute.tally.rounds),
        round_ms: five.tally.round_times.quantiles(),
        commit_ms: five.tally.commit_times.quantiles(),
        late_results,
        store_failures,
        ..figures
    }
}

fn cores(hundredths: u64) -> f64 {
    hundredths as f64 / 100.0
}
