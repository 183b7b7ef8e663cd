//! Workers: what a store has of them, what is booked on them, their link, and what they report.

mod booked;
mod class;
mod health;
mod licences;
mod link;
mod origin;
mod record;
mod reported;
mod warmth;

pub use booked::{Booked, Build, BuildRuns};
pub use class::{WorkerClass, WorkerFlags};
pub use health::{Ended, Fault, Health, HealthVerdict, Record, Successes};
pub use licences::Licences;
pub use link::Link;
pub use origin::Origin;
pub use record::{WorkerRecord, WorkerState};
pub use reported::{REST_NS, Reported, ReportedMemory};
pub use warmth::{DISPLACED_AFTER, Warmth};

use crate::bounds;
use crate::load::formula::{CpuBooked, LoadSettings, LoadTerms, Saturated};
use crate::resources::Resources;
use crate::tags::{Attributes, FOR_QUEUE};
use crate::time::Time;
use std::collections::BTreeSet;

/// Which of several workers with room is taken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Saturation {
    /// Fill the worker with fewest free cpus first, instead of spreading.
    pub cores: bool,
    /// Take the worker with least free memory first.
    pub memory: bool,
}

/// A machine with its agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Worker {
    /// What a store has of it.
    pub record: WorkerRecord,
    /// What is booked on it.
    pub booked: Booked,
    /// The messages between it and its server.
    pub link: Link,
    /// What it says of its load and its caches.
    pub reported: Reported,
    /// What its tasks hold of limits, those that were sent ahead too. Written with each booking and each end.
    pub licences: Licences,
    /// Whether its tasks speak against it. Written when an attempt ends.
    pub health: Health,
    /// Which steps' inputs it is likely to have at hand. Written with each booking.
    pub warmth: Warmth<u64>,
    /// What rules look at of its attributes. Written with these.
    pub flags: WorkerFlags,
}

impl Worker {
    /// A worker as a store has it, before it is heard from: nothing is booked on it.
    pub fn unheard(mut record: WorkerRecord) -> Self {
        record.state = match record.state {
            WorkerState::Expired | WorkerState::Forgotten => record.state,
            _ if record.draining => WorkerState::Draining,
            _ => WorkerState::Suspect,
        };
        Worker {
            flags: WorkerFlags::of(&record.attributes),
            record,
            booked: Booked::default(),
            link: Link::default(),
            reported: Reported::default(),
            licences: Licences::default(),
            health: Health::default(),
            warmth: Warmth::default(),
        }
    }

    /// A worker in the state that the record says, with a link that holds: for planners whose workers send no hello.
    pub fn linked(record: WorkerRecord) -> Self {
        let state = record.state;
        let mut worker = Worker::unheard(record);
        worker.record.state = state;
        worker.link.connected = true;
        worker
    }

    /// Takes back a change that was not committed. The worker must say hello again.
    pub fn restore(&mut self, record: &WorkerRecord) {
        let known = &mut self.record;
        known.epoch = record.epoch;
        known.identity = record.identity;
        known.incarnation = record.incarnation;
        known.draining = record.draining;
        known.note.clone_from(&record.note);
        known.lease_until = record.lease_until;
        known.state = record.state;
        self.unlink();
    }

    /// The record for the store. It lacks what clients of Nix say of their machines.
    pub fn stored(&self) -> WorkerRecord {
        let mut record = self.record.clone();
        if Origin::of(&record.name) == Origin::Nix {
            record.attributes = Attributes::new();
        }
        record
    }

    /// Lets its lease last at least `lasts_ns` from `now`; `None` takes the lease away.
    pub fn lease(&mut self, now: Time, lasts_ns: Option<u64>) {
        let until = self.record.lease_until;
        self.record.lease_until = lasts_ns.and_then(|ns| until.max(Some(now.after(ns))));
    }

    /// Its link is gone, or it is silent: no new work until it says hello again.
    pub fn unlink(&mut self) {
        self.link.connected = false;
        if self.record.state == WorkerState::Up {
            self.record.state = WorkerState::Suspect;
        }
    }

    /// When something must be done about it unless it is heard from before.
    pub fn deadline(&self, suspect_ns: u64, stale_ns: u64) -> Option<Time> {
        let silent = self.link.heard.filter(|_| self.link.connected).map(|at| at.after(suspect_ns));
        let stale = self.reported.dated_load().map(|(at, _)| at.after(stale_ns));
        let readmitted = self.health.out().map(|(until, _)| until);
        [silent, stale, readmitted, self.record.lease_until].into_iter().flatten().min()
    }

    /// True if it runs something, and what it was sent ahead is less than it may be. A worker does not know of places
    /// of outside clients, and would start what it was sent in their room; another system's executor starts
    /// what it is sent. Where a build wants more cpus each task waits for its turn at them.
    pub fn has_room_ahead(&self) -> bool {
        let running = self.booked.running();
        self.takes_work()
            && !running.is_empty()
            && self.booked.places().is_empty()
            && self.booked.lending() == 0
            && !self.booked.wants_more()
            && self.flags.class.takes_work_ahead
            && self.booked.backlog().len() < bounds::PREFETCH_MAX
            && self.booked.backlog_ms() < bounds::PREFETCH_MS * running.len() as f64
    }

