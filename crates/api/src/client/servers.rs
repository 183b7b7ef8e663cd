//! The servers that a client knows, and the order in which it asks them.
//!
//! A request goes to the server that answered last, and after a failure to the next in the list, once around. Which
//! failures let it go on depends on the request: after one that was never sent every request does, and after one whose
//! answer was lost only a request that may be made twice. Waiting and going around again is left to the caller.

use super::body_source::BodySource;
use super::clock::note_clock;
use super::credentials::Credentials;
use super::failure::{ClientError, Verdict};
use super::token_end::note_token_end;
use crate::address::Address;
use crate::error::ErrorBody;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Request, Response, Url};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same where there is another address to go to: long enough for a packet that is lost once.
const CONNECT_AMONG_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an idle connection is kept: shorter than the server keeps it.
const POOL_IDLE: Duration = Duration::from_secs(10);
/// Bytes of a body for which a server may take a second longer. It is half of what servers demand of a client.
const BODY_BYTES_PER_S: u64 = 128 << 10;

/// How long a server may take for an answer where there is another one to go to. A client of one server waits for as
/// long as the connection lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    /// It need not do anything for the answer.
    Greeting,
    /// It looks something up, or makes a change durable.
    Answer,
    /// It answers when something has happened.
    Event,
}

impl Patience {
    fn bound(self) -> Option<Duration> {
        match self {
            Patience::Greeting => Some(Duration::from_secs(5)),
            Patience::Answer => Some(Duration::from_secs(10)),
            Patience::Event => None,
        }
    }
}

/// A request, for whichever server answers.
pub(super) struct Call {
    /// For no server yet: its address has only a path and a query.
    pub request: Request,
    /// The body, if it is too large for memory.
    pub body: Option<BodySource>,
    /// True if it does no harm to make it twice.
    pub is_repeatable: bool,
    /// How long the answer may take.
    pub patience: Patience,
}

impl Call {
    fn bound(&self) -> Option<Duration> {
        let bytes = self.request.body().and_then(|body| body.as_bytes()).map_or(0, <[u8]>::len);
        let bound = self.patience.bound()?;
        Some(bound + Duration::from_secs(bytes as u64 / BODY_BYTES_PER_S))
    }
}

/// A server of the farm, and how requests reach it.
#[derive(Debug)]
pub(super) struct Server {
    pub address: Address,
    pub http: reqwest::Client,
    base: Url,
    /// The token that it is shown.
    pub bearer: Option<HeaderValue>,
    /// True once a person was told what is wrong there.
    told: AtomicBool,
}

impl Server {
    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable { address: self.address.clone(), source }
    }

    /// Sends the request. Every answer is one, whatever it says.
    async fn exchange(&self, call: &Call) -> Result<Response, ClientError> {
        let mut request = call.request.try_clone().expect("its body is in memory, or it has none yet");
        if let Some(source) = &call.body {
            *request.body_mut() = Some(source.body());
        }
        let path = format!("{}{}", self.base.path().trim_end_matches('/'), request.url().path());
        let mut url = self.base.clone();
        url.set_path(&path);
        url.set_query(request.url().query());
        *request.url_mut() = url;
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        let response = self.http.execute(request).await.map_err(|source| self.unreachable(source))?;
        note_clock(response.headers());
        note_token_end(response.headers());
        Ok(response)
    }

    /// Sends the request. Every answer that is not a success is an error.
    async fn open(&self, call: &Call) -> Result<Response, ClientError> {
        let response = self.exchange(call).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        match serde_json::from_str::<ErrorBody>(&text) {
            Ok(body) => Err(ClientError::Refused(body.error)),
            Err(_) => Err(self.garbled(format!("it answers {status}, not as a Windlass server would"))),
        }
    }

    async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        let response = self.open(call).await?;
        // An answer that breaks off is lost, and not one that cannot be read.
        let bytes = response.bytes().await.map_err(|source| self.unreachable(source))?;
        serde_json::from_slice(&bytes).map_err(|error| self.garbled(error))
    }

    async fn text(&self, call: &Call) -> Result<(reqwest::StatusCode, String), ClientError> {
        let response = self.exchange(call).await?;
        let status = response.status();
        Ok((status, response.text().await.map_err(|source| self.unreachable(source))?))
    }

    fn garbled(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Garbled { address: self.address.clone(), source: why.into() }
    }
}

