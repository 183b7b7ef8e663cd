//! How loaded the build servers are, for monitoring at the scheduler's own address.

use crate::scheduler::Scheduler;
use crate::wire::ServerId;
use windlass_api::board::{ServerLoad, ServerLoads};
use windlass_core::{Engine, WorkerId};
use windlass_server::Unavailable;

/// Build servers of one answer. Further ones are left out.
const LOADS_MAX: usize = 10_000;

impl Scheduler {
    /// The loads of build servers, by their addresses. Where a worker observes one, they are those of the worker.
    pub(crate) async fn loads(&self) -> Result<ServerLoads, Unavailable> {
        let known: Vec<(ServerId, WorkerId)> = {
            let state = self.state();
            let known = state.workers.iter().take(LOADS_MAX);
            known.filter_map(|(server, link)| Some((*server, link.worker?))).collect()
        };
        let look = move |engine: &Engine| {
            let workers = engine.workers();
            let loads = known.into_iter().filter_map(|(server, worker)| {
                let load = ServerLoad::from_core(workers.get(worker)?, workers.load_settings());
                Some(ServerLoad { server_id: server.to_string(), ..load })
            });
            loads.collect::<Vec<ServerLoad>>()
        };
        let servers = self.handle().query(look).await?;
        Ok(ServerLoads { servers, next: None })
    }
}