    /// The queues whose work alone it takes; `None` takes that of all.
    pub fn for_queues(&self) -> Option<&BTreeSet<String>> {
        // Asked of each worker that a search looks at, and rarely set.
        if self.flags.is_for_queues { self.record.attributes.get(FOR_QUEUE) } else { None }
    }

    /// True if it gets work that fits: it is up, has space, and is neither held by pressure nor left out for its
    /// faults.
    pub fn takes_work(&self) -> bool {
        self.takes_if(self.reported.saturated())
    }

    /// The same of tasks with a jobserver. Pressure on cpus keeps none of them off: each runs one process, and more by what
    /// is left.
    pub fn takes_builds(&self) -> bool {
        self.takes_if(Saturated { cpu: false, ..self.reported.saturated() })
    }

    fn takes_if(&self, saturated: Saturated) -> bool {
        let held = saturated.is_pressed() && !(self.reported.last_resort && self.booked.is_idle());
        self.record.state == WorkerState::Up
            && !held
            && !saturated.lacks_space()
            && self.health.out().is_none()
    }

    /// True if it is a worker of the farm: no administrator said that it is gone.
    pub fn is_present(&self) -> bool {
        self.record.state != WorkerState::Forgotten
    }

    /// True if learned sizes go by what it has: it gets work, or gets none for a moment only, because it is under
    /// pressure, or silent while its lease runs. Where it gets none for another reason, no task waits for it because of
    /// memory or cpus that no user asked for.
    pub fn counts_for_sizes(&self) -> bool {
        let is_heard = match self.record.state {
            WorkerState::Up => true,
            WorkerState::Suspect => self.record.lease_until.is_some(),
            WorkerState::Draining | WorkerState::Expired | WorkerState::Forgotten => false,
        };
        is_heard && self.health.out().is_none() && !self.reported.saturated().lacks_space()
    }

    /// Speed of one core: what its attributes say, else what was measured.
    pub fn core_score(&self) -> Option<f64> {
        self.flags.core_score.or(self.reported.core_score())
    }

    /// How loaded it is with one more task of `task_cpu` hundredths of a core: about 0 to 1, and more where it
    /// is under pressure.
    pub fn load_with(&self, task_cpu: u32, settings: &LoadSettings) -> f64 {
        self.load_terms(settings).load_with(task_cpu)
    }

    /// The terms of its load that a new task does not change.
    pub fn load_terms(&self, settings: &LoadSettings) -> LoadTerms {
        let is_rested = self.booked.is_idle() && self.reported.is_rested();
        let booked = CpuBooked {
            sum: self.booked.sum().cpu,
            of_jobservers: self.booked.of_jobservers_cpu(),
            jobservers: self.booked.jobservers().len() as u32,
        };
        LoadTerms::of(self.record.capacity.cpu, booked, self.reported.load(), is_rested, settings)
    }

    /// What is not booked.
    pub fn free(&self) -> Resources {
        self.record.capacity.less(self.booked.sum())
    }

    /// What a new booking may use: what is free, and of memory what [`Worker::bookable_memory`] says.
    pub fn room(&self) -> Resources {
        Resources { memory: self.bookable_memory(), ..self.free() }
    }

    /// Bytes that a new booking may ask for: [`Worker::memory_room`], or all of the worker if each task there waits for
    /// jobs that it submitted. These may be such jobs: if none could start beside their submitters, all would wait for
    /// ever.
    pub fn bookable_memory(&self) -> u64 {
        if self.booked.only_lends() { self.record.capacity.memory } else { self.memory_room() }
    }

    /// Bytes that a new booking may use: what bookings and headroom leave, and no more than the machine has left. On an
    /// idle worker the memory of other programs does not count: it would keep the worker idle for ever, and pressure
    /// tells when memory is really short. An executor of another system is taken at its word. What outside clients use of
    /// their places is not available any more, so it is not taken off a second time.
    pub fn memory_room(&self) -> u64 {
        let booked = self.booked.sum().memory.saturating_add(self.booked.headroom_bytes());
        let free = self.record.capacity.memory.saturating_sub(booked);
        let is_counted = self.flags.class.trusts_reported_memory || !self.booked.is_idle();
        match self.reported.memory().filter(|_| is_counted) {
            Some(memory) => free.min(memory.room(booked.saturating_sub(self.booked.used_by_places_bytes()))),
            None => free,
        }
    }

    /// True if `request` fits into [`Worker::room`], which is not built for that.
    pub fn has_room(&self, request: &Resources) -> bool {
        let (has, booked) = (&self.record.capacity, self.booked.sum());
        let of = |amounts: &Resources, name: &str| amounts.custom.get(name).copied().unwrap_or(0);
        request.cpu <= has.cpu.saturating_sub(booked.cpu)
            && request.gpus <= has.gpus.saturating_sub(booked.gpus)
            && request.gpu_memory <= has.gpu_memory.saturating_sub(booked.gpu_memory)
            && request.memory <= self.bookable_memory()
            && request
                .custom
                .iter()
                .all(|(name, need)| *need <= of(has, name).saturating_sub(of(booked, name)))
    }
}