/// All servers that a client knows: at least one.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<Server>,
    /// The place of the one that is asked first.
    first: AtomicUsize,
    /// Called with what a person should know although another server answers.
    tell: fn(&str),
}

impl Servers {
    pub fn new(named: Vec<(Address, Credentials)>, tell: fn(&str)) -> Result<Servers, ClientError> {
        let is_one = named.len() == 1;
        let mut all: Vec<Server> = Vec::with_capacity(named.len());
        for (place, (address, credentials)) in named.iter().enumerate() {
            // Reading the system's certificates takes some milliseconds, so it is done once.
            let alike = named[..place].iter().position(|(other, shown)| {
                is_https(other)
                    && is_https(address)
                    && (&shown.ca, &shown.identity) == (&credentials.ca, &credentials.identity)
            });
            let built = match alike {
                Some(alike) => Ok(all[alike].http.clone()),
                None => match builder(address, is_one) {
                    Some(builder) => finish(builder, address, credentials),
                    None => return Err(ClientError::NoUnixSockets { address: address.clone() }),
                },
            };
            let base = match address {
                Address::Unix(_) => "http://localhost",
                Address::Http(base) => base,
            };
            let based = built.and_then(|http| {
                let base = http.get(base).build()?.url().clone();
                Ok((http, base))
            });
            let (http, base) =
                based.map_err(|source| ClientError::Unreachable { address: address.clone(), source })?;
            let bearer = credentials.bearer().filter(|_| matches!(address, Address::Http(_)));
            all.push(Server { address: address.clone(), http, base, bearer, told: AtomicBool::new(false) });
        }
        Ok(Servers { all, first: AtomicUsize::new(0), tell })
    }

    /// True if there is another one to go to.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The server that is asked first: the last one that answered, or the first of the list.
    pub fn first(&self) -> &Server {
        &self.all[self.first.load(Ordering::Relaxed)]
    }

