//! A client of the server's HTTP interface, over TCP or a unix socket. It may know several servers of one farm:
//! `servers` chooses which is asked, and when the next one is.

mod body_source;
mod clock;
mod credentials;
mod failure;
mod failures;
pub mod files;
mod raw;
mod seldom;
mod servers;
pub mod task_sets;
mod token_end;
pub mod turns;

pub use crate::address::Address;
pub use clock::server_ahead_ms;
pub use credentials::{Credentials, CredentialsError};
pub use failure::ClientError;
pub use failures::failures_of;
pub use raw::{RawHead, RawRequest};
pub use reqwest::Method;
pub use seldom::{LogLinesQuery, board_code, dry_run, log_lines, remove_queue, scaling};
pub use token_end::token_ends_ms;

use crate::board::{Board, ServerLoads};
use crate::error::{ErrorCode, ErrorDetail};
use crate::figures::{FarmSeries, Overview, WorkerSeries};
use crate::{
    CreateToken, CreatedToken, DrainRequest, FarmServer, Job, LOG_OFFSET_HEADER, Limit, Page, Queue,
    ServerEvent, SetLimit, SetPriority, SetQueue, SubmitRequest, Submitted, Task, Token, Version, Why,
    Worker, WorkerWhy,
};
use futures_util::{Stream, StreamExt};
use reqwest::{RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use servers::{Call, Patience, Servers};
use std::sync::Arc;
use std::time::Duration;

/// How long a stream of events may be silent where there is another server to listen to: three times as long as a
/// server that lives is.
const EVENTS_SILENT_MAX: Duration = Duration::from_secs(45);
/// How long one of several servers is waited for without a look whether it still lives.
const WAIT_LOOK_EVERY: Duration = Duration::from_secs(120);

/// A client; cheap to clone. All clones begin with the server that answered one of them last.
#[derive(Clone, Debug)]
pub struct Client {
    servers: Arc<Servers>,
}

/// The filter of a list of jobs. A field that is `None` is left out of the query.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobsQuery {
    /// Words of states, separated by commas.
    pub state: Option<String>,
    /// Only jobs of this user.
    pub user: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only jobs whose name contains this text.
    pub name: Option<String>,
    /// Most jobs in the answer.
    pub limit: Option<usize>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
    /// Jobs with the reason for which they failed or wait.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasons: bool,
}

/// The filter of a list of tasks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TasksQuery {
    /// Words of states, separated by commas.
    pub state: Option<String>,
    /// Most tasks in the answer.
    pub limit: Option<usize>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

/// The part of a task's output to get.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogQuery {
    /// The stream: `stdout` or `stderr`.
    pub stream: &'static str,
    /// The attempt; by default the last.
    pub attempt: Option<u32>,
    /// Bytes to skip at the beginning; a negative number counts from the end.
    pub offset: Option<i64>,
    /// Follow the output until the task ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// After such a silence the stream ends with [`ClientError::Silent`], and the caller asks again from the byte where
    /// it was: a server that is gone without a word is noticed so.
    #[serde(skip)]
    pub silent_max: Option<Duration>,
}

impl Client {
    /// A client of the server at `address`; nothing is sent yet.
    pub fn new(address: Address) -> Result<Self, ClientError> {
        Client::with(address, &Credentials::default())
    }

    /// The same with credentials.
    pub fn with(address: Address, credentials: &Credentials) -> Result<Self, ClientError> {
        Client::among(vec![(address, credentials.clone())], |_| {})
    }

