//! Workers: what they have, what is booked on them.

mod health;
mod origin;
mod warmth;

pub use health::{Ended, Fault, Health, HealthVerdict, Record, Successes};
pub use origin::Origin;
pub use warmth::{DISPLACED_AFTER, Warmth};

use crate::bounds;
use crate::cache_keys::CacheKeys;
use crate::ids::{AllocId, Epoch, StepKey, TaskId, WorkerId};
use crate::load::formula::{LoadSettings, LoadTerms, Saturated};
use crate::load::pressure::LoadReport;
use crate::resources::Resources;
use crate::tags::{Attributes, CORE_SCORE, EXCLUSIVE, EXECUTOR, FOR_QUEUE};
use crate::time::{NS_PER_S, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How long nothing of ours must have run for the pressure on cpus not to be of our making: three times the
/// ten seconds over which it is averaged.
pub const REST_NS: u64 = 30 * NS_PER_S;

/// Which of several workers with room is taken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saturation {
    /// Fill the worker with fewest free cpus first, instead of spreading.
    pub cores: bool,
    /// Take the worker with least free memory first.
    pub memory: bool,
}

/// Whether a worker gets new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerState {
    /// Gets work.
    Up,
    /// Told to take nothing new.
    Draining,
    /// Not heard from: no new work, and nothing requeued, for its tasks may be running.
    Suspect,
    /// Its lease ran out: it ended its tasks itself, and they are run elsewhere.
    Expired,
    /// Somebody said that it is gone. Its row stays, so that history can name it.
    Forgotten,
}

/// A machine with its agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Worker {
    /// Its id, kept across restarts by name.
    pub id: WorkerId,
    /// Unique on the farm.
    pub name: Arc<str>,
    /// Raised when a new keeper takes the place of one whose end is confirmed, and when its lease runs
    /// out or somebody says that it is gone.
    pub epoch: Epoch,
    /// The machine's own number; 0 of one that came before machines had numbers.
    pub identity: u64,
    /// The keeper's own number: another number is another keeper.
    pub incarnation: u64,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// Told to take nothing new, whatever its state.
    pub draining: bool,
    /// Why, as the operator noted.
    pub note: Option<Arc<str>>,
    /// It said hello, and its link holds.
    pub connected: bool,
    /// When its lease runs out; `None` of one that has none.
    pub lease_until: Option<Time>,
    /// When it said hello last.
    pub greeted: Time,
    /// When it was last heard from; `None` of one that does not beat, whose link alone is watched.
    pub heard: Option<Time>,
    /// What it declares. Tasks never hold more.
    pub capacity: Resources,
    /// What it is.
    pub attributes: Attributes,
    /// Held now: running attempts, cpus that a task asked back, places of outside clients.
    pub booked: Resources,
    /// Bytes that running attempts are expected to hold beyond what they booked.
    pub expected: u64,
    /// Attempts that hold resources.
    pub running: BTreeSet<TaskId>,
    /// Attempts sent ahead: they start here in this order as room comes, and hold nothing yet.
    pub backlog: VecDeque<TaskId>,
    /// Predicted milliseconds of work in the backlog.
    pub backlog_ms: f64,
    /// How many of its tasks wait for jobs of their own.
    pub lending: u32,
    /// Places given to outside clients.
    pub allocs: BTreeMap<AllocId, Resources>,
    /// Hundredths of a core that the running tasks of each step hold.
    pub steps: BTreeMap<StepKey, u32>,
    /// What it said of its load last, and when; `None` of one that did not, or is stale.
    pub load: Option<(Time, Box<LoadReport>)>,
    /// Bytes that could be had when it said so, and bytes that its tasks held; `None` where it does not say,
    /// or nobody minds.
    pub reach: Option<(u64, u64)>,
    /// What its tasks hold of limits, those that were sent ahead too.
    pub licences: Licences,
    /// What it has too little of for new work, or for new network-bound work.
    pub saturated: Saturated,
    /// All workers are held by pressure: the farm goes on with one task at a time on each.
    pub last_resort: bool,
    /// When it first reported in the row of reports during which nothing of ours ran.
    pub quiet_since: Option<Time>,
    /// What its tasks say of it.
    pub health: Health,
    /// Which steps' inputs it is likely to have at hand.
    pub warmth: Warmth<u64>,
    /// What rules look at of its attributes.
    pub flags: WorkerFlags,
    /// Speed of one core, as its last report that said anything of it did. It stays when that report is stale: a core
    /// is as fast as before.
    pub measured_core_score: Option<f64>,
    /// The keys that its caches hold; `None` of one that has not said.
    pub caches: Option<CacheKeys>,
    /// Another number whenever that changes.
    pub caches_version: u64,
    /// The number of the last message to it.
    pub seq: u64,
    /// The number of the last welcome.
    pub welcome_seq: u64,
    /// The number of the last message that went out to it.
    pub out_seq: u64,
    /// The same when it beat last.
    pub beat_seq: u64,
    /// How many beats lacked an attempt whose start had gone out by the beat before, since a hello or a beat that lacked
    /// none.
    pub overdue_beats: u32,
    /// When it sent its last hello or beat, by its keeper's clock.
    pub last_sent: u64,
}

