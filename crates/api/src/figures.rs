//! Figures of the farm: the overview, the scheduler at work, series over time, what ended, and a job's tasks as a grid.
//! Times are milliseconds since the Unix epoch, cpus are cores, memory is bytes; null is unknown.

use crate::job::Counts;
use crate::word::WhyWord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The farm at a glance. It is at most a second old.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// When it was made.
    pub time_ms: u64,
    /// Workers by state; forgotten ones are not counted.
    pub workers: WorkerCounts,
    /// Workers that get no work for what ails them, the worst first, at most 50. The last of them are those on which a rule
    /// vetoes what waits. Behind them are at most 50 whose token expires soon.
    pub suffering: Vec<SufferingWorker>,
    /// Cpus of the workers that are up, and what of them is booked.
    pub cpus: FarmCpus,
    /// Tasks of all active jobs.
    pub tasks: Counts,
    /// Jobs that have not ended, by what they do.
    pub jobs: ActiveJobs,
    /// Jobs that ended and are not deleted yet; absent where the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedJobs>,
    /// Ready tasks by the reason for which they wait, the most frequent first.
    pub waiting: Vec<WaitingTasks>,
    /// Attempts in the last minute.
    pub per_minute: AttemptRates,
    /// Time from ready to placed, in milliseconds, of the tasks that were placed in the last five minutes.
    pub wait_ms: Quantiles,
    /// Reasons why the whole farm stands still, in plain sentences; empty as a rule.
    pub holds: Vec<String>,
}

/// Number of workers by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerCounts {
    /// All that are not forgotten.
    pub total: usize,
    /// Up: they get work unless something below says otherwise.
    pub online: usize,
    /// An operator drained them.
    pub draining: usize,
    /// Not heard from: they get no new work.
    pub suspect: usize,
    /// Their lease ran out, and their tasks run elsewhere.
    pub lost: usize,
    /// Of those online: held by pressure.
    pub pressed: usize,
    /// Of those online: a directory has too little free space.
    pub low_space: usize,
    /// Of those online: left out for a while, because tasks kept failing there.
    pub left_out: usize,
    /// Of those online with room: a rule vetoes what waits and would fit there, such as for the load of other programs. At
    /// most 64 are looked at.
    #[serde(default)]
    pub vetoed: usize,
}

/// A worker that gets no work, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SufferingWorker {
    /// Name of the worker, unique on the farm.
    pub worker: String,
    /// The reason, in a few words.
    pub reason: String,
}

/// Cpus of the farm.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FarmCpus {
    /// Of the workers that are up.
    pub total: f64,
    /// Booked on all workers.
    pub booked: f64,
    /// Free on workers that take work.
    #[serde(default)]
    pub usable: f64,
    /// Free on workers that take no work and are not lost: draining, suspect, pressed, low on space or in quarantine.
    #[serde(default)]
    pub out_of_service: f64,
    /// The resources booked by each queue, the largest first, at most 50.
    pub by_queue: Vec<QueueCpus>,
}

/// Cpus that a queue holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueCpus {
    /// Name of the queue, unique on the farm.
    pub queue: String,
    /// Cpus booked by its tasks.
    pub cpus: f64,
}

/// Number of active jobs by what they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ActiveJobs {
    /// At least one task is booked or runs.
    pub running: u64,
    /// No task is booked or runs.
    pub waiting: u64,
    /// A user holds them.
    pub held: u64,
}

/// Number of jobs by the state in which they ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EndedJobs {
    /// Jobs of which every task succeeded.
    pub succeeded: u64,
    /// A task failed for good, or a job that this one came after did.
    pub failed: u64,
    /// A person cancelled them.
    pub canceled: u64,
}

/// Tasks that wait for one reason.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitingTasks {
    /// The reason in one word.
    pub reason: WhyWord,
    /// The reason as a sentence.
    pub text: String,
    /// Number of ready tasks.
    pub tasks: u64,
}

/// Attempts in a minute.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AttemptRates {
    /// Attempts that started in it.
    pub started: f64,
    /// Attempts that succeeded in it.
    pub succeeded: f64,
    /// That failed, those that are tried again too.
    pub failed: f64,
}

/// Two quantiles of something; null where nothing of it happened.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Half are at most this.
    pub p50: Option<f64>,
    /// Nineteen of twenty are at most this.
    pub p95: Option<f64>,
}

