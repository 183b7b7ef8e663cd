//! The JSON in which SQL stores keep a job's spec. The core is not serializable by design: these
//! mirrors are the boundary, and fields may only be added, each with a default.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::job::{Dependency, DependencyKind, FailFast, JobSpec, StepSpec};
use windlass_core::tags::{Attributes, Need};
use windlass_core::{JobId, Resources, TaskId};

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_fast: Option<FailFastJson>,
    steps: Vec<StepJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailFastJson {
    Finish,
    Kill,
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
    #[serde(default)]
    retries: u32,
    /// The step's place and whether task by task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends: Vec<(u16, bool)>,
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

/// A spec without bodies, as JSON.
pub fn spec_to_json(spec: &JobSpec) -> String {
    let json = JobJson {
        name: spec.name.clone(),
        queue: spec.queue.clone(),
        user: spec.user.clone(),
        priority: spec.priority,
        key: spec.key.clone(),
        parent: spec.parent.map(|task| (task.job.0, task.index)),
        after: spec.after.iter().map(|id| id.0).collect(),
        fail_fast: match spec.fail_fast {
            FailFast::No => None,
            FailFast::Finish => Some(FailFastJson::Finish),
            FailFast::Kill => Some(FailFastJson::Kill),
        },
        steps: spec.steps.iter().map(step_to_json).collect(),
    };
    serde_json::to_string(&json).expect("strings, numbers and lists always serialize")
}

fn step_to_json(step: &StepSpec) -> StepJson {
    StepJson {
        name: step.name.clone(),
        tasks: step.tasks,
        request: resources_to(&step.request),
        needs: step.needs.iter().map(|need| (need.key.clone(), need.any_of.clone())).collect(),
        targets: step.targets.clone(),
        time_limit_ms: step.time_limit_ms,
        retries: step.retries,
        depends: step.depends.iter().map(|d| (d.on, d.kind == DependencyKind::Task)).collect(),
    }
}

/// The spec in `text`, its bodies empty.
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
        fail_fast: match json.fail_fast {
            None => FailFast::No,
            Some(FailFastJson::Finish) => FailFast::Finish,
            Some(FailFastJson::Kill) => FailFast::Kill,
        },
        steps: json.steps.into_iter().map(step_from_json).collect(),
    })
}

fn step_from_json(step: StepJson) -> StepSpec {
    let kind = |by_task| if by_task { DependencyKind::Task } else { DependencyKind::Step };
    StepSpec {
        name: step.name,
        tasks: step.tasks,
        request: resources_from(step.request),
        needs: step.needs.into_iter().map(|(key, any_of)| Need { key, any_of }).collect(),
        targets: step.targets,
        time_limit_ms: step.time_limit_ms,
        retries: step.retries,
        depends: step.depends.into_iter().map(|(on, task)| Dependency { on, kind: kind(task) }).collect(),
        limits: BTreeSet::new(),
        hints: Default::default(),
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

/// Amounts as JSON.
pub fn resources_to_json(from: &Resources) -> String {
    serde_json::to_string(&resources_to(from)).expect("numbers and strings always serialize")
}

/// Amounts from JSON.
pub fn resources_from_json(text: &str) -> Result<Resources, serde_json::Error> {
    serde_json::from_str(text).map(resources_from)
}

/// Attributes as JSON.
pub fn attributes_to_json(from: &Attributes) -> String {
    serde_json::to_string(from).expect("strings always serialize")
}

/// Attributes from JSON.
pub fn attributes_from_json(text: &str) -> Result<Attributes, serde_json::Error> {
    serde_json::from_str(text)
}
