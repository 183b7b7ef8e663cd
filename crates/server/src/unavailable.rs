//! The error of whatever cannot be done now and may be tried again.

use std::sync::Arc;
use windlass_store::StoreError;

/// A request could not be done now: the store is full or gone, or too much waits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    why: Arc<str>,
}

impl Unavailable {
    /// For the reason `why`, in words for people.
    pub fn new(why: &str) -> Self {
        Unavailable { why: why.into() }
    }

    /// Because the store failed. The message has the causes of the error, too.
    pub fn from_store(error: &StoreError) -> Self {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            why.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Unavailable { why: why.into() }
    }
}
