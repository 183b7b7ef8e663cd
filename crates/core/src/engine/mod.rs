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
mod commit_outcome;
mod commits;
mod event;
mod pipeline;
mod resolve;

pub use crate::client_places::PlaceInUse;
pub use crate::ledger::{
    Attempt, BadHello, CheckedHello, Held, HeldPhase, Hello, Inventory, Processes, Report, SERVABLE,
    StartableMachine, Submit,
};
pub use crate::outbox::{
    CpuShare, Fact, Fetch, FetchQuery, GangPlace, Holder, Outbox, Refusal, Release, Reply, Send, Unplaceable,
    WorkerCommand, Write,
};
pub use event::Event;
pub use pipeline::{Committed, NextBatch, Pipeline};

use crate::bounds;
use crate::class::Class;
use crate::client_places::{ClientPlaces, PlaceRequest};
use crate::ids::{AllocId, ClassId, JobId, RequestId, StepKey, TaskId, WorkerId};
use crate::job::{Counts, Job, JobRecord};
use crate::ledger::{
    Books, Ledger, Lookups, classes, first_tasks, greeting, holding, learning, lease, lend, licensing,
    lifecycle, records, reports, requests, retire, settings, shares, submit, task_requests, turns,
};
use crate::licences::{LicencePool, Limit};
use crate::plan::{PlanSettings, Planner, Work};
use crate::profiles::Profiles;
use crate::queues::{Charge, QueueRecord, Queues, SavedTurns};
use crate::residency::Residency;
use crate::residency::subqueues::{ParkedCount, Subqueues};
use crate::score::history::{Sample, Signature};
use crate::time::Time;
use crate::worker::{Worker, WorkerRecord};
use crate::workers::Workers;
use commits::Commits;
use std::collections::{BTreeMap, BTreeSet};

/// How the engine is set up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// How rounds plan.
    pub plan: PlanSettings,
    /// The number of the first job that this engine accepts.
    pub first_job: u64,
    /// The number of the first place that it gives to an outside client. One that differs with each start makes sure
    /// that no number of an earlier start means a place of this one.
    pub first_alloc: u64,
    /// How long the tasks of a worker that is not heard from may run, and how long it therefore takes
    /// until they are run elsewhere; `None`: they may run for ever, and an operator says what is gone.
    pub lease_ns: Option<u64>,
    /// Steps that the engine holds before it parks jobs that nobody touched.
    pub cache_steps: usize,
    /// See [`bounds::RECENT_JOBS_MAX`].
    pub recent_jobs_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            plan: PlanSettings::default(),
            first_job: 1,
            first_alloc: 1,
            lease_ns: Some(bounds::LEASE_NS),
            cache_steps: bounds::CACHE_STEPS,
            recent_jobs_max: bounds::RECENT_JOBS_MAX,
        }
    }
}

/// The state of all that is active. See the [module](self) for the contract.
#[derive(Clone, PartialEq, Debug)]
pub struct Engine {
    /// Jobs and attempts, workers and queues, and what is known of tasks.
    books: Books,
    /// Which jobs are here, and which are parked in the store.
    residency: Residency<Box<Event>>,
    places: ClientPlaces,
    /// What failed commits left to do.
    commits: Commits,
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
    /// Queues that an administrator set.
    pub queues: Vec<QueueRecord>,
    /// Limits that an administrator set, by name.
    pub limits: BTreeMap<String, Limit>,
    /// Where queues and users stand in their turns.
    pub turns: SavedTurns,
}

impl Engine {
    /// An engine without jobs or workers.
    pub fn new(settings: Settings) -> Self {
        let Settings { plan, first_job, first_alloc, lease_ns, cache_steps, recent_jobs_max } = settings;
        let charge = plan.turn.charge;
        Engine {
            books: Books {
                ledger: Ledger::new(first_job, recent_jobs_max, charge, lease_ns),
                plan: Planner::new(plan),
                profiles: Profiles::default(),
            },
            residency: Residency::new(cache_steps, recent_jobs_max),
            places: ClientPlaces::new(first_alloc, charge),
            commits: Commits::default(),
        }
    }

