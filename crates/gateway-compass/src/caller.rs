//! The caller of a request, and its address.

use axum::Extension;
use axum::extract::ConnectInfo;
use std::net::IpAddr;
use windlass_server::auth::{Caller, Peer};

/// The caller, where the header showed one.
pub(crate) type Who = Option<Extension<Caller>>;

pub(crate) fn who(caller: &Who) -> Option<&Caller> {
    caller.as_ref().map(|Extension(caller)| caller)
}

/// The peer of a request's connection.
pub(crate) type MaybePeer = Option<Extension<ConnectInfo<Peer>>>;

/// The address from which a request came; `None` over a unix socket.
pub(crate) fn peer_address(peer: &MaybePeer) -> Option<IpAddr> {
    let Extension(ConnectInfo(peer)) = peer.as_ref()?;
    peer.address.map(|address| address.ip().to_canonical())
}