/// The scheduler at work.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SchedulerFigures {
    /// When it was made.
    pub time_ms: u64,
    /// Tasks placed per second, mean of the last minute.
    pub decisions_per_s: f64,
    /// Rounds per second that placed something, mean of the last minute.
    pub rounds_per_s: f64,
    /// Milliseconds of such a round, over the last five minutes.
    pub round_ms: Quantiles,
    /// Milliseconds until a batch was durable, over the last five minutes.
    pub commit_ms: Quantiles,
    /// Results since the server started that were refused, because another attempt is booked.
    pub late_results: u64,
    /// Batches since the server started that the store did not take.
    pub store_failures: u64,
    /// Leases of workers, which their heartbeats renew.
    pub leases: Leases,
    /// Workers that are reserved for blocked work.
    pub reservations: usize,
    /// Workers that are left out for their faults.
    pub left_out: usize,
    /// Cpus that are idle while work waits, because nothing that waits fits there.
    pub stranded_cores: f64,
    /// What scoring rules see of the farm; absent where the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceFigures>,
}

/// What scoring rules see of the farm.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct InstanceFigures {
    /// Workers that take work.
    pub total_workers: u32,
    /// Workers that take work and run nothing.
    pub idle_workers: u32,
    /// Tasks that are booked or run.
    pub active_tasks: u32,
    /// Tasks that could start.
    pub pending_tasks: u32,
    /// Mean speed of a core of the workers; 1000 is the reference core. Null is unknown.
    pub core_score: Option<f64>,
    /// Means of what was measured of tasks, by name.
    pub means: BTreeMap<String, WindowMeans>,
}

/// Means of one quantity; null where nothing was measured in that time. `completed` is a count in each.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WindowMeans {
    /// Over the last five minutes.
    pub w5m: Option<f64>,
    /// Over the last hour.
    pub w1h: Option<f64>,
    /// Over the last 24 hours.
    pub w24h: Option<f64>,
}

/// Leases of workers, which their heartbeats renew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Leases {
    /// Workers that have one.
    pub workers: usize,
    /// Milliseconds since the one that has been silent longest was heard from; null without leases.
    pub oldest_ms: Option<u64>,
}

/// Which stretch of time a series shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// An hour in steps of ten seconds.
    #[default]
    Hour,
    /// A day in steps of five minutes.
    Day,
}

/// Numbers of the farm over time, oldest first, one for each step; null is unknown, and a time without a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FarmSeries {
    /// Milliseconds of a step.
    pub step_ms: u64,
    /// When the last step ends.
    pub end_ms: u64,
    /// Tasks that hold a part of a worker.
    pub running: Vec<Option<f64>>,
    /// Tasks that could start.
    pub waiting: Vec<Option<f64>>,
    /// Attempts that started in the step.
    pub started: Vec<Option<f64>>,
    /// Attempts that succeeded in the step.
    pub succeeded: Vec<Option<f64>>,
    /// Attempts that failed in the step, those that are tried again too.
    pub failed: Vec<Option<f64>>,
    /// Cpus that are booked.
    pub busy_cpus: Vec<Option<f64>>,
    /// Cpus of the workers that are up.
    pub total_cpus: Vec<Option<f64>>,
    /// Percent of the time in which some process waited for a cpu, mean over the workers that say it.
    pub cpu_pressure: Vec<Option<f64>>,
    /// The same for memory.
    pub memory_pressure: Vec<Option<f64>>,
    /// The same for input and output.
    pub io_pressure: Vec<Option<f64>>,
    /// Milliseconds from ready to placed: half of the tasks that were placed in the step waited at most this.
    pub wait_p50_ms: Vec<Option<f64>>,
    /// Nineteen of twenty waited at most this.
    pub wait_p95_ms: Vec<Option<f64>>,
    /// Tasks that were placed in the step.
    pub decisions: Vec<Option<f64>>,
    /// The queues that held most in this time, at most 20, the most first.
    pub queues: Vec<QueueSeries>,
}

/// A queue over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueSeries {
    /// Name of the queue, unique on the farm.
    pub queue: String,
    /// Cpus that it held.
    pub busy_cpus: Vec<Option<f64>>,
    /// Cpus that it was entitled to.
    pub entitled_cpus: Vec<Option<f64>>,
}

/// A worker over time, oldest first, one number for each step; null is unknown.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerSeries {
    /// Milliseconds of a step.
    pub step_ms: u64,
    /// When the last step ends.
    pub end_ms: u64,
    /// Cpus that are booked, in steps of a 250th of what it has today.
    pub busy_cpus: Vec<Option<f64>>,
    /// Whole percent of the time in which some process waited for a cpu.
    pub cpu_pressure: Vec<Option<f64>>,
    /// The same for memory.
    pub memory_pressure: Vec<Option<f64>>,
    /// The same for input and output.
    pub io_pressure: Vec<Option<f64>>,
    /// The load by which workers are compared, at most 5.
    pub load: Vec<Option<f64>>,
    /// What all links of its machine receive and send together, in Mbit/s, within a fortieth.
    #[serde(default)]
    pub network_mbit_s: Vec<Option<f64>>,
    /// Whole percent in use of the file system of the cache directory that has least room.
    #[serde(default)]
    pub cache_used: Vec<Option<f64>>,
}

