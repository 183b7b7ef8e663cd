//! Special circumstances of the world of one seed: a small farm for gangs of many roles, a large machine that goes after
//! tasks outgrew the others, reserved machines that are taken away, commits of unknown outcome, or lost results. About
//! one seed in ten has each, and half of all seeds have none. `run` builds the world by the twist, which then acts in
//! place of people.

use crate::clock::{MS, S};
use crate::events::SimEvent;
use crate::faults::Faults;
use crate::jobs::Profile;
use crate::machine::{AttemptKey, Machine};
use crate::people::People;
use crate::rng::Rng;
use crate::world::World;
use std::cmp::Reverse;
use std::sync::Arc;
use windlass_core::job::{ChunkSize, Chunks, JobSpec, StepSpec};
use windlass_core::{Resources, WorkerId};

/// Twists have random numbers of their own, so that the other seeds have the worlds that they would have without.
const STREAM: u64 = u64::from_be_bytes(*b"\0\0\0twist");
const GIB: u64 = 1 << 30;
/// Jobs of long narrow tasks that are submitted beside gangs. Each is a few minutes of work for the machines.
const NARROW_JOBS: u32 = 3;

/// A special circumstance of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twist {
    /// Few machines, each of another size, and gangs whose roles fill them when each is on the right one.
    Roles,
    /// One machine is large, and tasks are found to need it. It is drained, away or gone for good, and may come back.
    Outgrown,
    /// Machines are reserved for gangs. One of them at a time is drained for a while.
    Reserved,
    /// Many commits are durable and reported as failed, also those that set queues and limits or end jobs. Bookings of
    /// other schedulers become durable late.
    Unsure,
    /// Chunks, and machines that lose results of tasks that rode with others.
    LostResults,
}

pub(crate) struct Twists {
    twist: Option<Twist>,
    rng: Rng,
    narrow_jobs: u32,
    /// The worker that is drained now, and until when, in virtual nanoseconds.
    drained: Option<(WorkerId, u64)>,
}

impl Twists {
    /// The twist of a seed. Worlds without faults have none.
    pub fn of(seed: u64, faults: &Faults) -> Twists {
        let mut rng = Rng::new(seed ^ STREAM);
        let twist = match rng.below(10) {
            0 => Some(Twist::Roles),
            1 => Some(Twist::Outgrown),
            2 => Some(Twist::Reserved),
            3 => Some(Twist::Unsure),
            4 => Some(Twist::LostResults),
            _ => None,
        };
        let twist = twist.filter(|_| *faults != Faults::none());
        Twists { twist, rng, narrow_jobs: 0, drained: None }
    }

    /// Sets the world up, before it has machines.
    pub fn set(&self, world: &mut World) {
        let (settings, faults) = (&mut world.settings, &mut world.faults);
        match self.twist {
            Some(Twist::Reserved) => {
                // A scheduler knows of no reservation of the one before.
                faults.scheduler_permille = 0;
                settings.plan.reserve.after_ns = 2 * S;
                settings.plan.reserve.holders_max = 8;
            }
            Some(Twist::Unsure) => {
                // The check at the end finds processes that are left behind.
                faults.scheduler_permille = 0;
                (faults.unknown_permille, faults.rival_permille) = (30, 50);
                (faults.absence_permille, faults.retire_permille) = (60, 30);
                (settings.lease_ns, settings.plan.suspect_ns) = (Some(3 * S), S);
                world.books_late = true;
            }
            Some(Twist::LostResults) => {
                // The store does not tell with which attempt another one rides.
                (faults.scheduler_permille, faults.disk_permille, faults.retention_permille) = (0, 0, 0);
                (faults.unknown_permille, faults.rival_permille) = (0, 0);
                (faults.lose_permille, faults.delay_permille) = (60, 100);
                (world.keeps_order, world.loses_results) = (false, true);
            }
            Some(Twist::Roles | Twist::Outgrown) | None => {}
        }
    }

