//! Free room by class of worker.
//!
//! Workers with equal attributes are one group. Inside a group they stand in buckets by the power of
//! two of their free memory, and inside a bucket by free cpu. A search looks at one worker of each
//! bucket that has enough memory, plus those of the boundary bucket that have too little: its cost
//! follows groups and buckets, not workers.

use crate::ids::WorkerId;
use crate::resources::Resources;
use crate::tags::Attributes;
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// Which of several workers with room is taken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saturation {
    /// Fill the worker with fewest free cpus first, instead of spreading.
    pub cores: bool,
    /// Among buckets of memory take the tightest first, instead of the roomiest.
    pub memory: bool,
}

type Bucket = BTreeSet<(u32, WorkerId)>;

/// The index.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Index {
    saturation: Saturation,
    groups: BTreeMap<Attributes, BTreeMap<u32, Bucket>>,
}

/// 0 for no memory, else one more than the power of two that it reaches.
fn bucket_of(memory: u64) -> u32 {
    u64::BITS - memory.leading_zeros()
}

impl Index {
    /// An empty index with that policy.
    pub fn new(saturation: Saturation) -> Self {
        Index { saturation, groups: BTreeMap::new() }
    }

    /// The policy.
    pub fn saturation(&self) -> Saturation {
        self.saturation
    }

    /// Where a worker with this much free cpu stands in its bucket: first is taken first.
    fn rank(&self, free_cpu: u32) -> u32 {
        if self.saturation.cores { free_cpu } else { u32::MAX - free_cpu }
    }

    /// Puts a worker in by its free room.
    pub fn check_in(&mut self, worker: &Worker) {
        let free = worker.free();
        let entry = (self.rank(free.cpu), worker.id);
        if let Some(buckets) = self.groups.get_mut(&worker.attributes) {
            buckets.entry(bucket_of(free.memory)).or_default().insert(entry);
        } else {
            let buckets = BTreeMap::from([(bucket_of(free.memory), Bucket::from([entry]))]);
            self.groups.insert(worker.attributes.clone(), buckets);
        }
    }

    /// Takes a worker out; its room must be what it was at `check_in`.
    pub fn check_out(&mut self, worker: &Worker) {
        let free = worker.free();
        let entry = (self.rank(free.cpu), worker.id);
        let Some(buckets) = self.groups.get_mut(&worker.attributes) else { return };
        let Some(bucket) = buckets.get_mut(&bucket_of(free.memory)) else { return };
        bucket.remove(&entry);
        if bucket.is_empty() {
            buckets.remove(&bucket_of(free.memory));
        }
        if buckets.is_empty() {
            self.groups.remove(&worker.attributes);
        }
    }

    /// The best worker with room for `request` in a group that `group` accepts and that `fits`
    /// accepts itself. Ties go to the smaller id.
    pub fn find(
        &self,
        request: &Resources,
        group: impl Fn(&Attributes) -> bool,
        fits: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        let mut best: Option<((u32, u32), WorkerId)> = None;
        for buckets in self.groups.iter().filter(|(attributes, _)| group(attributes)).map(|(_, b)| b) {
            for (number, bucket) in buckets.range(bucket_of(request.memory)..) {
                let memory_rank = if self.saturation.memory { *number } else { u32::MAX - number };
                let Some((cpu_rank, id)) = self.first_in(bucket, request.cpu, &fits) else { continue };
                let found = (
                    if self.saturation.memory { (memory_rank, cpu_rank) } else { (cpu_rank, memory_rank) },
                    id,
                );
                if best.is_none_or(|b| found < b) {
                    best = Some(found);
                }
            }
        }
        best.map(|(_, id)| id)
    }

    fn first_in(
        &self,
        bucket: &Bucket,
        cpu: u32,
        fits: impl Fn(WorkerId) -> bool,
    ) -> Option<(u32, WorkerId)> {
        let zero = WorkerId(0);
        let enough = if self.saturation.cores {
            bucket.range((cpu, zero)..)
        } else {
            bucket.range(..=(u32::MAX - cpu, WorkerId(u64::MAX)))
        };
        enough.into_iter().find(|(_, id)| fits(*id)).copied()
    }
}
