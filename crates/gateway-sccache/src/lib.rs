//! sccache's distributed compilation, as of sccache 0.17 to 0.19: clients and build servers are stock ones, and this is
//! their scheduler.
//!
//! Every build server is a worker of the engine, and every compile is a place there. So a compile waits for its turn
//! when the build servers are full, clients share them by weight, and a place goes where the toolchain is and where the
//! load is low. The messages ([`wire`]), tokens ([`tokens`]), settings ([`config`]), and the build servers with their
//! jobs ([`farm`]) are pure.

mod assign;
pub mod config;
pub mod farm;
mod http;
mod scheduler;
pub mod tokens;
pub mod wire;

pub use http::serve;
pub use scheduler::{BadStart, Options, Scheduler};

use axum::Router;
use config::SchedulerConfig;
use tokio::net::TcpListener;
use windlass_server::{Front, Gateway, Starting};

/// The gateway, to be given to a server. It listens at an address of its own, because sccache speaks plain HTTP.
#[derive(Debug)]
pub struct SccacheGateway {
    /// The settings of a stock scheduler.
    pub config: SchedulerConfig,
    /// How it differs from a stock one.
    pub options: Options,
}

impl Gateway for SccacheGateway {
    fn name(&self) -> &'static str {
        "sccache"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let scheduler = Scheduler::new(front.handle().clone(), &self.config, self.options.clone())?;
            let listener = TcpListener::bind(self.config.public_addr).await.map_err(BadStart::Listen)?;
            tracing::info!("sccache's clients and build servers are heard on {}", listener.local_addr()?);
            tokio::spawn(scheduler.clone().look_after());
            tokio::spawn(http::serve(listener, scheduler));
            Ok(Router::new())
        })
    }

    fn owns(&self, _: &str) -> bool {
        false
    }

    fn body_bytes_max(&self) -> usize {
        0
    }
}