    /// An engine with what a store holds: its workers, not heard from yet, and its active jobs but for
    /// parked ones. Booked tasks are at their workers until those say otherwise.
    pub fn restore(settings: Settings, ground: StoredState) -> Self {
        let StoredState { workers, jobs, parked, queues, limits, history, turns } = ground;
        let mut engine = Engine::new(settings);
        let books = &mut engine.books;
        queues.iter().for_each(|queue| books.plan.queues.set(queue));
        books.ledger.turns_continue = books.plan.queues.restore_turns(turns);
        books.ledger.licences = LicencePool::new(limits);
        for (signature, samples) in history.into_iter().rev() {
            let signature = Signature::parse(&signature);
            samples.into_iter().for_each(|sample| books.profiles.restore(&signature, sample));
        }
        for record in workers {
            books.plan.workers.insert(Worker::unheard(record));
        }
        let active: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
        for record in jobs {
            let after = record.spec.after.iter().filter(|id| active.contains(id)).copied().collect();
            records::insert_record(books, record, after);
        }
        first_tasks::look_at_all(books);
        // None of these is parked, so there is nothing to write.
        let mut nothing = Outbox::default();
        engine.residency.follow(books, &mut nothing);
        engine.residency.set_parked(parked, &mut books.plan.queues, &nothing);
        engine
    }

    /// First step after a restore. Ends jobs whose last task ended just before the earlier engine was killed, and
    /// renews every lease in full: no server answered beats meanwhile.
    pub fn settle_restored(&mut self, now: Time, out: &mut Outbox) {
        let books = &mut self.books;
        books.plan.set_now(now);
        lease::renew_all(books);
        turns::take_up_charges(books);
        books.ledger.licences.back_offs.clip(now);
        let ids: Vec<JobId> = books.ledger.jobs.keys().copied().collect();
        for id in ids {
            lifecycle::settle_job(books, id, out);
        }
        self.residency.settle(books, out);
        books.plan.queues.settle_restored();
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, event: Event, out: &mut Outbox) {
        self.books.plan.set_now(now);
        self.act_with_jobs(event, Lookups::new(), out);
        for worker in std::mem::take(&mut self.books.ledger.effects.expired) {
            self.places.on(worker).into_iter().for_each(|alloc| self.free_place(alloc));
        }
        self.follow_workers();
        reports::note_pressure(&mut self.books.plan, out);
        self.residency.settle(&mut self.books, out);
    }

    fn act(&mut self, event: Event, lookups: Lookups, out: &mut Outbox) {
        let books = &mut self.books;
        match event {
            Event::Submit(submit) => submit::submit(books, *submit, &lookups, out),
            Event::Cancel { request, job } => requests::cancel(books, request, job, out),
            Event::Hold { request, job, held } => requests::hold(books, request, job, held, out),
            Event::Prioritize { request, job, priority } => {
                requests::prioritize(books, request, job, priority, out);
            }
            Event::Retry { request, job } => {
                task_requests::retry(books, request, job, (None, lookups), out);
            }
            Event::CancelTasks { request, job, tasks } => {
                task_requests::cancel_tasks(books, request, job, &tasks, out);
            }
            Event::RetryTasks { request, job, tasks } => {
                task_requests::retry(books, request, job, (Some(tasks), lookups), out);
            }
            Event::Lend { task } => lend::lend(books, task, out),
            Event::Reclaim { request, task } => lend::reclaim(books, request, task, out),
            Event::Alloc { request, place } => self.give_place(request, *place, out),
            Event::Unalloc { alloc } => self.places.withdraw(alloc, &mut books.plan, out),
            Event::Release { alloc } => self.free_place(alloc),
            Event::PlacesInUse { worker, places } => self.places.take_up(worker, places, &mut books.plan),
            Event::OutsideWorkHolds { alloc, bytes } => {
                let gained = self.places.note_held(alloc, bytes, &mut books.plan);
                gained.into_iter().for_each(|worker| self.use_room(worker));
            }
            Event::OutsideWorkEnded { mut signatures, sample } => {
                signatures.retain(|signature| books.profiles.learn_outside(signature, sample));
                self.places.resize(&signatures, &books.profiles, &mut books.plan);
            }
            Event::OfferPlaces { worker, name, count } => {
                self.places.offer(worker, name, count, &mut books.plan);
            }
            Event::Hello(hello) => {
                if greeting::hello(books, *hello, out) {
                    self.commits.note_hello();
                }
            }
            Event::Beat { worker, sent, inventory } => greeting::beat(books, worker, sent, &inventory, out),
            Event::Load { worker, report } => reports::load(&mut books.plan, worker, report),
            Event::Caches { worker, keys } => reports::caches(&mut books.plan, worker, keys),
            Event::SetQueue { request, queue } => settings::set_queue(books, request, queue, out),
            Event::RemoveQueue { request, name } => {
                let is_parked = |id| self.residency.has_queue(id);
                settings::remove_queue(&books.plan.queues, request, name, is_parked, out);
            }
            Event::SetLimit { request, name, limit } => {
                settings::set_limit(&mut books.ledger, request, name, limit, out);
            }
            Event::Lost { worker } => lease::worker_lost(&mut books.plan, worker, out),
            Event::Drain { request, worker, draining, note } => {
                let note = note.filter(|_| draining);
                retire::drain(&mut books.plan, request, worker, (draining, note), out);
            }
            Event::Forget { request, worker, force } => {
                retire::forget_worker(books, request, worker, force, out);
            }
            Event::Tick => lease::tick(books, out),
            Event::Started { by, at } => reports::started(books, by, at, out),
            Event::Finished { by, result } => reports::finished(books, by, result, out),
            Event::Reclaimed { by } => lend::reclaimed(books, by, out),
            Event::Processes { worker, task, attempt, said } => {
                shares::note_processes(books, worker, (task, attempt), said);
            }
            Event::Fetched { number, records } => self.fetched(number, records, out),
            Event::Audited(drifts) => self.residency.audited(drifts, &mut books.plan.queues),
            Event::Deleted(jobs) => submit::deleted(&mut books.ledger, &jobs),
        }
    }

