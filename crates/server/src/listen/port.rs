//! Ports beside the server's own: of gateways, of counts, of boards of other programs.
//!
//! Nobody is let in there once for all. Each request shows for itself what it may, and all connections are strangers'.

use super::body::{BodyError, BodyReader, drain};
use super::budget::{RequestBudget, RequestShare, head_bytes};
use super::{ConnectionLimits, Listener, Served};
use crate::api_error::ApiError;
use crate::auth::Peer;
use crate::connections::{Room, RoomLimits};
use crate::refusals::Refusals;
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use prometheus_client::metrics::counter::Counter;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use windlass_api::ErrorCode;

/// Bytes of a request's head.
const PORT_HEAD_BYTES_MAX: usize = 16 << 10;
/// Requests at a time on one HTTP/2 connection.
const PORT_STREAMS_MAX: u32 = 100;
/// Bytes a second that a body must bring after its first half minute: the largest one of 17 MiB is over within 60 s.
const PORT_BODY_BYTES_PER_S: u32 = 1 << 20;

/// Limits of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortLimits {
    /// Connections at a time. Above seven eighths of them a connection is closed for a new one: one that has brought no
    /// request, otherwise one without a request under way.
    pub connections_max: usize,
    /// The same of one machine.
    pub per_machine_max: usize,
    /// How long a connection may last, whatever its client does; `None` is without an end.
    pub connection_lasts_max: Option<Duration>,
    /// Bytes that a request to this path may bring.
    pub body_bytes_max: fn(&str) -> usize,
    /// Bytes of all requests under way, their heads included. Above them the oldest whose body is still coming is refused.
    pub requests_bytes_max: usize,
}

/// The answer to a caller whose requests are refused, whatever they are; `None` lets them in.
pub type PortRefusal = Arc<dyn Fn(&Peer) -> Option<Response> + Send + Sync>;

/// Serves a port until `closing` turns true and the requests under way are answered; without `closing`, until it is
/// dropped. Of a request that `refuses` refuses nothing is read but its head. The others have a
/// [`ConnectInfo`](axum::extract::ConnectInfo) with a [`Peer`](crate::auth::Peer) among their extensions, and their bodies
/// have come when the router gets them.
///
/// # Errors
///
/// The socket cannot be used.
pub async fn serve_port(
    listener: TcpListener,
    router: Router,
    limits: PortLimits,
    closing: Option<watch::Receiver<bool>>,
    refuses: Option<PortRefusal>,
) -> io::Result<()> {
    let (_stays_open, open) = watch::channel(false);
    let budget = RequestBudget::new(limits.requests_bytes_max);
    let bodies = Arc::new(PortBodies { budget, bytes_max: limits.body_bytes_max, refuses });
    // What comes is bounded where it is taken in.
    let router = router.layer(DefaultBodyLimit::disable());
    let served = Served {
        router: router.layer(middleware::from_fn_with_state(bodies, take_in)),
        refusals: Arc::new(Refusals::new(Counter::default())),
        closing: closing.unwrap_or(open),
        limits: ConnectionLimits {
            head_bytes_max: PORT_HEAD_BYTES_MAX,
            streams_max: PORT_STREAMS_MAX,
            idle_max: None,
            lasts_max: limits.connection_lasts_max,
        },
        room: Room::new(RoomLimits::of_port(limits.connections_max, limits.per_machine_max)),
        local: Arc::new(Semaphore::new(0)),
        local_max: 0,
        users: None,
        handshakes: Arc::new(Semaphore::new(0)),
        requests: Handle::current(),
        is_apart: false,
    };
    Listener::of(listener)?.serve(served).await
}

/// Takes in the bodies of a port's requests.
struct PortBodies {
    budget: Arc<RequestBudget>,
    bytes_max: fn(&str) -> usize,
    refuses: Option<PortRefusal>,
}

/// Why a request is not taken in.
#[derive(Debug, thiserror::Error)]
enum Untaken {
    #[error("the body of the request is larger than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Body(#[from] BodyError),
}

