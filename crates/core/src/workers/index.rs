//! Free room by kind of worker.
//!
//! Workers that are alike in what classes ask for are one group. Inside a group they stand in cells by
//! the powers of two of their free memory and free cpu, and inside a cell by load. A search looks only
//! into cells that have enough, and merges them by load until it has as many candidates as it wants: its
//! cost follows groups, cells and candidates, not workers. A requirement that few workers meet (a host's
//! name) is answered by the list of these.

use crate::bounds;
use crate::class::Class;
use crate::ids::WorkerId;
use crate::resources::Resources;
use crate::tags::{Attributes, Need};
use crate::worker::{Saturation, Worker};
use crate::workers::WorkerSummary;
use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// What the workers of a group have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct WorkerKind {
    /// Only of the keys that classes ask for.
    attributes: Attributes,
    gpus: bool,
    /// Only steps that ask for these workers find them.
    is_exclusive: bool,
    /// Only steps of these queues find them; `None` is all.
    for_queues: Option<BTreeSet<String>>,
    custom: BTreeSet<String>,
}

/// A kind that many workers share.
#[derive(Clone, Eq, Debug)]
struct Shared(Arc<WorkerKind>);

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shared {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most often it is the same one.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

/// Workers that are alike, of which limits their tasks hold all that a worker may, and whether they take only tasks with a
/// jobserver now.
type Group = (Shared, BTreeSet<String>, bool);

/// A worker that is listed.
#[derive(Clone, PartialEq, Debug)]
struct Member {
    kind: Shared,
    /// Where it stands; absent of one that takes no work.
    spot: Option<Spot>,
}

/// Where a worker stands: the limits of its group and whether that is for builds alone, its cell, and its place in that.
#[derive(Clone, PartialEq, Debug)]
struct Spot {
    full: BTreeSet<String>,
    only_builds: bool,
    cell: (u32, u32),
    entry: (u32, WorkerId),
}

/// Workers by load key; powers of two of free memory and free cpu.
type Cells = BTreeMap<(u32, u32), BTreeSet<(u32, WorkerId)>>;

/// Workers by what they are and by the room that they have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Index {
    saturation: Saturation,
    candidates_max: usize,
    /// The keys of attributes that tell groups apart.
    keys: BTreeSet<String>,
    groups: BTreeMap<Group, Cells>,
    members: BTreeMap<WorkerId, Member>,
    by_value: BTreeMap<String, BTreeMap<String, BTreeSet<WorkerId>>>,
    /// How many workers have each attribute.
    present: BTreeMap<String, u32>,
}

/// 0 for nothing, else one more than the power of two that it reaches.
fn bucket_of(amount: u64) -> u32 {
    u64::BITS - amount.leading_zeros()
}

impl Index {
    /// An empty index with that policy.
    pub fn new(saturation: Saturation) -> Self {
        Index { saturation, candidates_max: bounds::CANDIDATES_MAX, ..Index::default() }
    }

    /// An empty index that tells groups apart by the same keys.
    pub fn emptied(&self) -> Self {
        Index {
            saturation: self.saturation,
            candidates_max: self.candidates_max,
            keys: self.keys.clone(),
            ..Index::default()
        }
    }

    /// How many workers are scored for one task.
    pub fn set_candidates(&mut self, max: usize) {
        self.candidates_max = max;
    }

    /// How many workers are scored for one task.
    pub fn candidates_max(&self) -> usize {
        self.candidates_max
    }

    /// Which worker with room is filled first.
    pub fn saturation(&self) -> Saturation {
        self.saturation
    }