    /// A client asks for a place, or says what it has.
    fn give_place(&mut self, request: RequestId, place: PlaceRequest, out: &mut Outbox) {
        let Books { ledger, plan, profiles } = &mut self.books;
        if let Some((worker, limits)) = self.places.request(request, place, profiles, plan, out) {
            licensing::take(&mut ledger.licences, &limits, (worker, 1), plan);
        }
    }

    /// A client gives its place back: the worker may have room for a task that waits there.
    fn free_place(&mut self, alloc: AllocId) {
        let books = &mut self.books;
        let Some((worker, limits)) = self.places.free(alloc, &mut books.plan) else { return };
        licensing::take(&mut books.ledger.licences, &limits, (worker, -1), &mut books.plan);
        self.use_room(worker);
    }

    /// A worker has more room beside the places of outside clients.
    fn use_room(&mut self, worker: WorkerId) {
        holding::promote(&mut self.books, worker);
        self.books.plan.request_round();
    }

    /// Classes follow the workers: the queues that some are for alone, and how large what is learned may be.
    fn follow_workers(&mut self) {
        let queues = self.books.plan.workers.take_new_or_gone_queues();
        if !queues.is_empty() {
            classes::refresh_classes(&mut self.books, &queues);
            self.places.refresh_classes(&queues, &mut self.books.plan);
        }
        classes::follow_sizes(&mut self.books);
    }

    /// Books up to `budget` tasks. Returns how many it booked. See [`plan::round`](crate::plan::round).
    pub fn round(&mut self, now: Time, budget: usize, out: &mut Outbox) -> usize {
        self.books.plan.set_now(now);
        if self.books.plan.refresh_statistics() {
            self.save_histories(out);
            self.books.plan.prune_queues(|id| self.residency.has_queue(id));
            retire::prune(&mut self.books.plan, out);
        }
        let is_needed = self.books.plan.needs_round();
        if is_needed {
            shares::charge_changed(&mut self.books);
        }
        let booked = crate::plan::round(self, budget, out);
        // After a round without budget for more, something else may have a use for what is idle.
        self.books.ledger.wide.clear();
        if is_needed {
            self.residency.settle(&mut self.books, out);
        }
        if booked < budget {
            self.places.expire(&mut self.books.plan, out);
        }
        shares::tell_shares(&mut self.books, out);
        booked
    }

    /// Renews the lease of a worker that is heard while the store cannot be written, or takes long. After a restart the
    /// stored lease may look expired too early. That is safe, because a restart renews every lease in full before it
    /// expires any.
    pub fn keep_lease(&mut self, now: Time, id: WorkerId, sent: u64, out: &mut Outbox) {
        self.books.plan.set_now(now);
        lease::keep_lease(&mut self.books, id, sent, out);
    }

    /// Whether a worker may introduce itself so. A name is one machine's at a time: another one gets it
    /// when nothing of the first can run any more.
    pub fn admit(&self, hello: &Hello) -> Result<(), Refusal> {
        lease::admit(&self.books.plan, hello)
    }

    /// Writes the samples that the store does not have: now and then, and before the end.
    pub fn save_histories(&mut self, out: &mut Outbox) {
        learning::save_histories(&mut self.books, out);
    }

    /// Adds to a batch the turns that have changed since they were written last. A batch that writes has them by itself
    /// (see [`Pipeline::next_batch`]); this is for the last batch of a server that ends.
    pub fn save_turns(&mut self, out: &mut Outbox) {
        let turns = self.books.plan.queues.take_changed_turns();
        if !turns.is_empty() {
            out.writes.push(Write::Turns(turns));
        }
    }

