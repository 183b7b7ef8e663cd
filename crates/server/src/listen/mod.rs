//! Sockets and connections: where the server and its gateways listen, TLS, and what one peer may take. All ports of this
//! program are served by the loops of this module.
//!
//! Every connection is a task. A handshake that hangs holds up no other peer, a peer that sends no
//! request is let go, and what is not HTTP is refused with a line in the log. Connections over TCP are accepted
//! on the network's own runtime, where the workers' streams stay: whatever requests do to the other threads,
//! a worker is heard.

pub(crate) mod body;
pub(crate) mod budget;
mod listen_error;
mod port;
mod unix_socket;

pub use listen_error::ListenError;
pub use port::{PortLimits, PortRefusal, serve_port};

use crate::auth::{Entrance, Peer, WORKER_PATHS};
use crate::connections::{Crowd, Room, RoomLimits};
use crate::local_users::{LocalClient, MachineUsers};
use crate::process_owner::is_own_or_root;
use crate::refusals::Refusals;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use unix_socket::SocketFile;

/// TLS handshakes at a time.
const HANDSHAKES_MAX: usize = 2048;
/// How long a handshake may take, the wait for its turn included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a new connection may bring no request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the first request of a connection is waited for when the server ends or changes its role.
const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(100);
/// How long the head of a request may take, the pause since the one before included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// How long a connection on which nobody was let in may have no request under way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that an HTTP/2 peer may send before the server has read them: of one body, and of all on a connection. A body
/// that waits to be read holds no more than that.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 128 << 10;
/// Bytes of an answer that wait for the peer to read it.
const UNSENT_BYTES_MAX: usize = 128 << 10;
/// Streams that an HTTP/2 peer may have reset before the server has looked at them, and that the server may have reset for
/// errors of the peer. Above that the connection is closed.
const RESETS_MAX: usize = 20;
const ERROR_RESETS_MAX: usize = 256;
/// Between two questions whether an HTTP/2 peer is still there, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failure to accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection lasts that is only told that its user has too many.
const REFUSED_LASTS_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether the first four bytes of a connection are there.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// Connections that the system keeps until the server accepts them.
const WAITING_MAX: i32 = 1024;

/// The protection of a socket that is open to other machines.
#[derive(Clone, Default)]
pub struct Protection {
    /// Requests need a token.
    pub auth: bool,
    /// TLS for connections over TCP.
    pub tls: Option<Arc<ServerConfig>>,
    /// The administrator has said that tokens may go over the network in plain text.
    pub insecure_plaintext: bool,
}

/// Where the server listens.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    for_board: bool,
}

enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, Arc<SocketFile>),
}

impl Listener {
    /// Listens on `HOST:PORT` or on `unix:PATH`; where other machines reach it, only under protection.
    ///
    /// # Errors
    /// If the address is not valid, taken, or not to be opened like this.
    pub fn bind(address: &str, protection: &Protection) -> Result<Listener, ListenError> {
        let listener = Listener::reserve(address, protection)?;
        listener.listen()?;
        Ok(listener)
    }

