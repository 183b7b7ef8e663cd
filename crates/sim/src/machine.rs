//! A simulated worker: an agent with a link, and a keeper with processes, a queue and results. It follows the
//! rules of the real keeper, and acts only on the commands that reach it. The promises are checked against
//! what runs here, never against what the engine believes. `world` delivers its messages and calls it; it has
//! no clock of its own.

use crate::cache::Cache;
use crate::clock::{MS, S};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use windlass_core::bounds::CPU_WEIGHT_MAX;
use windlass_core::engine::{CpuShare, Held, HeldPhase, Hello, Inventory, Processes, WorkerCommand};
use windlass_core::job::{End, LaunchFault, TaskResult};
use windlass_core::load::pressure::LoadReport;
use windlass_core::tags::Attributes;
use windlass_core::{Epoch, Resources, TaskId, Time};

pub type AttemptKey = (TaskId, u32);

#[derive(Clone, PartialEq, Debug)]
pub enum MachineMessage {
    Hello(Box<Hello>),
    /// The worker's clock at sending, and its inventory.
    Beat(u64, Inventory),
    Started(AttemptKey, Epoch, Time),
    Finished(AttemptKey, Epoch, TaskResult),
    /// A task has the cpus again that it lent.
    Reclaimed(AttemptKey, Epoch),
    Load(Box<LoadReport>),
    /// Keys in the worker's caches, with their bytes.
    Caches(BTreeMap<String, u64>),
    /// What a task with a jobserver runs.
    Processes(AttemptKey, Processes),
}

/// An effect of a call, which `world` carries out.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    Say(MachineMessage),
    Starts(AttemptKey),
    /// A process ends, or an attempt ends without one.
    Ends(AttemptKey, End),
}

#[derive(Clone, PartialEq, Debug)]
enum Phase {
    Queued,
    Running(Time),
    Ended(TaskResult),
}

#[derive(Clone, PartialEq, Debug)]
struct Hold {
    /// Epoch under which the start was sent.
    epoch: Epoch,
    request: Resources,
    phase: Phase,
    lent: bool,
    /// Number of the last command to lend or reclaim. An earlier one that arrives late is ignored.
    lend_seq: u64,
    /// Bytes beyond which the process is killed; `None` without a limit.
    memory_limit: Option<u64>,
    /// Bytes that the process holds; `None` if its step does not say.
    holds: Option<u64>,
    /// The others that its process runs.
    riders: Vec<AttemptKey>,
    /// The head whose process runs it.
    rides: Option<AttemptKey>,
}

/// The part of a worker that owns its processes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Keeper {
    /// Differs for each keeper.
    pub incarnation: u64,
    epoch: Option<Epoch>,
    /// End of the lease on the machine's clock; `None` before the first one.
    lease_until: Option<Time>,
    seq: u64,
    holds: BTreeMap<AttemptKey, Hold>,
    queue: VecDeque<AttemptKey>,
    reclaims: VecDeque<AttemptKey>,
    /// What tasks with a jobserver share, and the number of the command that said so last.
    shares: (u64, u32, Vec<CpuShare>),
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Machine {
    /// Unique name by which scripts address the machine.
    pub label: String,
    /// Name that the worker claims. Of two machines with one name only one can be a worker.
    pub name: String,
    pub capacity: Resources,
    pub attributes: Attributes,
    /// Number that no other machine has.
    pub identity: u64,
    /// Whether its keeper ends all tasks when its lease runs out, and starts none without a lease.
    pub fences: bool,
    /// Nanoseconds by which its clock is ahead; negative is behind.
    pub skew_ns: i64,
    /// Whether it reports absurd times and amounts of what it ran.
    pub lies: bool,
    /// Whether it sends results again with each beat: in a world that loses messages of links that live. Elsewhere it
    /// sends them again when its hello was answered, as a real worker does.
    pub repeats: bool,
    /// Thousandths by which its clock runs too fast; negative is too slow.
    pub drift_permille: i64,
    /// Virtual time in nanoseconds before which nothing on it can connect or be started.
    pub away_until_ns: u64,
    /// Whether it never comes back.
    pub retired: bool,
    /// The keeper; `None` while it is dead.
    pub keeper: Option<Keeper>,
    /// Number of keepers so far, above a number that is unique to the machine.
    pub keepers: u64,
    /// Number of the current link; `None` without one.
    pub link: Option<u64>,
    /// Whether the scheduler answered the hello on this link.
    pub welcomed: bool,
    /// The load that it reports each second; `None` to report none.
    pub load: Option<Box<LoadReport>>,
    /// Its caches; `None` if it reports no caches.
    pub cache: Option<Cache>,
    pub defect: Defect,
    pub builds: BuildConduct,
}

