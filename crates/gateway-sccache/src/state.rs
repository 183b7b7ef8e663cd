//! The state of the scheduler, and the names and amounts by which the engine knows compiles.

use crate::counts::Counts;
use crate::farm::Farm;
use crate::wire::ServerId;
use std::collections::BTreeMap;
use windlass_core::load::formula::slot_cpu;
use windlass_core::{Resources, WorkerId};

/// The name by which the engine knows this system.
pub(crate) const SYSTEM: &str = "sccache";
/// The queue of jobs whose client is unknown.
pub(crate) const QUEUE_UNKNOWN: &str = "sccache";
/// The amount of which a build server has one for each place.
pub(crate) const PLACES: &str = "sccache_places";
/// The least cpu of a place, in hundredths of a core: a build server of one core has two places.
const PLACE_CPU_MIN: u32 = 50;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) farm: Farm,
    pub(crate) workers: BTreeMap<ServerId, Link>,
    /// The build server of each worker, so that a compile's is found without a search.
    pub(crate) servers: BTreeMap<WorkerId, ServerId>,
    pub(crate) counts: Counts,
}

impl State {
    /// Notes the worker of a build server.
    pub(crate) fn connect(&mut self, server: ServerId, link: Link) {
        self.disconnect(server);
        self.workers.insert(server, link);
        self.servers.extend(link.worker.map(|worker| (worker, server)));
    }

    /// The build servers that are workers and no longer on the farm. A silent one may say hello with other places while
    /// it is dropped.
    pub(crate) fn left(&self) -> Vec<ServerId> {
        self.workers.keys().copied().filter(|server| self.farm.server(*server).is_none()).collect()
    }

    /// Removes the worker of a build server, and returns its link.
    pub(crate) fn disconnect(&mut self, server: ServerId) -> Option<Link> {
        let link = self.workers.remove(&server)?;
        if let Some(worker) = link.worker {
            self.servers.remove(&worker);
        }
        Some(link)
    }
}

/// The link of a build server to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The number of its connection; `None` if a worker of Windlass observes it.
    pub(crate) own: Option<u64>,
    /// The worker, once the engine has it.
    pub(crate) worker: Option<WorkerId>,
}

/// What one compile asks for. It takes a slot of the build server that it gets.
pub(crate) fn place_amounts() -> Resources {
    amounts_of(PLACE_CPU_MIN)
}

/// What one compile holds of a build server with this number of cores.
pub(crate) fn held_amounts(num_cpus: u32) -> Resources {
    amounts_of(slot_cpu(num_cpus.saturating_mul(100)))
}

fn amounts_of(cpu: u32) -> Resources {
    Resources { custom: [(PLACES.to_owned(), 1)].into(), ..Resources::new(cpu, 0) }
}

/// The cache key of a toolchain.
pub(crate) fn key_of(archive_id: &str) -> String {
    format!("toolchain/{archive_id}")
}
