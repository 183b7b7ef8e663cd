//! Why a server does not listen at an address.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the server does not listen there.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum ListenError {
    #[error(
        "refusing to listen on {0}: it can be reached from other machines, and --trust-this-machine asks nobody for a \
         token. Listen on 127.0.0.1 or on unix:PATH, or leave it out and give --tls-cert and --tls-key"
    )]
    Open(SocketAddr),
    #[error(
        "refusing to listen on {0}: tokens would cross the network in plain text. \
         Give --tls-cert and --tls-key ('windlass ca' makes them), or --insecure-plaintext if the network is safe"
    )]
    Plaintext(SocketAddr),
    #[error("'{0}' is not an address to listen on; give HOST:PORT or unix:PATH")]
    Address(String),
    #[error("a server listens on {0} already")]
    Taken(String),
    #[error(
        "cannot lock {}, which keeps two servers off one socket; delete it if no server listens there",
        path.display()
    )]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot listen on {address}")]
    Io { address: String, source: io::Error },
}
