//! The engine: jobs, workers and queues, and what to do when something happens to them.
//!
//! The contract with the shell:
//!
//! 1. The shell calls [`Engine::handle`] for each event and [`Engine::round`] when it has handled
//!    what there was, all into one [`Outbox`].
//! 2. It commits the outbox's writes in one transaction while the next outbox forms.
//! 3. When that is durable it asks [`Engine::release`] what may go out, and tells [`Engine::committed`]. After
//!    [`Engine::failed`], and where refused rows stall it, it reads jobs again and gives them to [`Engine::reload`].
//! 4. Sends, replies, facts and fetches of an outbox go out only after its commit; volatile replies at once.
//!
//! [`Pipeline`] does 2 to 4 for the shell.

mod booking;
mod check;
mod chunks;
mod commit_outcome;
mod event;
mod gangs;
mod hello;
mod job_lifecycle;
mod learning;
mod lease;
mod lend;
mod licensing;
mod pipeline;
mod prune;
mod reload;
mod resolve;
mod settings;
mod submit;
mod turns;
mod wide;
mod worker_events;

pub use crate::client_places::PlaceInUse;
pub use crate::outbox::{
    Fact, Fetch, FetchQuery, GangPlace, Holder, Outbox, Refusal, Release, Reply, Send, Unplaceable,
    WorkerCommand, Write,
};
pub use event::{Event, Held, HeldPhase, Inventory, Report, Submit};
pub use hello::{BadHello, CheckedHello, Hello, SERVABLE};
pub use pipeline::{Committed, NextBatch, Pipeline};
pub(crate) use submit::class_of;

use crate::bounds;
use crate::class::Class;
use crate::client_places::ClientPlaces;
use crate::ids::{ClassId, JobId, StepKey, TaskId, WorkerId};
use crate::job::{Counts, Job, JobRecord};
pub use crate::ledger::Attempt;
use crate::ledger::Ledger;
use crate::licences::{LicencePool, Limit};
use crate::load::formula::LoadSettings;
use crate::plan::{PlanSettings, Planner, Policy, ReservationSettings};
use crate::profiles::Profiles;
use crate::queues::{QueueRecord, Queues, SavedTurns, TurnSettings};
use crate::residency::subqueues::ParkedCount;
use crate::residency::{Lookups, Residency};
use crate::score::history::{Sample, Signature};
use crate::score::weights;
use crate::score::windows::Metric;
use crate::time::Time;
use crate::worker::{Saturation, Successes, Worker, WorkerRecord};
use crate::workers::Workers;
use settings::Setting;
use std::collections::{BTreeMap, BTreeSet};

/// How the engine is set up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Which worker with room is filled first.
    pub saturation: Saturation,
    /// The number of the first job that this engine accepts.
    pub first_job: u64,
    /// The number of the first place that it gives to an outside client. One that differs with each start makes sure that
    /// no number of an earlier start means a place of this one.
    pub first_alloc: u64,
    /// How long the tasks of a worker that is not heard from may run, and how long it therefore takes
    /// until they are run elsewhere; `None`: they may run for ever, and an operator says what is gone.
    pub lease_ns: Option<u64>,
    /// How long a worker may be silent before it gets no new work.
    pub suspect_ns: u64,
    /// How loads are judged.
    pub load: LoadSettings,
    /// How reservations are given.
    pub reserve: ReservationSettings,
    /// How pairs of step and worker are judged.
    pub policy: Policy,
    /// Milliseconds after which a task that could start should have, where its step does not say.
    pub wait_deadline_ms: u64,
    /// Steps that the engine holds before it parks jobs that nobody touched.
    pub cache_steps: usize,
    /// How turns are taken.
    pub turn: TurnSettings,
    /// How much is looked at and remembered.
    pub bounds: Bounds,
}

