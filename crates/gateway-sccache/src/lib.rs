//! The scheduler of sccache's distributed compilation, for stock clients and build servers of sccache 0.17 to 0.19.
//!
//! Every build server is a worker of the engine, and every compile is a place there. So a compile waits for its turn
//! when the build servers are full, clients share them by weight, and a place goes where the toolchain is and the load
//! is low. The messages ([`wire`]), tokens ([`tokens`]), settings ([`config`]), and the build servers with their jobs
//! ([`farm`]) are pure.

mod assign;
mod clients;
pub mod config;
mod counts;
pub mod farm;
mod http;
mod issuer;
mod known;
mod loads;
mod probe;
mod scheduler;
mod servers;
mod state;
pub mod tokens;
pub mod wire;

pub use http::serve;
pub use probe::probe;
pub use scheduler::{BadStart, Options, Scheduler};
pub use servers::{OBSERVES, with_places};

use axum::Router;
use config::SchedulerConfig;
use std::net::SocketAddr;
use std::sync::OnceLock;
use tokio::net::{TcpListener, TcpSocket};
use windlass_server::{Counting, Front, Gateway, Starting};

/// Connections that wait to be accepted. The kernel may allow fewer.
const BACKLOG: u32 = 4_096;

/// The gateway of sccache, to be handed to a server. It listens at an address of its own, because sccache speaks plain
/// HTTP.
pub struct SccacheGateway {
    config: SchedulerConfig,
    options: Options,
    scheduler: OnceLock<Scheduler>,
}

impl SccacheGateway {
    /// A gateway with the settings of a stock scheduler, and the options in which it differs.
    pub fn new(config: SchedulerConfig, options: Options) -> Self {
        SccacheGateway { config, options, scheduler: OnceLock::new() }
    }
}

/// Listens with a long queue: stock clients open a connection for each request, and a build starts many at once.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Gateway for SccacheGateway {
    fn name(&self) -> &'static str {
        "sccache"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let scheduler = Scheduler::new(front.handle().clone(), &self.config, self.options.clone())?;
            let listener = listen(self.config.public_addr).map_err(BadStart::Listen)?;
            tracing::info!("sccache's clients and build servers are heard on {}", listener.local_addr()?);
            // A gateway is started once.
            _ = self.scheduler.set(scheduler.clone());
            tokio::spawn(scheduler.clone().look_after());
            tokio::spawn(http::serve(listener, scheduler));
            Ok(Router::new())
        })
    }

    fn metrics(&self) -> Counting<'_> {
        Box::pin(async move {
            match self.scheduler.get() {
                Some(scheduler) => scheduler.metrics().await,
                None => String::new(),
            }
        })
    }

    fn owns(&self, _: &str) -> bool {
        false
    }

    fn body_bytes_max(&self) -> usize {
        0
    }
}
