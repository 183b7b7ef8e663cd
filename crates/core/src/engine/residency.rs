//! Which jobs the engine holds. The store has all; of those that nobody touched the engine holds the first of
//! each line ([`crate::residency::subqueues`]) and lets the others go. Loading and letting go of a parked job writes
//! nothing: the first booking, or whatever else somebody does with the job, takes it off the parked.
//!
//! Each line may hold an equal share of the steps that the cache has room for. One that holds less than half
//! of it, while more of it is parked, asks for the next page; when the cache is full, the last job of the
//! longest line is parked. Requests about a job that the engine does not hold wait until it was looked up.

use super::{Engine, Event, Fetch, FetchQuery, Outbox, SubmissionKey, Write};
use crate::bounds;
use crate::ids::{JobId, StepKey};
use crate::job::{BacklogCounts, Counts, Job, JobRecord, JobState, Parked, QueuePos};
use crate::residency::subqueues::{
    Evictable, ParkedCount, ParkedDrift, SubqueueKey, Subqueues, class_number,
};
use crate::score::dependents::ranked_since;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What was looked up for a request, by job: what the store has of it, if anything.
pub(super) type Lookups = BTreeMap<JobId, Option<JobRecord>>;

/// A read of the store that was asked for.
#[derive(Clone, PartialEq, Debug)]
enum Read {
    /// The next jobs of a line, of about so many steps.
    Page(SubqueueKey, usize),
    /// Jobs that a request names.
    Jobs { jobs: BTreeSet<JobId>, event: Box<Event>, lookups: Lookups },
}

/// What is parked, what stands in lines, and what is being read.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Residency {
    /// Steps that the engine may hold before it parks jobs.
    steps_max: usize,
    /// Keys of parked jobs that are remembered.
    recent_max: usize,
    /// Steps of all jobs that the engine holds.
    pub(super) steps: usize,
    subqueues: Subqueues,
    /// Jobs that the engine holds and nobody touched.
    evictable: BTreeMap<JobId, Evictable>,
    /// Jobs that left their line for what the engine came to know, and that the store has parked still.
    to_unpark: Vec<Evictable>,
    /// Lines to look at.
    changed: BTreeSet<SubqueueKey>,
    reads: BTreeMap<u64, Read>,
    next_read: u64,
    /// Reads that failed or did not go out.
    again: BTreeSet<u64>,
    again_at: Option<Time>,
    /// Jobs that were touched, parked, or ended while something was being read, and the number of the first read
    /// that knows.
    left: BTreeMap<JobId, u64>,
    left_order: VecDeque<(u64, JobId)>,
    /// Keys of jobs parked lately: the store may not have told those who asked before.
    recent: VecDeque<(JobId, SubmissionKey)>,
}

impl Residency {
    pub(super) fn new(steps_max: usize, recent_max: usize) -> Self {
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
            left: BTreeMap::new(),
            left_order: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// True if a line is of this queue.
    pub(super) fn names(&self, queue: crate::ids::QueueId) -> bool {
        let read = |read: &Read| matches!(read, Read::Page((of, _), _) if *of == queue);
        self.subqueues.of(queue).next().is_some() || self.reads.values().any(read)
    }

    /// True if the key of a parked job is remembered.
    pub(super) fn remembers(&self, job: JobId) -> bool {
        self.recent.iter().any(|(recent, _)| *recent == job)
    }

    /// When reads that failed are tried again.
    pub(super) fn next_try(&self) -> Option<Time> {
        self.again_at
    }

    /// Steps that one line may hold.
    fn share(&self) -> usize {
        let fixed = self.steps.saturating_sub(self.subqueues.steps());
        (self.steps_max.saturating_sub(fixed) / self.subqueues.len().max(1)).max(1)
    }

    /// Below which it asks for more.
    fn low(share: usize) -> usize {
        share.div_ceil(2)
    }

    /// True if what a read shows of a job is older than what the engine did with it.
    fn is_stale(&self, job: JobId, read: u64) -> bool {
        self.left.get(&job).is_some_and(|first| *first > read)
    }

    pub(super) fn note_change(&mut self, job: JobId) {
        if !self.reads.is_empty() {
            self.left.insert(job, self.next_read);
            self.left_order.push_back((self.next_read, job));
        }
    }

    /// Forgets who left before the oldest read that is still under way.
    fn forget_left(&mut self) {
        let oldest = self.reads.keys().next().copied().unwrap_or(u64::MAX);
        while let Some((first, job)) = self.left_order.front().copied().filter(|(first, _)| *first <= oldest)
        {
            self.left_order.pop_front();
            if self.left.get(&job) == Some(&first) {
                self.left.remove(&job);
            }
        }
    }
}

impl Engine {
    /// What stands in lines, and what of it is parked.
    pub fn subqueues(&self) -> &Subqueues {
        &self.residency.subqueues
    }

