//! The store in memory, for tests, for the simulator and for runs that leave nothing behind. Its guards are
//! those of the SQLite store, and the same suite holds for both. Each call is atomic, since all tables are
//! under one lock. It has no I/O and no errors.

use crate::done::{DoneRow, DoneRows};
use crate::gather::Gather;
use crate::notices::{Beside, NoticeRows, OwedNotice};
use crate::rows;
use crate::spec::spec_to_json;
use crate::usage::{UsageRows, UsageTable};
use crate::view::{
    AttemptView, EndedJob, EndedTotals, FOREIGN_NODE_NUMBERS, ForeignDocs, ForeignWrite, HISTORY_MAX,
    JobFilter, JobView, JobsPart, ParkedView, SeriesRow, Snapshot, StepBodies, StoredTask, TokenRecord,
    TokenWrite,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use windlass_core::engine::{Fetch, FetchQuery, StoredState, Write};
use windlass_core::job::{
    BackOff, BacklogCounts, JobRecord, JobSpec, JobState, Parked, QueuePos, TaskResult, TaskRow, TaskState,
};
use windlass_core::licences::Limit;
use windlass_core::queues::{
    ClockOf, ClockRecord, QueueRecord, QueueTurn, SavedTurns, TurnClock, TurnRecord,
};
use windlass_core::ranges::RangeSet;
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::score::history::Sample;
use windlass_core::worker::WorkerRecord;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// A store in memory; clones share it.
#[derive(Clone)]
pub struct Memory {
    id: i64,
    tables: Arc<Mutex<Tables>>,
}

impl Default for Memory {
    fn default() -> Self {
        // The keys of a hasher are the only randomness in the standard library.
        let id = (RandomState::new().build_hasher().finish() >> 1) as i64;
        Memory { id, tables: Arc::default() }
    }
}

#[derive(Default)]
struct Tables {
    next_job: u64,
    /// Their specs have empty bodies.
    jobs: BTreeMap<JobId, JobView>,
    bodies: BTreeMap<(JobId, u16), Arc<[u8]>>,
    tasks: BTreeMap<TaskId, StoredTask>,
    history: BTreeMap<TaskId, Vec<AttemptView>>,
    workers: BTreeMap<WorkerId, WorkerRecord>,
    tokens: BTreeMap<String, TokenRecord>,
    numbers: BTreeMap<String, u64>,
    /// By step and part.
    series: BTreeMap<(u64, u8), Vec<u8>>,
    samples: BTreeMap<String, (Time, Vec<Sample>)>,
    queues: BTreeMap<String, QueueRecord>,
    turns: BTreeMap<(String, Option<String>), QueueTurn>,
    clocks: BTreeMap<ClockOf, TurnClock>,
    foreign_jobs: BTreeMap<JobId, (bool, String)>,
    foreign_hosts: BTreeMap<String, String>,
    limits: BTreeMap<String, Limit>,
    back_offs: BTreeMap<JobId, BTreeMap<u16, BackOff>>,
    parked: BTreeMap<JobId, Parked>,
    /// The parked jobs by queue and class, in the order of their subqueue.
    subqueues: BTreeMap<SubqueueKey, BTreeMap<QueuePos, JobId>>,
    parked_counts: BTreeMap<SubqueueKey, BacklogCounts>,
    done: DoneRows,
    notices: NoticeRows,
    usage: UsageTable,
}

type SubqueueKey = (String, u64);

/// The methods are those of [`Store`](crate::Store) with the same names.
#[allow(missing_docs)]
impl Memory {
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Applies all writes whose guard holds; returns the indexes of the others.
    pub fn apply(&self, writes: &[Write]) -> Vec<usize> {
        self.apply_with(writes, &Beside::default())
    }

    pub(crate) fn apply_with(&self, writes: &[Write], beside: &Beside) -> Vec<usize> {
        let mut tables = self.lock();
        let (mut refused, mut gone) = (Vec::new(), BTreeSet::new());
        for (number, write) in writes.iter().enumerate() {
            let is_gone = write.job().is_some_and(|job| gone.contains(&job));
            if is_gone || !tables.apply(write) {
                refused.push(number);
                gone.extend(matches!(write, Write::JobRetry { .. }).then(|| write.job()).flatten());
            }
        }
        if !writes.is_empty() {
            tables.done.keep(&beside.done, writes, &refused);
            tables.notices.add(&beside.notices, writes, &refused);
            tables.usage.add(&beside.used, writes, &refused);
        }
        refused
    }

    pub(crate) fn done_request(&self, key: &str) -> Option<DoneRow> {
        self.lock().done.get(key)
    }

    pub(crate) fn owed_notices(&self, after: u64, limit: usize) -> Vec<OwedNotice> {
        self.lock().notices.after(after, limit)
    }

    pub(crate) fn forget_notices(&self, numbers: Vec<u64>) {
        self.lock().notices.forget(&numbers);
    }

    pub(crate) fn usage_since(&self, day: u64, limit: usize) -> UsageRows {
        self.lock().usage.since(day, limit)
    }

    pub(crate) fn forget_usage(&self, before_day: u64) -> usize {
        self.lock().usage.forget(before_day)
    }

    pub fn load(&self) -> Snapshot {
        let tables = self.lock();
        let active = tables.jobs.values().filter(|job| job.state == JobState::Active).map(|job| job.id);
        let active = active.filter(|id| !tables.parked.contains_key(id));
        Snapshot {
            next_job: tables.next_job.max(1),
            ground: StoredState {
                workers: tables.workers.values().cloned().collect(),
                jobs: active.filter_map(|id| tables.record(id)).collect(),
                parked: counts(&tables.parked_counts),
                history: tables.history_newest_first(),
                queues: tables.queues.values().cloned().collect(),
                limits: tables.limits.clone(),
                turns: tables.saved_turns(),
            },
        }
    }

    pub fn records(&self, ids: &BTreeSet<JobId>) -> Vec<JobRecord> {
        let tables = self.lock();
        ids.iter().filter_map(|id| tables.record(*id)).collect()
    }

    pub fn fetch(&self, fetch: &Fetch) -> Vec<JobRecord> {
        match &fetch.wanted {
            FetchQuery::Jobs(ids) => self.records(ids),
            FetchQuery::Page { queue, class, from, steps } => {
                let (tables, mut seen) = (self.lock(), 0);
                let subqueue = tables.subqueues.get(&(queue.clone(), *class)).into_iter();
                let ids = subqueue.flat_map(|subqueue| subqueue.range(*from..)).map(|(_, id)| *id);
                let records = ids.filter_map(|id| tables.record(id));
                let wanted = records.take_while(|record| {
                    let wanted = seen < *steps;
                    seen += record.spec.steps.len();
                    wanted
                });
                wanted.collect()
            }
        }
    }

    pub fn parked_counts(&self) -> Vec<ParkedCount> {
        counts(&self.lock().parked_counts)
    }

    pub fn audit_parked(&self) -> Vec<ParkedDrift> {
        let mut tables = self.lock();
        let mut found: BTreeMap<SubqueueKey, BacklogCounts> = BTreeMap::new();
        for (key, subqueue) in &tables.subqueues {
            for parked in subqueue.values().filter_map(|id| tables.parked.get(id)) {
                let backlog = found.entry(key.clone()).or_default();
                *backlog = backlog.plus(parked.backlog);
            }
        }
        let drifts = rows::drifts(counts(&tables.parked_counts), counts(&found));
        tables.parked_counts = found;
        drifts
    }

    pub fn parked(&self, id: JobId) -> Option<ParkedView> {
        let tables = self.lock();
        let (parked, spec) = (*tables.parked.get(&id)?, tables.jobs.get(&id)?.spec.clone());
        let key = |class| (spec.queue.clone(), class);
        let subqueues = tables.subqueues.range(key(0)..=key(u64::MAX));
        let ahead = subqueues.map(|(_, subqueue)| subqueue.range(..parked.position).count() as u64).sum();
        Some(ParkedView { spec, parked, ahead })
    }

    pub fn job(&self, id: JobId) -> Option<JobView> {
        self.lock().jobs.get(&id).cloned()
    }

    /// The number of the next job: those before it are durable.
    pub fn next_job(&self) -> JobId {
        JobId(self.lock().next_job.max(1))
    }

    pub fn job_by_key(&self, user: &str, key: &str) -> Option<JobId> {
        let tables = self.lock();
        let mut jobs = tables.jobs.values();
        jobs.find(|job| job.spec.user == user && job.spec.key.as_deref() == Some(key)).map(|job| job.id)
    }

    pub fn user_totals(&self, user: &str) -> (u64, u64) {
        let tables = self.lock();
        let (mut jobs, mut bytes) = (0, 0);
        for job in tables.jobs.values().filter(|job| job.spec.user == user) {
            let bodies = tables.bodies.range((job.id, 0)..=(job.id, u16::MAX)).map(|(_, body)| body.len());
            jobs += 1;
            bytes += (spec_to_json(&job.spec).len() + bodies.sum::<usize>()) as u64;
        }
        (jobs, bytes)
    }

    pub fn ended_totals(&self) -> EndedTotals {
        let mut totals = EndedTotals::default();
        self.lock().jobs.values().for_each(|job| totals.add(job.state, 1));
        totals
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.lock().numbers.get(name).copied()
    }

    pub fn last_ended(&self, jobs_max: usize, attempts_max: usize) -> Vec<EndedJob> {
        let tables = self.lock();
        let active = tables.jobs.values().rev().filter(|job| job.state == JobState::Active);
        let active = active.filter(|job| !tables.parked.contains_key(&job.id)).take(jobs_max);
        let mut ended: Vec<&JobView> = tables.jobs.values().filter(|job| job.ended.is_some()).collect();
        ended.sort_by_key(|job| std::cmp::Reverse((job.ended, job.id)));
        let (mut left, mut found) = (attempts_max, Vec::new());
        for view in active.chain(ended.into_iter().take(jobs_max)) {
            let all = TaskId { job: view.id, index: 0 }..=TaskId { job: view.id, index: u32::MAX };
            let is_over =
                |task: &&StoredTask| task.row.state >= TaskState::Succeeded && task.result.is_some();
            let most = left.min(attempts_max / 2);
            let tasks = tables.tasks.range(all.clone()).rev().map(|(_, task)| task).filter(is_over);
            let tasks: Vec<StoredTask> = tasks.take(most).cloned().collect();
            let earlier = tables.history.range(all).flat_map(|(task, attempts)| {
                attempts.iter().filter(|attempt| !attempt.late).map(|attempt| (task.index, attempt.clone()))
            });
            let attempts: Vec<(u32, AttemptView)> = earlier.take(most - tasks.len()).collect();
            left -= tasks.len() + attempts.len();
            found.push(EndedJob { view: view.clone(), tasks, attempts });
        }
        found
    }

    pub fn keep_series(&self, rows: Vec<SeriesRow>, kept: Vec<(u8, Range<u64>)>) {
        let mut tables = self.lock();
        tables.series.extend(rows.into_iter().map(|row| ((row.step, row.part), row.data)));
        for (part, steps) in kept {
            tables.series.retain(|(step, of), _| *of != part || steps.contains(step));
        }
    }

    pub fn series(&self) -> Vec<SeriesRow> {
        let tables = self.lock();
        let row = |((step, part), data): (&(u64, u8), &Vec<u8>)| SeriesRow {
            part: *part,
            step: *step,
            data: data.clone(),
        };
        tables.series.iter().map(row).collect()
    }

    pub fn keep_number(&self, name: &str, number: u64) {
        self.lock().numbers.insert(name.to_owned(), number);
    }

    pub fn jobs(&self, filter: &JobFilter, before: Option<JobId>, limit: usize, rows_max: usize) -> JobsPart {
        let tables = self.lock();
        let mut part = JobsPart::default();
        for job in tables.jobs.values().rev().filter(|job| before.is_none_or(|before| job.id < before)) {
            if filter.is_for_active() && job.state != JobState::Active {
                continue;
            }
            part.rows += 1;
            if filter.accepts(job) {
                part.jobs.push(job.clone());
            }
            if part.jobs.len() >= limit || part.rows >= rows_max {
                part.next = Some(job.id);
                break;
            }
        }
        part
    }

    pub fn tasks(&self, job: JobId, range: Range<u32>) -> Vec<StoredTask> {
        let tables = self.lock();
        let ids = TaskId { job, index: range.start }..TaskId { job, index: range.end };
        tables.tasks.range(ids).map(|(_, task)| task.clone()).collect()
    }

    pub fn failed_tasks(&self, job: JobId, range: Range<u32>, limit: usize) -> Vec<StoredTask> {
        let tables = self.lock();
        let ids = TaskId { job, index: range.start }..TaskId { job, index: range.end };
        let failed = tables.tasks.range(ids).filter(|(_, task)| task.row.state == TaskState::Failed);
        failed.take(limit).map(|(_, task)| task.clone()).collect()
    }

    pub fn history(&self, task: TaskId) -> Vec<AttemptView> {
        self.lock().history.get(&task).cloned().unwrap_or_default()
    }

    pub fn body(&self, job: JobId, step: u16) -> Option<Arc<[u8]>> {
        self.lock().bodies.get(&(job, step)).cloned()
    }

    pub fn bodies(&self, steps: &[(JobId, u16)]) -> Vec<Option<Arc<[u8]>>> {
        steps.iter().map(|(job, step)| self.body(*job, *step)).collect()
    }

    pub fn small_bodies(&self, steps: &[(JobId, u16)], bytes_max: usize) -> StepBodies {
        let found = steps.iter().filter_map(|(job, step)| Some(((*job, *step), self.body(*job, *step)?)));
        found.filter(|(_, body)| body.len() <= bytes_max).collect()
    }

    pub fn write_foreign(&self, writes: Vec<ForeignWrite>) {
        let mut tables = self.lock();
        for write in writes {
            match write {
                ForeignWrite::Job { job, open, doc } => _ = tables.foreign_jobs.insert(job, (open, doc)),
                ForeignWrite::Forget(job) => _ = tables.foreign_jobs.remove(&job),
                ForeignWrite::Host { name, doc } => _ = tables.foreign_hosts.insert(name, doc),
            }
        }
    }

    pub fn foreign_job(&self, id: JobId) -> Option<String> {
        self.lock().foreign_jobs.get(&id).map(|(_, doc)| doc.clone())
    }

    pub fn foreign_docs(&self) -> ForeignDocs {
        let tables = self.lock();
        let open = tables.foreign_jobs.iter().filter(|(_, (open, _))| *open);
        ForeignDocs {
            hosts: tables.foreign_hosts.clone().into_iter().collect(),
            open: open.map(|(job, (_, doc))| (*job, doc.clone())).collect(),
        }
    }

    pub fn held_jobs(&self) -> Vec<JobId> {
        let tables = self.lock();
        let held = tables.jobs.values().filter(|job| job.state == JobState::Active && job.held);
        held.map(|job| job.id).collect()
    }

    /// Adds or revokes a token. False if the new id is taken, or if the token to revoke does not exist.
    pub(crate) fn write_token(&self, write: TokenWrite) -> bool {
        let mut tables = self.lock();
        match write {
            TokenWrite::Create(token) => match tables.tokens.entry(token.id.clone()) {
                Entry::Vacant(free) => {
                    free.insert(*token);
                    true
                }
                Entry::Occupied(_) => false,
            },
            TokenWrite::Revoke(id, at) => {
                let token = tables.tokens.get_mut(&id).filter(|token| token.revoked.is_none());
                token.map(|token| token.revoked = Some(at)).is_some()
            }
        }
    }

    pub fn tokens(&self) -> Vec<TokenRecord> {
        self.lock().tokens.values().cloned().collect()
    }

    pub fn retain(&self, before: Time) -> Vec<JobId> {
        let mut tables = self.lock();
        let old = tables.jobs.values().filter(|job| job.ended.is_some_and(|at| at < before));
        let old: Vec<JobId> = old.map(|job| job.id).collect();
        for id in &old {
            tables.jobs.remove(id);
            tables.foreign_jobs.retain(|number, _| number.0 % FOREIGN_NODE_NUMBERS != id.0);
            tables.back_offs.remove(id);
            tables.bodies.retain(|(job, _), _| job != id);
            tables.tasks.retain(|task, _| task.job != *id);
            tables.history.retain(|task, _| task.job != *id);
        }
        tables.samples.retain(|_, (at, _)| *at >= before);
        let ended = |at: Option<Time>| at.is_some_and(|at| at < before);
        tables.tokens.retain(|_, token| !ended(token.revoked) && !ended(token.expires));
        old
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }
}

impl JobFilter {
    fn accepts(&self, job: &JobView) -> bool {
        (self.states.is_empty() || self.states.contains(&job.state))
            && self.user.as_ref().is_none_or(|user| *user == job.spec.user)
            && self.queue.as_ref().is_none_or(|queue| *queue == job.spec.queue)
            && self.name.as_ref().is_none_or(|name| job.spec.name.contains(name.as_str()))
    }
}

impl Tables {
    /// Applies a write; false if its guard failed.
    fn apply(&mut self, write: &Write) -> bool {
        match write {
            Write::History { signature, samples, at } => {
                self.samples.insert(signature.clone(), (*at, samples.clone()));
                true
            }
            Write::Queue(queue) => self.set_queue(&queue.name, Some(queue)),
            Write::QueueGone(name) => self.set_queue(name, None),
            Write::Limit { name, limit } => self.set_limit(name, limit.as_ref()),
            Write::Turns(saved) => self.save_turns(saved),
            // This store reads every row, so ranges of succeeded tasks are of no use to it.
            Write::SucceededRanges { job, .. } => self.jobs.contains_key(job),
            Write::LicenceBackoffs { job, steps } => self.set_back_offs(*job, steps),
            Write::Job { id, spec, created } => self.insert_job(*id, spec, *created),
            Write::JobHeld { job, held } => self.change(*job, |view| view.held = *held),
            Write::JobPriority { job, priority } => {
                self.change(*job, |view| Arc::make_mut(&mut view.spec).priority = *priority)
            }
            Write::JobStop { job, stop } => self.change(*job, |view| view.stop = Some(*stop)),
            Write::JobEnd { job, state, at, counts } => self.change(*job, |view| {
                view.state = *state;
                view.ended = Some(*at);
                view.counts = Some(*counts);
            }),
            Write::JobRetry { job, tasks } => self.retry(*job, tasks),
            Write::TasksCanceled { job, tasks } => self.change(*job, |view| view.cancels = tasks.clone()),
            Write::FirstSucceeded { job, tasks } => {
                self.change(*job, |view| view.first_succeeded = tasks.clone())
            }
            Write::Book { task, attempt, worker, epoch, at, amounts } => {
                self.book(*task, *attempt, (*worker, *epoch), *at, *amounts)
            }
            Write::End { task, attempt, state, failures, losses, result } => {
                self.end(*task, *attempt, *state, (*failures, *losses), result).is_some()
            }
            Write::Requeued { task, attempt, failures, losses, result } => {
                let ended = self.end(*task, *attempt, TaskState::Ready, (*failures, *losses), result);
                let Some(row) = ended else { return false };
                self.history.entry(*task).or_default().push(earlier(&row, result));
                true
            }
            Write::LateResult { task, attempt, worker, epoch, result } => {
                let (attempt, worker, epoch) = (*attempt, *worker, *epoch);
                let view =
                    AttemptView { attempt, worker, epoch, late: true, booked: None, result: result.clone() };
                self.add_late(*task, view);
                true
            }
            Write::Worker(record) => {
                self.workers.insert(record.id, record.clone());
                true
            }
            Write::Park { job, queue, parked } => self.park(*job, queue, parked),
            Write::Unpark { job, queue, parked } => self.unpark(*job, queue, parked),
            Write::WorkerGone(id) => {
                self.workers.remove(id);
                true
            }
            Write::Lease { worker, until } => {
                self.workers.get_mut(worker).map(|record| record.lease_until = Some(*until)).is_some()
            }
        }
    }

    fn park(&mut self, job: JobId, queue: &str, parked: &Parked) -> bool {
        let active = self.jobs.get(&job).is_some_and(|view| view.state == JobState::Active);
        if !active || self.parked.contains_key(&job) {
            return false;
        }
        self.parked.insert(job, *parked);
        let subqueue = (queue.to_owned(), parked.class);
        self.subqueues.entry(subqueue.clone()).or_default().insert(parked.position, job);
        let count = self.parked_counts.entry(subqueue).or_default();
        *count = count.plus(parked.backlog);
        true
    }

    fn insert_job(&mut self, id: JobId, spec: &JobSpec, created: Time) -> bool {
        self.next_job = self.next_job.max(id.0 + 1);
        let bodies = (0..).zip(&spec.steps).map(|(number, step)| ((id, number), step.body.clone()));
        self.bodies.extend(bodies);
        let view = JobView {
            id,
            spec: Arc::new(spec.without_bodies()),
            created,
            state: JobState::Active,
            stop: None,
            held: false,
            ended: None,
            counts: None,
            cancels: RangeSet::default(),
            first_succeeded: RangeSet::default(),
        };
        self.jobs.insert(id, view);
        true
    }

    fn unpark(&mut self, job: JobId, queue: &str, parked: &Parked) -> bool {
        if self.parked.remove(&job).is_none() {
            return false;
        }
        let key = (queue.to_owned(), parked.class);
        if let Some(subqueue) = self.subqueues.get_mut(&key) {
            subqueue.remove(&parked.position);
            if subqueue.is_empty() {
                self.subqueues.remove(&key);
            }
        }
        let left = self.parked_counts.get(&key).copied().unwrap_or_default().less(parked.backlog);
        self.parked_counts.insert(key.clone(), left);
        if left == BacklogCounts::default() {
            self.parked_counts.remove(&key);
        }
        true
    }

    fn save_turns(&mut self, saved: &SavedTurns) -> bool {
        for TurnRecord { queue, user, turn } in &saved.turns {
            let key = (queue.clone(), user.clone());
            match turn {
                Some(turn) => _ = self.turns.insert(key, turn.clone()),
                None => _ = self.turns.remove(&key),
            }
        }
        for ClockRecord { of, clock } in &saved.clocks {
            match clock {
                Some(clock) => _ = self.clocks.insert(of.clone(), *clock),
                None => _ = self.clocks.remove(of),
            }
        }
        true
    }

    fn saved_turns(&self) -> SavedTurns {
        let turn = |((queue, user), turn): (&(String, Option<String>), &QueueTurn)| TurnRecord {
            queue: queue.clone(),
            user: user.clone(),
            turn: Some(turn.clone()),
        };
        let clock = |(of, clock): (&ClockOf, &TurnClock)| ClockRecord { of: of.clone(), clock: Some(*clock) };
        SavedTurns {
            turns: self.turns.iter().map(turn).collect(),
            clocks: self.clocks.iter().map(clock).collect(),
        }
    }

    fn set_queue(&mut self, name: &str, queue: Option<&QueueRecord>) -> bool {
        match queue {
            Some(queue) => self.queues.insert(name.to_owned(), queue.clone()),
            None => self.queues.remove(name),
        };
        true
    }

    fn set_limit(&mut self, name: &str, limit: Option<&Limit>) -> bool {
        match limit {
            Some(limit) => _ = self.limits.insert(name.to_owned(), limit.clone()),
            None => _ = self.limits.remove(name),
        }
        true
    }

    fn set_back_offs(&mut self, job: JobId, steps: &BTreeMap<u16, BackOff>) -> bool {
        self.back_offs.insert(job, steps.clone());
        self.jobs.contains_key(&job)
    }

    fn history_newest_first(&self) -> Vec<(String, Vec<Sample>)> {
        let mut newest: Vec<_> =
            self.samples.iter().map(|(name, (at, samples))| (at, name, samples)).collect();
        newest.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)));
        newest
            .into_iter()
            .take(HISTORY_MAX)
            .map(|(_, name, samples)| (name.clone(), samples.clone()))
            .collect()
    }

    /// Adds a late result of an attempt that the task really had. Repetitions are dropped: a keeper repeats a
    /// result until it is acknowledged.
    fn add_late(&mut self, task: TaskId, late: AttemptView) {
        let was_there = self.tasks.get(&task).is_some_and(|stored| stored.row.attempt >= late.attempt);
        let key = |view: &AttemptView| (view.attempt, view.worker, view.epoch, view.late);
        let known = self.history.get(&task).is_some_and(|all| all.iter().any(|view| key(view) == key(&late)));
        if was_there && !known {
            self.history.entry(task).or_default().push(late);
        }
    }

    fn book(
        &mut self,
        task: TaskId,
        attempt: u32,
        (worker, epoch): (WorkerId, Epoch),
        booked: Time,
        amounts: (u32, u64),
    ) -> bool {
        let before = self.tasks.get(&task).map(|stored| &stored.row);
        let (free, failures, losses) = match before {
            None => (attempt == 1, 0, 0),
            Some(row) => {
                (row.state == TaskState::Ready && row.attempt + 1 == attempt, row.failures, row.losses)
            }
        };
        if free {
            let (index, state, amounts) = (task.index, TaskState::Booked, Some(amounts));
            let row = TaskRow { index, state, attempt, failures, losses, worker, epoch, booked, amounts };
            self.tasks.insert(task, StoredTask { row, result: None });
        }
        free
    }

    fn change(&mut self, id: JobId, change: impl FnOnce(&mut JobView)) -> bool {
        self.jobs.get_mut(&id).map(change).is_some()
    }

    fn retry(&mut self, id: JobId, again: &RangeSet) -> bool {
        if !self.jobs.contains_key(&id) {
            return false;
        }
        for range in again.ranges() {
            let tasks = TaskId { job: id, index: range.start }..TaskId { job: id, index: range.end };
            for (task, stored) in self.tasks.range_mut(tasks) {
                match stored.row.state {
                    TaskState::Failed | TaskState::Canceled => {
                        let last = stored.result.as_ref().map(|result| earlier(&stored.row, result));
                        self.history.entry(*task).or_default().extend(last);
                    }
                    TaskState::Ready => {}
                    _ => continue,
                }
                stored.row.state = TaskState::Ready;
                stored.row.failures = 0;
            }
        }
        self.change(id, |view| {
            view.state = JobState::Active;
            view.stop = None;
            view.ended = None;
            view.counts = None;
        })
    }

    fn end(
        &mut self,
        task: TaskId,
        attempt: u32,
        state: TaskState,
        (failures, losses): (u32, u32),
        result: &TaskResult,
    ) -> Option<TaskRow> {
        let stored = self.tasks.get_mut(&task)?;
        if stored.row.state != TaskState::Booked || stored.row.attempt != attempt {
            return None;
        }
        stored.row.state = state;
        stored.row.failures = failures;
        stored.row.losses = losses;
        stored.result = Some(result.clone());
        Some(stored.row.clone())
    }

    fn record(&self, id: JobId) -> Option<JobRecord> {
        let job = self.jobs.get(&id)?;
        let rows = self.tasks.range(TaskId { job: id, index: 0 }..=TaskId { job: id, index: u32::MAX });
        let mut gather = Gather::of(&job.spec);
        rows.for_each(|(_, task)| gather.row(task.row.clone()));
        Some(gather.into_record(JobRecord {
            state: job.state,
            stop: job.stop,
            held: job.held,
            parked: self.parked.get(&id).copied(),
            back_offs: self.back_offs.get(&id).cloned().unwrap_or_default(),
            cancels: job.cancels.clone(),
            first_succeeded: job.first_succeeded.clone(),
            ..JobRecord::new(id, job.spec.clone(), job.created)
        }))
    }
}

/// The attempt of a row, as its task's history has it.
fn earlier(row: &TaskRow, result: &TaskResult) -> AttemptView {
    AttemptView {
        attempt: row.attempt,
        worker: row.worker,
        epoch: row.epoch,
        late: false,
        booked: Some(row.booked),
        result: result.clone(),
    }
}

fn counts(parked: &BTreeMap<SubqueueKey, BacklogCounts>) -> Vec<ParkedCount> {
    let count = |((queue, class), backlog): (&SubqueueKey, &BacklogCounts)| ParkedCount {
        queue: queue.clone(),
        class: *class,
        backlog: *backlog,
    };
    parked.iter().map(count).collect()
}
