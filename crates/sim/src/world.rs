//! The simulated world: a virtual clock, a network, machines, a store, and one scheduler at a time.
//!
//! Everything that will happen is in one list, ordered by time and then by the order of insertion.
//! [`World::step`] takes the first entry and carries it out. `run` and `script` drive it. What happens is a
//! function of the seed alone.

use crate::clock::{CLOCK_START, MS, S};
use crate::delays::Delays;
use crate::events::{Observation, SimEvent};
use crate::faults::Faults;
use crate::machine::{AttemptKey, Effect, Machine, MachineMessage};
use crate::promises::Promises;
use crate::rng::Rng;
use crate::scheduler::Scheduler;
use crate::tally::Tally;
use crate::trace::Transcript;
use std::collections::{BTreeMap, VecDeque};
use windlass_core::Time;
use windlass_core::engine::{Settings, WorkerCommand};
use windlass_core::job::End;
use windlass_store::Memory;

/// Longest time in nanoseconds between two beats of a worker.
const BEAT_MAX: u64 = 5 * S;

/// All that a seed or a script simulates.
pub struct World {
    pub(crate) now_ns: u64,
    pub(crate) clock_skew_ns: i64,
    pub(crate) settings: Settings,
    /// Whether some schedulers start with leases that are twice as long.
    pub(crate) leases_vary: bool,
    /// Boxed, because a map moves its entries when others are inserted.
    list: BTreeMap<(u64, u64), Box<SimEvent>>,
    sequence: u64,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) delays: Delays,
    /// Whether links deliver in order and nothing twice, as real ones do. Elsewhere they are worse.
    pub(crate) keeps_order: bool,
    /// Whether machines lose results of tasks that rode with others.
    pub(crate) loses_results: bool,
    /// Whether bookings of other schedulers become durable late.
    pub(crate) books_late: bool,
    /// When the last message of a link arrives, to the scheduler and from it, where links keep their order.
    last_arrivals: BTreeMap<(u64, bool), u64>,
    /// Messages that are dropped next, whatever the rates are.
    pub(crate) lose_next: u32,
    pub(crate) store: Memory,
    pub(crate) disk_full: bool,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) lives: u64,
    /// Of a scheduler that died while all was durable: its queues that waited, with their band and start tag.
    pub(crate) turns_before: BTreeMap<String, (u8, i128)>,
    pub(crate) machines: Vec<Machine>,
    next_link: u64,
    pub(crate) promises: Promises,
    pub(crate) observations: VecDeque<Observation>,
    pub(crate) trace: Transcript,
    pub(crate) tally: Tally,
    /// The first promise that broke.
    pub(crate) violation: Option<String>,
    /// Printed when the engine itself panics.
    pub(crate) seed: u64,
}

impl World {
    /// A world without machines, in which a scheduler is about to start.
    pub fn new(seed: u64, faults: Faults, trace: Transcript) -> Self {
        let mut world = World {
            now_ns: 0,
            clock_skew_ns: 0,
            settings: Settings::default(),
            leases_vary: false,
            list: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(seed),
            faults,
            delays: Delays::default(),
            keeps_order: false,
            loses_results: false,
            books_late: false,
            last_arrivals: BTreeMap::new(),
            lose_next: 0,
            store: Memory::default(),
            disk_full: false,
            scheduler: None,
            lives: 0,
            turns_before: BTreeMap::new(),
            machines: Vec::new(),
            next_link: 0,
            promises: Promises::default(),
            observations: VecDeque::new(),
            trace,
            tally: Tally::default(),
            violation: None,
            seed,
        };
        world.after(0, SimEvent::SchedulerStarts);
        world
    }

    /// Adds a machine, which connects at once.
    pub fn add_machine(&mut self, machine: Machine) -> usize {
        let number = self.machines.len();
        self.machines.push(machine);
        self.after(0, SimEvent::Connects(number));
        self.after(self.beat_ns(), SimEvent::Beats(number));
        self.after(S, SimEvent::Reports(number));
        number
    }

    /// Adds an entry to the list.
    pub(crate) fn after(&mut self, delay_ns: u64, event: SimEvent) {
        self.sequence += 1;
        self.list.insert((self.now_ns + delay_ns, self.sequence), Box::new(event));
    }

