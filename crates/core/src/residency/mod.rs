//! Which pending jobs are in memory. A store has every job. Of the jobs to which nothing has happened since they were
//! submitted, the engine keeps the first of each subqueue ([`subqueues`]) resident and evicts the others. Loading and
//! evicting a parked job write nothing: the first change of a job, such as a booking, unparks it.
//!
//! Each subqueue has an equal share of the steps that the cache has room for. A subqueue of which less than half of its
//! share is resident, while more of it is parked, asks for the next page. While the cache is full, the last job of the
//! longest subqueue is evicted. Events that name a job which is not resident wait until it was looked up.
//!
//! This module owns the counts of parked jobs, which jobs may be evicted, and the reads. It does not own jobs: the
//! ledger notes which it has changed, and `Residency::settle` looks at these once, when the event or the round is
//! over.

pub mod subqueues;

use crate::bounds;
use crate::ids::{JobId, QueueId};
use crate::job::{BacklogCounts, Counts, Job, JobRecord, Parked, QueuePos, Step, SubmissionKey};
use crate::ledger::{Books, Ledger, Lookups, lifecycle, records};
use crate::outbox::{Fetch, FetchQuery, Outbox, Write};
use crate::queues::Queues;
use crate::score::dependents::ranked_since;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use subqueues::{Evictable, ParkedCount, ParkedDrift, Subqueue, SubqueueKey, Subqueues, class_hash};

/// A read of the store that was asked for. `E` is an event that waits for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Read<E> {
    /// The next jobs of a subqueue, with the number of steps that was asked for.
    Page(SubqueueKey, usize),
    /// Jobs that an event names.
    Jobs { jobs: BTreeSet<JobId>, event: E, lookups: Lookups },
}

/// Which jobs are parked, which may be evicted, and which reads are under way. `E` is an event that waits for a read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Residency<E> {
    /// Steps that may be resident before the engine evicts jobs.
    steps_max: usize,
    /// Keys of parked jobs that are remembered at most.
    recent_max: usize,
    subqueues: Subqueues,
    /// Resident jobs to which nothing has happened.
    evictable: BTreeMap<JobId, Evictable>,
    /// Jobs that the store has parked and that are in no subqueue, because others wait for them or something happened
    /// to them. They are to be unparked.
    to_unpark: Vec<Evictable>,
    /// Subqueues that may lack jobs since a page was last asked for.
    changed: BTreeSet<SubqueueKey>,
    /// Parked jobs that were read because an event names them. They may be evicted again when it is over.
    read_for_event: Vec<JobId>,
    reads: BTreeMap<u64, Read<E>>,
    next_read: u64,
    /// Reads that failed or did not go out. They are asked for again at `retry_at`, or at once without one.
    failed_reads: BTreeSet<u64>,
    /// Until then nothing is asked for, because a read has failed.
    retry_at: Option<Time>,
    /// Jobs that were pinned, parked for the first time or ended while something was being read. Each has the number of
    /// the first read that shows the change.
    changed_since_read: BTreeMap<JobId, u64>,
    change_order: VecDeque<(u64, JobId)>,
    /// Keys of jobs parked lately: clients that asked before may not have been told of the job yet.
    recent: VecDeque<(JobId, SubmissionKey)>,
}

