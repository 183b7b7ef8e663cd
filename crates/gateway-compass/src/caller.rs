//! Who makes a request, and from where.

use axum::Extension;
use axum::extract::ConnectInfo;
use std::net::IpAddr;
use windlass_server::auth::{Caller, Peer};

/// Whoever asks, where that is known.
pub(crate) type Who = Option<Extension<Caller>>;

pub(crate) fn who(caller: &Who) -> Option<&Caller> {
    caller.as_ref().map(|Extension(caller)| caller)
}

/// Who is at the other end of a request's connection.
pub(crate) type MaybePeer = Option<Extension<ConnectInfo<Peer>>>;

/// The address from which a request came; `None` over a unix socket.
pub(crate) fn peer_address(peer: &MaybePeer) -> Option<IpAddr> {
    let Extension(ConnectInfo(peer)) = peer.as_ref()?;
    peer.address.map(|address| address.ip().to_canonical())
}
