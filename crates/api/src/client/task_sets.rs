//! Requests about tasks of a job: some of them, or all that failed.

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
    if verb == "retry" {
        return retry(client, job, Some(tasks), false).await;
    }
    let path = format!("/api/v1/jobs/{job}/tasks/{verb}");
    client.change(client.request(Method::POST, &path).json(&ChangeTasks { tasks: tasks.to_string() })).await
}

/// Runs failed and cancelled tasks of a job again: all, or those of `tasks`. With `force` also where a job that it comes
/// after did not end as it asks for, which a server of an earlier release does in any case.
pub async fn retry(
    client: &Client,
    job: u64,
    tasks: Option<&TaskSet>,
    force: bool,
) -> Result<Job, ClientError> {
    let part = if tasks.is_some() { "/tasks" } else { "" };
    let mut request = client.request(Method::POST, &format!("/api/v1/jobs/{job}{part}/retry"));
    if force {
        request = request.query(&[("force", true)]);
    }
    if let Some(tasks) = tasks {
        request = request.json(&ChangeTasks { tasks: tasks.to_string() });
    }
    // A second one would run what has failed again since the first, or find nothing to retry.
    client.once(request).await
}