impl<E> Residency<E> {
    pub(crate) fn new(steps_max: usize, recent_max: usize) -> Self {
        Residency {
            steps_max,
            recent_max,
            subqueues: Subqueues::default(),
            evictable: BTreeMap::new(),
            to_unpark: Vec::new(),
            changed: BTreeSet::new(),
            read_for_event: Vec::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            failed_reads: BTreeSet::new(),
            retry_at: None,
            changed_since_read: BTreeMap::new(),
            change_order: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn subqueues(&self) -> &Subqueues {
        &self.subqueues
    }

    /// True if a subqueue or a page that is being read is of this queue.
    pub(crate) fn has_queue(&self, queue: QueueId) -> bool {
        let read = |read: &Read<E>| matches!(read, Read::Page((of, _), _) if *of == queue);
        self.subqueues.of(queue).next().is_some() || self.reads.values().any(read)
    }

    /// True if the key of a parked job is remembered.
    pub(crate) fn remembers(&self, job: JobId) -> bool {
        self.recent.iter().any(|(recent, _)| *recent == job)
    }

    /// When reads that failed are tried again.
    pub(crate) fn next_try(&self) -> Option<Time> {
        self.retry_at
    }

    /// True if the store has the job parked as well.
    pub(crate) fn is_parked(&self, job: JobId) -> bool {
        self.evictable.get(&job).is_some_and(|evictable| evictable.stored)
    }

    /// The tasks of jobs that are parked and not resident.
    pub(crate) fn away_counts(&self) -> Counts {
        let BacklogCounts { ready, waiting, .. } = self.subqueues.away();
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (ready, waiting) = (clamp(ready), clamp(waiting));
        Counts { total: ready.saturating_add(waiting), ready, waiting, ..Counts::default() }
    }

    /// Sets what the store has parked; `out` holds what the store has not been told yet.
    pub(crate) fn set_parked(&mut self, counts: Vec<ParkedCount>, queues: &mut Queues, out: &Outbox) {
        let mut parked: BTreeMap<SubqueueKey, BacklogCounts> =
            self.subqueues.iter().map(|(key, _)| (key, BacklogCounts::default())).collect();
        for count in counts {
            parked.insert((queues.intern(&count.queue), count.class), count.backlog);
        }
        for write in &out.writes {
            if let Write::Park { queue, parked: p, .. } | Write::Unpark { queue, parked: p, .. } = write {
                let backlog = parked.entry((queues.intern(queue), p.class)).or_default();
                let more = matches!(write, Write::Park { .. });
                *backlog = if more { backlog.plus(p.backlog) } else { backlog.less(p.backlog) };
            }
        }
        for (key, backlog) in parked {
            self.subqueues.set_parked(key, backlog);
            self.changed.insert(key);
        }
    }

    /// The store found other counts than it had.
    pub(crate) fn audited(&mut self, drifts: Vec<ParkedDrift>, queues: &mut Queues) {
        for drift in drifts {
            let key = (queues.intern(&drift.queue), drift.class);
            let known = self.subqueues.get(key).map(|subqueue| subqueue.parked()).unwrap_or_default();
            self.subqueues.set_parked(key, known.plus(drift.found).less(drift.counted));
            self.changed.insert(key);
        }
    }
}

/// Jobs come, change and go.
impl<E> Residency<E> {
    /// Looks at the jobs that the ledger has changed. Each is unparked. Where it is as it was submitted all the same,
    /// it goes back into its subqueue, and out of memory if it stands behind parked jobs there.
    pub(crate) fn follow(&mut self, books: &mut Books, out: &mut Outbox) {
        self.take_in(books);
        let mut at = 0;
        while let Some(id) = books.ledger.effects.touched.get(at).copied() {
            at += 1;
            self.pin(id, &books.plan.queues, out);
            self.join_subqueue(id, None, books);
            self.evict_if_behind(id, books, out);
        }
        books.ledger.effects.touched.clear();
        self.unpark_outside(&books.plan.queues, out);
    }

    /// Puts the jobs that came from the store, as it has them parked, into their subqueues.
    fn take_in(&mut self, books: &mut Books) {
        for (id, parked) in std::mem::take(&mut books.ledger.effects.loaded) {
            self.join_subqueue(id, Some(parked), books);
        }
    }

    /// Puts a job to which nothing has happened into its subqueue; `parked` is how the store has it parked, if it has.
    /// A job that cannot be parked, because others wait for it or for what happened to it, is unparked.
    fn join_subqueue(&mut self, id: JobId, parked: Option<Parked>, books: &Books) {
        let Some(job) = books.ledger.jobs.get(&id) else { return };
        let queues = &books.plan.queues;
        let is_parkable = !books.ledger.is_awaited(id) && is_as_submitted(job);
        let stored = parked.is_some();
        if !is_parkable && !stored {
            return;
        }
        let parked = parked.unwrap_or_else(|| self.parked_as(job, queues));
        let subqueue = (queues.whole(job.queue), parked.class);
        let evictable = Evictable { subqueue, part: job.queue, parked, steps: job.steps.len(), stored };
        if !is_parkable {
            // It was read again after a failed batch, as the store has it parked. A job before it was retried since, so
            // it waits again.
            self.to_unpark.push(evictable);
        } else if self.evictable.insert(job.id, evictable).is_none() {
            self.subqueues.join(&evictable);
        }
    }

    /// How a job would be parked.
    fn parked_as(&self, job: &Job, queues: &Queues) -> Parked {
        let first = job.steps.iter().filter(|step| !step.ready.is_empty());
        let (ranked, ready) =
            first.map(|step| (ranked_since(step), step.ready_since)).min().unwrap_or_default();
        let class = class_hash(&job.spec);
        let known = self.subqueues.get((queues.whole(job.queue), class)).is_some();
        Parked {
            // Too many subqueues: further classes of a queue share class 0.
            class: if known || self.subqueues.len() < bounds::SUBQUEUES_MAX { class } else { 0 },
            position: QueuePos { priority: Reverse(job.spec.priority), ranked, job: job.id },
            ready,
            backlog: BacklogCounts::of(&job.spec),
        }
    }

    /// Something has happened to a job: it is not parked from now on.
    fn pin(&mut self, id: JobId, queues: &Queues, out: &mut Outbox) {
        let Some(evictable) = self.evictable.remove(&id) else { return };
        self.subqueues.leave(&evictable);
        self.changed.insert(evictable.subqueue);
        if evictable.stored {
            self.note_change(id);
            out.writes.push(unpark(&evictable, queues));
        }
    }

    /// A job is forgotten and not evicted: takes it out of its subqueue. What the store has of it stays.
    pub(crate) fn forget(&mut self, id: JobId) {
        self.note_change(id);
        if let Some(evictable) = self.evictable.remove(&id) {
            self.subqueues.forget(&evictable);
            self.changed.insert(evictable.subqueue);
        }
    }

    /// A job changes, and the reads under way show it as it was before.
    fn note_change(&mut self, job: JobId) {
        if !self.reads.is_empty() {
            self.changed_since_read.insert(job, self.next_read);
            self.change_order.push_back((self.next_read, job));
        }
    }

    /// True if what a read shows of a job is older than what the engine did with it.
    fn is_stale(&self, job: JobId, read: u64) -> bool {
        self.changed_since_read.get(&job).is_some_and(|first| *first > read)
    }

    /// Forgets changes from before the oldest read that is still under way.
    fn forget_changes(&mut self) {
        let oldest = self.reads.keys().next().copied().unwrap_or(u64::MAX);
        while let Some((first, job)) =
            self.change_order.front().copied().filter(|(first, _)| *first <= oldest)
        {
            self.change_order.pop_front();
            if self.changed_since_read.get(&job) == Some(&first) {
                self.changed_since_read.remove(&job);
            }
        }
    }
}

/// Eviction.
impl<E> Residency<E> {
    /// The event or the round is over: looks at what the ledger has changed, evicts what the cache has no room for, and
    /// asks for what subqueues lack.
    pub(crate) fn settle(&mut self, books: &mut Books, out: &mut Outbox) {
        self.follow(books, out);
        for id in std::mem::take(&mut self.read_for_event) {
            self.evict_if_behind(id, books, out);
        }
        while let Some(job) = self.next_over_capacity(books.ledger.steps) {
            self.evict(job, books, out);
        }
        self.ask(books, out);
    }

    /// Steps of one subqueue that may be resident, where `steps` are those of all resident jobs.
    fn share(&self, steps: usize) -> usize {
        let fixed = steps.saturating_sub(self.subqueues.steps());
        (self.steps_max.saturating_sub(fixed) / self.subqueues.len().max(1)).max(1)
    }

    /// Steps below which a subqueue with this share asks for more.
    fn low(share: usize) -> usize {
        share.div_ceil(2)
    }

    /// While the cache is over its size: the last job of the longest subqueue that has more than its share and stays
    /// well stocked without it.
    fn next_over_capacity(&self, steps: usize) -> Option<JobId> {
        if steps <= self.steps_max {
            return None;
        }
        let share = self.share(steps);
        let last = |key: SubqueueKey| {
            let subqueue = self.subqueues.get(key)?;
            let position = subqueue.positions().next_back()?;
            let steps = self.evictable.get(&position.job)?.steps;
            (subqueue.steps() - steps >= Self::low(share)).then_some(position.job)
        };
        let mut longest = self.subqueues.longer_than(share).take(bounds::EVICTION_LOOKS_MAX);
        longest.find_map(last)
    }

    /// Evicts a job that may be evicted and stands behind jobs of its subqueue that are away.
    fn evict_if_behind(&mut self, id: JobId, books: &mut Books, out: &mut Outbox) {
        let Some(evictable) = self.evictable.get(&id) else { return };
        let before = self.subqueues.get(evictable.subqueue).and_then(Subqueue::resident_before);
        if before.is_some_and(|before| evictable.parked.position >= before) {
            self.evict(id, books, out);
        }
    }

    /// A job that may be evicted is parked now if it was not already, and forgotten: the store has it.
    fn evict(&mut self, id: JobId, books: &mut Books, out: &mut Outbox) {
        let Some(evictable) = self.evictable.remove(&id) else { return };
        // Only parking changes what reads show. If evicting a job that is parked already made reads stale, two requests
        // that evict each other's jobs would invalidate each other's reads forever.
        if !evictable.stored {
            self.note_change(id);
            let queue = books.plan.queues.get(evictable.subqueue.0).name().to_owned();
            out.writes.push(Write::Park { job: id, queue, parked: evictable.parked });
        }
        self.subqueues.evict(&evictable);
        self.changed.insert(evictable.subqueue);
        let spec = books.ledger.jobs.get(&id).map(|job| &job.spec);
        self.recent.extend(spec.and_then(|spec| Some((id, (spec.user.clone(), spec.key.clone()?)))));
        if self.recent.len() > self.recent_max
            && let Some((old, key)) = self.recent.pop_front()
            && books.ledger.keys.get(&key) == Some(&old)
            && !books.ledger.jobs.contains_key(&old)
        {
            books.ledger.forget_key(old, &key);
        }
        lifecycle::forget(books, id);
    }
}

/// Reads of the store.
impl<E> Residency<E> {
    /// Unparks jobs that came parked from the store and are in no subqueue.
    fn unpark_outside(&mut self, queues: &Queues, out: &mut Outbox) {
        for evictable in std::mem::take(&mut self.to_unpark) {
            self.subqueues.unpark_outside(&evictable);
            self.note_change(evictable.parked.position.job);
            out.writes.push(unpark(&evictable, queues));
        }
    }

    /// Asks for pages of the subqueues that changed, and again for what could not be read. After a failed read nothing
    /// is asked for until `retry_at`. Tells the queues of these subqueues whether work of theirs is away.
    fn ask(&mut self, books: &mut Books, out: &mut Outbox) {
        let (now, steps, queues) = (books.plan.now(), books.ledger.steps, &mut books.plan.queues);
        if self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.retry_at = None;
        for number in std::mem::take(&mut self.failed_reads) {
            match self.reads.remove(&number) {
                Some(Read::Page(key, _)) => {
                    self.subqueues.read_failed(key);
                    self.changed.insert(key);
                }
                Some(Read::Jobs { jobs, event, mut lookups }) => {
                    lookups.retain(|job, _| !self.is_stale(*job, number));
                    self.look_up(jobs, event, lookups, out);
                }
                None => {}
            }
        }
        while let Some(key) = self.changed.pop_first() {
            self.ask_for_page(key, steps, queues, out);
            queues.set_away(key.0, self.subqueues.is_away(key.0));
            if let Some(part) = self.subqueues.part_of(key) {
                queues.set_user_away(part, self.subqueues.is_part_away(part));
            }
        }
        self.forget_changes();
    }

    /// Asks for the next jobs of a subqueue of which less than half of its share is resident.
    fn ask_for_page(&mut self, key: SubqueueKey, resident: usize, queues: &Queues, out: &mut Outbox) {
        let share = self.share(resident);
        let Some(subqueue) = self.subqueues.get(key) else { return };
        if subqueue.is_reading() || subqueue.steps() >= Self::low(share) {
            return;
        }
        if subqueue.away().jobs == 0 {
            self.subqueues.all_resident(key);
            return;
        }
        let steps = (share - subqueue.steps()).min(bounds::PAGE_STEPS_MAX);
        let from = self.subqueues.read_from(key).unwrap_or(QueuePos::FIRST);
        let queue = queues.get(key.0).name().to_owned();
        self.fetch(FetchQuery::Page { queue, class: key.1, from, steps }, Read::Page(key, steps), out);
    }

    /// Reads jobs that an event names. It waits until they were read.
    pub(crate) fn look_up(&mut self, jobs: BTreeSet<JobId>, event: E, lookups: Lookups, out: &mut Outbox) {
        let wanted = FetchQuery::Jobs(jobs.clone());
        self.fetch(wanted, Read::Jobs { jobs, event, lookups }, out);
    }

    fn fetch(&mut self, wanted: FetchQuery, read: Read<E>, out: &mut Outbox) {
        let number = self.next_read;
        self.next_read += 1;
        self.reads.insert(number, read);
        out.fetches.push(Fetch { number, wanted });
    }

    /// What was asked for in a batch that is not durable was never read.
    pub(crate) fn fetch_again(&mut self, batch: &Outbox) {
        self.failed_reads.extend(batch.fetches.iter().map(|fetch| fetch.number));
    }

    /// What was asked for was read, or could not be. Takes in the jobs. Returns an event that waited for them, with
    /// what was looked up for it.
    pub(crate) fn fetched(
        &mut self,
        number: u64,
        records: Option<Vec<JobRecord>>,
        books: &mut Books,
    ) -> Option<(E, Lookups)> {
        let Some(records) = records else {
            if self.reads.contains_key(&number) {
                self.failed_reads.insert(number);
                self.retry_at = Some(books.plan.now().after(bounds::READ_AGAIN_NS));
            }
            return None;
        };
        match self.reads.remove(&number)? {
            Read::Page(key, steps) => {
                self.page_read((key, steps), number, records, books);
                None
            }
            Read::Jobs { jobs, event, mut lookups } => {
                lookups.retain(|job, _| !self.is_stale(*job, number));
                self.jobs_read(number, jobs, records, &mut lookups, books);
                Some((event, lookups))
            }
        }
    }

    /// A page of a subqueue was read, for which `asked` steps were asked for under this number. Jobs that have changed
    /// since are left out.
    fn page_read(
        &mut self,
        (key, asked): (SubqueueKey, usize),
        number: u64,
        page: Vec<JobRecord>,
        books: &mut Books,
    ) {
        let steps: usize = page.iter().map(|record| record.spec.steps.len()).sum();
        let last = page.last().and_then(|record| record.parked).map(|parked| parked.position.next());
        let rest = last.filter(|_| steps >= asked);
        let evicted_from = self.subqueues.read(key, rest);
        for record in page {
            let Some(parked) = record.parked else { continue };
            if evicted_from.is_some_and(|first| parked.position >= first) {
                break;
            }
            if !self.is_stale(record.id, number) && !books.ledger.jobs.contains_key(&record.id) {
                records::insert_record(books, record, BTreeSet::new());
            }
        }
        self.take_in(books);
        if rest.is_none() && evicted_from.is_none() {
            self.subqueues.all_resident(key);
        }
        self.changed.insert(key);
    }

    /// Jobs were read that an event names. Those that are parked are resident from now on, until the event is over.
    fn jobs_read(
        &mut self,
        number: u64,
        jobs: BTreeSet<JobId>,
        found: Vec<JobRecord>,
        lookups: &mut Lookups,
        books: &mut Books,
    ) {
        let mut found: BTreeMap<JobId, JobRecord> = found.into_iter().map(|r| (r.id, r)).collect();
        for job in jobs {
            if books.ledger.jobs.contains_key(&job) || self.is_stale(job, number) {
                continue;
            }
            match found.remove(&job) {
                Some(record) if record.parked.is_some() => {
                    records::insert_record(books, record, BTreeSet::new());
                    self.read_for_event.push(job);
                }
                record => _ = lookups.insert(job, record),
            }
        }
    }
}

/// A subqueue as its jobs make it: steps, positions, and what of them the store has parked.
type MadeSubqueue = (usize, BTreeSet<QueuePos>, BacklogCounts);

impl<E> Residency<E> {
    /// The subqueues are what the jobs make of them, and the cache keeps its promises: of every subqueue with parked
    /// jobs some are resident or asked for; no more is resident than the cache's size, what cannot be parked, and what
    /// keeps each subqueue stocked.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub(crate) fn check(&self, ledger: &Ledger, queues: &Queues) -> Result<(), String> {
        let mut made: BTreeMap<SubqueueKey, MadeSubqueue> = BTreeMap::new();
        let mut largest = 0;
        for (id, evictable) in &self.evictable {
            let job = ledger.jobs.get(id).filter(|job| !ledger.is_awaited(*id) && is_as_submitted(job));
            let Some(job) = job else {
                return Err(format!("job {id} is in a subqueue and is pinned or gone"));
            };
            if (job.queue, queues.whole(job.queue), job.steps.len(), *id)
                != (evictable.part, evictable.subqueue.0, evictable.steps, evictable.parked.position.job)
            {
                return Err(format!("job {id} is in its subqueue otherwise than it is: {evictable:?}"));
            }
            let (steps, positions, stored) = made.entry(evictable.subqueue).or_default();
            *steps += evictable.steps;
            positions.insert(evictable.parked.position);
            if evictable.stored {
                *stored = stored.plus(evictable.parked.backlog);
            }
            largest = largest.max(evictable.steps);
        }
        self.check_subqueues(made)?;
        let subqueues = &self.subqueues;
        let fixed = ledger.steps - subqueues.steps();
        let most = self.steps_max.saturating_sub(fixed) + subqueues.len() * (1 + largest);
        if subqueues.steps() > most {
            return Err(format!(
                "{} steps are in {} subqueues, at most {most} may",
                subqueues.steps(),
                subqueues.len()
            ));
        }
        Ok(())
    }

    fn check_subqueues(&self, mut made: BTreeMap<SubqueueKey, MadeSubqueue>) -> Result<(), String> {
        for (key, subqueue) in self.subqueues.iter() {
            let (steps, positions, stored) = made.remove(&key).unwrap_or_default();
            let away = subqueue.away();
            if steps != subqueue.steps()
                || !subqueue.positions().eq(positions)
                || subqueue.parked().less(stored) != away
            {
                return Err(format!("subqueue {key:?} is not what its jobs make: {subqueue:?}"));
            }
            let asked = subqueue.is_reading() || self.changed.contains(&key);
            if away.jobs > 0 && subqueue.steps() == 0 && !asked {
                return Err(format!(
                    "subqueue {key:?} has {away:?} parked, nothing resident and nothing asked for"
                ));
            }
            if away.jobs > 0 && subqueue.resident_before().is_none() {
                return Err(format!("subqueue {key:?} has {away:?} away and says that all is resident"));
            }
        }
        match made.keys().next() {
            Some(key) => Err(format!("jobs are in subqueue {key:?}, which is not there")),
            None => Ok(()),
        }
    }
}

/// True of a job to which nothing has happened since it was submitted, and that waits for no other job or its tasks.
fn is_as_submitted(job: &Job) -> bool {
    let is_fresh = |step: &Step| {
        step.active == 0
            && step.tries.is_empty()
            && [&step.succeeded, &step.failed, &step.canceled].into_iter().all(|set| set.is_empty())
    };
    job.active == 0
        && !job.held
        && job.stop.is_none()
        && job.ended.is_none()
        && job.after.is_empty()
        && job.spec.parent.is_none()
        && job.spec.after_tasks.is_none()
        && job.steps.iter().all(is_fresh)
}

fn unpark(evictable: &Evictable, queues: &Queues) -> Write {
    let queue = queues.get(evictable.subqueue.0).name().to_owned();
    Write::Unpark { job: evictable.parked.position.job, queue, parked: evictable.parked }
}
