//! Why submissions are refused before the engine sees them.

use crate::body::{BODY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::fail_limit::BadFailLimit;
use crate::files::StepFilesError;
use crate::quantity::BadQuantity;
use crate::session::SessionError;
use crate::space::SpaceError;
use windlass_core::bounds;
use windlass_core::ids::BadTaskId;

/// Why a submission is refused before the engine sees it.
// The messages say what the fields are.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A job that is to end in two ways.
    #[error(
        "the job comes after job {0} in two ways; leave it in one of 'after', 'after_any' and 'after_not_ok'"
    )]
    AfterTwice(u64),
    #[error("fail_limit: {0}")]
    FailLimit(#[from] BadFailLimit),
    #[error("step '{0}' has no command")]
    NoCommand(String),
    /// A cap under which nothing would ever start.
    #[error("max_running must be at least 1; hold the job to start nothing")]
    MaxRunning,
    #[error("step '{0}': nodes must be at least 1")]
    NoNodes(String),
    /// Chunks of tasks that no process could run together.
    #[error("step '{step}': chunks: {why}")]
    BadChunks {
        step: String,
        /// The fault, and what would be right.
        why: &'static str,
    },
    #[error("step '{step}': the range {start}-{end}:{by} is empty")]
    BadRange {
        step: String,
        start: i64,
        end: i64,
        /// The difference between numbers.
        by: i64,
    },
    #[error("step '{step}': cpus must be a number from 0 to 40000000, not {cpus}")]
    BadCpus { step: String, cpus: f64 },
    #[error(
        "step '{step}': cpus_max must be a number from its cpus, {cpus}, to 40000000, not {cpus_max}, and excludes cpus_auto"
    )]
    BadCpusMax { step: String, cpus: f64, cpus_max: f64 },
    /// What a build with a jobserver uses says nothing of what it needs.
    #[error(
        "step '{0}': cpus_auto and jobserver exclude each other: a build with a jobserver books the least that it needs; give its cpus"
    )]
    LearnsAndShares(String),
    #[error("step '{step}' depends on '{on}', and there is no such step")]
    UnknownStep { step: String, on: String },
    #[error("step '{step}': {what} holds a NUL byte")]
    Nul { step: String, what: &'static str },
    #[error("step '{step}': '{name}' cannot name an environment variable")]
    BadVariable { step: String, name: String },
    #[error("step '{step}': the working directory '{cwd}' is not absolute")]
    RelativeCwd { step: String, cwd: String },
    #[error("step '{step}': {source}")]
    BadUmask { step: String, source: BadQuantity },
    #[error("step '{step}' has {is} tasks, more than the limit of {}", bounds::TASKS_PER_JOB_MAX)]
    TooManyTasks { step: String, is: u128 },
    #[error("parent: {0}")]
    Parent(#[from] BadTaskId),
    #[error("step '{step}': {source}")]
    BadSpace { step: String, source: SpaceError },
    #[error("step '{step}': {source}")]
    BadSession { step: String, source: SessionError },
    #[error("step '{0}' has an empty tag or worker name")]
    EmptyTag(String),
    /// A requirement that only gateways make.
    #[error(
        "step '{0}': the tag 'executor' is for the work of other systems, which their gateways submit; leave it out"
    )]
    OtherSystem(String),
    #[error("step '{step}' names {what} with an empty name")]
    EmptyName { step: String, what: &'static str },
    #[error(
        "step '{step}': command, environment and files are {bytes} bytes together, more than the limit of {}",
        BODY_BYTES_MAX
    )]
    TooLarge { step: String, bytes: usize },
    #[error("step '{step}': a value of {bytes} bytes is longer than the limit of {}", VALUE_BYTES_MAX)]
    LongValue { step: String, bytes: usize },
    #[error("step '{0}': deadline_ms must be more than 0")]
    NoDeadline(String),
    #[error("step '{step}': {source}")]
    BadFiles { step: String, source: StepFilesError },
}
