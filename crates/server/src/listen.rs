//! Sockets and connections: where the server listens, TLS, and what one peer may take.
//!
//! Every connection is a task. A handshake that hangs holds up nobody else, a peer that sends no
//! request is let go, and what is not HTTP is refused with a line in the log.

use crate::auth::Peer;
use crate::refusals::Refusals;
use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Connections to one socket at a time. Those above it wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 60_000;
/// Connections of one machine at a time: more machines than one are needed to fill the server.
const CONNECTIONS_PER_MACHINE_MAX: usize = 1024;
/// TLS handshakes at a time.
const HANDSHAKES_MAX: usize = 2048;
/// How long a handshake may take, the wait for its turn included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a new connection may bring no request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, the pause since the one before included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Between two questions whether an HTTP/2 peer is still there, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// After a failure to accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What protects a socket that is open to other machines.
#[derive(Clone, Default)]
pub struct Protection {
    /// Requests need a token.
    pub auth: bool,
    /// TLS for connections over TCP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Somebody said that tokens may go over the network in plain text.
    pub insecure_plaintext: bool,
}

/// Where the server listens.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Why the server does not listen there.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// It would be open to everybody.
    #[error(
        "refusing to listen on {0}: it can be reached from other machines, and this server has no authentication. \
         Listen on 127.0.0.1 or on unix:PATH, or give --auth, --tls-cert and --tls-key"
    )]
    Open(SocketAddr),
    /// Tokens could be read on the way.
    #[error(
        "refusing to listen on {0}: tokens would cross the network in plain text. \
         Give --tls-cert and --tls-key ('windlass ca' makes them), or --insecure-plaintext if the network is safe"
    )]
    Plaintext(SocketAddr),
    /// No address.
    #[error("'{0}' is no address to listen on; give HOST:PORT or unix:PATH")]
    Address(String),
    /// Somebody else listens there.
    #[error("a server listens on {0} already")]
    Taken(String),
    /// The operating system refuses.
    #[error("cannot listen on {address}")]
    Io {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
}

