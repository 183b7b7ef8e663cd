//! Which pending jobs are in memory. A store has every job. Of the jobs to which nothing has happened since they were
//! submitted, the engine keeps the first of each subqueue ([`subqueues`]) resident and evicts the others. Loading and
//! evicting a parked job write nothing: the first change of a job, such as a booking, unparks it.
//!
//! Each subqueue may hold an equal share of the steps that the cache has room for. A subqueue that holds less than half
//! of its share, while more of it is parked, asks for the next page. While the cache is full, the last job of the
//! longest subqueue is evicted. Events that name a job which is not resident wait until it was looked up.
//!
//! This module owns what is parked, what may be evicted and what is being read. It does not own jobs: the engine tells
//! it of each change of a job, and forgets the jobs that it evicts.

pub mod subqueues;

use crate::bounds;
use crate::ids::{JobId, QueueId};
use crate::job::{BacklogCounts, Counts, Job, JobRecord, Parked, QueuePos, Step, SubmissionKey};
use crate::outbox::{Fetch, FetchQuery, Outbox, Write};
use crate::queues::Queues;
use crate::score::dependents::ranked_since;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use subqueues::{Evictable, ParkedCount, ParkedDrift, SubqueueKey, Subqueues, class_number};

/// What was looked up for an event, by job: what the store has of it, if anything.
pub(crate) type Lookups = BTreeMap<JobId, Option<JobRecord>>;

/// A read of the store that was asked for. `E` is an event that waits for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Read<E> {
    /// The next jobs of a subqueue, with the number of steps that was asked for.
    Page(SubqueueKey, usize),
    /// Jobs that an event names.
    Jobs { jobs: BTreeSet<JobId>, event: E, lookups: Lookups },
}

/// What a page adds to the resident jobs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PageRead {
    /// Its jobs, but for those that have changed since it was asked for.
    pub(crate) records: Vec<JobRecord>,
    /// It shows the rest of its subqueue.
    pub(crate) is_last: bool,
}