    /// The number of machines in the world. `without` is the number that a world without a twist would have.
    pub fn machines(&mut self, without: u64) -> u64 {
        match self.twist {
            Some(Twist::Roles) => self.rng.between(2, 4),
            Some(Twist::Outgrown) => self.rng.between(2, 3),
            Some(Twist::Reserved) => self.rng.between(3, 5),
            Some(Twist::Unsure | Twist::LostResults) | None => without,
        }
    }

    /// Gives the machines their sizes.
    pub fn equip(&mut self, world: &mut World) {
        let mut cpus = vec![100, 200, 300, 400, 600, 800];
        for (number, machine) in world.machines.iter_mut().enumerate() {
            match self.twist {
                Some(Twist::Roles) => {
                    let place = self.rng.below(cpus.len() as u64) as usize;
                    make(machine, Resources::new(cpus.swap_remove(place), 8 * GIB));
                }
                Some(Twist::Outgrown) if number == 0 => make(machine, Resources::new(400, 8 * GIB)),
                Some(Twist::Outgrown) => make(machine, Resources::new(200, self.rng.between(1, 2) * GIB)),
                Some(Twist::Reserved) => make(machine, Resources::new(200, 8 * GIB)),
                Some(Twist::Unsure | Twist::LostResults) | None => {}
            }
        }
    }

    /// Acts in the place of people; false if they are to act.
    pub fn act(&mut self, world: &mut World, people: &mut People) -> bool {
        let Some(twist) = self.twist.filter(|_| self.rng.chance(500)) else { return false };
        match twist {
            Twist::Roles => {
                let job = self.roles(world);
                people.submit(world, Arc::new(job), None);
            }
            Twist::Outgrown => self.outgrow(world, people),
            Twist::Reserved => self.take_reserved(world, people),
            Twist::Unsure => match self.rng.below(4) {
                0 => people.set_queue(world),
                1 => people.set_limit(world),
                _ => {
                    let step = step("u", self.rng.between(1, 2) as u32, 100, Profile::Short);
                    people.submit(world, Arc::new(job("c", vec![step])), None);
                }
            },
            Twist::LostResults => {
                let size = ChunkSize::Fixed(self.rng.between(2, 8) as u32);
                let chunks = Some(Chunks { block: 8, runs: Vec::new(), size });
                let step = StepSpec { chunks, ..step("n", 24, 100, Profile::Short) };
                people.submit(world, Arc::new(job("c", vec![step])), None);
            }
        }
        true
    }

    /// A job of which all tasks start together: one role for the largest machine, and one or two for each other. Their
    /// order is random. An assignment exists on the machines as they are when empty.
    fn roles(&mut self, world: &World) -> JobSpec {
        let machines = world.machines.iter().filter(|machine| !machine.retired);
        let mut sizes: Vec<u32> = machines.map(|machine| machine.capacity.cpu).collect();
        sizes.sort_unstable_by_key(|cpu| Reverse(*cpu));
        sizes.truncate(self.rng.between(2, 3) as usize);
        let mut cpus = Vec::new();
        for (place, cpu) in sizes.into_iter().enumerate() {
            let first = match place {
                0 => cpu,
                _ => self.rng.between(1, (u64::from(cpu) / 100).saturating_sub(1).max(1)) as u32 * 100,
            };
            cpus.push(first);
            cpus.extend(cpu.checked_sub(first).filter(|rest| *rest > 0));
        }
        let gangs = self.rng.between(1, 2) as u32;
        let mut steps: Vec<StepSpec> = Vec::new();
        while !cpus.is_empty() {
            let cpu = cpus.swap_remove(self.rng.below(cpus.len() as u64) as usize);
            let with = (!steps.is_empty()).then_some(0);
            let name = format!("r{}", steps.len());
            steps.push(StepSpec { with, retries: 1, ..step(&name, gangs, cpu, Profile::Medium) });
        }
        JobSpec { priority: 2, ..job("c", steps) }
    }

