//! What a submission would do.

use crate::job::Step;
use crate::submit::{Submitted, Unplaceable};
use crate::why::Why;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a submission would do now. Nothing of it was done, and nothing is kept for it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// The name that the job would have.
    pub name: String,
    /// The queue that it would be in.
    pub queue: String,
    /// The user whose job it would be.
    pub user: String,
    /// Its priority inside the queue.
    pub priority: i32,
    /// The job that was submitted before with the same key: nothing would be submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<u64>,
    /// True if the farm has no queue of that name, and it is not the one of the user's name, `vip` or `idle`.
    #[serde(default)]
    pub queue_created: bool,
    /// Steps that no worker that the farm has now could run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaceable: Vec<Unplaceable>,
    /// The steps in their order; none where nothing would be submitted.
    pub steps: Vec<DryRunStep>,
}

/// What would become of a step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DryRunStep {
    /// The step with what its tasks ask for, after defaults.
    pub step: Step,
    /// Where tasks of it would start at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<StartsOn>,
    /// Tasks that would wait.
    pub waiting: u32,
    /// Why the first of these would wait. Absent without one, and where the job would wait in the store behind others of
    /// its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
}

/// Tasks that would start on a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StartsOn {
    /// Name of the worker.
    pub worker: String,
    /// Number of these tasks.
    pub tasks: u32,
}

/// The answer to a submission: what was submitted or, with `dry_run`, what would be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SubmitAnswer {
    /// The job was submitted before.
    Submitted(Submitted),
    /// It was a dry run: nothing was submitted.
    DryRun(DryRun),
}