async fn take_in(State(bodies): State<Arc<PortBodies>>, request: Request, next: Next) -> Response {
    let refused = bodies.refuses.as_ref().and_then(|refuses| {
        let peer = request.extensions().get::<ConnectInfo<Peer>>();
        refuses(peer.map_or(&Peer::unknown(), |ConnectInfo(peer)| peer))
    });
    if let Some(refused) = refused {
        return refused;
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_grpc = kind.is_some_and(|kind| kind.starts_with("application/grpc"));
    match bodies.read(request).await {
        Ok((request, _share)) => next.run(request).await,
        Err(why) if is_grpc => why.into_grpc(),
        Err(why) => why.into_response(),
    }
}

impl PortBodies {
    async fn read(&self, request: Request) -> Result<(Request, RequestShare), Untaken> {
        let (head, body) = request.into_parts();
        let bytes_max = (self.bytes_max)(head.uri.path());
        if body.size_hint().lower() > bytes_max as u64 {
            drain(body).await;
            return Err(Untaken::TooLarge(bytes_max));
        }
        let mut share = self.budget.begin(head_bytes(&head)).ok_or(BodyError::GaveWay)?;
        let (mut reader, mut read) = (BodyReader::new(body, PORT_BODY_BYTES_PER_S), Vec::new());
        while let Some(part) = reader.next_within(&mut share).await? {
            if read.len() + part.len() > bytes_max {
                return Err(Untaken::TooLarge(bytes_max));
            }
            read.extend_from_slice(&part);
        }
        if !share.complete() {
            return Err(BodyError::GaveWay.into());
        }
        Ok((Request::from_parts(head, Body::from(read)), share))
    }
}

impl Untaken {
    fn code(&self) -> ErrorCode {
        match self {
            Untaken::TooLarge(_) => ErrorCode::TooLarge,
            Untaken::Body(BodyError::Broken(_)) => ErrorCode::BadRequest,
            // The client's next try may come in. One of sccache compiles by itself meanwhile.
            Untaken::Body(BodyError::Slow | BodyError::GaveWay) => ErrorCode::Unavailable,
        }
    }

    fn into_grpc(self) -> Response {
        let code = match self.code() {
            ErrorCode::Unavailable => tonic::Code::Unavailable,
            ErrorCode::TooLarge => tonic::Code::OutOfRange,
            _ => tonic::Code::InvalidArgument,
        };
        tonic::Status::new(code, self.to_string()).into_http()
    }
}

impl IntoResponse for Untaken {
    fn into_response(self) -> Response {
        ApiError::new(self.code(), self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    const LIMITS: PortLimits = PortLimits {
        connections_max: 16,
        per_machine_max: 8,
        connection_lasts_max: None,
        body_bytes_max: |path| if path == "/large" { 8 << 10 } else { 10 },
        requests_bytes_max: 16 << 10,
    };

    async fn length(body: axum::body::Bytes) -> String {
        body.len().to_string()
    }

    /// A port that answers with the length of what it got.
    async fn open(serving: &mut JoinSet<io::Result<()>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/large", post(length)).route("/small", post(length));
        serving.spawn(serve_port(listener, routes, LIMITS, None, None));
        address
    }

    /// A connection with a request whose body has that length, of which `sent` bytes are sent.
    async fn begin(to: SocketAddr, path: &str, kind: &str, length: usize, sent: usize) -> TcpStream {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all("x".repeat(sent).as_bytes()).await.unwrap();
        stream
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_body_is_as_large_as_its_path_allows() {
        let mut serving = JoinSet::new();
        let port = open(&mut serving).await;
        for (path, bytes, ends) in [("/small", 10, "10"), ("/large", 8 << 10, "8192"), ("/small", 0, "0")] {
            let said = answer(begin(port, path, "text/plain", bytes, bytes).await).await;
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with(ends), "{path}: {said}");
        }
        let said = answer(begin(port, "/small", "text/plain", 11, 11).await).await;
        assert!(said.starts_with("HTTP/1.1 413"), "{said}");
        let said = answer(begin(port, "/small", "application/grpc", 11, 11).await).await;
        assert!(said.contains("grpc-status: 11"), "a client of gRPC hears it in its own words: {said}");
    }

    #[tokio::test]
    async fn a_body_that_is_held_makes_room_for_one_that_comes() {
        let mut serving = JoinSet::new();
        let port = open(&mut serving).await;
        // With what each request takes besides, two of them are more than the port's budget.
        let held = begin(port, "/large", "text/plain", 8 << 10, (8 << 10) - 1).await;
        let mut others = Vec::new();
        while others.len() < 2 {
            others.push(answer(begin(port, "/large", "text/plain", 7 << 10, 7 << 10).await).await);
        }
        assert!(others.iter().all(|said| said.starts_with("HTTP/1.1 200")), "{others:?}");
        let said = answer(held).await;
        assert!(
            said.starts_with("HTTP/1.1 503") && said.contains("too many requests are under way"),
            "{said}"
        );
    }
}
