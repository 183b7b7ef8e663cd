//! The answer to "why does this worker get no work".

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
    /// held_back, fits_none, or what keeps all that waits off it: worker_limit, busy, foreign, reserved,
    /// held_by_rule.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// Tasks that hold some of it.
    pub running: usize,
    /// Cpus booked on it.
    pub booked_cpus: f64,
    /// Cpus that it declares.
    pub cpus: f64,
    /// Its load with one more task of one cpu; absent of a worker without cpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Percent of the time in which something stalled there, mean of ten seconds; null is unknown.
    pub pressure: Percents,
    /// Percents from which it gets no work.
    pub thresholds: Percents,
    /// False where pressure is shown but does not count.
    pub pressure_counts: bool,
    /// What holds it now: `cpu`, `memory`, `io`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub saturated: Vec<String>,
    /// Until when it is left out for what its tasks came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_until_ms: Option<u64>,
    /// Why it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_for: Option<String>,
    /// For whom it is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<ReservedFor>,
    /// Queues in which tasks wait that may start.
    pub waiting_queues: usize,
    /// Steps that wait and what each is to the worker, nearest to a start first; a few of those whose turn
    /// comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PassedStep>,
    /// The last tasks for which it was judged and another won.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostTask>,
}

/// A reservation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservedFor {
    /// The job of the first such step, while one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// That step's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Since when that step waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_since_ms: Option<u64>,
    /// When it is expected to start there, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<u64>,
}

/// A step that waits, as it is to the worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PassedStep {
    /// Its job.
    pub job: u64,
    /// Its name.
    pub step: String,
    /// Its queue.
    pub queue: String,
    /// How many of its tasks could start.
    pub tasks: u32,
    /// One word for programs: that of what keeps it off first, or quota, limit, preferred, turn.
    pub reason: String,
    /// The same for people, with all that keeps it off.
    pub message: String,
    /// Points of this worker for it, where it was ranked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The worker that is a better place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// That one's points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_score: Option<f64>,
}

/// A task for which the worker was judged and another won.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LostTask {
    /// The task.
    pub task: String,
    /// When.
    pub at_ms: u64,
    /// Who won.
    pub winner: String,
    /// The winner's points.
    pub winner_score: f64,
    /// This worker's points.
    pub score: f64,
}

impl WorkerWhy {
    /// Asks the engine; `None` if there is no such worker.
    pub fn of(engine: &Engine, id: WorkerId) -> Option<Self> {
        let why = engine.explain_worker(id)?;
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
            PassedVerdict::Quota => ("quota".to_owned(), "its queue holds as much as it may".to_owned()),
            PassedVerdict::Limit(name) => {
                ("limit".to_owned(), format!("all of the limit '{name}' are taken"))
            }
            PassedVerdict::Preferred { best, here } => {
                let name = worker_name(engine, best.worker);
                told.score = Some(here.score);
                told.preferred_score = Some(best.score);
                told.preferred = Some(name.clone());
                ("preferred".to_owned(), format!("{name} is a better place"))
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
        WorkerReason::NothingWaits => ("nothing_waits", "no task waits that may start".to_owned()),
        WorkerReason::Turn => ("turn", "it is given work as soon as its turn comes".to_owned()),
        WorkerReason::OthersPreferred => {
            ("others_preferred", "other workers with room are better places for what waits".to_owned())
        }
        WorkerReason::HeldBack => {
            ("held_back", "what waits may not start anywhere: a quota or a limit is used up".to_owned())
        }
        WorkerReason::FitsNone => {
            ("fits_none", "nothing that waits would fit it, even if it were empty".to_owned())
        }
    }
}