/// How much the engine looks at and remembers: what keeps its cost and its memory down on large farms. Tests make
/// them small, so that small farms reach them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// See [`bounds::STEP_MISSES_MAX`].
    pub step_misses: usize,
    /// See [`bounds::CANDIDATES_MAX`].
    pub candidates: usize,
    /// See [`bounds::RECENT_JOBS_MAX`].
    pub recent_jobs: usize,
    /// See [`bounds::PREFETCH_LOOKS_MAX`].
    pub prefetch_looks: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            step_misses: bounds::STEP_MISSES_MAX,
            candidates: bounds::CANDIDATES_MAX,
            recent_jobs: bounds::RECENT_JOBS_MAX,
            prefetch_looks: bounds::PREFETCH_LOOKS_MAX,
        }
    }
}

impl Settings {
    fn plan(&self) -> PlanSettings {
        PlanSettings {
            saturation: self.saturation,
            suspect_ns: self.suspect_ns,
            load: self.load,
            turn: self.turn,
            reserve: self.reserve,
            policy: self.policy,
            wait_deadline_ms: self.wait_deadline_ms,
            step_misses_max: self.bounds.step_misses,
            candidates_max: self.bounds.candidates,
            prefetch_looks_max: self.bounds.prefetch_looks,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            saturation: Saturation::default(),
            first_job: 1,
            first_alloc: 1,
            lease_ns: Some(bounds::LEASE_NS),
            suspect_ns: bounds::SUSPECT_NS,
            load: LoadSettings::default(),
            reserve: ReservationSettings::default(),
            policy: Policy::default(),
            wait_deadline_ms: weights::DEADLINE_MS,
            cache_steps: bounds::CACHE_STEPS,
            turn: TurnSettings::default(),
            bounds: Bounds::default(),
        }
    }
}

/// The state of all that is active. See the [module](self) for the contract.
#[derive(Clone, PartialEq, Debug)]
pub struct Engine {
    now: Time,
    /// Jobs and attempts.
    ledger: Ledger,
    /// Tasks booked in the round under way that can use more cpus.
    wide: Vec<wide::WideTask>,
    /// Workers, queues and classes, and what rounds remember.
    plan: Planner,
    places: ClientPlaces,
    licences: LicencePool,
    /// Which jobs are here, and which are parked in the store.
    residency: Residency<Box<Event>>,
    profiles: Profiles,
    /// Tasks that succeeded since the engine started.
    successes: Successes,
    lease_ns: Option<u64>,
    /// After a failed commit: workers whose rows it wrote.
    unsaved: BTreeSet<WorkerId>,
    /// After a failed commit: workers that are gone here and not yet in the store.
    unsaved_gone: BTreeSet<WorkerId>,
    /// After a failed commit: settings that it wrote, and that the store may have all the same.
    unsure_settings: BTreeSet<Setting>,
    /// Batches still to be released that may hold messages from before a hello.
    greetings: u32,
    turn: TurnSettings,
    bounds: Bounds,
    /// Its turns are those of the engine before it, which charged what is booked.
    goes_on: bool,
}

/// What a store holds and an engine starts from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredState {
    /// All workers.
    pub workers: Vec<WorkerRecord>,
    /// All active jobs that are not parked, by id.
    pub jobs: Vec<JobRecord>,
    /// How much is parked.
    pub parked: Vec<ParkedCount>,
    /// What is known of tasks by signature, the signatures used last first.
    pub history: Vec<(String, Vec<Sample>)>,
    /// Queues that somebody set.
    pub queues: Vec<QueueRecord>,
    /// Limits that somebody set, by name.
    pub limits: BTreeMap<String, Limit>,
    /// Where queues and users stand in their turns.
    pub turns: SavedTurns,
}

impl Engine {
    /// An engine without jobs or workers.
    pub fn new(settings: Settings) -> Self {
        Engine {
            now: Time::default(),
            ledger: Ledger::new(settings.first_job, settings.bounds.recent_jobs, settings.turn.charge),
            wide: Vec::new(),
            plan: Planner::new(settings.plan()),
            places: ClientPlaces::new(settings.first_alloc, settings.turn.charge),
            licences: LicencePool::default(),
            residency: Residency::new(settings.cache_steps, settings.bounds.recent_jobs),
            profiles: Profiles::default(),
            successes: Successes::default(),
            lease_ns: settings.lease_ns,
            unsaved: BTreeSet::new(),
            unsaved_gone: BTreeSet::new(),
            unsure_settings: BTreeSet::new(),
            greetings: 0,
            turn: settings.turn,
            bounds: settings.bounds,
            goes_on: false,
        }
    }

