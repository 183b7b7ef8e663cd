//! The gRPC port. A call that is not in the table of paths is refused with a reason.

use crate::cuebot::Cuebot;
use crate::routes::{Routes, bytes_max};
use crate::{calls, report};
use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::Response as HttpResponse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tonic::Status;
use windlass_server::auth::Peer;
use windlass_server::{PortLimits, serve_port};

/// Limits of the port. A host holds one connection, and all hosts of a farm may have one address. Three of the
/// largest requests fit at a time, and many small ones beside them.
const LIMITS: PortLimits = PortLimits {
    connections_max: 16_384,
    per_machine_max: 4_096,
    connection_lasts_max: None,
    body_bytes_max: bytes_max,
    requests_bytes_max: 64 << 20,
};

/// The table of all calls.
fn served() -> Routes {
    calls::routes(report::routes(Routes::default()))
}

/// The paths of all calls that are served, as `/package.Interface/Call`.
pub fn served_paths() -> Vec<&'static str> {
    served().paths
}

impl Cuebot {
    /// Serves hosts and clients, and applies ends that wait, until the task is dropped.
    pub async fn serve(self: Arc<Cuebot>, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        let cuebot = self.clone();
        let refuses = move |peer: &Peer| cuebot.refusal(peer.address);
        let kept = self.clone();
        tokio::select! {
            served = serve_port(listener, self.routes(), LIMITS, None, Some(Arc::new(refuses))) => served,
            never = kept.follow_kept_ends() => match never {},
        }
    }

    /// The calls as routes of HTTP, without the port and its limits.
    pub fn routes(self: Arc<Cuebot>) -> Router {
        served().router.fallback(unserved).with_state(self)
    }

    /// The answer to a caller from another network. Nothing more is read of its request.
    fn refusal(&self, from: Option<SocketAddr>) -> Option<HttpResponse> {
        if self.is_client(from) {
            return None;
        }
        if let Some(left_out) = self.outsiders.tell(Instant::now()) {
            tracing::warn!(?from, left_out, "a call from outside of 'windlass.cuebot.clients' was refused");
        }
        let why = "this address may not call the gateway; its operator names the networks that may in \
                   'windlass.cuebot.clients'";
        Some(Status::permission_denied(why).into_http())
    }

    fn is_client(&self, from: Option<SocketAddr>) -> bool {
        let Some(networks) = &self.clients else { return true };
        from.is_some_and(|from| networks.iter().any(|network| network.contains(from.ip())))
    }
}

/// The answer to a call that is not served.
async fn unserved(request: HttpRequest) -> axum::http::Response<axum::body::Body> {
    let name = request.uri().path().trim_start_matches('/').chars().take(100).collect::<String>();
    Status::unimplemented(format!("Windlass does not serve {name}: {}", calls::why_unserved(&name)))
        .into_http()
}
