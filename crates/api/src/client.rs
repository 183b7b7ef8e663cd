//! A client of the server's HTTP interface, over TCP or a unix socket.

use crate::error::{ErrorBody, ErrorCode, ErrorDetail};
use crate::{
    CLOCK_HEADER, CreateToken, CreatedToken, Job, Limit, Page, Queue, ServerEvent, SetLimit, SetQueue,
    SubmitRequest, Submitted, Task, Token, Version, Why, Worker, WorkerWhy,
};
use futures_util::{Stream, StreamExt};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Certificate, ClientBuilder, Identity, Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept: shorter than the server keeps it.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// `http://HOST:PORT` or `https://HOST:PORT`, without a slash at the end.
    Http(String),
}

impl Address {
    /// Reads `unix:PATH`, a path with a slash, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. The last is
    /// `http` on this machine and `https` elsewhere: a token crosses a network in plain text only if the user wrote
    /// `http`.
    pub fn parse(text: &str) -> Address {
        match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None if text.starts_with('/') => Address::Unix(text.into()),
            None if text.contains("://") => Address::Http(text.trim_end_matches('/').to_owned()),
            None if is_loopback(text) => Address::Http(format!("http://{text}")),
            None => Address::Http(format!("https://{text}")),
        }
    }

    /// True if the address is on this machine; behind it may be a tunnel.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Http(base) => {
                let host = base.split_once("://").map_or(base.as_str(), |(_, host)| host);
                is_loopback(host.split('/').next().unwrap_or_default())
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Http(base) => f.write_str(base),
        }
    }
}

/// True if `HOST:PORT` is on this machine.
fn is_loopback(text: &str) -> bool {
    let host = match text.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// How a client verifies the server and authenticates itself. Not used on a unix socket, where file permissions decide.
#[derive(Clone, Default)]
pub struct Credentials {
    /// CA certificates in PEM to trust for the server; `None` means those of the system.
    pub ca: Option<Vec<u8>>,
    /// The token, without `Bearer`.
    pub token: Option<String>,
    /// A client certificate and its key in PEM, one after the other, for servers that ask for one.
    pub identity: Option<Vec<u8>>,
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A certificate without its key, or the other way round.
    #[error("a client certificate needs its key: give both WINDLASS_CERT and WINDLASS_KEY, or neither")]
    Half,
}

impl Credentials {
    /// Reads the named files; of a token's file, the first line. A given token takes precedence over one in a file.
    pub fn read(
        ca: Option<&Path>,
        token: Option<String>,
        token_file: Option<&Path>,
        identity: (Option<&Path>, Option<&Path>),
    ) -> Result<Credentials, CredentialsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| CredentialsError::Read { path: path.to_owned(), source })
        };
        let token = match (token, token_file) {
            (None, Some(path)) => {
                let text = String::from_utf8_lossy(&read(path)?).into_owned();
                Some(text.lines().next().unwrap_or_default().trim().to_owned())
            }
            (token, _) => token,
        };
        let identity = match identity {
            (Some(cert), Some(key)) => Some([read(cert)?, b"\n".to_vec(), read(key)?].concat()),
            (None, None) => None,
            _ => return Err(CredentialsError::Half),
        };
        Ok(Credentials { ca: ca.map(read).transpose()?, token, identity })
    }

    /// Adds the credentials to the builder.
    fn apply(&self, mut builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        if let Some(ca) = &self.ca {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(ca)?);
        }
        if let Some(identity) = &self.identity {
            builder = builder.identity(Identity::from_pem(identity)?);
        }
        // A token that is not a valid header value is sent as an empty one, which the server refuses as malformed.
        let bearer = self.token.as_ref().map(|token| {
            let header = HeaderValue::try_from(format!("Bearer {token}"));
            let mut header = header.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
            header.set_sensitive(true);
            HeaderMap::from_iter([(AUTHORIZATION, header)])
        });
        Ok(builder.default_headers(bearer.unwrap_or_default()))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server answers there.
    #[error("no server answers at {address}")]
    Unreachable {
        /// The address that was tried.
        address: Address,
        /// The cause.
        source: reqwest::Error,
    },
    /// The server refused the request.
    #[error("{}", .0.message)]
    Refused(ErrorDetail),
    /// The answer cannot be read by this version.
    #[error("the answer of the server at {address} cannot be read")]
    Garbled {
        /// The server.
        address: Address,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClientError {
    /// The server's error code, if it answered with one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused(detail) => Some(detail.code),
            _ => None,
        }
    }

    /// True if a retry may help: no server answered, or it is temporarily unavailable.
    pub fn is_temporary(&self) -> bool {
        matches!(self, ClientError::Unreachable { .. }) || self.code() == Some(ErrorCode::Unavailable)
    }
}

