//! Messages on their way to workers. A start needs what its task runs: where that has to be read first, the start and
//! all that follows it to the same worker wait, for a worker passes over a message that comes behind a later one.

use crate::bodies::{Bodies, BodyLookup};
use crate::external::ExternalTasks;
use crate::link::{Delivery, Links, StartInfo};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use windlass_api::ChunkValues;
use windlass_core::engine::{Engine, Send as Message, WorkerCommand};
use windlass_core::{TaskId, WorkerId};

/// Messages to one worker that wait behind its first, and whose bodies are read along with that one's.
const AHEAD_MAX: usize = 64;

/// What is to be sent.
pub struct Outgoing {
    links: Arc<Links>,
    external: Arc<ExternalTasks>,
    pub bodies: Bodies,
    /// By worker, those that wait for a body, and what follows them.
    waiting: BTreeMap<WorkerId, VecDeque<Message>>,
    /// Starts that cannot be sent, and why.
    unsendable: Vec<(WorkerId, TaskId, u32, &'static str)>,
}

/// Messages that go out together, by worker.
#[derive(Default)]
struct Parcels {
    of: FxHashMap<WorkerId, Vec<Delivery>>,
    /// Messages for which a new parcel has room from the beginning.
    room: usize,
}

impl Parcels {
    fn add(&mut self, worker: WorkerId, message: Delivery) {
        self.of.entry(worker).or_insert_with(|| Vec::with_capacity(self.room)).push(message);
    }
}

/// What a start needs.
enum Need {
    Here(StartInfo),
    /// Its body is being read.
    Later,
    /// Its job was cancelled or reloaded meanwhile: there is nothing to start.
    Gone,
    /// Its body cannot be sent.
    Unfit(&'static str),
}

impl Outgoing {
    pub fn new(links: Arc<Links>, external: Arc<ExternalTasks>) -> Self {
        Outgoing {
            links,
            external,
            bodies: Bodies::default(),
            waiting: BTreeMap::new(),
            unsendable: Vec::new(),
        }
    }

    /// Sends messages, in their order for each worker.
    pub fn send(&mut self, engine: &Engine, messages: impl ExactSizeIterator<Item = Message>) {
        // Room for what each worker gets, if all get as much.
        let mut parcels = Parcels { room: messages.len() / self.links.len().max(1), ..Parcels::default() };
        for message in messages {
            let Some(message) = self.external.take(engine, message) else { continue };
            if let Some(waiting) = self.waiting.get_mut(&message.worker) {
                if waiting.len() < AHEAD_MAX {
                    want_ahead(&mut self.bodies, &message);
                }
                waiting.push_back(message);
            } else if let Some(message) = self.pack(engine, message, &mut parcels) {
                self.waiting.entry(message.worker).or_default().push_back(message);
            }
        }
        self.deliver(parcels);
    }

    /// Bodies were read: sends what waited for them.
    pub fn bodies_read(&mut self, engine: &Engine) {
        let mut parcels = Parcels::default();
        for (worker, mut messages) in std::mem::take(&mut self.waiting) {
            while let Some(message) = messages.pop_front() {
                if let Some(message) = self.pack(engine, message, &mut parcels) {
                    let ahead = messages.iter().take(AHEAD_MAX);
                    ahead.for_each(|message| want_ahead(&mut self.bodies, message));
                    messages.push_front(message);
                    self.waiting.insert(worker, messages);
                    break;
                }
            }
        }
        self.bodies.forget_absent();
        self.deliver(parcels);
    }

    /// A worker is lost or said hello: what waits for it is as if lost on the way, and sent again where it matters.
    pub fn forget(&mut self, worker: WorkerId) {
        self.waiting.remove(&worker);
    }

    /// The starts that could not be sent since this was asked last: worker, task, attempt and why.
    pub fn take_unsendable(&mut self) -> Vec<(WorkerId, TaskId, u32, &'static str)> {
        std::mem::take(&mut self.unsendable)
    }

    /// Adds a message to its worker's parcel; gives it back where its body is not here.
    fn pack(&mut self, engine: &Engine, message: Message, parcels: &mut Parcels) -> Option<Message> {
        let start = match &message.order {
            WorkerCommand::Start { task, step, attempt, riders, .. } => {
                match self.start_info(engine, *task, *step, riders) {
                    Need::Here(start) => Some(start),
                    Need::Later => return Some(message),
                    Need::Gone => return None,
                    Need::Unfit(why) => {
                        self.unsendable.push((message.worker, *task, *attempt, why));
                        return None;
                    }
                }
            }
            _ => None,
        };
        let Message { worker, seq, order } = message;
        parcels.add(worker, Delivery { seq, order, start });
        None
    }

    fn start_info(&mut self, engine: &Engine, task: TaskId, step: u16, riders: &[(u32, u32)]) -> Need {
        let Some(job) = engine.job(task.job) else { return Need::Gone };
        let Some(base) = job.steps.get(usize::from(step)).map(|step| step.base) else { return Need::Gone };
        let body = match self.bodies.look((task.job, step)) {
            BodyLookup::Found(body) => body,
            BodyLookup::Missing => return Need::Later,
            BodyLookup::Unfit(why) => return Need::Unfit(why),
            BodyLookup::None => return Need::Gone,
        };
        let place = task.index - base;
        let others: Vec<u32> = riders.iter().map(|(index, _)| index - base).collect();
        let ChunkValues { value, params, each } = body.chunk_values(place, &others);
        Need::Here(StartInfo { body, value, params, chunk_values: each, job: job.spec.clone() })
    }

    fn deliver(&self, parcels: Parcels) {
        for (worker, parcel) in parcels.of {
            if let Some(link) = self.links.get(worker) {
                link.deliver(parcel);
            }
        }
    }
}

fn want_ahead(bodies: &mut Bodies, message: &Message) {
    if let WorkerCommand::Start { task, step, .. } = message.order {
        bodies.want_ahead((task.job, step));
    }
}
