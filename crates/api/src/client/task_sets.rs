//! Requests about tasks of a job.

use super::Client;
use super::failure::ClientError;
use crate::{ChangeTasks, Job, TaskSet};
use reqwest::Method;

/// `cancel` or `retry` on tasks of a job. A server of an earlier release refuses it.
pub async fn act_on_tasks(
    client: &Client,
    job: u64,
    verb: &str,
    tasks: &TaskSet,
) -> Result<Job, ClientError> {
    let path = format!("/api/v1/jobs/{job}/tasks/{verb}");
    let request = client.request(Method::POST, &path).json(&ChangeTasks { tasks: tasks.to_string() });
    match verb {
        // As a retry of a whole job, it is not repeated.
        "retry" => client.once(request).await,
        _ => client.change(request).await,
    }
}
