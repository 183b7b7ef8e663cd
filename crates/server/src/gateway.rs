//! Interfaces of other systems beside Windlass's own, on the same port.
//!
//! A gateway is a crate of its own. It has paths, and perhaps its own ways to show a token. Behind the paths it is a
//! client of the [`Handle`] like any other: it submits jobs, plays the workers' side with
//! [`WorkerLink`](crate::WorkerLink), and keeps what it must in the store.

use crate::activity::{Activity, OpenRequest};
use crate::api_error::ApiError;
use crate::auth::{Auth, Caller};
use crate::handle::Handle;
use crate::parsers::Parsers;
use crate::reader::Reader;
use crate::submission_rights::SubmissionRights;
use axum::Router;
use axum::body::Bytes;
use axum::http::Method;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The start of a gateway: its paths, or why it cannot start.
pub type Starting<'a> =
    Pin<Box<dyn Future<Output = Result<Router, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// The metrics of a gateway, as text.
pub type Counting<'a> = Pin<Box<dyn Future<Output = String> + Send + 'a>>;

/// The interface of another system.
pub trait Gateway: Send + Sync {
    /// The gateway's name for people.
    fn name(&self) -> &'static str;

    /// Reads what the gateway kept, starts what runs beside requests, and returns the paths. Called once, before
    /// anybody is served.
    fn start(&self, front: Front) -> Starting<'_>;

    /// True of the gateway's own paths. Requests there come without a [`Caller`] where no header shows a token. The
    /// handlers then ask who it is, because a client may show its token in the body.
    fn owns(&self, path: &str) -> bool;

    /// Bytes that a request to these paths may bring.
    fn body_bytes_max(&self) -> usize;

    /// True where the handler reads the body itself, as it comes, once it knows who asks. It bounds the bytes and the
    /// time of that body.
    fn reads_body(&self, _path: &str) -> bool {
        false
    }

    /// True of requests that have no turn among the others of their user, because they last, and because the gateway
    /// bounds them itself.
    fn lasts(&self, _path: &str) -> bool {
        false
    }

    /// True where a token may come as a password, for clients that have no other way.
    fn takes_password(&self, _method: &Method, _path: &str) -> bool {
        false
    }

    /// The gateway's lines of `/metrics`, as [`MetricFamily`](crate::MetricFamily) writes them.
    fn metrics(&self) -> Counting<'_> {
        Box::pin(std::future::ready(String::new()))
    }

    /// True of requests that report or ask for progress, and change nothing for people: they are not audited.
    fn is_report(&self, _path: &str) -> bool {
        false
    }

    /// True where a client may show its token in the body. Elsewhere nothing is read of the body of a request whose header
    /// shows none, and the handler gets an empty one.
    fn takes_token_in_body(&self, _path: &str) -> bool {
        false
    }

    /// The token that the beginning of a body shows. Called before more than a little of the body is read, so it
    /// searches and does not parse.
    fn token_in<'a>(&self, _start: &'a [u8]) -> Option<&'a str> {
        None
    }
}

/// The gateways that a server has.
#[derive(Clone, Default)]
pub struct Gateways(Arc<[Arc<dyn Gateway>]>);

impl Gateways {
    /// The gateways of a server, in the order in which they are asked for a path.
    pub fn new(all: Vec<Arc<dyn Gateway>>) -> Gateways {
        Gateways(all.into())
    }

    /// All gateways, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Gateway>> {
        self.0.iter()
    }

    pub(crate) fn of(&self, path: &str) -> Option<&dyn Gateway> {
        self.0.iter().find(|gateway| gateway.owns(path)).map(|gateway| &**gateway)
    }
}

/// The server as a gateway has it: the handle, and the server's ways to know callers and to refuse them. Cheap to
/// clone.
#[derive(Clone)]
pub struct Front {
    pub(crate) handle: Handle,
    pub(crate) auth: Arc<Auth>,
    pub(crate) parsers: Arc<Parsers>,
    pub(crate) rights: Arc<SubmissionRights>,
    pub(crate) activity: Arc<Activity>,
    /// Users read the output and the commands of others' jobs.
    pub(crate) read_all: bool,
}

impl Front {
    /// The way to the engine.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The server's tokens, which say who is let in.
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// Parses a request's body, on a thread of its own if the body is large.
    pub async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        self.parsers.parse(body, parse).await
    }

    /// Counts a question that costs about as much as a submission, in the rate of submissions.
    ///
    /// # Errors
    ///
    /// The caller has asked too often within a minute.
    pub fn may_ask(&self, caller: &Caller) -> Result<(), ApiError> {
        self.rights.may_ask(caller)
    }

    /// Counts a submission, and refuses one that is more than the caller may have.
    ///
    /// # Errors
    ///
    /// The limit that it exceeds.
    pub async fn may_submit(&self, caller: &Caller, priority: i32) -> Result<(), ApiError> {
        self.rights.may_submit(caller, priority).await
    }

    /// Refuses a queue that the caller may not submit to.
    ///
    /// # Errors
    ///
    /// The queue is not open to the caller. The error names its users.
    pub async fn may_use_queue(&self, caller: &Caller, queue: &str) -> Result<(), ApiError> {
        self.rights.may_use_queue(caller, queue).await
    }

    /// The caller as a reader of users' jobs. A handler that shows anything of a job asks it.
    pub fn reader(&self, caller: &Caller) -> Reader {
        Reader::of(caller, self.read_all)
    }

    /// The same for what acts for a user, such as a job that waits for others.
    pub fn reader_for_user(&self, user: &str) -> Reader {
        Reader::for_user(user, self.read_all)
    }

    /// The body of the request under way showed who makes it: the audit log names them.
    pub fn known_as(&self, caller: &Caller) {
        crate::caller::known_as(caller);
    }

    /// The server is not idle until the result is dropped. For conversations that outlast their request.
    pub fn busy(&self) -> OpenRequest {
        self.activity.begin()
    }
}
