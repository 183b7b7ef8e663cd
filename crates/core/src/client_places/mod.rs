//! Places: room on workers that outside clients hold for work that they run by themselves, such as compiles of
//! sccache. A request waits for its turn like a step with one task, in a queue like any other, and for a bounded time.
//! Nothing of this is durable: a gateway knows from its own peers which places are in use, and says so after a restart.
//!
//! This module owns the requests and the places. It books them on the planner's workers and queues, and answers requests.

mod held;
mod memory;
mod requests;

use crate::cache_keys::Reads;
use crate::class::Class;
use crate::ids::{AllocId, ClassId, JobId, QueueId, RequestId, StepKey, WorkerId};
use crate::job::{Hints, QueuedStep};
pub use crate::outbox::NoPlace;
use crate::queues::{Charge, dominant_share};
use crate::resources::Resources;
use crate::score::history::Signature;
use crate::tags::Need;
use crate::time::Time;
use crate::workers::Workers;
pub use memory::{MemoryBasis, PlaceMemory};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers from here on are requests for places where others are jobs. No store gives numbers so large.
const FIRST_KEY: u64 = 1 << 63;

/// A place that an outside client asks for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlaceRequest {
    /// The queue in which the request waits. A gateway makes one for each of its clients, so that they share the farm
    /// by weight, with each other and with everybody's tasks.
    pub queue: String,
    /// What it takes turns as inside the queue, where others have their users: the client's worktree, or its user. `None`
    /// is the queue's first part.
    pub turn_of: Option<String>,
    /// How much. Without memory it is booked with what is known of `shapes`, if it has some.
    pub amounts: Resources,
    /// What its work is, from exact to general, for what is known of its memory. A client that says so tells what the work
    /// holds while it runs.
    pub shapes: Vec<Signature>,
    /// It takes a compile slot of the worker, which may be more cpu than `amounts`: see
    /// [`slot_cpu`](crate::load::formula::slot_cpu).
    pub is_slot: bool,
    /// What the worker must be.
    pub needs: Vec<Need>,
    /// Limits of which it holds one each.
    pub limits: BTreeSet<String>,
    /// Cache keys that the work reads there, such as its toolchain, with their bytes where these are known.
    pub reads: BTreeMap<String, Option<u64>>,
    /// What else is known of the work.
    pub hints: Hints,
    /// A worker that it should not get if another one could have it: it failed there.
    pub avoids: Option<WorkerId>,
    /// Milliseconds that it may wait; with 0 it gets a place at once or none.
    pub wait_max_ms: u64,
    /// The work runs already, because it was given its place before this engine began: it gets one at once, whatever
    /// room there is.
    pub runs: bool,
}

/// A place that a client holds.
#[derive(Clone, PartialEq, Debug)]
pub struct HeldPlace {
    /// Where.
    pub worker: WorkerId,
    /// The queue that is charged for it.
    pub queue: QueueId,
    /// What it takes of the worker.
    pub amounts: Resources,
    /// Limits of which it holds one each.
    pub limits: BTreeSet<String>,
    /// What is known of its memory.
    pub memory: PlaceMemory,
    /// Since when.
    pub since: Time,
    /// What the queue was charged for it so far.
    pub(crate) charged: u64,
    /// Its dominant share of the worker, in hundredths of a core, and since when it is that.
    pub(crate) share: (u32, Time),
    /// What its shares before that cost.
    pub(crate) cost: u64,
}

/// A place that a client uses, as its gateway knows it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlaceInUse {
    /// Its number.
    pub alloc: AllocId,
    /// The queue of its client.
    pub queue: String,
    /// What it takes of the worker.
    pub amounts: Resources,
}

/// A request that waits.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) request: RequestId,
    pub(crate) queue: QueueId,
    pub(crate) class: ClassId,
    pub(crate) queued: QueuedStep,
    /// Where it names no memory, with what it needs to start.
    pub(crate) amounts: Resources,
    pub(crate) shapes: Vec<Signature>,
    /// What its memory follows from.
    pub(crate) basis: MemoryBasis,
    pub(crate) is_slot: bool,
    pub(crate) reads: Reads,
    pub(crate) hints: Hints,
    pub(crate) avoids: Option<WorkerId>,
    pub(crate) since: Time,
    pub(crate) until: Time,
    /// The number of what it reads: work that reads the same is expected to behave alike.
    pub(crate) profile: u64,
}

/// All places and the requests for them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClientPlaces {
    charge: Charge,
    next_alloc: u64,
    next_key: u64,
    held: BTreeMap<AllocId, HeldPlace>,
    waiting: BTreeMap<StepKey, QueuedRequest>,
    by_request: BTreeMap<RequestId, StepKey>,
    deadlines: BTreeSet<(Time, StepKey)>,
}

impl ClientPlaces {
    /// None yet. Their numbers follow `first`; a number that differs with each start makes sure that no number of an
    /// earlier start means a place of this one. `charge` says what they cost their queues.
    pub fn new(first: u64, charge: Charge) -> Self {
        ClientPlaces { charge, next_alloc: first, next_key: FIRST_KEY, ..ClientPlaces::default() }
    }

    /// A place that is held.
    pub fn get(&self, alloc: AllocId) -> Option<&HeldPlace> {
        self.held.get(&alloc)
    }