/// A client; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    address: Address,
    shows_token: bool,
}

/// The filter of a list of jobs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobsQuery {
    /// Words of states, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only jobs of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only jobs of this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only jobs whose name contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Most jobs in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The filter of a list of tasks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TasksQuery {
    /// Words of states, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Most tasks in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The part of a task's output to get.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogQuery {
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// The attempt; by default the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Bytes to skip at the beginning; a negative number counts from the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Follow the output until the task ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
}

impl Client {
    /// A client of the server at `address`; nothing is sent yet.
    pub fn new(address: Address) -> Result<Self, ClientError> {
        Client::with(address, &Credentials::default())
    }

    /// The same with credentials.
    pub fn with(address: Address, credentials: &Credentials) -> Result<Self, ClientError> {
        // It is installed already if another client was created before.
        _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT);
        let builder = builder.pool_idle_timeout(POOL_IDLE);
        // Reading the system's certificates takes some milliseconds, and only TLS needs them.
        let builder = match &address {
            Address::Http(base) if base.starts_with("https://") => builder,
            _ => builder.tls_certs_only([]),
        };
        let builder = match &address {
            Address::Unix(path) => Ok(builder.unix_socket(path.as_path())),
            Address::Http(_) => credentials.apply(builder),
        };
        match builder.and_then(ClientBuilder::build) {
            Ok(http) => {
                let shows_token = credentials.token.is_some() && matches!(address, Address::Http(_));
                Ok(Client { http, address, shows_token })
            }
            Err(source) => Err(ClientError::Unreachable { address, source }),
        }
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// True if requests carry a token: the server may know the user by another name then.
    pub fn shows_token(&self) -> bool {
        self.shows_token
    }