    /// Takes an address as [`Listener::bind`] does. Clients of a port are refused until [`Listener::listen`].
    ///
    /// # Errors
    /// If the address is not valid, taken, or not to be opened like this.
    pub fn reserve(address: &str, protection: &Protection) -> Result<Listener, ListenError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken(address.to_owned()),
            _ => ListenError::Io { address: address.to_owned(), source },
        };
        if let Some(path) = address.strip_prefix("unix:") {
            let (listener, file) = unix_socket::bind(PathBuf::from(path))?;
            return Ok(Listener {
                socket: Socket::Unix(listener, Arc::new(file)),
                tls: None,
                for_board: false,
            });
        }
        let mut found = address.to_socket_addrs().map_err(|_| ListenError::Address(address.to_owned()))?;
        let found = found.next().ok_or_else(|| ListenError::Address(address.to_owned()))?;
        if !found.ip().is_loopback() {
            if !protection.auth {
                return Err(ListenError::Open(found));
            }
            if protection.tls.is_none() && !protection.insecure_plaintext {
                return Err(ListenError::Plaintext(found));
            }
        }
        let listener = reserve_port(found).map_err(io)?;
        let tls = protection.tls.clone().map(TlsAcceptor::from);
        Ok(Listener { socket: Socket::Tcp(listener), tls, for_board: false })
    }

    /// Accepts connections from now on, which wait until they are served.
    ///
    /// # Errors
    /// If another server has taken the port meanwhile.
    pub fn listen(&self) -> Result<(), ListenError> {
        let Socket::Tcp(listener) = &self.socket else { return Ok(()) };
        rustix::net::listen(listener, WAITING_MAX).map_err(|errno| match errno {
            rustix::io::Errno::ADDRINUSE => ListenError::Taken(self.address()),
            errno => ListenError::Io { address: self.address(), source: errno.into() },
        })
    }

    /// Listens for the board alone, on a free port of this machine.
    pub(crate) async fn bind_board() -> Result<Listener, ListenError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let io = |source| ListenError::Io { address: any.to_string(), source };
        let listener = TcpListener::bind(any).await.and_then(TcpListener::into_std).map_err(io)?;
        Ok(Listener { socket: Socket::Tcp(listener), tls: None, for_board: true })
    }

    /// For a socket that listens already.
    fn of(listener: TcpListener) -> io::Result<Listener> {
        Ok(Listener { socket: Socket::Tcp(listener.into_std()?), tls: None, for_board: false })
    }

    /// Another way to the same socket, so that connections wait while a server begins or ceases to stand by.
    ///
    /// # Errors
    /// If this process has no more descriptors.
    pub fn try_clone(&self) -> io::Result<Listener> {
        let socket = match &self.socket {
            Socket::Tcp(listener) => Socket::Tcp(listener.try_clone()?),
            Socket::Unix(listener, path) => Socket::Unix(listener.try_clone()?, path.clone()),
        };
        Ok(Listener { socket, tls: self.tls.clone(), for_board: self.for_board })
    }

    /// The address for clients.
    pub fn address(&self) -> String {
        self.written(|address| address)
    }

    /// The address for clients on this machine: one that stands for all of its addresses is none to
    /// connect to.
    pub fn address_here(&self) -> String {
        self.written(|mut address| {
            if address.ip().is_unspecified() {
                let v4 = address.is_ipv4();
                address.set_ip(if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
            }
            address
        })
    }

    fn written(&self, change: impl FnOnce(SocketAddr) -> SocketAddr) -> String {
        match &self.socket {
            Socket::Tcp(listener) => match listener.local_addr().map(change) {
                Ok(address) if self.tls.is_some() => format!("https://{address}"),
                Ok(address) if !address.ip().is_loopback() => format!("http://{address}"),
                Ok(address) => address.to_string(),
                Err(e) => e.to_string(),
            },
            Socket::Unix(_, file) => format!("unix:{}", file.path().display()),
        }
    }

    /// Serves until `closing` turns true and the requests under way are answered. Over TCP it must be called on the
    /// runtime of [`Served::network`].
    pub(crate) async fn serve(self, served: Served) -> io::Result<()> {
        let Listener { socket, tls, for_board } = self;
        match socket {
            Socket::Unix(listener, path) => {
                let listener = UnixListener::from_std(listener)?;
                served.serve_unix(&listener, path).await;
            }
            Socket::Tcp(listener) => {
                let entrance = Entrance { address: listener.local_addr()?, is_tls: tls.is_some(), for_board };
                served.serve_tcp(TcpListener::from_std(listener)?, tls, entrance).await;
            }
        }
        Ok(())
    }

    /// Where it listens for browsers; `None` on a unix socket.
    pub(crate) fn url_here(&self) -> Option<String> {
        let address = self.is_tcp().then(|| self.address_here())?;
        Some(if address.contains("://") { address } else { format!("http://{address}") })
    }

    /// True where it listens on TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Requests at a time over HTTP/2.
    pub streams_max: u32,
    /// How long it may have no request under way while nobody was let in on it; `None` is as long as its peer answers pings.
    pub idle_max: Option<Duration>,
    /// How long it may last, whatever its peer does.
    pub lasts_max: Option<Duration>,
}

/// The router, the room and the limits that all connections share.
#[derive(Clone)]
pub(crate) struct Served {
    pub router: Router,
    pub refusals: Arc<Refusals>,
    pub closing: watch::Receiver<bool>,
    pub limits: ConnectionLimits,
    pub room: Arc<Room>,
    /// Connections over unix sockets at a time; those above it wait in the kernel's queue.
    pub local: Arc<Semaphore>,
    pub local_max: usize,
    /// The users of the machine who may open the unix socket; `None` where only the server's own user may.
    pub users: Option<Arc<MachineUsers>>,
    /// TLS handshakes at a time.
    pub handshakes: Arc<Semaphore>,
    pub requests: Handle,
    /// Connections over TCP are read on another runtime than that.
    pub is_apart: bool,
}

