//! Workers as hosts in OpenCue's tables.

use super::{WORKER_TAG, WorkersSettings};
use std::collections::HashMap;
use windlass_api::{Resources, Worker, WorkerState};
use windlass_cuebot::generated::host::HardwareState;
use windlass_cuebot::generated::report::RenderHost;
use windlass_cuebot::{Amounts, HOST_SYSTEM_KIB};

/// The share of OpenCue in a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    /// All of the worker but what Windlass's own jobs hold.
    pub amounts: Amounts,
    /// True if it takes no new frames.
    pub is_drained: bool,
}

/// True if a worker is a host: it has the tag, and is up. A silent worker is not reported, and the rule for silent
/// hosts marks it as down.
pub(super) fn is_host(worker: &Worker, settings: &WorkersSettings) -> bool {
    let is_there = matches!(worker.state, WorkerState::Up | WorkerState::Draining);
    is_there && settings.tag.met_by(&worker.attributes)
}

/// The share of OpenCue in a worker on which procs hold these amounts. The tasks that no proc accounts for are
/// Windlass's own. A frame that is booked and has not reached the worker makes these look smaller for a moment; then
/// the next job waits for room.
pub(super) fn share(worker: &Worker, held: Amounts) -> Share {
    let (all, booked) = (amounts(&worker.capacity), amounts(&worker.booked));
    let left = |all: i64, booked: i64, held: i64| (all - (booked - held).max(0)).max(0);
    Share {
        amounts: Amounts {
            cores: left(all.cores, booked.cores, held.cores),
            mem_kib: left(all.mem_kib, booked.mem_kib, held.mem_kib),
            gpus: left(all.gpus, booked.gpus, held.gpus),
            gpu_mem_kib: left(all.gpu_mem_kib, booked.gpu_mem_kib, held.gpu_mem_kib),
        },
        is_drained: worker.state == WorkerState::Draining,
    }
}

fn amounts(of: &Resources) -> Amounts {
    Amounts {
        cores: (of.cpus * 100.0).round() as i64,
        mem_kib: kib(of.memory),
        gpus: i64::from(of.gpus),
        gpu_mem_kib: kib(of.gpu_memory),
    }
}

/// The report that RQD would make of the worker.
pub(super) fn report(worker: &Worker, share: &Share, settings: &WorkersSettings) -> RenderHost {
    let Amounts { cores, mem_kib, gpus, gpu_mem_kib } = share.amounts;
    let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    let load = worker.load.as_deref();
    let available_kib = load.and_then(|load| load.memory_available).map_or(mem_kib, kib);
    let load_average = load.and_then(|load| load.load_average).map_or(0.0, |[minute, ..]| minute);
    let tags = [WORKER_TAG.to_owned()].into_iter().chain(settings.allocation.clone());
    RenderHost {
        name: worker.name.clone(),
        nimby_enabled: false,
        nimby_locked: share.is_drained,
        num_procs: 1,
        cores_per_proc: narrow(cores),
        // A part of a host with RQD is kept for the system. What a worker offers is without that.
        total_mem: mem_kib + HOST_SYSTEM_KIB,
        free_mem: available_kib,
        load: (load_average * 100.0) as i32,
        tags: tags.chain(settings.tags.iter().cloned()).collect(),
        state: HardwareState::Up.into(),
        attributes: HashMap::from([("SP_OS".to_owned(), settings.os.clone())]),
        num_gpus: narrow(gpus),
        free_gpu_mem: gpu_mem_kib,
        total_gpu_mem: gpu_mem_kib,
        ..RenderHost::default()
    }
}

fn kib(bytes: u64) -> i64 {
    i64::try_from(bytes / 1_024).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{settings, worker};
    use super::*;

    #[test]
    fn opencue_gets_what_windlass_leaves() {
        let held = |cores: i64, mem_kib: i64| Amounts { cores, mem_kib, ..Amounts::default() };
        let cases = [
            // Booked cpus and memory; held by procs; left for OpenCue, what its procs hold included.
            ((0.0, 0), held(0, 0), held(800, 16 << 20)),
            ((3.0, 4 << 30), held(0, 0), held(500, 12 << 20)),
            ((3.0, 4 << 30), held(100, 1 << 20), held(600, 13 << 20)),
            ((2.5, 2 << 30), held(250, 2 << 20), held(800, 16 << 20)),
            // Booked in the tables, and not yet on the worker.
            ((0.0, 0), held(250, 2 << 20), held(800, 16 << 20)),
            ((9.0, 17 << 30), held(0, 0), held(0, 0)),
        ];
        for ((cpus, memory), held, left) in cases {
            assert_eq!(share(&worker(cpus, memory), held).amounts, left, "{cpus} {memory} {held:?}");
        }
    }

    #[test]
    fn a_worker_is_reported_as_rqd_would() {
        let (own, other, worker) = (settings("opencue"), settings("opencue=no"), worker(1.0, 0));
        assert!(is_host(&worker, &own) && !is_host(&worker, &other));
        let silent = Worker { state: WorkerState::Suspect, ..worker.clone() };
        assert!(!is_host(&silent, &own));
        let host = report(&worker, &share(&worker, Amounts::default()), &own);
        assert_eq!((host.num_procs * host.cores_per_proc, host.nimby_locked), (700, false));
        assert_eq!(host.total_mem - HOST_SYSTEM_KIB, 16 << 20);
        assert_eq!(host.tags, ["windlass", "local.general", "linux"]);
        let drained = Worker { state: WorkerState::Draining, ..worker };
        assert!(is_host(&drained, &own));
        assert!(report(&drained, &share(&drained, Amounts::default()), &own).nimby_locked);
    }
}
