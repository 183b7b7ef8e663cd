//! Jobs and hosts of Compass CI as their own interface has them: names of testboxes, fields of jobs, stages,
//! what waits for what, and what a host says of itself. Pure: texts in, values or a clear error out.

mod host;
mod job;
mod quantity;
mod stage;
mod testbox;
mod wait;

pub use host::{BadHost, HostRequest};
pub use job::{ANY, BadJob, CompassJob, JOB_BYTES_MAX, is_compass, public_fields, result_root};
pub use quantity::{parse_memory, parse_seconds};
pub use stage::{Health, Readiness, Stage};
pub use testbox::{BadTestbox, TboxType, Testbox};
pub use wait::{Condition, WaitSpec, Waited};

/// A JSON object, as jobs and hosts come.
pub type Fields = serde_json::Map<String, serde_json::Value>;

/// The value of [`EXECUTOR`](windlass_core::tags::EXECUTOR) of hosts that run jobs of Compass CI.
pub const EXECUTOR_NAME: &str = "compass-ci";
/// The amount of which a bare-metal machine has one and each of its jobs takes it.
pub const BOX: &str = "testbox";

/// What a field says, as text: numbers and truth values as they are written.
pub fn text_of(fields: &Fields, key: &str) -> Option<String> {
    scalar(fields.get(key)?)
}

/// A value that is one word, as text; `None` of lists, objects and null.
pub(crate) fn scalar(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A list of texts, from a list or from one text with commas or spaces between; `None` of anything else.
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
