//! The JSON in which databases keep specs, amounts, samples and other compound values. The core is
//! not serializable by design, so these types mirror it at the store's boundary. Stored text of every earlier
//! version must stay readable: fields are only added, each with a default. Bodies are never part of it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::job::{
    AfterEnd, BackOff, ChunkSize, Chunks, Counts, Dependency, DependencyKind, EqualRuns, FailFast, FailLimit,
    Hints, JobSpec, Jobserver, Kind, OnEnd, StepSpec,
};
use windlass_core::ranges::RangeSet;
use windlass_core::score::history::Sample;
use windlass_core::tags::{EXECUTOR, Need};
use windlass_core::worker::Origin;
use windlass_core::{JobId, Resources, TaskId, Time};

#[derive(Serialize, Deserialize)]
struct JobJson {
    name: String,
    queue: String,
    user: String,
    priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<(u64, u32)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<u64>,
    /// Those of `after` that need not succeed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    after_ends: BTreeMap<u64, AfterEndJson>,
    /// The job after whose tasks its own come, task by task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_tasks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_fast: Option<FailFastJson>,
    /// Failed tasks that stop the job, or percent of its tasks; neither is one task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_tasks: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_running: Option<u32>,
    /// Each address that is told of the end, and whether of failures alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    on_end: Vec<(String, bool)>,
    steps: Vec<StepJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailFastJson {
    Finish,
    Kill,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AfterEndJson {
    Ok,
    Any,
    NotOk,
}

#[derive(Serialize, Deserialize)]
struct StepJson {
    name: String,
    tasks: u32,
    request: ResourcesJson,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    needs: Vec<(String, BTreeSet<String>)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    targets: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_limit_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_running: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    /// Tasks of a block, of a chunk, until its length is known, and milliseconds that it should run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunks: Option<ChunksJson>,
    /// Index of the step with which it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    with: Option<u16>,
    #[serde(default)]
    retries: u32,
    /// Index of the step that it depends on, and whether task by task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends: Vec<(u16, bool)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    limits: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "HintsJson::is_default")]
    hints: HintsJson,
    #[serde(default, skip_serializing_if = "is_false")]
    external: bool,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct HintsJson {
    #[serde(skip_serializing_if = "is_false")]
    evaluation: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    shape: String,
    #[serde(skip_serializing_if = "is_false")]
    network_bound: bool,
    #[serde(skip_serializing_if = "is_false")]
    prefer_local: bool,
    #[serde(skip_serializing_if = "is_false")]
    fetches: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    caches: BTreeMap<String, Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    cpus_auto: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jobserver: Option<JobserverJson>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    prefers: BTreeSet<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobserverJson {
    Auto,
    Fifo,
    Pipes,
}

impl HintsJson {
    fn is_default(&self) -> bool {
        *self == HintsJson::default()
    }
}

fn is_false(b: &bool) -> bool {
    !b
}

#[derive(Serialize, Deserialize)]
struct ResourcesJson {
    cpu: u32,
    memory: u64,
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    gpu_memory: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    custom: BTreeMap<String, u64>,
}

/// A spec as JSON, without its bodies.
pub fn spec_to_json(spec: &JobSpec) -> String {
    let json = JobJson {
        name: spec.name.clone(),
        queue: spec.queue.clone(),
        user: spec.user.clone(),
        priority: spec.priority,
        key: spec.key.clone(),
        parent: spec.parent.map(|task| (task.job.0, task.index)),
        after: spec.after.iter().map(|id| id.0).collect(),
        after_ends: spec.after_ends.iter().map(|(id, end)| (id.0, after_end_to(*end))).collect(),
        after_tasks: spec.after_tasks.map(|id| id.0),
        fail_tasks: match spec.fail_limit {
            FailLimit::Tasks(tasks) => Some(tasks).filter(|tasks| *tasks != 1),
            FailLimit::Percent(_) => None,
        },
        fail_percent: match spec.fail_limit {
            FailLimit::Tasks(_) => None,
            FailLimit::Percent(percent) => Some(percent),
        },
        fail_fast: match spec.fail_fast {
            FailFast::No => None,
            FailFast::Finish => Some(FailFastJson::Finish),
            FailFast::Kill => Some(FailFastJson::Kill),
        },
        max_running: spec.max_running,
        on_end: spec.on_end.iter().map(|told| (told.to.clone(), told.only_failures)).collect(),
        steps: spec.steps.iter().map(step_to_json).collect(),
    };
    to_json(&json)
}

fn after_end_to(end: AfterEnd) -> AfterEndJson {
    match end {
        AfterEnd::Ok => AfterEndJson::Ok,
        AfterEnd::Any => AfterEndJson::Any,
        AfterEnd::NotOk => AfterEndJson::NotOk,
    }
}

fn after_end_from(json: AfterEndJson) -> AfterEnd {
    match json {
        AfterEndJson::Ok => AfterEnd::Ok,
        AfterEndJson::Any => AfterEnd::Any,
        AfterEndJson::NotOk => AfterEnd::NotOk,
    }
}

/// How many tasks one process runs.
#[derive(Serialize, Deserialize)]
struct ChunksJson {
    block: u32,
    /// Tasks of each of some runs that have equally many, and of the block up to the end of the last of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs: Vec<(u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fixed: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_ms: Option<u64>,
}

fn chunks_to(chunks: &Chunks) -> ChunksJson {
    let (fixed, first, target_ms) = match chunks.size {
        ChunkSize::Fixed(tasks) => (Some(tasks), None, None),
        ChunkSize::Learned { first, target_ms } => (None, Some(first), target_ms),
    };
    let runs = chunks.runs.iter().map(|runs| (runs.tasks, runs.end)).collect();
    ChunksJson { block: chunks.block, runs, fixed, first, target_ms }
}

fn chunks_from(json: ChunksJson) -> Chunks {
    let learned = ChunkSize::Learned { first: json.first.unwrap_or(1), target_ms: json.target_ms };
    let runs = json.runs.into_iter().map(|(tasks, end)| EqualRuns { tasks, end }).collect();
    Chunks { block: json.block, runs, size: json.fixed.map_or(learned, ChunkSize::Fixed) }
}

fn step_to_json(step: &StepSpec) -> StepJson {
    StepJson {
        name: step.name.clone(),
        tasks: step.tasks,
        request: resources_to(&step.request),
        needs: step.needs.iter().map(|need| (need.key.clone(), need.any_of.clone())).collect(),
        targets: step.targets.clone(),
        time_limit_ms: step.time_limit_ms,
        max_running: step.max_running,
        nodes: step.nodes,
        chunks: step.chunks.as_ref().map(chunks_to),
        with: step.with,
        retries: step.retries,
        depends: step.depends.iter().map(|d| (d.on, d.kind == DependencyKind::Task)).collect(),
        limits: step.limits.clone(),
        hints: hints_to(&step.hints),
        external: step.is_external,
    }
}

fn hints_to(from: &Hints) -> HintsJson {
    let from = from.clone();
    HintsJson {
        evaluation: from.kind == Kind::Evaluation,
        shape: from.shape,
        network_bound: from.network_bound,
        prefer_local: from.prefer_local,
        fetches: from.fetches,
        caches: from.caches,
        deadline_ms: from.deadline_ms,
        cpus_auto: from.cpus_auto,
        cpus_max: from.cpus_max,
        jobserver: from.jobserver.map(|form| match form {
            Jobserver::Auto => JobserverJson::Auto,
            Jobserver::Fifo => JobserverJson::Fifo,
            Jobserver::Pipes => JobserverJson::Pipes,
        }),
        prefers: from.prefers,
    }
}

fn hints_from(from: HintsJson) -> Hints {
    Hints {
        kind: if from.evaluation { Kind::Evaluation } else { Kind::Build },
        shape: from.shape,
        network_bound: from.network_bound,
        prefer_local: from.prefer_local,
        fetches: from.fetches,
        caches: from.caches,
        deadline_ms: from.deadline_ms,
        cpus_auto: from.cpus_auto,
        cpus_max: from.cpus_max,
        jobserver: from.jobserver.map(|form| match form {
            JobserverJson::Auto => Jobserver::Auto,
            JobserverJson::Fifo => Jobserver::Fifo,
            JobserverJson::Pipes => Jobserver::Pipes,
        }),
        prefers: from.prefers,
    }
}

/// A spec from JSON, with empty bodies.
///
/// # Errors
/// If the text is not the JSON of a spec.
pub fn spec_from_json(text: &str) -> Result<JobSpec, serde_json::Error> {
    let json: JobJson = serde_json::from_str(text)?;
    Ok(JobSpec {
        name: json.name,
        queue: json.queue,
        user: json.user,
        priority: json.priority,
        key: json.key,
        parent: json.parent.map(|(job, index)| TaskId { job: JobId(job), index }),
        after: json.after.into_iter().map(JobId).collect(),
        after_ends: json.after_ends.into_iter().map(|(id, end)| (JobId(id), after_end_from(end))).collect(),
        after_tasks: json.after_tasks.map(JobId),
        fail_limit: match json.fail_percent {
            Some(percent) => FailLimit::Percent(percent),
            None => FailLimit::Tasks(json.fail_tasks.unwrap_or(1)),
        },
        fail_fast: match json.fail_fast {
            None => FailFast::No,
            Some(FailFastJson::Finish) => FailFast::Finish,
            Some(FailFastJson::Kill) => FailFast::Kill,
        },
        max_running: json.max_running,
        on_end: json.on_end.into_iter().map(|(to, only_failures)| OnEnd { to, only_failures }).collect(),
        steps: json.steps.into_iter().map(step_from_json).collect(),
    })
}

fn step_from_json(step: StepJson) -> StepSpec {
    let kind = |by_task| if by_task { DependencyKind::Task } else { DependencyKind::Step };
    // Before workers had origins, a host of a Compass CI lab was a worker of the same name.
    let for_hosts = step.needs.iter().any(|(key, _)| key == EXECUTOR);
    let of_origin = |name: String| match Origin::of(&name) {
        Origin::Agent if for_hosts => Origin::Compass.worker_name(&name),
        _ => name,
    };
    let targets = step.targets.into_iter().map(of_origin).collect();
    StepSpec {
        name: step.name,
        tasks: step.tasks,
        request: resources_from(step.request),
        needs: step.needs.into_iter().map(|(key, any_of)| Need { key, any_of }).collect(),
        targets,
        time_limit_ms: step.time_limit_ms,
        max_running: step.max_running,
        nodes: step.nodes,
        chunks: step.chunks.map(chunks_from),
        with: step.with,
        retries: step.retries,
        depends: step.depends.into_iter().map(|(on, task)| Dependency { on, kind: kind(task) }).collect(),
        limits: step.limits,
        hints: hints_from(step.hints),
        is_external: step.external,
        body: Arc::default(),
    }
}

fn resources_to(from: &Resources) -> ResourcesJson {
    let Resources { cpu, memory, gpus, gpu_memory, custom } = from.clone();
    ResourcesJson { cpu, memory, gpus, gpu_memory, custom }
}

fn resources_from(from: ResourcesJson) -> Resources {
    let ResourcesJson { cpu, memory, gpus, gpu_memory, custom } = from;
    Resources { cpu, memory, gpus, gpu_memory, custom }
}

/// A value that is its own JSON, such as a set of names.
pub fn to_json<T: Serialize>(from: &T) -> String {
    serde_json::to_string(from).expect("strings, numbers and lists always serialize")
}

/// The inverse of [`to_json`].
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

pub fn resources_to_json(from: &Resources) -> String {
    to_json(&resources_to(from))
}

pub fn resources_from_json(text: &str) -> Result<Resources, serde_json::Error> {
    serde_json::from_str(text).map(resources_from)
}

/// A sample: peak memory in bytes, milliseconds of cpu time and of run time, bytes of disk traffic, whether
/// it was killed for memory. There are up to 200 for each task profile, so they carry no names.
type SampleJson = (Option<u64>, Option<u64>, Option<u64>, Option<u64>, bool);

pub fn samples_to_json(from: &[Sample]) -> String {
    let rows = from.iter().map(|s| (s.peak_memory, s.cpu_ms, s.wall_ms, s.disk_bytes, s.oom));
    to_json(&rows.collect::<Vec<SampleJson>>())
}

pub fn samples_from_json(text: &str) -> Result<Vec<Sample>, serde_json::Error> {
    let rows: Vec<SampleJson> = serde_json::from_str(text)?;
    let sample = |(peak_memory, cpu_ms, wall_ms, disk_bytes, oom)| Sample {
        peak_memory,
        cpu_ms,
        wall_ms,
        disk_bytes,
        oom,
    };
    Ok(rows.into_iter().map(sample).collect())
}

/// A step that backs off: its index, the limit, since when and until when in nanoseconds, how many times in a row.
type BackOffJson = (u16, String, u64, u64, u32);

pub fn back_offs_to_json(from: &BTreeMap<u16, BackOff>) -> String {
    let rows = from.iter().map(|(step, b)| (*step, b.limit.clone(), b.since.0, b.until.0, b.times));
    to_json(&rows.collect::<Vec<BackOffJson>>())
}

pub fn back_offs_from_json(text: &str) -> Result<BTreeMap<u16, BackOff>, serde_json::Error> {
    let rows: Vec<BackOffJson> = serde_json::from_str(text)?;
    let row = |(step, limit, since, until, times)| {
        (step, BackOff { limit, since: Time(since), until: Time(until), times })
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Ranges of tasks as JSON: pairs of first index and count.
pub fn ranges_to_json(from: &RangeSet) -> String {
    let pairs = from.ranges().map(|range| (range.start, range.end - range.start));
    to_json(&pairs.collect::<Vec<(u32, u32)>>())
}

pub fn ranges_from_json(text: &str) -> Result<RangeSet, serde_json::Error> {
    let pairs: Vec<(u32, u32)> = serde_json::from_str(text)?;
    let mut ranges = RangeSet::default();
    pairs.into_iter().for_each(|(first, count)| ranges.insert_range(first..first.saturating_add(count)));
    Ok(ranges)
}

/// The eight counts as a JSON list, in the order of the fields.
pub fn counts_to_json(counts: &Counts) -> String {
    let Counts { total, waiting, ready, active, succeeded, failed, canceled, skipped } = counts;
    format!("[{total},{waiting},{ready},{active},{succeeded},{failed},{canceled},{skipped}]")
}

/// The inverse of [`counts_to_json`].
pub fn counts_from_json(text: &str) -> Result<Counts, serde_json::Error> {
    let [total, waiting, ready, active, succeeded, failed, canceled, skipped] = serde_json::from_str(text)?;
    Ok(Counts { total, waiting, ready, active, succeeded, failed, canceled, skipped })
}