    /// Virtual time of the next entry, in nanoseconds.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.list.keys().next().map(|(at, _)| *at)
    }

    /// Advances the clock without carrying anything out.
    pub(crate) fn pass_to(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.trace.at(self.now_ns);
    }

    pub(crate) fn machine_clock(&self, machine: usize) -> Time {
        let Machine { skew_ns, drift_permille, .. } = self.machines[machine];
        let drift_ns = self.now_ns as i64 / 1000 * drift_permille;
        Time((CLOCK_START + self.now_ns).saturating_add_signed(skew_ns).saturating_add_signed(drift_ns))
    }

    fn beat_ns(&self) -> u64 {
        self.settings.lease_ns.map_or(BEAT_MAX, |lease_ns| BEAT_MAX.min(lease_ns / 10))
    }

    /// Records a broken promise, if it is the first.
    pub(crate) fn broken(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Carries out the first entry of the list; false if the list is empty.
    pub fn step(&mut self) -> bool {
        let Some(((now_ns, _), event)) = self.list.pop_first() else { return false };
        self.pass_to(now_ns);
        self.tally.steps += 1;
        match *event {
            SimEvent::ToScheduler(link, machine, message) => self.message_arrives(link, machine, message),
            SimEvent::ToMachine(link, machine, seq, order) => self.order_arrives(link, machine, seq, &order),
            SimEvent::Connects(machine) => self.connect(machine),
            SimEvent::Beats(machine) => self.beat(machine),
            SimEvent::Reports(machine) => self.report(machine),
            SimEvent::KeeperStarts(machine) => self.start_keeper(machine),
            SimEvent::Fences(machine) => self.fence(machine),
            SimEvent::LossSeen(link) => self.loss_seen(link),
            SimEvent::TaskEnds(machine, incarnation, key, end) => {
                self.task_ends(machine, incarnation, key, end);
            }
            SimEvent::Wakes(life) => self.wake(life),
            SimEvent::Round(life) => self.round(life),
            SimEvent::Applies(life) => self.apply(life),
            SimEvent::CommitEnds(life) => self.commit_ends(life),
            SimEvent::Thaws(life) => self.thaw(life),
            SimEvent::Reads(life, fetch) => self.read_store(life, &fetch),
            SimEvent::ReadEnds(life, event) => self.read_ends(life, event),
            SimEvent::BodyRead(life, link) => self.body_read(life, link),
            SimEvent::SchedulerStarts => self.start_scheduler(),
            SimEvent::DiskHasRoom => self.disk_full = false,
            SimEvent::Alarm(alarm) => self.observations.push_back(Observation::Alarm(alarm)),
        }
        true
    }

    /// Sends a message, which arrives once, twice or never.
    pub(crate) fn transmit(&mut self, message: SimEvent) {
        let lost = self.lose_next > 0 || self.rng.chance(self.faults.lose_permille);
        if lost {
            self.lose_next = self.lose_next.saturating_sub(1);
            self.tally.lost_messages += 1;
            self.trace.line("  lost on the way");
            return;
        }
        let doubled = !self.keeps_order && self.rng.chance(self.faults.double_permille);
        for _ in 0..1 + u32::from(doubled) {
            let mut delay_ns = MS;
            if self.rng.chance(self.faults.delay_permille) {
                delay_ns = self.rng.between(MS, 3 * S);
            }
            delay_ns += self.delays.of(&message, &mut self.rng);
            let at_ns = self.in_order(&message, self.now_ns + delay_ns);
            self.after(at_ns - self.now_ns, message.clone());
        }
    }

    /// When a message that would arrive at this time does, where links keep their order: not before those before it.
    fn in_order(&mut self, message: &SimEvent, at_ns: u64) -> u64 {
        let line = match message {
            SimEvent::ToScheduler(link, ..) => (*link, true),
            SimEvent::ToMachine(link, ..) => (*link, false),
            _ => return at_ns,
        };
        if !self.keeps_order {
            return at_ns;
        }
        let last_ns = self.last_arrivals.entry(line).or_default();
        *last_ns = at_ns.max(*last_ns);
        *last_ns
    }

    fn connect(&mut self, number: usize) {
        if self.scheduler.is_none() {
            let delay_ns = self.rng.between(100 * MS, S);
            self.after(delay_ns, SimEvent::Connects(number));
            return;
        }
        let now = self.machine_clock(number);
        let machine = &mut self.machines[number];
        if machine.link.is_some() || machine.away_until_ns > self.now_ns {
            return;
        }
        let Some(hello) = machine.hello(now) else { return };
        self.next_link += 1;
        machine.link = Some(self.next_link);
        machine.welcomed = false;
        self.trace.line(&format!("{} connects over {}", self.machines[number].label, self.next_link));
        self.link_opens(self.next_link, number);
        self.transmit(SimEvent::ToScheduler(self.next_link, number, hello));
    }

    fn beat(&mut self, number: usize) {
        if self.machines[number].retired {
            return;
        }
        self.after(self.beat_ns(), SimEvent::Beats(number));
        let now = self.machine_clock(number);
        let messages = self.machines[number].beat(now);
        self.act(number, messages.into_iter().map(Effect::Say).collect());
    }

    fn report(&mut self, number: usize) {
        let machine = &self.machines[number];
        if machine.retired {
            return;
        }
        let load = machine.load.clone().filter(|_| machine.welcomed).map(MachineMessage::Load);
        let processes = machine.processes(self.machine_clock(number));
        self.after(S, SimEvent::Reports(number));
        self.act(number, load.into_iter().chain(processes).map(Effect::Say).collect());
    }

    /// Reads cache keys for a task that starts; true if some had to be fetched.
    pub(crate) fn read(&mut self, number: usize, keys: &BTreeMap<String, Option<u64>>) -> bool {
        let (cold, message) = self.machines[number].read(keys);
        self.act(number, message.map(Effect::Say).into_iter().collect());
        cold
    }

    fn start_keeper(&mut self, number: usize) {
        let machine = &self.machines[number];
        if machine.keeper.is_some() || machine.retired || machine.away_until_ns > self.now_ns {
            return;
        }
        self.machines[number].start_keeper();
        self.trace.line(&format!("{}: a new keeper", self.machines[number].label));
        self.connect(number);
    }

    fn order_arrives(&mut self, link: u64, number: usize, seq: u64, order: &WorkerCommand) {
        if self.machines[number].link != Some(link) {
            return;
        }
        self.trace.line(&format!("{} <- {seq} {order:?}", self.machines[number].label));
        if let WorkerCommand::Start { task, attempt, gang: Some(place), .. } = order
            && let Err(what) = self.promises.place((*task, *attempt), place)
        {
            self.broken(what);
        }
        if let WorkerCommand::ShareCpus { cpu, shares } = order
            && let Err(what) = self.promises.shares(&self.machines[number], *cpu, shares)
        {
            self.broken(what);
        }
        let now = self.machine_clock(number);
        let effects = self.machines[number].order(now, seq, order);
        self.act(number, effects);
        if let WorkerCommand::Ack { task, attempt } = order {
            self.lose_results(number, (*task, *attempt));
        }
        if let WorkerCommand::Lease { .. } = order
            && let Some(until) = self.machines[number].lease_until()
        {
            // The machine's clock may be slow.
            let rate_permille = (1000 + self.machines[number].drift_permille) as u64;
            let rest_ns = until.since(now) / rate_permille * 1000;
            self.after(rest_ns + MS, SimEvent::Fences(number));
            let worker = self.scheduler.as_ref().and_then(|scheduler| scheduler.worker_of(link));
            if let Some(worker) = worker.filter(|_| rest_ns > 0) {
                let more_ns = self.settings.lease_ns.filter(|_| self.leases_vary).unwrap_or(0);
                let until = self.clock().after(rest_ns);
                if let Err(what) = self.promises.lease(&self.store, worker, until, more_ns) {
                    self.broken(what);
                }
            }
        }
    }

    fn fence(&mut self, number: usize) {
        let now = self.machine_clock(number);
        let effects = self.machines[number].fence(now);
        self.tally.fencings +=
            effects.iter().filter(|e| matches!(e, Effect::Ends(_, End::Lost))).count() as u64;
        self.act(number, effects);
    }

    fn task_ends(&mut self, number: usize, incarnation: u64, key: AttemptKey, end: End) {
        let keeper = self.machines[number].keeper.as_ref();
        if keeper.is_some_and(|keeper| keeper.incarnation == incarnation) {
            self.end_attempt(number, key, end);
        }
    }

    /// Ends an attempt on a machine, and starts what waits there.
    pub(crate) fn end_attempt(&mut self, number: usize, key: AttemptKey, end: End) {
        let now = self.machine_clock(number);
        let mut effects = self.machines[number].end(key, now, end);
        effects.extend(self.machines[number].start_waiting(now));
        self.act(number, effects);
    }

    /// Carries out the effects of a call to a machine.
    pub(crate) fn act(&mut self, number: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Say(message) => {
                    if let Some(link) = self.machines[number].link {
                        self.transmit(SimEvent::ToScheduler(link, number, message));
                    }
                }
                Effect::Starts(key) => {
                    self.tally.starts += 1;
                    self.trace.line(&format!("{}: {}#{} runs", self.machines[number].label, key.0, key.1));
                    let checked = self.promises.starts(&self.store, &self.machines[number], key);
                    let counted = self.promises.counted.check(&self.machines, key.0);
                    if let Err(what) = checked.and(counted) {
                        self.broken(what);
                    }
                    self.observations.push_back(Observation::Starts(number, key));
                }
                Effect::Ends(key, end) => {
                    let name = &self.machines[number].label;
                    self.trace.line(&format!("{name}: {}#{} ends, {end:?}", key.0, key.1));
                    self.tally.lies += u64::from(self.machines[number].lies);
                    self.promises.ends(key, end.clone());
                    self.observations.push_back(Observation::Ends(number, key, end));
                }
            }
        }
        self.check_machine(number);
    }

    pub(crate) fn check_machine(&mut self, number: usize) {
        if let Err(what) = self.promises.capacity(&self.machines[number]) {
            self.broken(what);
        }
    }

    /// Kills a keeper with everything that it runs. The scheduler notices after `seen_ns`.
    pub(crate) fn kill_keeper(&mut self, number: usize, seen_ns: u64) {
        self.tally.keeper_deaths += 1;
        self.trace.line(&format!("{}: the keeper dies", self.machines[number].label));
        self.cut_link(number, seen_ns);
        for key in self.machines[number].kill_keeper() {
            self.promises.ends(key, End::Lost);
            self.observations.push_back(Observation::Ends(number, key, End::Lost));
        }
    }

    /// A machine goes and never comes back. The scheduler notices after `seen_ns` that its link is gone.
    pub(crate) fn retire(&mut self, number: usize, seen_ns: u64) {
        self.kill_keeper(number, seen_ns);
        self.machines[number].retired = true;
        self.tally.retired += 1;
        self.trace.line(&format!("{} never comes back", self.machines[number].label));
    }

    /// A machine is away for a while. The scheduler notices after `seen_ns` that its link is gone.
    pub(crate) fn take_away(&mut self, number: usize, away_ns: u64, seen_ns: u64, keeper_dies: bool) {
        self.machines[number].away_until_ns = self.now_ns + away_ns;
        if keeper_dies {
            self.kill_keeper(number, seen_ns);
        } else {
            self.cut_link(number, seen_ns);
        }
        self.after(away_ns, SimEvent::KeeperStarts(number));
        self.after(away_ns, SimEvent::Connects(number));
    }

    /// Number of machines that have not gone for good.
    pub(crate) fn machines_left(&self) -> usize {
        self.machines.iter().filter(|machine| !machine.retired).count()
    }

    /// Cuts a link. The scheduler notices after `seen_ns`.
    pub(crate) fn cut_link(&mut self, number: usize, seen_ns: u64) {
        let Some(link) = self.machines[number].link.take() else { return };
        self.tally.cut_links += 1;
        self.machines[number].welcomed = false;
        self.trace.line(&format!("link {link} of {} goes", self.machines[number].label));
        self.after(seen_ns, SimEvent::LossSeen(link));
    }
}

impl Drop for World {
    /// Prints the last lines when the engine itself panics.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.trace.last_lines() {
                eprintln!("{line}");
            }
            eprintln!("seed {}, step {}: {}", self.seed, self.tally.steps, crate::replay_command(self.seed));
        }
    }
}
