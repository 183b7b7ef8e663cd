//! The other end of a connection, and the server's socket that it came by.

use crate::connections::ConnectionPlace;
use crate::local_users::LocalClient;
use crate::process_owner::user_at;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The other end of a connection. In the extensions of every request, as
/// [`ConnectInfo`](axum::extract::ConnectInfo).
#[derive(Clone)]
pub struct Peer {
    /// Its address; `None` is a unix socket.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed, which one of the server's authorities signed.
    pub certificate: Option<CertificateDer<'static>>,
    /// The room that its connection takes; `None` over a unix socket.
    pub place: Option<Arc<ConnectionPlace>>,
    /// The server's socket that it came by; `None` over a unix socket.
    pub entrance: Option<Entrance>,
    /// Whose process it is, over a unix socket that many users may open; `None` otherwise.
    pub local: Option<LocalClient>,
}

/// A socket of the server, over TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// It is there for the board alone, on a server that otherwise has a unix socket. No client is trusted there.
    pub for_board: bool,
}

impl Peer {
    /// A client over the unix socket.
    pub const LOCAL: Peer =
        Peer { address: None, certificate: None, place: None, entrance: None, local: None };

    /// A client whose address is not known.
    pub fn unknown() -> Peer {
        Peer { address: Some(([0, 0, 0, 0], 0).into()), ..Peer::LOCAL }
    }

    /// The user of this machine whose process is at the other end; `None` if it is elsewhere, or not known.
    pub(crate) async fn process_user(&self) -> Option<u32> {
        let client = self.address.filter(|address| address.ip().to_canonical().is_loopback())?;
        let (entrance, place) = (self.entrance?, self.place.as_ref()?);
        // A server that listens on all addresses was reached by one of this machine.
        let ip = if entrance.address.ip().is_unspecified() { client.ip() } else { entrance.address.ip() };
        let server = SocketAddr::new(ip.to_canonical(), entrance.address.port());
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        *place.process_user.get_or_init(|| user_at(client, server)).await
    }

    /// True where it came by the board's own port.
    pub fn is_for_board(&self) -> bool {
        self.entrance.is_some_and(|entrance| entrance.for_board)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, &self.local) {
            (Some(address), _) => address.fmt(f),
            (None, Some(client)) => write!(f, "unix, uid {}", client.uid()),
            (None, None) => f.write_str("unix"),
        }
    }
}
