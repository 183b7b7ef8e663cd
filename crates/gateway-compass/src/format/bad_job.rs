//! Why a job is refused.

use super::fields::scalar;
use super::testbox::BadTestbox;
use serde_json::Value;

/// The largest size of a job's fields, in bytes of JSON.
pub const JOB_BYTES_MAX: usize = 4 << 20;
/// Characters of a value that a refusal repeats.
const GIVEN_CHARS_MAX: usize = 40;

/// Why a job is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadJob {
    #[error("Missing required job key: '{0}'.")]
    Missing(&'static str),
    #[error("invalid type, expect {expect}: Job[{field}]{given}")]
    Type { field: String, expect: &'static str, given: String },
    #[error("Job Format Error: {field}: {why}")]
    Field { field: String, why: String },
    #[error("Job Format Error: {0}")]
    Testbox(#[from] BadTestbox),
    #[error(
        "no machine is left: target_machines names none that is testbox '{0}'; name one that is, or leave it out"
    )]
    NoMachine(String),
    #[error("the job has {0} bytes, more than {JOB_BYTES_MAX}; put large data where its machine fetches it")]
    TooLarge(usize),
}

/// The error of a field with an invalid value.
pub(crate) fn bad_field(name: &str, why: impl Into<String>) -> BadJob {
    BadJob::Field { field: name.to_owned(), why: why.into() }
}

/// The error of a field whose value has another type. Names the value if it is a single one and no secret.
pub(crate) fn bad_type(name: &str, expect: &'static str, value: &Value) -> BadJob {
    let given = match scalar(value) {
        Some(text) if name != "secrets" => {
            format!(" = {}", text.chars().take(GIVEN_CHARS_MAX).collect::<String>())
        }
        _ => String::new(),
    };
    BadJob::Type { field: name.to_owned(), expect, given }
}