    /// Steps of all jobs that the engine holds.
    pub fn resident_steps(&self) -> usize {
        self.residency.steps
    }

    /// The tasks of jobs that are parked and not here.
    pub(super) fn parked_counts(&self) -> Counts {
        let BacklogCounts { ready, waiting, .. } = self.residency.subqueues.away();
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (ready, waiting) = (clamp(ready), clamp(waiting));
        Counts { total: ready.saturating_add(waiting), ready, waiting, ..Counts::default() }
    }

    /// True if the store has the job parked as well.
    pub(crate) fn is_parked(&self, job: JobId) -> bool {
        self.residency.evictable.get(&job).is_some_and(|evictable| evictable.stored)
    }

    /// Sets what the store has parked; `out` holds what it has not been told yet.
    pub(super) fn set_parked(&mut self, counts: Vec<ParkedCount>, out: &Outbox) {
        let mut parked: BTreeMap<SubqueueKey, BacklogCounts> =
            self.residency.subqueues.iter().map(|(key, _)| (key, BacklogCounts::default())).collect();
        for count in counts {
            parked.insert((self.plan.queues.intern(&count.queue), count.class), count.backlog);
        }
        for write in &out.writes {
            if let Write::Park { queue, parked: p, .. } | Write::Unpark { queue, parked: p, .. } = write {
                let backlog = parked.entry((self.plan.queues.intern(queue), p.class)).or_default();
                let more = matches!(write, Write::Park { .. });
                *backlog = if more { backlog.plus(p.backlog) } else { backlog.less(p.backlog) };
            }
        }
        for (key, backlog) in parked {
            self.residency.subqueues.set_parked(key, backlog);
            self.residency.changed.insert(key);
        }
    }

    /// The store found other counts than it had.
    pub(super) fn audited(&mut self, drifts: Vec<ParkedDrift>) {
        for drift in drifts {
            let key = (self.plan.queues.intern(&drift.queue), drift.class);
            let known =
                self.residency.subqueues.get(key).map(|subqueue| subqueue.parked()).unwrap_or_default();
            self.residency.subqueues.set_parked(key, known.plus(drift.found).less(drift.counted));
            self.residency.changed.insert(key);
        }
    }

    /// Puts a job that nobody touched into its line; `parked` is how the store has it parked, if it has. One that cannot be
    /// parked is unparked with the next batch.
    pub(super) fn stand(&mut self, id: JobId, parked: Option<Parked>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (is_parkable, stored) = (self.is_parkable(job), parked.is_some());
        if !is_parkable && !stored {
            return;
        }
        let parked = parked.unwrap_or_else(|| self.parked_as(job));
        let subqueue = (self.plan.queues.whole(job.queue), parked.class);
        let evictable = Evictable { subqueue, part: job.queue, parked, steps: job.steps.len(), stored };
        if !is_parkable {
            // A failed batch was about it, and a job before it was retried after it was parked: it waits again.
            self.residency.to_unpark.push(evictable);
        } else if self.residency.evictable.insert(id, evictable).is_none() {
            self.residency.subqueues.stand(&evictable);
        }
    }

