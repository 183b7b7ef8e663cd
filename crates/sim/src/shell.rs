//! The simulated shell around the engine, as small as the engine's contract allows: events go into an outbox, one batch
//! is committed while the next one forms, and commands and replies go out only after the commit. `world` calls it for
//! each entry of its list. It follows the rules of `server/shell.rs` and shares no code with it.

use crate::brief;
use crate::clock::{CLOCK_START, MS, S};
use crate::events::{Observation, SimEvent};
use crate::gangs::ReservedGangs;
use crate::machine::MachineMessage;
use crate::promises::same_settings;
use crate::scheduler::{Fate, Flight, HeldBack, Incoming, Scheduler};
use crate::waits;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{
    Committed, Engine, Event, Fetch, FetchQuery, Hello, NextBatch, Outbox, Pipeline, Report, Send, Settings,
    Write,
};
use windlass_core::worker::WorkerState;
use windlass_core::{Epoch, JobId, Time};
use windlass_store::Memory;

impl World {
    pub(crate) fn start_scheduler(&mut self) {
        if self.scheduler.is_some() {
            return;
        }
        let drifts = self.store.audit_parked();
        if !drifts.is_empty() {
            self.broken(format!("the store miscounts parked jobs: {drifts:?}"));
        }
        let snapshot = self.store.load();
        let twice = self.leases_vary && self.rng.chance(300);
        let lease_ns = self.settings.lease_ns.map(|ns| if twice { 2 * ns } else { ns });
        let first_alloc = self.lives * 1_000_000 + 1;
        let settings = Settings { first_job: snapshot.next_job, first_alloc, lease_ns, ..self.settings };
        let mut engine = Engine::restore(settings, snapshot.ground);
        let mut pipeline = Pipeline::default();
        engine.settle_restored(self.clock(), &mut pipeline.forming);
        if let Err(what) = waits::turns_kept(&engine, &std::mem::take(&mut self.turns_before)) {
            self.broken(what);
        }
        self.lives += 1;
        self.trace.line(&format!("scheduler {} starts", self.lives));
        self.scheduler = Some(Scheduler {
            engine,
            life: self.lives,
            pipeline,
            in_flight: None,
            links: BTreeMap::new(),
            held_back: HeldBack::new(),
            frozen: None,
            round_due: false,
            reserved_gangs: ReservedGangs::default(),
            wakes: None,
            clock_skew_ns: self.clock_skew_ns,
        });
        self.handled();
    }

    pub(crate) fn kill_scheduler(&mut self) {
        let Some(scheduler) = self.scheduler.take() else { return };
        self.turns_before = waits::turns(&scheduler);
        self.tally.scheduler_deaths += 1;
        self.trace.line("the scheduler dies");
        self.observations.push_back(Observation::SchedulerDied);
        for number in 0..self.machines.len() {
            self.machines[number].link = None;
            self.machines[number].welcomed = false;
            if self.machines[number].keeper.is_some() {
                let delay_ns = self.rng.between(100 * MS, S);
                self.after(delay_ns, SimEvent::Connects(number));
            }
        }
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.scheduler.as_ref().map(|scheduler| &scheduler.engine)
    }

