//! Requests that one command makes, seldom.

use super::servers::Patience;
use super::{Client, ClientError, segment};
use crate::{BoardCode, DryRun, LogLines, Scaling, SubmitRequest};
use reqwest::Method;
use serde::Serialize;

/// The part of both outputs of a task to get.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogLinesQuery {
    /// The attempt's number, from 1 on.
    pub attempt: u32,
    /// Bytes of standard output to skip at the beginning; a negative number counts from the end.
    pub stdout_offset: i64,
    /// The same for standard error.
    pub stderr_offset: i64,
}

/// Lines of both outputs of a task in the order in which they were written. A server of an earlier release answers that
/// it does not know the path.
pub async fn log_lines(client: &Client, id: &str, query: &LogLinesQuery) -> Result<LogLines, ClientError> {
    client.get(&format!("/api/v1/tasks/{id}/log/lines"), query).await
}

/// How many workers of each class of machines are wanted.
pub async fn scaling(client: &Client) -> Result<Scaling, ClientError> {
    client.get("/api/v1/scaling", &()).await
}

/// What a submission would do; nothing is submitted.
pub async fn dry_run(client: &Client, request: &SubmitRequest) -> Result<DryRun, ClientError> {
    let sent = client.request(Method::POST, "/api/v1/jobs?dry_run=true").json(request);
    client.servers.json(&client.call(sent, true, Patience::Answer)?).await
}

/// Takes away what was set of a queue without unfinished jobs.
pub async fn remove_queue(client: &Client, name: &str) -> Result<(), ClientError> {
    let path = format!("/api/v1/queues/{}", segment(name));
    // A second one would find none.
    let call = client.call(client.request(Method::DELETE, &path), false, Patience::Answer)?;
    client.servers.open(&call).await.map(|_| ())
}

/// Makes a code that signs in to the board of the server that answers, once. One that is lost expires.
pub async fn board_code(client: &Client) -> Result<BoardCode, ClientError> {
    client.change(client.request(Method::POST, "/api/v1/board/codes")).await
}