    /// Asks the next one first from now on, if the one at the address is the first now.
    pub fn pass(&self, address: &Address) {
        let first = self.first.load(Ordering::Relaxed);
        if self.all[first].address == *address {
            let next = (first + 1) % self.all.len();
            // Another task that lost the same server may have passed it already.
            _ = self.first.compare_exchange(first, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The whole answer, read as JSON.
    pub async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        self.ask(call, move |server| server.json(call)).await
    }

    /// An answer that is read as it comes, and who gives it.
    pub async fn open(&self, call: &Call) -> Result<(&Server, Response), ClientError> {
        self.ask(call, move |server| async move { Ok::<_, ClientError>((server, server.open(call).await?)) })
            .await
    }

    /// The status and the text of an answer that is not in Windlass's own form.
    pub async fn text(&self, call: &Call) -> Result<(reqwest::StatusCode, String), ClientError> {
        self.ask(call, move |server| server.text(call)).await
    }

    /// What is read of the first server that answers.
    async fn ask<'s, T, F>(&'s self, call: &Call, read: impl Fn(&'s Server) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut circle = Circle::new(self, call);
        while let Some(server) = circle.next() {
            let answered = circle.patiently(server, read(server)).await;
            if let Some(answer) = circle.take(answered)? {
                return Ok(answer);
            }
        }
        Err(circle.none())
    }
}

fn is_https(address: &Address) -> bool {
    matches!(address, Address::Http(base) if base.starts_with("https://"))
}

/// The builder of what reaches the server; `None` if the address is a unix socket, and this system has none.
fn builder(address: &Address, is_one: bool) -> Option<ClientBuilder> {
    let connect_timeout = if is_one { CONNECT_TIMEOUT } else { CONNECT_AMONG_TIMEOUT };
    let builder = reqwest::Client::builder().no_proxy().connect_timeout(connect_timeout);
    // No server of Windlass redirects. A redirect could lead a token to an address that its owner did not name.
    let builder = builder.pool_idle_timeout(POOL_IDLE).redirect(Policy::none());
    let builder = if is_https(address) { builder } else { builder.tls_certs_only([]) };
    match address {
        Address::Unix(path) => over_socket(builder, path),
        Address::Http(_) => Some(builder),
    }
}

/// The builder for a unix socket; `None` on a system without them.
#[cfg(unix)]
fn over_socket(builder: ClientBuilder, path: &Path) -> Option<ClientBuilder> {
    Some(builder.unix_socket(path))
}

#[cfg(not(unix))]
fn over_socket(_: ClientBuilder, _: &Path) -> Option<ClientBuilder> {
    None
}

/// The HTTP client for the server, with its certificates.
fn finish(
    builder: ClientBuilder,
    address: &Address,
    credentials: &Credentials,
) -> reqwest::Result<reqwest::Client> {
    match address {
        Address::Unix(_) => builder.build(),
        Address::Http(_) => credentials.apply(builder)?.build(),
    }
}

/// One request on its way around the servers.
struct Circle<'s, 'c> {
    servers: &'s Servers,
    call: &'c Call,
    start: usize,
    tried: usize,
    failures: Vec<(Address, ClientError)>,
}

impl<'s, 'c> Circle<'s, 'c> {
    fn new(servers: &'s Servers, call: &'c Call) -> Self {
        let start = servers.first.load(Ordering::Relaxed);
        Circle { servers, call, start, tried: 0, failures: Vec::new() }
    }

    /// The server that is asked now; `None` after the last.
    fn next(&mut self) -> Option<&'s Server> {
        let count = self.servers.all.len();
        let place = (self.start + self.tried) % count;
        let server = (self.tried < count).then(|| &self.servers.all[place]);
        self.tried += 1;
        server
    }

    /// Waits for an answer no longer than the request allows, if there is another server to go to.
    async fn patiently<T>(
        &self,
        server: &Server,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match self.call.bound().filter(|_| self.servers.are_several()) {
            None => answer.await,
            Some(after) => match timeout(after, answer).await {
                Ok(answered) => answered,
                Err(_) => Err(ClientError::Silent { address: server.address.clone(), after }),
            },
        }
    }

    /// Takes what the last server answered; `None` if the next one is asked. An error if none may be.
    fn take<T>(&mut self, answered: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
        let place = (self.start + self.tried - 1) % self.servers.all.len();
        let error = match answered {
            Ok(answer) => {
                self.servers.first.store(place, Ordering::Relaxed);
                return Ok(Some(answer));
            }
            Err(error) if !self.servers.are_several() => return Err(error),
            Err(error) => error,
        };
        let server = &self.servers.all[place];
        match error.verdict() {
            Verdict::Answered => {
                self.servers.first.store(place, Ordering::Relaxed);
                Err(error)
            }
            Verdict::Unknown if !self.call.is_repeatable => Err(unsure(server, error)),
            Verdict::Unknown | Verdict::NotSent => {
                if error.is_misconfigured() && !server.told.swap(true, Ordering::Relaxed) {
                    let address = &server.address;
                    (self.servers.tell)(&format!(
                        "the server at {address} cannot be used: {}; the next address is tried",
                        error.root()
                    ));
                }
                self.failures.push((server.address.clone(), error));
                Ok(None)
            }
        }
    }

    /// The failures of all servers.
    fn none(self) -> ClientError {
        ClientError::NoneAnswers(self.failures)
    }
}

/// The failure of a request that is not made twice. A server that answers with a refusal has done nothing.
fn unsure(server: &Server, failure: ClientError) -> ClientError {
    match failure {
        ClientError::Refused(_) => failure,
        failure => ClientError::Unsure { address: server.address.clone(), failure: Box::new(failure) },
    }
}
