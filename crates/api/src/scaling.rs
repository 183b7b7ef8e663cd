//! The JSON of how many workers are wanted.

use crate::submit::{Resources, is_default};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::{JobId, scaling as core};

/// How many workers the farm wants, by class of machines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Scaling {
    /// Milliseconds within which all tasks that wait should have started: the setting `scaling.target_wait_s`.
    pub target_wait_ms: u64,
    /// The classes of machines, those of the smallest workers first; at most 33.
    pub classes: Vec<ClassScaling>,
    /// Waiting work that no worker could run, not even one more of a class.
    pub none: UnrunnableWork,
    /// Waiting tasks that some workers of the farm could run, and further workers could not: they name their workers, for
    /// example.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bound_tasks: u64,
    /// Waiting tasks that a quota, a limit or a cap keeps from starting. More workers would not start them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub blocked_tasks: u64,
    /// Ready tasks of paused queues and of held jobs. More workers would not start them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused_tasks: u64,
    /// Classes of work that were not counted, because there are more than 256.
    #[serde(default, skip_serializing_if = "is_default")]
    pub work_classes_left_out: usize,
}

/// How many workers of one class are wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClassScaling {
    /// Name of the class: the value of its workers' tag `class`, or else their size.
    pub name: String,
    /// Workers that the class should have, those that run something among them.
    pub wanted: u32,
    /// Workers that it has. Drained and expired ones do not count.
    pub here: u32,
    /// Of these, workers that run something.
    pub busy: u32,
    /// Of these, idle workers that take no work now: silent, in quarantine, under pressure, or short of space. Where more
    /// workers are wanted, these are wanted besides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unusable: u32,
    /// Of these, workers that run nothing and are more than are wanted.
    pub spare: u32,
    /// Names of spare workers, at most 100: those that take no work, then those that came last. Drain one before it is
    /// stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare_workers: Vec<String>,
    /// The amounts that each of its workers has at least.
    pub capacity: Resources,
    /// Waiting tasks that are counted for the class.
    pub tasks: u64,
    /// Of these, tasks of unknown length.
    pub unknown_tasks: u64,
    /// Predicted milliseconds that the other tasks take, one after the other.
    pub work_ms: u64,
    /// Of the waiting tasks, how many at a time start all of them within the target.
    pub tasks_at_a_time: u64,
    /// Workers that are wanted at most.
    pub max: u32,
    /// Whether more workers than it has may be wanted.
    pub grows: bool,
    /// Why that many workers are wanted, as a sentence for people.
    pub reason: String,
}

/// Waiting work that no worker could run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UnrunnableWork {
    /// Classes of work, each of which needs a worker that no class has.
    pub work_classes: u32,
    /// Waiting tasks of these.
    pub tasks: u64,
    /// Ids of some of their jobs, at most 20 and only those that the caller may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<u64>,
}

impl Scaling {
    /// The answer as the core has it. `may_read` says which jobs are named.
    pub fn from_core(from: &core::Scaling, may_read: impl Fn(JobId) -> bool) -> Self {
        let target_wait_ms = from.target_wait_ms;
        let none = &from.unrunnable;
        Scaling {
            target_wait_ms,
            classes: from
                .classes
                .iter()
                .map(|class| ClassScaling::from_core(class, target_wait_ms))
                .collect(),
            none: UnrunnableWork {
                work_classes: none.classes,
                tasks: none.tasks,
                jobs: none.jobs.iter().filter(|job| may_read(**job)).map(|job| job.0).collect(),
            },
            bound_tasks: from.bound_tasks,
            blocked_tasks: from.blocked_tasks,
            paused_tasks: from.paused_tasks,
            work_classes_left_out: from.work_classes_left_out,
        }
    }
}

impl ClassScaling {
    fn from_core(from: &core::ClassScaling, target_wait_ms: u64) -> Self {
        ClassScaling {
            name: from.name.clone(),
            wanted: from.wanted,
            here: from.here,
            busy: from.busy,
            unusable: from.unusable,
            spare: from.spare,
            spare_workers: from.spare_workers.clone(),
            capacity: Resources::from_core(&from.capacity),
            tasks: from.tasks,
            unknown_tasks: from.unknown_tasks,
            work_ms: from.work_ms,
            tasks_at_a_time: from.tasks_at_a_time,
            max: from.max,
            grows: from.grows,
            reason: from.reason(target_wait_ms),
        }
    }
}