    /// How a job would be parked.
    fn parked_as(&self, job: &Job) -> Parked {
        let first = job.steps.iter().filter(|step| !step.ready.is_empty());
        let (ranked, ready) =
            first.map(|step| (ranked_since(step), step.ready_since)).min().unwrap_or_default();
        let class = class_number(&job.spec);
        let known = self.residency.subqueues.get((self.plan.queues.whole(job.queue), class)).is_some();
        Parked {
            // Of too many classes to tell apart.
            class: if known || self.residency.subqueues.len() < bounds::LINES_MAX { class } else { 0 },
            place: QueuePos { priority: Reverse(job.spec.priority), ranked, job: job.id },
            ready,
            backlog: BacklogCounts::of(&job.spec),
        }
    }

    /// True of a job that is as it was submitted, and that nothing else waits for.
    fn is_parkable(&self, job: &Job) -> bool {
        let is_fresh = |step: &crate::job::Step| {
            step.active == 0
                && step.tries.is_empty()
                && [&step.succeeded, &step.failed, &step.canceled].into_iter().all(|set| set.is_empty())
        };
        !job.held
            && job.stop.is_none()
            && job.ended.is_none()
            && job.after.is_empty()
            && job.spec.parent.is_none()
            && self.dependents.get(&job.id).is_none_or(BTreeSet::is_empty)
            && job.steps.iter().all(is_fresh)
    }

    /// Something is about to happen to a job: it is parked nowhere from now on.
    pub(super) fn pin(&mut self, id: JobId, out: &mut Outbox) {
        let Some(evictable) = self.residency.evictable.remove(&id) else { return };
        self.residency.subqueues.leave(&evictable);
        self.residency.changed.insert(evictable.subqueue);
        if evictable.stored {
            self.residency.note_change(id);
            let queue = self.plan.queues.get(evictable.subqueue.0).name().to_owned();
            out.writes.push(Write::Unpark { job: id, queue, parked: evictable.parked });
        }
    }

    /// A job waits for others, or others for it: it is parked nowhere from the next batch on.
    pub(super) fn pin_in_next_batch(&mut self, id: JobId) {
        let evictable = self.residency.evictable.get(&id).copied();
        self.leave_subqueue(id);
        self.residency.to_unpark.extend(evictable.filter(|evictable| evictable.stored));
    }

    /// Takes a job out of its line; what the store has of it stays.
    pub(super) fn leave_subqueue(&mut self, id: JobId) {
        if let Some(evictable) = self.residency.evictable.remove(&id) {
            self.residency.subqueues.drop(&evictable);
            self.residency.changed.insert(evictable.subqueue);
        }
    }

    /// Lets a job go that stands behind parked ones.
    pub(super) fn evict_if_behind(&mut self, id: JobId, out: &mut Outbox) {
        let Some(evictable) = self.residency.evictable.get(&id).copied() else { return };
        let resident_before =
            self.residency.subqueues.get(evictable.subqueue).and_then(|subqueue| subqueue.resident_before());
        if resident_before.is_some_and(|resident_before| evictable.parked.place >= resident_before) {
            self.evict(id, out);
        }
    }

    /// Lets a job go that nobody touched: the store has it.
    fn evict(&mut self, id: JobId, out: &mut Outbox) {
        let Some(evictable) = self.residency.evictable.remove(&id) else { return };
        if !evictable.stored {
            // One that the store has parked is what a read shows, however old that is: two requests that each let
            // go what they loaded must not make it too old for each other.
            self.residency.note_change(id);
            let queue = self.plan.queues.get(evictable.subqueue.0).name().to_owned();
            out.writes.push(Write::Park { job: id, queue, parked: evictable.parked });
        }
        self.residency.subqueues.evict(&evictable);
        self.residency.changed.insert(evictable.subqueue);
        let key = self.jobs.get(&id).and_then(|job| Some((job.spec.user.clone(), job.spec.key.clone()?)));
        self.residency.recent.extend(key.map(|key| (id, key)));
        if self.residency.recent.len() > self.residency.recent_max
            && let Some((old, key)) = self.residency.recent.pop_front()
            && self.keys.get(&key) == Some(&old)
            && !self.jobs.contains_key(&old)
        {
            self.keys.remove(&key);
        }
        self.forget(id);
    }