impl Served {
    /// For a server with these limits; requests are answered on the runtime that calls it.
    pub fn new(
        router: Router,
        refusals: Arc<Refusals>,
        closing: watch::Receiver<bool>,
        limits: RoomLimits,
        local_max: usize,
    ) -> Served {
        Served {
            router,
            refusals,
            closing,
            limits: ConnectionLimits {
                head_bytes_max: HEAD_BYTES_MAX,
                streams_max: STREAMS_MAX,
                idle_max: Some(IDLE_TIMEOUT),
                lasts_max: None,
            },
            room: Room::new(limits),
            local: Arc::new(Semaphore::new(local_max)),
            local_max,
            users: None,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            requests: Handle::current(),
            is_apart: true,
        }
    }

    async fn serve_unix(mut self, listener: &UnixListener, file: Arc<SocketFile>) {
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                let place = self.local.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok::<_, io::Error>((listener.accept().await?.0, place))
            };
            let next = tokio::select! {
                next = next => next,
                Some(_) = connections.join_next() => continue,
                _ = self.closing.wait_for(|closing| *closing) => break,
            };
            match next {
                Ok((stream, place)) => {
                    let served = self.clone();
                    connections.spawn(async move {
                        served.meet_local(stream).await;
                        drop(place);
                    });
                }
                Err(e) => self.accept_failed(&e).await,
            }
        }
        // Nobody new finds the server from here on, unless it goes on to listen with a clone.
        drop(file);
        while connections.join_next().await.is_some() {}
    }

    /// Answers a client of this machine, who is the server's own user or, on a machine's server, the one whose process it
    /// is.
    async fn meet_local(self, stream: UnixStream) {
        let Some(users) = self.users.clone() else {
            return self.converse(stream, Peer::LOCAL, Way::Here).await;
        };
        let process = match users.process_of(&stream) {
            Ok(process) => process,
            Err(error) => {
                self.refusals.tell("a connection", format_args!("it is not known whose it is: {error}"));
                return;
            }
        };
        let of = |client| Peer { local: Some(client), ..Peer::LOCAL };
        if let Some(_place) = users.enter(process, self.local_max) {
            let client = users.user_of(process).await;
            return self.converse(stream, of(client), Way::Here).await;
        }
        let peer = of(LocalClient::TooMany(process.uid));
        _ = self.refusals.tell(&peer, "this user has too many connections open");
        // It is answered, so that its client can say why.
        if let Some(_turn) = users.take_refusal() {
            let answered = self.converse(stream, peer, Way::Here);
            _ = tokio::time::timeout(REFUSED_LASTS_MAX, answered).await;
        }
    }

    async fn serve_tcp(mut self, listener: TcpListener, tls: Option<TlsAcceptor>, entrance: Entrance) {
        let mut connections = JoinSet::new();
        loop {
            let room = self.room.clone();
            let next = async {
                let permit = room.wait().await;
                Ok::<_, io::Error>((listener.accept().await?, permit))
            };
            let next = tokio::select! {
                next = next => next,
                Some(_) = connections.join_next() => continue,
                _ = self.closing.wait_for(|closing| *closing) => break,
            };
            match next {
                Ok(((stream, address), Some(permit))) => {
                    let (place, crowd) = self.room.enter(permit, address.ip());
                    let peer = Peer {
                        address: Some(address),
                        certificate: None,
                        place: Some(place),
                        entrance: Some(entrance),
                        local: None,
                    };
                    match crowd {
                        Some(Crowd::Machine) => {
                            let why = "its machine has too many connections on which nobody was let in; one is closed";
                            _ = self.refusals.tell(&peer, why);
                        }
                        Some(Crowd::All) => {
                            let why =
                                "too many connections are open on which nobody was let in; one is closed";
                            _ = self.refusals.tell(&peer, why);
                        }
                        None => {}
                    }
                    // It only makes answers come sooner.
                    _ = stream.set_nodelay(true);
                    connections.spawn(self.clone().meet(stream, peer, tls.clone()));
                }
                // Nobody closes the room.
                Ok((_, None)) => break,
                Err(e) => self.accept_failed(&e).await,
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn accept_failed(&self, error: &io::Error) {
        self.refusals.tell("a connection", format_args!("it cannot be accepted: {error}"));
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Finds out what a connection over TCP speaks, and lets it be answered where that is done: HTTP/1 among the
    /// requests, HTTP/2, which is what workers speak, here.
    async fn meet(self, stream: TcpStream, peer: Peer, tls: Option<TlsAcceptor>) {
        let Some(place) = peer.place.clone() else { return };
        let requests = self.requests.clone();
        let talk = async move {
            if !self.may_enter(&peer).await {
                let why = "another user's process asks for the board of this user's server";
                _ = self.refusals.tell(&peer, why);
                return;
            }
            let Some(tls) = tls else {
                if !self.is_apart {
                    return self.converse(stream, peer, Way::Here).await;
                }
                return match tokio::time::timeout(FIRST_REQUEST_TIMEOUT, is_http2(&stream)).await {
                    Ok(Ok(true)) => self.converse(stream, peer, Way::Elsewhere).await,
                    Ok(Ok(false)) => _ = over_there(&requests, self.converse_there(stream, peer)).await,
                    Ok(Err(_)) => {}
                    Err(_) => self.too_silent(&peer),
                };
            };
            // The thread that workers' messages pass through must not wait for the handshake's arithmetic.
            let served = self.clone();
            let greeting = async move { served.greet(tls, stream, peer).await };
            if let Some(Some((stream, peer))) = over_there(&requests, greeting).await {
                match stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    true => self.converse(stream, peer, Way::Elsewhere).await,
                    false => _ = over_there(&requests, self.converse(stream, peer, Way::Here)).await,
                }
            }
        };
        tokio::select! {
            () = talk => {}
            () = place.must_leave() => {}
        }
    }

    /// False of other users' processes at the board's port of one user's server. On a machine's server each session is for
    /// processes of its user.
    async fn may_enter(&self, peer: &Peer) -> bool {
        if !peer.is_for_board() || self.users.is_some() {
            return true;
        }
        let user = tokio::time::timeout(HEAD_TIMEOUT, peer.process_user()).await;
        user.is_ok_and(is_own_or_root)
    }

    fn too_silent(&self, peer: &Peer) {
        let seconds = FIRST_REQUEST_TIMEOUT.as_secs();
        self.refusals.tell(peer, format_args!("it sent no request within {seconds} s"));
    }

    /// Moves the connection to the runtime that calls it, which saves a hop between threads for each request.
    async fn converse_there(self, stream: TcpStream, peer: Peer) {
        if let Ok(stream) = stream.into_std().and_then(TcpStream::from_std) {
            self.converse(stream, peer, Way::Here).await;
        }
    }

    /// The TLS handshake; tells why if it fails.
    async fn greet(
        &self,
        tls: TlsAcceptor,
        stream: TcpStream,
        mut peer: Peer,
    ) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Peer)> {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            let _turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
            tls.accept(stream).await
        });
        match handshake.await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                peer.certificate = shown.map(|certificate| certificate.clone().into_owned());
                return Some((stream, peer));
            }
            // A peer that only looks whether a server listens does no harm.
            Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {}
            Ok(Err(e)) => _ = self.refusals.tell(&peer, format_args!("no TLS: {e}")),
            Err(_) => {
                let seconds = HANDSHAKE_TIMEOUT.as_secs();
                self.refusals.tell(&peer, format_args!("its TLS handshake took longer than {seconds} s"));
            }
        }
        None
    }

    /// Answers the requests of a connection.
    async fn converse<S>(self, stream: S, peer: Peer, way: Way)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let asked = Arc::new(AtomicBool::new(false));
        let answerer = Answerer {
            router: TowerToHyperService::new(self.router.clone()),
            requests: self.requests.clone(),
            peer: peer.clone(),
            way,
            asked: asked.clone(),
        };
        let service = hyper::service::service_fn(move |request| answerer.answer(request));
        let mut closing = self.closing.clone();
        let builder = builder(self.limits);
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut look = pin!(tokio::time::sleep(FIRST_REQUEST_TIMEOUT));
        let mut end = pin!(at_the_end(self.limits.lasts_max));
        let (mut looks, mut open) = (true, true);
        let tell = |ended: Result<(), Box<dyn std::error::Error + Send + Sync>>| {
            if let Err(why) = ended.map_err(|error| reason(&*error))
                && let Some(why) = why
            {
                self.refusals.tell(&peer, why);
            }
        };
        loop {
            tokio::select! {
                ended = connection.as_mut() => return tell(ended),
                () = &mut end => return,
                () = &mut look, if looks => {
                    if !asked.load(Ordering::Relaxed) {
                        return self.too_silent(&peer);
                    }
                    match self.may_idle(&peer) {
                        None => looks = false,
                        Some(Duration::ZERO) => return,
                        Some(left) => look.as_mut().reset(Instant::now() + left),
                    }
                }
                () = async { _ = closing.wait_for(|closing| *closing).await }, if open => {
                    open = false;
                    // The first request may be on its way on a connection that was accepted just now.
                    if !asked.load(Ordering::Relaxed)
                        && let Ok(ended) = tokio::time::timeout(FIRST_REQUEST_GRACE, connection.as_mut()).await
                    {
                        return tell(ended);
                    }
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// How much longer a connection may have no request under way; `None` where that has no limit.
    fn may_idle(&self, peer: &Peer) -> Option<Duration> {
        let (max, place) = (self.limits.idle_max?, peer.place.as_ref()?);
        if place.is_known() {
            return None;
        }
        Some(place.idle_for().map_or(max, |idle| max.saturating_sub(idle)))
    }
}

/// Comes when a connection has lasted as long as it may.
async fn at_the_end(lasts_max: Option<Duration>) {
    match lasts_max {
        Some(lasts_max) => tokio::time::sleep(lasts_max).await,
        None => std::future::pending().await,
    }
}

/// Has the requests of one connection answered.
struct Answerer {
    router: TowerToHyperService<Router>,
    requests: Handle,
    peer: Peer,
    way: Way,
    asked: Arc<AtomicBool>,
}

impl Answerer {
    fn answer(
        &self,
        mut request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<> {
        self.asked.store(true, Ordering::Relaxed);
        let ongoing = self.peer.place.as_ref().map(|place| place.begin());
        request.extensions_mut().insert(ConnectInfo(self.peer.clone()));
        let here = self.way == Way::Here || request.uri().path().starts_with(WORKER_PATHS);
        let (answer, requests) = (self.router.call(request), self.requests.clone());
        async move {
            let answered = match here {
                true => answer.await,
                false => match over_there(&requests, answer).await {
                    Some(answer) => answer,
                    None => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
                },
            };
            drop(ongoing);
            answered
        }
    }
}

/// Where the requests of a connection are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the task that reads them.
    Here,
    /// Among all other requests, but for those of workers.
    Elsewhere,
}

/// Runs something on another runtime; `None` if it panicked. It ends when nobody waits for it any more.
async fn over_there<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    // The set ends what is left in it when it is dropped.
    let mut set = JoinSet::new();
    set.spawn_on(work, runtime);
    set.join_next().await?.ok()
}

/// Whether the first bytes of a connection are those of HTTP/2, of which nothing is taken.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI ";
    let mut first = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == 0 || first[..count] != PREFACE[..count] {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // The rest is on its way, and the socket counts as readable all the while.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

fn builder(limits: ConnectionLimits) -> Builder<TokioExecutor> {
    let ConnectionLimits { head_bytes_max, streams_max, .. } = limits;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(head_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(head_bytes_max as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .max_send_buf_size(UNSENT_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// What a peer did wrong, if it did. A peer may hang up.
fn reason(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<hyper::Error>()
        && (error.is_incomplete_message() || error.is_canceled() || error.is_closed() || error.is_timeout())
    {
        return None;
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<io::Error>() {
            return None;
        }
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    (!error.is::<io::Error>()).then_some(text)
}

/// A socket of that port. It does not listen yet.
fn reserve_port(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port whose last connections are closing is free.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket.as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reserved_port_refuses_clients_until_it_listens() {
        let reserved = Listener::reserve("127.0.0.1:0", &Protection::default()).unwrap();
        let address = reserved.address_here();
        let refused = TcpStream::connect(&address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        reserved.listen().unwrap();
        TcpStream::connect(&address).await.unwrap();
        assert!(matches!(Listener::bind(&address, &Protection::default()), Err(ListenError::Taken(_))));
    }

    #[tokio::test]
    async fn an_address_of_all_is_none_to_connect_to() {
        let protection = Protection { auth: true, tls: None, insecure_plaintext: true };
        let open = Listener::bind("0.0.0.0:0", &protection).unwrap();
        assert!(open.address().starts_with("http://0.0.0.0:"));
        assert!(open.address_here().starts_with("127.0.0.1:"));
        let careful = Protection { insecure_plaintext: false, ..protection };
        assert!(matches!(Listener::bind("0.0.0.0:0", &careful), Err(ListenError::Plaintext(_))));
        let none = Protection::default();
        assert!(matches!(Listener::bind("0.0.0.0:0", &none), Err(ListenError::Open(_))));
    }
}