    /// An engine with what a store holds: its workers, not heard from yet, and its active jobs but for
    /// parked ones. Booked tasks are at their workers until those say otherwise.
    pub fn restore(settings: Settings, ground: StoredState) -> Self {
        let StoredState { workers, jobs, parked, queues, limits, history, turns } = ground;
        let mut engine = Engine::new(settings);
        queues.iter().for_each(|queue| engine.plan.queues.set(queue));
        engine.goes_on = engine.plan.queues.restore_turns(turns);
        engine.licences = LicencePool::new(limits);
        for (signature, samples) in history.into_iter().rev() {
            let signature = Signature::parse(&signature);
            samples.into_iter().for_each(|sample| engine.profiles.restore(&signature, sample));
        }
        for record in workers {
            engine.plan.workers.insert(Worker::unheard(record));
        }
        let active: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
        for record in jobs {
            let after = record.spec.after.iter().filter(|id| active.contains(id)).copied().collect();
            engine.insert_record(record, after);
        }
        engine.residency.set_parked(parked, &mut engine.plan.queues, &Outbox::default());
        engine
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Outbox) {
        self.set_now(now);
        self.act_with_jobs(event, Lookups::new(), out);
        self.follow_workers();
        self.note_pressure(out);
        self.refill(out);
    }

    fn set_now(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.plan.set_now(self.now);
    }

    fn act(&mut self, event: Event, mut lookups: Lookups, out: &mut Outbox) {
        match event {
            Event::Submit(submit) => self.submit(*submit, &lookups, out),
            Event::Cancel { request, job } => self.cancel(request, job, out),
            Event::Hold { request, job, held } => self.hold(request, job, held, out),
            Event::Prioritize { request, job, priority } => self.prioritize(request, job, priority, out),
            Event::Retry { request, job } => {
                let record = lookups.remove(&job).flatten();
                self.retry(request, job, record, out);
            }
            Event::Lend { task } => self.lend(task, out),
            Event::Reclaim { request, task } => self.reclaim(request, task, out),
            Event::Alloc { request, place } => {
                self.places.request(request, *place, &mut self.plan, self.now, out);
            }
            Event::Unalloc { alloc } => self.places.withdraw(alloc, &mut self.plan, out),
            Event::Release { alloc } => self.free_place(alloc),
            Event::PlacesInUse { worker, places } => {
                self.places.take_up(worker, places, &mut self.plan, self.now);
            }
            Event::Hello(hello) => self.hello(*hello, out),
            Event::Beat { worker, sent, inventory } => self.beat(worker, sent, &inventory, out),
            Event::Load { worker, report } => {
                self.plan.workers.hear(worker, self.now);
                if let Some(speed) = report.network_mbit_s {
                    self.plan.record(Metric::NetworkMbitS, speed);
                }
                if self.plan.workers.bears(worker, self.now, Some(report)) {
                    self.plan.request_round();
                }
            }
            Event::Caches { worker, keys } => {
                self.plan.workers.update(worker, |w| {
                    w.caches = Some(keys);
                    w.caches_version += 1;
                });
                self.plan.workers.gained(worker);
                self.plan.request_round();
            }
            Event::SetQueue { request, queue } => self.set_queue(request, queue, out),
            Event::SetLimit { request, name, limit } => self.set_limit(request, name, limit, out),
            Event::Lost { worker } => self.worker_lost(worker, out),
            Event::Drain { request, worker, draining, note } => {
                let note = note.filter(|_| draining);
                self.drain(request, worker, (draining, note), out);
            }
            Event::Forget { request, worker, force } => self.forget_worker(request, worker, force, out),
            Event::Tick => self.tick(out),
            Event::Started { by, at } => self.started(by, at, out),
            Event::Finished { by, result } => self.finished(by, result, out),
            Event::Reclaimed { by } => self.reclaimed(by, out),
            Event::Fetched { number, records } => self.fetched(number, records, out),
            Event::Audited(drifts) => self.residency.audited(drifts, &mut self.plan.queues),
            Event::Deleted(jobs) => self.deleted(&jobs),
        }
    }