/// How many processes tasks with a jobserver run on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BuildConduct {
    /// Its keeper says nothing of that, as one of an earlier release.
    #[default]
    Silent,
    /// As many as they may.
    All,
    /// One each, and no more.
    One,
    /// As many as they may for a while, then one, and so on, each at other times.
    Varying,
}

/// A defect of a machine, which spoils its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defect {
    #[default]
    None,
    /// Every task that runs there fails.
    FailsTasks,
    /// No task can be started there.
    StartsNone,
    /// It ends every task, and reports that this was requested.
    GivesBack,
}

impl Keeper {
    fn room(&self, capacity: &Resources) -> Resources {
        let mut room = capacity.clone();
        for hold in self.holds.values().filter(|hold| matches!(hold.phase, Phase::Running(_))) {
            let mut held = hold.request.clone();
            if hold.lent {
                held.cpu = 0;
            }
            room.sub(&held);
        }
        room
    }

    fn inventory(&self) -> Inventory {
        let held = self.holds.iter().map(|((task, attempt), hold)| Held {
            task: *task,
            attempt: *attempt,
            phase: match (&hold.phase, hold.lent) {
                (Phase::Queued, _) => HeldPhase::Queued,
                (Phase::Running(_), _) if hold.rides.is_some() => HeldPhase::Queued,
                (Phase::Running(at), false) => HeldPhase::Running(*at),
                (Phase::Running(at), true) => HeldPhase::Lent(*at),
                (Phase::Ended(_), _) => HeldPhase::Ended,
            },
        });
        Inventory { seq: self.seq, held: held.collect() }
    }

    /// Whether it has no attempts, not even an unacknowledged result.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Hundredths of a core that tasks with a jobserver share, and the part of each that is here; `None` if none is.
    pub fn shares(&self) -> Option<(u32, Vec<CpuShare>)> {
        let (_, cpu, shares) = &self.shares;
        let is_here = |share: &&CpuShare| self.holds.contains_key(&(share.task, share.attempt));
        let here: Vec<CpuShare> = shares.iter().filter(is_here).copied().collect();
        (!here.is_empty()).then_some((*cpu, here))
    }

    /// For how long an attempt that ends had tokens: all of the cpus that are shared, as if no other task took any.
    fn token_cpu_ms(&self, key: AttemptKey, ran_ns: u64) -> Option<u64> {
        let (_, cpu, shares) = &self.shares;
        let has_share = shares.iter().any(|share| (share.task, share.attempt) == key);
        has_share.then_some(ran_ns / MS * u64::from(*cpu) / 100)
    }

    /// Whether a process of this attempt runs.
    fn runs(&self, key: &AttemptKey) -> bool {
        self.holds.get(key).is_some_and(|hold| matches!(hold.phase, Phase::Running(_)))
    }

    /// Attempts whose processes run, with their request and whether their cpus are lent.
    pub fn running(&self) -> impl Iterator<Item = (AttemptKey, &Resources, bool)> {
        let running = self.holds.iter().filter(|(_, hold)| matches!(hold.phase, Phase::Running(_)));
        running.map(|(key, hold)| (*key, &hold.request, hold.lent))
    }
}