impl Worker {
    /// A task that is expected to run so long waits here for room.
    pub fn send_ahead(&mut self, task: TaskId, ms: f64) {
        self.backlog.push_back(task);
        self.backlog_ms += ms;
    }

    /// A worker as a store knows it, before it is heard from: nothing is booked on it.
    pub fn unheard(record: WorkerRecord) -> Self {
        let flags = WorkerFlags::of(&record.attributes);
        Worker {
            id: record.id,
            name: record.name.into(),
            epoch: record.epoch,
            identity: record.identity,
            incarnation: record.incarnation,
            state: match record.state {
                WorkerState::Expired | WorkerState::Forgotten => record.state,
                _ if record.draining => WorkerState::Draining,
                _ => WorkerState::Suspect,
            },
            draining: record.draining,
            note: record.note.map(Into::into),
            connected: false,
            lease_until: record.lease_until,
            greeted: Time::default(),
            heard: None,
            capacity: record.capacity,
            attributes: record.attributes,
            booked: Resources::default(),
            expected: 0,
            running: BTreeSet::new(),
            backlog: VecDeque::new(),
            backlog_ms: 0.0,
            lending: 0,
            allocs: BTreeMap::new(),
            steps: BTreeMap::new(),
            load: None,
            reach: None,
            licences: Licences::default(),
            saturated: Saturated::default(),
            last_resort: false,
            quiet_since: None,
            health: Health::default(),
            warmth: Warmth::default(),
            flags,
            measured_core_score: None,
            caches: None,
            caches_version: 0,
            seq: 0,
            welcome_seq: 0,
            out_seq: 0,
            beat_seq: 0,
            overdue_beats: 0,
            last_sent: 0,
        }
    }

    /// What somebody asked for did not happen: it is as it was, but not connected.
    pub fn restore(&mut self, record: &WorkerRecord) {
        self.epoch = record.epoch;
        self.identity = record.identity;
        self.incarnation = record.incarnation;
        self.draining = record.draining;
        self.note = record.note.as_deref().map(Into::into);
        self.lease_until = record.lease_until;
        self.state = record.state;
        self.unlink();
    }

    /// The worker as a store keeps it. What clients of Nix say of their machines is not kept: they say it again.
    pub fn record(&self) -> WorkerRecord {
        let is_kept = Origin::of(&self.name) != Origin::Nix;
        WorkerRecord {
            id: self.id,
            name: self.name.to_string(),
            epoch: self.epoch,
            identity: self.identity,
            incarnation: self.incarnation,
            state: self.state,
            draining: self.draining,
            note: self.note.as_deref().map(str::to_owned),
            lease_until: self.lease_until,
            capacity: self.capacity.clone(),
            attributes: if is_kept { self.attributes.clone() } else { Attributes::new() },
        }
    }

    /// Lets its lease last at least so long from `now`; `None` is no lease.
    pub fn lease(&mut self, now: Time, lasts_ns: Option<u64>) {
        self.lease_until = lasts_ns.and_then(|ns| self.lease_until.max(Some(now.after(ns))));
    }

    /// Its link is gone, or it is silent: no new work until it says hello again.
    pub fn unlink(&mut self) {
        self.connected = false;
        if self.state == WorkerState::Up {
            self.state = WorkerState::Suspect;
        }
    }

