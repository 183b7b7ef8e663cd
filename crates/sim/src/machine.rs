//! A simulated worker: an agent with a link, and a keeper with processes, a queue and results. It
//! trusts nothing that the engine believes; the promises are checked against what really runs here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use windlass_core::engine::{Held, HeldPhase, Hello, Inventory, Order};
use windlass_core::job::{End, TaskResult};
use windlass_core::tags::Attributes;
use windlass_core::{Epoch, Resources, TaskId, Time};

/// One attempt: the task and the attempt's number.
pub type AttemptKey = (TaskId, u32);

/// What a worker says to the scheduler.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// Who it is.
    Hello(Box<Hello>),
    /// What it holds.
    Inventory(Inventory),
    /// An attempt started.
    Started(AttemptKey, Epoch, Time),
    /// An attempt ended.
    Finished(AttemptKey, Epoch, TaskResult),
    /// A task has the cpus again that it lent.
    Reclaimed(AttemptKey, Epoch),
}

/// What a step of the machine did.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// It says something.
    Say(Word),
    /// A process started.
    Starts(AttemptKey),
    /// A process ended, or an attempt ended without one.
    Ends(AttemptKey, End),
}

/// How far an attempt is.
#[derive(Clone, PartialEq, Debug)]
enum Phase {
    Queued,
    Running(Time),
    Ended(TaskResult),
}

#[derive(Clone, PartialEq, Debug)]
struct Hold {
    request: Resources,
    phase: Phase,
    lent: bool,
    /// The number of the last order to lend or reclaim: an earlier one that comes late is ignored.
    lend_seq: u64,
}

/// The part of a worker that owns its processes.
#[derive(Clone, PartialEq, Debug)]
pub struct Keeper {
    /// Which keeper this is.
    pub incarnation: u64,
    epoch: Option<Epoch>,
    seq: u64,
    holds: BTreeMap<AttemptKey, Hold>,
    queue: VecDeque<AttemptKey>,
    reclaims: VecDeque<AttemptKey>,
}

/// A simulated worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// Unique.
    pub name: String,
    /// What it has.
    pub capacity: Resources,
    /// What it is.
    pub attributes: Attributes,
    /// Nanoseconds by which its clock is ahead.
    pub skew_ns: u64,
    /// The keeper, if one lives.
    pub keeper: Option<Keeper>,
    /// How many keepers there were.
    pub keepers: u64,
    /// The connection, if there is one.
    pub link: Option<u64>,
    /// The scheduler answered the hello on this connection.
    pub welcomed: bool,
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
                (Phase::Running(at), false) => HeldPhase::Running(*at),
                (Phase::Running(at), true) => HeldPhase::Lent(*at),
                (Phase::Ended(_), _) => HeldPhase::Ended,
            },
        });
        Inventory { seq: self.seq, held: held.collect() }
    }

    /// True if it holds nothing, not even a result that was not acknowledged.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// The attempts whose processes run.
    pub fn running(&self) -> impl Iterator<Item = (AttemptKey, &Resources, bool)> {
        let running = self.holds.iter().filter(|(_, hold)| matches!(hold.phase, Phase::Running(_)));
        running.map(|(key, hold)| (*key, &hold.request, hold.lent))
    }
}

impl Machine {
    /// A machine whose keeper lives and that has no connection.
    pub fn new(name: &str, capacity: Resources, attributes: Attributes) -> Self {
        let mut machine = Machine {
            name: name.to_owned(),
            capacity,
            attributes,
            skew_ns: 0,
            keeper: None,
            // No two keepers of the farm have one number.
            keepers: name.bytes().fold(0, |number, byte| number * 256 + u64::from(byte)) << 16,
            link: None,
            welcomed: false,
        };
        machine.start_keeper();
        machine
    }

    /// A new keeper, which knows nothing of an earlier one.
    pub fn start_keeper(&mut self) {
        self.keepers += 1;
        self.keeper = Some(Keeper {
            incarnation: self.keepers,
            epoch: None,
            seq: 0,
            holds: BTreeMap::new(),
            queue: VecDeque::new(),
            reclaims: VecDeque::new(),
        });
    }

    /// The keeper and all of its processes end. Returns what ran.
    pub fn kill_keeper(&mut self) -> Vec<AttemptKey> {
        self.link = None;
        self.welcomed = false;
        self.keeper.take().map_or_else(Vec::new, |keeper| keeper.running().map(|(key, ..)| key).collect())
    }

    /// What the worker says on a new connection, and again until it is welcomed.
    ///
    /// It forgets that it was asked to give cpus back: whoever hears the hello asks again.
    pub fn hello(&mut self) -> Option<Word> {
        let keeper = self.keeper.as_mut()?;
        keeper.reclaims.clear();
        Some(Word::Hello(Box::new(Hello {
            name: self.name.clone(),
            incarnation: keeper.incarnation,
            capacity: self.capacity.clone(),
            attributes: self.attributes.clone(),
            inventory: keeper.inventory(),
        })))
    }

