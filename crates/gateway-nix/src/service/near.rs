//! The machines that have the large inputs of a build. A build prefers to wait a while for one of them to copying the
//! inputs.

use super::needs::cache_key;
use crate::wire::BuildRequest;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Engine;
use windlass_core::bounds::PREFERS_PER_STEP_MAX;
use windlass_core::cache_keys::{Reads, missing};
use windlass_core::class::Class;
use windlass_core::plan::placement;
use windlass_core::worker::WorkerState;

/// Bytes of an input below which it does not count.
const INPUT_BYTES_MIN: u64 = 4 << 20;
/// Bytes of inputs by which a machine may lack more than another and still be preferred. Copying them takes 11 s at 100
/// Mbit/s, and a build waits for at most 20 s.
const FAR_BYTES: u64 = 128 << 20;
/// Machines of a farm. On a larger farm no machine is preferred.
const MACHINES_MAX: usize = 512;

/// The machines for which a build should wait a while; none if all are alike.
pub fn machines(engine: &Engine, class: &Class, build: &BuildRequest) -> BTreeSet<String> {
    let large = build.inputs.iter().filter(|(_, bytes)| bytes.is_some_and(|bytes| bytes >= INPUT_BYTES_MIN));
    let large: BTreeMap<String, Option<u64>> = large.map(|(name, bytes)| (cache_key(name), *bytes)).collect();
    let bytes: u64 = large.values().flatten().sum();
    if bytes < FAR_BYTES || engine.workers().len() > MACHINES_MAX {
        return BTreeSet::new();
    }
    let reads = Reads::of(&large);
    let fit = engine.workers().present().filter(|worker| {
        worker.record.state == WorkerState::Up && placement::eligible_when_idle(class, worker)
    });
    let lacking = fit.map(|worker| {
        let lacks = worker.reported.caches().map_or(bytes, |held| missing(&reads, held, None).bytes);
        (lacks, worker.record.name.clone())
    });
    let mut lacking: Vec<(u64, String)> = lacking.collect();
    lacking.sort();
    let Some((least, _)) = lacking.first().cloned() else { return BTreeSet::new() };
    let all = lacking.len();
    lacking.retain(|(lacks, _)| *lacks < least + FAR_BYTES);
    if lacking.len() == all {
        return BTreeSet::new();
    }
    lacking.into_iter().take(PREFERS_PER_STEP_MAX).map(|(_, name)| name).collect()
}