    /// When something must be done about it unless it is heard from before.
    pub fn deadline(&self, suspect_ns: u64, stale_ns: u64) -> Option<Time> {
        let silent = self.heard.filter(|_| self.connected).map(|at| at.after(suspect_ns));
        let stale = self.load.as_ref().map(|(at, _)| at.after(stale_ns));
        let readmitted = self.health.out().map(|(until, _)| until);
        [silent, stale, readmitted, self.lease_until].into_iter().flatten().min()
    }

    /// True if it runs something, and what it was sent ahead is less than it may be. A worker does not know of places
    /// of outside clients, and would start what it was sent in their room; another system's executor starts
    /// what it is sent.
    pub fn has_room_ahead(&self) -> bool {
        self.takes_work()
            && !self.running.is_empty()
            && self.allocs.is_empty()
            && self.lending == 0
            && self.flags.class.takes_work_ahead
            && self.backlog.len() < bounds::PREFETCH_MAX
            && self.backlog_ms < bounds::PREFETCH_MS * self.running.len() as f64
    }

    /// The queues whose work alone it takes; `None` takes that of all.
    pub fn for_queues(&self) -> Option<&BTreeSet<String>> {
        // Asked of each worker that a search looks at, and rarely set.
        if self.flags.is_for_queues { self.attributes.get(FOR_QUEUE) } else { None }
    }

    /// True if it gets work that fits: it is up, has space, and is neither held by pressure nor left out for its
    /// faults.
    pub fn takes_work(&self) -> bool {
        let held = self.saturated.is_pressed() && !(self.last_resort && self.is_idle());
        self.state == WorkerState::Up && !held && !self.saturated.lacks_space() && self.health.out().is_none()
    }

    /// True if it is of the farm: nobody said that it is gone.
    pub fn is_present(&self) -> bool {
        self.state != WorkerState::Forgotten
    }

    /// True if learned sizes go by what it has: it gets work, or gets none for a moment only, because it is under
    /// pressure, or silent while its lease runs. Where it gets none for another reason, no task waits for it because of
    /// memory or cpus that nobody asked for.
    pub fn counts_for_sizes(&self) -> bool {
        let is_heard = match self.state {
            WorkerState::Up => true,
            WorkerState::Suspect => self.lease_until.is_some(),
            WorkerState::Draining | WorkerState::Expired | WorkerState::Forgotten => false,
        };
        is_heard && self.health.out().is_none() && !self.saturated.lacks_space()
    }

