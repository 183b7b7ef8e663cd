//! Files of a step: what its tasks find in a directory of their own, and what is kept of it when they end. Files are named
//! by content, as the Remote Execution API names them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most globs of outputs of a step, and most bytes of one.
pub const OUTPUT_GLOBS_MAX: usize = 100;
pub const OUTPUT_GLOB_BYTES_MAX: usize = 1_024;
/// Most blobs that one request asks about.
pub const BLOBS_ASKED_MAX: usize = 10_000;
/// Most bytes of the body of one request that uploads several blobs. A larger blob has a request of its own.
pub const BLOB_BATCH_BYTES_MAX: usize = 8 << 20;

/// The instance of the Remote Execution API over which workers read inputs and write outputs. Clients of the remote cache
/// have no access to it.
pub const JOB_FILES_INSTANCE: &str = "windlass-jobs";
/// Metadata of such calls: the attempt that they are for, as `JOB.INDEX.ATTEMPT`.
pub const ATTEMPT_METADATA: &str = "windlass-attempt";

/// Files of a step's tasks. With them each task runs in a new directory of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFiles {
    /// The tree of inputs, which was uploaded before: `HASH/BYTES`, the SHA-256 and the length of its root `Directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Names of earlier steps, of which the outputs are put into the directory too. The step depends on each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs_of: Vec<String>,
    /// Globs of what is kept when a task ends, however it ends: `*.o`, `build/**`. Paths are those below the task's
    /// directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The standard input of each task, which was uploaded before: `HASH/BYTES`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// A question which blobs must be uploaded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskBlobs {
    /// Up to 10,000, each as `HASH/BYTES`.
    pub blobs: Vec<String>,
}

/// The blobs that must be uploaded, because the user has not uploaded them before, or because they are gone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MissingBlobs {
    pub missing: Vec<String>,
}

/// What was kept of the directories of a job's tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct JobFiles {
    /// Steps with files, in the order of the job.
    pub steps: Vec<StepFilesOf>,
    /// The outputs of tasks, in their order. Of a page of tasks.
    pub outputs: Vec<TaskOutputs>,
    /// The index of the task with which the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// The files of one step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepFilesOf {
    pub step: String,
    #[serde(flatten)]
    pub files: StepFiles,
    /// Files and bytes of the tree of inputs; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_files: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
}

/// The outputs of one task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TaskOutputs {
    /// The task's place in the job.
    pub index: u32,
    pub attempt: u32,
    /// The tree: `HASH/BYTES` of its root `Directory`.
    pub root: String,
    pub files: u64,
    pub bytes: u64,
    /// What was not kept, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}