    pub(crate) fn link_opens(&mut self, link: u64, machine: usize) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.links.insert(link, (machine, None));
        }
    }

    pub(crate) fn loss_seen(&mut self, link: u64) {
        let Some(scheduler) = &mut self.scheduler else { return };
        if let Some(waiting) = &mut scheduler.frozen {
            waiting.push_back(Incoming::Loss(link));
            return;
        }
        scheduler.forget_held_back(link);
        if let Some((_, Some(worker))) = scheduler.links.remove(&link) {
            self.tell(Event::Lost { worker });
        }
    }

    pub(crate) fn message_arrives(&mut self, link: u64, machine: usize, message: MachineMessage) {
        let Some(scheduler) = &mut self.scheduler else { return };
        // A message of an earlier link has no receiver.
        if !scheduler.links.contains_key(&link) {
            return;
        }
        if let Some(waiting) = &mut scheduler.frozen {
            // As in the server: reports other than hellos are repeated when the worker is asked for a hello.
            if let MachineMessage::Hello(_) = message {
                waiting.push_back(Incoming::Message(link, machine, message));
            }
            return;
        }
        self.take_message(link, machine, message);
    }

    fn take_message(&mut self, link: u64, machine: usize, message: MachineMessage) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let Some((_, bound)) = scheduler.links.get(&link).copied() else { return };
        if let MachineMessage::Hello(mut hello) = message {
            let known = scheduler.engine.workers().by_name(&hello.name).map(|worker| worker.record.id);
            hello.new_link = known.is_none() || bound != known;
            self.take_hello(link, machine, hello);
            return;
        }
        let Some(worker) = bound else { return };
        let by = |(task, attempt), epoch| Report { worker, epoch, task, attempt };
        self.tell(match message {
            MachineMessage::Hello(_) => return,
            MachineMessage::Beat(sent, inventory) => Event::Beat { worker, sent, inventory },
            MachineMessage::Started(key, epoch, at) => Event::Started { by: by(key, epoch), at },
            MachineMessage::Finished(key, epoch, result) => Event::Finished { by: by(key, epoch), result },
            MachineMessage::Reclaimed(key, epoch) => Event::Reclaimed { by: by(key, epoch) },
            MachineMessage::Load(report) => Event::Load { worker, report },
            MachineMessage::Caches(keys) => Event::Caches { worker, keys: CacheKeys::of(keys.keys()) },
            MachineMessage::Processes((task, attempt), said) => {
                Event::Processes { worker, task, attempt, said }
            }
        });
    }

    fn take_hello(&mut self, link: u64, machine: usize, hello: Box<Hello>) {
        let Some(scheduler) = &mut self.scheduler else { return };
        // As in the server: the engine does not hear of a hello that is refused.
        if scheduler.engine.admit(&hello).is_err() {
            self.tally.refused_names += 1;
            return;
        }
        let name = hello.name.clone();
        let welcome_of = |scheduler: &Scheduler, name: &str| {
            scheduler.engine.workers().by_name(name).map(|worker| worker.link.welcome_seq)
        };
        let welcome_before = welcome_of(scheduler, &name);
        self.tell(Event::Hello(hello));
        let Some(scheduler) = &mut self.scheduler else { return };
        let id = scheduler.engine.workers().by_name(&name).map(|worker| worker.record.id);
        // The worker has a new link, so the older ones are dead, whether that was noticed or not.
        let mut closed = Vec::new();
        scheduler.links.retain(|other, (owner, bound)| {
            let is_old = (*owner == machine && *other < link) || (*bound == id && *other != link);
            closed.extend((is_old && *owner != machine).then_some(*owner));
            !is_old
        });
        scheduler.links.insert(link, (machine, id));
        // As in the server: what waited for the worker before a hello that was taken is not sent.
        let is_taken = welcome_of(scheduler, &name) != welcome_before;
        let links = &scheduler.links;
        scheduler.held_back.retain(|other, _| links.contains_key(other) && !(is_taken && *other == link));
        for other in closed {
            self.cut_link(other, 0);
            self.after(S, SimEvent::Connects(other));
        }
    }

    /// Gives the engine an event; false if the scheduler is dead.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        let now = self.clock();
        let Some(scheduler) = &mut self.scheduler else {
            self.observations.extend(event.request().map(Observation::Unavailable));
            return false;
        };
        if let Some(waiting) = &mut scheduler.frozen {
            match event.request() {
                Some(request) => self.observations.push_back(Observation::Unavailable(request)),
                None => waiting.push_back(Incoming::Event(event)),
            }
            return true;
        }
        self.trace.line(&format!("-> {}", brief::event(&event)));
        // Other events change both what queues have been charged and which queues wait.
        let waited = matches!(event, Event::Submit(_)).then(|| waits::waiting(&scheduler.engine, now));
        scheduler.engine.handle(now, event, &mut scheduler.pipeline.forming);
        let level = |waited: waits::Waited| waits::newcomers(&scheduler.engine, &waited);
        if let Some(Err(what)) = waited.map(level) {
            self.broken(what);
        }
        self.handled();
        true
    }

    /// Deletes jobs that ended some time ago, and tells the scheduler.
    pub(crate) fn delete_old_jobs(&mut self, age_ns: u64) {
        let before = Time(self.clock().0.saturating_sub(age_ns));
        let gone: BTreeSet<JobId> = self.store.retain(before).into_iter().collect();
        if gone.is_empty() {
            return;
        }
        self.tally.deleted += gone.len() as u64;
        self.trace.line(&format!("jobs {gone:?} are deleted"));
        self.promises.deleted(&gone, self.now_ns);
        self.tell(Event::Deleted(gone));
    }

    /// Replies that rest on no write do not wait for one.
    fn hear_volatile(&mut self) {
        let Some(scheduler) = &mut self.scheduler else { return };
        for (request, answer) in scheduler.pipeline.take_volatile() {
            self.trace.line(&format!("answer {request}: {answer:?}"));
            self.observations.push_back(Observation::Reply(request, answer));
        }
    }

    /// After each event: checks the engine, schedules a round, and begins a commit if none is under way.
    fn handled(&mut self) {
        self.hear_volatile();
        let Some(scheduler) = &mut self.scheduler else { return };
        let life = scheduler.life;
        let round_due = !std::mem::replace(&mut scheduler.round_due, true);
        if let Err(what) = scheduler.engine.check() {
            self.broken(format!("the engine's books are wrong: {what}"));
        }
        if round_due {
            self.after(MS / 10, SimEvent::Round(life));
        }
        self.set_alarm();
        self.begin_commit();
    }

    /// Schedules a wakeup at the engine's next deadline, unless an earlier one is scheduled.
    fn set_alarm(&mut self) {
        let now = self.clock();
        let Some(scheduler) = self.scheduler.as_mut().filter(|scheduler| !scheduler.round_due) else {
            return;
        };
        let Some(at) = scheduler.engine.next_wakeup() else { return };
        if scheduler.wakes.is_none_or(|wakes| at < wakes) {
            scheduler.wakes = Some(at);
            let life = scheduler.life;
            self.after(at.since(now), SimEvent::Wakes(life));
        }
    }

    pub(crate) fn wake(&mut self, life: u64) {
        let now = self.clock();
        let Some(scheduler) = self.scheduler.as_mut().filter(|s| s.life == life) else { return };
        // A wakeup that is later than the one scheduled now is obsolete.
        if scheduler.wakes.is_none_or(|at| now < at) {
            return;
        }
        scheduler.wakes = None;
        if scheduler.frozen.is_none() {
            self.tell(Event::Tick);
        }
    }

    pub(crate) fn clock(&self) -> Time {
        let skew_ns = self.scheduler.as_ref().map_or(self.clock_skew_ns, |s| s.clock_skew_ns);
        Time((CLOCK_START + self.now_ns).saturating_add_signed(skew_ns))
    }

    pub(crate) fn round(&mut self, life: u64) {
        let now = self.clock();
        let budget = self.rng.between(1, 40) as usize;
        let Some(scheduler) = self.scheduler.as_mut().filter(|s| s.life == life) else { return };
        scheduler.round_due = false;
        if scheduler.frozen.is_some() {
            return;
        }
        let is_needed = scheduler.engine.planner().needs_round();
        let booked = scheduler.engine.round(now, budget, &mut scheduler.pipeline.forming);
        if is_needed
            && booked < budget
            && let Err(what) = scheduler.reserved_gangs.judge(&scheduler.engine)
        {
            self.broken(what);
        }
        self.hear_volatile();
        let Some(scheduler) = &mut self.scheduler else { return };
        if booked > 0
            && let Err(what) = scheduler.engine.check()
        {
            self.broken(format!("the engine's books are wrong after a round: {what}"));
        }
        let Some(scheduler) = &mut self.scheduler else { return };
        if scheduler.engine.next_wakeup().is_some_and(|at| at <= now) {
            // As in the server: the deadline may be a worker's as well as another round's.
            self.tell(Event::Tick);
        } else if self.rng.chance(400)
            && let Err(what) = self.promises.explanations(&scheduler.engine, self.rng.next())
        {
            self.broken(what);
        }
        if booked > 0 {
            self.trace.line(&format!("round books {booked}"));
        }
        self.set_alarm();
        self.begin_commit();
    }

    fn begin_commit(&mut self) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let next = scheduler.pipeline.next_batch(&mut scheduler.engine);
        self.begin(next);
    }

    fn begin(&mut self, next: Option<NextBatch>) {
        let jitter = self.faults != crate::Faults::none();
        let Some(scheduler) = &mut self.scheduler else { return };
        let batch = match next {
            Some(NextBatch::Commit(batch)) => batch,
            Some(NextBatch::Deliver(batch)) => {
                scheduler.engine.committed(&batch);
                self.go_out(*batch);
                return self.set_alarm();
            }
            None => return,
        };
        scheduler.in_flight = Some(Flight { batch, fate: Fate::Open });
        let life = scheduler.life;
        let mut delay_ns = if jitter { self.rng.between(MS / 10, 20 * MS) } else { MS / 2 };
        delay_ns += self.delays.of_commit(&mut self.rng);
        self.after(delay_ns, SimEvent::Applies(life));
    }

    /// Makes the batch in flight durable. The scheduler does not know that yet.
    pub(crate) fn apply(&mut self, life: u64) {
        let Some(scheduler) = self.scheduler.as_mut().filter(|s| s.life == life) else { return };
        let Some(flight) = &mut scheduler.in_flight else { return };
        let writes = &flight.batch.writes;
        if self.disk_full && !writes.is_empty() {
            self.tally.failed_commits += 1;
            flight.fate = Fate::Failed;
        } else {
            self.tally.commits += 1;
            let rival = rival_booking(writes, self.rng.next(), self.rng.chance(self.faults.rival_permille));
            if let Some(number) = rival {
                self.tally.refused_writes += 1;
                self.trace.line("another scheduler booked first");
                let late = self.books_late.then(|| late_booking(&writes[number], &self.store)).flatten();
                self.tally.late_bookings += u64::from(late.is_some());
                self.store.apply(late.as_ref().map_or(&writes[number..=number], std::slice::from_ref));
            }
            for write in writes {
                self.trace.line(&format!("  durable {}", brief::write(write)));
            }
            let (refused, checked) = self.promises.apply(&self.store, writes);
            // Writes about a job that was deleted meanwhile are refused too.
            let expected = |number: &usize| {
                rival == Some(*number)
                    || writes[*number].job().is_some_and(|job| self.promises.is_deleted(job))
            };
            let rival_refused = rival.is_none_or(|number| refused.contains(&number));
            let checked = if rival_refused && refused.iter().all(expected) {
                checked
            } else {
                checked.and(Err(format!("the store refused writes {refused:?}, expected {rival:?}")))
            };
            let is_unknown = self.rng.chance(self.faults.unknown_permille);
            self.tally.unknown_commits += u64::from(is_unknown);
            flight.fate = if is_unknown { Fate::Failed } else { Fate::Applied(refused) };
            if let Err(what) = checked {
                self.broken(what);
            }
        }
        let delay_ns = self.rng.between(MS / 10, MS);
        self.after(delay_ns, SimEvent::CommitEnds(life));
    }

    pub(crate) fn commit_ends(&mut self, life: u64) {
        let Some(scheduler) = self.scheduler.as_mut().filter(|s| s.life == life) else { return };
        let Some(flight) = scheduler.in_flight.take() else { return };
        match flight.fate {
            Fate::Open => {}
            Fate::Failed => self.commit_failed(),
            Fate::Applied(refused) => {
                drop(flight.batch);
                let Committed { batch, undone } =
                    scheduler.pipeline.committed(&mut scheduler.engine, &refused);
                // A server's store begins with the next batch before this one goes out.
                let next = scheduler.pipeline.next_batch(&mut scheduler.engine);
                scheduler.engine.committed(&batch);
                let stalls = scheduler.pipeline.stalled().is_some();
                self.go_out(batch);
                self.observations.extend(undone.into_iter().map(Observation::Unavailable));
                if stalls {
                    if let Some(scheduler) = &mut self.scheduler {
                        scheduler.freeze();
                    }
                    self.thaw(life);
                }
                self.begin(next);
                self.begin_commit();
                // Settings that came into force may let work start.
                self.set_alarm();
                self.check_durable();
            }
        }
    }

    /// Delivers what a durable batch releases.
    fn go_out(&mut self, batch: Outbox) {
        for Send { worker, seq, command: order } in batch.sends {
            let Some(scheduler) = &self.scheduler else { return };
            let mut links = scheduler.links.iter();
            let link =
                links.find(|(_, (_, id))| *id == Some(worker)).map(|(link, (number, _))| (*link, *number));
            if let Some((link, number)) = link {
                self.send_order(link, number, seq, order);
            }
        }
        for (request, answer) in batch.replies {
            self.trace.line(&format!("answer {request}: {answer:?}"));
            self.observations.push_back(Observation::Reply(request, answer));
        }
        self.observations.extend(batch.facts.into_iter().map(Observation::Fact));
        let life = self.scheduler.as_ref().map_or(self.lives, |scheduler| scheduler.life);
        for fetch in batch.fetches {
            let delay_ns = self.rng.between(MS / 10, 5 * MS);
            self.after(delay_ns, SimEvent::Reads(life, fetch));
        }
    }

    /// Reads the store as of now. The scheduler gets the answer a little later.
    pub(crate) fn read_store(&mut self, life: u64, fetch: &Fetch) {
        if self.scheduler.as_ref().is_none_or(|scheduler| scheduler.life != life) {
            return;
        }
        let failed = self.disk_full || self.rng.chance(self.faults.lose_permille);
        let records = (!failed).then(|| self.store.fetch(fetch));
        if failed {
            self.tally.failed_reads += 1;
        } else if matches!(fetch.wanted, FetchQuery::Page { .. }) {
            self.tally.pages += 1;
        }
        let delay_ns = self.rng.between(MS / 10, 50 * MS);
        self.after(delay_ns, SimEvent::ReadEnds(life, Event::Fetched { number: fetch.number, records }));
    }

    pub(crate) fn read_ends(&mut self, life: u64, event: Event) {
        if self.scheduler.as_ref().is_some_and(|scheduler| scheduler.life == life) {
            self.tell(event);
        }
    }

    /// Drops the batch in flight and the one that forms. Everything waits until the store answers again.
    fn commit_failed(&mut self) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let undone = scheduler.pipeline.failed(&mut scheduler.engine);
        let life = scheduler.life;
        scheduler.freeze();
        self.trace.line("the commit failed");
        self.observations.extend(undone.into_iter().map(Observation::Unavailable));
        let delay_ns = self.rng.between(50 * MS, S);
        self.after(delay_ns, SimEvent::Thaws(life));
    }

    pub(crate) fn thaw(&mut self, life: u64) {
        let now = self.clock();
        let Some(scheduler) = self.scheduler.as_mut().filter(|s| s.life == life) else { return };
        let touched = scheduler.pipeline.stalled().cloned().unwrap_or_default();
        let records = self.store.records(&touched);
        self.trace.line(&format!("reads jobs {touched:?} again"));
        let parked = self.store.parked_counts();
        scheduler.pipeline.reload(&mut scheduler.engine, now, records, parked);
        let waiting = scheduler.frozen.take().unwrap_or_default();
        self.handled();
        for incoming in waiting {
            match incoming {
                Incoming::Message(link, machine, message) => self.message_arrives(link, machine, message),
                Incoming::Loss(link) => self.loss_seen(link),
                Incoming::Event(event) => _ = self.tell(event),
            }
        }
    }

    /// Checks that the store and the engine agree, while no write is under way.
    fn check_durable(&mut self) {
        let Some(scheduler) = self.scheduler.as_ref().filter(|scheduler| scheduler.is_idle()) else { return };
        if !self.rng.chance(200) {
            return;
        }
        let checked = self.promises.durable(&self.store, &scheduler.engine);
        let checked = checked.and(same_settings(&self.store, &scheduler.engine));
        if let Err(what) = checked {
            self.broken(what);
        }
    }
}

/// A booking that another scheduler sent before a worker's lease ran out, and that is durable only afterwards. It has the
/// epoch that ended with the lease. `None` if no worker has lost its lease.
fn late_booking(write: &Write, store: &Memory) -> Option<Write> {
    let Write::Book { task, attempt, at, amounts, .. } = write else { return None };
    let workers = store.load().ground.workers;
    let gone = workers.into_iter().find(|worker| worker.state == WorkerState::Expired)?;
    let epoch = Epoch(gone.epoch.0.checked_sub(1)?);
    Some(Write::Book { task: *task, attempt: *attempt, worker: gone.id, epoch, at: *at, amounts: *amounts })
}

/// Index of a booking that another scheduler makes first; `None` for none.
fn rival_booking(writes: &[Write], random: u64, strikes: bool) -> Option<usize> {
    let bookings =
        writes.iter().enumerate().filter(|(_, write)| matches!(write, Write::Book { attempt: 1, .. }));
    let bookings: Vec<usize> = bookings.map(|(number, _)| number).collect();
    if !strikes || bookings.is_empty() {
        return None;
    }
    bookings.get(random as usize % bookings.len()).copied()
}
