//! The job spec: the XML document that pyoutline and CueSubmit send to start jobs.
//!
//! - Only facts of the document: what a service or a show decides when the document is silent is `None`.
//! - Documents that declare entities are refused, so that none is expanded and no file is read.
//! - Each text has the bound of its column, so that the database refuses none later.

mod read;

use crate::frames::RangeError;
use crate::generated::depend::DependType;
use crate::generated::job::LayerType;
use crate::names::NameError;

pub use read::parse;

/// Bytes of a document. 2,000 layers of 4 KiB fit.
pub const SPEC_BYTES_MAX: usize = 16 << 20;
/// Elements, texts and attributes of a document, counted as the parser does.
pub const NODES_MAX: u32 = 1_000_000;
/// Jobs of a document.
pub const JOBS_MAX: usize = 100;
/// Layers of a job, as in OpenCue.
pub const LAYERS_MAX: usize = 2_000;
/// Dependencies of a document.
pub const DEPENDS_MAX: usize = 20_000;
/// Variables of a job or of a layer.
pub const VARIABLES_MAX: usize = 1_000;
/// Services, limits, tags or outputs of a layer, each.
pub const LIST_MAX: usize = 200;
/// Bytes of a command, a range or the tags of a layer: their columns.
pub const TEXT_BYTES_MAX: usize = 4_000;
/// Bytes of a variable's name or value: their columns.
pub const VARIABLE_BYTES_MAX: usize = 2_048;
/// Cores of a frame, in hundredths: the bounds of OpenCue.
pub const CORES_RESERVED: std::ops::RangeInclusive<i32> = 10..=2_400;
/// Memory of a frame, in KiB: the bounds of OpenCue.
pub const MEMORY_RESERVED_KIB: std::ops::RangeInclusive<i64> = 262_144..=52_428_800;

/// Why a document is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    #[error("the job spec has {0} bytes; at most {SPEC_BYTES_MAX} are read; split the job")]
    Long(usize),
    #[error("the job spec declares an entity; write the text itself")]
    Entity,
    #[error("the job spec is not valid XML")]
    Xml(#[from] roxmltree::Error),
    #[error("{place} has no {what}; add it")]
    Missing { place: String, what: &'static str },
    #[error("{place}: '{value}' is not a valid {what}")]
    Value { place: String, what: &'static str, value: String },
    #[error("{place} has more than {max} {what}; split it")]
    Many { place: String, what: &'static str, max: usize },
    #[error("job '{job}' has two layers '{layer}'; give them different names")]
    Twice { job: String, layer: String },
    #[error("jobs cannot run as root; submit as another user")]
    Root,
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Range(#[from] RangeError),
}

/// What one document asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// In lower case. `None` is the default facility.
    pub facility: Option<String>,
    /// The show, which must exist.
    pub show: String,
    /// The shot that the jobs work on.
    pub shot: String,
    /// The user who submits, and as whom commands run.
    pub user: String,
    /// Never 0. `None` where the document has none.
    pub uid: Option<i32>,
    /// The address for mail about the jobs.
    pub email: Option<String>,
    /// In the order of the document.
    pub jobs: Vec<JobSpec>,
    /// Between these jobs, or on older ones.
    pub depends: Vec<DependSpec>,
}

/// A job of a document.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSpec {
    /// The whole name: `show-shot-user_rest`.
    pub name: String,
    /// True if the job waits until a client resumes it.
    pub paused: bool,
    /// True if frames that fail are eaten.
    pub auto_eat: bool,
    /// `None` is the group's default.
    pub priority: Option<i32>,
    /// Never negative. The launch caps it at the operator's maximum. `None` is the default.
    pub retries_max: Option<i32>,
    /// Whole cores, as hundredths; -1 is without a cap.
    pub cores_max: Option<i32>,
    /// Gpus that the job gets at most.
    pub gpus_max: Option<i32>,
    /// The operating system of hosts.
    pub os: Option<String>,
    /// In the order of the document; a name stands once, with its last value.
    pub env: Vec<(String, String)>,
    /// In the order of dispatch.
    pub layers: Vec<LayerSpec>,
}

/// A layer of a job.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerSpec {
    /// In lower case, with underscores for dashes.
    pub name: String,
    /// When the frames of the layer run.
    pub kind: LayerType,
    /// The command line with OpenCue's tokens, such as `#IFRAME#`.
    pub command: String,
    /// The range as it was written.
    pub range: String,
    /// Frames that one command renders; at least 1.
    pub chunk_size: u32,
    /// The first frame of each chunk, in order of dispatch.
    pub frames: Vec<i32>,
    /// Hundredths of cores. 0 is a whole host, and a negative number is a whole host without that number. `None` is
    /// the service's.
    pub cores_min: Option<i32>,
    /// `None` is the service's.
    pub threadable: Option<bool>,
    /// KiB, within `MEMORY_RESERVED_KIB`. `None` is the service's.
    pub memory_kib: Option<i64>,
    /// `None` is the service's.
    pub gpus_min: Option<i32>,
    /// KiB, from `gpu_memory` or the older `gpu`. `None` is the service's.
    pub gpu_memory_kib: Option<i64>,
    /// Minutes after which a frame is killed.
    pub timeout_min: Option<i32>,
    /// Minutes without a line of log after which a frame is killed.
    pub timeout_llu_min: Option<i32>,
    /// `None` is the service's. A layer's tags replace those.
    pub tags: Option<Vec<String>>,
    /// Names of limits that its frames take of.
    pub limits: Vec<String>,
    /// Names of services; the first one known gives the defaults.
    pub services: Vec<String>,
    /// Variables, in the form of the job's.
    pub env: Vec<(String, String)>,
    /// Paths of what it makes.
    pub outputs: Vec<String>,
}

/// One side of a dependency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DependEnd {
    /// The whole name of a job.
    pub job: String,
    /// The layer, where the kind has one.
    pub layer: Option<String>,
    /// The frame as `0001-layer`, where the kind has one.
    pub frame: Option<String>,
}

/// A dependency that a document asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DependSpec {
    /// What the two sides are.
    pub kind: DependType,
    /// True if one frame of the other layer is enough. Only between layers.
    pub any_frame: bool,
    /// The side that waits.
    pub from: DependEnd,
    /// The side that it waits for.
    pub on: DependEnd,
}
