//! The server's side: builds as external tasks of the engine, and the machines of clients.

mod builds;
mod machines;
mod near;
mod needs;
mod routes;
mod state;

pub use needs::{BUILDS, NIX, attributes};

use parking_lot::Mutex;
use state::{Service, Shared};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::mpsc;
use windlass_server::{Counting, Front, Gateway, Starting};

/// The gateway of Nix's build hook, to be handed to a server.
#[derive(Default)]
pub struct NixGateway {
    /// Weak, because the service holds the server, which holds its gateways. A server that loses the ownership of its
    /// farm goes on without both.
    service: OnceLock<Weak<Shared>>,
}

impl Gateway for NixGateway {
    fn name(&self) -> &'static str {
        "nix"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let (again, asked) = mpsc::unbounded_channel();
            let service = Service(Arc::new(Shared { front, again, state: Mutex::default() }));
            service.restore().await?;
            // A gateway is started once.
            _ = self.service.set(Arc::downgrade(&service.0));
            tokio::spawn(service.clone().look_after(asked));
            Ok(routes::routes(service))
        })
    }

    fn owns(&self, path: &str) -> bool {
        path.starts_with("/nix/v1/")
    }

    fn body_bytes_max(&self) -> usize {
        routes::BODY_BYTES_MAX
    }

    /// Builds are audited, and reports of their progress are not.
    fn is_report(&self, path: &str) -> bool {
        path != crate::wire::BUILDS_PATH
    }

    fn metrics(&self) -> Counting<'_> {
        let service = self.service.get().and_then(Weak::upgrade).map(Service);
        Box::pin(std::future::ready(service.as_ref().map(Service::metrics).unwrap_or_default()))
    }
}