impl Listener {
    /// Listens on `HOST:PORT` or on `unix:PATH`; where other machines reach it, only under protection.
    pub async fn bind(address: &str, protection: &Protection) -> Result<Listener, ListenError> {
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken(address.to_owned()),
            _ => ListenError::Io { address: address.to_owned(), source },
        };
        if let Some(path) = address.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(io)?;
            }
            // A socket that nobody answers on is left from a server that was killed.
            if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                return Err(ListenError::Taken(address.to_owned()));
            }
            _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(io)?;
            let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, only_owner).map_err(io)?;
            return Ok(Listener { socket: Socket::Unix(listener, path), tls: None });
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
        let listener = TcpListener::bind(found).await.map_err(io)?;
        Ok(Listener { socket: Socket::Tcp(listener), tls: protection.tls.clone().map(TlsAcceptor::from) })
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
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Serves until `closing` turns true and the requests under way are answered.
    pub(crate) async fn serve(
        self,
        router: Router,
        refusals: Arc<Refusals>,
        mut closing: watch::Receiver<bool>,
    ) {
        let served = Served { router, refusals, closing: closing.clone() };
        let places = Places { all: Arc::new(Semaphore::new(CONNECTIONS_MAX)), machines: Arc::default() };
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut connections = JoinSet::new();
        loop {
            let next = tokio::select! {
                next = self.next(&places) => next,
                Some(_) = connections.join_next() => continue,
                _ = closing.wait_for(|closing| *closing) => break,
            };
            let (tls, served, handshakes) = (self.tls.clone(), served.clone(), handshakes.clone());
            match next {
                Ok((Stream::Unix(stream), place)) => {
                    connections.spawn(served.converse(stream, Peer::LOCAL, place));
                }
                Ok((Stream::Tcp(stream, address), mut place)) => {
                    let peer = Peer { address: Some(address), certificate: None };
                    if !place.count(&places, address.ip()) {
                        let most = CONNECTIONS_PER_MACHINE_MAX;
                        served.refusals.tell(&peer, format_args!("its machine has {most} connections"));
                        continue;
                    }
                    // It only makes answers come sooner.
                    _ = stream.set_nodelay(true);
                    match tls {
                        None => connections.spawn(served.converse(stream, peer, place)),
                        Some(tls) => connections.spawn(async move {
                            if let Some((stream, peer)) = served.greet(tls, stream, peer, &handshakes).await {
                                served.converse(stream, peer, place).await;
                            }
                        }),
                    };
                }
                Err(e) => {
                    served.refusals.tell("a connection", format_args!("it cannot be accepted: {e}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Nobody new finds the server from here on.
        if let Socket::Unix(_, path) = &self.socket {
            _ = std::fs::remove_file(path);
        }
        drop(self);
        while connections.join_next().await.is_some() {}
    }

    /// The next connection, when there is a place for it.
    async fn next(&self, places: &Places) -> io::Result<(Stream, Place)> {
        let permit = places.all.clone().acquire_owned().await.map_err(io::Error::other)?;
        let place = Place { _permit: permit, machine: None };
        let stream = match &self.socket {
            Socket::Tcp(listener) => listener.accept().await.map(|(s, address)| Stream::Tcp(s, address))?,
            Socket::Unix(listener, _) => listener.accept().await.map(|(s, _)| Stream::Unix(s))?,
        };
        Ok((stream, place))
    }
}

enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

/// Connections of each machine.
type Machines = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

/// Room for connections.
struct Places {
    all: Arc<Semaphore>,
    machines: Machines,
}

/// The room that one connection takes as long as it lives.
struct Place {
    _permit: OwnedSemaphorePermit,
    machine: Option<(IpAddr, Machines)>,
}

impl Place {
    /// Counts it as one of that machine's; false if that has too many.
    fn count(&mut self, places: &Places, address: IpAddr) -> bool {
        let address = match address {
            // A machine has a whole network of these.
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => {
                IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into())
            }
            other => other,
        };
        let mut machines = places.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let open = machines.entry(address).or_default();
        let fits = *open < CONNECTIONS_PER_MACHINE_MAX;
        if fits {
            *open += 1;
            self.machine = Some((address, places.machines.clone()));
        }
        fits
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((address, machines)) = self.machine.take() else { return };
        let mut machines = machines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = machines.get_mut(&address) {
            *open -= 1;
            if *open == 0 {
                machines.remove(&address);
            }
        }
    }
}

/// What all connections of a socket share.
#[derive(Clone)]
struct Served {
    router: Router,
    refusals: Arc<Refusals>,
    closing: watch::Receiver<bool>,
}

impl Served {
    /// The TLS handshake; tells why if it fails.
    async fn greet(
        &self,
        tls: TlsAcceptor,
        stream: TcpStream,
        mut peer: Peer,
        handshakes: &Semaphore,
    ) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Peer)> {
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            let _turn = handshakes.acquire().await.map_err(io::Error::other)?;
            tls.accept(stream).await
        });
        match handshake.await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                peer.certificate = shown.map(|certificate| certificate.clone().into_owned());
                return Some((stream, peer));
            }
            // Whoever only looks whether somebody listens does no harm.
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
    async fn converse<S>(self, stream: S, peer: Peer, _place: Place)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Served { router, refusals, mut closing } = self;
        let (asked, from) = (Arc::new(AtomicBool::new(false)), peer.clone());
        let service = {
            let (asked, router) = (asked.clone(), TowerToHyperService::new(router));
            hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(ConnectInfo(from.clone()));
                router.call(request)
            })
        };
        let builder = builder();
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut patience = pin!(tokio::time::sleep(FIRST_REQUEST_TIMEOUT));
        let (mut waiting, mut open) = (true, true);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(why) = ended.map_err(|error| reason(&*error))
                        && let Some(why) = why
                    {
                        refusals.tell(&peer, why);
                    }
                    return;
                }
                () = &mut patience, if waiting => {
                    waiting = false;
                    if !asked.load(Ordering::Relaxed) {
                        let seconds = FIRST_REQUEST_TIMEOUT.as_secs();
                        refusals.tell(&peer, format_args!("it sent no request within {seconds} s"));
                        return;
                    }
                }
                _ = closing.wait_for(|closing| *closing), if open => {
                    open = false;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// What a peer did wrong, if it did: to hang up is no wrong.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_of_all_is_none_to_connect_to() {
        let protection = Protection { auth: true, tls: None, insecure_plaintext: true };
        let open = Listener::bind("0.0.0.0:0", &protection).await.unwrap();
        assert!(open.address().starts_with("http://0.0.0.0:"));
        assert!(open.address_here().starts_with("127.0.0.1:"));
        let careful = Protection { insecure_plaintext: false, ..protection };
        assert!(matches!(Listener::bind("0.0.0.0:0", &careful).await, Err(ListenError::Plaintext(_))));
        let none = Protection::default();
        assert!(matches!(Listener::bind("0.0.0.0:0", &none).await, Err(ListenError::Open(_))));
    }

    #[tokio::test]
    async fn one_machine_takes_only_its_part() {
        let places = Places { all: Arc::new(Semaphore::new(CONNECTIONS_MAX)), machines: Arc::default() };
        let take = |address: &str| {
            let permit = places.all.clone().try_acquire_owned().unwrap();
            let mut place = Place { _permit: permit, machine: None };
            place.count(&places, address.parse().unwrap()).then_some(place)
        };
        // Addresses of one network are one machine's.
        let mut taken: Vec<Option<Place>> =
            (0..CONNECTIONS_PER_MACHINE_MAX).map(|n| take(&format!("2001:db8::{n:x}"))).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(take("2001:db8::ffff:1").is_none());
        assert!(take("2001:db8:0:1::1").is_some() && take("10.0.0.1").is_some());
        taken.pop();
        assert!(take("2001:db8::ffff:1").is_some());
    }
}