    /// All places that are held.
    pub fn held(&self) -> impl Iterator<Item = (AllocId, &HeldPlace)> {
        self.held.iter().map(|(alloc, place)| (*alloc, place))
    }

    /// How many requests wait.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// The requests that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (StepKey, &QueuedRequest)> {
        self.waiting.iter().map(|(key, waiting)| (*key, waiting))
    }

    /// True if a request waits under this key.
    pub fn waits(&self, key: StepKey) -> bool {
        self.waiting.contains_key(&key)
    }

    /// Bytes that a request that waits will be booked with; `None` where that is not known, or none will be.
    pub fn will_book(&self, request: RequestId) -> Option<u64> {
        let waiting = self.find(self.key_of(request)?)?;
        let is_known = waiting.basis != MemoryBasis::Unknown && waiting.amounts.memory > 0;
        is_known.then_some(waiting.amounts.memory)
    }

    /// The key under which a request waits.
    pub fn key_of(&self, request: RequestId) -> Option<StepKey> {
        self.by_request.get(&request).copied()
    }

    /// True of keys of requests; all others are of steps.
    pub(crate) fn is_key(key: StepKey) -> bool {
        key.job.0 >= FIRST_KEY
    }

    /// The key of the next request.
    fn next_key(&mut self) -> StepKey {
        self.next_key += 1;
        StepKey { job: JobId(self.next_key), step: 0 }
    }

    pub(crate) fn find(&self, key: StepKey) -> Option<&QueuedRequest> {
        self.waiting.get(&key)
    }

    fn wait(&mut self, waiting: QueuedRequest) {
        let key = waiting.queued.step();
        self.by_request.insert(waiting.request, key);
        self.deadlines.insert((waiting.until, key));
        self.waiting.insert(key, waiting);
    }

    /// A request waits no more.
    fn take(&mut self, key: StepKey) -> Option<QueuedRequest> {
        let waiting = self.waiting.remove(&key)?;
        self.by_request.remove(&waiting.request);
        self.deadlines.remove(&(waiting.until, key));
        Some(waiting)
    }

    /// When the next request has waited for as long as it may.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A request that has waited for as long as it may.
    pub(crate) fn next_expired(&self, now: Time) -> Option<StepKey> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, key)| *key)
    }

    /// The number of the next place.
    fn next_alloc(&mut self) -> AllocId {
        let alloc = AllocId(self.next_alloc);
        self.next_alloc = self.next_alloc.wrapping_add(1);
        alloc
    }

    fn release(&mut self, alloc: AllocId) -> Option<HeldPlace> {
        self.held.remove(&alloc)
    }

    /// The places on a worker.
    pub(crate) fn on(&self, worker: WorkerId) -> Vec<AllocId> {
        let here = self.held.iter().filter(|(_, place)| place.worker == worker);
        here.map(|(alloc, _)| *alloc).collect()
    }

    /// Compares the indexes with what waits, and the places with what workers hold for outside clients.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub(crate) fn check(&self, workers: &Workers) -> Result<(), String> {
        let deadlines: BTreeSet<_> =
            self.waiting.iter().map(|(key, waiting)| (waiting.until, *key)).collect();
        if deadlines != self.deadlines {
            return Err("requests for places wait without a deadline".to_owned());
        }
        let requests: BTreeMap<_, _> =
            self.waiting.iter().map(|(key, waiting)| (waiting.request, *key)).collect();
        if requests != self.by_request {
            return Err("requests for places are not found by their request".to_owned());
        }
        for worker in workers.iter() {
            let here = self.held.iter().filter(|(_, place)| place.worker == worker.record.id);
            let held: BTreeMap<_, _> = here.map(|(alloc, place)| (*alloc, place.amounts.clone())).collect();
            if held != *worker.booked.places() {
                return Err(format!(
                    "worker {}: holds {:?}, clients {held:?}",
                    worker.record.name,
                    worker.booked.places()
                ));
            }
            let here = held.keys().filter_map(|alloc| self.held.get_key_value(alloc));
            let unused = here.filter_map(|(alloc, place)| {
                Some((*alloc, place.memory.unused_bytes(place.amounts.memory)?))
            });
            if unused.collect::<BTreeMap<_, _>>() != worker.booked.unused() {
                return Err(format!("worker {}: clients do not use other memory", worker.record.name));
            }
            let mut sum = Resources::default();
            held.values().for_each(|amounts| sum.add(amounts));
            if sum != *worker.booked.of_places() {
                return Err(format!("worker {}: clients hold {sum:?} in all", worker.record.name));
            }
        }
        Ok(())
    }
}

/// The part of a worker that a place holds, in hundredths of a core. Named amounts do not count: they number the places,
/// and a gateway gives fewer of them where a worker does badly.
fn share_of(amounts: &Resources, capacity: &Resources) -> u32 {
    let of_machine = Resources { custom: BTreeMap::new(), ..amounts.clone() };
    dominant_share(&of_machine, 0, capacity)
}

impl PlaceRequest {
    /// What it asks of a worker, with its queue if some workers are for that one alone.
    pub(crate) fn class(&self, queue: Option<String>) -> Class {
        Class {
            queue,
            request: self.amounts.clone(),
            needs: self.needs.clone(),
            limits: self.limits.clone(),
            is_external: true,
            ..Class::default()
        }
    }
}