/// The outcomes of the attempts that ended in the last hours. The server remembers the last 20000.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Since when: as long ago as was asked for, or since the oldest attempt that is remembered.
    pub since_ms: u64,
    /// Attempts that ended; one that was tried again counts once for each time.
    pub tasks: u64,
    /// Attempts of these that succeeded.
    pub succeeded: u64,
    /// Failed, or lost with their worker.
    pub failed: u64,
    /// Attempts that were killed on request.
    pub canceled: u64,
    /// Failures by cause, the most frequent first, at most 20.
    pub failures: Vec<FailureCause>,
    /// Workers by failures, the most first, at most 20.
    pub workers: Vec<WorkerRecord>,
    /// How long these attempts ran, as a histogram.
    pub durations: Durations,
    /// The attempts with the most cpu time, at most 50; only of jobs that the caller may read.
    pub expensive: Vec<ExpensiveTask>,
}

/// Attempts that failed for one cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureCause {
    /// `exit CODE`, `signal NUMBER`, `time_limit`, `oom`, `not_started`, `lost`, or `outputs_lost`. Newer servers may know
    /// more words.
    pub cause: String,
    /// Number of attempts with this cause.
    pub tasks: u64,
    /// The jobs with most of them, the most first, at most 5.
    #[serde(default)]
    pub jobs: Vec<CauseJob>,
}

/// A job of which attempts failed for a cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CauseJob {
    /// Id of the job.
    pub job: u64,
    /// Number of its attempts with this cause.
    pub tasks: u64,
}

/// What attempts took, by day, user and queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Beginning of the first day that the answer is of: that which was asked for, or a later one if the server has no
    /// older figures, or more rows than one answer has.
    pub since_ms: u64,
    /// By day, newest first, then by user and queue; only those of which an attempt ended.
    pub rows: Vec<UsageRow>,
}

/// What the attempts of a user took in a queue on a day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// Beginning of the day, in UTC.
    pub day_ms: u64,
    /// The user of the jobs. Of a day with very many users and queues, the last are added up as `others`.
    pub user: String,
    /// Name of the queue, unique on the farm; `others` with that user.
    pub queue: String,
    /// Milliseconds of cpu time of the attempts that ended on this day, those that were tried again too. An attempt whose
    /// cpu time was not measured counts with the time that it ran, times the cpus that it asked for.
    pub cpu_ms: u64,
    /// Number of attempts that ended, those that were tried again too.
    pub tasks: u64,
    /// Attempts of these that failed, or were lost with their worker.
    pub failed: u64,
}

/// The outcomes of the attempts on a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerRecord {
    /// Name of the worker, unique on the farm.
    pub worker: String,
    /// Attempts on it that failed.
    pub failed: u64,
    /// Attempts on it that ended.
    pub tasks: u64,
}

/// A histogram of how long attempts ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Durations {
    /// The longest time of each column but the last, in milliseconds.
    pub bounds_ms: Vec<u64>,
    /// Attempts of each column; the last has those that ran longer than all bounds.
    pub tasks: Vec<u64>,
}

/// An attempt that took much.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExpensiveTask {
    /// Id of the task's job.
    pub job: u64,
    /// The task's id, `JOB.INDEX`.
    pub task: String,
    /// The name of its step.
    pub step: String,
    /// Name of its job's queue.
    pub queue: String,
    /// The worker's name; empty if that is not known any more.
    pub worker: String,
    /// Milliseconds that it ran.
    pub ms: u64,
    /// Cpus that it held.
    pub cpus: f64,
    /// Most bytes of memory that it held at one time.
    pub peak_bytes: Option<u64>,
}

/// The states of a job's tasks, in order of their index, as runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TaskGrid {
    /// Number of all tasks of the job.
    pub tasks: u32,
    /// The index of the first task of the first run.
    pub from: u32,
    /// Runs of tasks in the same state, at most 50000.
    pub runs: Vec<GridRun>,
    /// Give this as `from` for the rest; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A letter and a number of tasks. `b`: waits for other tasks; `w`: waits for its turn; `p`: placed, not started; `r`:
/// runs; `s`: succeeded; `f`: failed; `c`: cancelled; `l`: will never start, or something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct GridRun(pub char, pub u32);