    /// Parks what the cache has no room for, and asks for what lines lack.
    pub(super) fn refill(&mut self, out: &mut Outbox) {
        for evictable in std::mem::take(&mut self.residency.to_unpark) {
            let job = evictable.parked.place.job;
            self.residency.subqueues.unpark_absent(&evictable);
            self.residency.note_change(job);
            let queue = self.plan.queues.get(evictable.subqueue.0).name().to_owned();
            out.writes.push(Write::Unpark { job, queue, parked: evictable.parked });
        }
        self.evict_over_capacity(out);
        if self.residency.again_at.is_some_and(|at| self.now < at) {
            return;
        }
        self.residency.again_at = None;
        for number in std::mem::take(&mut self.residency.again) {
            match self.residency.reads.remove(&number) {
                Some(Read::Page(key, _)) => {
                    self.residency.subqueues.read_failed(key);
                    self.residency.changed.insert(key);
                }
                Some(Read::Jobs { jobs, event, mut lookups }) => {
                    lookups.retain(|job, _| !self.residency.is_stale(*job, number));
                    self.look_up(jobs, event, lookups, out);
                }
                None => {}
            }
        }
        while let Some(key) = self.residency.changed.pop_first() {
            self.ask_for_page(key, out);
            self.plan.queues.set_parked(key.0, self.residency.subqueues.is_away(key.0));
            if let Some(part) = self.residency.subqueues.part_of(key) {
                self.plan.queues.set_user_parked(part, self.residency.subqueues.is_part_away(part));
            }
        }
        self.residency.forget_left();
    }

    fn ask_for_page(&mut self, key: SubqueueKey, out: &mut Outbox) {
        let share = self.residency.share();
        let Some(subqueue) = self.residency.subqueues.get(key) else { return };
        if subqueue.is_reading() || subqueue.steps() >= Residency::low(share) {
            return;
        }
        if subqueue.away().jobs == 0 {
            self.residency.subqueues.all_held(key);
            return;
        }
        let steps = (share - subqueue.steps()).min(bounds::PAGE_STEPS_MAX);
        let from = self.residency.subqueues.read_from(key).unwrap_or(QueuePos::FIRST);
        let queue = self.plan.queues.get(key.0).name().to_owned();
        self.fetch(FetchQuery::Page { queue, class: key.1, from, steps }, Read::Page(key, steps), out);
    }

    fn fetch(&mut self, wanted: FetchQuery, read: Read, out: &mut Outbox) {
        let number = self.residency.next_read;
        self.residency.next_read += 1;
        self.residency.reads.insert(number, read);
        out.fetches.push(Fetch { number, wanted });
    }

    /// While the cache is over its size, parks the last job of the longest line that has more than its share
    /// and stays well stocked without it.
    fn evict_over_capacity(&mut self, out: &mut Outbox) {
        while self.residency.steps > self.residency.steps_max {
            let share = self.residency.share();
            let last = |key: SubqueueKey| {
                let subqueue = self.residency.subqueues.get(key)?;
                let place = subqueue.positions().next_back()?;
                let steps = self.residency.evictable.get(&place.job)?.steps;
                (subqueue.steps() - steps >= Residency::low(share)).then_some(place.job)
            };
            let longest = self.residency.subqueues.longer_than(share).take(bounds::PARK_LOOKS_MAX);
            let Some(job) = longest.into_iter().find_map(last) else { break };
            self.evict(job, out);
        }
    }

    /// Acts on an event when all jobs that it names are here, or known not to be parked; looks them up first
    /// otherwise.
    pub(super) fn act_with_jobs(&mut self, event: Event, lookups: Lookups, out: &mut Outbox) {
        let open = self.open_jobs(&event, &lookups);
        if open.iter().all(|id| self.jobs.contains_key(id)) {
            self.act(event, lookups, out);
        } else {
            // Those that are here as well: they may be let go until the others come.
            self.look_up(open, Box::new(event), lookups, out);
        }
    }