    /// When the engine wants a tick and a round although nothing happens: at once if the last round
    /// ran out of budget, else when a worker has been silent for too long or its lease runs out.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.plan.needs_round() {
            return Some(self.now);
        }
        let probes = self.profiles.next_probe_end();
        let histories = self.profiles.has_unsaved().then(|| self.plan.next_refresh());
        let parked = self.residency.next_try();
        let accruals = self.ledger.accruals.first().map(|(at, _)| *at);
        let back_offs = self.licences.next_end();
        let deadlines = [self.plan.workers.next_deadline(), self.plan.next_wakeup()];
        let own = [probes, histories, accruals, parked, back_offs, self.places.next_deadline()];
        deadlines.into_iter().chain(own).flatten().min()
    }

    /// An active job, or one whose end is not yet committed.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.ledger.jobs.get(&id)
    }

    /// All jobs that the engine holds, by id.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.ledger.jobs.values()
    }

    /// All attempts, by task.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = (TaskId, &Attempt)> + ExactSizeIterator {
        self.ledger.attempts.iter().map(|(task, attempt)| (*task, attempt))
    }

    /// The attempt that a task has now.
    pub fn attempt(&self, task: TaskId) -> Option<&Attempt> {
        self.ledger.attempts.get(&task)
    }

    /// The attempts of a job, by task.
    pub fn attempts_of(&self, job: JobId) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.ledger.attempts_of(job)
    }

    /// The attempts of those tasks of a job that have an index of at least `from`, by task.
    pub fn attempts_from(&self, job: JobId, from: u32) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.ledger.attempts_from(job, from)
    }

    /// Jobs and attempts, for explanations.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How many tasks of all active jobs, parked ones too, are in which state, in a walk over jobs and steps.
    pub fn counts(&self) -> Counts {
        let mut sum = self.residency.parked_counts();
        for counts in self.ledger.jobs.values().map(Job::counts) {
            sum.total = sum.total.saturating_add(counts.total);
            sum.waiting = sum.waiting.saturating_add(counts.waiting);
            sum.ready = sum.ready.saturating_add(counts.ready);
            sum.active = sum.active.saturating_add(counts.active);
            sum.succeeded = sum.succeeded.saturating_add(counts.succeeded);
            sum.failed = sum.failed.saturating_add(counts.failed);
            sum.canceled = sum.canceled.saturating_add(counts.canceled);
            sum.skipped = sum.skipped.saturating_add(counts.skipped);
        }
        sum
    }

    /// All workers.
    pub fn workers(&self) -> &Workers {
        &self.plan.workers
    }

    /// All queues.
    pub fn queues(&self) -> &Queues {
        &self.plan.queues
    }

    /// The limits of the farm, and what is taken of them.
    pub fn licences(&self) -> &LicencePool {
        &self.licences
    }

    /// What is expected of tasks by their signature.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// How turns are taken.
    pub fn turn(&self) -> TurnSettings {
        self.turn
    }

    /// Places and requests, for gateways and boards.
    pub fn places(&self) -> &ClientPlaces {
        &self.places
    }

    /// What rounds plan over and remember.
    pub fn planner(&self) -> &Planner {
        &self.plan
    }

    /// A class that some step uses.
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.plan.classes.find(id)
    }

    /// The class of a step of an active job.
    pub fn class_of(&self, key: StepKey) -> Option<&Class> {
        let job = self.ledger.jobs.get(&key.job)?;
        Some(self.plan.classes.get(job.steps.get(usize::from(key.step))?.class))
    }

    /// Queues a message to a worker and returns its number.
    fn send(&mut self, worker: WorkerId, order: WorkerCommand, out: &mut Outbox) -> u64 {
        let seq = self.plan.workers.next_seq(worker);
        out.sends.push(Send { worker, seq, order });
        seq
    }
}