    /// A client of the servers of one farm, each with what it is shown. `tell` is called with what a person should know
    /// although another server answers, once for each server.
    ///
    /// # Panics
    /// If `servers` is empty.
    pub fn among(servers: Vec<(Address, Credentials)>, tell: fn(&str)) -> Result<Self, ClientError> {
        assert!(!servers.is_empty(), "a client needs a server");
        // It is installed already if another client was created before.
        _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Client { servers: Arc::new(Servers::new(servers, tell)?) })
    }

    /// The address of the server that answered last; at first that of the first one.
    pub fn address(&self) -> &Address {
        &self.servers.first().address
    }

    /// How many servers it knows.
    pub fn servers(&self) -> usize {
        self.servers.count()
    }

    /// Begins with the next server from now on, if the one that failed so is still asked first. For a stream that
    /// broke: requests go on by themselves.
    pub fn pass(&self, error: &ClientError) {
        if let Some(address) = error.address() {
            self.servers.pass(address);
        }
    }

    /// True if requests carry a token: the server may know the user by another name then.
    pub fn shows_token(&self) -> bool {
        self.servers.first().bearer.is_some()
    }

    /// The server's version, and the role of the token.
    pub async fn version(&self) -> Result<Version, ClientError> {
        let request = self.request(Method::GET, "/api/v1/version");
        self.servers.json(&self.call(request, true, Patience::Greeting)?).await
    }

    /// Submits a job. With a key it is submitted once, however often the request is made.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<Submitted, ClientError> {
        let sent = self.request(Method::POST, "/api/v1/jobs").json(request);
        self.servers.json(&self.call(sent, request.key.is_some(), Patience::Answer)?).await
    }

    /// Submits a job of Compass CI; returns the ids of the jobs that it became, which are several for a matrix, and what
    /// the server did otherwise than the fields say. The nodes of a cluster are one job.
    pub async fn submit_compass(
        &self,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(Vec<u64>, Vec<String>), ClientError> {
        let (status, text) = self.post_compass("/scheduler/v1/jobs/submit", fields, false).await?;
        let answer = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        let one = std::slice::from_ref(&answer);
        let all = answer.as_array().map_or(one, Vec::as_slice);
        let id_of = |one: &serde_json::Value| {
            one["job_id"].as_str().and_then(|id| id.parse().ok()).filter(|id| *id > 0)
        };
        let job_of = |number: u64| number % crate::COMPASS_NODE_NUMBERS;
        let refused = all.iter().find(|one| id_of(one).is_none());
        match refused {
            None if status.is_success() && !all.is_empty() => {
                let mut jobs: Vec<u64> = all.iter().filter_map(id_of).map(job_of).collect();
                jobs.dedup();
                let notes = all.iter().filter_map(|one| one["message"].as_str());
                let mut notes: Vec<String> =
                    notes.filter(|note| !note.is_empty()).map(str::to_owned).collect();
                notes.dedup();
                Ok((jobs, notes))
            }
            refused => {
                let message = refused.and_then(|one| one["message"].as_str()).unwrap_or(&text);
                let taken: Vec<String> = all.iter().filter_map(id_of).map(|id: u64| id.to_string()).collect();
                let hint =
                    (!taken.is_empty()).then(|| format!("these jobs were submitted: {}", taken.join(", ")));
                Err(refused_by_compass(status.as_u16(), message, hint))
            }
        }
    }

    /// Says what a host or a cluster of Compass CI is: `kind` is `hosts` or `clusters`.
    pub async fn register_with_compass(
        &self,
        kind: &str,
        name: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), ClientError> {
        let path = format!("/scheduler/v1/{kind}/{}", segment(name));
        let (status, text) = self.post_compass(&path, fields, true).await?;
        if status.is_success() { Ok(()) } else { Err(refused_by_compass(status.as_u16(), &text, None)) }
    }

    async fn post_compass(
        &self,
        path: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
        is_repeatable: bool,
    ) -> Result<(reqwest::StatusCode, String), ClientError> {
        let request = self.request(Method::POST, path).json(fields);
        self.servers.text(&self.call(request, is_repeatable, Patience::Answer)?).await
    }

    /// A page of the list of jobs, newest first. A server of an earlier release gives no reasons.
    pub async fn jobs(&self, query: &JobsQuery) -> Result<Page<Job>, ClientError> {
        match self.get("/api/v1/jobs", query).await {
            Err(error) if query.reasons && error.code() == Some(ErrorCode::BadRequest) => {
                self.get("/api/v1/jobs", &JobsQuery { reasons: false, ..query.clone() }).await
            }
            answered => answered,
        }
    }

    /// A job by its id.
    pub async fn job(&self, id: u64) -> Result<Job, ClientError> {
        self.get(&format!("/api/v1/jobs/{id}"), &()).await
    }

    /// The job once it has ended. `lend` names a task that waits for it and lends its cpus meanwhile; the answer comes
    /// when that task has them again.
    pub async fn wait(&self, id: u64, lend: Option<&str>) -> Result<Job, ClientError> {
        let query: Vec<(&str, &str)> = lend.map(|task| ("lend", task)).into_iter().collect();
        let request = self.request(Method::GET, &format!("/api/v1/jobs/{id}/wait")).query(&query);
        let call = self.call(request, true, Patience::Event)?;
        if !self.servers.are_several() {
            return self.servers.json(&call).await;
        }
        loop {
            match tokio::time::timeout(WAIT_LOOK_EVERY, self.servers.json(&call)).await {
                Ok(answered) => return answered,
                // If it is gone without a word, another one answers this, and is asked from then on.
                Err(_) => _ = self.version().await?,
            }
        }
    }

    /// `cancel`, `hold` or `release` on a job. [`task_sets::retry`] is for `retry`, which may not be repeated.
    pub async fn act(&self, id: u64, verb: &str) -> Result<Job, ClientError> {
        self.change(self.request(Method::POST, &format!("/api/v1/jobs/{id}/{verb}"))).await
    }

    /// Gives a job another priority.
    pub async fn set_priority(&self, id: u64, priority: i32) -> Result<Job, ClientError> {
        self.post(&format!("/api/v1/jobs/{id}/priority"), &SetPriority { priority }).await
    }

    /// A page of a job's tasks, ordered by index.
    pub async fn tasks(&self, job: u64, query: &TasksQuery) -> Result<Page<Task>, ClientError> {
        self.get(&format!("/api/v1/jobs/{job}/tasks"), query).await
    }

    /// The first of a job's tasks that is in one of these states, words separated by commas. A server looks at a
    /// bounded number of tasks for one page, so a page of a large job may be empty and have a next one.
    pub async fn first_task(&self, job: u64, states: &str) -> Result<Option<Task>, ClientError> {
        let mut query = TasksQuery { state: Some(states.to_owned()), limit: Some(1), cursor: None };
        loop {
            let page = self.tasks(job, &query).await?;
            query.cursor = page.next;
            let found = page.items.into_iter().next();
            if found.is_some() || query.cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// One task with its history.
    pub async fn task(&self, id: &str) -> Result<Task, ClientError> {
        self.get(&format!("/api/v1/tasks/{id}"), &()).await
    }

    /// Why a task is where it is.
    pub async fn why(&self, id: &str) -> Result<Why, ClientError> {
        self.get(&format!("/api/v1/tasks/{id}/why"), &()).await
    }

    /// Says where an outside client has its place, or why it waits.
    pub async fn place_why(&self, id: &str) -> Result<Why, ClientError> {
        self.get(&format!("/api/v1/places/{}/why", segment(id)), &()).await
    }

    /// The bytes of a task's output, as they come, and the place of the first one if the query counts from the end. A
    /// server of an earlier release does not tell that place.
    pub async fn log(
        &self,
        id: &str,
        query: &LogQuery,
    ) -> Result<(Option<u64>, impl Stream<Item = Result<Vec<u8>, ClientError>> + use<>), ClientError> {
        let request = self.request(Method::GET, &format!("/api/v1/tasks/{id}/log")).query(query);
        let (server, response) = self.servers.open(&self.call(request, true, Patience::Answer)?).await?;
        let begins = response.headers().get(LOG_OFFSET_HEADER);
        let begins = begins.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok((begins, parts(server.address.clone(), response, query.silent_max)))
    }

    /// The workers; with `all` also forgotten ones.
    pub async fn workers(&self, all: bool) -> Result<Vec<Worker>, ClientError> {
        self.all(if all { "/api/v1/workers?all=true" } else { "/api/v1/workers" }).await
    }

    /// A worker by its name.
    pub async fn worker(&self, name: &str) -> Result<Worker, ClientError> {
        self.get(&format!("/api/v1/workers/{}", segment(name)), &()).await
    }

    /// Why a worker gets no work.
    pub async fn worker_why(&self, name: &str) -> Result<WorkerWhy, ClientError> {
        self.get(&format!("/api/v1/workers/{}/why", segment(name)), &()).await
    }

    /// Drains a worker, with a note for people.
    pub async fn drain_worker(&self, name: &str, request: &DrainRequest) -> Result<Worker, ClientError> {
        self.post(&format!("/api/v1/workers/{}/drain", segment(name)), request).await
    }

    /// `drain` or `resume` on a worker.
    pub async fn act_on_worker(&self, name: &str, verb: &str) -> Result<Worker, ClientError> {
        self.change(self.request(Method::POST, &format!("/api/v1/workers/{}/{verb}", segment(name)))).await
    }

    /// Forgets a worker that is gone for good; with `force` even while it is connected.
    pub async fn forget_worker(&self, name: &str, force: bool) -> Result<Worker, ClientError> {
        let path = format!("/api/v1/workers/{}/forget", segment(name));
        // It may have come back since the first.
        self.once(self.request(Method::POST, &path).query(&[("force", force)])).await
    }

    /// The servers that share a database; none where the server has a store of its own.
    pub async fn farm_servers(&self) -> Result<Vec<FarmServer>, ClientError> {
        self.get("/api/v1/scheduler/servers", &()).await
    }

    /// `drain` or `resume` on a server.
    pub async fn act_on_server(&self, name: &str, verb: &str) -> Result<(), ClientError> {
        let path = format!("/api/v1/scheduler/servers/{}/{verb}", segment(name));
        self.post_only(&path, &()).await
    }

    /// All queues of the farm.
    pub async fn queues(&self) -> Result<Vec<Queue>, ClientError> {
        self.all("/api/v1/queues").await
    }

    /// A queue by its name.
    pub async fn queue(&self, name: &str) -> Result<Queue, ClientError> {
        self.get(&format!("/api/v1/queues/{}", segment(name)), &()).await
    }

    /// Changes the settings of a queue that are given.
    pub async fn set_queue(&self, name: &str, change: &SetQueue) -> Result<Queue, ClientError> {
        self.change(self.request(Method::PUT, &format!("/api/v1/queues/{}", segment(name))).json(change))
            .await
    }

    /// All limits of the farm.
    pub async fn limits(&self) -> Result<Vec<Limit>, ClientError> {
        self.all("/api/v1/limits").await
    }

    /// A limit by its name.
    pub async fn limit(&self, name: &str) -> Result<Limit, ClientError> {
        self.get(&format!("/api/v1/limits/{}", segment(name)), &()).await
    }

    /// Changes the settings of a limit that are given.
    pub async fn set_limit(&self, name: &str, change: &SetLimit) -> Result<Limit, ClientError> {
        let request = self.request(Method::PUT, &format!("/api/v1/limits/{}", segment(name)));
        self.change(request.json(change)).await
    }

    /// Removes a limit, which then bounds nothing.
    pub async fn remove_limit(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/api/v1/limits/{}", segment(name));
        // A second one would find none.
        let call = self.call(self.request(Method::DELETE, &path), false, Patience::Answer)?;
        self.servers.open(&call).await.map(|_| ())
    }

    /// All pages of a list.
    async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, ClientError> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let query: Vec<(&str, &str)> = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect();
            let page: Page<T> = self.get(path, &query).await?;
            items.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }

    /// Events from now on, of one job or of all. The stream ends when the server stops.
    pub async fn events(
        &self,
        job: Option<u64>,
    ) -> Result<impl Stream<Item = Result<ServerEvent, ClientError>> + use<>, ClientError> {
        let query = job.map(|id| ("job", id.to_string()));
        self.events_of(query.as_slice()).await
    }

    /// Events of all jobs without their single tasks, those of a job at most once a second. A server of an earlier
    /// release tells all events.
    pub async fn brief_events(
        &self,
    ) -> Result<impl Stream<Item = Result<ServerEvent, ClientError>> + use<>, ClientError> {
        match self.events_of(&[("brief", "true".to_owned())]).await {
            Err(error) if error.code() == Some(ErrorCode::BadRequest) => self.events_of(&[]).await,
            answered => answered,
        }
    }

    async fn events_of(
        &self,
        query: &[(&str, String)],
    ) -> Result<impl Stream<Item = Result<ServerEvent, ClientError>> + use<>, ClientError> {
        let request = self.request(Method::GET, "/api/v1/events").query(query);
        let (server, response) = self.servers.open(&self.call(request, true, Patience::Answer)?).await?;
        let address = server.address.clone();
        let silent_max = Some(EVENTS_SILENT_MAX).filter(|_| self.servers.are_several());
        Ok(lines(parts(address.clone(), response, silent_max)).filter_map(move |line| {
            let event = match &line {
                Ok(line) => line.strip_prefix(b"data:").map(|data| {
                    serde_json::from_slice(data)
                        .map_err(|e| ClientError::Garbled { address: address.clone(), source: e.into() })
                }),
                Err(_) => line.err().map(Err),
            };
            std::future::ready(event)
        }))
    }

    /// Creates a token. Only the answer has its secret.
    pub async fn create_token(&self, request: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.once(self.request(Method::POST, "/api/v1/tokens").json(request)).await
    }

    /// All tokens, without their secrets.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        self.all("/api/v1/tokens").await
    }

    /// Revokes a token from now on.
    pub async fn revoke_token(&self, id: &str) -> Result<Token, ClientError> {
        self.change(self.request(Method::DELETE, &format!("/api/v1/tokens/{id}"))).await
    }

    /// The farm at a glance.
    pub async fn overview(&self) -> Result<Overview, ClientError> {
        self.get("/api/v1/board/overview", &()).await
    }

    /// The farm over the last hour.
    pub async fn farm_series(&self) -> Result<FarmSeries, ClientError> {
        self.get("/api/v1/board/series", &()).await
    }

    /// A worker over the last hour.
    pub async fn worker_series(&self, name: &str) -> Result<WorkerSeries, ClientError> {
        self.get(&format!("/api/v1/workers/{}/series", segment(name)), &()).await
    }

    /// The workers as the board lists them, with the fields that the caller wants.
    pub async fn board_workers<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        let board: Board<Vec<T>> = self.get("/api/v1/board/workers", &()).await?;
        Ok(board.message)
    }

    /// A part of the loads of workers, by id.
    pub async fn server_loads(&self, cursor: Option<u64>) -> Result<ServerLoads, ClientError> {
        let query: Vec<(&str, u64)> = cursor.map(|id| ("cursor", id)).into_iter().collect();
        self.get("/api/v1/scheduler/server_loads", &query).await
    }

    /// Sends a request of another interface of the server, and reads its answer. It must do no harm to make it twice.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.change(self.request(Method::POST, path).json(body)).await
    }

    /// As [`Client::post`], where the answer says nothing.
    pub async fn post_only(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        let call = self.call(self.request(Method::POST, path).json(body), true, Patience::Answer)?;
        self.servers.open(&call).await.map(|_| ())
    }

    /// As [`Client::post`], where the answer is lines that come as things happen.
    pub async fn post_lines<T: Serialize>(
        &self,
        path: &str,
        body: &T,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + use<T>, ClientError> {
        let call = self.call(self.request(Method::POST, path).json(body), true, Patience::Answer)?;
        let (server, response) = self.servers.open(&call).await?;
        Ok(lines(parts(server.address.clone(), response, None)))
    }

    /// Asks the server to stop cleanly.
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        let call = self.call(self.request(Method::POST, "/api/v1/shutdown"), false, Patience::Event)?;
        self.servers.open(&call).await.map(|_| ())
    }

    /// A request for no server yet.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.servers.first().http.request(method, format!("http://localhost{path}"))
    }

    fn call(
        &self,
        request: RequestBuilder,
        is_repeatable: bool,
        patience: Patience,
    ) -> Result<Call, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address().clone(), source };
        Ok(Call { request: request.build().map_err(unreachable)?, body: None, is_repeatable, patience })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, ClientError> {
        self.change(self.request(Method::GET, path).query(query)).await
    }

    /// A request that does no harm if it is made twice.
    async fn change<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        self.servers.json(&self.call(request, true, Patience::Answer)?).await
    }

    /// A request that is made once. If its answer is lost, the error says so.
    async fn once<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        self.servers.json(&self.call(request, false, Patience::Answer)?).await
    }
}