impl Machine {
    /// A machine with a living keeper and without a connection.
    pub fn new(label: &str, name: &str, capacity: Resources, attributes: Attributes) -> Self {
        let number = label.bytes().fold(0, |number, byte| number * 256 + u64::from(byte));
        let mut machine = Machine {
            label: label.to_owned(),
            name: name.to_owned(),
            capacity,
            attributes,
            identity: number,
            repeats: true,
            // No two keepers of the farm have the same number.
            keepers: number << 16,
            ..Machine::default()
        };
        machine.start_keeper();
        machine
    }

    /// A new keeper, which has none of the earlier one's tasks.
    pub fn start_keeper(&mut self) {
        self.keepers += 1;
        self.keeper = Some(Keeper { incarnation: self.keepers, ..Keeper::default() });
    }

    /// Kills the keeper and all of its processes. Returns what ran.
    pub fn kill_keeper(&mut self) -> Vec<AttemptKey> {
        self.link = None;
        self.welcomed = false;
        self.keeper.take().map_or_else(Vec::new, |keeper| keeper.running().map(|(key, ..)| key).collect())
    }

    /// The hello on a new connection, repeated until it is answered.
    ///
    /// It forgets the reclaims, because the engine asks for them again after each hello.
    pub fn hello(&mut self, now: Time) -> Option<MachineMessage> {
        let keeper = self.keeper.as_mut()?;
        keeper.reclaims.clear();
        self.welcomed = false;
        Some(MachineMessage::Hello(Box::new(Hello {
            name: self.name.clone(),
            identity: self.identity,
            incarnation: keeper.incarnation,
            fences: self.fences,
            sent: now.0,
            // Only the receiver can tell.
            new_link: false,
            capacity: self.capacity.clone(),
            attributes: self.attributes.clone(),
            inventory: keeper.inventory(),
        })))
    }

    /// The periodic messages of the worker: its inventory, and perhaps all unacknowledged results.
    pub fn beat(&mut self, now: Time) -> Vec<MachineMessage> {
        if !self.welcomed {
            return self.hello(now).into_iter().collect();
        }
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let mut messages = vec![MachineMessage::Beat(now.0, keeper.inventory())];
        if self.repeats {
            messages.extend(self.results());
        }
        messages
    }

    fn results(&self) -> Vec<MachineMessage> {
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let ended = keeper.holds.iter().filter_map(|(key, hold)| match &hold.phase {
            Phase::Ended(result) => Some(MachineMessage::Finished(*key, hold.epoch, result.clone())),
            _ => None,
        });
        ended.collect()
    }

    /// Carries out a command of the scheduler.
    pub fn order(&mut self, now: Time, seq: u64, order: &WorkerCommand) -> Vec<Effect> {
        let may_run = self.may_run(now);
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let new = seq > keeper.seq;
        keeper.seq = keeper.seq.max(seq);
        let mut effects = Vec::new();
        match order {
            // The answer to an earlier hello may have an epoch that is over.
            WorkerCommand::Registered { epoch } if new => {
                keeper.epoch = Some(*epoch);
                if !self.welcomed {
                    self.welcomed = true;
                    effects.extend(self.results().into_iter().map(Effect::Say));
                    effects.extend(self.caches().map(Effect::Say));
                }
            }
            WorkerCommand::Registered { .. } => {}
            WorkerCommand::Lease { sent, lasts_ns } => {
                let until = Time(*sent).after(lasts_ns / 10 * 9);
                keeper.lease_until = keeper.lease_until.max(Some(until));
            }
            // A start needs a welcome, which gives the epoch of reports, and a lease, because without one its epoch may
            // be over. The scheduler sends other starts again.
            start @ WorkerCommand::Start { .. } if new && may_run && self.welcomed => keeper.enlist(start),
            WorkerCommand::Start { .. } => {}
            WorkerCommand::Kill { task, attempt } => {
                effects.extend(self.end((*task, *attempt), now, End::Canceled))
            }
            WorkerCommand::Recall { task, attempt } => {
                if keeper.queue.contains(&(*task, *attempt)) {
                    effects.extend(self.end((*task, *attempt), now, End::Recalled));
                }
            }
            WorkerCommand::Ack { task, attempt } => {
                let key = (*task, *attempt);
                if matches!(keeper.holds.get(&key).map(|hold| &hold.phase), Some(Phase::Ended(_))) {
                    keeper.holds.remove(&key);
                }
            }
            WorkerCommand::Lend { task, attempt } => keeper.lend((*task, *attempt), seq),
            WorkerCommand::Reclaim { task, attempt } => {
                effects.extend(keeper.reclaim((*task, *attempt), seq))
            }
            WorkerCommand::ShareCpus { cpu, shares } => {
                if seq > keeper.shares.0 {
                    keeper.shares = (seq, *cpu, shares.clone());
                }
            }
            WorkerCommand::Resync => effects.extend(self.hello(now).map(Effect::Say)),
        }
        effects.extend(self.start_waiting(now));
        effects
    }

