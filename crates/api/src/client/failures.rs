//! Reads why the tasks of a job failed.

use super::{Client, ClientError};
use crate::Failures;

/// Why the tasks of a job failed, by cause.
pub async fn failures_of(client: &Client, job: u64) -> Result<Failures, ClientError> {
    client.get(&format!("/api/v1/jobs/{job}/failures"), &()).await
}