    /// True if nothing of ours runs there.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.allocs.is_empty()
    }

    /// True if nothing of ours ran there for so long that pressure on its cpus is not of our making.
    pub fn is_rested(&self) -> bool {
        let reported = self.load.as_ref().map(|(at, _)| *at);
        let quiet = self.quiet_since.zip(reported).filter(|_| self.is_idle());
        quiet.is_some_and(|(since, reported)| reported.since(since) >= REST_NS)
    }

    /// What it said of its load, if that is not stale.
    pub fn report(&self) -> Option<&LoadReport> {
        self.load.as_ref().map(|(_, report)| &**report)
    }

    /// Speed of one core: what its attributes say, else what was measured.
    pub fn core_score(&self) -> Option<f64> {
        self.flags.core_score.or(self.measured_core_score)
    }

    /// How loaded it is with one more task of so many hundredths of a core: about 0 to 1, and more where it
    /// is under pressure.
    pub fn load_with(&self, task_cpu: u32, settings: &LoadSettings) -> f64 {
        self.load_terms(settings).load_with(task_cpu)
    }

    /// The terms of its load that a new task does not change.
    pub fn load_terms(&self, settings: &LoadSettings) -> LoadTerms {
        LoadTerms::of(self.capacity.cpu, self.booked.cpu, self.report(), self.is_rested(), settings)
    }

    /// What a new booking may use: what is free, and of memory no more than is left by what running tasks
    /// are expected to hold, and no more than can be had. Where none of ours
    /// runs, what others hold does not count: it would keep the worker idle for ever, and pressure tells
    /// when memory is really short. An executor of another system is taken at its word.
    pub fn room(&self) -> Resources {
        Resources { memory: self.memory_room(), ..self.free() }
    }

    /// The memory of [`Worker::room`].
    pub fn memory_room(&self) -> u64 {
        let held = self.booked.memory.saturating_add(self.expected);
        let free = self.capacity.memory.saturating_sub(held);
        match self.reach.filter(|_| self.flags.class.trusts_reported_memory || !self.is_idle()) {
            Some((available, own)) => free.min(available.saturating_sub(held.saturating_sub(own))),
            None => free,
        }
    }

    /// True if it runs something, and all of that waits for jobs of its own.
    pub fn only_lends(&self) -> bool {
        self.lending > 0 && self.lending as usize == self.running.len()
    }

    /// The room for a task. `guess` is how many bytes of its memory are a guess.
    pub fn room_with_guess(&self, room: Resources, guess: u64) -> Resources {
        if !self.only_lends() {
            return room;
        }
        Resources { memory: room.memory.saturating_add(guess), ..room }
    }

    /// True if `request` fits into [`Worker::room`], which is not built for that. `guess` is how many bytes of the
    /// request's memory are a guess.
    pub fn has_room(&self, request: &Resources, guess: u64) -> bool {
        let guess = if self.only_lends() { guess } else { 0 };
        let (has, booked) = (&self.capacity, &self.booked);
        let of = |amounts: &Resources, name: &str| amounts.custom.get(name).copied().unwrap_or(0);
        request.cpu <= has.cpu.saturating_sub(booked.cpu)
            && request.gpus <= has.gpus.saturating_sub(booked.gpus)
            && request.gpu_memory <= has.gpu_memory.saturating_sub(booked.gpu_memory)
            && request.memory <= self.memory_room().saturating_add(guess)
            && request
                .custom
                .iter()
                .all(|(name, need)| *need <= of(has, name).saturating_sub(of(booked, name)))
    }

    /// A task of a step holds amounts of it from now on, and is expected to hold more bytes; its share of
    /// cpu is counted even while lent.
    pub fn hold(&mut self, task: TaskId, step: StepKey, held: &Resources, expects: u64, cpu: u32) {
        self.booked.add(held);
        self.expected += expects;
        self.running.insert(task);
        *self.steps.entry(step).or_default() += cpu;
    }

    /// A task of the step, which this worker holds, gets `cpu` more, in hundredths of a core.
    pub fn widen(&mut self, step: StepKey, cpu: u32) {
        self.booked.cpu += cpu;
        *self.steps.entry(step).or_default() += cpu;
    }

    /// It holds them no more.
    pub fn let_go(&mut self, task: TaskId, step: StepKey, held: &Resources, expects: u64, cpu: u32) {
        self.running.remove(&task);
        self.booked.sub(held);
        self.expected = self.expected.saturating_sub(expects);
        if let Some(sum) = self.steps.get_mut(&step) {
            *sum = sum.saturating_sub(cpu);
            // A step of tasks that ask for no cpu has no part of the worker either.
            if *sum == 0 {
                self.steps.remove(&step);
            }
        }
    }

    /// True if tasks are booked on it.
    pub fn has_attempts(&self) -> bool {
        !self.running.is_empty() || !self.backlog.is_empty()
    }

    /// What a new booking may use.
    pub fn free(&self) -> Resources {
        self.capacity.less(&self.booked)
    }
}

/// What the tasks on a worker hold of limits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Licences {
    /// How many of each, and how many of each it may at most.
    held: BTreeMap<String, (u32, Option<u32>)>,
}

impl Licences {
    /// So many more of a limit are held, or less; `max` is how many a worker may at most. True if it was full,
    /// and is no more.
    pub fn take(&mut self, name: &str, max: Option<u32>, by: i32) -> bool {
        let (held, cap) = self.held.entry(name.to_owned()).or_default();
        let is_full = |held: u32| max.is_some_and(|max| held >= max);
        let before = is_full(*held);
        (*held, *cap) = (held.saturating_add_signed(by), max);
        let freed = before && !is_full(*held);
        if *held == 0 {
            self.held.remove(name);
        }
        freed
    }

    /// It may hold so many of a limit from now on.
    pub fn cap(&mut self, name: &str, max: Option<u32>) {
        if let Some((_, cap)) = self.held.get_mut(name) {
            *cap = max;
        }
    }

    /// One less of a limit is held, where some are.
    pub fn give_back(&mut self, name: &str) {
        if let Some((held, _)) = self.held.get_mut(name) {
            *held = held.saturating_sub(1);
        }
    }

    /// How many of a limit are held.
    pub fn held(&self, name: &str) -> u32 {
        self.held.get(name).map_or(0, |(held, _)| *held)
    }

