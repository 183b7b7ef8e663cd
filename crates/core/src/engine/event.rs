//! What the engine is told.

use crate::cache_keys::CacheKeys;
use crate::client_places::{PlaceInUse, PlaceRequest};
use crate::ids::{AllocId, JobId, RequestId, TaskId, WorkerId};
use crate::job::{JobRecord, TaskResult};
use crate::ledger::{Hello, Inventory, Processes, Report, Submit};
use crate::licences::Limit;
use crate::load::pressure::LoadReport;
use crate::queues::QueueRecord;
use crate::ranges::RangeSet;
use crate::residency::subqueues::ParkedDrift;
use crate::score::history::{Sample, Signature};
use crate::time::Time;
use std::collections::BTreeSet;

/// Everything that can happen to the engine, but for the passing of time and the fate of batches. A `request` is
/// answered once, to the client that waits for it.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of the fields say it all")]
pub enum Event {
    /// A user submits a job.
    Submit(Box<Submit>),
    /// A user cancels a job.
    Cancel { request: RequestId, job: JobId },
    /// A user holds a job back or lets it go on.
    Hold { request: RequestId, job: JobId, held: bool },
    /// A user gives a job another priority.
    Prioritize {
        request: RequestId,
        job: JobId,
        /// Inside its queue, higher first.
        priority: i32,
    },
    /// A user wants the failed and cancelled tasks of a job run again.
    Retry {
        request: RequestId,
        /// The job. One that the engine forgot it reads from the store first.
        job: JobId,
    },
    /// A user cancels tasks of a job.
    CancelTasks {
        request: RequestId,
        job: JobId,
        /// Their places in the job.
        tasks: RangeSet,
    },
    /// A user wants those of these tasks run again that failed or were cancelled.
    RetryTasks {
        request: RequestId,
        /// The job. One that the engine forgot it reads from the store first.
        job: JobId,
        /// Their places in the job.
        tasks: RangeSet,
    },
    /// A running task waits for jobs that it submitted and needs no cpu meanwhile.
    Lend { task: TaskId },
    /// The task's wait is over; answered when it has its cpus again.
    Reclaim { request: RequestId, task: TaskId },
    /// An outside client wants a place.
    Alloc { request: RequestId, place: Box<PlaceRequest> },
    /// An outside client does not wait for its place any more; its request is answered, unless it was before.
    Unalloc {
        /// The request by which it asked.
        alloc: RequestId,
    },
    /// An outside client gives its place back.
    Release { alloc: AllocId },
    /// Places in use on a worker, as the gateway of their clients knows them. Those that the engine does not know are taken
    /// up.
    PlacesInUse { worker: WorkerId, places: Vec<PlaceInUse> },
    /// An outside client says what the work in its place holds now.
    OutsideWorkHolds { alloc: AllocId, bytes: u64 },
    /// An outside client says what work of these signatures held and took.
    OutsideWorkEnded { signatures: Vec<Signature>, sample: Sample },
    /// How many places of its system a worker gives from now on, as a gateway says it. `name` is the amount of which a
    /// worker has one for each place.
    OfferPlaces { worker: WorkerId, name: String, count: u64 },
    /// A worker connected, or was asked to say everything again.
    Hello(Box<Hello>),
    /// A worker says from time to time that it is there, and what it holds.
    Beat {
        worker: WorkerId,
        /// The worker's clock when it sent this, given back with the lease.
        sent: u64,
        inventory: Inventory,
    },
    /// What a worker's machine bears, once a second.
    Load { worker: WorkerId, report: Box<LoadReport> },
    /// What a worker's caches hold: all of it, said after each hello and when it changed.
    Caches {
        worker: WorkerId,
        /// Keys of late use.
        keys: CacheKeys,
    },
    /// An administrator sets a queue.
    SetQueue {
        request: RequestId,
        /// The queue as it shall be.
        queue: QueueRecord,
    },
    /// An administrator takes away what was set of a queue.
    RemoveQueue { request: RequestId, name: String },
    /// An administrator sets a limit, or takes it away.
    SetLimit {
        request: RequestId,
        name: String,
        /// As it shall be; `None` takes it away.
        limit: Option<Limit>,
    },
    /// The link to a worker is gone: no new work for it, its tasks stay booked.
    Lost { worker: WorkerId },
    /// An administrator wants a worker to take no new work, or to take work again.
    Drain {
        request: RequestId,
        worker: WorkerId,
        draining: bool,
        /// Why, for people; it goes when the worker takes work again.
        note: Option<String>,
    },
    /// An administrator says that a worker, and all that ran on it, is gone for good.
    Forget {
        request: RequestId,
        worker: WorkerId,
        /// Even while it is connected.
        force: bool,
    },
    /// Time has passed: [`Engine::next_wakeup`](super::Engine::next_wakeup) is due.
    Tick,
    /// An attempt's process started.
    Started { by: Report, at: Time },
    /// An attempt ended.
    Finished { by: Report, result: TaskResult },
    /// A task has the cpus again that it lent.
    Reclaimed { by: Report },
    /// A task with a jobserver runs this on its worker, said when it changed and once a second at most.
    Processes {
        worker: WorkerId,
        task: TaskId,
        /// The number of the attempt.
        attempt: u32,
        said: Processes,
    },
    /// What the engine asked for was read from the store.
    Fetched {
        /// The number of what was asked.
        number: u64,
        /// The jobs, a page in its order; `None` if the read failed.
        records: Option<Vec<JobRecord>>,
    },
    /// The store's counts of parked jobs were wrong, and are right now.
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
            | Event::CancelTasks { request, .. }
            | Event::RetryTasks { request, .. }
            | Event::Reclaim { request, .. }
            | Event::Alloc { request, .. }
            | Event::SetQueue { request, .. }
            | Event::RemoveQueue { request, .. }
            | Event::SetLimit { request, .. }
            | Event::Drain { request, .. }
            | Event::Forget { request, .. } => Some(*request),
            _ => None,
        }
    }
}