    /// True if groups must be told apart by one more key, and are from now on: the index is to be built
    /// again. A key with many values would make a group of each worker and is looked up by value instead.
    pub fn learn<'a>(&mut self, needs: impl Iterator<Item = &'a Need>) -> bool {
        let before = self.keys.len();
        for Need { key, .. } in needs {
            // What no worker has tells none apart.
            let is_useful = self.present.contains_key(key) && self.values_of(key) <= bounds::GROUP_VALUES_MAX;
            if is_useful && !self.keys.contains(key) {
                self.keys.insert(key.clone());
            }
        }
        self.keys.len() > before
    }

    /// A requirement that no worker meets for want of the attribute.
    pub fn unmet<'a>(&self, needs: &'a [Need]) -> Option<&'a Need> {
        needs.iter().find(|need| !self.present.contains_key(&need.key))
    }

    /// True if some of these attributes no worker had before.
    pub fn is_news(&self, attributes: &Attributes) -> bool {
        attributes.keys().any(|key| !self.present.contains_key(key))
    }

    /// True if a key has got too many values to tell groups apart by it, and is dropped: the index is to be built
    /// again.
    pub fn unlearn(&mut self) -> bool {
        let before = self.keys.len();
        let by_value = &self.by_value;
        // Twice as many, so that one worker more or less does not turn it over and over.
        self.keys.retain(|key| by_value.get(key).is_none_or(|of| of.len() <= 2 * bounds::GROUP_VALUES_MAX));
        self.keys.len() < before
    }

    /// How many values of an attribute workers have.
    fn values_of(&self, key: &str) -> usize {
        self.by_value.get(key).map_or(0, BTreeMap::len)
    }

    fn kind_of(&self, worker: &Worker) -> WorkerKind {
        let known = worker.record.attributes.iter().filter(|(key, _)| self.keys.contains(*key));
        WorkerKind {
            attributes: known.map(|(key, values)| (key.clone(), values.clone())).collect(),
            gpus: worker.record.capacity.gpus > 0,
            is_exclusive: worker.flags.class.is_exclusive,
            for_queues: worker.for_queues().cloned(),
            custom: worker.record.capacity.custom.keys().cloned().collect(),
        }
    }

    /// Where a worker stands: by its load with one more task of one core; nowhere if it takes no work, not even builds.
    fn spot_of(&self, worker: &Worker, summary: &WorkerSummary) -> Option<Spot> {
        if !summary.takes_builds() {
            return None;
        }
        let (free_cpu, free_memory) = summary.free();
        // Sixteenths of a percent, as far as 32 bits go.
        let load = (summary.load_with(100) * 1600.0).min(f64::from(u32::MAX)) as u32;
        let memory = (free_memory >> 20).min(u64::from(u32::MAX)) as u32;
        let key = match self.saturation {
            _ if worker.flags.class.most_memory_first => u32::MAX - memory,
            Saturation { memory: true, .. } => memory,
            Saturation { cores: true, .. } => free_cpu,
            _ => load,
        };
        Some(Spot {
            full: worker.licences.full().map(|(name, _)| name.to_owned()).collect(),
            only_builds: !summary.takes_work(),
            cell: (bucket_of(free_memory), bucket_of(free_cpu.into())),
            entry: (key, worker.record.id),
        })
    }

    /// Puts a listed worker where it belongs by its free room and its load, or nowhere if it takes no work.
    pub fn place(&mut self, worker: &Worker, summary: &WorkerSummary) {
        let spot = self.spot_of(worker, summary);
        self.move_to(worker.record.id, spot);
    }

    fn move_to(&mut self, id: WorkerId, spot: Option<Spot>) {
        let Some(member) = self.members.get_mut(&id).filter(|member| member.spot != spot) else { return };
        let kind = member.kind.clone();
        let before = std::mem::replace(&mut member.spot, spot.clone());
        // In first and then out: what it leaves is rarely empty in between.
        if let Some(Spot { full, only_builds, cell, entry }) = spot {
            let cells = self.groups.entry((kind.clone(), full, only_builds)).or_default();
            cells.entry(cell).or_default().insert(entry);
        }
        let Some(Spot { full, only_builds, cell, entry }) = before else { return };
        let group = (kind, full, only_builds);
        let Some(cells) = self.groups.get_mut(&group) else { return };
        let Some(workers) = cells.get_mut(&cell) else { return };
        workers.remove(&entry);
        if workers.is_empty() {
            cells.remove(&cell);
        }
        if cells.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// Takes note of what a worker is.
    pub fn list(&mut self, worker: &Worker) {
        let kind = self.kind_of(worker);
        // One copy of what many workers have in common.
        let key = (Shared(Arc::new(kind)), BTreeSet::new(), false);
        let kind =
            self.groups.get_key_value(&key).map_or_else(|| key.0.clone(), |((known, ..), _)| known.clone());
        self.members.insert(worker.record.id, Member { kind, spot: None });
        for key in worker.record.attributes.keys() {
            *self.present.entry(key.clone()).or_default() += 1;
        }
        for (key, values) in worker.record.attributes.iter().filter(|(_, values)| !values.is_empty()) {
            let by_value = self.by_value.entry(key.clone()).or_default();
            for value in values {
                by_value.entry(value.clone()).or_default().insert(worker.record.id);
            }
        }
    }

    /// Forgets what a worker was.
    pub fn unlist(&mut self, worker: &Worker) {
        self.move_to(worker.record.id, None);
        self.members.remove(&worker.record.id);
        for key in worker.record.attributes.keys() {
            let Some(count) = self.present.get_mut(key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.present.remove(key);
            }
        }
        for (key, values) in &worker.record.attributes {
            let Some(by_value) = self.by_value.get_mut(key) else { continue };
            for value in values {
                let Some(workers) = by_value.get_mut(value) else { continue };
                workers.remove(&worker.record.id);
                if workers.is_empty() {
                    by_value.remove(value);
                }
            }
            if by_value.is_empty() {
                self.by_value.remove(key);
            }
        }
    }

    /// The workers that have one of the values that a requirement names, busy ones too.
    pub fn holders(&self, need: &Need) -> impl Iterator<Item = WorkerId> {
        let by_value = self.by_value.get(&need.key);
        let lists = need.any_of.iter().filter_map(move |value| by_value?.get(value));
        lists.flatten().copied()
    }

    /// The workers that meet the most selective requirement, where these are few.
    fn few(&self, needs: &[Need]) -> Option<BTreeSet<WorkerId>> {
        let named = needs.iter().filter(|need| !need.any_of.is_empty());
        let lists = named.map(|need| {
            let by_value = self.by_value.get(&need.key);
            let lists = need.any_of.iter().filter_map(move |value| by_value?.get(value));
            (lists.clone().map(BTreeSet::len).sum::<usize>(), lists)
        });
        let (size, lists) = lists.min_by_key(|(size, _)| *size)?;
        (size <= self.candidates_max).then(|| lists.flatten().copied().collect())
    }

    /// Shows `consider` the workers that seem to have room for the class, least loaded first (or as the
    /// policy of saturation has it) and by id, until it has accepted as many as are `wanted`, and no fewer than are
    /// scored for one task.
    pub fn candidates(&self, class: &Class, wanted: usize, mut consider: impl FnMut(WorkerId) -> bool) {
        let (mut accepted, wanted) = (0, wanted.max(self.candidates_max));
        if self.unmet(&class.needs).is_some() {
            return;
        }
        if let Some(few) = self.few(&class.needs) {
            few.into_iter().for_each(|id| _ = consider(id));
            return;
        }
        let request = &class.request;
        let from = (bucket_of(request.memory), bucket_of(request.cpu.into()));
        let open_to = |((kind, full, only_builds), _): &(&Group, &Cells)| {
            (class.has_jobserver || !*only_builds)
                && full.is_disjoint(&class.limits)
                && kind.0.could_meet(class, request, &self.keys)
        };
        let mut open = BinaryHeap::new();
        for (_, cells) in self.groups.iter().filter(open_to) {
            for (_, cell) in cells.range((from.0, 0)..).filter(|((_, cpu), _)| *cpu >= from.1) {
                let mut entries = cell.iter();
                open.extend(entries.next().map(|first| Head(Reverse(*first), entries)));
            }
        }
        while accepted < wanted
            && let Some(mut first) = open.peek_mut()
        {
            let Reverse((_, id)) = first.0;
            accepted += usize::from(consider(id));
            match first.1.next() {
                Some(next) => first.0 = Reverse(*next),
                None => _ = PeekMut::pop(first),
            }
        }
    }
}

impl WorkerKind {
    fn could_meet(&self, class: &Class, request: &Resources, keys: &BTreeSet<String>) -> bool {
        let told_apart = class.needs.iter().filter(|need| keys.contains(&need.key));
        (request.gpus == 0 || self.gpus)
            && (!self.is_exclusive || class.suits_exclusive())
            && class.suits_queues(self.for_queues.as_ref())
            && request.custom.keys().all(|name| self.custom.contains(name))
            && told_apart.into_iter().all(|need| need.met_by(&self.attributes))
    }
}

/// The next worker of a cell, and those behind it.
struct Head<'a>(Reverse<(u32, WorkerId)>, std::collections::btree_set::Iter<'a, (u32, WorkerId)>);

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