/// The parts of an answer as they come, up to the first error. A silence of more than `silent_max` is one.
fn parts(
    address: Address,
    response: Response,
    silent_max: Option<Duration>,
) -> impl Stream<Item = Result<Vec<u8>, ClientError>> {
    let parts = Some((Box::pin(response.bytes_stream()), address));
    futures_util::stream::unfold(parts, move |parts| async move {
        let (mut parts, address) = parts?;
        let next = match silent_max {
            None => Ok(parts.next().await),
            Some(after) => tokio::time::timeout(after, parts.next()).await.map_err(|_| after),
        };
        match next {
            Err(after) => Some((Err(ClientError::Silent { address, after }), None)),
            Ok(Some(Err(source))) => Some((Err(ClientError::Unreachable { address, source }), None)),
            Ok(Some(Ok(bytes))) => Some((Ok(bytes.to_vec()), Some((parts, address)))),
            Ok(None) => None,
        }
    })
}

/// The lines of an answer that are not empty, as they come. One that is not whole when the answer ends is left out.
fn lines(
    parts: impl Stream<Item = Result<Vec<u8>, ClientError>>,
) -> impl Stream<Item = Result<Vec<u8>, ClientError>> {
    let mut rest = Vec::new();
    let lines = parts.map(move |part| {
        let part = match part {
            Ok(part) => part,
            Err(error) => return vec![Err(error)],
        };
        rest.extend_from_slice(&part);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = rest.drain(..whole).collect::<Vec<u8>>();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| Ok(line.to_vec())).collect()
    });
    lines.flat_map(futures_util::stream::iter)
}