    /// When the engine wants a tick and a round although nothing happens: at once if the last round
    /// ran out of budget, else when a worker has been silent for too long or its lease runs out.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.books.plan.needs_round() {
            return Some(self.books.plan.now());
        }
        let probes = self.books.profiles.next_probe_end();
        let histories = self.books.profiles.has_unsaved().then(|| self.books.plan.next_refresh());
        let parked = self.residency.next_try();
        let accruals = self.books.ledger.accruals.first().map(|(at, _)| *at);
        let back_offs = self.books.ledger.licences.back_offs.next_end();
        let deadlines = [self.books.plan.workers.next_deadline(), self.books.plan.next_wakeup()];
        let own = [probes, histories, accruals, parked, back_offs, self.places.next_deadline()];
        deadlines.into_iter().chain(own).flatten().min()
    }

    /// An active job, or one whose end is not yet committed.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.books.ledger.jobs.get(&id)
    }

    /// All jobs that the engine holds, by id.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.books.ledger.jobs.values()
    }

    /// All attempts, by task.
    pub fn attempts(&self) -> impl DoubleEndedIterator<Item = (TaskId, &Attempt)> + ExactSizeIterator {
        self.books.ledger.attempts.iter().map(|(task, attempt)| (*task, attempt))
    }

    /// The attempt that a task has now.
    pub fn attempt(&self, task: TaskId) -> Option<&Attempt> {
        self.books.ledger.attempts.get(&task)
    }

    /// The attempts of a job, by task.
    pub fn attempts_of(&self, job: JobId) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.books.ledger.attempts_of(job)
    }

    /// The attempts of those tasks of a job that have an index of at least `from`, by task.
    pub fn attempts_from(&self, job: JobId, from: u32) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.books.ledger.attempts_from(job, from)
    }

    /// Jobs and attempts, for explanations.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }

    /// How many tasks of all active jobs, parked ones too, are in which state, in a walk over jobs and steps.
    pub fn counts(&self) -> Counts {
        let mut sum = self.residency.away_counts();
        for counts in self.books.ledger.jobs.values().map(Job::counts) {
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
        &self.books.plan.workers
    }

    /// All queues.
    pub fn queues(&self) -> &Queues {
        &self.books.plan.queues
    }

    /// The limits of the farm, and what is taken of them.
    pub fn licences(&self) -> &LicencePool {
        &self.books.ledger.licences
    }

    /// What is expected of tasks by their signature.
    pub fn profiles(&self) -> &Profiles {
        &self.books.profiles
    }

    /// What bookings cost their queues.
    pub fn charge(&self) -> Charge {
        self.books.ledger.charge
    }

    /// Places and requests, for gateways and boards.
    pub fn places(&self) -> &ClientPlaces {
        &self.places
    }

    /// What rounds plan over and remember.
    pub fn planner(&self) -> &Planner {
        &self.books.plan
    }

    /// A class that some step uses.
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.books.plan.classes.find(id)
    }

    /// The class of a step of an active job.
    pub fn class_of(&self, key: StepKey) -> Option<&Class> {
        let job = self.books.ledger.jobs.get(&key.job)?;
        Some(self.books.plan.classes.get(job.steps.get(usize::from(key.step))?.class))
    }

    /// The tasks that ride with this one, if it is booked, each with its attempt's number.
    pub fn riders(&self, head: TaskId) -> Vec<(TaskId, u32)> {
        let ledger = &self.books.ledger;
        let Some(attempt) = ledger.attempts.get(&head) else { return Vec::new() };
        let riders = ledger.riders_of(head, attempt).into_iter();
        riders.map(|(index, number)| (TaskId { index, ..head }, number)).collect()
    }

    /// When a booked or running task is expected to end, by the mean run time of its step or else by its task profile,
    /// and by its time limit; `None` where nothing is known of it. A time that has passed is that of a task that takes
    /// longer.
    pub fn expected_end(&self, task: TaskId) -> Option<Time> {
        self.running(task)?.due
    }

    /// The subqueues, and what of them is parked.
    pub fn subqueues(&self) -> &Subqueues {
        self.residency.subqueues()
    }

    /// The number of the next job that the engine accepts.
    pub fn next_job(&self) -> JobId {
        JobId(self.books.ledger.next_job)
    }

    /// Steps of all resident jobs.
    pub fn resident_steps(&self) -> usize {
        self.books.ledger.steps
    }

    /// True if the store has the job parked as well.
    pub(crate) fn is_parked(&self, job: JobId) -> bool {
        self.residency.is_parked(job)
    }
}