    /// Ends an attempt, by itself or on request. Nothing happens if it is not here or has ended.
    pub fn end(&mut self, key: AttemptKey, now: Time, end: End) -> Vec<Effect> {
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let Some(hold) = keeper.holds.get(&key) else { return Vec::new() };
        if matches!(hold.phase, Phase::Ended(_)) {
            return Vec::new();
        }
        let head = hold.rides.unwrap_or(key);
        let Some(hold) = keeper.holds.get(&head) else { return Vec::new() };
        let all: Vec<AttemptKey> = std::iter::once(head).chain(hold.riders.iter().copied()).collect();
        all.into_iter().flat_map(|key| self.end_one(key, now, end.clone())).collect()
    }

    /// True if the process of another attempt runs this one.
    pub fn rides(&self, key: AttemptKey) -> bool {
        self.keeper
            .as_ref()
            .and_then(|keeper| keeper.holds.get(&key))
            .is_some_and(|hold| hold.rides.is_some())
    }

    fn end_one(&mut self, key: AttemptKey, now: Time, end: End) -> Vec<Effect> {
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let started = match keeper.holds.get(&key).map(|hold| &hold.phase) {
            Some(Phase::Queued) => None,
            Some(Phase::Running(at)) => Some(*at),
            Some(Phase::Ended(_)) | None => return Vec::new(),
        };
        let token_cpu_ms = started.and_then(|at| keeper.token_cpu_ms(key, now.since(at)));
        let Some(hold) = keeper.holds.get_mut(&key) else { return Vec::new() };
        let mut result = TaskResult::bare(end.clone());
        result.started = started;
        result.finished = Some(now);
        result.token_cpu_ms = token_cpu_ms;
        result.peak_memory = hold.holds.map(|bytes| bytes.min(hold.memory_limit.unwrap_or(u64::MAX)));
        if self.lies {
            // The whole range of time.
            (result.started, result.finished) = (Some(Time(0)), Some(Time(u64::MAX)));
            (result.peak_memory, result.cpu_ms) = (Some(u64::MAX), Some(u64::MAX));
            result.token_cpu_ms = Some(u64::MAX);
        }
        hold.phase = Phase::Ended(result.clone());
        hold.lent = false;
        let epoch = hold.epoch;
        keeper.queue.retain(|queued| *queued != key);
        keeper.reclaims.retain(|waiting| *waiting != key);
        vec![Effect::Ends(key, end), Effect::Say(MachineMessage::Finished(key, epoch, result))]
    }

    /// Ends all attempts if the lease does not cover them any more.
    pub fn fence(&mut self, now: Time) -> Vec<Effect> {
        let Some(keeper) = self.keeper.as_ref().filter(|_| !self.may_run(now)) else { return Vec::new() };
        let ends = keeper.holds.iter().filter_map(|(key, hold)| match hold.phase {
            Phase::Queued => Some((*key, End::Recalled)),
            Phase::Running(_) => Some((*key, End::Lost)),
            Phase::Ended(_) => None,
        });
        let ends: Vec<(AttemptKey, End)> = ends.collect();
        ends.into_iter().flat_map(|(key, end)| self.end(key, now, end)).collect()
    }