/// What is parked, what may be evicted, and what is being read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Residency<E> {
    /// Steps that the engine may hold before it parks jobs.
    steps_max: usize,
    /// Keys of parked jobs that are remembered at most.
    recent_max: usize,
    /// Steps of all resident jobs.
    steps: usize,
    subqueues: Subqueues,
    /// Resident jobs to which nothing has happened.
    evictable: BTreeMap<JobId, Evictable>,
    /// Jobs that left their subqueue without a write, and that the store has parked still.
    to_unpark: Vec<Evictable>,
    /// Subqueues to look at.
    changed: BTreeSet<SubqueueKey>,
    reads: BTreeMap<u64, Read<E>>,
    next_read: u64,
    /// Reads that failed or did not go out.
    again: BTreeSet<u64>,
    again_at: Option<Time>,
    /// Jobs that were pinned, parked for the first time or ended while something was being read. Each has the number of
    /// the first read that shows it as it is since.
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
            steps: 0,
            subqueues: Subqueues::default(),
            evictable: BTreeMap::new(),
            to_unpark: Vec::new(),
            changed: BTreeSet::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            again: BTreeSet::new(),
            again_at: None,
            changed_since_read: BTreeMap::new(),
            change_order: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn subqueues(&self) -> &Subqueues {
        &self.subqueues
    }

    /// Steps of all resident jobs.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// A job of this number of steps is resident from now on.
    pub(crate) fn add_steps(&mut self, steps: usize) {
        self.steps += steps;
    }

    /// A job of this number of steps was forgotten.
    pub(crate) fn remove_steps(&mut self, steps: usize) {
        self.steps -= steps;
    }

    /// True if a subqueue is of this queue.
    pub(crate) fn names(&self, queue: QueueId) -> bool {
        let read = |read: &Read<E>| matches!(read, Read::Page((of, _), _) if *of == queue);
        self.subqueues.of(queue).next().is_some() || self.reads.values().any(read)
    }

    /// True if the key of a parked job is remembered.
    pub(crate) fn remembers(&self, job: JobId) -> bool {
        self.recent.iter().any(|(recent, _)| *recent == job)
    }

    /// When reads that failed are tried again.
    pub(crate) fn next_try(&self) -> Option<Time> {
        self.again_at
    }

    /// True if the store has the job parked as well.
    pub(crate) fn is_parked(&self, job: JobId) -> bool {
        self.evictable.get(&job).is_some_and(|evictable| evictable.stored)
    }

    /// The tasks of jobs that are parked and not resident.
    pub(crate) fn parked_counts(&self) -> Counts {
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
    /// Puts a job to which nothing has happened into its subqueue; `parked` is how the store has it parked, if it has.
    /// A job that cannot be parked, because others wait for it (`is_awaited`) or for what happened to it, is unparked
    /// with the next batch.
    pub(crate) fn join_subqueue(
        &mut self,
        job: &Job,
        parked: Option<Parked>,
        is_awaited: bool,
        queues: &Queues,
    ) {
        let (is_parkable, stored) = (!is_awaited && is_as_submitted(job), parked.is_some());
        if !is_parkable && !stored {
            return;
        }
        let parked = parked.unwrap_or_else(|| self.parked_as(job, queues));
        let subqueue = (queues.whole(job.queue), parked.class);
        let evictable = Evictable { subqueue, part: job.queue, parked, steps: job.steps.len(), stored };
        if !is_parkable {
            // A failed batch was about it, and a job before it was retried after it was parked: it waits again.
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
        let class = class_number(&job.spec);
        let known = self.subqueues.get((queues.whole(job.queue), class)).is_some();
        Parked {
            // Of too many classes to tell apart.
            class: if known || self.subqueues.len() < bounds::LINES_MAX { class } else { 0 },
            place: QueuePos { priority: Reverse(job.spec.priority), ranked, job: job.id },
            ready,
            backlog: BacklogCounts::of(&job.spec),
        }
    }

    /// Something is about to happen to a job: it is parked nowhere from now on.
    pub(crate) fn pin(&mut self, id: JobId, queues: &Queues, out: &mut Outbox) {
        let Some(evictable) = self.evictable.remove(&id) else { return };
        self.subqueues.leave(&evictable);
        self.changed.insert(evictable.subqueue);
        if evictable.stored {
            self.note_change(id);
            out.writes.push(unpark(&evictable, queues));
        }
    }

    /// A job waits for others, or others for it: it is parked nowhere from the next batch on.
    pub(crate) fn pin_in_next_batch(&mut self, id: JobId) {
        let evictable = self.evictable.get(&id).copied();
        self.leave_subqueue(id);
        self.to_unpark.extend(evictable.filter(|evictable| evictable.stored));
    }

    /// Takes a job out of its subqueue; what the store has of it stays.
    pub(crate) fn leave_subqueue(&mut self, id: JobId) {
        if let Some(evictable) = self.evictable.remove(&id) {
            self.subqueues.drop(&evictable);
            self.changed.insert(evictable.subqueue);
        }
    }

    /// A job is not what a read shows that is under way.
    pub(crate) fn note_change(&mut self, job: JobId) {
        if !self.reads.is_empty() {
            self.changed_since_read.insert(job, self.next_read);
            self.change_order.push_back((self.next_read, job));
        }
    }

    /// True if what a read shows of a job is older than what the engine did with it.
    pub(crate) fn is_stale(&self, job: JobId, read: u64) -> bool {
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
    /// Steps that one subqueue may hold.
    fn share(&self) -> usize {
        let fixed = self.steps.saturating_sub(self.subqueues.steps());
        (self.steps_max.saturating_sub(fixed) / self.subqueues.len().max(1)).max(1)
    }

    /// Steps below which a subqueue with this share asks for more.
    fn low(share: usize) -> usize {
        share.div_ceil(2)
    }

    /// True if a job may be evicted and stands behind jobs of its subqueue that are not resident.
    pub(crate) fn is_behind_parked(&self, id: JobId) -> bool {
        let Some(evictable) = self.evictable.get(&id) else { return false };
        let subqueue = self.subqueues.get(evictable.subqueue);
        let resident_before = subqueue.and_then(|subqueue| subqueue.resident_before());
        resident_before.is_some_and(|resident_before| evictable.parked.place >= resident_before)
    }

    /// While the cache is over its size: the last job of the longest subqueue that has more than its share and stays
    /// well stocked without it.
    pub(crate) fn next_over_capacity(&self) -> Option<JobId> {
        if self.steps <= self.steps_max {
            return None;
        }
        let share = self.share();
        let last = |key: SubqueueKey| {
            let subqueue = self.subqueues.get(key)?;
            let place = subqueue.positions().next_back()?;
            let steps = self.evictable.get(&place.job)?.steps;
            (subqueue.steps() - steps >= Self::low(share)).then_some(place.job)
        };
        let mut longest = self.subqueues.longer_than(share).take(bounds::PARK_LOOKS_MAX);
        longest.find_map(last)
    }

    /// A job that may be evicted is parked from now on, and its owner forgets it. `key` is what it was submitted with.
    /// Returns the key of another parked job that is not remembered any more.
    pub(crate) fn evict(
        &mut self,
        id: JobId,
        key: Option<SubmissionKey>,
        queues: &Queues,
        out: &mut Outbox,
    ) -> Option<(JobId, SubmissionKey)> {
        let evictable = self.evictable.remove(&id)?;
        if !evictable.stored {
            // Evicting a parked job makes no other read stale; otherwise two requests that evict each other's jobs
            // would invalidate each other's reads forever.
            self.note_change(id);
            let queue = queues.get(evictable.subqueue.0).name().to_owned();
            out.writes.push(Write::Park { job: id, queue, parked: evictable.parked });
        }
        self.subqueues.evict(&evictable);
        self.changed.insert(evictable.subqueue);
        self.recent.extend(key.map(|key| (id, key)));
        if self.recent.len() > self.recent_max { self.recent.pop_front() } else { None }
    }
}

/// Reads of the store.
impl<E> Residency<E> {
    /// Unparks the jobs that left their subqueue without a write.
    pub(crate) fn unpark_absent(&mut self, queues: &Queues, out: &mut Outbox) {
        for evictable in std::mem::take(&mut self.to_unpark) {
            self.subqueues.unpark_absent(&evictable);
            self.note_change(evictable.parked.place.job);
            out.writes.push(unpark(&evictable, queues));
        }
    }

    /// Asks for what subqueues lack, and for what could not be read, once its time has come. Tells queues which of them
    /// have parked work.
    pub(crate) fn ask(&mut self, now: Time, queues: &mut Queues, out: &mut Outbox) {
        if self.again_at.is_some_and(|at| now < at) {
            return;
        }
        self.again_at = None;
        for number in std::mem::take(&mut self.again) {
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
            self.ask_for_page(key, queues, out);
            queues.set_parked(key.0, self.subqueues.is_away(key.0));
            if let Some(part) = self.subqueues.part_of(key) {
                queues.set_user_parked(part, self.subqueues.is_part_away(part));
            }
        }
        self.forget_changes();
    }

    fn ask_for_page(&mut self, key: SubqueueKey, queues: &Queues, out: &mut Outbox) {
        let share = self.share();
        let Some(subqueue) = self.subqueues.get(key) else { return };
        if subqueue.is_reading() || subqueue.steps() >= Self::low(share) {
            return;
        }
        if subqueue.away().jobs == 0 {
            self.subqueues.all_held(key);
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
        self.again.extend(batch.fetches.iter().map(|fetch| fetch.number));
    }

    /// What was asked for could not be read.
    pub(crate) fn read_failed(&mut self, number: u64, now: Time) {
        if self.reads.contains_key(&number) {
            self.again.insert(number);
            self.again_at = Some(now.after(bounds::READ_AGAIN_NS));
        }
    }

    /// What was asked for was read: takes out what that was.
    pub(crate) fn take_read(&mut self, number: u64) -> Option<Read<E>> {
        self.reads.remove(&number)
    }

    /// A page of a subqueue was read, for which `asked` steps were asked for under this number. The jobs that it adds
    /// are to be taken in, and then [`page_taken`](Residency::page_taken) is to be called.
    pub(crate) fn page_read(
        &mut self,
        (key, asked): (SubqueueKey, usize),
        number: u64,
        records: Vec<JobRecord>,
    ) -> PageRead {
        let steps: usize = records.iter().map(|record| record.spec.steps.len()).sum();
        let last = records.last().and_then(|record| record.parked).map(|parked| parked.place.next());
        let rest = last.filter(|_| steps >= asked);
        let since = self.subqueues.read(key, rest);
        let mut page = PageRead { records: Vec::new(), is_last: rest.is_none() && since.is_none() };
        for record in records {
            let Some(parked) = record.parked else { continue };
            if since.is_some_and(|since| parked.place >= since) {
                break;
            }
            if !self.is_stale(record.id, number) {
                page.records.push(record);
            }
        }
        page
    }

    /// The jobs of a page are resident.
    pub(crate) fn page_taken(&mut self, key: SubqueueKey, is_last: bool) {
        if is_last {
            self.subqueues.all_held(key);
        }
        self.changed.insert(key);
    }
}

/// A subqueue as its jobs make it: steps, positions, and what of them the store has parked.
type MadeSubqueue = (usize, BTreeSet<QueuePos>, BacklogCounts);

impl<E> Residency<E> {
    /// The subqueues are what the jobs make of them, and the cache keeps its promises: of every subqueue with parked
    /// jobs some are resident or asked for; no more is resident than the cache's size, what cannot be parked, and what
    /// keeps each subqueue stocked. `steps` are those of all jobs, and `unawaited` finds jobs that no other job waits
    /// for.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub(crate) fn check<'a>(
        &self,
        steps: usize,
        queues: &Queues,
        unawaited: impl Fn(JobId) -> Option<&'a Job>,
    ) -> Result<(), String> {
        if steps != self.steps {
            return Err(format!("{steps} steps are resident, counted {}", self.steps));
        }
        let mut made: BTreeMap<SubqueueKey, MadeSubqueue> = BTreeMap::new();
        let mut largest = 0;
        for (id, evictable) in &self.evictable {
            let Some(job) = unawaited(*id).filter(|job| is_as_submitted(job)) else {
                return Err(format!("job {id} is in a subqueue and is pinned or gone"));
            };
            if (job.queue, queues.whole(job.queue), job.steps.len(), *id)
                != (evictable.part, evictable.subqueue.0, evictable.steps, evictable.parked.place.job)
            {
                return Err(format!("job {id} is in its subqueue otherwise than it is: {evictable:?}"));
            }
            let (steps, positions, held) = made.entry(evictable.subqueue).or_default();
            *steps += evictable.steps;
            positions.insert(evictable.parked.place);
            if evictable.stored {
                *held = held.plus(evictable.parked.backlog);
            }
            largest = largest.max(evictable.steps);
        }
        self.check_subqueues(made)?;
        let subqueues = &self.subqueues;
        let fixed = self.steps - subqueues.steps();
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
            let (steps, positions, held) = made.remove(&key).unwrap_or_default();
            let away = subqueue.away();
            if steps != subqueue.steps()
                || !subqueue.positions().eq(positions)
                || subqueue.parked().less(held) != away
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

/// True of a job to which nothing has happened since it was submitted, and that waits for no other job.
fn is_as_submitted(job: &Job) -> bool {
    let is_fresh = |step: &Step| {
        step.active == 0
            && step.tries.is_empty()
            && [&step.succeeded, &step.failed, &step.canceled].into_iter().all(|set| set.is_empty())
    };
    !job.held
        && job.stop.is_none()
        && job.ended.is_none()
        && job.after.is_empty()
        && job.spec.parent.is_none()
        && job.steps.iter().all(is_fresh)
}

fn unpark(evictable: &Evictable, queues: &Queues) -> Write {
    let queue = queues.get(evictable.subqueue.0).name().to_owned();
    Write::Unpark { job: evictable.parked.place.job, queue, parked: evictable.parked }
}