    /// What the worker says from time to time: what it holds, and every result again.
    pub fn beat(&mut self) -> Vec<Word> {
        if !self.welcomed {
            return self.hello().into_iter().collect();
        }
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let mut words = vec![Word::Inventory(keeper.inventory())];
        words.extend(self.results());
        words
    }

    fn results(&self) -> Vec<Word> {
        let Some(keeper) = &self.keeper else { return Vec::new() };
        let ended = keeper.holds.iter().filter_map(|(key, hold)| match &hold.phase {
            Phase::Ended(result) => Some(Word::Finished(*key, keeper.epoch?, result.clone())),
            _ => None,
        });
        ended.collect()
    }

    /// An order from the scheduler.
    pub fn order(&mut self, now: Time, seq: u64, order: &Order) -> Vec<Effect> {
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let new = seq > keeper.seq;
        keeper.seq = keeper.seq.max(seq);
        let mut effects = Vec::new();
        match order {
            Order::Welcome { epoch } => {
                keeper.epoch = Some(*epoch);
                if !self.welcomed {
                    self.welcomed = true;
                    effects.extend(self.results().into_iter().map(Effect::Say));
                }
            }
            Order::Start { task, attempt, request, .. } => {
                let key = (*task, *attempt);
                // Before the welcome there is no epoch to report under; the scheduler sends it again.
                if new && keeper.epoch.is_some() && !keeper.holds.contains_key(&key) {
                    let request = request.clone();
                    keeper
                        .holds
                        .insert(key, Hold { request, phase: Phase::Queued, lent: false, lend_seq: 0 });
                    keeper.queue.push_back(key);
                }
            }
            Order::Kill { task, attempt } => effects.extend(self.end((*task, *attempt), now, End::Canceled)),
            Order::Recall { task, attempt } => {
                if keeper.queue.contains(&(*task, *attempt)) {
                    effects.extend(self.end((*task, *attempt), now, End::Recalled));
                }
            }
            Order::Ack { task, attempt } => {
                let key = (*task, *attempt);
                if matches!(keeper.holds.get(&key).map(|hold| &hold.phase), Some(Phase::Ended(_))) {
                    keeper.holds.remove(&key);
                }
            }
            Order::Lend { task, attempt } => keeper.lend((*task, *attempt), seq),
            Order::Reclaim { task, attempt } => effects.extend(keeper.reclaim((*task, *attempt), seq)),
            Order::Resync => effects.extend(self.hello().map(Effect::Say)),
        }
        effects.extend(self.start_waiting(now));
        effects
    }

    /// An attempt ends: by itself, or because it is told to. Nothing if it is not here or has ended.
    pub fn end(&mut self, key: AttemptKey, now: Time, end: End) -> Vec<Effect> {
        let Some(keeper) = &mut self.keeper else { return Vec::new() };
        let Some(hold) = keeper.holds.get_mut(&key) else { return Vec::new() };
        let started = match hold.phase {
            Phase::Queued => None,
            Phase::Running(at) => Some(at),
            Phase::Ended(_) => return Vec::new(),
        };
        let mut result = TaskResult::bare(end.clone());
        result.started = started;
        result.finished = Some(now);
        hold.phase = Phase::Ended(result.clone());
        hold.lent = false;
        keeper.queue.retain(|queued| *queued != key);
        keeper.reclaims.retain(|waiting| *waiting != key);
        let mut effects = vec![Effect::Ends(key, end)];
        effects.extend(keeper.epoch.map(|epoch| Effect::Say(Word::Finished(key, epoch, result))));
        effects
    }

    /// Gives cpus back to who reclaims them, then starts what waits, in order, as far as there is room.
    pub fn start_waiting(&mut self, now: Time) -> Vec<Effect> {
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
            }
            effects.extend(keeper.epoch.map(|epoch| Effect::Say(Word::Reclaimed(key, epoch))));
        }
        while let Some(key) = keeper.queue.front().copied() {
            let room = keeper.room(&self.capacity);
            let Some(hold) = keeper.holds.get_mut(&key).filter(|hold| hold.request.fits(&room)) else {
                break;
            };
            hold.phase = Phase::Running(now);
            keeper.queue.pop_front();
            effects.push(Effect::Starts(key));
            effects.extend(keeper.epoch.map(|epoch| Effect::Say(Word::Started(key, epoch, now))));
        }
        effects
    }

    /// The attempts that the keeper holds in any phase.
    pub fn held(&self) -> BTreeSet<AttemptKey> {
        self.keeper.iter().flat_map(|keeper| keeper.holds.keys().copied()).collect()
    }
}

impl Keeper {
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
        let granted = !self.holds[&key].lent;
        granted.then_some(Effect::Say(Word::Reclaimed(key, self.epoch?)))
    }
}
