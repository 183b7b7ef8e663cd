//! The explanation of why a worker gets no work.

use crate::board::Percents;
use crate::why::{IneligibleWorkers, say_to_worker};
use crate::worker::WorkerState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::engine::Engine;
use windlass_core::explain::{self as core, PassedVerdict, WorkerReason};
use windlass_core::ids::StepKey;
use windlass_core::load::formula::LOAD_NO_CORES;
use windlass_core::{Time, WorkerId};

/// Why a worker gets no work, or that it does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerWhy {
    /// The worker's name.
    pub worker: String,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// One word for programs: suspect, draining, left_out, saturated, nothing_waits, turn, others_preferred,
    /// held_back, fits_none, or what keeps all waiting work from it: worker_limit, busy, foreign, reserved,
    /// held_by_rule.
    pub reason: String,
    /// The reason as a sentence for people.
    pub message: String,
    /// Tasks that hold a part of it.
    pub running: usize,
    /// Cpus booked on it.
    pub booked_cpus: f64,
    /// Cpus that it declares.
    pub cpus: f64,
    /// Its load with one more task of one cpu; absent for a worker without cpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Percent of the time with stalls, mean of ten seconds; null is unknown.
    pub pressure: Percents,
    /// Percents of pressure from which it gets no work.
    pub thresholds: Percents,
    /// False if pressure is shown but ignored.
    pub pressure_counts: bool,
    /// The pressures for which it gets no work now: `cpu`, `memory`, `io`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saturated: Vec<String>,
    /// Until when it is in quarantine; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_until_ms: Option<u64>,
    /// Why it is in quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_for: Option<String>,
    /// The work that it is reserved for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<ReservedFor>,
    /// Queues with ready tasks that may start.
    pub waiting_queues: usize,
    /// A few of the waiting steps whose turn comes first, each with the reason why it is not on the worker; those
    /// nearest to a start first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PassedStep>,
    /// The last tasks for which it was scored and another worker won.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostTask>,
}

/// A reservation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservedFor {
    /// The job of the first step that it is reserved for; absent if none waits any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// That step's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Since when that step waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since_ms: Option<u64>,
    /// When that step is predicted to start there; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<u64>,
}

/// A waiting step, and why it is not on the worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PassedStep {
    /// The step's job.
    pub job: u64,
    /// The step's name.
    pub step: String,
    /// The job's queue.
    pub queue: String,
    /// Ready tasks of the step.
    pub tasks: u32,
    /// One word for programs: that of the first reason why the worker is ineligible, or quota, limit, preferred, turn.
    pub reason: String,
    /// All reasons, for people.
    pub message: String,
    /// This worker's points for the step; absent if it was not scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The worker with more points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// The points of `preferred`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_score: Option<f64>,
}

/// A task for which the worker was scored and another worker won.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostTask {
    /// The task's id.
    pub task: String,
    /// When the task was placed.
    pub at_ms: u64,
    /// The worker that won.
    pub winner: String,
    /// The winner's points.
    pub winner_score: f64,
    /// This worker's points.
    pub score: f64,
}

impl WorkerWhy {
    /// Asks the engine; `None` if there is no such worker.
    pub fn of(engine: &Engine, id: WorkerId) -> Option<Self> {
        let why = windlass_core::explain::worker(engine, id)?;
        let worker = engine.workers().get(id)?;
        let (reason, message) = say(&why.reason);
        let out = worker.health.out();
        let settings = engine.workers().load_settings();
        let held = worker.saturated;
        let held = [("cpu", held.cpu), ("memory", held.memory), ("io", held.io)];
        let cpus = |hundredths: u32| f64::from(hundredths) / 100.0;
        Some(WorkerWhy {
            worker: worker.name.to_string(),
            state: worker.state.into(),
            reason: reason.to_owned(),
            message,
            running: worker.running.len(),
            booked_cpus: cpus(worker.booked.cpu),
            cpus: cpus(worker.capacity.cpu),
            load: Some(why.load).filter(|load| *load < LOAD_NO_CORES),
            pressure: Percents::of(worker),
            thresholds: Percents {
                cpu: Some(settings.max_cpu_pressure),
                memory: Some(settings.max_memory_pressure),
                io: Some(settings.max_io_pressure),
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
            steps: why.steps.iter().map(|passed| PassedStep::of(engine, passed)).collect(),
            lost: why.lost.iter().map(|lost| LostTask::of(engine, lost)).collect(),
        })
    }
}

impl PassedStep {
    fn of(engine: &Engine, passed: &core::Passed) -> Self {
        let (step, queue) = name_of(engine, passed.step);
        let mut told = PassedStep {
            job: passed.step.job.0,
            step,
            queue,
            tasks: passed.tasks,
            reason: String::new(),
            message: String::new(),
            score: None,
            preferred: None,
            preferred_score: None,
        };
        let (reason, message) = match &passed.verdict {
            PassedVerdict::Unmet(unmet) => {
                let unmet: Vec<IneligibleWorkers> =
                    unmet.iter().map(|reason| IneligibleWorkers::from_core(reason, 1, Vec::new())).collect();
                let all: Vec<&str> = unmet.iter().map(|reason| reason.message.as_str()).collect();
                (unmet.first().map_or_else(String::new, |first| first.reason.clone()), all.join("; "))
            }
            PassedVerdict::Quota => ("quota".to_owned(), "its queue's quota is used up".to_owned()),
            PassedVerdict::Limit(name) => {
                ("limit".to_owned(), format!("all of the limit '{name}' are taken"))
            }
            PassedVerdict::Preferred { best, here } => {
                let name = worker_name(engine, best.worker);
                told.score = Some(here.score);
                told.preferred_score = Some(best.score);
                told.preferred = Some(name.clone());
                ("preferred".to_owned(), format!("{name} scores better"))
            }
            PassedVerdict::Turn => ("turn".to_owned(), "it starts as soon as its turn comes".to_owned()),
        };
        PassedStep { reason, message, ..told }
    }
}

impl LostTask {
    fn of(engine: &Engine, lost: &core::Lost) -> Self {
        LostTask {
            task: lost.task.to_string(),
            at_ms: lost.at.as_ms(),
            winner: worker_name(engine, lost.winner),
            winner_score: lost.winner_score,
            score: lost.score,
        }
    }
}

/// A step's name and that of its queue.
fn name_of(engine: &Engine, key: StepKey) -> (String, String) {
    let Some(job) = engine.job(key.job) else { return Default::default() };
    let step = job.spec.steps.get(usize::from(key.step)).map(|step| step.name.clone());
    (step.unwrap_or_default(), job.spec.queue.clone())
}

fn worker_name(engine: &Engine, id: WorkerId) -> String {
    engine.workers().get(id).map(|worker| worker.name.to_string()).unwrap_or_default()
}

fn say(reason: &WorkerReason) -> (&'static str, String) {
    match reason {
        WorkerReason::Unfit(why) | WorkerReason::Closed(why) => say_to_worker(why),
        WorkerReason::NothingWaits => ("nothing_waits", "no ready task waits".to_owned()),
        WorkerReason::Turn => ("turn", "it gets work as soon as its turn comes".to_owned()),
        WorkerReason::OthersPreferred => {
            ("others_preferred", "other workers with room score better for the waiting work".to_owned())
        }
        WorkerReason::HeldBack => {
            ("held_back", "the waiting work may not start anywhere: a quota or a limit is used up".to_owned())
        }
        WorkerReason::FitsNone => {
            ("fits_none", "no waiting work would fit it, even if it were empty".to_owned())
        }
    }
}
