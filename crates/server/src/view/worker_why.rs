//! Why a worker gets no work.

use windlass_api::board::Percents;
use windlass_api::{LostTask, PassedStep, ReservedFor, WorkerWhy};
use windlass_core::engine::Engine;
use windlass_core::explain::{self as core, PassedVerdict};
use windlass_core::ids::StepKey;
use windlass_core::load::formula::LOAD_NO_CORES;
use windlass_core::{Time, WorkerId};

/// Why a worker gets no work; `None` if the worker is not known.
pub fn worker_why(engine: &Engine, id: WorkerId) -> Option<WorkerWhy> {
    let why = windlass_core::explain::worker(engine, id)?;
    let worker = engine.workers().get(id)?;
    let (reason, message) = why.reason.say();
    let out = worker.health.out();
    let settings = engine.workers().load_settings();
    let held = worker.reported.saturated();
    let held = [("cpu", held.cpu), ("memory", held.memory), ("io", held.io), ("network", held.network)];
    let cpus = |hundredths: u32| f64::from(hundredths) / 100.0;
    Some(WorkerWhy {
        worker: worker.record.name.clone(),
        state: worker.record.state.into(),
        reason: reason.into(),
        message,
        running: worker.booked.running().len(),
        booked_cpus: cpus(worker.booked.sum().cpu),
        cpus: cpus(worker.record.capacity.cpu),
        load: Some(why.load).filter(|load| *load < LOAD_NO_CORES),
        pressure: Percents::of(worker),
        thresholds: Percents {
            cpu: Some(settings.max_cpu_pressure),
            memory: Some(settings.max_memory_pressure),
            io: Some(settings.max_io_pressure),
            network: Some(settings.max_network_use),
        },
        pressure_counts: settings.pressure,
        saturated: held.iter().filter(|(_, is)| *is).map(|(what, _)| (*what).to_owned()).collect(),
        left_out_until_ms: out.map(|(until, _)| until.as_ms()),
        left_out_for: out.map(|(_, fault)| fault.to_string()),
        reserved: why.reserved.map(|reserved| ReservedFor {
            job: reserved.step.map(|step| step.job.0),
            step: reserved.step.map(|step| name_of(engine, step).0),
            waits_since_ms: reserved.waits_since.map(Time::as_ms),
            expected_start_ms: reserved.starts.map(Time::as_ms),
        }),
        waiting_queues: why.waiting_queues,
        steps: why.steps.iter().map(|passed| passed_step(engine, passed)).collect(),
        lost: why.lost.iter().map(|lost| lost_task(engine, lost)).collect(),
    })
}

fn passed_step(engine: &Engine, passed: &core::Passed) -> PassedStep {
    let (step, queue) = name_of(engine, passed.step);
    let (reason, message) = passed.verdict.say(|worker| worker_name(engine, worker));
    let mut told = PassedStep {
        job: passed.step.job.0,
        step,
        queue,
        tasks: passed.tasks,
        reason: reason.into(),
        message,
        score: None,
        preferred: None,
        preferred_score: None,
    };
    if let PassedVerdict::Preferred { best, here } = &passed.verdict {
        told.score = Some(here.score);
        told.preferred = Some(worker_name(engine, best.worker));
        told.preferred_score = Some(best.score);
    }
    told
}

fn lost_task(engine: &Engine, lost: &core::Lost) -> LostTask {
    LostTask {
        task: lost.task.to_string(),
        at_ms: lost.at.as_ms(),
        winner: worker_name(engine, lost.winner),
        winner_score: lost.winner_score,
        score: lost.score,
    }
}

/// A step's name and that of its queue.
fn name_of(engine: &Engine, key: StepKey) -> (String, String) {
    let Some(job) = engine.job(key.job) else { return Default::default() };
    let step = job.spec.steps.get(usize::from(key.step)).map(|step| step.name.clone());
    (step.unwrap_or_default(), job.spec.queue.clone())
}

fn worker_name(engine: &Engine, id: WorkerId) -> String {
    engine.workers().get(id).map(|worker| worker.record.name.clone()).unwrap_or_default()
}
