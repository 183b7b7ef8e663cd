//! The explanation of why a worker gets no work.

use crate::board::Percents;
use crate::word::WhyWord;
use crate::worker::WorkerState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a worker gets no work, or that it does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerWhy {
    /// Name of the worker, unique on the farm.
    pub worker: String,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// The reason in one word, for programs.
    pub reason: WhyWord,
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
    /// The pressures for which it gets no work now: `cpu`, `memory`, `io`; and `network`, for which it gets no
    /// network-bound work.
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

/// The work that a worker is reserved for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservedFor {
    /// The job of the first step that it is reserved for; absent if none waits any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// Name of that step in its job.
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
    /// Id of the step's job.
    pub job: u64,
    /// Name of the step, unique in its job.
    pub step: String,
    /// Name of the job's queue.
    pub queue: String,
    /// Ready tasks of the step.
    pub tasks: u32,
    /// The first reason in one word, for programs.
    pub reason: WhyWord,
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
    /// Id of the task, `JOB.INDEX`.
    pub task: String,
    /// When the task was placed.
    pub at_ms: u64,
    /// The worker that won.
    pub winner: String,
    /// Points of the worker that won.
    pub winner_score: f64,
    /// Points of this worker for the task.
    pub score: f64,
}