    /// Submits tasks that hold more than they ask for and than the small machines have; the large one goes or comes
    /// back.
    fn outgrow(&mut self, world: &mut World, people: &mut People) {
        let large = world.machines[0].name.clone();
        let worker = world.engine().and_then(|engine| engine.workers().by_name(&large)).map(|w| w.record.id);
        match (self.rng.below(16), worker) {
            (0..3, Some(worker)) => people.drain(world, worker, true),
            (3, Some(worker)) => people.drain(world, worker, false),
            (4, _) if !world.machines[0].retired => {
                let away_ns = self.rng.between(5, 30) * S;
                world.take_away(0, away_ns, 0, false);
            }
            (5, _) if !world.machines[0].retired && world.machines_left() > 1 => world.retire(0, 0),
            _ => {
                let body = Profile::Medium.hungry_body(0, self.rng.between(40, 60) as u8);
                let mut step = step("g", self.rng.between(1, 3) as u32, 100, Profile::Medium);
                // No task is killed for memory that its step did not request.
                step.request.memory = 0;
                let step = StepSpec { body, retries: 2, ..step };
                people.submit(world, Arc::new(job("c", vec![step])), None);
            }
        }
    }

    /// Drains a worker that is reserved for a while, or submits long narrow tasks, or a gang of wide ones.
    fn take_reserved(&mut self, world: &mut World, people: &mut People) {
        if let Some((worker, until_ns)) = self.drained {
            if until_ns <= world.now_ns {
                people.drain(world, worker, false);
                self.drained = None;
                return;
            }
        } else if let Some(engine) = world.engine() {
            let reserved = engine.planner().reservations().holders().map(|(worker, _)| worker);
            let reserved: Vec<WorkerId> = reserved.collect();
            if let Some(worker) = self.rng.pick(&reserved).copied() {
                people.drain(world, worker, true);
                self.drained = Some((worker, world.now_ns + self.rng.between(5, 15) * S));
                return;
            }
        }
        if self.narrow_jobs == 0 || (self.narrow_jobs < NARROW_JOBS && self.rng.chance(200)) {
            self.narrow_jobs += 1;
            let narrow = job("c", vec![step("n", 40, 100, Profile::Long)]);
            people.submit(world, Arc::new(narrow), None);
            return;
        }
        let nodes = self.rng.between(2, world.machines_left().max(2) as u64) as u32;
        let wide = StepSpec { nodes: Some(nodes), ..step("w", nodes, 200, Profile::Short) };
        people.submit(world, Arc::new(job("d", vec![wide])), None);
    }
}

impl World {
    /// In a world whose machines lose results: a task has ended, and the scheduler has acknowledged it. Tasks that rode
    /// with it have ended too, and the scheduler has not heard of them. Their results are lost, and the machine
    /// connects again.
    pub(crate) fn lose_results(&mut self, number: usize, head: AttemptKey) {
        let Some(engine) = self.engine().filter(|_| self.loses_results) else { return };
        let is_unheard = |(task, attempt): &AttemptKey| {
            engine.attempt(*task).is_some_and(|known| known.number == *attempt)
        };
        let riders = self.machines[number].ended_riders(head).into_iter();
        let lost: Vec<AttemptKey> = riders.filter(is_unheard).collect();
        if lost.is_empty() {
            return;
        }
        let label = &self.machines[number].label;
        self.trace.line(&format!("{label} loses the results of {lost:?}"));
        self.tally.lost_results += lost.len() as u64;
        lost.into_iter().for_each(|key| self.machines[number].lose(key));
        self.cut_link(number, 0);
        self.after(50 * MS, SimEvent::Connects(number));
    }
}

/// Makes a machine one of this size, without attributes.
fn make(machine: &mut Machine, capacity: Resources) {
    machine.capacity = capacity;
    machine.attributes.clear();
}

fn step(name: &str, tasks: u32, cpu: u32, profile: Profile) -> StepSpec {
    StepSpec {
        name: name.to_owned(),
        tasks,
        request: Resources::new(cpu, GIB / 16),
        body: profile.body(0),
        ..StepSpec::default()
    }
}

/// A job of a queue without settings.
fn job(queue: &str, steps: Vec<StepSpec>) -> JobSpec {
    JobSpec {
        name: format!("twist {}", steps[0].name),
        queue: queue.to_owned(),
        user: "ann".to_owned(),
        steps,
        ..JobSpec::default()
    }
}