    /// The process of an attempt comes to hold `bytes` of memory. True if it is killed for that, because it
    /// exceeds its limit or because all processes together exceed the machine's memory.
    pub fn occupy(&mut self, key: AttemptKey, bytes: u64) -> bool {
        let Some(keeper) = &mut self.keeper else { return false };
        let Some(hold) = keeper.holds.get_mut(&key) else { return false };
        hold.holds = Some(bytes);
        let over = hold.memory_limit.is_some_and(|limit| bytes > limit);
        let running = keeper.holds.values().filter(|hold| matches!(hold.phase, Phase::Running(_)));
        let sum: u64 = running.filter_map(|hold| hold.holds).sum();
        over || (self.capacity.memory > 0 && sum > self.capacity.memory)
    }

    /// The report of its caches; `None` if it reports none.
    pub fn caches(&self) -> Option<MachineMessage> {
        self.cache.as_ref().map(|cache| MachineMessage::Caches(cache.told()))
    }

    /// Reads keys for a task. Returns whether some had to be fetched, and the report of the change.
    pub fn read(&mut self, keys: &BTreeMap<String, Option<u64>>) -> (bool, Option<MachineMessage>) {
        let Some(cache) = self.cache.as_mut().filter(|_| !keys.is_empty()) else { return (false, None) };
        let told = cache.told();
        let cold = cache.read(keys);
        let changed = cache.told() != told;
        (cold, self.caches().filter(|_| changed && self.welcomed))
    }

    /// End of the keeper's lease on the machine's clock; `None` without a lease.
    pub fn lease_until(&self) -> Option<Time> {
        self.keeper.as_ref().and_then(|keeper| keeper.lease_until)
    }

    /// What its keeper says of the tasks with a jobserver that run there, each second.
    pub fn processes(&self, now: Time) -> Vec<MachineMessage> {
        let keeper = self.keeper.as_ref().filter(|_| self.welcomed && self.builds != BuildConduct::Silent);
        let Some((keeper, (cpu, shares))) = keeper.and_then(|keeper| Some((keeper, keeper.shares()?))) else {
            return Vec::new();
        };
        let running = shares.iter().filter(|share| keeper.runs(&(share.task, share.attempt)));
        let said = running.map(|share| {
            let part_cpu = u64::from(cpu) * u64::from(share.weight) / u64::from(CPU_WEIGHT_MAX);
            let may = u32::try_from(part_cpu / 100).unwrap_or(u32::MAX).max(1);
            let span = now.0 / (10 * S) + share.task.job.0;
            let takes_all = match self.builds {
                BuildConduct::Silent | BuildConduct::One => false,
                BuildConduct::All => true,
                BuildConduct::Varying => !span.is_multiple_of(3),
            };
            let used = if takes_all { may } else { 1 };
            let said = Processes { share: may, used, is_held_back: false };
            MachineMessage::Processes((share.task, share.attempt), said)
        });
        said.collect()
    }

    fn may_run(&self, now: Time) -> bool {
        !self.fences || self.lease_until().is_some_and(|until| now < until)
    }

    /// Returns cpus to tasks that reclaim them, then starts waiting attempts in order, as far as there is room.
    pub fn start_waiting(&mut self, now: Time) -> Vec<Effect> {
        let may_run = self.may_run(now);
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let mut effects = Vec::new();
        while let Some(key) = keeper.reclaims.front().copied() {
            let cpu = keeper.holds.get(&key).map_or(0, |hold| hold.request.cpu);
            if keeper.room(&self.capacity).cpu < cpu {
                return effects;
            }
            keeper.reclaims.pop_front();
            if let Some(hold) = keeper.holds.get_mut(&key) {
                hold.lent = false;
                effects.push(Effect::Say(MachineMessage::Reclaimed(key, hold.epoch)));
            }
        }
        while may_run && let Some(key) = keeper.queue.front().copied() {
            let room = keeper.room(&self.capacity);
            let Some(hold) = keeper.holds.get_mut(&key).filter(|hold| hold.request.fits(&room)) else {
                break;
            };
            let all: Vec<AttemptKey> = std::iter::once(key).chain(hold.riders.iter().copied()).collect();
            if self.defect == Defect::StartsNone {
                keeper.queue.pop_front();
                for key in all {
                    let Some(hold) = keeper.holds.get_mut(&key) else { continue };
                    let why = "no such file or directory".to_owned();
                    let end = End::NotStarted { why, fault: LaunchFault::Worker };
                    hold.phase = Phase::Ended(TaskResult::bare(end.clone()));
                    effects.push(Effect::Ends(key, end.clone()));
                    effects.push(Effect::Say(MachineMessage::Finished(
                        key,
                        hold.epoch,
                        TaskResult::bare(end),
                    )));
                }
                continue;
            }
            keeper.queue.pop_front();
            for one in all {
                let Some(hold) = keeper.holds.get_mut(&one) else { continue };
                hold.phase = Phase::Running(now);
                effects.push(Effect::Starts(one));
            }
            let epoch = keeper.holds[&key].epoch;
            effects.push(Effect::Say(MachineMessage::Started(key, epoch, now)));
        }
        effects
    }

