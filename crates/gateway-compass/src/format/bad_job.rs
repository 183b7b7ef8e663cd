//! Why a job is refused.

use super::testbox::BadTestbox;

/// The largest size of a job's fields, in bytes of JSON.
pub const JOB_BYTES_MAX: usize = 4 << 20;

/// Why a job is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadJob {
    #[error("Missing required job key: '{0}'.")]
    Missing(&'static str),
    #[error("invalid type, expect {expect}: Job[{field}]")]
    Type { field: String, expect: &'static str },
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