    /// The jobs that an event names and that may be active.
    fn open_jobs(&self, event: &Event, lookups: &Lookups) -> BTreeSet<JobId> {
        let mut open = BTreeSet::new();
        if self.residency.subqueues.away().jobs > 0 {
            let is_open = |id: &JobId| self.outcome(*id).is_none_or(|state| state == JobState::Active);
            open.extend(self.named_by(event, lookups).into_iter().filter(is_open));
        }
        if let Event::Retry { job, .. } = event {
            // One that ended begins again from what the store has of it now.
            open.insert(*job);
        }
        open.retain(|id| !lookups.contains_key(id));
        open
    }

    fn look_up(&mut self, jobs: BTreeSet<JobId>, event: Box<Event>, lookups: Lookups, out: &mut Outbox) {
        let wanted = FetchQuery::Jobs(jobs.clone());
        self.fetch(wanted, Read::Jobs { jobs, event, lookups }, out);
    }

    /// Jobs that must be held when the event is acted on, if they are active.
    fn named_by(&self, event: &Event, lookups: &Lookups) -> Vec<JobId> {
        match event {
            Event::Cancel { job, .. } | Event::Hold { job, .. } | Event::Prioritize { job, .. } => vec![*job],
            Event::Retry { job, .. } => {
                let held = self.jobs.get(job).map(|job| &job.spec);
                let spec = held.or(lookups.get(job).and_then(|found| Some(&found.as_ref()?.spec)));
                let after = spec.into_iter().flat_map(|spec| spec.after.iter().copied());
                std::iter::once(*job).chain(after).collect()
            }
            Event::Submit(submit) => {
                let active = |id: &&JobId| submit.outcomes.get(id) == Some(&JobState::Active);
                submit.spec.after.iter().filter(active).copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// What was asked for was read, or could not be.
    pub(super) fn fetched(&mut self, number: u64, records: Option<Vec<JobRecord>>, out: &mut Outbox) {
        let Some(records) = records else {
            if self.residency.reads.contains_key(&number) {
                self.residency.again.insert(number);
                self.residency.again_at = Some(self.now.after(bounds::READ_AGAIN_NS));
            }
            return;
        };
        match self.residency.reads.remove(&number) {
            Some(Read::Page(key, steps)) => self.page_read(key, steps, number, records),
            Some(Read::Jobs { jobs, event, lookups }) => {
                self.jobs_read(number, jobs, records, *event, lookups, out);
            }
            None => {}
        }
    }

    fn page_read(&mut self, key: SubqueueKey, asked: usize, number: u64, records: Vec<JobRecord>) {
        let steps: usize = records.iter().map(|record| record.spec.steps.len()).sum();
        let last = records.last().and_then(|record| record.parked).map(|parked| parked.place.next());
        let rest = last.filter(|_| steps >= asked);
        let since = self.residency.subqueues.read(key, rest);
        for record in records {
            let Some(parked) = record.parked else { continue };
            if since.is_some_and(|since| parked.place >= since) {
                break;
            }
            if !self.jobs.contains_key(&record.id) && !self.residency.is_stale(record.id, number) {
                self.insert_record(record, BTreeSet::new());
            }
        }
        if rest.is_none() && since.is_none() {
            self.residency.subqueues.all_held(key);
        }
        self.residency.changed.insert(key);
    }

    fn jobs_read(
        &mut self,
        number: u64,
        jobs: BTreeSet<JobId>,
        records: Vec<JobRecord>,
        event: Event,
        mut lookups: Lookups,
        out: &mut Outbox,
    ) {
        let mut found: BTreeMap<JobId, JobRecord> = records.into_iter().map(|r| (r.id, r)).collect();
        let mut loaded = Vec::new();
        lookups.retain(|job, _| !self.residency.is_stale(*job, number));
        for job in jobs {
            if self.jobs.contains_key(&job) || self.residency.is_stale(job, number) {
                continue;
            }
            match found.remove(&job) {
                Some(record) if record.parked.is_some() => {
                    self.insert_record(record, BTreeSet::new());
                    loaded.push(job);
                }
                record => _ = lookups.insert(job, record),
            }
        }
        self.act_with_jobs(event, lookups, out);
        loaded.into_iter().for_each(|job| self.evict_if_behind(job, out));
    }

    /// What was asked for in a batch that is not durable was never read.
    pub(super) fn fetch_again(&mut self, batch: &Outbox) {
        self.residency.again.extend(batch.fetches.iter().map(|fetch| fetch.number));
    }

    /// The first step with ready tasks of the first job that is held of each line of which some is not.
    pub(crate) fn evicted_by_subqueue(&self) -> impl Iterator<Item = (Option<StepKey>, BacklogCounts)> + '_ {
        self.residency
            .subqueues
            .iter()
            .map(|(_, subqueue)| (subqueue, subqueue.away()))
            .filter(|(_, away)| away.ready > 0)
            .map(|(subqueue, away)| {
                let first = subqueue.positions().next().and_then(|place| self.first_ready(place.job));
                (first, away)
            })
    }

    /// The first step of a job that has ready tasks.
    pub(crate) fn first_ready(&self, id: JobId) -> Option<StepKey> {
        let step = self.jobs.get(&id)?.steps.iter().position(|step| !step.ready.is_empty())?;
        Some(StepKey { job: id, step: step as u16 })
    }
}

impl Engine {
    /// The lines are what the jobs make of them, and the cache keeps its promises: of every line with parked
    /// jobs some are here or asked for; no more is here than its size, what cannot be parked, and what keeps
    /// each line stocked.
    pub(super) fn check_residency(&self) -> Result<(), String> {
        let steps: usize = self.jobs.values().map(|job| job.steps.len()).sum();
        if steps != self.residency.steps {
            return Err(format!("{steps} steps are held, counted {}", self.residency.steps));
        }
        let mut made: BTreeMap<SubqueueKey, (usize, BTreeSet<QueuePos>, BacklogCounts)> = BTreeMap::new();
        let mut largest = 0;
        for (id, evictable) in &self.residency.evictable {
            let Some(job) = self.jobs.get(id).filter(|job| self.is_parkable(job)) else {
                return Err(format!("job {id} stands in a line and is touched or gone"));
            };
            if (job.queue, self.plan.queues.whole(job.queue), job.steps.len(), *id)
                != (evictable.part, evictable.subqueue.0, evictable.steps, evictable.parked.place.job)
            {
                return Err(format!("job {id} does not stand as it is: {evictable:?}"));
            }
            let (steps, positions, held) = made.entry(evictable.subqueue).or_default();
            *steps += evictable.steps;
            positions.insert(evictable.parked.place);
            if evictable.stored {
                *held = held.plus(evictable.parked.backlog);
            }
            largest = largest.max(evictable.steps);
        }
        for (key, subqueue) in self.residency.subqueues.iter() {
            let (steps, positions, held) = made.remove(&key).unwrap_or_default();
            if steps != subqueue.steps()
                || !subqueue.positions().eq(positions)
                || subqueue.parked().less(held) != subqueue.away()
            {
                return Err(format!("line {key:?} is not what its jobs make: {subqueue:?}"));
            }
            let asked = subqueue.is_reading() || self.residency.changed.contains(&key);
            if subqueue.away().jobs > 0 && subqueue.steps() == 0 && !asked {
                return Err(format!(
                    "line {key:?} has {:?} parked, nothing here and nothing asked for",
                    subqueue.away()
                ));
            }
            if subqueue.away().jobs > 0 && subqueue.resident_before().is_none() {
                return Err(format!("line {key:?} has {:?} away and says that all is here", subqueue.away()));
            }
        }
        if let Some(key) = made.keys().next() {
            return Err(format!("jobs stand in line {key:?}, which is not there"));
        }
        let subqueues = &self.residency.subqueues;
        let fixed = self.residency.steps - subqueues.steps();
        let most = self.residency.steps_max.saturating_sub(fixed) + subqueues.len() * (1 + largest);
        if subqueues.steps() > most {
            return Err(format!(
                "{} steps stand in {} lines, at most {most} may",
                subqueues.steps(),
                subqueues.len()
            ));
        }
        Ok(())
    }
}