    /// Ended attempts that ran in the process of this attempt, and whose results are not acknowledged.
    pub fn ended_riders(&self, head: AttemptKey) -> Vec<AttemptKey> {
        let holds = self.keeper.iter().flat_map(|keeper| &keeper.holds);
        let ended =
            holds.filter(|(_, hold)| hold.rides == Some(head) && matches!(hold.phase, Phase::Ended(_)));
        ended.map(|(key, _)| *key).collect()
    }

    /// The keeper loses what it has of an attempt.
    pub fn lose(&mut self, key: AttemptKey) {
        if let Some(keeper) = &mut self.keeper {
            keeper.holds.remove(&key);
        }
    }

    /// The attempts that the keeper has, in any phase.
    pub fn held(&self) -> BTreeSet<AttemptKey> {
        self.keeper.iter().flat_map(|keeper| keeper.holds.keys().copied()).collect()
    }
}

impl Keeper {
    /// Takes up an attempt and those that ride with it. It passes over a second start of one that it has.
    fn enlist(&mut self, start: &WorkerCommand) {
        let WorkerCommand::Start { task, attempt, request, memory_limit, riders, .. } = start else { return };
        let key = (*task, *attempt);
        let Some(epoch) = self.epoch.filter(|_| !self.holds.contains_key(&key)) else { return };
        let of_job = |(index, attempt): &(u32, u32)| (TaskId { job: task.job, index: *index }, *attempt);
        let riders: Vec<AttemptKey> = riders.iter().map(of_job).collect();
        let hold = Hold {
            epoch,
            request: request.clone(),
            phase: Phase::Queued,
            lent: false,
            lend_seq: 0,
            memory_limit: *memory_limit,
            holds: None,
            riders: riders.clone(),
            rides: None,
        };
        for rider in riders {
            let request = Resources::default();
            let ridden = Hold { request, rides: Some(key), riders: Vec::new(), ..hold.clone() };
            self.holds.insert(rider, ridden);
        }
        self.holds.insert(key, hold);
        self.queue.push_back(key);
    }

    fn lend(&mut self, key: AttemptKey, seq: u64) {
        let Some(hold) = self.holds.get_mut(&key).filter(|hold| seq > hold.lend_seq) else { return };
        if matches!(hold.phase, Phase::Running(_)) {
            hold.lent = true;
            hold.lend_seq = seq;
            self.reclaims.retain(|waiting| *waiting != key);
        }
    }

    fn reclaim(&mut self, key: AttemptKey, seq: u64) -> Option<Effect> {
        let hold = self.holds.get_mut(&key).filter(|hold| matches!(hold.phase, Phase::Running(_)))?;
        if seq > hold.lend_seq {
            hold.lend_seq = seq;
            if hold.lent && !self.reclaims.contains(&key) {
                self.reclaims.push_back(key);
            }
        }
        let Hold { epoch, lent, .. } = self.holds[&key];
        (!lent).then_some(Effect::Say(MachineMessage::Reclaimed(key, epoch)))
    }
}