/// A name that users chose, percent-encoded as one segment of a path.
fn segment(name: &str) -> String {
    percent_encoded(name.as_bytes(), b"-_~")
}

/// A text in which all bytes but letters, digits and `plain` are percent-encoded.
pub fn percent_encoded(bytes: &[u8], plain: &[u8]) -> String {
    let each = bytes.iter().map(|byte| match byte.is_ascii_alphanumeric() || plain.contains(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

/// An error of Compass CI's interface, which answers in words, as an error of this client.
fn refused_by_compass(status: u16, message: &str, hint: Option<String>) -> ClientError {
    let code = match status {
        401 => ErrorCode::Unauthorized,
        403 => ErrorCode::Forbidden,
        404 => ErrorCode::NotFound,
        503 => ErrorCode::Unavailable,
        500.. => ErrorCode::Internal,
        _ => ErrorCode::BadRequest,
    };
    ClientError::Refused(ErrorDetail { code, message: message.trim().to_owned(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_part_of_a_path() {
        assert_eq!(segment("a-b_1~"), "a-b_1~");
        assert_eq!(segment("a/b ?#%ä"), "a%2Fb%20%3F%23%25%C3%A4");
    }

    #[test]
    fn a_token_is_not_shown() {
        let credentials = Credentials { token: Some("hunter2".to_owned()), ..Credentials::default() };
        let client = Client::with(Address::parse("farm:1"), &credentials).unwrap();
        assert!(!format!("{credentials:?} {client:?}").contains("hunter2"));
    }
}
