//! What the engine is told.

use super::Hello;
use crate::cache_keys::CacheKeys;
use crate::client_places::{PlaceInUse, PlaceRequest};
use crate::ids::{AllocId, Epoch, JobId, RequestId, TaskId, WorkerId};
use crate::job::{JobRecord, JobSpec, JobState, TaskResult};
use crate::licences::Limit;
use crate::load::pressure::LoadReport;
use crate::queues::QueueRecord;
use crate::residency::subqueues::ParkedDrift;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that can happen to the engine, but for the passing of time and the fate of batches.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Somebody submits a job.
    Submit(Box<Submit>),
    /// Somebody cancels a job.
    Cancel {
        /// Who waits.
        request: RequestId,
        /// The job.
        job: JobId,
    },
    /// Somebody holds a job back or lets it go on.
    Hold {
        /// Who waits.
        request: RequestId,
        /// The job.
        job: JobId,
        /// Back, or on.
        held: bool,
    },
    /// Somebody gives a job another priority.
    Prioritize {
        /// Who waits.
        request: RequestId,
        /// The job.
        job: JobId,
        /// Inside its queue, higher first.
        priority: i32,
    },
    /// Somebody wants the failed and cancelled tasks of a job run again.
    Retry {
        /// Who waits.
        request: RequestId,
        /// The job. One that the engine forgot it reads from the store first.
        job: JobId,
    },
    /// A running task waits for jobs that it submitted and needs no cpu meanwhile.
    Lend {
        /// The waiting task.
        task: TaskId,
    },
    /// The task's wait is over; answered when it has its cpus again.
    Reclaim {
        /// Who waits.
        request: RequestId,
        /// The task.
        task: TaskId,
    },
    /// An outside client wants a place.
    Alloc {
        /// Who waits.
        request: RequestId,
        /// The place.
        place: Box<PlaceRequest>,
    },
    /// An outside client does not wait for its place any more; its request is answered, unless it was before.
    Unalloc {
        /// The request by which it asked.
        alloc: RequestId,
    },
    /// An outside client gives its place back.
    Release {
        /// The place.
        alloc: AllocId,
    },
    /// Places in use on a worker, as the gateway of their clients knows them. Those that the engine does not know are taken
    /// up.
    PlacesInUse {
        /// The worker.
        worker: WorkerId,
        /// The places.
        places: Vec<PlaceInUse>,
    },
    /// A worker connected, or was asked to say everything again.
    Hello(Box<Hello>),
    /// A worker says from time to time that it is there, and what it holds.
    Beat {
        /// The worker.
        worker: WorkerId,
        /// The worker's clock when it sent this, given back with the lease.
        sent: u64,
        /// What it holds.
        inventory: Inventory,
    },
    /// What a worker's machine bears, once a second.
    Load {
        /// The worker.
        worker: WorkerId,
        /// The numbers.
        report: Box<LoadReport>,
    },
    /// What a worker's caches hold: all of it, said after each hello and when it changed.
    Caches {
        /// The worker.
        worker: WorkerId,
        /// Keys of late use.
        keys: CacheKeys,
    },
    /// Somebody sets a queue.
    SetQueue {
        /// Who waits.
        request: RequestId,
        /// The queue as it shall be.
        queue: QueueRecord,
    },
    /// Somebody sets a limit, or takes it away.
    SetLimit {
        /// Who waits.
        request: RequestId,
        /// Its name.
        name: String,
        /// As it shall be; `None` is no such limit.
        limit: Option<Limit>,
    },
    /// The link to a worker is gone: no new work for it, its tasks stay booked.
    Lost {
        /// The worker.
        worker: WorkerId,
    },
    /// Somebody wants a worker to take no new work, or to take work again.
    Drain {
        /// Who waits.
        request: RequestId,
        /// The worker.
        worker: WorkerId,
        /// No new work.
        draining: bool,
        /// Why, for people; it goes when the worker takes work again.
        note: Option<String>,
    },
    /// Somebody says that a worker, and all that ran on it, is gone for good.
    Forget {
        /// Who waits.
        request: RequestId,
        /// The worker.
        worker: WorkerId,
        /// Even while it is connected.
        force: bool,
    },
    /// Time has passed: [`Engine::next_wakeup`](super::Engine::next_wakeup) is due.
    Tick,
    /// An attempt's process started.
    Started {
        /// By whom.
        by: Report,
        /// When.
        at: Time,
    },
    /// An attempt ended.
    Finished {
        /// By whom.
        by: Report,
        /// How.
        result: TaskResult,
    },
    /// A task has the cpus again that it lent.
    Reclaimed {
        /// By whom.
        by: Report,
    },
    /// What the engine asked for was read from the store.
    Fetched {
        /// The number of what was asked.
        number: u64,
        /// The jobs, a page in its order; `None` if the read failed.
        records: Option<Vec<JobRecord>>,
    },
    /// The store's counts of what is parked were wrong, and are right now.
    Audited(Vec<ParkedDrift>),
    /// Jobs that ended long ago are gone from the store, and their keys with them.
    Deleted(BTreeSet<JobId>),
}

