//! Messages on their way to workers. A start needs what its task runs: where that has to be read first, the start and
//! the numbered messages that follow it to the same worker wait, for a worker passes over a start that comes behind a
//! message with a larger number. Leases, kills and the wish for another hello overtake them, without a number: tasks must
//! not end, nor go on, because a body is read slowly. Acknowledgements keep their place. One that overtook a repeated start
//! of its attempt would let the worker forget the attempt and run it a second time.

use crate::bodies::{Bodies, BodyLookup};
use crate::external::ExternalTasks;
use crate::link::{Delivery, Links, StartInfo};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windlass_api::ChunkValues;
use windlass_core::bounds::HELD_MAX;
use windlass_core::engine::{Engine, Send as Message, WorkerCommand};
use windlass_core::{TaskId, WorkerId};

/// Messages to one worker that wait behind its first, and whose bodies are read along with that one's.
const AHEAD_MAX: usize = 64;
/// Messages that may wait for one worker. A worker for which more wait says hello again, and gets what it lacks then.
const WAITING_MAX: usize = 2 * HELD_MAX;

/// What is to be sent.
pub struct Outgoing {
    links: Arc<Links>,
    external: Arc<ExternalTasks>,
    pub bodies: Bodies,
    /// By worker, those that wait for a body, and what follows them.
    waiting: BTreeMap<WorkerId, Waiting>,
    /// Starts that cannot be sent, and why.
    unsendable: Vec<(WorkerId, TaskId, u32, &'static str)>,
}

/// Messages that wait for one worker, in their order.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    /// The attempts that their starts begin.
    starts: BTreeSet<(TaskId, u32)>,
}

impl Waiting {
    fn push(&mut self, message: Message) {
        self.starts.extend(attempts_of(&message.order));
        self.messages.push_back(message);
    }

    /// True if a message may go out before those that wait.
    fn is_overtaken_by(&self, order: &WorkerCommand) -> bool {
        match order {
            WorkerCommand::Lease { .. } | WorkerCommand::Resync => true,
            // The kill of what has not been started yet would come before its start.
            WorkerCommand::Kill { task, attempt } => !self.starts.contains(&(*task, *attempt)),
            _ => false,
        }
    }
}

/// The attempts that a start begins: its own, and those of the tasks that ride with it.
fn attempts_of(order: &WorkerCommand) -> Vec<(TaskId, u32)> {
    let WorkerCommand::Start { task, attempt, riders, .. } = order else { return Vec::new() };
    let riding = riders.iter().map(|(index, number)| (TaskId { index: *index, ..*task }, *number));
    std::iter::once((*task, *attempt)).chain(riding).collect()
}

/// False of a start that was sent again since, with a larger number, or whose attempt is not booked any more.
fn is_current(engine: &Engine, message: &Message) -> bool {
    let WorkerCommand::Start { task, attempt, .. } = message.order else { return true };
    engine.attempt(task).is_some_and(|booked| {
        booked.number == attempt && booked.worker == message.worker && booked.seq() <= message.seq
    })
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

    /// Sends messages, in their order for each worker but for those that overtake.
    pub fn send(&mut self, engine: &Engine, messages: impl ExactSizeIterator<Item = Message>) {
        // Room for what each worker gets, if all get as much.
        let mut parcels = Parcels { room: messages.len() / self.links.len().max(1), ..Parcels::default() };
        for message in messages {
            let Some(message) = self.external.take(engine, message) else { continue };
            let Some(waiting) = self.waiting.get_mut(&message.worker) else {
                if let Some(message) = self.pack(engine, message, &mut parcels) {
                    self.waiting.entry(message.worker).or_default().push(message);
                }
                continue;
            };
            if waiting.is_overtaken_by(&message.order) {
                // With a number the worker would pass over the starts that it overtakes.
                let Message { worker, order, .. } = message;
                parcels.add(worker, Delivery { seq: 0, order, start: None });
                continue;
            }
            if waiting.messages.len() >= WAITING_MAX {
                self.let_begin_again(message.worker);
                continue;
            }
            if waiting.messages.len() < AHEAD_MAX {
                want_ahead(&mut self.bodies, &message);
            }
            waiting.push(message);
        }
        self.deliver(parcels);
    }

    /// Bodies were read: sends what waited for them.
    pub fn bodies_read(&mut self, engine: &Engine) {
        let mut parcels = Parcels::default();
        for (worker, Waiting { mut messages, .. }) in std::mem::take(&mut self.waiting) {
            while let Some(message) = messages.pop_front() {
                if !is_current(engine, &message) {
                    continue;
                }
                if let Some(message) = self.pack(engine, message, &mut parcels) {
                    let ahead = messages.iter().take(AHEAD_MAX);
                    ahead.for_each(|message| want_ahead(&mut self.bodies, message));
                    messages.push_front(message);
                    let starts = messages.iter().flat_map(|message| attempts_of(&message.order)).collect();
                    self.waiting.insert(worker, Waiting { messages, starts });
                    break;
                }
            }
        }
        self.bodies.forget_absent();
        self.deliver(parcels);
    }

    /// Too much waits for a worker. What waits is as if lost on the way, and the worker says hello again.
    fn let_begin_again(&mut self, worker: WorkerId) {
        self.waiting.remove(&worker);
        if let Some(link) = self.links.get(worker) {
            link.begin_again();
        }
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