    /// The limits of which no more may be held, with how many that are.
    pub fn full(&self) -> impl Iterator<Item = (&str, u32)> {
        self.held.iter().filter_map(|(name, (held, max))| Some((&**name, max.filter(|max| held >= max)?)))
    }

    /// The first of these of which no more may be held.
    pub fn first_full(&self, names: &BTreeSet<String>) -> Option<(&str, u32)> {
        if names.is_empty() { None } else { self.full().find(|(name, _)| names.contains(*name)) }
    }
}

/// How the workers of one kind are treated. What sets the hosts of another system apart is data here, so that no rule
/// of placement names a system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WorkerClass {
    /// It takes only steps that ask for it.
    pub is_exclusive: bool,
    /// It may be sent tasks that wait there for running ones to end.
    pub takes_work_ahead: bool,
    /// What it last reported as free memory is all there is, also while it is idle or says nothing.
    pub trusts_reported_memory: bool,
    /// Among such workers the one with most free memory comes first, whatever the settings say.
    pub most_memory_first: bool,
    /// It takes steps in the order of their queue, even where a later one would suit it better.
    pub keeps_queue_order: bool,
}

impl WorkerClass {
    /// A machine with an agent and a keeper of ours.
    pub const AGENT: WorkerClass = WorkerClass {
        is_exclusive: false,
        takes_work_ahead: true,
        trusts_reported_memory: false,
        most_memory_first: false,
        keeps_queue_order: false,
    };

    /// A host that another system runs: see [`EXECUTOR`].
    pub const EXECUTOR: WorkerClass = WorkerClass {
        is_exclusive: true,
        takes_work_ahead: false,
        trusts_reported_memory: true,
        most_memory_first: true,
        keeps_queue_order: true,
    };

    /// A machine that outside clients use and we start nothing on: see [`EXCLUSIVE`].
    pub const EXCLUSIVE: WorkerClass =
        WorkerClass { is_exclusive: true, takes_work_ahead: false, ..WorkerClass::AGENT };

    /// The class of a worker with these attributes.
    pub fn of(attributes: &Attributes) -> Self {
        match () {
            () if attributes.contains_key(EXECUTOR) => WorkerClass::EXECUTOR,
            () if attributes.contains_key(EXCLUSIVE) => WorkerClass::EXCLUSIVE,
            () => WorkerClass::AGENT,
        }
    }
}

impl Default for WorkerClass {
    fn default() -> Self {
        WorkerClass::AGENT
    }
}

/// What scoring rules look at of a worker's attributes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct WorkerFlags {
    /// It fetches (tag `fetch`).
    pub fetches: bool,
    /// It names an architecture (`arch`).
    pub has_arch: bool,
    /// It is for some queues alone (`for_queue`).
    pub is_for_queues: bool,
    /// How it is treated.
    pub class: WorkerClass,
    /// Speed of one core as an operator gave it (`core_score`). It replaces what is measured, so it is on the same
    /// scale, on which the reference core has 1000.
    pub core_score: Option<f64>,
}

impl WorkerFlags {
    /// Reads them.
    pub fn of(attributes: &Attributes) -> Self {
        let score = attributes.get(CORE_SCORE).and_then(|values| values.first());
        let score = score.and_then(|text| text.parse::<f64>().ok());
        WorkerFlags {
            fetches: attributes.contains_key("fetch"),
            has_arch: attributes.contains_key("arch"),
            is_for_queues: attributes.contains_key(FOR_QUEUE),
            class: WorkerClass::of(attributes),
            core_score: score.filter(|score| score.is_finite() && *score > 0.0),
        }
    }
}

/// A worker as a store gives it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerRecord {
    /// Its id.
    pub id: WorkerId,
    /// Its name.
    pub name: String,
    /// Its last epoch.
    pub epoch: Epoch,
    /// The machine's own number; 0 of one that came before machines had numbers.
    pub identity: u64,
    /// The last keeper's number.
    pub incarnation: u64,
    /// What it was when this was written. Whether it was up or suspect then means nothing later.
    pub state: WorkerState,
    /// Told to take nothing new.
    pub draining: bool,
    /// Why, as the operator noted; at most [`NOTE_BYTES_MAX`](bounds::NOTE_BYTES_MAX) bytes.
    pub note: Option<String>,
    /// When its lease runs out; `None` of one that has none.
    pub lease_until: Option<Time>,
    /// What it declared last.
    pub capacity: Resources,
    /// What it was.
    pub attributes: Attributes,
}