    /// The server's version, and the role of the token.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.get("/api/v1/version", &()).await
    }

    /// Submits a job.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<Submitted, ClientError> {
        self.json(self.request(Method::POST, "/api/v1/jobs").json(request)).await
    }

    /// Submits a job of Compass CI; returns the ids of the jobs that it became, which are several for a matrix. The nodes of
    /// a cluster are one job.
    pub async fn submit_compass(
        &self,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Vec<u64>, ClientError> {
        let (status, text) = self.post_compass("/scheduler/v1/jobs/submit", fields).await?;
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
                Ok(jobs)
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

    /// Says what a host of Compass CI is.
    pub async fn register_compass_host(
        &self,
        name: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), ClientError> {
        let (status, text) =
            self.post_compass(&format!("/scheduler/v1/hosts/{}", segment(name)), fields).await?;
        if status.is_success() { Ok(()) } else { Err(refused_by_compass(status.as_u16(), &text, None)) }
    }

    /// Says what machines a cluster of Compass CI has.
    pub async fn register_compass_cluster(
        &self,
        name: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), ClientError> {
        let (status, text) =
            self.post_compass(&format!("/scheduler/v1/clusters/{}", segment(name)), fields).await?;
        if status.is_success() { Ok(()) } else { Err(refused_by_compass(status.as_u16(), &text, None)) }
    }

    async fn post_compass(
        &self,
        path: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(reqwest::StatusCode, String), ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        let response = self.request(Method::POST, path).json(fields).send().await.map_err(unreachable)?;
        Ok((response.status(), response.text().await.map_err(unreachable)?))
    }

    /// A page of the list of jobs, newest first.
    pub async fn jobs(&self, query: &JobsQuery) -> Result<Page<Job>, ClientError> {
        self.get("/api/v1/jobs", query).await
    }

    /// One job.
    pub async fn job(&self, id: u64) -> Result<Job, ClientError> {
        self.get(&format!("/api/v1/jobs/{id}"), &()).await
    }

    /// The job once it has ended. `lend` names a task that waits for it and lends its cpus meanwhile; the answer comes
    /// when that task has them again.
    pub async fn wait(&self, id: u64, lend: Option<&str>) -> Result<Job, ClientError> {
        let query: Vec<(&str, &str)> = lend.map(|task| ("lend", task)).into_iter().collect();
        self.get(&format!("/api/v1/jobs/{id}/wait"), &query).await
    }

    /// `cancel`, `retry`, `hold` or `release` on a job.
    pub async fn act(&self, id: u64, verb: &str) -> Result<Job, ClientError> {
        self.json(self.request(Method::POST, &format!("/api/v1/jobs/{id}/{verb}"))).await
    }

    /// A page of a job's tasks, ordered by index.
    pub async fn tasks(&self, job: u64, query: &TasksQuery) -> Result<Page<Task>, ClientError> {
        self.get(&format!("/api/v1/jobs/{job}/tasks"), query).await
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

    /// The bytes of a task's output, as they come.
    pub async fn log(
        &self,
        id: &str,
        query: &LogQuery,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + use<>, ClientError> {
        let request = self.request(Method::GET, &format!("/api/v1/tasks/{id}/log")).query(query);
        let response = self.send(request).await?;
        let address = self.address.clone();
        Ok(response.bytes_stream().map(move |part| match part {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(source) => Err(ClientError::Unreachable { address: address.clone(), source }),
        }))
    }

    /// The workers; with `all` also forgotten ones.
    pub async fn workers(&self, all: bool) -> Result<Vec<Worker>, ClientError> {
        self.all(if all { "/api/v1/workers?all=true" } else { "/api/v1/workers" }).await
    }

    /// One worker.
    pub async fn worker(&self, name: &str) -> Result<Worker, ClientError> {
        self.get(&format!("/api/v1/workers/{}", segment(name)), &()).await
    }

    /// Why a worker gets no work.
    pub async fn worker_why(&self, name: &str) -> Result<WorkerWhy, ClientError> {
        self.get(&format!("/api/v1/workers/{}/why", segment(name)), &()).await
    }

    /// `drain` or `resume` on a worker.
    pub async fn act_on_worker(&self, name: &str, verb: &str) -> Result<Worker, ClientError> {
        self.json(self.request(Method::POST, &format!("/api/v1/workers/{}/{verb}", segment(name)))).await
    }

    /// Forgets a worker that is gone for good; with `force` even while it is connected.
    pub async fn forget_worker(&self, name: &str, force: bool) -> Result<Worker, ClientError> {
        let path = format!("/api/v1/workers/{}/forget", segment(name));
        self.json(self.request(Method::POST, &path).query(&[("force", force)])).await
    }

    /// All queues.
    pub async fn queues(&self) -> Result<Vec<Queue>, ClientError> {
        self.all("/api/v1/queues").await
    }

    /// One queue.
    pub async fn queue(&self, name: &str) -> Result<Queue, ClientError> {
        self.get(&format!("/api/v1/queues/{}", segment(name)), &()).await
    }

    /// Changes the settings of a queue that are given.
    pub async fn set_queue(&self, name: &str, change: &SetQueue) -> Result<Queue, ClientError> {
        self.json(self.request(Method::PUT, &format!("/api/v1/queues/{}", segment(name))).json(change)).await
    }

    /// All limits.
    pub async fn limits(&self) -> Result<Vec<Limit>, ClientError> {
        self.all("/api/v1/limits").await
    }

    /// One limit.
    pub async fn limit(&self, name: &str) -> Result<Limit, ClientError> {
        self.get(&format!("/api/v1/limits/{}", segment(name)), &()).await
    }

    /// Changes the settings of a limit that are given.
    pub async fn set_limit(&self, name: &str, change: &SetLimit) -> Result<Limit, ClientError> {
        let request = self.request(Method::PUT, &format!("/api/v1/limits/{}", segment(name)));
        self.json(request.json(change)).await
    }

    /// Removes a limit.
    pub async fn remove_limit(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/api/v1/limits/{}", segment(name));
        self.send(self.request(Method::DELETE, &path)).await.map(|_| ())
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
        let query: Vec<(&str, u64)> = job.map(|id| ("job", id)).into_iter().collect();
        let response = self.send(self.request(Method::GET, "/api/v1/events").query(&query)).await?;
        let address = self.address.clone();
        Ok(self.lines(response).filter_map(move |line| {
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

    /// Creates a token.
    pub async fn create_token(&self, request: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.json(self.request(Method::POST, "/api/v1/tokens").json(request)).await
    }

    /// All tokens.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        self.all("/api/v1/tokens").await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<Token, ClientError> {
        self.json(self.request(Method::DELETE, &format!("/api/v1/tokens/{id}"))).await
    }

    /// Sends a request of another interface of the server, and reads its answer.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::POST, path).json(body)).await
    }

    /// As [`Client::post`], where the answer says nothing.
    pub async fn post_only(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        self.send(self.request(Method::POST, path).json(body)).await.map(|_| ())
    }

    /// As [`Client::post`], where the answer is lines that come as things happen.
    pub async fn post_lines<T: Serialize>(
        &self,
        path: &str,
        body: &T,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + use<T>, ClientError> {
        let response = self.send(self.request(Method::POST, path).json(body)).await?;
        Ok(self.lines(response))
    }

    /// Asks the server to stop cleanly.
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        self.send(self.request(Method::POST, "/api/v1/shutdown")).await.map(|_| ())
    }

    /// The lines of an answer that are not empty, as they come.
    fn lines(&self, response: Response) -> impl Stream<Item = Result<Vec<u8>, ClientError>> + use<> {
        let address = self.address.clone();
        let mut rest = Vec::new();
        let parts = response.bytes_stream().map(move |part| {
            let part = match part {
                Ok(part) => part,
                Err(source) => {
                    return vec![Err(ClientError::Unreachable { address: address.clone(), source })];
                }
            };
            rest.extend_from_slice(&part);
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = rest.drain(..whole).collect::<Vec<u8>>();
            let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.map(|line| Ok(line.to_vec())).collect()
        });
        parts.flat_map(futures_util::stream::iter)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let base = match &self.address {
            Address::Unix(_) => "http://localhost",
            Address::Http(base) => base,
        };
        self.http.request(method, format!("{base}{path}"))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, path).query(query)).await
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        response
            .json()
            .await
            .map_err(|e| ClientError::Garbled { address: self.address.clone(), source: e.into() })
    }

    /// Sends a request. Every answer that is not a success is an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request
            .send()
            .await
            .map_err(|source| ClientError::Unreachable { address: self.address.clone(), source })?;
        note_clock(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        match serde_json::from_str::<ErrorBody>(&text) {
            Ok(body) => Err(ClientError::Refused(body.error)),
            Err(_) => Err(ClientError::Garbled {
                address: self.address.clone(),
                source: format!("it answers {status}, not as a Windlass server would").into(),
            }),
        }
    }
}

/// A smaller difference of clocks is taken for the latency of the answer.
const CLOCKS_AGREE_MS: u64 = 2_000;

/// The value of [`server_ahead_ms`].
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Milliseconds by which the clock of the server that answered last is ahead of this machine's; 0 if they agree within
/// two seconds.
pub fn server_ahead_ms() -> i64 {
    AHEAD_MS.load(Ordering::Relaxed)
}

fn note_clock(headers: &HeaderMap) {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    AHEAD_MS.store(ahead_ms(headers, here), Ordering::Relaxed);
}

fn ahead_ms(headers: &HeaderMap, here_ms: i64) -> i64 {
    let said = headers.get(CLOCK_HEADER).and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
    let ahead = said.map_or(0, |there_ms| there_ms.saturating_sub(here_ms));
    if ahead.unsigned_abs() < CLOCKS_AGREE_MS { 0 } else { ahead }
}

/// A name that users chose, percent-encoded as one segment of a path.
fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let each = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

/// What Compass CI's interface answers in words, as an error of this client.
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
    fn a_server_whose_clock_is_not_ours_is_believed_of_its_times() {
        let ahead = |said: &'static str| {
            let headers =
                HeaderMap::from_iter([(CLOCK_HEADER.parse().unwrap(), HeaderValue::from_static(said))]);
            ahead_ms(&headers, 5_000_000)
        };
        assert_eq!((ahead("5001999"), ahead("4998001")), (0, 0));
        assert_eq!((ahead("8600000"), ahead("0")), (3_600_000, -5_000_000));
        assert_eq!(ahead("9223372036854775807"), i64::MAX - 5_000_000);
        assert_eq!((ahead("soon"), ahead_ms(&HeaderMap::new(), 5_000_000)), (0, 0));
    }

    #[test]
    fn names_are_one_part_of_a_path() {
        assert_eq!(segment("a-b_1~"), "a-b_1~");
        assert_eq!(segment("a/b ?#%ä"), "a%2Fb%20%3F%23%25%C3%A4");
    }

    #[test]
    fn addresses_are_plain_only_on_this_machine_or_by_word() {
        let parsed = |text: &str| Address::parse(text).to_string();
        assert_eq!(parsed("127.0.0.1:7117"), "http://127.0.0.1:7117");
        assert_eq!(parsed("[::1]:7117"), "http://[::1]:7117");
        assert_eq!(parsed("localhost:1"), "http://localhost:1");
        assert_eq!(parsed("farm:7117"), "https://farm:7117");
        assert_eq!(parsed("http://farm:7117/"), "http://farm:7117");
        assert_eq!(parsed("/run/w.sock"), "unix:/run/w.sock");
    }

    #[test]
    fn a_token_is_not_shown() {
        let credentials = Credentials { token: Some("hunter2".to_owned()), ..Credentials::default() };
        let client = Client::with(Address::parse("farm:1"), &credentials).unwrap();
        assert!(!format!("{credentials:?} {client:?}").contains("hunter2"));
    }
}
