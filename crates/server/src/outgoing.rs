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

pub struct Outgoing {
    links: Arc<Links>,
    external: Arc<ExternalTasks>,
    pub bodies: Bodies,
    /// By worker, those that wait for a body, and what follows them.
    waiting: BTreeMap<WorkerId, HeldBack>,
    /// Starts that cannot be sent, and why.
    unsendable: Vec<(WorkerId, TaskId, u32, &'static str)>,
}

/// Messages that wait for one worker, in their order.
#[derive(Default)]
struct HeldBack {
    messages: VecDeque<Message>,
    /// The attempts that their starts begin.
    starts: BTreeSet<(TaskId, u32)>,
}

impl HeldBack {
    fn push(&mut self, message: Message) {
        self.starts.extend(attempts_of(&message.command));
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
    let WorkerCommand::Start { task, attempt, .. } = message.command else { return true };
    engine.attempt(task).is_some_and(|booked| {
        booked.number == attempt && booked.worker == message.worker && booked.seq <= message.seq
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
            if waiting.is_overtaken_by(&message.command) {
                // With a number the worker would pass over the starts that it overtakes.
                let Message { worker, command: order, .. } = message;
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
        for (worker, HeldBack { mut messages, .. }) in std::mem::take(&mut self.waiting) {
            while let Some(message) = messages.pop_front() {
                if !is_current(engine, &message) {
                    continue;
                }
                if let Some(message) = self.pack(engine, message, &mut parcels) {
                    let ahead = messages.iter().take(AHEAD_MAX);
                    ahead.for_each(|message| want_ahead(&mut self.bodies, message));
                    messages.push_front(message);
                    let starts = messages.iter().flat_map(|message| attempts_of(&message.command)).collect();
                    self.waiting.insert(worker, HeldBack { messages, starts });
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
        let start = match &message.command {
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
        let Message { worker, seq, command: order } = message;
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
    if let WorkerCommand::Start { task, step, .. } = message.command {
        bodies.want_ahead((task.job, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::LoadedBody;
    use crate::link::WorkerLink;
    use std::sync::Mutex;
    use windlass_core::engine::{Event, Hello, Outbox, Report, Settings, Submit};
    use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
    use windlass_core::{RequestId, Resources, Time};

    const NOW: Time = Time(1 << 40);
    const WORKER: WorkerId = WorkerId(1);

    /// A connection that notes in words what comes.
    #[derive(Default)]
    struct NotingLink(Mutex<Vec<String>>);

    impl WorkerLink for NotingLink {
        fn id(&self) -> u64 {
            1
        }

        fn deliver(&self, parcel: Vec<Delivery>) {
            let words = parcel.iter().map(|delivery| words_of(delivery.seq, &delivery.order));
            self.0.lock().unwrap().extend(words);
        }

        fn refuse(&self, why: &str) {
            self.0.lock().unwrap().push(why.to_owned());
        }
    }

    fn words_of(seq: u64, order: &WorkerCommand) -> String {
        match order {
            WorkerCommand::Start { task, .. } => format!("{seq} start {}", task.index),
            WorkerCommand::Kill { task, .. } => format!("{seq} kill {}", task.index),
            WorkerCommand::Ack { task, .. } => format!("{seq} ack {}", task.index),
            WorkerCommand::Lease { sent, .. } => format!("{seq} lease {sent}"),
            WorkerCommand::Resync => format!("{seq} resync"),
            other => format!("{seq} {other:?}"),
        }
    }

    /// A worker of three cpus, and a job whose three tasks are booked there and not sent.
    struct Scene {
        engine: Engine,
        out: Outbox,
        outgoing: Outgoing,
        link: Arc<NotingLink>,
        starts: Vec<Message>,
    }

    impl Scene {
        fn new() -> Scene {
            let (links, link) = (Arc::new(Links::default()), Arc::new(NotingLink::default()));
            _ = links.insert(WORKER, link.clone());
            let outgoing = Outgoing::new(links, Arc::default());
            let (engine, out) = (Engine::new(Settings::default()), Outbox::default());
            let mut scene = Scene { engine, out, outgoing, link, starts: Vec::new() };
            scene.hello();
            let (name, request) = ("main".to_owned(), Resources::new(100, 0));
            let step = StepSpec { name, tasks: 3, request, ..StepSpec::default() };
            let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
            let submit = Event::Submit(Box::new(Submit::new(RequestId(1), spec)));
            scene.engine.handle(NOW, submit, &mut scene.out);
            scene.engine.round(NOW, 64, &mut scene.out);
            scene.starts = scene.take_starts();
            assert_eq!(scene.starts.len(), 3);
            scene
        }

        fn hello(&mut self) {
            let hello = Hello::new("w", 7, Resources::new(300, 0));
            self.engine.handle(NOW, Event::Hello(Box::new(hello)), &mut self.out);
        }

        fn take_starts(&mut self) -> Vec<Message> {
            let is_start = |message: &Message| matches!(message.command, WorkerCommand::Start { .. });
            self.out.sends.drain(..).filter(is_start).collect()
        }

        /// The task of that index, and its attempt.
        fn attempt(&self, index: u32) -> (TaskId, u32) {
            attempts_of(&self.starts[0].command)
                .first()
                .map(|(task, n)| (TaskId { index, ..*task }, *n))
                .unwrap()
        }

        fn send(&mut self, messages: Vec<Message>) {
            self.outgoing.send(&self.engine, messages.into_iter());
        }

        fn read_body(&mut self) {
            let raw = br#"{"command":["true"],"env":{},"cwd":"/","params":"none"}"#;
            self.outgoing.bodies.read((self.attempt(0).0.job, 0), LoadedBody::parse(raw));
            self.outgoing.bodies_read(&self.engine);
        }

        /// What came since this was asked last.
        fn came(&self) -> Vec<String> {
            std::mem::take(&mut *self.link.0.lock().unwrap())
        }
    }

    fn message(seq: u64, order: WorkerCommand) -> Message {
        Message { worker: WORKER, seq, command: order }
    }

    #[test]
    fn what_lets_tasks_go_on_or_end_overtakes_a_start_whose_body_is_read() {
        let mut scene = Scene::new();
        let [first, second, third] = <[Message; 3]>::try_from(scene.starts.clone()).unwrap();
        let numbers = (first.seq, second.seq, third.seq);
        let ((task, attempt), (other, _)) = (scene.attempt(0), scene.attempt(2));
        scene.send(vec![first, second]);
        scene.send(vec![
            message(20, WorkerCommand::Lease { sent: 7, lasts_ns: 5 }),
            message(21, WorkerCommand::Kill { task: other, attempt }),
            message(22, WorkerCommand::Ack { task: other, attempt }),
            message(23, WorkerCommand::Kill { task, attempt }),
            message(24, WorkerCommand::Resync),
            third,
        ]);
        assert_eq!(scene.came(), ["0 lease 7", "0 kill 2", "0 resync"], "without numbers");
        scene.read_body();
        let rest = [
            format!("{} start 0", numbers.0),
            format!("{} start 1", numbers.1),
            "22 ack 2".to_owned(),
            "23 kill 0".to_owned(),
            format!("{} start 2", numbers.2),
        ];
        assert_eq!(scene.came(), rest);
        scene.send(vec![message(25, WorkerCommand::Lease { sent: 8, lasts_ns: 5 })]);
        assert_eq!(scene.came(), ["25 lease 8"], "nothing waits any more");
    }

    #[test]
    fn a_start_that_is_out_of_date_when_its_body_is_there_is_not_sent() {
        let mut scene = Scene::new();
        let (task, attempt) = scene.attempt(0);
        scene.send(scene.starts.clone());
        let epoch = scene.engine.attempt(task).unwrap().epoch;
        let by = Report { worker: WORKER, epoch, task, attempt };
        let ended = Event::Finished { by, result: TaskResult::bare(End::Exited(0)) };
        scene.engine.handle(NOW, ended, &mut scene.out);
        scene.out.sends.clear();
        // The worker holds neither of the others: both are started again.
        scene.hello();
        let again = scene.take_starts();
        let words: Vec<String> = again.iter().map(|start| words_of(start.seq, &start.command)).collect();
        assert_eq!(words.len(), 2);
        scene.send(again);
        scene.read_body();
        assert_eq!(scene.came(), words);
    }

    #[test]
    fn a_worker_for_which_too_much_waits_says_hello_again() {
        let mut scene = Scene::new();
        let (task, attempt) = scene.attempt(0);
        scene.send(vec![scene.starts[0].clone()]);
        let acks = (0..WAITING_MAX).map(|n| message(n as u64, WorkerCommand::Ack { task, attempt }));
        scene.outgoing.send(&scene.engine, acks);
        assert_eq!(scene.came(), ["this worker was forgotten"]);
        assert!(scene.outgoing.waiting.is_empty());
    }
}