impl Event {
    /// Who waits for its answer.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Event::Submit(submit) => Some(submit.request),
            Event::Cancel { request, .. }
            | Event::Hold { request, .. }
            | Event::Prioritize { request, .. }
            | Event::Retry { request, .. }
            | Event::Reclaim { request, .. }
            | Event::Alloc { request, .. }
            | Event::SetQueue { request, .. }
            | Event::SetLimit { request, .. }
            | Event::Drain { request, .. }
            | Event::Forget { request, .. } => Some(*request),
            _ => None,
        }
    }
}

/// A submission with what the shell looked up for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Submit {
    /// Who waits.
    pub request: RequestId,
    /// The job.
    pub spec: JobSpec,
    /// Refuse it where no worker of the farm could ever run some step.
    pub placeable_only: bool,
    /// Hold it back from the start, until somebody lets it go on.
    pub held: bool,
    /// The job that the store already has under the submission's key.
    pub existing: Option<JobId>,
    /// The number of the store's next job when `existing` was read. The read did not see jobs from this number on.
    pub read_before: JobId,
    /// What the store says of the jobs in `spec.after` that it knows.
    pub outcomes: BTreeMap<JobId, JobState>,
}

impl Submit {
    /// A job that is refused for nothing but what is wrong with it, that waits for no job that the store knows, and whose
    /// key, if it has one, is new.
    pub fn new(request: RequestId, spec: JobSpec) -> Self {
        Submit {
            request,
            spec,
            placeable_only: false,
            held: false,
            existing: None,
            read_before: JobId(u64::MAX),
            outcomes: BTreeMap::new(),
        }
    }
}

/// Which attempt a worker's report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Who says so.
    pub worker: WorkerId,
    /// The worker's epoch when the attempt was sent to it.
    pub epoch: Epoch,
    /// The task.
    pub task: TaskId,
    /// The attempt's number.
    pub attempt: u32,
}

/// What a worker holds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inventory {
    /// The largest number of a message that it has seen.
    pub seq: u64,
    /// The attempts that it knows of and that were not acknowledged.
    pub held: Vec<Held>,
}

/// An attempt as the worker knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The attempt's number.
    pub attempt: u32,
    /// How far it is.
    pub phase: HeldPhase,
}

/// How far an attempt is at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldPhase {
    /// Waits for room.
    Queued,
    /// Runs since then.
    Running(Time),
    /// Runs since then and has lent its cpus, and does not have them again.
    Lent(Time),
    /// Ended; the worker reports the result until it is acknowledged.
    Ended,
    /// In a phase that a later release added: it is there, and no more is known of it.
    Unknown,
}
