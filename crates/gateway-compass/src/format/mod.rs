//! Jobs and hosts of Compass CI in terms of its own interface: names of testboxes, fields of jobs, stages, wait
//! conditions, and requests of hosts. Pure functions from texts to values or errors.

mod cluster;
mod host;
mod job;
mod lab_file;
mod matrix;
mod peers;
mod quantity;
mod result_root;
mod sections;
mod stage;
mod testbox;
mod wait;

pub(crate) use cluster::CLUSTER_ROLES;
pub use cluster::{CLUSTER_NODES_MAX, ClusterNode, ClusterSpec, check_cluster_name, cluster_name, nodes_of};
pub use host::{BadHost, HostRequest};
pub use job::{ANY, BadJob, CompassJob, JOB_BYTES_MAX, cluster_job, is_compass, public_fields};
pub(crate) use job::{SEALED_SECRETS, is_variable};
pub use lab_file::host_of_file;
pub use matrix::{MATRIX_JOBS_MAX, jobs_of};
pub(crate) use peers::{add_scripts, cluster_jobs, runs_here};
pub use quantity::{parse_memory, parse_seconds};
pub(crate) use result_root::md5_of;
pub use result_root::{all_params_md5, result_root, rootfs};
pub use sections::{SECTION_ORDER, SECTIONS, entries_of, section_order};
pub use stage::{Health, Readiness, Stage};
pub use testbox::{BadTestbox, TboxType, Testbox};
pub use wait::{Condition, WaitSpec, Waited};

/// The JSON object of a job or a host.
pub type Fields = serde_json::Map<String, serde_json::Value>;

/// The value of [`EXECUTOR`](windlass_core::tags::EXECUTOR) for hosts that run jobs of Compass CI.
pub const EXECUTOR_NAME: &str = "compass-ci";
/// The resource of which a bare-metal machine has 1, and each of its jobs takes 1.
pub const BOX: &str = "testbox";

/// A field as text: a text, a number or a truth value; `None` for others.
pub fn text_of(fields: &Fields, key: &str) -> Option<String> {
    scalar(fields.get(key)?)
}

/// A single value as text; `None` for lists, objects and null.
pub(crate) fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A list of texts, from a list, or from one text with commas or spaces; empty for null, `None` for anything else.
pub(crate) fn texts(value: &serde_json::Value) -> Option<Vec<String>> {
    match value {
        serde_json::Value::Array(all) => all.iter().map(scalar).collect(),
        serde_json::Value::String(text) => {
            let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
            Some(parts.map(str::to_owned).collect())
        }
        serde_json::Value::Null => Some(Vec::new()),
        _ => None,
    }
}
